"""The file operations of the log. All that changes a disk goes through `Files`.

Tests bring a `Files` that records what was done, so that a power cut can be played at any point, or
one that fails.
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
"""What the name of a file ends in until it is whole; one that is found was never finished."""

_BUFFERS_MAX: Final = 1024
"""Buffers of one `writev`: IOV_MAX of Linux."""

Buffer = bytes | bytearray | memoryview


class Files:
    """Real files. What fails raises OSError; a handle is a number, and its owner closes it."""

    # --- Folders

    def make_folder(self, folder: Path) -> None:
        """Make a folder and those above it; they are on disk when it returns."""
        missing = [each for each in (folder, *folder.parents) if not each.is_dir()]
        for each in reversed(missing):
            each.mkdir(exist_ok=True)
            self.sync_folder(each.parent)

    def lock(self, folder: Path) -> int:
        """Take a folder for this process alone until the handle is closed; raise LogInUse."""
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
        """Have the names in a folder on disk: what was created, renamed and removed."""
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

    # --- Files that grow

    def create(self, path: Path) -> int:
        """Make an empty file that is not there yet, to append to."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        return os.open(path, flags, 0o640)

    def open(self, path: Path) -> int:
        """Open a file that is there, to append to."""
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def append(self, handle: int, buffers: Iterable[Buffer]) -> None:
        """Write all buffers behind what is there. When it fails, some of it may stand there."""
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
        """Write as much as the system takes at once; return how many bytes it took."""
        return os.writev(handle, buffers)

    def sync(self, handle: int) -> None:
        """Have all that was written on disk. After a failure nothing says what is there."""
        os.fdatasync(handle)

    def forget(self, handle: int, position: int, size: int) -> None:
        """Let the system have the memory back in which it keeps these bytes of a file.

        It has only what is on disk; reading them again is slower, that is all.
        """
        os.posix_fadvise(handle, position, size, os.POSIX_FADV_DONTNEED)

    def forget_file(self, path: Path) -> None:
        """Let the system have back all the memory in which it keeps a file."""
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)

    def close(self, handle: int) -> None:
        """Give a handle back."""
        os.close(handle)

    # --- Whole files

    def truncate(self, path: Path, size: int) -> None:
        """Cut a file behind its first `size` bytes, and have that on disk."""
        handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(handle, size)
            os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, path: Path, new: Path) -> None:
        """Give a file another name, in place of what had that name."""
        path.rename(new)

    def remove(self, path: Path) -> None:
        """Take a file away, if it is there."""
        path.unlink(missing_ok=True)

    def replace(self, path: Path, data: Buffer) -> None:
        """Put a whole file in place: on disk there is the old one or the new one, never a part."""
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
        """Return how much room there is where a folder is."""
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize

    def size(self, path: Path) -> int:
        """Return the size of a file in bytes."""
        return path.stat().st_size

    def read(self, path: Path, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position`: fewer only where the file ends."""
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(handle, size, position)
            while 0 < len(data) < size:
                more = os.pread(handle, size - len(data), position + len(data))
                if not more:
                    break
                data += more
            return data
        finally:
            os.close(handle)
