"""Benchmarks of single parts, without sockets."""
