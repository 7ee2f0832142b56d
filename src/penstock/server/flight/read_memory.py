"""The memory of one read by Flight: drawn before a file is read, kept until the client has it."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from penstock.errors import MemoryExhausted
from penstock.limits import (
    FLIGHT_MEMORY_SECONDS_MAX,
    FLIGHT_READ_COPIES,
    FLIGHT_RELAY_BYTES,
)
from penstock.memory import Draw, MemoryBudget, Purpose
from penstock.server.flight.calls import WorkLimit

__all__ = ["ReadMemory"]

_RETRY_SECONDS: Final = 0.2


class ReadMemory:
    """A context manager that draws for one read. The thread of the call owns it.

    Without memory a read waits, and fails with MemoryExhausted after `seconds_max`. Meanwhile
    `check` is called, which may raise, and the read's place in `work` is left to others.
    """

    def __init__(
        self,
        budget: MemoryBudget,
        *,
        principal: str,
        check: Callable[[], None],
        work: WorkLimit,
        seconds_max: float = FLIGHT_MEMORY_SECONDS_MAX,
    ) -> None:
        self._budget = budget
        self._principal = principal
        self._check = check
        self._work = work
        self._seconds_max = seconds_max
        self._draw: Draw | None = None
        self._buffer_bytes = 0

    def __enter__(self) -> Self:
        self._draw = self._budget.draw(Purpose.FLIGHT, principal=self._principal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._draw is not None:
            self._draw.release()

    def reading(self, size: int) -> None:
        """Draw for a buffer of `size` bytes that a thread at work will fill from a file."""
        self._buffer_bytes = size
        if self._drawn(size) is not None:
            with self._work.left():
                self._resize(size)

    def sending(self, size: int) -> None:
        """Draw for a record batch of `size` bytes, if it is larger than the buffer."""
        self._resize(max(size, self._buffer_bytes))

    def _resize(self, size: int) -> None:
        deadline = time.monotonic() + self._seconds_max
        while (error := self._drawn(size)) is not None:
            if time.monotonic() >= deadline:
                raise error
            self._check()
            time.sleep(_RETRY_SECONDS)

    def _drawn(self, size: int) -> MemoryExhausted | None:
        """Draw for `size` bytes; return the error if there is no memory."""
        if self._draw is None:
            raise AssertionError("the read has not begun")
        try:
            self._draw.resize(FLIGHT_RELAY_BYTES + FLIGHT_READ_COPIES * size)
        except MemoryExhausted as error:
            return error
        return None
