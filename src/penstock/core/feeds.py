"""The position of a session in one partition of the log, while it is served from there."""

from bisect import bisect_left
from collections.abc import Callable
from typing import TypeAlias

from penstock.core.pending_lasts import PendingLasts
from penstock.limits import JOIN_QUEUE_BYTES_MAX
from penstock.memory import Account, Purpose
from penstock.ports import TopicFilter

__all__ = ["Cursor", "Feed", "Subscriptions"]


class Cursor:
    """Subscriptions of a session at one position; all earlier messages were sent or skipped."""

    __slots__ = ("patterns", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        self.patterns: dict[str, None] = {}


Subscriptions: TypeAlias = dict[str, None]
"""The patterns of a session."""


class Feed:
    """The progress of a session from its positions in a partition to live delivery.

    Each cursor holds some of the subscriptions. The lowest cursor is served up to the position of
    the next one, where they merge. So every message is sent once, however many patterns match it,
    and from the highest cursor on all messages come in log order. Live messages are not sent
    meanwhile; they are in the log too.

    The last step is *joining*. Messages that were published just now cannot be read from the log
    yet. So the feed sets `joins_at` to the next offset, queues live messages from there on, and
    sends the queue once the session was served up to `joins_at`.
    """

    __slots__ = (
        "_patterns",
        "broken",
        "cursors",
        "fetching",
        "join_commit",
        "joins_at",
        "lasts",
        "lookups",
        "main",
        "placed",
        "queue",
        "queue_bytes",
        "since",
        "subscriptions",
        "topics",
    )

    def __init__(
        self, position: int, subscriptions: Subscriptions, *, since: object = None
    ) -> None:
        self.subscriptions = subscriptions
        self.since = since
        """Messages that had expired before (`LogReader.expiry`); they are not counted as lost."""
        self.main = Cursor(position)  # holds all subscriptions that no other cursor holds
        self.placed: dict[str, Cursor] = {}  # the cursors of the others
        self.cursors = [self.main]  # lowest first, at distinct positions
        self.lookups: dict[Cursor, None] = {}  # cursors whose start is being looked up
        self.lasts = PendingLasts()  # last messages to send before anything else
        self.fetching: int | None = None  # the offset that is being fetched
        self._patterns: frozenset[str] | None = None  # of the lowest cursor, if known
        self.topics: tuple[frozenset[str], TopicFilter | None] | None = None
        """The filter of `patterns` when they were asked for last."""
        self.joins_at: int | None = None
        self.join_commit = 0  # the commit of the last message before `joins_at`
        self.queue: list[tuple[bytes, int]] = []  # frames and their number of messages
        self.queue_bytes = 0
        self.broken = False

    # --- Subscriptions ----------------------------------------------------------------------------

    def place(self, pattern: str, position: int, *, subscribed_at: int) -> None:
        """Start a subscription at `position`, which is at most `subscribed_at`."""
        if position < subscribed_at and self.joins_at is not None:
            self.stop_joining()  # the queue may lack messages of this pattern
        index = bisect_left(self.cursors, position, key=_position)
        if index == len(self.cursors) or self.cursors[index].position != position:
            self.cursors.insert(index, Cursor(position))
        cursor = self.cursors[index]
        self._assign(cursor, pattern)

    def look_up(self, pattern: str, latest: int) -> Cursor:
        """Add a subscription whose start is not known yet, but is at most `latest`."""
        cursor = Cursor(latest)
        self._assign(cursor, pattern)
        self.lookups[cursor] = None
        return cursor

    def remove(self, pattern: str) -> None:
        """Remove a subscription from its cursor."""
        if self.queue:
            self.stop_joining()  # queued messages may be for this pattern only
        self._patterns = None
        self.lasts.remove(pattern)
        cursor = self.placed.pop(pattern, None)
        if cursor is not None:
            del cursor.patterns[pattern]
            if not cursor.patterns:
                self.lookups.pop(cursor, None)
                if cursor in self.cursors:
                    self.cursors.remove(cursor)

    def wants(self, cursor: Cursor) -> Callable[[str], bool]:
        """Return a predicate that is true for the patterns of a cursor."""
        if cursor is not self.main:
            return cursor.patterns.__contains__
        subscriptions, placed = self.subscriptions, self.placed
        return lambda text: text in subscriptions and text not in placed

    @property
    def idle(self) -> bool:
        """Whether the lowest cursor has no subscriptions."""
        if self.cursors[0] is not self.main:
            return False
        return len(self.subscriptions) == len(self.placed)

    @property
    def patterns(self) -> frozenset[str]:
        """The patterns of the lowest cursor. The same object as long as they do not change."""
        if self._patterns is None:
            lowest = self.cursors[0]
            if lowest is self.main:
                chosen = self.wants(lowest)
                self._patterns = frozenset(filter(chosen, self.subscriptions))
            else:
                self._patterns = frozenset(lowest.patterns)
        return self._patterns

    # --- Position ---------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The next offset to serve."""
        return self.cursors[0].position

    @property
    def limit(self) -> int | None:
        """The offset at which the lowest cursor merges or joins; None if there is none."""
        if len(self.cursors) == 1:
            return self.joins_at
        position = self.cursors[1].position
        return position if self.joins_at is None else min(position, self.joins_at)

    def advance(self, position: int) -> None:
        """Move the lowest cursor to `position`, at most `limit`; merge it with a cursor there."""
        lowest = self.cursors[0]
        lowest.position = position
        if len(self.cursors) > 1 and self.cursors[1].position == position:
            absorbed = self.cursors.pop(0 if self.cursors[1] is self.main else 1)
            self._patterns = None
            for pattern in absorbed.patterns:
                self._assign(self.cursors[0], pattern)

    def position_of(self, pattern: str) -> int:
        """Return the next offset of a subscription.

        If it still waits for last messages, it is that of the first of them: then messages in
        between would be sent too, but none would be missed.
        """
        return self.lasts.position_of(pattern, self.cursor_of(pattern).position)

    def cursor_of(self, pattern: str) -> Cursor:
        """Return the cursor that holds a subscription."""
        return self.placed.get(pattern, self.main)

    @property
    def held_bytes(self) -> int:
        """Memory of the queue and of the offsets of last messages."""
        return self.queue_bytes + self.lasts.memory_bytes

    def _assign(self, cursor: Cursor, pattern: str) -> None:
        self._patterns = None
        if cursor is self.main:
            self.placed.pop(pattern, None)
        else:
            self.placed[pattern] = cursor
            cursor.patterns[pattern] = None

    # --- Joining ----------------------------------------------------------------------------------

    def join(self, offset: int, commit: int) -> None:
        """Queue live messages from `offset` on; `commit` is that of the last message before it."""
        self.joins_at = offset
        self.join_commit = commit

    def stop_joining(self) -> None:
        """Discard the queue: its messages are served from the log."""
        self.joins_at = None
        self.queue.clear()
        self.queue_bytes = 0

    def enqueue(self, frames: bytes, count: int, account: Account) -> None:
        """Queue live messages; leave them to the log above JOIN_QUEUE_BYTES_MAX or without memory.

        The queue is held in the session's account.
        """
        self.queue_bytes += len(frames)
        if self.queue_bytes > JOIN_QUEUE_BYTES_MAX or not account.hold(
            Purpose.REPLAY, self.queue_bytes
        ):
            self.stop_joining()
        else:
            self.queue.append((frames, count))

    def end(self) -> None:
        """Make all subscriptions live."""
        self.placed.clear()
        self.lasts.clear()
        self.lookups.clear()


def _position(cursor: Cursor) -> int:
    return cursor.position
