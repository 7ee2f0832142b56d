"""A histogram of durations."""

from bisect import bisect_left

__all__ = ["Histogram"]


class Histogram:
    """Counts of durations up to each of `bounds_seconds`; the last bucket has no bound."""

    __slots__ = ("bounds_seconds", "buckets", "seconds", "seconds_max")

    def __init__(self, bounds_seconds: tuple[float, ...]) -> None:
        self.bounds_seconds = bounds_seconds
        self.buckets = [0] * (len(bounds_seconds) + 1)
        self.seconds = 0.0
        """Sum of all durations."""
        self.seconds_max = 0.0
        """The longest duration."""

    @property
    def count(self) -> int:
        """Number of durations."""
        return sum(self.buckets)

    def add(self, seconds: float, count: int = 1) -> None:
        """Count a duration, `count` times."""
        self.buckets[bisect_left(self.bounds_seconds, seconds)] += count
        self.seconds += seconds * count
        self.seconds_max = max(self.seconds_max, seconds)

    def quantile(self, share: float) -> float:
        """Return a duration that about this share of all is not above; 0 if there are none.

        Durations are taken to be spread evenly over their bucket.
        """
        wanted = share * self.count
        lower, passed = 0.0, 0
        for bound, found in zip(
            (*self.bounds_seconds, self.seconds_max), self.buckets, strict=True
        ):
            upper = min(bound, self.seconds_max)
            if found and passed + found >= wanted:
                return lower + (upper - lower) * (wanted - passed) / found
            lower, passed = bound, passed + found
        return 0.0
