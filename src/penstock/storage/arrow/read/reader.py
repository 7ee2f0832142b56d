"""Reads and checks row groups, in threads: the event loop never waits for a disk."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import structlog

from penstock._kernels import stored
from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.errors import LogDamaged, LogError, OffsetBelowHorizon
from penstock.limits import LOG_READERS, TIER_READERS
from penstock.ports import Fetched, TopicFilter
from penstock.storage.arrow.format.segment import (
    HEAD_BYTES_MAX,
    TIMESTAMPS,
    TOPIC_INDICES,
    BadHead,
    BadRowGroup,
    RowGroup,
    check_row_group,
    parse_head,
    parse_row_group,
    row_group_topics,
)
from penstock.storage.arrow.format.topic_horizons import NO_HORIZONS, TopicHorizons
from penstock.storage.arrow.read.catalog import Catalog, Place
from penstock.storage.arrow.read.last_offsets import LastOffsets
from penstock.storage.arrow.read.runs import Run, RunFinder
from penstock.storage.files import Files
from penstock.storage.schema import KINDS, PROTOCOLS

__all__ = ["RowGroupReader", "StoredRowGroup", "offset_at_time", "read_row_group"]

log = structlog.get_logger("penstock.log")

_WORDS_KEPT_MAX: Final = 1024
"""Segments whose dictionaries are remembered."""


class StoredRowGroup:
    """A row group in memory; a `ports.Stored`. Messages that have expired are hidden."""

    __slots__ = ("base_offset", "count", "data", "horizons", "row_group", "words")

    def __init__(
        self,
        data: bytes,
        row_group: RowGroup,
        words: stored.SegmentWords | None = None,
    ) -> None:
        self.data = data
        self.horizons = NO_HORIZONS
        self.row_group = row_group
        self.words = words or stored.SegmentWords(PROTOCOLS, KINDS)
        self.base_offset = row_group.base_offset
        self.count = row_group.count

    def load(self, batch: Batch, topics: TopicTable) -> None:
        """See ports.Stored."""
        row_group = self.row_group
        floors = self._floors(self.horizons)
        stored.load(
            batch,
            topics,
            self.data,
            row_group.layout,
            row_group.topic_layout,
            row_group.sender_layout,
            self.words,
            count=row_group.count,
            floors=None if floors is None else array("I", floors),
        )

    def _floors(self, horizons: TopicHorizons) -> list[int] | None:
        """Return, for each topic, the number of rows in which it has expired; None if in none."""
        if horizons.highest <= self.base_offset:
            return None
        found = horizons.of_names(row_group_topics(self.data, self.row_group), self.base_offset)
        if found is None:
            return None
        return [min(max(each - self.base_offset, 0), self.count) for each in found]

    def expired(self, since: object, wants: Callable[[str], bool], *, first: int, last: int) -> int:
        """See ports.Stored."""
        floors = self._floors(self.horizons)
        if floors is None:
            return 0
        known = self._floors(since) if isinstance(since, TopicHorizons) else None
        names = row_group_topics(self.data, self.row_group)
        begins = [0] * len(names) if known is None else known
        begins = [
            begin if begin < floor and wants(name) else self.count
            for name, begin, floor in zip(names, begins, floors, strict=True)
        ]
        start, length = self.row_group.layout[2 * TOPIC_INDICES : 2 * TOPIC_INDICES + 2]
        topics = array("H")
        topics.frombytes(self.data[start : start + length][: 2 * self.count])
        return sum(begins[topics[row]] <= row < floors[topics[row]] for row in range(first, last))

    def row_at_time(self, timestamp_us: int) -> int:
        """Return the first row taken at or after a time, or the number of rows."""
        start, length = self.row_group.layout[2 * TIMESTAMPS : 2 * TIMESTAMPS + 2]
        times = array("q")
        times.frombytes(self.data[start : start + length][: 8 * self.count])
        return next((row for row, taken in enumerate(times) if taken >= timestamp_us), self.count)


def read_row_group(
    files: Files, place: Place, words: stored.SegmentWords | None = None
) -> StoredRowGroup:
    """Read a row group and check it; raise LogDamaged if its checksum or place is wrong.

    `words` are the dictionaries of its segment, which are needed to load it into a batch.
    """
    entry = place.entry
    try:
        data = files.read(place.path, entry.position, entry.size)
    except OSError as error:
        reason = f"{place.path.name} at {entry.position}: {error}"
        raise LogDamaged(entry.base_offset, entry.base_offset + entry.count, reason) from error
    return _checked(data, place, words)


def _checked(data: bytes, place: Place, words: stored.SegmentWords | None) -> StoredRowGroup:
    """Return a row group that was read; raise LogDamaged."""
    entry = place.entry
    try:
        row_group = parse_row_group(data)
    except BadRowGroup as error:
        reason = f"{place.path.name} at {entry.position}: {error}"
        raise LogDamaged(entry.base_offset, entry.base_offset + entry.count, reason) from error
    if row_group.base_offset != entry.base_offset or not check_row_group(data, row_group):
        reason = f"{place.path.name} at {entry.position}: the checksum is wrong"
        raise LogDamaged(entry.base_offset, entry.base_offset + entry.count, reason)
    return StoredRowGroup(data, row_group, words)


def read_row_groups(
    files: Files, places: Sequence[Place], words: stored.SegmentWords | None = None
) -> list[StoredRowGroup]:
    """Read row groups that follow each other in a file, with one read; raise LogDamaged."""
    if len(places) == 1:
        return [read_row_group(files, places[0], words)]
    first, last = places[0].entry, places[-1].entry
    path, end = places[0].path, last.base_offset + last.count
    try:
        data = files.read(path, first.position, last.position + last.size - first.position)
    except OSError as error:
        reason = f"{path.name} at {first.position}: {error}"
        raise LogDamaged(first.base_offset, end, reason) from error
    found = []
    for place in places:
        start = place.entry.position - first.position
        found.append(_checked(data[start : start + place.entry.size], place, words))
    return found


def _with(horizons: TopicHorizons, found: list[StoredRowGroup], end: int) -> Fetched:
    """Return row groups in which messages that have expired are hidden."""
    for each in found:
        each.horizons = horizons
    return Fetched(found, end)


def _neighbours(places: Sequence[Place]) -> Iterator[list[Place]]:
    """Yield row groups that follow each other in a file."""
    run: list[Place] = []
    for place in places:
        if run and place.entry.position != run[-1].entry.position + run[-1].entry.size:
            yield run
            run = []
        run.append(place)
    yield run


def offset_at_time(files: Files, catalog: Catalog, timestamp_us: int, end: int) -> int:
    """Return the first offset taken at or after a time, `end` if there is none below it.

    Raise LogDamaged, or FileNotFoundError for a segment that retention has removed.
    """
    place = catalog.place_of_time(timestamp_us)
    if place is None or place.entry.base_offset >= end:
        return end
    found = read_row_group(files, place)
    return min(found.base_offset + found.row_at_time(timestamp_us), end)


class RowGroupReader:
    """Reads for callers that must not block; results are passed to `post`."""

    def __init__(
        self,
        files: Files,
        catalog: Catalog,
        post: Callable[[Callable[[], None]], None],
        *,
        threads: int = LOG_READERS,
    ) -> None:
        self._files = files
        self._catalog = catalog
        self._runs = RunFinder(catalog)
        self._post = post
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="penstock-read")
        # An object store is slow: reads of the local disk must not wait behind it.
        self._tier_threads = ThreadPoolExecutor(TIER_READERS, thread_name_prefix="penstock-tier")
        self._words: dict[Path, stored.SegmentWords] = {}

    def fetch(
        self,
        offset: int,
        end: int,
        then: Callable[[Fetched | LogError], None],
        topics: TopicFilter | None = None,
    ) -> None:
        """Read the row group that has `offset`, or the next, and more; see ports.LogReader."""
        self._threads.submit(self._fetch, offset, end, then, topics)

    def find_time(
        self, timestamp_us: int, end: int, then: Callable[[int | LogError], None]
    ) -> None:
        """Find the first offset at or after a time; see ports.LogReader."""
        self._threads.submit(self._find_time, timestamp_us, end, then)

    def find_last(
        self, topics: TopicTable, end: int, then: "Callable[[array[int] | LogError], None]"
    ) -> None:
        """Find the last message of each topic; see ports.LogReader."""
        self._tier_threads.submit(self._find_last, topics, end, then)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._tier_threads.shutdown(wait=True, cancel_futures=True)

    def _words_of(self, path: Path) -> stored.SegmentWords:
        """Return the dictionaries of a segment's head; those of today if it cannot be read."""
        words = self._words.get(path)
        if words is None:
            try:
                head = parse_head(self._files.read(path, 0, HEAD_BYTES_MAX), path=str(path))
            except (OSError, BadHead):  # recovery has reported it
                return stored.SegmentWords(PROTOCOLS, KINDS)
            if len(self._words) >= _WORDS_KEPT_MAX:
                self._words.clear()
            words = self._words[path] = stored.SegmentWords(head.protocols, head.kinds)
        return words

    def _fetch(
        self,
        offset: int,
        end: int,
        then: Callable[[Fetched | LogError], None],
        topics: TopicFilter | None,
        *,
        tiered: bool = False,
    ) -> None:
        result: Fetched | LogError
        try:
            run = self._runs.find(offset, end, topics)
            if not tiered and run.places and not run.places[0].path.exists():
                self._tier_threads.submit(self._fetch, offset, end, then, topics, tiered=True)
                return
            result = self._read(run)
        except LogError as error:
            result = error
        except Exception as error:
            log.exception("reading failed", offset=offset)
            result = LogDamaged(offset, end, str(error))
        horizon = self._catalog.horizon
        if isinstance(result, LogDamaged) and offset < horizon:
            result = OffsetBelowHorizon(offset, horizon)  # retention removed it meanwhile
        self._post(lambda: then(result))

    def _read(self, run: Run) -> Fetched:
        """Read the row groups of a run, up to the first damaged one; raise LogDamaged."""
        if not run.places:
            return Fetched((), run.end)
        words = self._words_of(run.places[0].path)
        horizons = self._catalog.horizons
        found: list[StoredRowGroup] = []
        for places in _neighbours(run.places):
            try:
                found += read_row_groups(self._files, places, words)
            except LogDamaged:
                for place in places:
                    try:
                        found.append(read_row_group(self._files, place, words))
                    except LogDamaged:
                        if not found:
                            raise
                        return _with(horizons, found, found[-1].base_offset + found[-1].count)
        return _with(horizons, found, run.end)

    def _find_last(
        self, topics: TopicTable, end: int, then: "Callable[[array[int] | LogError], None]"
    ) -> None:
        result: array[int] | LogError
        try:
            result = LastOffsets(self._catalog, topics, end).find()
        except LogError as error:
            result = error
        except Exception as error:
            log.exception("search for last messages failed")
            result = LogDamaged(self._catalog.horizon, end, str(error))
        self._post(lambda: then(result))

    def _find_time(
        self,
        timestamp_us: int,
        end: int,
        then: Callable[[int | LogError], None],
        *,
        tiered: bool = False,
    ) -> None:
        result: int | LogError
        try:
            place = None if tiered else self._catalog.place_of_time(timestamp_us)
            if place is not None and not place.path.exists():
                self._tier_threads.submit(self._find_time, timestamp_us, end, then, tiered=True)
                return
            result = offset_at_time(self._files, self._catalog, timestamp_us, end)
        except LogError as error:
            result = error
        except Exception as error:
            log.exception("time lookup failed", timestamp_us=timestamp_us)
            result = LogDamaged(end, end, str(error))
        self._post(lambda: then(result))
