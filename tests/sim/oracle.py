"""An independent model of delivery: which rows each session must still receive.

A row is expected by a session from its publish, or from a subscription that starts in history, until
it is written to the session's link. Rows are expected in the order of offsets. A row that the log
loses before it is written is not expected any more.
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
    """A published message and its sender's number."""

    topic: str
    value: bytes
    sender: int


@dataclass
class Expected:
    """A row that a session has not been sent, and the subscriptions that match it.

    An `optional` row was lost while it was in a queue of live messages. It arrives if the queue is
    sent, and not if the queue is discarded.
    """

    offset: int
    row: Row
    patterns: set[str]
    optional: bool = False


class DeliveryOracle:
    """All rows that can still be read, and the rows that each session expects."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.expected: dict[Link, list[Expected]] = {}
        self.disconnections: dict[str, tuple[int, dict[str, list[int]]]] = {}
        self.compared = 0
        self.faults: list[str] = []

    def published(self, batch: Batch, topics: TopicTable, sessions: Sessions, first: int) -> None:
        """Expect a batch, which is about to be delivered, for its present subscribers."""
        for index in range(len(batch)):
            topic = topics.name(batch.topic_id(index))
            row = Row(topic, batch.value(index), batch.sender(index).number)
            self.rows[first + index] = row
            for session in sessions:
                for pattern in session.subscriptions:
                    self._expect(session, pattern, first + index, row)

    def subscribed(self, session: Session, pattern: str, start: int, end: int) -> None:
        """Expect the history of a pattern from `start` to `end`."""
        for offset in range(start, end):
            if offset in self.rows:
                self._expect(session, pattern, offset, self.rows[offset])

    def _expect(self, session: Session, pattern: str, offset: int, row: Row) -> None:
        own = not session.echo and row.sender == session.number and offset >= session.opened_at
        if own or not matches(pattern, row.topic):
            return
        expected = self.expected.setdefault(session.link, [])
        place = bisect_left(expected, offset, key=lambda each: each.offset)
        if place < len(expected) and expected[place].offset == offset:
            expected[place].patterns.add(pattern)
        else:
            expected.insert(place, Expected(offset, row, {pattern}))

    def unsubscribed(self, session: Session, pattern: str) -> None:
        """Expect no more messages of a pattern."""
        expected = self.expected.get(session.link, [])
        for each in expected:
            each.patterns.discard(pattern)
        expected[:] = [each for each in expected if each.patterns]

    def disconnected(self, session: Session, next_offset: int) -> None:
        """Store what a session expects, for `resumed`."""
        if not session.subscriptions:
            return
        expected = self.expected.get(session.link, [])
        self.disconnections[session.name] = (
            next_offset,
            {
                pattern: [each.offset for each in expected if pattern in each.patterns]
                for pattern in session.subscriptions
            },
        )

    def resumed(self, session: Session, pattern: str, end: int) -> None:
        """Expect what a reconnected client missed of a pattern up to `end`."""
        next_offset, expected = self.disconnections[session.name]
        for offset in (*expected[pattern], *range(next_offset, end)):
            if offset in self.rows:
                self._expect(session, pattern, offset, self.rows[offset])

    def lost(self, start: int, end: int, sessions: Sessions) -> None:
        """Remove rows that can no longer be read from the log."""
        for offset in range(start, end):
            self.rows.pop(offset, None)
        for session in sessions:
            expected = self.expected.get(session.link, [])
            feed = session.feeds.get(0)
            joins_at = None if feed is None else feed.joins_at
            for each in expected:
                if start <= each.offset < end:
                    each.optional = joins_at is not None and each.offset >= joins_at
                    if not each.optional:
                        each.patterns.clear()
            expected[:] = [each for each in expected if each.patterns]

    def delivered(self, link: Link, topic: str | None, value: bytes) -> None:
        """Compare a message that was written to a link with the next expected one.

        Differences are collected, not raised: the broker would catch the exception.
        """
        rows = self.expected.get(link, [])
        while rows and rows[0].optional and rows[0].row.value != value:
            rows.pop(0)
        expected = rows.pop(0) if rows else None
        self.compared += 1
        if expected is None:
            self.faults.append(f"{link.peer}: {value[:4].hex()} is not expected")
        elif expected.row.value != value or topic not in {None, expected.row.topic}:
            self.faults.append(f"{link.peer}: {value[:4].hex()} came for offset {expected.offset}")


@cache
def matches(pattern: str, topic: str) -> bool:
    expression = compile_pattern(pattern)
    return pattern == topic if expression is None else bool(expression.fullmatch(topic))
