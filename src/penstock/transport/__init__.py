"""Sockets, pipes and processes: the only package that touches them."""
