"""Files whose changes stay in memory: runs recovery on a log without changing it."""

import os
from collections.abc import Iterable
from pathlib import Path

from penstock.storage.arrow.read.tiered_files import TieredFiles
from penstock.storage.files import Buffer

__all__ = ["Overlay"]


class Overlay(TieredFiles):
    """Reads real files; writes are visible only through this object.

    A file that was truncated or appended to has its new size, but not the appended bytes: recovery
    appends nothing but the end marker to a segment.
    """

    def __init__(self) -> None:
        self._whole: dict[Path, bytes] = {}
        self._sizes: dict[Path, int] = {}
        self._handles: dict[int, Path] = {}

    def changed(self, path: Path) -> bool:
        """Return whether a file was written to."""
        return path in self._whole or path in self._sizes

    # --- Changes, kept in memory

    def make_folder(self, folder: Path) -> None:
        """Do nothing."""

    def lock(self, folder: Path) -> int:
        """Raise AssertionError: a reader must not keep a broker from starting."""
        raise AssertionError(f"{folder} is not to be locked")

    def sync_folder(self, folder: Path) -> None:
        """Do nothing."""

    def create(self, path: Path) -> int:
        """Return a handle of a new file."""
        self._sizes[path] = 0
        return self.open(path)

    def open(self, path: Path) -> int:
        """Return a handle for appending."""
        handle = -1 - len(self._handles)
        self._handles[handle] = path
        return handle

    def append(self, handle: int, buffers: Iterable[Buffer]) -> None:
        """Add to the size of the file."""
        path = self._handles[handle]
        self._sizes[path] = self.size(path) + sum(len(each) for each in buffers)

    def write(self, handle: int, buffers: list[memoryview]) -> int:
        """Add to the size of the file."""
        self.append(handle, buffers)
        return sum(len(each) for each in buffers)

    def sync(self, handle: int) -> None:
        """Do nothing."""

    def close(self, handle: int) -> None:
        """Do nothing."""

    def truncate(self, path: Path, size: int) -> None:
        """Set the size of the file."""
        self._sizes[path] = size

    def rename(self, path: Path, new: Path) -> None:
        """Do nothing: only files written by `replace` are read again."""

    def remove(self, path: Path) -> None:
        """Forget the content that was written; the real file stays."""
        self._whole.pop(path, None)

    def replace(self, path: Path, data: Buffer) -> None:
        """Keep a whole file in memory."""
        self._whole[path] = bytes(data)

    # --- Reading

    def size(self, path: Path) -> int:
        """Return the size of a file, with the changes."""
        if path in self._whole:
            return len(self._whole[path])
        return self._sizes[path] if path in self._sizes else super().size(path)

    def read(self, path: Path, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position`: fewer only where the file ends."""
        if path in self._whole:
            return self._whole[path][position : position + size]
        return super().read(path, position, size)

    def read_into(self, path: Path, pieces: Iterable[tuple[int, memoryview]]) -> None:
        """Fill buffers with the bytes of a real file, from the positions given with them.

        Bytes behind its end are left as they are.
        """
        handle = self.open_to_read(path)
        try:
            for start, buffer in pieces:
                position, rest = start, buffer
                while len(rest) and (count := os.preadv(handle, [rest], position)):
                    position, rest = position + count, rest[count:]
        finally:
            os.close(handle)
