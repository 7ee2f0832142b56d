"""Writes the active segment. One thread owns it.

Recovery relies on the order of writes: the head and the name of the file are on disk before any row
group; all row groups before the end marker; the end marker before the index; the index before the
next segment.
"""

import contextlib
import struct
from pathlib import Path
from typing import NamedTuple

from penstock._kernels.crc32c import crc32c
from penstock.limits import INDEX_TOPICS_MAX
from penstock.storage.arrow.format.file_names import segment_path
from penstock.storage.arrow.format.index import Entry, Index
from penstock.storage.arrow.format.index_file import Summary, save_index
from penstock.storage.arrow.format.segment import (
    END_OF_STREAM,
    TIMESTAMPS,
    TOPIC_INDICES,
    Columns,
    RowGroup,
    count_topics,
    encode_row_group,
    head,
)
from penstock.storage.files import Files

__all__ = ["Mark", "SegmentWriter"]


class Mark(NamedTuple):
    """A position in a segment to which `abandon` can return."""

    size: int
    row_groups: int
    last_crc: int


class SegmentWriter:
    """A new segment.

    After an OSError it is unusable: `abandon` it and begin another.
    """

    def __init__(
        self,
        files: Files,
        folder: Path,
        *,
        log_id: int,
        partition: int,
        base_offset: int,
        previous_end: int,
        previous_crc: int,
        words: bytes | None = None,
    ) -> None:
        """Create the file with its head; it is on disk when this returns.

        `words` are the dictionaries of row groups that were written elsewhere.
        """
        self.path = segment_path(folder, base_offset)
        self.base_offset = base_offset
        self.index = Index(base_offset)
        self.last_crc = previous_crc
        self._files = files
        self._folder = folder
        first_bytes = head(
            log_id,
            partition=partition,
            base_offset=base_offset,
            previous_end=previous_end,
            previous_crc=previous_crc,
            words=words,
        )
        self._head_crc = crc32c([first_bytes])
        self.size = len(first_bytes)
        self._synced_size = self.size
        self._forgotten = 0
        self._ended = False
        self._handle: int | None = files.create(self.path)
        try:
            files.append(self._handle, [first_bytes])
            files.sync(self._handle)
            files.sync_folder(folder)
        except OSError:
            self._close()
            self._remove()
            raise

    @property
    def end_offset(self) -> int:
        """One past the last offset that was written."""
        return self.index.end_offset

    @property
    def mark(self) -> Mark:
        """The current position."""
        return Mark(self.size, len(self.index), self.last_crc)

    def append(self, columns: Columns, *, synced: int) -> int:
        """Append a row group without a sync; return its size.

        `synced` is the offset below which all of the log is known to be on disk.
        """
        row_group = encode_row_group(columns, previous=self.last_crc, synced=synced)
        self._files.append(self._open(), row_group.buffers)
        first_us, last_us = _times(columns)
        entry = Entry(
            columns.base_offset, columns.count, self.size, row_group.size, first_us, last_us
        )
        few = len(columns.topics) <= INDEX_TOPICS_MAX
        topics = [str(name, "utf-8") for name in columns.topics] if few else None
        counts = None
        if topics:
            indices = columns.buffers[TOPIC_INDICES]
            counts = count_topics(indices, rows=columns.count, topics=len(topics))
        self.size += row_group.size
        self.last_crc = row_group.crc32c
        self.index.add(entry, topics, counts)
        return row_group.size

    def append_encoded(self, data: bytes, row_group: RowGroup) -> None:
        """Append a row group of another log as it is, without a sync."""
        self._files.append(self._open(), [data])
        self.index.add_row_group(data, row_group, self.size)
        self.size += len(data)
        self.last_crc = row_group.crc32c

    def sync(self) -> None:
        """Sync all row groups to disk."""
        size = self.size
        self._files.sync(self._open())
        self._synced_size = size

    @property
    def unsynced_bytes(self) -> int:
        """Bytes that may not be on disk yet."""
        return self.size - self._synced_size

    def forgettable_bytes(self, kept: int) -> int:
        """Return how many bytes before the last `kept` can be dropped from the page cache."""
        return min(self.size - kept, self._synced_size) - self._forgotten

    def forget(self, kept: int) -> None:
        """Drop all but the last `kept` bytes, and what is not on disk, from the page cache."""
        size = self.forgettable_bytes(kept)
        if size > 0:
            self._files.forget(self._open(), self._forgotten, size)
            self._forgotten += size

    def seal(self) -> None:
        """Write the end marker and the index; all is on disk when this returns."""
        if self._synced_size < self.size:
            self.sync()
        handle = self._open()
        self._files.append(handle, [END_OF_STREAM])
        self._files.sync(handle)
        self.size += len(END_OF_STREAM)
        self._ended = True
        summary = Summary(
            base_offset=self.base_offset,
            end_offset=self.end_offset,
            segment_size=self.size,
            head_crc=self._head_crc,
            last_crc=self.last_crc,
            last_us=self.index.last_us,
        )
        save_index(self._files, self._folder, self.index, summary)
        self._close()

    def abandon(self, mark: Mark | None) -> None:
        """Discard the bytes written since `mark`, or all bytes, and close the file.

        If the file cannot be truncated, the head of the next segment says where this one ends, and
        the next recovery truncates it. A segment without a row group is removed. A segment with its
        end marker on disk stays: only its index is missing.
        """
        if self._ended:
            self._close()
            return
        row_groups = mark.row_groups if mark else 0
        self.index.cut(row_groups)
        self._close()
        if mark is None or not row_groups:
            self._remove()
            return
        self.size, self.last_crc = mark.size, mark.last_crc
        with contextlib.suppress(OSError):
            self._files.truncate(self.path, self.size)

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            self._files.remove(self.path)
            self._files.sync_folder(self._folder)

    def _open(self) -> int:
        if self._handle is None:
            raise ValueError(f"{self.path.name} is closed")
        return self._handle

    def _close(self) -> None:
        if self._handle is not None:
            handle, self._handle = self._handle, None
            with contextlib.suppress(OSError):
                self._files.close(handle)


def _times(columns: Columns) -> tuple[int, int]:
    """Return the timestamps of the first and the last row, in microseconds."""
    timestamps = columns.buffers[TIMESTAMPS]
    if isinstance(timestamps, int):
        return 0, 0
    first: int = struct.unpack_from("<q", timestamps)[0]
    last: int = struct.unpack_from("<q", timestamps, 8 * (columns.count - 1))[0]
    return first, last
