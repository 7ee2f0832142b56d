"""The broker's brain: synchronous, deterministic, with no idea of sockets, files or event loops."""
