"""Best rates of systems that are compared, all from runs that last equally long."""

from collections.abc import Callable, Hashable
from typing import Final

__all__ = ["SECONDS", "Rates"]

SECONDS: Final = 1.0
"""The least time of a run that counts. The start of a short one would weigh too much."""
MESSAGES_FIRST: Final = 20_000
"""Messages of the first run of a system: it shows how many last long enough."""
MARGIN: Final = 1.2
"""By which a run is longer than it must be, so that most need not be repeated."""


class Rates:
    """Measures rates by runs of at least `seconds`, and keeps the best of each key."""

    def __init__(self, seconds: float = SECONDS, *, first: int = MESSAGES_FIRST) -> None:
        self.best: dict[Hashable, float] = {}
        self._seconds = seconds
        self._first = first
        self._counts: dict[Hashable, int] = {}

    def take(self, key: Hashable, run: Callable[[int], float], *, unit: int = 1) -> None:
        """Measure once more: `run` gets a multiple of `unit` messages, and returns those a second.

        Runs that are too short are repeated with more messages, and do not count.
        """
        count = self._counts.get(key, self._first)
        while True:
            count = max(1, -(-count // unit)) * unit
            rate = run(count)
            if count / rate >= self._seconds:
                break
            count = int(rate * self._seconds * MARGIN) + 1
        self._counts[key] = count
        self.best[key] = max(self.best.get(key, 0.0), rate)
