"""Reads of the log for HTTP, in threads: messages of a topic, forward and backward; verification.

    backward:   ◀── windows that double ──┤ before      counts, then values of windows with rows
    forward:    start ├── windows that double ──▶ end   values, until enough were found

One read searches for HTTP_READ_SECONDS_MAX and returns where to go on, so that the thread is free
for others. Memory for buffers is drawn from the budget before they are read.
"""

import dataclasses
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import LogDamaged, OffsetBelowHorizon
from penstock.limits import (
    HTTP_MESSAGES_BYTES_MAX,
    HTTP_READ_OFFSETS_MAX,
    HTTP_READ_SECONDS_MAX,
    HTTP_VERIFY_BYTES_MAX,
)
from penstock.memory import Draw
from penstock.ports import PartitionRange, Storage
from penstock.ports.selection import Selection
from penstock.server.http.console_schemas import (
    Damage,
    Header,
    StoredMessage,
    Verified,
)

__all__ = ["FoundMessages", "LogRead"]

_COPIES: Final = 3
"""A buffer, its decoded rows, and the answer."""
_ROWS: Final = 256
"""Rows that are decoded at once: the values of further ones may not be needed."""
_NEAR_OFFSETS: Final = 1024
"""Last messages of topics that are not further apart are read together."""
_COLUMNS: Final = (
    "key", "value", "topic", "offset", "timestamp", "headers", "protocol", "kind", "sender",
    "correlation", "status", "message_id",
)  # fmt: skip


@dataclasses.dataclass(slots=True)
class FoundMessages:
    """Messages by offset, and the range that was searched: from `start` up to `end`."""

    messages: list[StoredMessage]
    start: int
    end: int
    problem: str | None = None


class LogRead:
    """One read by a thread; `draw` is the memory of its buffers."""

    def __init__(
        self, storage: Storage, selection: Selection, draw: Draw, *, limit: int, value_bytes: int
    ) -> None:
        self._storage = storage
        self._selection = selection
        self._draw = draw
        self._limit = limit
        self._value_bytes = value_bytes
        self._ends = time.monotonic() + HTTP_READ_SECONDS_MAX

    def forward(self, start: int, end: int) -> FoundMessages:
        """Return the first messages from `start` on, before `end`; raise MemoryExhausted."""
        found = FoundMessages([], start, start)
        size = 0
        window = 4 * self._limit
        while found.end < end:
            stop = min(found.end + window, end)
            parts = (
                part.slice(first, _ROWS)
                for part in self._batches(found, found.end, stop)
                for first in range(0, len(part), _ROWS)
            )
            for message in (each for part in parts for each in self._decoded(part)):
                found.messages.append(message)
                size += len(message.value)
                if len(found.messages) == self._limit or size >= HTTP_MESSAGES_BYTES_MAX:
                    found.end = message.offset + 1
                    return found
            found.end = max(found.end, stop)
            window = min(2 * window, HTTP_READ_OFFSETS_MAX)
            if time.monotonic() > self._ends:
                break
        return found

    def backward(self, horizon: int, before: int) -> FoundMessages:
        """Return the last messages before an offset; raise MemoryExhausted."""
        found = FoundMessages([], before, before)
        newest_first: list[StoredMessage] = []
        window = 2 * self._limit
        while found.start > horizon and len(newest_first) < self._limit:
            stop, found.start = found.start, max(found.start - window, horizon)
            span = PartitionRange(self._storage.partition, found.start, stop)
            rows = self._storage.match(span, self._selection).rows
            if rows:
                last = self._last(found, stop, self._limit - len(newest_first))
                newest_first += reversed(last)
                if last and rows > len(last):
                    found.start = last[0].offset
            window = min(2 * window, HTTP_READ_OFFSETS_MAX)
            if time.monotonic() > self._ends:
                break
        size = 0
        for message in newest_first:
            size += len(message.value)
            if found.messages and size > HTTP_MESSAGES_BYTES_MAX:
                found.start = found.messages[-1].offset
                break
            found.messages.append(message)
        found.messages.reverse()
        return found

    def _last(self, found: FoundMessages, stop: int, limit: int) -> "deque[StoredMessage]":
        """Return the last messages of a window. Only windows that have some are read whole."""
        last: deque[StoredMessage] = deque(maxlen=limit)
        for part in self._batches(found, found.start, stop):
            last.extend(self._decoded(part.slice(max(len(part) - limit, 0))))
        return last

    def last_values(self, last: Mapping[str, int], *, horizon: int, end: int) -> dict[str, bytes]:
        """Return the last value of each topic, as far as it is found in time.

        `last` has the offsets of the topics' last messages. Those that are near each other are read
        together; where the last message is not written yet, the one before it is looked for.
        """
        found: dict[str, bytes] = {}
        written = sorted(offset for offset in last.values() if horizon <= offset < end)
        for near in _neighbours(written):
            if time.monotonic() > self._ends:
                return found
            self._take_values(found, near[0], near[-1] + 1, pa.array(near, pa.int64()))
        missing = {name for name, offset in last.items() if offset >= end}
        stop, window = end, _NEAR_OFFSETS
        while missing and stop > horizon and time.monotonic() <= self._ends:
            start = max(stop - window, horizon)
            self._take_values(found, start, stop, None, missing)
            missing -= found.keys()
            stop, window = start, min(2 * window, HTTP_READ_OFFSETS_MAX)
        return found

    def _take_values(
        self,
        found: dict[str, bytes],
        start: int,
        end: int,
        offsets: pa.Array | None,
        names: Collection[str] = (),
    ) -> None:
        """Add the values at some offsets of a range, or the last of some topics."""
        selection = Selection(topics=frozenset(names)) if names else Selection()
        for part in self._batches(FoundMessages([], start, end), start, end, selection):
            chosen = part
            if offsets is not None:
                chosen = part.filter(pc.is_in(part.column("offset"), offsets))
            for first in range(0, len(chosen), _ROWS):
                for row in chosen.slice(first, _ROWS).select(("topic", "value")).to_pylist():
                    if row["topic"] is not None:
                        found[row["topic"]] = (row["value"] or b"")[: self._value_bytes]

    def verify(self, start: int, end: int) -> Verified:
        """Read messages with all their columns, and return what was read and what is damaged."""
        partition = self._storage.partition
        position, rows, size = start, 0, 0
        damage: dict[int, Damage] = {}
        while position < end and size < HTTP_VERIFY_BYTES_MAX:
            stop = min(position + HTTP_READ_OFFSETS_MAX, end)
            span = PartitionRange(partition, position, stop)
            try:
                for batch in self._storage.scan(span, Selection(), reading=self._reading):
                    rows += len(batch)
                    size += batch.nbytes
            except LogDamaged as error:
                damage[error.offset] = Damage(error.offset, error.resumes_at, error.reason)
                stop = max(min(error.resumes_at, end), position + 1)
            except OffsetBelowHorizon as error:  # retention was faster
                stop = max(min(error.horizon, end), position + 1)
            position = stop
            if time.monotonic() > self._ends:
                break
        for each in self._storage.damage(PartitionRange(partition, start, position)):
            damage[each.first_offset] = Damage(each.first_offset, each.resumes_at, each.reason)
        return Verified(
            start=start,
            end=position,
            messages=rows,
            bytes=size,
            damage=[damage[first] for first in sorted(damage)],
            next=position if position < end else None,
        )

    def _reading(self, size: int) -> None:
        self._draw.resize(_COPIES * size)

    def _batches(
        self, found: FoundMessages, start: int, end: int, selection: Selection | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the selected messages of a range; damage in it becomes the problem of `found`."""
        while start < end:
            span = PartitionRange(self._storage.partition, start, end)
            try:
                yield from self._storage.scan(
                    span, selection or self._selection, columns=_COLUMNS, reading=self._reading
                )
            except LogDamaged as error:
                found.problem = str(error)
                start = max(min(error.resumes_at, end), start + 1)
            except OffsetBelowHorizon as error:  # retention was faster
                found.problem = str(error)
                start = max(min(error.horizon, end), start + 1)
            else:
                return

    def _decoded(self, part: pa.RecordBatch) -> list[StoredMessage]:
        return [self._message(row) for row in part.select(_COLUMNS).to_pylist()]

    def _message(self, row: dict[str, Any]) -> StoredMessage:
        value: bytes = row["value"] or b""
        headers = [Header(each["key"], each["value"] or b"") for each in row["headers"] or ()]
        taken: datetime = row["timestamp"]
        return StoredMessage(
            offset=row["offset"],
            message_id=row["message_id"] or "",
            time=taken.astimezone(UTC),
            topic=row["topic"],
            protocol=row["protocol"],
            kind=row["kind"],
            sender=row["sender"],
            key=row["key"],
            headers=headers,
            value=value[: self._value_bytes],
            bytes=len(value),
            correlation=row["correlation"],
            status=row["status"],
        )


def _neighbours(offsets: Sequence[int]) -> list[list[int]]:
    """Divide sorted offsets into runs that are read together."""
    runs: list[list[int]] = []
    for offset in offsets:
        if runs and offset - runs[-1][-1] <= _NEAR_OFFSETS:
            runs[-1].append(offset)
        else:
            runs.append([offset])
    return runs
