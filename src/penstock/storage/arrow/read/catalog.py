"""The catalog of segments: finds the row group of an offset, a time or a topic.

The writer thread adds segments, reader threads look up, retention removes segments: a lock guards
the list.
"""

import bisect
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from typing import Protocol as Port

from penstock.errors import LogDamaged, OffsetBelowHorizon, OffsetPastEnd
from penstock.limits import INDEX_CACHE_BYTES_MAX
from penstock.storage.arrow.format.damage import Damage
from penstock.storage.arrow.format.file_names import segment_path
from penstock.storage.arrow.format.index import Entry, Index
from penstock.storage.arrow.format.topic_horizons import NO_HORIZONS, TopicHorizons
from penstock.storage.arrow.read.index_cache import IndexCache
from penstock.storage.arrow.recover.recovery import Segment
from penstock.storage.arrow.write.segment_writer import SegmentWriter
from penstock.storage.files import Files

__all__ = ["ActiveSegment", "Catalog", "Growing", "Place"]


class Place(NamedTuple):
    """A row group and its file."""

    path: Path
    entry: Entry


class Growing(Port):
    """A segment that is not closed: its writer, or a follower's knowledge of it."""

    @property
    def base_offset(self) -> int:
        """Offset of the first message."""

    @property
    def end_offset(self) -> int:
        """One past the offset of the last message."""

    @property
    def size(self) -> int:
        """Size in bytes."""

    @property
    def index(self) -> Index:
        """Index of the row groups."""


class ActiveSegment:
    """The active segment, for readers: like a `recovery.Segment` that grows."""

    __slots__ = ("writer",)

    def __init__(self, writer: Growing) -> None:
        self.writer = writer

    @property
    def base_offset(self) -> int:
        """Offset of the first message."""
        return self.writer.base_offset

    @property
    def end_offset(self) -> int:
        """One past the offset of the last message."""
        return self.writer.end_offset

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.writer.size

    @property
    def last_us(self) -> int | None:
        """Latest time of a message."""
        return self.writer.index.last_us


class Catalog:
    """The segments of a partition; a `committer.SegmentObserver`."""

    def __init__(
        self,
        files: Files,
        folder: Path,
        segments: Sequence[Segment],
        damage: Sequence[Damage] = (),
        *,
        horizon: int,
        horizons: TopicHorizons = NO_HORIZONS,
        index_bytes_max: int = INDEX_CACHE_BYTES_MAX,
    ) -> None:
        self.folder = folder
        self.horizons = horizons
        """Expired messages of some topics above `horizon`. Replaced as a whole."""
        self._lock = threading.Lock()
        self._segments: list[Segment | ActiveSegment] = list(segments)
        self._damage = sorted(each for each in damage if each.resumes_at > each.first_offset)
        self._horizon = horizon
        self._claimed: set[int] = set()
        self._exchanging = threading.Lock()  # held while a segment is replaced or removed
        self.exchanges = 0
        """How often a segment was replaced by one with other row groups."""
        self._indexes = IndexCache(files, folder, bytes_max=index_bytes_max)

    # --- Segments ---------------------------------------------------------------------------------

    @property
    def horizon(self) -> int:
        """The first offset that is kept."""
        return self._horizon

    @property
    def damage(self) -> list[Damage]:
        """The known damage."""
        return list(self._damage)

    def segments(self) -> list[Segment | ActiveSegment]:
        """Return all segments, the oldest first."""
        with self._lock:
            return list(self._segments)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments())

    # --- Changes ----------------------------------------------------------------------------------

    def began(self, segment: SegmentWriter) -> None:
        """See committer.SegmentObserver."""
        with self._lock:
            self._segments.append(ActiveSegment(segment))

    def sealed(self, segment: SegmentWriter) -> None:
        """See committer.SegmentObserver."""
        with self._lock:
            closed = Segment(
                segment.base_offset, segment.end_offset, segment.size, segment.index.last_us
            )
            self._replace(segment, closed)
        self._indexes.put(segment.index)

    def gave_up(self, segment: SegmentWriter) -> None:
        """See committer.SegmentObserver: readers see the rest of it as closed."""
        if len(segment.index):
            self.sealed(segment)
            return
        with self._lock:
            self._replace(segment, None)

    def _replace(self, writer: SegmentWriter, new: Segment | None) -> None:
        for place, each in enumerate(self._segments):
            if isinstance(each, ActiveSegment) and each.writer is writer:
                self._segments[place : place + 1] = [] if new is None else [new]
                return

    def forget(self, base_offsets: Sequence[int], horizon: int) -> None:
        """Remove segments that retention removes."""
        with self._exchanging, self._lock:
            gone = set(base_offsets)
            self._segments = [each for each in self._segments if each.base_offset not in gone]
            self._horizon = max(self._horizon, horizon)
        for base_offset in gone:
            self._indexes.drop(base_offset)

    @contextlib.contextmanager
    def claimed(self, base_offset: int) -> Iterator[bool]:
        """Claim the files of a closed segment for a thread; yield False if another thread has."""
        with self._lock:
            is_free = base_offset not in self._claimed
            self._claimed.add(base_offset)
        try:
            yield is_free
        finally:
            if is_free:
                with self._lock:
                    self._claimed.discard(base_offset)

    def exchange(
        self, old: Segment, new: Segment, index: Index, replace: Callable[[], None]
    ) -> bool:
        """Call `replace`, which replaces the file of a segment by one with the same messages.

        Return False, and do not call it, if retention has removed the segment. If `replace` raises,
        the catalog does not change. Row groups that readers have looked up before may have moved.
        """
        with self._exchanging:
            if old not in self.segments():
                return False
            self._indexes.exchange(index, replace)
            with self._lock:
                self._segments[self._segments.index(old)] = new
                self.exchanges += 1
        return True

    def exchanged_since(self, exchanges: int) -> bool:
        """Return whether `exchanges` has changed; wait for a replacement that is going on."""
        with self._exchanging:
            return self.exchanges != exchanges

    def replace(
        self,
        segments: Sequence[Segment | ActiveSegment],
        damage: Sequence[Damage],
        *,
        horizon: int,
    ) -> None:
        """Replace the list: for a follower, which does not write the log."""
        with self._lock:
            gone = {each.base_offset for each in self._segments}
            gone -= {each.base_offset for each in segments}
            self._segments = list(segments)
            self._damage = sorted(each for each in damage if each.resumes_at > each.first_offset)
            self._horizon = horizon
        for base_offset in gone:
            self._indexes.drop(base_offset)

    # --- Lookup -----------------------------------------------------------------------------------

    def place(self, offset: int, end: int) -> Place:
        """Return the row group with `offset`, or the first after it, below `end`.

        Raise OffsetBelowHorizon, OffsetPastEnd or LogDamaged.
        """
        if offset < self._horizon:
            raise OffsetBelowHorizon(offset, self._horizon)
        if offset >= end:
            raise OffsetPastEnd(offset, end)
        for segment in self.segments_from(offset):
            self._check_damage(offset)
            if segment.end_offset <= offset:
                continue
            path = segment_path(self.folder, segment.base_offset)
            try:
                index = self.index(segment)
            except OSError as error:
                first = max(offset, segment.base_offset)
                raise LogDamaged(first, segment.end_offset, f"{path.name}: {error}") from error
            number = index.at_offset(offset)
            found = index.entry(number).base_offset if number < len(index) else segment.end_offset
            if segment.base_offset <= offset < found:
                # It was there when the log was opened; the rebuilt index could not read it.
                self._check_damage(offset, found)
                self._indexes.drop(segment.base_offset)
                raise LogDamaged(offset, found, f"{path.name}: it cannot be read")
            if number < len(index):
                self._check_damage(offset, found)
                if found >= end:
                    break
                return Place(path, index.entry(number))
        raise OffsetPastEnd(offset, end)

    def places(
        self, offset: int, end: int, wanted: Callable[[str], bool] | None = None
    ) -> Iterator[Place]:
        """Yield the row groups from `offset` up to `end` that may hold a wanted topic, in order."""
        for segment in self.segments_from(offset):
            if segment.base_offset >= end:
                return
            index = self.index(segment)
            kept = self.kept(segment, wanted)
            first = index.at_offset(offset)
            last = index.at_offset(end)
            if last < len(index) and index.entry(last).base_offset < end:
                last += 1
            numbers = (
                range(first, last)
                if kept is None
                else index.with_topics(kept, first=first, last=last)
            )
            path = segment_path(self.folder, segment.base_offset)
            for number in numbers:
                yield Place(path, index.entry(number))

    def place_of_time(self, timestamp_us: int) -> Place | None:
        """Return the first row group that may have a message at or after a time, or None."""
        for segment in self.segments():
            if segment.last_us is None or segment.last_us < timestamp_us:
                continue
            index = self.index(segment)
            number = index.at_time(timestamp_us)
            if number < len(index):
                return Place(segment_path(self.folder, segment.base_offset), index.entry(number))
        return None

    def horizon_of(self, pattern: str) -> int:
        """Return the first offset that may have a message of a pattern."""
        return max(self._horizon, self.horizons.of_pattern(pattern))

    def expired_below(self, pattern: str) -> int:
        """Return the offset below which messages of a pattern may be gone, see ports.LogReader."""
        return max(self._horizon, self.horizons.highest_of(pattern))

    def kept(
        self, segment: Segment | ActiveSegment, wanted: Callable[[str], bool] | None = None
    ) -> Callable[[str], bool] | None:
        """Return what tells whether a segment may have readable messages of a wanted topic.

        It is `wanted` if no message of the segment has expired.
        """
        horizons, end = self.horizons, segment.end_offset
        if horizons.highest <= segment.base_offset:
            return wanted
        if wanted is None:
            return lambda name: horizons.of(name) < end
        return lambda name: wanted(name) and horizons.of(name) < end

    def damage_between(self, first_offset: int, last_offset: int) -> Damage | None:
        """Return the first damage that overlaps a range of offsets."""
        for each in self._damage:
            if each.first_offset < last_offset and each.resumes_at > first_offset:
                return each
        return None

    def _check_damage(self, offset: int, up_to: int | None = None) -> None:
        damage = self.damage_between(offset, (offset if up_to is None else up_to - 1) + 1)
        if damage is not None:
            first = max(offset, damage.first_offset)
            raise LogDamaged(first, damage.resumes_at, damage.reason)

    def segments_from(self, offset: int) -> list[Segment | ActiveSegment]:
        """Return the segments with messages at `offset` or later, and maybe the one before."""
        with self._lock:
            number = bisect.bisect_right(
                self._segments, offset, key=lambda segment: segment.base_offset
            )
            return self._segments[max(number - 1, 0) :]

    def index(self, segment: Segment | ActiveSegment) -> Index:
        """Return the index of a segment; raise OSError."""
        if isinstance(segment, ActiveSegment):
            return segment.writer.index
        return self._indexes.get(segment.base_offset, end_offset=segment.end_offset)

    def drop_index(self, base_offset: int) -> None:
        """Forget the index of a segment: its file was replaced."""
        self._indexes.drop(base_offset)

    def row_groups(
        self, start: int, end: int
    ) -> Iterator[tuple[Segment | ActiveSegment, Index, int, int]]:
        """Yield each segment with messages between two offsets, its index, and their row groups.

        The row groups are given as the number of the first, and of the one after the last. Raise
        OSError.
        """
        for segment in self.segments():
            if segment.end_offset <= start or segment.base_offset >= end:
                continue
            index = self.index(segment)
            first, last = index.at_offset(start), index.at_offset(end)
            if last < len(index) and index.entry(last).base_offset < end:
                last += 1
            if first < last:
                yield segment, index, first, last
