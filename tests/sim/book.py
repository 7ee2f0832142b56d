"""What every client must receive, worked out row by row from what the broker was told.

A row is owed to a session from the moment it is taken, or from a subscription that asks for it, and
until it is written to the session's link. What is owed comes in the order of offsets. A row that is
lost before it is written is owed no more.
"""

from bisect import bisect_left
from dataclasses import dataclass
from functools import cache

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.core.sessions import Session, Sessions
from penstock.patterns import compile_pattern
from penstock.ports import Link


@dataclass(frozen=True)
class Row:
    """A message that the broker took, and the number of who sent it."""

    topic: str
    value: bytes
    sender: int


@dataclass
class Owed:
    """A row that a session has not been sent, and the subscriptions that it is owed for.

    One that is `optional` was lost while it waited in a queue of live messages: what becomes of
    that queue decides whether it comes.
    """

    offset: int
    row: Row
    patterns: set[str]
    optional: bool = False


class Book:
    """All rows that can still be read, and who is owed which."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.owed: dict[Link, list[Owed]] = {}
        self.cut: dict[str, tuple[int, dict[str, list[int]]]] = {}
        self.compared = 0
        self.faults: list[str] = []

    def took(self, batch: Batch, topics: TopicTable, sessions: Sessions, first: int) -> None:
        """The broker is about to deliver a batch to all who subscribe to it now."""
        for index in range(len(batch)):
            topic = topics.name(batch.topic_id(index))
            row = Row(topic, batch.value(index), batch.sender(index).number)
            self.rows[first + index] = row
            for session in sessions:
                for pattern in session.subscriptions:
                    self._owe(session, pattern, first + index, row)

    def subscribed(self, session: Session, pattern: str, start: int, end: int) -> None:
        """A session wants the history of a pattern from `start` to `end`."""
        for offset in range(start, end):
            if offset in self.rows:
                self._owe(session, pattern, offset, self.rows[offset])

    def _owe(self, session: Session, pattern: str, offset: int, row: Row) -> None:
        own = not session.echo and row.sender == session.number and offset >= session.opened_at
        if own or not matches(pattern, row.topic):
            return
        owed = self.owed.setdefault(session.link, [])
        place = bisect_left(owed, offset, key=lambda each: each.offset)
        if place < len(owed) and owed[place].offset == offset:
            owed[place].patterns.add(pattern)
        else:
            owed.insert(place, Owed(offset, row, {pattern}))

    def unsubscribed(self, session: Session, pattern: str) -> None:
        """A session wants not one message more of a pattern."""
        owed = self.owed.get(session.link, [])
        for each in owed:
            each.patterns.discard(pattern)
        owed[:] = [each for each in owed if each.patterns]

    def cut_off(self, session: Session, next_offset: int) -> None:
        """A session is gone; one of its name may come for what is owed to it, and what is taken."""
        if not session.subscriptions:
            return
        owed = self.owed.get(session.link, [])
        self.cut[session.name] = (
            next_offset,
            {
                pattern: [each.offset for each in owed if pattern in each.patterns]
                for pattern in session.subscriptions
            },
        )

    def resumed(self, session: Session, pattern: str, end: int) -> None:
        """A session is back for what it missed of a pattern up to `end`."""
        next_offset, owed = self.cut[session.name]
        for offset in (*owed[pattern], *range(next_offset, end)):
            if offset in self.rows:
                self._owe(session, pattern, offset, self.rows[offset])

    def lost(self, start: int, end: int, sessions: Sessions) -> None:
        """Rows can be read no more by those who have not been sent them."""
        for offset in range(start, end):
            self.rows.pop(offset, None)
        for session in sessions:
            owed = self.owed.get(session.link, [])
            joins_at = None if session.feed is None else session.feed.joins_at
            for each in owed:
                if start <= each.offset < end:
                    each.optional = joins_at is not None and each.offset >= joins_at
                    if not each.optional:
                        each.patterns.clear()
            owed[:] = [each for each in owed if each.patterns]

    def delivered(self, link: Link, topic: str | None, value: bytes) -> None:
        """A message was written to a link: it must be the next that is owed.

        What is wrong is noted, not raised: the broker would take it for a fault of its own.
        """
        owed = self.owed.get(link, [])
        while owed and owed[0].optional and owed[0].row.value != value:
            owed.pop(0)
        expected = owed.pop(0) if owed else None
        self.compared += 1
        if expected is None:
            self.faults.append(f"{link.peer}: {value[:4].hex()} is not owed")
        elif expected.row.value != value or topic not in {None, expected.row.topic}:
            self.faults.append(f"{link.peer}: {value[:4].hex()} came for offset {expected.offset}")


@cache
def matches(pattern: str, topic: str) -> bool:
    expression = compile_pattern(pattern)
    return pattern == topic if expression is None else bool(expression.fullmatch(topic))
