"""Benchmarks of Spark on a log."""
