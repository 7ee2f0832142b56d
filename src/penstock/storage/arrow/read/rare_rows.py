"""Reads single messages of rare topics from large row groups, by the row indexes of segments."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from penstock._kernels import stored
from penstock._kernels.crc32c import crc32c
from penstock.limits import (
    CATCH_UP_READ_BYTES,
    ROW_INDEX_GROUP_BYTES_MIN,
    ROW_INDEX_NAMES_MAX,
    ROW_INDEX_RARE,
    ROW_INDEX_TABLES_MAX,
)
from penstock.storage.arrow.format.file_names import rows_path
from penstock.storage.arrow.format.index import Entry
from penstock.storage.arrow.format.index_file import StaleIndex, load_summary
from penstock.storage.arrow.format.row_index_file import (
    ListedRow,
    RowIndex,
    StaleRowIndex,
    load_row_index,
    topic_hash,
)
from penstock.storage.arrow.format.row_record import BadRecord, RecordReader, row_group_of
from penstock.storage.arrow.read.active_rows import ActiveRows
from penstock.storage.arrow.read.catalog import ActiveSegment, Place
from penstock.storage.arrow.read.stored_row_group import StoredRowGroup
from penstock.storage.arrow.recover.recovery import Segment
from penstock.storage.files import Files

__all__ = ["Picked", "RareRows", "Row"]

log = structlog.get_logger("penstock.log")

_FEW_ROWS: Final = 8
"""Messages that are read one by one from any large row group."""

_Version = tuple[int, int, int, int]
"""Inode, time and size of a row index, and size of its segment; they change if one is replaced."""


class Row(NamedTuple):
    """A message to read: its row in a row group, the checksum of its record, and its topic."""

    row: int
    checksum: int
    topic: str


class Picked(NamedTuple):
    """The wanted messages of a row group, in order, and where their parts are in it."""

    parts: tuple[int, ...]
    rows: Sequence[Row]


class RareRows:
    """Finds and reads messages. Any thread may call.

    `stale` is called with the base offset of a segment whose row index is wrong.
    """

    def __init__(
        self,
        files: Files,
        folder: Path,
        stale: Callable[[int], None],
        active: ActiveRows | None = None,
    ) -> None:
        """`active` has entries of segments without a row index."""
        self._files = files
        self._folder = folder
        self._stale = stale
        self._active = active or ActiveRows()
        self._lock = threading.Lock()
        self._open: OrderedDict[int, tuple[_Version, RowIndex | None]] = OrderedDict()

    def find(
        self, segment: Segment | ActiveSegment, entry: Entry, names: Sequence[str] | None
    ) -> Picked | None:
        """Return the messages of some topics in a row group; None if it must be read whole.

        `names` are all wanted topics that the row group may have, None if they are not known.
        """
        if (
            entry.size < ROW_INDEX_GROUP_BYTES_MIN
            or names is None
            or len(names) > ROW_INDEX_NAMES_MAX
        ):
            return None
        found = self._entries(segment, entry, [topic_hash(name) for name in names])
        if found is None:
            return None
        parts, by_topic = found
        pairs = zip(names, by_topic, strict=True)
        rows = sorted(Row(*each, name) for name, listed in pairs for each in listed)
        if len(rows) > max(_FEW_ROWS, entry.count // ROW_INDEX_RARE):
            return None
        return Picked(parts, rows)

    def _entries(
        self, segment: Segment | ActiveSegment, entry: Entry, hashes: Sequence[int]
    ) -> tuple[tuple[int, ...], list[list[ListedRow]]] | None:
        """Return the parts of records of a row group, and the rows of topics, by their hashes."""
        index = None if isinstance(segment, ActiveSegment) else self._index(segment)
        if index is None:
            return self._active.find(segment.base_offset, entry, hashes)
        try:
            return index.find(entry.base_offset, hashes)
        except StaleRowIndex as error:
            self.distrust(segment.base_offset, str(error))
            return None

    def read(
        self, place: Place, picked: Picked, words: stored.SegmentWords
    ) -> tuple[list[StoredRowGroup], int | None]:
        """Read messages, each as a row group of its own, up to about CATCH_UP_READ_BYTES.

        Also return the offset of the first message that was left out, None if there is none. Raise
        BadRecord if a checksum is wrong, or OSError.
        """
        entry = place.entry
        handle = self._files.open_to_read(place.path)
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)  # no more than what is asked for
            records = RecordReader(
                lambda position, size: self._files.read_at(handle, entry.position + position, size),
                picked.parts,
                size=entry.size,
            )
            found: list[StoredRowGroup] = []
            size = 0
            for row, checksum, topic in picked.rows:
                offset = entry.base_offset + row
                if size > CATCH_UP_READ_BYTES:
                    return found, offset
                record, name = records.record(row, offset)
                if crc32c([record]) != checksum:
                    raise BadRecord(f"the checksum of message {offset} is wrong")
                size += len(record)
                if name == topic.encode():  # another may have the same hash
                    found.append(StoredRowGroup(record, row_group_of(record), words))
            return found, None
        finally:
            self._files.close(handle)

    def distrust(self, base_offset: int, reason: str) -> None:
        """Use the row index of a segment no more, until it is replaced."""
        log.warning("row index not used", segment=base_offset, error=reason)
        self._active.refuse(base_offset)
        with self._lock:
            if base_offset in self._open:
                self._open[base_offset] = self._open[base_offset][0], None
        self._stale(base_offset)

    def _index(self, segment: Segment) -> RowIndex | None:
        """Return the row index of a segment, None if there is none that can be used."""
        base = segment.base_offset
        try:
            found = rows_path(self._folder, base).stat()
        except OSError:
            return None
        version = found.st_ino, found.st_mtime_ns, found.st_size, segment.size
        with self._lock:
            known = self._open.get(base)
            if known is not None and known[0] == version:
                self._open.move_to_end(base)
                return known[1]
        index: RowIndex | None = None
        reason = ""
        try:
            summary = load_summary(self._files, self._folder, base)
            if summary.end_offset == segment.end_offset and summary.segment_size == segment.size:
                index = load_row_index(self._files, self._folder, summary)
        except StaleIndex:  # reading rebuilds it
            return None
        except StaleRowIndex as error:
            reason = str(error)
        with self._lock:
            self._open[base] = version, index
            while len(self._open) > ROW_INDEX_TABLES_MAX:
                self._open.popitem(last=False)
        if reason:
            self.distrust(base, reason)
        return index
