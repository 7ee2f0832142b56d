"""Bytes of each principal's messages that are in the log.

They are counted when messages are taken, by ranges of offsets, and given back when the horizon of
the log has passed a range. A range has at least STORED_SPAN_BYTES, and a principal STORED_SPANS_MAX
of them at most; so what is given back may be late by a range.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from penstock.limits import STORED_SPAN_BYTES, STORED_SPANS_MAX
from penstock.ports import LogReader, LogWriter

__all__ = ["StoredBytes", "StoredCounts", "StoredSpan"]


class StoredSpan(NamedTuple):
    """Bytes of messages whose offsets are below `end`, and not in an earlier span."""

    end: int
    size: int


Spans: TypeAlias = Mapping[str, Iterable[StoredSpan]]
"""The spans of each principal, the oldest first."""


class StoredBytes:
    """The bytes of one principal's messages in the log. One thread owns it."""

    def __init__(self, horizon: Callable[[], int], next_offset: Callable[[], int]) -> None:
        self._horizon = horizon
        self._next_offset = next_offset
        self._spans: deque[StoredSpan] = deque()
        self._size = 0
        self.changes = 0
        """Number of times that messages were added."""

    def add(self, messages: int, size: int) -> None:
        """Count messages that are about to be appended to the log."""
        end = self._next_offset() + messages
        self.changes += 1
        self._size += size
        spans = self._spans
        least = max(STORED_SPAN_BYTES, self._size // STORED_SPANS_MAX)
        if spans and spans[-1].size < least:
            spans[-1] = StoredSpan(end, spans[-1].size + size)
            return
        spans.append(StoredSpan(end, size))
        if len(spans) > STORED_SPANS_MAX:
            self._join()

    def _join(self) -> None:
        """Make one span of each two."""
        spans, joined = self._spans, deque[StoredSpan]()
        while len(spans) > 1:
            first, second = spans.popleft(), spans.popleft()
            joined.append(StoredSpan(second.end, first.size + second.size))
        self._spans = joined + spans

    @property
    def size(self) -> int:
        """Bytes of the messages that are still in the log."""
        spans = self._spans
        if spans:
            horizon = self._horizon()
            while spans and spans[0].end <= horizon:
                self._size -= spans.popleft().size
        return self._size

    def spans(self) -> list[StoredSpan]:
        """Return the spans that are still in the log, the oldest first."""
        return list(self._spans) if self.size else []

    def restore(self, spans: Iterable[StoredSpan]) -> None:
        """Add what an earlier run has counted, before anything else is counted."""
        most = self._next_offset()  # a crash may have taken the last messages
        self._spans.extend(StoredSpan(min(end, most), size) for end, size in spans)
        self._size = sum(each.size for each in self._spans)


class StoredCounts:
    """The bytes of all principals in one log; without a reader, the log keeps nothing."""

    def __init__(self, log: LogWriter, reader: LogReader | None) -> None:
        self._log = log
        self._reader = reader
        self._principals: dict[str, StoredBytes] = {}

    def of(self, principal: str) -> StoredBytes:
        """Return the bytes of a principal, by its name."""
        found = self._principals.get(principal)
        if found is None:
            found = self._principals[principal] = StoredBytes(self._horizon, self._next_offset)
        return found

    def _horizon(self) -> int:
        return self._log.next_offset + 1 if self._reader is None else self._reader.horizon

    def _next_offset(self) -> int:
        return self._log.next_offset

    @property
    def changes(self) -> int:
        """Number of times that messages were added."""
        return sum(each.changes for each in self._principals.values())

    def spans(self) -> dict[str, list[StoredSpan]]:
        """Return the spans of all principals that have some."""
        found = {name: each.spans() for name, each in self._principals.items()}
        return {name: spans for name, spans in found.items() if spans}

    def restore(self, spans: Spans) -> None:
        """Add what an earlier run has counted."""
        for name, each in spans.items():
            self.of(name).restore(each)
