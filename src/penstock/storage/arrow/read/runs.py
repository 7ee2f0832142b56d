"""Row groups that replay reads in one step: the next ones that may have a wanted topic.

A quiet topic may be in one of thousands of row groups, and a row group may have one message. So
others are skipped by the index, and small ones are read together. Of a large one in which wanted
topics are rare, only their messages are read, by the row index.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from penstock.limits import CATCH_UP_GROUPS_MAX, CATCH_UP_READ_BYTES, ROW_INDEX_FETCH_ROWS
from penstock.ports import TopicFilter
from penstock.storage.arrow.format.file_names import segment_path
from penstock.storage.arrow.format.index import Index
from penstock.storage.arrow.read.catalog import ActiveSegment, Catalog, Place
from penstock.storage.arrow.read.rare_rows import Picked, RareRows
from penstock.storage.arrow.read.topic_skips import TopicSkips
from penstock.storage.arrow.recover.recovery import Segment

__all__ = ["Run", "RunFinder"]


_NONE: Final[Mapping[int, Picked]] = MappingProxyType({})


class Run(NamedTuple):
    """Row groups of one segment; no other wanted message is before the offset `end`.

    Of those in `picked`, by base offset, only some messages are wanted.
    """

    places: Sequence[Place]
    end: int
    picked: Mapping[int, Picked] = _NONE


class RunFinder:
    """Finds runs in a catalog. Any thread may call it."""

    def __init__(
        self,
        catalog: Catalog,
        rare: RareRows | None = None,
        *,
        bytes_max: int = CATCH_UP_READ_BYTES,
        count_max: int = CATCH_UP_GROUPS_MAX,
    ) -> None:
        """Several row groups of a run have at most `bytes_max` together."""
        self._catalog = catalog
        self._rare = rare
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
            run = self._in_segment(segment, position, end, topics, offset)
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
        offset: int,
    ) -> Run | None:
        """Return the first run of a segment; None if its row groups must be found one by one.

        `position` is where a row group starts; messages before `offset` are not wanted of it.
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
        if first == last:
            return Run((), position)
        passed = index.entry(last - 1)
        while numbers := self._numbers(index, topics, first, last):
            run = self._run(segment, index, topics, numbers, offset)
            if run.places:
                return run
            first = numbers[-1] + 1
        return Run((), passed.base_offset + passed.count)

    def _numbers(
        self, index: Index, topics: TopicFilter | None, first: int, last: int
    ) -> Sequence[int]:
        """Return the numbers of the next row groups that may have a wanted topic."""
        if topics is None:
            return range(first, min(last, first + self._count_max))
        return self._skips.find(index, topics, first=first, last=last, count_max=self._count_max)

    def _run(
        self,
        segment: Segment | ActiveSegment,
        index: Index,
        topics: TopicFilter | None,
        numbers: Sequence[int],
        offset: int,
    ) -> Run:
        """Return the first of some row groups, and those after it that are read with it.

        Those without a wanted message are left out; that may be all of them.
        """
        path = segment_path(self._catalog.folder, segment.base_offset)
        places: list[Place] = []
        found: dict[int, Picked] = {}
        size = rows = 0
        end = offset
        for number in numbers:
            entry = index.entry(number)
            picked = self._pick(segment, index, number, topics, offset)
            if picked is None:
                size += entry.size
            else:
                rows += len(picked.rows)
                size += len(picked.rows) * entry.size // entry.count
            if places and (size > self._bytes_max or rows > ROW_INDEX_FETCH_ROWS):
                break
            if picked is None or picked.rows:
                places.append(Place(path, entry))
            if picked is not None and picked.rows:
                found[entry.base_offset] = picked
            end = entry.base_offset + entry.count
        return Run(places, end, found)

    def _pick(
        self,
        segment: Segment | ActiveSegment,
        index: Index,
        number: int,
        topics: TopicFilter | None,
        offset: int,
    ) -> Picked | None:
        """Return the wanted messages of a row group from an offset on; None for all messages."""
        if self._rare is None or topics is None:
            return None
        entry = index.entry(number)
        picked = self._rare.find(segment, entry, self._skips.names(index, topics, number))
        if picked is None or offset <= entry.base_offset:
            return picked
        first = offset - entry.base_offset
        return picked._replace(rows=[each for each in picked.rows if each.row >= first])

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


def _run(places: Sequence[Place]) -> Run:
    last = places[-1].entry
    return Run(places, last.base_offset + last.count)
