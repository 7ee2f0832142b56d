"""Scans of partitions, from any thread: ranges, splits, counts, times.

Kafka has no index of topics: a scan of some topics reads all messages of its range, except those of
namespaces that have none of these topics.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import LogDamaged
from penstock.ports import Bounds, DamagedRange, Matched, PartitionRange, TopicCounts
from penstock.ports.selection import Selection
from penstock.storage.arrow.format.segment import row_group_topics
from penstock.storage.kafka.partition import KafkaPartition
from penstock.storage.kafka.records import BadRecord, RowGroupRecord
from penstock.storage.schema import RECORD_COLUMNS, SCHEMA

__all__ = ["KafkaScanner", "rows_in"]

Result = TypeVar("Result")


class KafkaScanner:
    """Reads partitions, which it gets by their numbers."""

    def __init__(self, partitions: Mapping[int, KafkaPartition]) -> None:
        self._partitions = partitions

    def partition(self, number: int) -> KafkaPartition:
        """Return a partition; raise ValueError if there is none."""
        found = self._partitions.get(number)
        if found is None:
            raise ValueError(f"there is no partition {number}")
        return found

    def bounds(self) -> dict[int, Bounds]:
        """See ports.Storage."""
        return {number: each.bounds for number, each in dict(self._partitions).items()}

    def _checked(self, span: PartitionRange) -> KafkaPartition:
        partition = self.partition(span.partition)
        partition.check(span.start, span.end)
        return partition

    def scan(
        self,
        span: PartitionRange,
        selection: Selection,
        columns: Sequence[str] | None,
        *,
        reading: Callable[[int], None] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """See ports.Storage."""
        partition = self._checked(span)
        names = SCHEMA.names[:RECORD_COLUMNS] if columns is None else columns
        wanted = sorted({*names, *selection.columns})
        return self._scan(partition, span, selection, wanted, reading)

    def _scan(
        self,
        partition: KafkaPartition,
        span: PartitionRange,
        selection: Selection,
        columns: Sequence[str],
        reading: Callable[[int], None] | None,
    ) -> Iterator[pa.RecordBatch]:
        for record in partition.walk(span.start, span.end, selection.overlaps):
            if reading is not None:
                reading(len(record.group.data))
            batch = selection.of(rows_in(record, span, columns))
            if len(batch):
                yield batch

    def split(self, span: PartitionRange, selection: Selection, count: int) -> list[PartitionRange]:
        """See ports.Storage: by the number of Kafka's records, since their sizes are not known."""
        _ = selection
        partition = self._checked(span)
        if span.start >= span.end:
            return []
        first, last = partition.place_at(span.start), partition.place_at(span.end - 1)
        places = {first + (last + 1 - first) * number // count for number in range(1, count)}
        starts = {partition.offset_after_place(place) for place in sorted(places) if place > first}
        edges = sorted({span.start, span.end} | {s for s in starts if span.start < s < span.end})
        return [
            PartitionRange(span.partition, start, end) for start, end in itertools.pairwise(edges)
        ]

    def match(self, span: PartitionRange, selection: Selection, rows_max: int | None) -> Matched:
        """See ports.Storage."""
        position, rows, first = span.start, 0, span.start
        parts = self._each(span, selection, lambda record: _selected(record, span, selection))
        for found in parts:
            offsets = found if rows_max is None else found[: rows_max - rows]
            if len(offsets):
                first = first if rows else offsets[0]
                position, rows = offsets[-1] + 1, rows + len(offsets)
            if rows == rows_max:
                break
        return Matched(position, rows, first)

    def count_topics(self, span: PartitionRange, selection: Selection) -> TopicCounts:
        """See ports.Storage."""
        lost = 0
        counts: Counter[str] = Counter()
        for found in self._each(span, selection, lambda record: _topics(record, span)):
            if isinstance(found, range):
                lost += len(found)
            else:
                counts.update(found)
        wanted = {name: count for name, count in counts.items() if selection.wanted(name)}
        return TopicCounts(lost + sum(wanted.values()), wanted)

    def _each(
        self, span: PartitionRange, selection: Selection, of: Callable[[RowGroupRecord], Result]
    ) -> Iterator[Result | range]:
        """Yield a result for each record of a range, and the offsets that cannot be read.

        Row groups of namespaces without a selected topic are left out.
        """
        partition = self._checked(span)
        start = span.start
        while start < span.end:
            try:
                for record in partition.walk(start, span.end, selection.overlaps):
                    found = of(record)
                    start = min(record.end_offset, span.end)
                    yield found
            except LogDamaged as error:
                last = min(error.resumes_at, span.end)
                yield range(max(error.offset, start), last)
                start = last
            else:
                return

    def offset_at(self, partition: int, timestamp_us: int) -> int:
        """See ports.Storage."""
        return self.partition(partition).offset_at(timestamp_us)

    def damage(self, span: PartitionRange) -> list[DamagedRange]:
        """See ports.Storage."""
        return self.partition(span.partition).damage(span.start, span.end)


def rows_in(record: RowGroupRecord, span: PartitionRange, columns: Sequence[str]) -> pa.RecordBatch:
    """Return the messages of a record that are in a range; raise LogDamaged."""
    try:
        batch = record.batch(columns)
    except BadRecord as error:
        raise LogDamaged(record.base_offset, record.end_offset, str(error)) from error
    first = max(span.start - record.base_offset, 0)
    last = min(span.end, record.end_offset) - record.base_offset
    return batch if last - first == len(batch) else batch.slice(first, last - first)


def _selected(record: RowGroupRecord, span: PartitionRange, selection: Selection) -> Sequence[int]:
    """Return the offsets of the selected messages of a record that are in a range."""
    everything = range(max(span.start, record.base_offset), min(span.end, record.end_offset))
    if not selection.columns:
        return everything
    if selection.columns <= {"topic"}:  # most groups are told by their dictionary
        names = row_group_topics(record.group.data, record.group.row_group)
        hits = {selection.wanted(name) for name in names}
        if len(hits) == 1:
            return everything if hits.pop() else ()
    columns = ["offset", *sorted(selection.columns)]
    batch = selection.of(rows_in(record, span, columns))
    offsets: list[int] = batch.column("offset").to_pylist()
    return offsets


def _topics(record: RowGroupRecord, span: PartitionRange) -> Counter[str]:
    """Return the number of messages of each topic of a record that are in a range."""
    counts = pc.value_counts(rows_in(record, span, ["topic"]).column("topic"))
    return Counter({each["values"] or "": each["counts"] for each in counts.to_pylist()})
