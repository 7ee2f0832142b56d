"""Timers on the broker's clock."""

import heapq
import itertools
from collections.abc import Callable

from penstock.limits import TIMERS_SECONDS_MAX
from penstock.ports import Clock

__all__ = ["Timer", "Timers"]


class Timer:
    """A callback that runs once, unless it is cancelled. `callback` may be replaced."""

    __slots__ = ("callback", "when")

    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when = when
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Do not run the callback."""
        self.callback = None


class Timers:
    """Pending timers. The broker's owner calls `run_due` periodically."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._order = itertools.count()  # timers due at one time run in the order they were made
        self._heap: list[tuple[float, int, Timer]] = []

    def after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` after `seconds` or slightly later."""
        timer = Timer(self._clock.monotonic() + seconds, callback)
        heapq.heappush(self._heap, (timer.when, next(self._order), timer))
        return timer

    def run_due(self, *, seconds_max: float = TIMERS_SECONDS_MAX) -> float | None:
        """Run the timers that are due; return the seconds until the next, None if there is none.

        After `seconds_max`, return 0: the others run in the next call.
        """
        now = self._clock.monotonic()
        while self._heap:
            if self._clock.monotonic() - now > seconds_max:
                return 0.0
            when, _, timer = self._heap[0]
            if timer.callback is not None and when > now:
                return when - now
            heapq.heappop(self._heap)
            if timer.callback is not None:
                timer.callback()
        return None
