"""Counters of the broker, updated once for each batch."""

import dataclasses
from array import array
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock._kernels.batch import Batch
from penstock._kernels.tally import busiest, tally
from penstock._kernels.topics import TopicTable
from penstock.protocols import Protocol

if TYPE_CHECKING:
    from penstock.core.sessions import Session

__all__ = ["Counters", "TopicCount", "TopicCounts"]

_WIDTH: Final = 4
"""Numbers kept for each topic, see `_kernels.tally`."""


@dataclasses.dataclass(slots=True)
class Counters:
    """Counters since the start, by protocol."""

    sessions_opened: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    messages_received: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    bytes_received: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    """All processed bytes from clients: messages and control packets."""
    messages_received_by_flight: int = 0
    """Rows of Flight tables."""
    messages_received_by_http: int = 0
    messages_refused: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    """Valid messages that were refused: by rules, hooks, rate limits or the log."""
    messages_sent: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    bytes_sent: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    """Bytes of message frames; replies do not count."""
    messages_dropped: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    messages_undeliverable: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    messages_unreadable: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    """Messages that could not be read from the log for a client, matching or not."""
    fell_behind: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    """How often a client became too slow for live delivery and was served from the log."""
    cut_off: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    """Clients disconnected because they were too slow."""
    frames_rejected: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    connections_failed: Counter[str] = dataclasses.field(default_factory=Counter)

    def received(self, session: "Session", size: int) -> None:
        """Count bytes received from a client and processed."""
        self.bytes_received[session.encoding.protocol] += size
        session.bytes_received += size

    def sent(self, session: "Session", count: int, size: int) -> None:
        """Count messages written to a client, and the bytes of their frames."""
        protocol = session.encoding.protocol
        self.messages_sent[protocol] += count
        self.bytes_sent[protocol] += size
        session.messages_sent += count
        session.bytes_sent += size


class TopicCount(NamedTuple):
    """Counters of one topic; without messages, `last_offset` and `last_us` have no meaning."""

    messages: int
    value_bytes: int
    last_offset: int
    last_us: int


class TopicCounts:
    """Counters of each topic since the start, updated by a kernel."""

    def __init__(self, topics: TopicTable) -> None:
        self._topics = topics
        self._counts = array("Q")

    def add(self, batch: Batch, first_offset: int) -> None:
        """Count the rows of a batch whose first row has `first_offset`."""
        if _WIDTH * len(self._topics) > len(self._counts):
            self._grow()
        tally(batch, self._counts, first_offset)

    def _grow(self) -> None:
        missing = _WIDTH * len(self._topics) - len(self._counts)
        if missing > 0:
            # Grow by half, so that adding topics one by one does not copy the array each time.
            self._counts.frombytes(bytes(8 * (missing + len(self._counts) // 2 // _WIDTH * _WIDTH)))

    def of(self, identifier: int) -> TopicCount:
        """Return the counters of a topic."""
        found = self._counts[_WIDTH * identifier : _WIDTH * (identifier + 1)]
        return TopicCount(*found) if found else TopicCount(0, 0, 0, 0)

    def last_offset(self, identifier: int) -> int:
        """Return the offset of the last message of a topic since the start, -1 if it has none."""
        start = _WIDTH * identifier
        if start >= len(self._counts) or not self._counts[start]:
            return -1
        return self._counts[start + 2]

    def add_record(self, identifier: int, *, size: int, offset: int, timestamp_us: int) -> None:
        """Count one message that is not in a batch, with the bytes of its value."""
        self._grow()
        start = _WIDTH * identifier
        self._counts[start] += 1
        self._counts[start + 1] += size
        self._counts[start + 2] = offset
        self._counts[start + 3] = timestamp_us

    def snapshot(self) -> "array[int]":
        """Return a copy of all counters for `busiest_since`."""
        return self._counts[:]

    def busiest_since(self, before: "array[int]", *, most: int) -> list[tuple[int, TopicCount]]:
        """Return the topics with the most messages since a snapshot, with their growth.

        The busiest comes first; offset and time are those of the topic's last message.
        """
        found = []
        for identifier in busiest(before, self._counts, most):
            now = self.of(identifier)
            start = _WIDTH * identifier
            messages, value_bytes = before[start : start + 2] or (0, 0)
            grown = now._replace(
                messages=now.messages - messages, value_bytes=now.value_bytes - value_bytes
            )
            found.append((identifier, grown))
        return found
