"""Reads and checks row groups, in threads: the event loop never waits for a disk."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import structlog

from penstock._kernels import stored
from penstock._kernels.topics import TopicTable
from penstock.errors import LogDamaged, LogError, OffsetBelowHorizon, OffsetPastEnd
from penstock.limits import LOG_READERS, TIER_READERS
from penstock.ports import Fetched, LastFound, TopicFilter
from penstock.storage.arrow.format.row_record import BadRecord
from penstock.storage.arrow.format.segment import (
    HEAD_BYTES_MAX,
    BadHead,
    BadRowGroup,
    check_row_group,
    parse_head,
    parse_row_group,
)
from penstock.storage.arrow.format.topic_horizons import TopicHorizons
from penstock.storage.arrow.read.active_rows import ActiveRows
from penstock.storage.arrow.read.catalog import Catalog, Place
from penstock.storage.arrow.read.last_offsets import LastOffsets
from penstock.storage.arrow.read.last_record import fitting_last_messages
from penstock.storage.arrow.read.moved_places import moved_places
from penstock.storage.arrow.read.rare_rows import Picked, RareRows
from penstock.storage.arrow.read.runs import Run, RunFinder
from penstock.storage.arrow.read.stored_row_group import StoredRowGroup
from penstock.storage.files import Files
from penstock.storage.schema import KINDS, PROTOCOLS

__all__ = ["RowGroupReader", "StoredRowGroup", "offset_at_time", "read_row_group"]

log = structlog.get_logger("penstock.log")

_WORDS_KEPT_MAX: Final = 1024
"""Segments whose dictionaries are remembered."""


def read_row_group(
    files: Files,
    place: Place,
    words: stored.SegmentWords | None = None,
    *,
    handle: int | None = None,
) -> StoredRowGroup:
    """Read a row group and check it; raise LogDamaged if its checksum or place is wrong.

    `words` are the dictionaries of its segment, which are needed to load it into a batch. It is
    read from `handle` if the segment is open.
    """
    entry = place.entry
    try:
        if handle is None:
            data = files.read(place.path, entry.position, entry.size)
        else:
            data = files.read_at(handle, entry.position, entry.size)
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
    if (row_group.base_offset, row_group.count) != (entry.base_offset, entry.count) or (
        not check_row_group(data, row_group)
    ):
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


def _neighbours(run: Run) -> Iterator[list[Place]]:
    """Yield row groups that follow each other in a file; one of which rows are picked is alone."""
    found: list[Place] = []
    for place in run.places:
        entry = place.entry
        if found and (
            entry.position != found[-1].entry.position + found[-1].entry.size
            or entry.base_offset in run.picked
            or found[-1].entry.base_offset in run.picked
        ):
            yield found
            found = []
        found.append(place)
    yield found


def offset_at_time(files: Files, catalog: Catalog, timestamp_us: int, end: int) -> int:
    """Return the first offset taken at or after a time, `end` if there is none below it.

    Raise LogDamaged, or FileNotFoundError for a segment that retention has removed.
    """
    place = catalog.place_of_time(timestamp_us)
    if place is None or place.entry.base_offset >= end:
        return end
    try:
        found = read_row_group(files, place)
    except LogDamaged:
        moved = moved_places(files, place, place.entry.base_offset + 1)
        if not moved or moved[0].entry.base_offset > place.entry.base_offset:
            raise
        found = read_row_group(files, moved[0])
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
        stale_rows: Callable[[int], None] = lambda _: None,
        active_rows: ActiveRows | None = None,
    ) -> None:
        """`stale_rows` is called with the base offset of a segment whose row index is wrong.

        `active_rows` has entries of the active segment.
        """
        self._files = files
        self._catalog = catalog
        self._rare = RareRows(files, catalog.folder, stale_rows, active_rows)
        self._runs = RunFinder(catalog, self._rare)
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
        self,
        topics: TopicTable,
        end: int,
        then: Callable[[LastFound | LogError], None],
        known: LastFound | None = None,
    ) -> None:
        """Find the last message of each topic; see ports.LogReader."""
        self._tier_threads.submit(self._find_last, topics, end, then, known)

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
        exchanges = self._catalog.exchanges
        try:
            run = self._runs.find(offset, end, topics)
            if not tiered and run.places and not run.places[0].path.exists():
                self._tier_threads.submit(self._fetch, offset, end, then, topics, tiered=True)
                return
            result = self._read(run)
        except LogError as error:
            if isinstance(error, LogDamaged) and self._catalog.exchanged_since(exchanges):
                self._fetch(offset, end, then, topics, tiered=tiered)  # row groups were merged
                return
            result = error
        except Exception as error:
            log.exception("reading failed", offset=offset)
            result = self._failed(offset, end, error)
        horizon = self._catalog.horizon
        if isinstance(result, LogDamaged) and offset < horizon:
            result = OffsetBelowHorizon(offset, horizon)  # retention removed it meanwhile
        self._post(lambda: then(result))

    def _failed(self, offset: int, end: int, error: Exception) -> LogError:
        """Return the error of a read that failed by a bug, or for lack of memory.

        Without memory, callers try again. Otherwise they skip one row group.
        """
        if isinstance(error, MemoryError):
            return OffsetPastEnd(offset, offset)
        with contextlib.suppress(Exception):
            entry = self._catalog.place(offset, end).entry
            end = min(entry.base_offset + entry.count, end)
        return LogDamaged(offset, end, str(error))

    def _read(self, run: Run) -> Fetched:
        """Read the row groups of a run, up to the first damaged one; raise LogDamaged."""
        if not run.places:
            return Fetched((), run.end)
        words = self._words_of(run.places[0].path)
        horizons = self._catalog.horizons
        found: list[StoredRowGroup] = []
        for places in _neighbours(run):
            picked = run.picked.get(places[0].entry.base_offset)
            if picked is not None:
                rows, left = self._read_rows(places[0], picked, words, found)
                found += rows
                if left is not None:
                    return _with(horizons, found, left)
                continue
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

    def _read_rows(
        self,
        place: Place,
        picked: Picked,
        words: stored.SegmentWords,
        before: Sequence[StoredRowGroup],
    ) -> tuple[list[StoredRowGroup], int | None]:
        """Read rows of a row group, or all of it if one is not what the row index says.

        Also return the offset at which reading is to go on, None if all was read. Raise LogDamaged
        if nothing was read `before`.
        """
        try:
            return self._rare.read(place, picked, words)
        except (BadRecord, OSError) as error:
            reason = str(error)
        try:
            whole = read_row_group(self._files, place, words)
        except LogDamaged:
            if not before:
                raise
            return [], place.entry.base_offset
        self._rare.distrust(int(place.path.stem), reason)
        return [whole], None

    def _find_last(
        self,
        topics: TopicTable,
        end: int,
        then: Callable[[LastFound | LogError], None],
        known: LastFound | None,
    ) -> None:
        result: LastFound | LogError
        try:
            record = None
            if known is None:
                record, _ = fitting_last_messages(self._files, self._catalog) or (None, 0)
            result = LastFound(LastOffsets(self._catalog, topics, end, known, record).find(), end)
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
