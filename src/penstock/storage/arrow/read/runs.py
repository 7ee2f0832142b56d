"""Row groups that replay reads in one step: the next ones that may have a wanted topic.

A quiet topic may be in one of thousands of row groups, and a row group may have one message. So
others are skipped by the index, and small ones are read together.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.limits import CATCH_UP_GROUPS_MAX, CATCH_UP_READ_BYTES
from penstock.ports import TopicFilter
from penstock.storage.arrow.format.file_names import segment_path
from penstock.storage.arrow.format.index import Entry, Index
from penstock.storage.arrow.read.catalog import ActiveSegment, Catalog, Place
from penstock.storage.arrow.read.topic_skips import TopicSkips
from penstock.storage.arrow.recover.recovery import Segment

__all__ = ["Run", "RunFinder"]


class Run(NamedTuple):
    """Row groups of one segment; no other wanted message is before the offset `end`."""

    places: Sequence[Place]
    end: int


class RunFinder:
    """Finds runs in a catalog. Any thread may call it."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        bytes_max: int = CATCH_UP_READ_BYTES,
        count_max: int = CATCH_UP_GROUPS_MAX,
    ) -> None:
        """Several row groups of a run have at most `bytes_max` together."""
        self._catalog = catalog
        self._skips = TopicSkips()
        self._bytes_max = bytes_max
        self._count_max = count_max

    def find(self, offset: int, end: int, topics: TopicFilter | None = None) -> Run:
        """Return the row group with `offset`, or the first after it, and some that follow.

        With `topics`, row groups without a wanted topic are left out, and there may be none.
        Raise OffsetBelowHorizon, OffsetPastEnd or LogDamaged.
        """
        found = self._catalog.place(offset, end)
        position = found.entry.base_offset
        for segment in self._catalog.segments_from(position):
            if segment.end_offset <= position:
                continue
            if segment.base_offset >= end:
                break
            if segment.base_offset > position == found.entry.base_offset:
                break  # retention has removed it: to read it is an error
            run = self._in_segment(segment, position, end, topics)
            if run is not None and run.places:
                return run
            if run is None or run.end == position:
                break
            position = run.end
        return Run((), position) if position > found.entry.base_offset else _run([found])

    def _in_segment(
        self,
        segment: Segment | ActiveSegment,
        position: int,
        end: int,
        topics: TopicFilter | None,
    ) -> Run | None:
        """Return the first run of a segment; None if its row groups must be found one by one.

        The run ends at damage, which may have had wanted messages: the caller is to find it.
        """
        damage = self._catalog.damage_between(position, min(segment.end_offset, end))
        stop = end if damage is None else min(damage.first_offset, end)
        try:
            index = self._catalog.index(segment)
        except OSError:
            return None
        if index.missing and index.missing != self._damaged(index):
            return None  # some of it is not known to be damaged yet
        first, last = _numbers(index, position, stop)
        numbers: Sequence[int]
        if topics is None:
            numbers = range(first, min(last, first + self._count_max))
        else:
            numbers = self._skips.find(
                index, topics, first=first, last=last, count_max=self._count_max
            )
        if numbers:
            path = segment_path(self._catalog.folder, segment.base_offset)
            entries = _together(map(index.entry, numbers), self._bytes_max)
            return _run([Place(path, entry) for entry in entries])
        if first == last:
            return Run((), position)
        passed = index.entry(last - 1)
        return Run((), passed.base_offset + passed.count)

    def _damaged(self, index: Index) -> int:
        """Return the number of offsets of an index that are known to be damaged."""
        first, last = index.entry(0), index.entry(len(index) - 1)
        start, end = first.base_offset, last.base_offset + last.count
        return sum(
            max(min(each.resumes_at, end) - max(each.first_offset, start), 0)
            for each in self._catalog.damage
        )


def _numbers(index: Index, start: int, end: int) -> tuple[int, int]:
    """Return the number of the first row group between two offsets, and that after the last."""
    first, last = index.at_offset(start), index.at_offset(end)
    if last < len(index) and index.entry(last).base_offset < end:
        last += 1
    return first, max(first, last)


def _together(entries: Iterable[Entry], bytes_max: int) -> list[Entry]:
    """Return the first entry, and those after it that fit into `bytes_max` with it."""
    found: list[Entry] = []
    size = 0
    for entry in entries:
        size += entry.size
        if found and size > bytes_max:
            break
        found.append(entry)
    return found


def _run(places: Sequence[Place]) -> Run:
    last = places[-1].entry
    return Run(places, last.base_offset + last.count)
