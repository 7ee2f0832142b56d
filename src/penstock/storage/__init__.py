"""Storages: where messages are kept."""
