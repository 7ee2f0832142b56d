"""Merges the small row groups of a closed segment: rewrites the segment with larger ones.

Each commit writes a row group, so a quiet log has row groups of one message, each with kilobytes of
metadata. Offsets, ids, times and all other columns do not change.

The new file and its index are complete and on disk before they get the names of the old ones. If
the process is killed between the two renames, recovery builds the index from the segment. Readers
that have the old file open continue with it, others look row groups up again
(`read/moved_places.py`).
"""

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import structlog

from penstock._kernels.crc32c import crc32c
from penstock.errors import LogDamaged
from penstock.limits import (
    BLOCK_ROWS_MAX,
    INDEX_TOPICS_MAX,
    LOG_FREE_BYTES_MIN,
    MERGE_BYTES_MAX,
    MERGE_GROUP_BYTES,
    MERGE_GROUPS_MIN,
    MERGE_READ_BYTES_MAX,
    MERGE_SAVED_PART_MIN,
    MERGE_SECONDS_MAX,
    MERGE_SHARE,
    MERGE_SYNC_BYTES,
)
from penstock.storage.arrow.format.file_names import (
    damage_path,
    index_path,
    rows_path,
    segment_path,
    tiered_path,
)
from penstock.storage.arrow.format.heads import read_head
from penstock.storage.arrow.format.index import Index
from penstock.storage.arrow.format.index_file import StaleIndex, index_bytes, load_index
from penstock.storage.arrow.format.segment import (
    COLUMN_FORMAT,
    END_OF_STREAM,
    HEAD_BYTES_MAX,
    BadHead,
    Head,
    RowGroup,
    chained,
    check_row_group,
    encode_row_group,
    head,
    head_words,
    parse_row_group,
)
from penstock.storage.arrow.read.catalog import Catalog, Place
from penstock.storage.arrow.read.reader import StoredRowGroup, read_row_groups
from penstock.storage.arrow.recover.recovery import Segment
from penstock.storage.arrow.write.merged_rows import MergedRows, columns_of
from penstock.storage.files import TEMPORARY, Files
from penstock.storage.rows import read_whole_batch

__all__ = ["SegmentMerging", "runs_of"]

log = structlog.get_logger("penstock.log")

_STEP: Final = 64
"""Row groups that are read before the thread rests."""


class _Stopped(Exception):
    """The broker stops: the segment is not replaced."""


class Run(NamedTuple):
    """Row groups to merge into one: numbers `first` up to `last`, exclusive, of an index."""

    first: int
    last: int


class SegmentMerging:
    """Merges row groups of closed segments, in the thread that calls `merge`."""

    def __init__(self, files: Files, catalog: Catalog, *, share: float = MERGE_SHARE) -> None:
        """Limit the work to a `share` of the calling thread's time; it sleeps for the rest."""
        self._files = files
        self._catalog = catalog
        self._share = share
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Give up the merge that is running; its segment stays as it was. Any thread may call."""
        self._stopping.set()

    def merge(self, segment: Segment) -> Segment:
        """Merge the row groups of a segment if that saves much; return the resulting segment.

        Raise OSError; then the segment is unchanged, or its index is missing.
        """
        with self._catalog.claimed(segment.base_offset) as is_free:
            if not is_free or self._catalog.damage_between(segment.base_offset, segment.end_offset):
                return segment
            try:
                return self._merge(segment)
            except (_Stopped, StaleIndex, BadHead, LogDamaged):
                return segment  # a damaged segment is not rewritten
            finally:
                self._files.remove(self._temporary(segment))
                self._files.remove(self._temporary_index(segment))

    def _temporary(self, segment: Segment) -> Path:
        path = segment_path(self._catalog.folder, segment.base_offset)
        return path.with_name(path.name + TEMPORARY)

    def _temporary_index(self, segment: Segment) -> Path:
        path = index_path(self._catalog.folder, segment.base_offset)
        return path.with_name(f"{path.name}.merged{TEMPORARY}")

    def _merge(self, segment: Segment) -> Segment:
        folder, base = self._catalog.folder, segment.base_offset
        path = segment_path(folder, base)
        if self._exists(tiered_path(folder, base)) or not self._exists(path):
            return segment
        index, summary = load_index(self._files, folder, base)
        runs = list(runs_of(index))
        if (
            not _is_worthwhile(index, runs, segment.size)
            or summary.segment_size != segment.size
            or index.missing
            or index.entry(0).base_offset != base
            or self._exists(damage_path(folder, base))
            or self._files.free_bytes(folder) < segment.size + LOG_FREE_BYTES_MIN
        ):
            return segment
        first = read_head(self._files, folder, base, log_id=None, partition=int(folder.name))
        found = first.head
        if found is None or first.fault or first.crc != summary.head_crc:
            return segment  # it is not what was written
        if found.format < COLUMN_FORMAT or not self._is_closed(path, found, index):
            return segment
        started = time.monotonic()
        new_head = head(
            found.log_id,
            partition=found.partition,
            base_offset=base,
            previous_end=found.previous_end,
            previous_crc=found.previous_crc,
            last_crc=summary.last_crc,
            words=head_words(self._files.read(path, 0, HEAD_BYTES_MAX)),
        )
        made = self._write(segment, new_head, found.previous_crc, index, runs)
        if found.last_crc is None and made.source_crc != summary.last_crc:
            return segment
        size = made.end + len(END_OF_STREAM)
        if size >= segment.size or made.index.end_offset != segment.end_offset:
            return segment
        new = Segment(base, segment.end_offset, size, made.index.last_us)
        new_summary = summary._replace(
            segment_size=size, head_crc=crc32c([new_head]), last_us=made.index.last_us
        )
        with self._created(self._temporary_index(segment)) as handle:
            self._files.append(handle, [index_bytes(made.index, new_summary)])
            self._files.sync(handle)
        if not self._exchange(segment, new, made.index):
            return segment
        log.info(
            "row groups merged", segment=base, row_groups=len(index), merged=len(made.index),
            size=segment.size, merged_size=size, seconds=time.monotonic() - started,
        )  # fmt: skip
        return new

    def _exists(self, path: Path) -> bool:
        try:
            self._files.size(path)
        except FileNotFoundError:
            return False
        return True

    def _is_closed(self, path: Path, first: Head, index: Index) -> bool:
        """Return whether a segment has an end marker, and no bytes that its index does not have."""
        end = first.size
        for number in range(len(index)):
            entry = index.entry(number)
            if entry.position != end:
                return False
            end += entry.size
        return self._files.read(path, end, HEAD_BYTES_MAX) == END_OF_STREAM

    def _exchange(self, old: Segment, new: Segment, index: Index) -> bool:
        """Give the new file and its index the names of the old ones.

        Return False, and change nothing, if retention has removed the segment. Raise OSError.
        """
        folder, base = self._catalog.folder, old.base_offset
        failed: list[OSError] = []

        def replace() -> None:
            self._files.remove(rows_path(folder, base))  # its positions are those of the old file
            self._files.rename(self._temporary(old), segment_path(folder, base))
            try:
                self._files.rename(self._temporary_index(old), index_path(folder, base))
                self._files.sync_folder(folder)
            except OSError as error:  # the next read or the next start builds the index
                failed.append(error)

        is_kept = self._catalog.exchange(old, new, index, replace)
        if failed:
            log.warning("index not written", segment=base, error=str(failed[0]))
        return is_kept

    # --- The new file

    def _write(
        self, segment: Segment, new_head: bytes, previous_crc: int, index: Index, runs: list[Run]
    ) -> "_Made":
        """Write the new segment to a temporary file; it is on disk when this returns.

        Raise OSError, LogDamaged or _Stopped.
        """
        with self._created(self._temporary(segment)) as handle:
            self._files.append(handle, [new_head])
            made = _Made(Index(segment.base_offset), new_head, previous_crc)
            path = segment_path(self._catalog.folder, segment.base_offset)
            synced = 0
            for run in runs:
                data = self._copy(path, index, run, made)
                if data is None:
                    rows = self._read(path, index, run, made)
                    with self._resting():
                        data = made.add(rows, index.entry(run.first).base_offset)
                with self._resting():
                    self._files.append(handle, [data])
                    if made.end - synced >= MERGE_SYNC_BYTES:
                        self._files.sync(handle)
                        synced = made.end
            self._files.append(handle, [END_OF_STREAM])
            self._files.sync(handle)
        return made

    @contextlib.contextmanager
    def _created(self, path: Path) -> Iterator[int]:
        """Create a file, and close it at the end; raise OSError."""
        self._files.remove(path)
        handle = self._files.create(path)
        try:
            yield handle
        finally:
            self._files.close(handle)

    def _copy(self, path: Path, index: Index, run: Run, made: "_Made") -> bytes | None:
        """Return the bytes of a row group that stays alone; None if it cannot stay as it is.

        It may be large: a message is never divided. Raise LogDamaged or _Stopped.
        """
        if run.last - run.first > 1:
            return None
        with self._resting():
            (found,) = self._row_groups([Place(path, index.entry(run.first))], made)
            return made.copy(found)

    def _row_groups(self, places: Sequence[Place], made: "_Made") -> list[StoredRowGroup]:
        """Read row groups that were written behind those that were read; raise LogDamaged."""
        previous_crc = made.source_crc
        found = read_row_groups(self._files, places)
        for each in found:
            if each.row_group.previous != previous_crc:
                end = each.base_offset + each.count
                raise LogDamaged(each.base_offset, end, "it is not the one written here")
            previous_crc = each.row_group.crc32c
        return found

    def _read(self, path: Path, index: Index, run: Run, made: "_Made") -> pa.RecordBatch:
        """Read and check the row groups of a run; raise LogDamaged or _Stopped."""
        rows = MergedRows()
        for first in range(run.first, run.last, _STEP):
            numbers = range(first, min(first + _STEP, run.last))
            places = [Place(path, index.entry(number)) for number in numbers]
            with self._resting():
                found = self._row_groups(places, made)
                made.source_crc = found[-1].row_group.crc32c
                stream = b"".join([made.head, *(each.data for each in found), END_OF_STREAM])
                try:
                    with pa.ipc.open_stream(stream) as reader:
                        for _ in places:
                            rows.add(read_whole_batch(reader))
                except (pa.ArrowException, OSError, StopIteration) as error:
                    end = places[-1].entry.base_offset + places[-1].entry.count
                    raise LogDamaged(places[0].entry.base_offset, end, str(error)) from error
        return rows.joined()

    @contextlib.contextmanager
    def _resting(self) -> Iterator[None]:
        """Sleep after the block, so that its work is a share of the time; raise _Stopped."""
        began = time.monotonic()
        yield
        if self._stopping.wait((time.monotonic() - began) * (1 / self._share - 1)):
            raise _Stopped


class _Made:
    """The part of a new segment that was written: its index, end and last checksum."""

    def __init__(self, index: Index, new_head: bytes, previous_crc: int) -> None:
        self.index = index
        self.end = len(new_head)
        self.head = new_head
        self.source_crc = previous_crc
        """The checksum of the last row group that was read."""
        self._last_crc = previous_crc

    def add(self, rows: pa.RecordBatch, base_offset: int) -> bytes:
        """Encode rows as the next row group; return its bytes.

        Raise AssertionError if decoding the bytes does not give the same rows.
        """
        columns = columns_of(rows, base_offset)
        encoded = encode_row_group(columns, previous=self._last_crc, synced=base_offset)
        data = b"".join(encoded.buffers)
        with pa.ipc.open_stream(b"".join([self.head, data, END_OF_STREAM])) as reader:
            if not read_whole_batch(reader).equals(rows):
                raise AssertionError(f"the merged row group at {base_offset} has other rows")
        self._append(data, parse_row_group(data))
        return data

    def copy(self, found: StoredRowGroup) -> bytes | None:
        """Return the bytes of the next row group, which differs in the checksum of the one before.

        Return None if that is not where it is expected: another version of Arrow may have laid it
        out.
        """
        data = chained(found.data, found.row_group, self._last_crc)
        row_group = parse_row_group(data)
        if row_group.previous != self._last_crc or not check_row_group(data, row_group):
            return None
        self.source_crc = found.row_group.crc32c
        self._append(data, row_group)
        return data

    def _append(self, data: bytes, row_group: RowGroup) -> None:
        self.index.add_row_group(data, row_group, self.end)
        self.end += len(data)
        self._last_crc = row_group.crc32c


def runs_of(index: Index) -> Iterator[Run]:
    """Divide the row groups of an index into runs within the limits of a merged row group.

    An index has the times of the first and of the last message of a row group. A run ends where
    others are earlier or later than both, because the clock was set back.
    """
    first = rows = size = read = 0
    topics: set[str] = set()
    begun_us = earliest_us = latest_us = 0
    for number in range(len(index)):
        entry = index.entry(number)
        names = index.topics_of(number)
        rows += entry.count
        size += max(entry.size - MERGE_GROUP_BYTES, 0)
        read += entry.size
        topics.update(names or ())
        earliest_us = min(earliest_us, entry.first_us, entry.last_us)
        latest_us = max(latest_us, entry.first_us, entry.last_us)
        if number > first and (
            names is None
            or rows > BLOCK_ROWS_MAX
            or size > MERGE_BYTES_MAX
            or read > MERGE_READ_BYTES_MAX
            or len(topics) > INDEX_TOPICS_MAX
            or abs(entry.last_us - begun_us) > MERGE_SECONDS_MAX * 1_000_000
            or min(begun_us, entry.last_us) > earliest_us
            or max(begun_us, entry.last_us) < latest_us
        ):
            yield Run(first, number)
            first, rows, read = number, entry.count, entry.size
            size = max(entry.size - MERGE_GROUP_BYTES, 0)
            topics = set(names or ())
        if number == first:
            begun_us = entry.first_us
            earliest_us, latest_us = sorted((entry.first_us, entry.last_us))
            if names is None:  # it has more topics than an index lists
                yield Run(number, number + 1)
                first, rows, size, read, topics = number + 1, 0, 0, 0, set()
    if first < len(index):
        yield Run(first, len(index))


def _is_worthwhile(index: Index, runs: Sequence[Run], size: int) -> bool:
    if len(index) < MERGE_GROUPS_MIN:
        return False
    return (len(index) - len(runs)) * MERGE_GROUP_BYTES >= MERGE_SAVED_PART_MIN * size
