"""Where in the log a session stands that is not live, and what it has yet to be sent."""

from bisect import bisect_left
from collections.abc import Callable
from typing import TypeAlias

from penstock.limits import JOIN_QUEUE_BYTES_MAX

__all__ = ["Cursor", "Feed", "Subscriptions"]


class Cursor:
    """Subscriptions of a session that stand at one place: all before `position` is done with."""

    __slots__ = ("patterns", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        self.patterns: dict[str, None] = {}


Subscriptions: TypeAlias = dict[str, Cursor | None]
"""The patterns of a session, each with the cursor it stands at; None is the feed's main one."""


class Feed:
    """A session's way back to the tail of the log, in one order.

    Each cursor stands for some subscriptions. The lowest is served up to the place of the next, and
    there they go on together: so every message is sent once, however many patterns match it, and
    those of all subscriptions come in the order of the log from the highest cursor on. What is live
    waits meanwhile; it is in the log too.

    The last step is *joining*. The log cannot give yet what was taken a moment ago, so the session
    notes the next offset, has what comes from there on put into a queue, and gets the queue once it
    has been served up to that offset.
    """

    __slots__ = (
        "asked",
        "broken",
        "cursors",
        "join_commit",
        "joins_at",
        "lookups",
        "main",
        "queue",
        "queue_bytes",
        "subscriptions",
    )

    def __init__(self, position: int, subscriptions: Subscriptions) -> None:
        self.subscriptions = subscriptions
        self.main = Cursor(position)  # of all subscriptions that no other cursor has
        self.cursors = [self.main]  # the lowest first; no two at one place
        self.lookups: dict[Cursor, None] = {}  # those whose place is not known yet
        self.asked: int | None = None  # the offset that is being fetched
        self.joins_at: int | None = None
        self.join_commit = 0  # the commit of the last message before `joins_at`
        self.queue: list[tuple[bytes, int]] = []  # frames, and how many messages they are
        self.queue_bytes = 0
        self.broken = False

    # --- Subscriptions ----------------------------------------------------------------------------

    def place(self, pattern: str, position: int, *, subscribed_at: int) -> None:
        """Let a subscription begin at `position`, which is not behind where it was made."""
        if position < subscribed_at and self.joins_at is not None:
            self.stop_joining()  # the queue may lack some of this pattern
        index = bisect_left(self.cursors, position, key=_position)
        if index == len(self.cursors) or self.cursors[index].position != position:
            self.cursors.insert(index, Cursor(position))
        cursor = self.cursors[index]
        self._give(cursor, pattern)

    def look_up(self, pattern: str, latest: int) -> Cursor:
        """Let a subscription wait for its place, which is not behind `latest`."""
        cursor = Cursor(latest)
        self._give(cursor, pattern)
        self.lookups[cursor] = None
        return cursor

    def remove(self, pattern: str, cursor: Cursor | None) -> None:
        """Take note that a subscription at `cursor` is gone."""
        if self.queue:
            self.stop_joining()  # some of it may be for this pattern alone
        if cursor is not None:
            del cursor.patterns[pattern]
            if not cursor.patterns:
                self.lookups.pop(cursor, None)
                if cursor in self.cursors:
                    self.cursors.remove(cursor)

    def wants(self, cursor: Cursor) -> Callable[[str], bool]:
        """Return what tells the patterns of a cursor from all others."""
        if cursor is not self.main:
            return cursor.patterns.__contains__
        subscriptions = self.subscriptions
        return lambda text: subscriptions.get(text, cursor) is None

    @property
    def idle(self) -> bool:
        """Whether the lowest cursor has no subscriptions."""
        if self.cursors[0] is not self.main:
            return False
        others = sum(len(cursor.patterns) for cursor in (*self.cursors, *self.lookups))
        return len(self.subscriptions) == others

    # --- Going on ---------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The offset to go on with."""
        return self.cursors[0].position

    @property
    def limit(self) -> int | None:
        """The offset up to which only the lowest cursor is served; None if it is the only one."""
        if len(self.cursors) == 1:
            return self.joins_at
        position = self.cursors[1].position
        return position if self.joins_at is None else min(position, self.joins_at)

    def advance(self, position: int) -> None:
        """Go on to `position`, which is not behind the limit; who meets there goes on together."""
        lowest = self.cursors[0]
        lowest.position = position
        if len(self.cursors) > 1 and self.cursors[1].position == position:
            absorbed = self.cursors.pop(0 if self.cursors[1] is self.main else 1)
            for pattern in absorbed.patterns:
                self._give(self.cursors[0], pattern)

    def _give(self, cursor: Cursor, pattern: str) -> None:
        if cursor is self.main:
            self.subscriptions[pattern] = None
        else:
            self.subscriptions[pattern] = cursor
            cursor.patterns[pattern] = None

    # --- Joining ----------------------------------------------------------------------------------

    def join(self, offset: int, commit: int) -> None:
        """Keep what comes from `offset` on; `commit` is that of the last message before it."""
        self.joins_at = offset
        self.join_commit = commit

    def stop_joining(self) -> None:
        """Forget the queue: all of it will come from the log."""
        self.joins_at = None
        self.queue.clear()
        self.queue_bytes = 0

    def keep(self, frames: bytes, count: int) -> None:
        """Put live messages into the queue; where they are too many, the log will bring them."""
        self.queue_bytes += len(frames)
        if self.queue_bytes > JOIN_QUEUE_BYTES_MAX:
            self.stop_joining()
        else:
            self.queue.append((frames, count))

    def end(self) -> None:
        """Let all subscriptions be live."""
        for cursor in (*self.cursors, *self.lookups):
            for pattern in cursor.patterns:
                self.subscriptions[pattern] = None
        self.lookups.clear()


def _position(cursor: Cursor) -> int:
    return cursor.position
