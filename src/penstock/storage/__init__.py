"""Storages: implementations of `ports.Storage`."""
