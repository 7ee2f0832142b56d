"""Scans of the log that this process writes, from any thread: ranges, splits, times, topics.

The files are read in the caller's thread. The event loop only says how far the log can be read.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import LogDamaged, LogError, OffsetBelowHorizon, OffsetPastEnd
from penstock.limits import STORED_TOPICS_BYTES_MAX
from penstock.ports import Bounds, DamagedRange, Matched, PartitionRange, TopicCounts
from penstock.ports.selection import Selection
from penstock.storage.arrow.format.removed_topics import RemovedTopics
from penstock.storage.arrow.read.catalog import Catalog
from penstock.storage.arrow.read.matching import count_topics, match
from penstock.storage.arrow.read.pieces import cut, plan, read_pieces
from penstock.storage.arrow.read.reader import offset_at_time
from penstock.storage.arrow.recover.recovery import Segment
from penstock.storage.files import Files
from penstock.storage.schema import RECORD_COLUMNS, SCHEMA

__all__ = ["LogScanner"]

_EVERYTHING = Selection()
_Found = TypeVar("_Found")


class LogScanner:
    """Reads one partition. Any thread may call.

    `end` returns how far the log can be read, `removed` what retention removed below the stored
    horizon.
    """

    def __init__(
        self,
        files: Files,
        folder: Path,
        catalog: Catalog,
        *,
        partition: int,
        end: Callable[[], int],
        removed: Callable[[], RemovedTopics],
    ) -> None:
        self._files = files
        self._folder = folder
        self._catalog = catalog
        self._partition = partition
        self._end = end
        self._removed = removed
        self._topics: dict[int, frozenset[str]] = {}  # of closed segments, by base offset
        self._topics_bytes = 0

    def bounds(self) -> Bounds:
        """Return the readable offsets."""
        end = self._end()
        return Bounds(min(self._catalog.horizon, end), end)

    def scan(
        self,
        span: PartitionRange,
        selection: Selection,
        columns: Sequence[str] | None,
        *,
        reading: Callable[[int], None] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """See ports.Storage."""
        span = self._kept(span, selection)
        names = SCHEMA.names[:RECORD_COLUMNS] if columns is None else columns
        return self._scan(span, selection, sorted({*names, *selection.columns}), reading)

    def _scan(
        self,
        span: PartitionRange,
        selection: Selection,
        columns: Sequence[str],
        reading: Callable[[int], None] | None,
    ) -> Iterator[pa.RecordBatch]:
        horizons = self._catalog.horizons  # those of the start, however long the scan takes
        damage = self._catalog.damage_between(span.start, span.end)
        readable = span.end if damage is None else max(damage.first_offset, span.start)
        try:
            row_groups = plan(self._catalog, span.start, readable, selection)
            pieces = [each.part(each.first, each.last) for each in row_groups]
            for batch in read_pieces(
                self._folder,
                pieces,
                first=span.start,
                last=readable,
                columns=columns,
                reading=reading,
                horizons=horizons,
            ):
                yield selection.of(batch)
        except FileNotFoundError as error:
            raise self._missing_segment(span.start, error) from error
        if damage is not None:
            raise LogDamaged(readable, min(damage.resumes_at, span.end), damage.reason)

    def split(self, span: PartitionRange, selection: Selection, count: int) -> list[PartitionRange]:
        """See ports.Storage: parts meet between row groups."""
        row_groups = self._look_up(
            span, selection, lambda kept: plan(self._catalog, kept.start, kept.end, selection)
        )
        parts = cut(row_groups, count)
        starts = [span.start, *(part[0].first_offset for part in parts[1:]), span.end]
        return [
            PartitionRange(span.partition, start, end)
            for start, end in itertools.pairwise(starts)
            if start < end
        ]

    def match(self, span: PartitionRange, selection: Selection, rows_max: int | None) -> Matched:
        """See ports.Storage."""
        found = self._look_up(
            span,
            selection,
            lambda kept: match(
                self._folder,
                self._catalog,
                start=kept.start,
                end=kept.end,
                selection=selection,
                rows_max=rows_max,
            ),
        )
        return found if found.rows else Matched(span.start, 0, span.start)

    def count_topics(self, span: PartitionRange, selection: Selection) -> TopicCounts:
        """See ports.Storage."""
        return self._look_up(
            span,
            selection,
            lambda kept: count_topics(
                self._folder,
                self._catalog,
                start=kept.start,
                end=kept.end,
                selection=selection,
            ),
        )

    def _look_up(
        self,
        span: PartitionRange,
        selection: Selection,
        find: Callable[[PartitionRange], _Found],
    ) -> _Found:
        """Return what the indexes of the kept part of a range tell; retention may run meanwhile."""
        while True:
            kept = self._kept(span, selection)
            try:
                return find(kept)
            except FileNotFoundError as error:
                if self._catalog.horizon <= kept.start:
                    raise self._missing_segment(kept.start, error) from error

    def offset_at(self, partition: int, timestamp_us: int) -> int:
        """See ports.Storage."""
        self._check_partition(partition)
        try:
            return offset_at_time(self._files, self._catalog, timestamp_us, self._end())
        except FileNotFoundError as error:
            raise self._missing_segment(0, error) from error

    def damage(self, span: PartitionRange) -> list[DamagedRange]:
        """See ports.Storage."""
        self._check_partition(span.partition)
        return [
            DamagedRange(each.first_offset, each.resumes_at, each.reason)
            for each in self._catalog.damage
            if each.first_offset < span.end and each.resumes_at > span.start
        ]

    def stored_topics(self) -> frozenset[str]:
        """See ports.Storage: from the indexes; those of closed segments are read once."""
        names: set[str] = set()
        segments = self._catalog.segments()
        for segment in segments:
            found = self._topics.get(segment.base_offset)
            if found is None:
                index = self._catalog.index(segment)
                entries = index.table()
                found = frozenset(pc.unique(entries.column("topics").values).to_pylist())
                for number in pc.indices_nonzero(entries.column("topics").is_null()).to_pylist():
                    entry = index.entry(number)  # the index names no topics: there are too many
                    found |= self._topics_between(
                        entry.base_offset, entry.base_offset + entry.count
                    )
                if isinstance(segment, Segment):
                    self._keep_topics(segment.base_offset, found)
            kept = self._catalog.kept(segment)
            names |= found if kept is None else set(filter(kept, found))
        for base_offset in set(self._topics) - {segment.base_offset for segment in segments}:
            self._topics_bytes -= _names_bytes(self._topics.pop(base_offset, frozenset()))
        return frozenset(names)

    def _keep_topics(self, base_offset: int, names: frozenset[str]) -> None:
        """Keep the topics of a segment; at the limit, forget those of all others."""
        size = _names_bytes(names)
        if self._topics_bytes + size > STORED_TOPICS_BYTES_MAX:
            self._topics.clear()
            self._topics_bytes = 0
        if size <= STORED_TOPICS_BYTES_MAX:
            self._topics[base_offset] = names
            self._topics_bytes += size

    def _topics_between(self, start: int, end: int) -> frozenset[str]:
        span = PartitionRange(self._partition, start, min(end, self._end()))
        names: set[str] = set()
        for batch in self.scan(span, _EVERYTHING, ["topic"]):
            names.update(pc.unique(batch.column("topic")).to_pylist())
        return frozenset(names)

    def _missing_segment(self, offset: int, error: FileNotFoundError) -> LogError:
        """Return the error for a segment that is not there: retention runs meanwhile."""
        if self._catalog.horizon > offset:
            return OffsetBelowHorizon(offset, self._catalog.horizon)
        return LogDamaged(offset, self._end(), f"{error.filename} is not there any more")

    def _check_partition(self, partition: int) -> None:
        if partition != self._partition:
            raise ValueError(f"there is no partition {partition}")

    def _kept(self, span: PartitionRange, selection: Selection) -> PartitionRange:
        """Return a range without the offsets below the horizon, if no selected message was there.

        Raise OffsetBelowHorizon if there may have been one, or OffsetPastEnd.
        """
        self._check_partition(span.partition)
        bounds = self.bounds()
        if span.end > bounds.end:
            raise OffsetPastEnd(span.end, bounds.end)
        if span.start >= bounds.horizon:
            return span
        if span.start >= span.end or self._has_lost(span, selection, bounds.horizon):
            raise OffsetBelowHorizon(span.start, bounds.horizon)
        return span._replace(start=min(bounds.horizon, span.end))

    def _has_lost(self, span: PartitionRange, selection: Selection, horizon: int) -> bool:
        """Return whether selected messages of a range below the horizon may be gone."""
        removed = self._removed()
        if removed.until(selection, start=span.start, end=min(span.end, horizon)) > span.start:
            return True
        # Messages above the stored horizon are hidden by their age; their segments are still there.
        start, end = max(span.start, removed.horizon), min(span.end, horizon)
        if start >= end:
            return False
        try:
            found = match(
                self._folder,
                self._catalog,
                start=start,
                end=end,
                selection=selection,
                rows_max=1,
            )
        except FileNotFoundError:  # retention removes them now
            return True
        return found.rows > 0


def _names_bytes(names: frozenset[str]) -> int:
    """Return the memory of a set of names, about."""
    return sum(4 * len(name) + 100 for name in names)
