"""Benchmarks of whole brokers, compared with nats-server in the same run."""
