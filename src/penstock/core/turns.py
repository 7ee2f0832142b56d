"""Turns of the event loop: how long the frames of all clients may take in one."""

from collections.abc import Callable

from penstock.limits import BUSY_TURN_SECONDS_MAX, DEFERRED_BYTES_MAX, LOOP_TURN_SECONDS_MAX

__all__ = ["LoopTurn"]


class LoopTurn:
    """The current turn of the event loop. Connections ask it before they process what they read.

    The owner of the event loop sets `schedule`, which calls a function in the next turn. Without it
    no turn is ever over.
    """

    def __init__(
        self,
        *,
        seconds_max: float = LOOP_TURN_SECONDS_MAX,
        busy_seconds_max: float = BUSY_TURN_SECONDS_MAX,
        deferred_bytes_max: int = DEFERRED_BYTES_MAX,
    ) -> None:
        self.schedule: Callable[[Callable[[], None]], object] | None = None
        self.deferred_bytes = 0
        """Received bytes that wait for a later turn."""
        self._seconds_max = seconds_max
        self._busy_seconds_max = busy_seconds_max
        self._deferred_bytes_max = deferred_bytes_max
        self._started: float | None = None
        self.number = 0
        """Number of the turn."""

    def defers(self, now: float, size: int, *, is_busy: bool = False) -> bool:
        """Return whether `size` received bytes have to wait, because the turn took too long.

        Bytes of a busy client wait earlier, so that a crowd of busy clients does not delay others.
        """
        if self._started is None:
            if self.schedule is None:
                self.number += 1  # each call is a turn
            else:
                self._started = now
                self.schedule(self.end)
            return False
        return (
            now - self._started > (self._busy_seconds_max if is_busy else self._seconds_max)
            and self.deferred_bytes + size <= self._deferred_bytes_max
        )

    def end(self) -> None:
        """End the turn: the next one starts with the next read."""
        self._started = None
        self.number += 1
