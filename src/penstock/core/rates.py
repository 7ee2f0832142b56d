"""How many messages a client may send: a bucket that fills at a steady rate."""

__all__ = ["Allowance"]


class Allowance:
    """Up to `per_second` messages at once, and that many more each second.

    It starts full. `None` allows any number.
    """

    __slots__ = ("_left", "_per_second", "_then")

    def __init__(self, per_second: int | None, now: float) -> None:
        self._per_second = per_second
        self._left = float(per_second or 0)
        self._then = now

    def left(self, now: float, *, most: int) -> int:
        """Return how many messages may come now, `most` at most."""
        if self._per_second is None:
            return most
        self._left = min(
            float(self._per_second), self._left + (now - self._then) * self._per_second
        )
        self._then = now
        return min(most, int(self._left))

    def take(self, count: int) -> None:
        """Count messages that came."""
        if self._per_second is not None:
            self._left -= count

    def wait_seconds(self) -> float:
        """Return how long it takes until one more may come."""
        if self._per_second is None:
            return 0.0
        return max(0.0, (1.0 - self._left) / self._per_second)
