"""A cache of the indexes of closed segments; the least recently used are dropped."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from weakref import WeakValueDictionary

from penstock.limits import INDEX_CACHE_BYTES_MAX
from penstock.storage.arrow.format.file_names import segment_path
from penstock.storage.arrow.format.index import Index
from penstock.storage.arrow.format.index_file import StaleIndex, load_index
from penstock.storage.arrow.recover.recovery import rebuild_index
from penstock.storage.files import Files

__all__ = ["IndexCache"]


class _Loading:
    """Held while the index of a segment is loaded."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class IndexCache:
    """Indexes by the base offset of their segments. Any thread may call."""

    def __init__(
        self, files: Files, folder: Path, *, bytes_max: int = INDEX_CACHE_BYTES_MAX
    ) -> None:
        self._files = files
        self._folder = folder
        self._bytes_max = bytes_max
        self._bytes = 0
        self._indexes: OrderedDict[int, tuple[Index, int]] = OrderedDict()
        self._lock = threading.Lock()
        # A segment and its index are replaced one after the other: its index is not loaded
        # meanwhile. Loading one from an object store may be slow: other segments do not wait.
        self._loading: WeakValueDictionary[int, _Loading] = WeakValueDictionary()
        self.rebuilt = 0
        """Indexes that were missing or stale and were rebuilt."""

    @property
    def memory_bytes(self) -> int:
        """Approximate memory of all indexes, in bytes."""
        return self._bytes

    def get(self, base_offset: int, *, end_offset: int) -> Index:
        """Return the index of a closed segment that ends at `end_offset`.

        It is read from its file, or rebuilt from the segment; raise OSError.
        """
        found = self._cached(base_offset)
        if found is not None:
            return found
        with self._loading_of(base_offset).lock:
            found = self._cached(base_offset)
            if found is None:
                found, is_whole = self._load(base_offset, end_offset)
                if is_whole:  # or later reads would miss what the disk did not return now
                    self.put(found)
        return found

    def _cached(self, base_offset: int) -> Index | None:
        with self._lock:
            found = self._indexes.get(base_offset)
            if found is None:
                return None
            self._indexes.move_to_end(base_offset)
            return found[0]

    def _loading_of(self, base_offset: int) -> "_Loading":
        with self._lock:
            return self._loading.setdefault(base_offset, _Loading())

    def exchange(self, index: Index, replace: Callable[[], None]) -> None:
        """Call `replace`, which replaces a segment and its index file; then cache the new index.

        This index is not loaded meanwhile. If `replace` raises, the cache does not change.
        """
        with self._loading_of(index.base_offset).lock:
            replace()
            self.put(index)

    def put(self, index: Index) -> None:
        """Add an index to the cache."""
        size = index.memory_bytes
        with self._lock:
            self._drop(index.base_offset)
            self._indexes[index.base_offset] = index, size
            self._bytes += size
            while self._bytes > self._bytes_max and len(self._indexes) > 1:
                self._drop(next(iter(self._indexes)))

    def drop(self, base_offset: int) -> None:
        """Drop the index of a removed segment."""
        with self._lock:
            self._drop(base_offset)

    def _drop(self, base_offset: int) -> None:
        _, size = self._indexes.pop(base_offset, (None, 0))
        self._bytes -= size

    def _load(self, base_offset: int, end_offset: int) -> tuple[Index, bool]:
        size = self._files.size(segment_path(self._folder, base_offset))
        try:
            index, summary = load_index(self._files, self._folder, base_offset)
            if summary.segment_size == size and summary.end_offset == end_offset:
                return index, True
        except StaleIndex:
            pass
        self.rebuilt += 1
        return rebuild_index(self._files, self._folder, base_offset, end_offset=end_offset)
