"""Transports: sockets, pipes and processes. No other package uses them."""
