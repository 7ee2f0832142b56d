"""A clock that follows the system clock, and never goes back."""

import time
from typing import Final

import structlog

__all__ = ["CLOCK_BEHIND_SECONDS", "SystemClock"]

CLOCK_BEHIND_SECONDS: Final = 1
"""A system clock that is this far behind the last message of the log is logged.

The broker's clock then begins this much behind that message: others may have been delivered after
it that were never written.
"""

log = structlog.get_logger("penstock.server")


class SystemClock:
    """See ports.Clock. Its times never go back, also if the system's clock is set back.

    They begin behind `last_us`, the time of the last message in the log: a subscription resumes at
    the time of its last message, so later messages must have later times. While the system's clock
    is behind, time goes on at half its speed, until the system's clock has caught up.
    """

    monotonic = staticmethod(time.monotonic)  # called for each read: no Python frame around it

    def __init__(self, last_us: int | None = None) -> None:
        self._last_us = 0
        self._slow_since = 0  # monotonic time of `_last_us`; 0 if not at half speed
        behind_us = 0 if last_us is None else last_us - _system_us()
        if last_us is not None and behind_us > 0:
            self._last_us = last_us + CLOCK_BEHIND_SECONDS * 1_000_000
            self._slow_down(behind_us)

    def now_us(self) -> int:
        """See ports.Clock."""
        now_us = _system_us()
        if now_us >= self._last_us:
            self._last_us = now_us
            self._slow_since = 0
        elif self._slow_since:
            steps = (_monotonic_us() - self._slow_since) // 2
            self._last_us += steps
            self._slow_since += 2 * steps
        else:
            self._slow_down(self._last_us - now_us)
        return self._last_us

    def _slow_down(self, behind_us: int) -> None:
        """Go on at half speed, because the system's clock is `behind_us` behind."""
        self._slow_since = _monotonic_us()
        if behind_us >= CLOCK_BEHIND_SECONDS * 1_000_000:
            log.warning("clock behind the log", seconds=round(behind_us / 1_000_000, 3))


def _system_us() -> int:
    return time.time_ns() // 1000


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1000
