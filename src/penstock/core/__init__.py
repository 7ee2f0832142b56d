"""The broker's logic: synchronous and deterministic, without sockets, files or event loops."""
