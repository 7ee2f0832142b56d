"""Benchmarks: `micro` for parts, `macro` for whole brokers beside their peers."""
