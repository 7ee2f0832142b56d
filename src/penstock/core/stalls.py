"""Stalls of the event loop: how many, how long, and the cause of the last one."""

import dataclasses
from typing import Final

__all__ = ["STALL_BOUNDS_SECONDS", "Stall", "Stalls"]

STALL_BOUNDS_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram's buckets; the last bucket has no bound."""


@dataclasses.dataclass(frozen=True, slots=True)
class Stall:
    """One stall: its length, the processor time of the loop's thread in it, and its cause."""

    seconds: float
    processor_seconds: float
    cause: str
    peer: str
    at_us: int
    """Microseconds since the epoch."""


@dataclasses.dataclass(slots=True)
class Stalls:
    """Stalls since the start. The longest delays are kept even if they are too short to count."""

    count: int = 0
    seconds: float = 0.0
    seconds_max: float = 0.0
    processor_seconds_max: float = 0.0
    buckets: list[int] = dataclasses.field(
        default_factory=lambda: [0] * (len(STALL_BOUNDS_SECONDS) + 1)
    )
    last: Stall | None = None

    def measure(self, seconds: float, processor_seconds: float) -> None:
        """Record the delay of one turn of the loop."""
        self.seconds_max = max(self.seconds_max, seconds)
        self.processor_seconds_max = max(self.processor_seconds_max, processor_seconds)

    def add(self, stall: Stall) -> None:
        """Count a stall."""
        self.count += 1
        self.seconds += stall.seconds
        self.last = stall
        for index, bound in enumerate(STALL_BOUNDS_SECONDS):
            if stall.seconds <= bound:
                self.buckets[index] += 1
                return
        self.buckets[-1] += 1
