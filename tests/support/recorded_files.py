"""Files that remember what was done to them and fail where a test says; and real ones that fail."""

import dataclasses
import errno
import itertools
import os
from pathlib import Path
from typing import NamedTuple

from penstock.errors import LogInUse
from penstock.storage.files import Files


class Operation(NamedTuple):
    """One change: to the bytes of file `inode`, or to the names in `folder`."""

    kind: str
    inode: int = 0
    position: int = 0
    data: bytes = b""
    path: Path = Path()
    new: Path = Path()


State = dict[Path, bytes]


class Killed(BaseException):
    """The process has ended: nothing more is done, whoever asks."""


@dataclasses.dataclass(slots=True)
class Fault:
    """From the `after`-th such operation on, as many as `times` fail."""

    kind: str
    suffix: str
    after: int
    times: int
    short: int


class RecordedFiles(Files):
    """Files in memory; every change is in `operations`, in order.

    They are as a process sees them, which goes on seeing them after it was killed at the operation
    `stop_at`; `power_cut.Disk` says what of it outlives the machine. The operation `fail_at` fails,
    whatever it is.
    """

    def __init__(self, state: State | None = None) -> None:
        self.operations: list[Operation] = []
        self.initial: State = dict(state or {})
        self.stop_at: int | None = None
        self.fail_at: int | None = None
        self.failures = 0
        self._faults: list[Fault] = []
        self._names: dict[str, int] = {}
        self._bytes: dict[int, bytes | bytearray] = {}
        self._handles: dict[int, int] = {}
        self._paths: dict[int, Path] = {}
        self._numbers = itertools.count(1)
        self._locked: dict[Path, int] = {}
        self.initial_inodes: dict[int, Path] = {}
        for path, data in self.initial.items():
            inode = next(self._numbers)
            self._names[str(path)] = inode
            self._bytes[inode] = data
            self.initial_inodes[inode] = path

    @property
    def state(self) -> State:
        """All files as a process sees them."""
        return {Path(path): bytes(self._bytes[inode]) for path, inode in self._names.items()}

    def fail(
        self, kind: str, suffix: str = "", *, after: int = 0, times: int = 1, short: int = 0
    ) -> None:
        """Have operations on files whose name ends in `suffix` fail.

        A write takes `short` bytes first. A "truncate" that fails does nothing; if it is its "sync"
        that fails, nobody knows.
        """
        self._faults.append(Fault(kind, suffix, after, times, short))

    def mend(self) -> None:
        """Let everything work again."""
        self._faults.clear()

    def _meet(self, kind: str, path: Path) -> Fault | None:
        """Return the fault that an operation meets; raise Killed if there is nobody to do it."""
        if self.stop_at is not None and len(self.operations) >= self.stop_at:
            raise Killed
        if len(self.operations) == self.fail_at:
            self.fail_at = None
            self.failures += 1
            return Fault(kind, "", 0, 0, 0)
        for fault in self._faults:
            if fault.kind == kind and path.name.endswith(fault.suffix):
                if fault.after:
                    fault.after -= 1
                elif fault.times:
                    fault.times -= 1
                    self.failures += 1
                    return fault
        return None

    def _try(self, kind: str, path: Path) -> None:
        if self._meet(kind, path) is not None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def make_folder(self, folder: Path) -> None:
        pass

    def lock(self, folder: Path) -> int:
        if folder in self._locked:
            raise LogInUse(str(folder))
        handle = self._locked[folder] = next(self._numbers)
        self._handles[handle] = 0
        return handle

    def sync_folder(self, folder: Path) -> None:
        self._try("sync folder", folder)
        self.operations.append(Operation("sync folder", path=folder))

    def names(self, folder: Path) -> list[str]:
        start = f"{folder}/"
        names = (path.removeprefix(start) for path in self._names if path.startswith(start))
        return sorted(name for name in names if "/" not in name)

    def create(self, path: Path) -> int:
        self._try("create", path)
        if str(path) in self._names:
            raise FileExistsError(errno.EEXIST, "file exists", str(path))
        inode = next(self._numbers)
        self._names[str(path)] = inode
        self._bytes[inode] = bytearray()
        self.operations.append(Operation("create", inode, path=path))
        return self._handle(path, inode)

    def open(self, path: Path) -> int:
        return self._handle(path, self._inode(path))

    def write(self, handle: int, buffers: list[memoryview]) -> int:
        inode = self._handles[handle]
        data = b"".join(buffers)
        fault = self._meet("write", self._paths[handle])
        if fault is not None:
            if not fault.short:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            data, fault.short, fault.times = data[: fault.short], 0, fault.times + 1
        content = self._changeable(inode)
        self.operations.append(Operation("write", inode, len(content), data))
        content += data
        return len(data)

    def forget(self, handle: int, position: int, size: int) -> None:
        """What the system keeps in memory makes no difference to what is on the disk."""

    def forget_file(self, path: Path) -> None:
        """See forget."""

    def sync(self, handle: int) -> None:
        self._sync(self._handles[handle], self._paths[handle])

    def _sync(self, inode: int, path: Path) -> None:
        if self._meet("sync", path) is not None:
            self.operations.append(Operation("sync failed", inode))
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.operations.append(Operation("sync", inode))

    def close(self, handle: int) -> None:
        del self._handles[handle]
        self._paths.pop(handle, None)
        self._locked = {path: each for path, each in self._locked.items() if each != handle}

    def truncate(self, path: Path, size: int) -> None:
        self._try("truncate", path)
        inode = self._inode(path)
        self.operations.append(Operation("truncate", inode, size))
        del self._changeable(inode)[size:]
        self._sync(inode, path)

    def rename(self, path: Path, new: Path) -> None:
        self._try("rename", new)
        inode = self._inode(path)
        self.operations.append(Operation("rename", inode, path=path, new=new))
        del self._names[str(path)]
        self._names[str(new)] = inode

    def remove(self, path: Path) -> None:
        self._try("remove", path)
        if str(path) in self._names:
            self.operations.append(Operation("remove", self._names.pop(str(path)), path=path))

    def free_bytes(self, folder: Path) -> int:  # noqa: ARG002
        return 1 << 40

    def size(self, path: Path) -> int:
        return len(self._bytes[self._inode(path)])

    def read(self, path: Path, position: int, size: int) -> bytes:
        return bytes(self._bytes[self._inode(path)][position : position + size])

    def _changeable(self, inode: int) -> bytearray:
        data = self._bytes[inode]
        if not isinstance(data, bytearray):
            data = self._bytes[inode] = bytearray(data)
        return data

    def _inode(self, path: Path) -> int:
        try:
            return self._names[str(path)]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path)) from None

    def _handle(self, path: Path, inode: int) -> int:
        handle = next(self._numbers)
        self._handles[handle] = inode
        self._paths[handle] = path
        return handle


class FailingFiles(Files):
    """Real files; writes and syncs fail from the `n`-th on until `mend`, as `failure` says.

    A write that fails for lack of room first takes `short` bytes, as systems do.
    """

    def __init__(
        self,
        *,
        write: int | None = None,
        sync: int | None = None,
        failure: int = errno.ENOSPC,
        short: int = 0,
        write_bytes_max: int | None = None,
    ) -> None:
        self._writes_left = write
        self._syncs_left = sync
        self._failure = failure
        self._short = short
        self._write_bytes_max = write_bytes_max
        self.failures = 0

    def mend(self) -> None:
        """Let everything work again."""
        self._writes_left = self._syncs_left = None

    def write(self, handle: int, buffers: list[memoryview]) -> int:
        if self._writes_left is not None:
            self._writes_left -= 1
            if self._writes_left < 0:
                if self._short:
                    short, self._short = self._short, 0
                    return os.write(handle, b"".join(buffers)[:short])
                self._fail()
        if self._write_bytes_max is not None:
            return os.write(handle, b"".join(buffers)[: self._write_bytes_max])
        return super().write(handle, buffers)

    def sync(self, handle: int) -> None:
        if self._syncs_left is not None:
            self._syncs_left -= 1
            if self._syncs_left < 0:
                self._fail()
        super().sync(handle)

    def _fail(self) -> None:
        self.failures += 1
        raise OSError(self._failure, os.strerror(self._failure))
