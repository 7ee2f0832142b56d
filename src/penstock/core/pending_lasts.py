"""Subscriptions of a session to the last messages of topics that it has not got yet.

Their offsets are collected for one subscription after the other, and sent in the same order. A
message that several of them find is sent for the first one only.
"""

from penstock.core.last_values import LastRows

__all__ = ["PendingLasts"]


class PendingLasts:
    """The subscriptions of a session in one partition whose last messages are not all sent."""

    def __init__(self) -> None:
        self._pending: dict[str, LastRows] = {}  # in the order of sending
        self._uncollected: dict[str, LastRows] = {}  # of these, in order
        self._known: dict[str, LastRows] = {}  # these, and sent ones until all are sent
        self._numbers = 0
        self.memory_bytes = 0
        """Memory of the offsets."""

    def __bool__(self) -> bool:
        return bool(self._pending)

    @property
    def first(self) -> LastRows | None:
        """The subscription whose messages are sent next."""
        return next(iter(self._pending.values()), None)

    def add(self, pattern: str) -> LastRows:
        """Add a subscription."""
        self._numbers += 1
        head = self.first
        rows = LastRows(pattern, self._numbers)
        if head is not None:
            rows.head = head.number
            rows.head_next = head.next if head.ready else 0
        self._pending[pattern] = self._uncollected[pattern] = self._known[pattern] = rows
        return rows

    def next_to_collect(self) -> LastRows | None:
        """Return the subscription whose offsets are to be collected, None if it has begun."""
        rows = next(iter(self._uncollected.values()), None)
        return None if rows is None or rows.collecting else rows

    def collected(self, rows: LastRows) -> None:
        """Note that the offsets of a subscription are known."""
        del self._uncollected[rows.pattern]
        self.memory_bytes += rows.memory_bytes

    def remove_first(self) -> None:
        """Remove the first subscription: its messages are sent."""
        rows = self._pending.pop(next(iter(self._pending)))
        self.memory_bytes -= rows.memory_bytes
        rows.release()
        if not self._pending:
            self._known.clear()

    def remove(self, pattern: str) -> None:
        """Remove a subscription that has ended, if it is there."""
        self._known.pop(pattern, None)
        rows = self._pending.pop(pattern, None)
        if rows is None:
            return
        if self._uncollected.pop(pattern, None) is None:
            self.memory_bytes -= rows.memory_bytes
        rows.cancel()
        if not self._pending:
            self._known.clear()

    def clear(self) -> None:
        """Remove all subscriptions."""
        for pattern in list(self._pending):
            self.remove(pattern)

    def position_of(self, pattern: str, position: int) -> int:
        """Return the next offset of a subscription, `position` if it has got its last messages."""
        rows = self._pending.get(pattern)
        if rows is None:
            return position
        if not rows.ready:
            return 0
        return position if rows.next is None else rows.next

    def position_before(self, rows: LastRows, pattern: str, position: int) -> int:
        """Return the offset from which a subscription has sent messages since `rows` was added.

        It is `position` if it had sent its last messages before, or was added later.
        """
        other = self._known.get(pattern)
        if other is None or not rows.head or not rows.head <= other.number < rows.number:
            return position
        first = rows.head_next if other.number == rows.head else other.first
        return position if first is None else first
