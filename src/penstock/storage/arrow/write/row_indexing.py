"""Merges and indexes the row groups of closed segments, in a thread of its own.

It writes their row indexes, and the record of last messages. Row groups of the active segment are
indexed in memory.

Neither commits nor the stop of the broker wait for it. Missing files are written after the next
start.
"""

import contextlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import structlog

from penstock.errors import LogDamaged
from penstock.limits import ROW_INDEX_ACTIVE_BYTES, ROW_INDEX_ACTIVE_SECONDS, ROW_INDEX_SHARE
from penstock.storage.arrow.format.file_names import rows_path, segment_path
from penstock.storage.arrow.format.index import Index
from penstock.storage.arrow.format.index_file import StaleIndex, load_index, load_summary
from penstock.storage.arrow.format.row_index_file import (
    RowIndexWriter,
    StaleRowIndex,
    encode_section,
    is_useful,
    load_row_index,
    may_be_rare,
)
from penstock.storage.arrow.read.active_rows import ActiveRows
from penstock.storage.arrow.read.catalog import ActiveSegment, Catalog, Place
from penstock.storage.arrow.read.reader import read_row_group
from penstock.storage.arrow.recover.recovery import Segment
from penstock.storage.arrow.write.last_message_record import LastMessageRecord
from penstock.storage.arrow.write.merging import SegmentMerging
from penstock.storage.files import Files

__all__ = ["RowIndexing"]

log = structlog.get_logger("penstock.log")


class RowIndexing:
    """Merges and indexes the closed segments of a catalog, the newest first.

    It works for a `share` of its thread's time, so that it does not slow publishers down.
    """

    def __init__(
        self,
        files: Files,
        catalog: Catalog,
        *,
        share: float = ROW_INDEX_SHARE,
        merging: SegmentMerging | None = None,
        record: LastMessageRecord | None = None,
        active: ActiveRows | None = None,
        active_bytes: int = ROW_INDEX_ACTIVE_BYTES,
    ) -> None:
        """With `merging`, the row groups of a segment are merged before it is indexed.

        `record` is brought up to date when all are indexed. `active` gets the entries of the active
        segment, each time that it has `active_bytes` more.
        """
        self._files = files
        self._merging = merging
        self._record = record
        self._active = active or ActiveRows()
        self._active_bytes = active_bytes
        self._active_next = -1, 0  # base offset of a segment, and the row group that follows
        self._catalog = catalog
        self._share = share
        self._seen: set[int] = set()  # segments whose row groups are as they stay
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-rows", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._wanted.set()
        self._thread.start()

    def stop(self) -> None:
        """End the thread; an unfinished row index is removed."""
        self._stopping.set()
        if self._merging is not None:
            self._merging.stop()
        if self._record is not None:
            self._record.stop()
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join()

    def has_seen(self, base_offset: int) -> bool:
        """Return whether the thread has merged a segment or left it alone. Any thread may call.

        A segment whose merge was stopped is merged after the next start.
        """
        return base_offset in self._seen

    def wake(self) -> None:
        """Look for closed segments; any thread may call."""
        self._wanted.set()

    def renew(self, base_offset: int) -> None:
        """Remove the wrong row index of a segment, to be written again. Any thread may call."""
        with contextlib.suppress(OSError):
            self._files.remove(rows_path(self._catalog.folder, base_offset))
        self._seen.discard(base_offset)
        self._wanted.set()

    # --- The thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            if not self._wanted.wait(ROW_INDEX_ACTIVE_SECONDS):
                self._index_active()
                continue
            self._wanted.clear()
            while not self._stopping.is_set():
                segments = self._catalog.segments()
                closed = [each for each in segments if isinstance(each, Segment)]
                waiting = [each for each in closed if each.base_offset not in self._seen]
                if not waiting:
                    self._seen.intersection_update(each.base_offset for each in closed)
                    self._drop_all_but(segments[len(closed) :])
                    self._update_record(closed)
                    break
                self._index(waiting[-1], is_newest=waiting[-1] is closed[-1])

    def _drop_all_but(self, active: Sequence[Segment | ActiveSegment]) -> None:
        """Drop the entries of closed segments, which are indexed by now."""
        kept = {each.base_offset for each in active}
        for base_offset in self._active.segments():
            if base_offset not in kept:
                self._active.drop(base_offset)

    def _index_active(self) -> None:
        try:
            for segment in self._catalog.segments()[-1:]:
                if isinstance(segment, ActiveSegment):
                    self.index_active(segment)
        except Exception:  # the thread must continue
            log.exception("active segment not indexed")

    def index_active(self, segment: ActiveSegment) -> None:
        """Index the new row groups of the active segment, if they have many bytes."""
        base, index = segment.base_offset, self._catalog.index(segment)
        first = self._active_next[1] if self._active_next[0] == base else 0
        length = len(index)
        if first >= length:
            return
        last = index.entry(length - 1)
        if last.position + last.size - index.entry(first).position < self._active_bytes:
            return
        path = segment_path(self._catalog.folder, base)
        for number in range(first, length):
            if number >= len(index):  # a commit has failed
                break
            entry = index.entry(number)
            self._active_next = base, number + 1
            if not may_be_rare(index, number):
                continue
            started = time.monotonic()
            try:
                found = read_row_group(self._files, Place(path, entry))
            except LogDamaged:  # it was cut off, or is reported when it is read
                continue
            section = encode_section(found.data, found.row_group)
            if section is not None and not self._active.add(base, entry, section):
                break
            if self._rested(started):
                break

    def _rested(self, started: float) -> bool:
        """Sleep, so that work since `started` is a share of the time; return whether to stop."""
        return self._stopping.wait((time.monotonic() - started) * (1 / self._share - 1))

    def _update_record(self, closed: list[Segment]) -> None:
        try:
            if self._record is not None:
                self._record.update(closed)
        except OSError as error:
            log.warning("record of last messages not written", error=str(error))
        except Exception:  # the thread must continue
            log.exception("record of last messages not written")

    def _index(self, segment: Segment, *, is_newest: bool) -> None:
        try:
            if self._merging is not None:
                segment = self._merging.merge(segment)
        except OSError as error:
            log.warning("row groups not merged", segment=segment.base_offset, error=str(error))
        except Exception:  # the thread must continue
            log.exception("row groups not merged", segment=segment.base_offset)
        if self._stopping.is_set():
            return
        self._seen.add(segment.base_offset)
        try:
            self.index(segment)
        except OSError as error:
            log.warning("row index not written", segment=segment.base_offset, error=str(error))
        except Exception:  # the thread must continue
            log.exception("row index not written", segment=segment.base_offset)
        if not is_newest:  # the end of the newest one is for readers that are a little behind
            with contextlib.suppress(OSError):
                self._files.forget_file(segment_path(self._catalog.folder, segment.base_offset))

    def index(self, segment: Segment) -> None:
        """Write the row index of a segment, unless it has one or needs none; raise OSError."""
        folder, base = self._catalog.folder, segment.base_offset
        path = segment_path(folder, base)
        try:
            summary = load_summary(self._files, folder, base)
            if not path.exists() or summary.segment_size != segment.size:
                return  # it is only in an object store, or reading rebuilds its index
            with contextlib.suppress(StaleRowIndex):
                load_row_index(self._files, folder, summary)
                return
            index, summary = load_index(self._files, folder, base)
        except StaleIndex:
            return
        if not is_useful(index):
            return
        started = time.monotonic()
        writer = RowIndexWriter(self._files, folder, summary)
        try:
            if self._fill(writer, index, path):
                writer.finish()
                log.debug("row index written", segment=base, seconds=time.monotonic() - started)
        finally:
            writer.abandon()
        if all(each.base_offset != base for each in self._catalog.segments()):
            self._files.remove(rows_path(folder, base))  # retention has removed the segment

    def _fill(self, writer: RowIndexWriter, index: Index, path: Path) -> bool:
        """Add the sections of a segment; return whether it is complete."""
        for number in range(len(index)):
            if not may_be_rare(index, number):
                continue
            started = time.monotonic()
            entry = index.entry(number)
            section = self._active.section(index.base_offset, entry)
            if section is not None:
                writer.add(section)
                continue
            try:
                found = read_row_group(self._files, Place(path, entry))
            except LogDamaged:
                continue
            if not found.row_group.checksums:
                return False  # format 1: a row group has one checksum
            section = encode_section(found.data, found.row_group)
            if section is not None:
                writer.add(section)
            if self._rested(started):
                return False
        return True
