"""Answers to commands that a protocol answers only on failure.

Such a command is sent between two PINGs. PONGs arrive in order: an error between the two PONGs
belongs to the command; without an error between them the command succeeded.
"""

import enum
from collections import deque

from penstock.client.errors import Refused
from penstock.client.events import Acknowledged, Event, Failed

__all__ = ["Pongs"]


class _PongKind(enum.Enum):
    ANSWER = enum.auto()
    OPENS = enum.auto()
    CLOSES = enum.auto()


class Pongs:
    """The PONGs that a session awaits, and the kind of each."""

    def __init__(self) -> None:
        self._awaited: deque[tuple[_PongKind, int, int]] = deque()  # kind, ticket, mark of the PING
        self._open_ticket: int | None = None  # ticket of errors reported now
        self._fault: Refused | None = None

    def expect(self, ticket: int, mark: int = 0) -> None:
        """Expect the PONG of a single PING."""
        self._awaited.append((_PongKind.ANSWER, ticket, mark))

    def expect_around(self, ticket: int, first_mark: int = 0, second_mark: int = 0) -> None:
        """Expect the PONGs of two PINGs that were sent around the command of `ticket`."""
        self._awaited.append((_PongKind.OPENS, ticket, first_mark))
        self._awaited.append((_PongKind.CLOSES, ticket, second_mark))

    def received(self, mark: int = 0) -> Event | None:
        """Return the event of a received PONG, None if it has none or was not awaited.

        Marks of PINGs only grow: awaited PONGs with lower marks were lost.
        """
        while self._awaited and self._awaited[0][2] < mark:
            self._awaited.popleft()
        if not self._awaited or self._awaited[0][2] != mark:
            return None
        kind, ticket, _ = self._awaited.popleft()
        if kind is _PongKind.OPENS:
            self._open_ticket, self._fault = ticket, None
            return None
        if kind is _PongKind.CLOSES:
            self._open_ticket = None
            if self._fault is not None:
                return Failed(ticket, self._fault)
        return Acknowledged(ticket)

    def failed(self, error: Refused) -> Event | None:
        """Return the event of a reported error, None if it answers an open command."""
        if self._open_ticket is None:
            return Failed(None, error)
        self._fault = self._fault or error
        return None
