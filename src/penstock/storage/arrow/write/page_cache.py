"""Limits how much of the log stays in the page cache.

Readers that follow the log find what was just written in memory. Older pages are read rarely and
take memory from others; allocating a page can also cost more than writing it, in a virtual machine
several times as much. So pages are dropped once they are on disk and far enough behind. Where
acknowledgments do not wait for the disk, a thread syncs the segment in the background.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from penstock.limits import LOG_CACHE_BYTES_MAX, MIB
from penstock.storage.arrow.write.segment_writer import SegmentWriter
from penstock.storage.files import Files

__all__ = ["PageCache"]

_STEP_BYTES: Final = 16 * MIB
"""Bytes that are synced or dropped at a time."""


class PageCache:
    """Follows the active segment. The writer thread calls it."""

    def __init__(self, files: Files, bytes_max: int = LOG_CACHE_BYTES_MAX) -> None:
        self._files = files
        self._bytes_max = bytes_max
        self._sealed: Path | None = None  # the previous segment, whose end is still cached
        self._thread: ThreadPoolExecutor | None = None
        self._flushing: Future[None] | None = None

    def wrote(self, segment: SegmentWriter) -> None:
        """Note a commit to the segment.

        Raise OSError if an earlier background sync failed.
        """
        if self._flushing is not None and self._flushing.done():
            self.wait()
        if segment.unsynced_bytes >= _STEP_BYTES and self._flushing is None:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-flush")
            self._flushing = self._thread.submit(segment.sync)
        if segment.forgettable_bytes(self._bytes_max) >= _STEP_BYTES:
            segment.forget(self._bytes_max)
        if self._sealed is not None and segment.size >= self._bytes_max:
            self._files.forget_file(self._sealed)
            self._sealed = None

    def sealed(self, segment: SegmentWriter) -> None:
        """Note a closed segment; its end is dropped when the next one is large enough."""
        self._sealed = segment.path

    def wait(self) -> None:
        """Wait for the background sync; raise OSError if it failed."""
        flushing, self._flushing = self._flushing, None
        if flushing is not None:
            flushing.result()

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.shutdown()
