"""How long the disk took: a histogram of syncs, one entry for each commit."""

from bisect import bisect_left
from typing import Final

__all__ = ["BOUNDS_SECONDS", "SyncTimes"]

BOUNDS_SECONDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
)  # fmt: skip
"""Up to how many seconds the syncs of a bucket took; a last one has all that took longer."""


class SyncTimes:
    """The writer thread adds, others look: what they see may lack the last one."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_SECONDS) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count a sync."""
        self.buckets[bisect_left(BOUNDS_SECONDS, seconds)] += 1
        self.seconds += seconds

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.buckets)
