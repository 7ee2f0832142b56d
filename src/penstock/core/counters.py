"""Counts that the broker keeps: per batch, never per message."""

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
"""Numbers of a topic, see `_kernels.tally`."""


@dataclasses.dataclass(slots=True)
class Counters:
    """Since the start, by protocol."""

    sessions_opened: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    messages_received: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    bytes_received: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    """All that clients sent and that was taken: messages and whatever else their protocol has."""
    messages_received_by_flight: int = 0
    """Rows of tables."""
    messages_received_by_http: int = 0
    messages_refused: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    """Messages that were well formed and not taken: rules, hooks, rates, a log that fails."""
    messages_sent: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    bytes_sent: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    """Frames of messages; answers do not count."""
    messages_dropped: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    messages_undeliverable: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    messages_unreadable: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    """Messages that the log could not give to a client that was served from it, wanted or not."""
    fell_behind: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    """How often a client was too slow for live delivery, and was served from the log."""
    cut_off: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    """Clients that were disconnected for being too slow."""
    frames_rejected: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    connections_failed: Counter[str] = dataclasses.field(default_factory=Counter)

    def received(self, session: "Session", size: int) -> None:
        """Count bytes that were taken from a client."""
        self.bytes_received[session.encoding.protocol] += size
        session.bytes_received += size

    def sent(self, session: "Session", count: int, size: int) -> None:
        """Count messages that were written to a client, and the bytes of their frames."""
        protocol = session.encoding.protocol
        self.messages_sent[protocol] += count
        self.bytes_sent[protocol] += size
        session.messages_sent += count
        session.bytes_sent += size


class TopicCount(NamedTuple):
    """What came for one topic; without a message its last offset and time mean nothing."""

    messages: int
    value_bytes: int
    last_offset: int
    last_us: int


class TopicCounts:
    """What came for each topic since the start, counted by a kernel."""

    def __init__(self, topics: TopicTable) -> None:
        self._topics = topics
        self._counts = array("Q")

    def add(self, batch: Batch, first_offset: int) -> None:
        """Count the rows of a batch, the first of which has an offset."""
        missing = _WIDTH * len(self._topics) - len(self._counts)
        if missing > 0:
            # More than is missing, so that topics that come one by one are not copied each time.
            self._counts.frombytes(bytes(8 * (missing + len(self._counts) // 2 // _WIDTH * _WIDTH)))
        tally(batch, self._counts, first_offset)

    def of(self, identifier: int) -> TopicCount:
        """Return the numbers of a topic."""
        found = self._counts[_WIDTH * identifier : _WIDTH * (identifier + 1)]
        return TopicCount(*found) if found else TopicCount(0, 0, 0, 0)

    def snapshot(self) -> "array[int]":
        """Return what `busiest_since` compares with."""
        return self._counts[:]

    def busiest_since(self, before: "array[int]", *, most: int) -> list[tuple[int, TopicCount]]:
        """Return the topics that got the most messages since a snapshot, with what they got.

        The busiest comes first; offset and time are those of the last message of all.
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
