"""Benchmarks of whole brokers, beside their peers in the same run."""
