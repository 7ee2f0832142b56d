"""How much of the log stays in the system's page cache.

Whoever follows the log reads what was just written, and finds it in memory. What lies further back
is read seldom, and fills memory that others could use; getting new memory for every page can also
cost more than writing it, in a virtual machine several times as much. So pages are let go once they
are on disk and far enough behind. Where acknowledgments do not wait for the disk, a thread of its
own sees to it that they get there.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from penstock.limits import LOG_CACHE_BYTES_MAX, MIB
from penstock.storage.arrow.files import Files
from penstock.storage.arrow.write.segment_writer import SegmentWriter

__all__ = ["PageCache"]

_STEP_BYTES: Final = 16 * MIB
"""What is written, or let go, at a time."""


class PageCache:
    """Follows one segment after the other. The log's writer thread calls it."""

    def __init__(self, files: Files, bytes_max: int = LOG_CACHE_BYTES_MAX) -> None:
        self._files = files
        self._bytes_max = bytes_max
        self._sealed: Path | None = None  # the segment before, of which the end is still kept
        self._thread: ThreadPoolExecutor | None = None
        self._flushing: Future[None] | None = None

    def wrote(self, segment: SegmentWriter) -> None:
        """Learn that a commit is in the segment.

        Raise OSError if what was written earlier did not get to the disk.
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
        """Learn that a segment is closed; its end is let go when the next is large enough."""
        self._sealed = segment.path

    def wait(self) -> None:
        """Wait until nobody else uses the segment; raise OSError if it did not get to the disk."""
        flushing, self._flushing = self._flushing, None
        if flushing is not None:
            flushing.result()

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.shutdown()
