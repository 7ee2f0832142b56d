"""Files that fail or are slow where a test says, and a broker in this process that has them."""

import asyncio
import dataclasses
import errno
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from penstock.gateway.options import GatewayOptions
from penstock.server.server import Server
from penstock.storage.arrow.log import ArrowLog
from penstock.storage.files import Buffer, Files
from penstock.storage.options import LogOptions
from tests.support.live import LiveBroker


@dataclasses.dataclass(slots=True)
class Fault:
    """From the `after`-th such operation on, as many as `times` fail, or all until it is mended."""

    operation: str
    suffix: str = ""
    error: int = errno.EIO
    after: int = 0
    times: int | None = None
    short: int = 0


class FaultyFiles(Files):
    """Real files. `operations` is what was done to them: (operation, name)."""

    def __init__(self, *, sync_seconds: float = 0.0, write_bytes_max: int | None = None) -> None:
        self.sync_seconds = sync_seconds
        self.write_bytes_max = write_bytes_max
        self.operations: list[tuple[str, str]] = []
        self.failed: list[tuple[str, str]] = []
        self.room: int | None = None  # what the disk has left, None for what it really has
        self.free_asked = 0
        self.read_bytes: Counter[str] = Counter()
        self._faults: list[Fault] = []
        self._names: dict[int, str] = {}
        self._lock = threading.Lock()

    def fail(self, operation: str, suffix: str = "", **more: Any) -> None:
        """Have an operation on files whose name ends in `suffix` fail."""
        with self._lock:
            self._faults.append(Fault(operation, suffix, **more))

    def mend(self) -> None:
        """Let everything work again."""
        with self._lock:
            self._faults.clear()
        self.room = None

    def _meet(self, operation: str, name: str) -> Fault | None:
        """Take note of an operation; return the fault that it meets."""
        with self._lock:
            self.operations.append((operation, name))
            for fault in self._faults:
                if fault.operation == operation and name.endswith(fault.suffix):
                    if fault.after:
                        fault.after -= 1
                    elif fault.times != 0:
                        fault.times = None if fault.times is None else fault.times - 1
                        self.failed.append((operation, name))
                        return fault
        return None

    def _try(self, operation: str, name: str) -> None:
        fault = self._meet(operation, name)
        if fault is not None:
            raise OSError(fault.error, os.strerror(fault.error))

    # --- Files

    def create(self, path: Path) -> int:
        self._try("create", path.name)
        handle = super().create(path)
        self._names[handle] = path.name
        return handle

    def open(self, path: Path) -> int:
        handle = super().open(path)
        self._names[handle] = path.name
        return handle

    def write(self, handle: int, buffers: list[memoryview]) -> int:
        fault = self._meet("write", self._names[handle])
        if fault is not None:
            if fault.short:
                short, fault.short = fault.short, 0
                return os.write(handle, b"".join(buffers)[:short])
            raise OSError(fault.error, os.strerror(fault.error))
        if self.write_bytes_max is not None:
            return os.write(handle, b"".join(buffers)[: self.write_bytes_max])
        return super().write(handle, buffers)

    def append(self, handle: int, buffers: Iterable[Buffer]) -> None:
        data: list[Buffer] = list(buffers)
        if self.room is not None:
            size = sum(map(len, data))
            if size > self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.room -= size
        super().append(handle, data)

    def sync(self, handle: int) -> None:
        if self.sync_seconds:
            time.sleep(self.sync_seconds)  # the disk is slow
        self._try("sync", self._names[handle])
        super().sync(handle)

    def sync_folder(self, folder: Path) -> None:
        self._try("sync folder", folder.name)
        super().sync_folder(folder)

    def truncate(self, path: Path, size: int) -> None:
        self._try("truncate", path.name)
        super().truncate(path, size)

    def rename(self, path: Path, new: Path) -> None:
        self._try("rename", new.name)
        super().rename(path, new)

    def remove(self, path: Path) -> None:
        self._try("remove", path.name)
        super().remove(path)

    def read(self, path: Path, position: int, size: int) -> bytes:
        self._try("read", path.name)
        data = super().read(path, position, size)
        self.read_bytes[path.name] += len(data)
        return data

    def free_bytes(self, folder: Path) -> int:
        self.free_asked += 1
        return super().free_bytes(folder) if self.room is None else self.room


class KeepingBroker(LiveBroker):
    """A live broker whose log is on such files. What stops it badly is raised."""

    def __init__(
        self,
        data: Path,
        files: Files | None = None,
        log_options: LogOptions | None = None,
        *,
        gateway: GatewayOptions | None = None,
    ) -> None:
        super().__init__(data=data, log_options=log_options, options=gateway)
        self.files = files or FaultyFiles()
        self.fault: BaseException | None = None

    @property
    def log(self) -> ArrowLog:
        log = self.server.broker.log
        assert isinstance(log, ArrowLog)
        return log

    @property
    def refuses(self) -> bool:
        """Whether messages are refused at the moment."""
        return self.log.problem is not None

    def _run(self) -> None:
        try:
            super()._run()
        except BaseException as fault:  # noqa: BLE001 - told to whoever waits
            self.fault = fault

    def __exit__(self, *what: object) -> None:
        super().__exit__(*what)
        if self.fault is not None and what[1] is None:
            raise self.fault

    async def _serve(self) -> None:
        assert self._data is not None
        self._loop = asyncio.get_running_loop()
        self._done = asyncio.Event()
        self.server = Server(storage=ArrowLog(self._data, self._log_options, files=self.files))
        await self.server.start()
        self.address = await self.server.listen_tcp(options=self.options)
        self._ready.set()
        await self._done.wait()
        await self.server.stop(seconds_max=5)
