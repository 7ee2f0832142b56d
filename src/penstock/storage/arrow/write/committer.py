"""The writer thread of a log on disk: writes commits, syncs them and reports the outcome."""

import contextlib
import errno
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from typing import Protocol as Port

import structlog

from penstock.limits import LOG_CACHE_BYTES_MAX, LOG_FREE_BYTES_MIN, SEGMENT_BYTES_MAX
from penstock.model import Durability
from penstock.storage.arrow.format.file_names import segment_path
from penstock.storage.arrow.format.segment import Columns
from penstock.storage.arrow.write.page_cache import PageCache
from penstock.storage.arrow.write.segment_writer import Mark, SegmentWriter
from penstock.storage.arrow.write.topic_journal import TopicJournal
from penstock.storage.arrow.write.watermark import Watermark
from penstock.storage.commits import Commit, Outcome, SyncHistogram, WriterThread
from penstock.storage.files import Files

__all__ = ["Committer", "Tail"]

log = structlog.get_logger("penstock.log")


class Tail(NamedTuple):
    """The end of a log, for the head of the next segment."""

    end_offset: int
    last_crc: int


class SegmentObserver(Port):
    """Receives changes of the list of segments, in the writer thread."""

    def began(self, segment: SegmentWriter) -> None:
        """Note a new active segment."""

    def sealed(self, segment: SegmentWriter) -> None:
        """Note that a segment is closed."""

    def gave_up(self, segment: SegmentWriter) -> None:
        """Note that a segment was abandoned after its last good row group."""


class Committer:
    """Owns the active segment, and the thread that writes it.

    `done` is called in that thread with each outcome, in the order of the commits. When a write or
    a sync fails, the segment ends there, and all waiting commits fail: nothing is written until
    `revive` has begun a new segment.
    """

    def __init__(
        self,
        files: Files,
        folder: Path,
        *,
        log_id: int,
        partition: int,
        tail: Tail,
        observer: SegmentObserver,
        journal: TopicJournal,
        done: Callable[[Outcome], None],
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        cache_bytes_max: int = LOG_CACHE_BYTES_MAX,
        watermark: Watermark | None = None,
        rolled: Callable[[], None] | None = None,
    ) -> None:
        """Call `rolled` in the thread after each commit that sealed a segment."""
        self._files = files
        self._folder = folder
        self._log_id = log_id
        self._partition = partition
        self._tail = tail
        self._observer = observer
        self._journal = journal
        self._done = done
        self._watermark = watermark
        self._rolled = rolled
        self._cache = PageCache(files, cache_bytes_max)
        self._segment_bytes_max = segment_bytes_max
        self._segment: SegmentWriter | None = None
        self._synced = tail.end_offset
        self._broken: OSError | None = None
        self.syncs = SyncHistogram()
        self.commits = 0
        self._unfinished: Path | None = None
        """A file that a failed attempt to begin a segment may have left."""
        self._thread = WriterThread("penstock-log")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, commit: Commit) -> None:
        """See storage.commits."""
        self._thread.later(lambda: self.commit(commit))

    def later(self, work: Callable[[], None]) -> None:
        """See storage.commits."""
        self._thread.later(work)

    @property
    def problem(self) -> OSError | None:
        """See storage.commits."""
        return self._broken

    def stop(self) -> None:
        """Finish all work, end the thread and seal the segment."""
        self._thread.finish()
        try:
            self.seal()
        finally:
            self._cache.close()

    # --- In the thread ----------------------------------------------------------------------------

    def commit(self, commit: Commit) -> None:
        """Write a commit and report its outcome."""
        error = self._broken
        before = self._segment
        if error is None:
            try:
                self._roll()
                self._write(commit)
            except OSError as failure:
                error = self._broken = failure
            except Exception as failure:  # clients must not wait forever
                log.exception("log writer failed")
                error = self._broken = OSError(errno.EIO, repr(failure))
        durable = error is None and commit.durability is Durability.FSYNC
        self.commits += error is None
        if error is None and commit.blocks and self._watermark is not None:
            self._watermark.advance(self._tail.end_offset)
        self._done(Outcome(commit, self._tail.end_offset, durable, error))
        has_rolled = error is None and before is not None and self._segment is not before
        if has_rolled and self._rolled is not None:
            self._rolled()

    def _roll(self) -> None:
        """Seal a full segment: between commits, so that each commit is in one file."""
        segment = self._segment
        if segment is not None and len(segment.index) and segment.size >= self._segment_bytes_max:
            self.seal()

    def roll_older(self, timestamp_us: int) -> None:
        """Seal the segment if its first message is older than a time; raise OSError.

        What was committed stays readable if this fails.
        """
        segment = self._segment
        if segment is None or self._broken is not None or not len(segment.index):
            return
        first_us = segment.index.first_us
        if first_us is not None and first_us < timestamp_us:
            self.seal()

    def _write(self, commit: Commit) -> None:
        wants_sync = commit.durability is Durability.FSYNC
        mark = self._segment.mark if self._segment is not None else None
        try:
            self._journal.write(sync=wants_sync)
            if not commit.blocks:
                return
            segment = self._segment or self.begin(commit.offsets[0])
            for offset, block in zip(commit.offsets, commit.blocks, strict=True):
                columns = block.finish(offset, log_id=self._log_id, partition=self._partition)
                if isinstance(columns, tuple):  # the kernel's Block does not know the class
                    columns = Columns(*columns)
                segment.append(columns, synced=self._synced)
            if wants_sync:
                self._cache.wait()
                started = time.perf_counter()
                segment.sync()
                self.syncs.add(time.perf_counter() - started)
            self._cache.wrote(segment)
        except BaseException:
            self._give_up(mark)
            raise
        self._tail = Tail(segment.end_offset, segment.last_crc)
        if wants_sync:
            self._synced = segment.end_offset

    def begin(self, offset: int) -> SegmentWriter:
        """Create a segment that starts at `offset`."""
        if self._unfinished is not None:
            self._files.remove(self._unfinished)
        self._unfinished = segment_path(self._folder, offset)
        segment = self._segment = SegmentWriter(
            self._files,
            self._folder,
            log_id=self._log_id,
            partition=self._partition,
            base_offset=offset,
            previous_end=self._tail.end_offset,
            previous_crc=self._tail.last_crc,
        )
        self._unfinished = None
        self._observer.began(segment)
        return segment

    def seal(self) -> None:
        """Close the active segment, if there is one; the next commit creates another.

        A segment without a row group is removed: the next one gets its name.
        """
        segment = self._segment
        if segment is None:
            return
        mark = segment.mark
        if not mark.row_groups:
            self._give_up(None)
            return
        try:
            self._cache.wait()
            segment.seal()
        except BaseException:
            self._give_up(mark)
            raise
        self._segment = None
        self._synced = segment.end_offset
        self._observer.sealed(segment)
        self._cache.sealed(segment)

    def _give_up(self, mark: Mark | None) -> None:
        """Abandon the segment that failed; return it to `mark`."""
        segment, self._segment = self._segment, None
        with contextlib.suppress(OSError):  # one failure is enough
            self._cache.wait()
        if segment is not None:
            segment.abandon(mark)
            self._observer.gave_up(segment)

    def revive(self, next_offset: int) -> bool:
        """See storage.commits: create a new segment."""
        if self._broken is None:
            return True
        try:
            if self._files.free_bytes(self._folder) < LOG_FREE_BYTES_MIN:
                return False
            self._journal.write(sync=True)
            self.begin(next_offset)
        except OSError as error:
            self._broken = error
            return False
        self._broken = None
        return True
