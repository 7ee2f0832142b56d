"""A histogram of durations."""

from bisect import bisect_left

__all__ = ["Histogram"]


class Histogram:
    """Counts of durations up to each of `bounds_seconds`; the last bucket has no bound."""

    __slots__ = ("bounds_seconds", "buckets", "seconds")

    def __init__(self, bounds_seconds: tuple[float, ...]) -> None:
        self.bounds_seconds = bounds_seconds
        self.buckets = [0] * (len(bounds_seconds) + 1)
        self.seconds = 0.0

    @property
    def count(self) -> int:
        """Number of durations."""
        return sum(self.buckets)

    def add(self, seconds: float, count: int = 1) -> None:
        """Count a duration, `count` times."""
        self.buckets[bisect_left(self.bounds_seconds, seconds)] += count
        self.seconds += seconds * count
