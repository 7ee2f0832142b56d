"""Ends of the batches of a stream: no batch without records of the subscribed topics.

All topics share the offsets of a partition. The log's index tells where records of the subscribed
topics are. Offsets that are known to have none are remembered, so each is looked at once.
"""

from collections.abc import Mapping
from typing import NamedTuple

from penstock.limits import SPARK_EMPTY_OFFSETS_MAX
from penstock.ports import Matched
from penstock.ports.selection import Selection
from penstock.spark.log_source import LogBounds, LogSource, Range
from penstock.spark.topic_ranges import TopicOffsets, match_sections, sections

__all__ = ["BatchEnds", "Extent", "limited_ends"]


class _Empty(NamedTuple):
    """Offsets of a log without a selected record."""

    log: str
    start: int
    end: int


class Extent(NamedTuple):
    """The offsets of a batch in a partition; it has no selected record before `first`."""

    first: int
    end: int


class BatchEnds:
    """Finds the ends of batches. `bounds` are those of the log when a method is called.

    `topics` are the offsets by topic at which topics start, for partitions where they differ.
    """

    def __init__(self, source: LogSource, selection: Selection) -> None:
        self._source = source
        self._selection = selection
        self._empty: dict[int, _Empty] = {}

    def find(
        self,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        bounds: Mapping[int, LogBounds],
        topics: Mapping[int, TopicOffsets],
        *,
        rows_max: int | None,
    ) -> dict[int, Extent]:
        """Return the offsets of a batch for each partition: none if there is nothing to read.

        The batch has `rows_max` selected records at most, or one of each partition.
        """
        spans = {
            partition: Range(partition, starts[partition], end, bounds[partition].log)
            for partition, end in ends.items()
            if partition in bounds and starts[partition] < end
        }
        limits: dict[int, int | None] = dict.fromkeys(spans, rows_max)
        if rows_max is not None and len(spans) > 1:
            rows = {
                number: self._match(span, bounds[number], topics.get(number)).rows
                if self._source.has_index
                else span.end - span.start
                for number, span in spans.items()
            }
            total = sum(rows.values())
            if total > rows_max:
                limits = {number: max(1, rows_max * each // total) for number, each in rows.items()}
        found = {number: Extent(starts[number], end) for number, end in ends.items()}
        for number, span in spans.items():
            found[number] = self._extent(span, bounds[number], topics.get(number), limits[number])
        return found

    def skip_empty(self, span: Range) -> Range:
        """Return a range without the offsets at its start that are known to be empty."""
        known = self._empty.get(span.partition)
        if known is None or known.log != span.log or not known.start <= span.start <= known.end:
            return span
        return span._replace(start=min(known.end, span.end))

    def count(
        self,
        span: Range,
        bound: LogBounds,
        topics: TopicOffsets | None = None,
        *,
        rows_max: int | None = None,
    ) -> int:
        """Return the number of selected records of a range that are kept, up to `rows_max`."""
        return self._match(span, bound, topics, rows_max).rows

    def _extent(
        self, span: Range, bound: LogBounds, topics: TopicOffsets | None, rows_max: int | None
    ) -> Extent:
        looks_for_one = rows_max is None and not self._source.has_index
        matched = self._match(span, bound, topics, 1 if looks_for_one else rows_max)
        if matched.rows:
            return Extent(matched.first, span.end if looks_for_one else matched.end)
        # The checkpoint moves before retention would take records that it seems to need.
        is_behind = span.start < bound.horizon or span.end - span.start >= SPARK_EMPTY_OFFSETS_MAX
        end = span.end if is_behind else span.start
        return Extent(end, end)

    def _match(
        self,
        span: Range,
        bound: LogBounds,
        topics: TopicOffsets | None,
        rows_max: int | None = None,
    ) -> Matched:
        """Match a range from where it is not known to be empty; lost records count."""
        unknown = self.skip_empty(span)
        left = unknown._replace(start=max(unknown.start, min(bound.horizon, span.end)))
        lost = self._lost_until(unknown._replace(end=left.start), topics) - unknown.start
        if left.start >= left.end:
            return Matched(left.start if lost else span.start, lost, unknown.start)
        if topics is None:
            found = self._source.match(left, self._selection, rows_max=rows_max)
        else:
            parts = sections(left, self._selection, topics, TopicOffsets(left.end))
            found = match_sections(self._source, parts, left.start, rows_max=rows_max)
        if not found.rows and not lost:
            start = span.start if unknown.start == span.start else self._empty[span.partition].start
            self._empty[span.partition] = _Empty(span.log, start, span.end)
            return Matched(span.start, 0, span.start)
        first = unknown.start if lost else max(found.first, left.start)
        return Matched(found.end, found.rows + lost, first)

    def _lost_until(self, span: Range, topics: TopicOffsets | None) -> int:
        """Return the offset before which selected records of a range may have been removed."""
        until = span.start
        if span.start < span.end:
            starts = topics or TopicOffsets(span.start)
            for part in sections(span, self._selection, starts, TopicOffsets(span.end)):
                lost_until = self._source.kept(part.span, part.selection).lost_until
                if lost_until > part.span.start:
                    until = max(until, lost_until)
        return until


def limited_ends(
    begun: Mapping[int, int],
    ends: dict[int, int],
    bounds: Mapping[int, LogBounds],
    *,
    rows_max: int,
) -> dict[int, int]:
    """Return ends for a batch of about `rows_max` offsets, in proportion to the partitions' lag.

    Offsets that retention removed do not count.
    """
    firsts = {
        partition: max(begun.get(partition, 0), bounds[partition].horizon)
        if partition in bounds
        else end
        for partition, end in ends.items()
    }
    total = sum(max(end - firsts[partition], 0) for partition, end in ends.items())
    if total <= rows_max:
        return ends
    return {
        partition: firsts[partition] + max(1, rows_max * (end - firsts[partition]) // total)
        if end > firsts[partition]
        else end
        for partition, end in ends.items()
    }
