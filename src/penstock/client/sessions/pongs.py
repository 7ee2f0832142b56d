"""Answers for what a protocol answers only when it fails.

Such a command goes out between two PINGs. PONGs come in order, so an error that is reported between
the two belongs to the command, and silence between them means that it succeeded.
"""

import enum
from collections import deque

from penstock.client.errors import Refused
from penstock.client.events import Acknowledged, Event, Failed

__all__ = ["Pongs"]


class _Meaning(enum.Enum):
    ANSWER = enum.auto()
    OPENS = enum.auto()
    CLOSES = enum.auto()


class Pongs:
    """The PONGs that a session awaits, and what each will mean."""

    def __init__(self) -> None:
        self._awaited: deque[tuple[_Meaning, int, int]] = deque()  # and the mark of the PING
        self._between: int | None = None  # the ticket that a reported error now belongs to
        self._fault: Refused | None = None

    def expect(self, ticket: int, mark: int = 0) -> None:
        """One PING went out, for its own sake."""
        self._awaited.append((_Meaning.ANSWER, ticket, mark))

    def expect_around(self, ticket: int, first_mark: int = 0, second_mark: int = 0) -> None:
        """Two PINGs went out, and between them the command of `ticket`."""
        self._awaited.append((_Meaning.OPENS, ticket, first_mark))
        self._awaited.append((_Meaning.CLOSES, ticket, second_mark))

    def received(self, mark: int = 0) -> Event | None:
        """Return what the PONG that came now means; one that nobody asked for means nothing.

        Where PINGs carry marks, which only grow, PONGs of lower marks were lost on the way.
        """
        while self._awaited and self._awaited[0][2] < mark:
            self._awaited.popleft()
        if not self._awaited or self._awaited[0][2] != mark:
            return None
        meaning, ticket, _ = self._awaited.popleft()
        if meaning is _Meaning.OPENS:
            self._between, self._fault = ticket, None
            return None
        if meaning is _Meaning.CLOSES:
            self._between = None
            if self._fault is not None:
                return Failed(ticket, self._fault)
        return Acknowledged(ticket)

    def failed(self, error: Refused) -> Event | None:
        """Return what an error that is reported now means; the first of a command is kept."""
        if self._between is None:
            return Failed(None, error)
        self._fault = self._fault or error
        return None
