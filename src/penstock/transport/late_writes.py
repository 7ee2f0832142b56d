"""Writes that wait for the end of a turn of the event loop.

A connection's first write of a turn goes to the system at once. Many other connections may be read
in the same turn, and each read may cause a further write to it: these wait, and are one system call
at the end of the turn.
"""

import asyncio
from typing import Protocol

__all__ = ["LateWriter", "LateWrites"]


class LateWriter(Protocol):
    """A connection that may have bytes that wait."""

    def flush(self) -> None:
        """Give the transport the bytes that wait, if there are any."""


class LateWrites:
    """The connections of an event loop whose later writes wait for the end of the turn."""

    def __init__(self) -> None:
        self.turn = 0
        """Number of the turn: a connection that wrote in it has its further writes wait."""
        self._waiting: list[LateWriter] = []

    def add(self, connection: LateWriter) -> None:
        """Have a connection flushed at the end of this turn, or earlier."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self.flush)
        self._waiting.append(connection)

    def flush(self) -> None:
        """Begin a new turn, and flush all connections whose writes waited for it."""
        self.turn += 1
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for connection in waiting:
                connection.flush()
