"""The log: where messages are kept."""
