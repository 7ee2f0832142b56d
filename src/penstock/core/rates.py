"""Rate limits: how many messages a client may send per second."""

__all__ = ["RateLimit"]


class RateLimit:
    """A token bucket that holds `per_second` tokens, one for each message; it starts full."""

    __slots__ = ("_per_second", "_tokens", "_updated")

    def __init__(self, per_second: int, now: float) -> None:
        self._per_second = per_second
        self._tokens = float(per_second)
        self._updated = now

    def available(self, now: float, *, most: int) -> int:
        """Return how many messages may come at monotonic time `now`, up to `most`."""
        added = (now - self._updated) * self._per_second
        self._tokens = min(float(self._per_second), self._tokens + added)
        self._updated = now
        return min(most, int(self._tokens))

    def take(self, count: int) -> None:
        """Remove the tokens of `count` messages."""
        self._tokens -= count

    def wait_seconds(self) -> float:
        """Return the seconds until one more message may come."""
        return max(0.0, (1.0 - self._tokens) / self._per_second)
