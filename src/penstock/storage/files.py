"""File operations. Every change to a disk goes through `Files`.

Tests replace `Files` to record operations and simulate a power cut at any point, or to inject
failures.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from penstock.errors import LogInUse

__all__ = ["TEMPORARY", "Buffer", "Files"]

TEMPORARY: Final = ".new"
"""Suffix of a file until it is complete; a file found with it was never finished."""

_BUFFERS_MAX: Final = 1024
"""Buffers of one `writev`: IOV_MAX of Linux."""

Buffer = bytes | bytearray | memoryview


class Files:
    """Real files. Methods raise OSError. A handle is a file descriptor, which its owner closes."""

    # --- Folders

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its parents; they are on disk when this returns."""
        missing = [each for each in (folder, *folder.parents) if not each.is_dir()]
        for each in reversed(missing):
            each.mkdir(exist_ok=True)
            self.sync_folder(each.parent)

    def lock(self, folder: Path) -> int:
        """Lock a folder for this process until the handle is closed; raise LogInUse."""
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
                raise LogInUse(str(folder)) from error
            raise
        return handle

    def sync_folder(self, folder: Path) -> None:
        """Sync the entries of a folder: files created, renamed and removed."""
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder, in order; none if there is no such folder."""
        try:
            return sorted(os.listdir(folder))  # noqa: PTH208 - thousands of names, no use for paths
        except FileNotFoundError:
            return []

    # --- Appending

    def create(self, path: Path) -> int:
        """Create an empty file for appending; it must not exist."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        return os.open(path, flags, 0o600)

    def open(self, path: Path) -> int:
        """Open an existing file for appending."""
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def append(self, handle: int, buffers: Iterable[Buffer]) -> None:
        """Append all buffers. After a failure a part of them may be in the file."""
        waiting = [memoryview(each).cast("B") for each in buffers if len(each)]
        first = 0
        while first < len(waiting):
            written = self.write(handle, waiting[first : first + _BUFFERS_MAX])
            while first < len(waiting) and written >= len(waiting[first]):
                written -= len(waiting[first])
                first += 1
            if written:
                waiting[first] = waiting[first][written:]

    def write(self, handle: int, buffers: list[memoryview]) -> int:
        """Write as much as one system call takes; return the number of bytes."""
        return os.writev(handle, buffers)

    def sync(self, handle: int) -> None:
        """Sync a file to disk. After a failure it is unknown what is on disk."""
        os.fdatasync(handle)

    def forget(self, handle: int, position: int, size: int) -> None:
        """Drop bytes of a file from the page cache.

        Only pages that are on disk are dropped; reading them again is slower.
        """
        os.posix_fadvise(handle, position, size, os.POSIX_FADV_DONTNEED)

    def forget_file(self, path: Path) -> None:
        """Drop a whole file from the page cache."""
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)

    def close(self, handle: int) -> None:
        """Close a handle."""
        os.close(handle)

    # --- Whole files

    def truncate(self, path: Path, size: int) -> None:
        """Truncate a file to `size` bytes, and sync it."""
        handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(handle, size)
            os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, path: Path, new: Path) -> None:
        """Rename a file, replacing a file of that name."""
        path.rename(new)

    def remove(self, path: Path) -> None:
        """Remove a file, if it exists."""
        path.unlink(missing_ok=True)

    def replace(self, path: Path, data: Buffer) -> None:
        """Replace a file atomically: the disk has the old content or the new one, never a part."""
        temporary = path.with_name(path.name + TEMPORARY)
        self.remove(temporary)
        handle = self.create(temporary)
        try:
            try:
                self.append(handle, [data])
                self.sync(handle)
            finally:
                self.close(handle)
        except OSError:
            with contextlib.suppress(OSError):
                self.remove(temporary)
            raise
        self.rename(temporary, path)
        self.sync_folder(path.parent)

    # --- Reading

    def free_bytes(self, folder: Path) -> int:
        """Return the free bytes of the file system of a folder."""
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize

    def size(self, path: Path) -> int:
        """Return the size of a file in bytes."""
        return path.stat().st_size

    def open_to_read(self, path: Path) -> int:
        """Open an existing file for reading."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, path: Path, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position`: fewer only where the file ends."""
        handle = self.open_to_read(path)
        try:
            return self.read_at(handle, position, size)
        finally:
            os.close(handle)

    def read_at(self, handle: int, position: int, size: int) -> bytes:
        """Return up to `size` bytes of a file that is open to be read, as `read` does."""
        data = os.pread(handle, size, position)
        while 0 < len(data) < size:
            more = os.pread(handle, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data
