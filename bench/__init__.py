"""Benchmarks: `micro` for parts, `macro` for whole brokers, `spark` for Spark on a log."""
