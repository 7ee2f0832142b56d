"""What is to happen later, by the broker's own clock."""

import heapq
import itertools
from collections.abc import Callable

from penstock.ports import Clock

__all__ = ["Timer", "Timers"]


class Timer:
    """Something that will be done once, unless it is cancelled."""

    __slots__ = ("callback", "when")

    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when = when
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Forget it."""
        self.callback = None


class Timers:
    """Timers in the order they are due. Whoever owns the broker calls `run_due` now and then."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._order = itertools.count()  # timers due at one time run in the order they were made
        self._heap: list[tuple[float, int, Timer]] = []

    def after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Have `callback` called in `seconds`, or a little later."""
        timer = Timer(self._clock.monotonic() + seconds, callback)
        heapq.heappush(self._heap, (timer.when, next(self._order), timer))
        return timer

    def run_due(self) -> float | None:
        """Run all that is due; return the seconds until the next, None if there is none."""
        now = self._clock.monotonic()
        while self._heap:
            when, _, timer = self._heap[0]
            if timer.callback is not None and when > now:
                return when - now
            heapq.heappop(self._heap)
            if timer.callback is not None:
                timer.callback()
        return None
