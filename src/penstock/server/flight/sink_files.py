"""Files of sinks: staged rows, and the state of each writer.

DATA/sinks/<writer>/writer.json                   the last published epoch
                    <epoch>-<partition>.arrows    staged rows of a task: an Arrow IPC stream, then
                                                  its CRC-32 and "PSS1"
                    <epoch>-<partition>-<token>.arrows    staged rows of one attempt at the task
                    *.new                         unfinished files
"""

import contextlib
import io
import re
import struct
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa

from penstock.flight.errors import SinkDamaged, StagedRowsDamaged, StagingFull
from penstock.limits import BLOCK_BYTES_MAX, BLOCK_ROWS_MAX, SINK_STAGED_BYTES_MAX
from penstock.storage.files import TEMPORARY, Buffer, Files
from penstock.storage.rows import check_rows
from penstock.storage.schema import ROWS_SCHEMA

__all__ = ["Publishing", "SinkFiles", "Task", "WriterState"]

_STATE: Final = "writer.json"
_STAGED: Final = re.compile(r"(\d+)-(\d+)(?:-([A-Za-z0-9]+))?\.arrows")
_TRAILER: Final = struct.Struct("<I4s")
"""CRC-32 of the Arrow IPC stream, and a mark. Arrow takes a stream that is cut between messages."""
_END: Final = b"\xff\xff\xff\xff\0\0\0\0"
"""The last bytes of an Arrow IPC stream, and of files that Penstock 0.1 staged."""
_MARK: Final = b"PSS1"
_READ_BYTES: Final = 1024 * 1024
_STATE_BYTES_MAX: Final = 16 * 1024 * 1024


class Publishing(msgspec.Struct, frozen=True):
    """An epoch that is being published; its rows in the log are at `start` or later.

    `source` names its staged rows for other nodes.
    """

    epoch: int
    partitions: list[int]
    start: int
    final: bool = False
    tokens: list[str] = []
    source: str = ""

    @property
    def tasks(self) -> "list[Task]":
        """The tasks of the epoch, in the order of publication."""
        tokens = self.tokens or [""] * len(self.partitions)
        return [Task(self.epoch, *each) for each in zip(self.partitions, tokens, strict=True)]


class WriterState(msgspec.Struct, frozen=True):
    """State of a writer: the last published epoch, and its number of rows."""

    writer: str
    owner: str
    epoch: int = -1
    rows: int = 0
    final: bool = False
    publishing: Publishing | None = None


class Task(NamedTuple):
    """A part of an epoch; `token` tells attempts at it apart."""

    epoch: int
    partition: int
    token: str = ""


class SinkFiles:
    """The folder of all sinks. The caller ensures one call per writer at a time.

    Methods raise OSError.
    """

    def __init__(self, data: Path, *, files: Files | None = None) -> None:
        self._folder = data / "sinks"
        self._files = files or Files()
        self._writers: set[str] | None = None  # read once: a call for each new writer needs them
        self._owners: dict[str, str] = {}  # of writers whose state was read or stored

    def writers(self) -> frozenset[str]:
        """Return all writers that have a folder."""
        if self._writers is None:
            names = self._files.names(self._folder)
            self._writers = {name for name in names if (self._folder / name).is_dir()}
        return frozenset(self._writers)

    @property
    def writer_count(self) -> int:
        """How many writers have a folder."""
        return len(self.writers() if self._writers is None else self._writers)

    def writer_count_of(self, owner: str) -> int:
        """Return how many writers a principal has; those with an unreadable state for none."""
        for writer in self.writers() - self._owners.keys():
            self._owners[writer] = ""
            with contextlib.suppress(OSError, SinkDamaged):
                self.load(writer)
        return list(self._owners.values()).count(owner)

    # --- State of writers

    def load(self, writer: str) -> WriterState | None:
        """Return the state of a writer, None if it has none; raise SinkDamaged."""
        path = self._folder / writer / _STATE
        try:
            state = msgspec.json.decode(
                self._files.read(path, 0, _STATE_BYTES_MAX), type=WriterState
            )
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise SinkDamaged(str(path), str(error)) from error
        self._owners[writer] = state.owner
        return state

    def save(self, state: WriterState) -> None:
        """Store the state of a writer; it is on disk when this returns."""
        folder = self._folder / state.writer
        self._files.make_folder(folder)
        if self._writers is not None:
            self._writers.add(state.writer)
        self._owners[state.writer] = state.owner
        self._files.replace(folder / _STATE, msgspec.json.encode(state))

    def forget(self, writer: str) -> None:
        """Remove all files of a writer."""
        folder = self._folder / writer
        for name in self._files.names(folder):
            self._files.remove(folder / name)
        folder.rmdir()
        if self._writers is not None:
            self._writers.discard(writer)
        self._owners.pop(writer, None)
        self._files.sync_folder(self._folder)

    def age_seconds(self, writer: str) -> float:
        """Return the age of the writer's state."""
        return time.time() - (self._folder / writer / _STATE).stat().st_mtime

    # --- Staged rows

    def write(self, writer: str, batches: Iterable[pa.RecordBatch]) -> tuple[Path, int]:
        """Write rows of ROWS_SCHEMA to a temporary file and sync it; return path and row count.

        `keep` makes it the rows of a task. Raise StagingFull.
        """
        folder = self._folder / writer
        taken = sum(map(self._size, (folder / name for name in self._files.names(folder))))
        path = folder / f"{uuid.uuid4().hex}{TEMPORARY}"
        rows = 0
        try:
            handle = self._files.create(path)
            try:
                out = _Checksummed(self._files, handle)
                with (
                    pa.PythonFile(out, "w") as file,
                    pa.ipc.new_stream(file, ROWS_SCHEMA) as stream,
                ):
                    for batch in _together(batches):
                        taken += batch.nbytes
                        _check_room(writer, taken)
                        stream.write_batch(batch)
                        rows += len(batch)
                self._files.append(handle, [_TRAILER.pack(out.crc, _MARK)])
                self._files.sync(handle)
            finally:
                self._files.close(handle)
        except BaseException:
            self._files.remove(path)
            raise
        return path, rows

    def keep(self, writer: str, task: Task, path: Path) -> None:
        """Make a written file the rows of a task, replacing earlier ones."""
        self._files.rename(path, self._path(writer, task))
        self._files.sync_folder(path.parent)

    def drop(self, path: Path) -> None:
        """Remove a written file."""
        self._files.remove(path)

    def tasks(self, writer: str) -> list[Task]:
        """Return the tasks that have staged rows."""
        matches = map(_STAGED.fullmatch, self._files.names(self._folder / writer))
        return [Task(int(each[1]), int(each[2]), each[3] or "") for each in matches if each]

    def remove(self, writer: str, tasks: Iterable[Task]) -> None:
        """Remove the staged rows of tasks."""
        for task in tasks:
            self._files.remove(self._path(writer, task))

    def read(self, writer: str, task: Task) -> Iterator[pa.RecordBatch]:
        """Yield the staged rows of a task; raise StagedRowsDamaged before damaged ones."""
        path = self._path(writer, task)
        self._check(path)
        with pa.OSFile(str(path)) as source:
            try:
                with pa.ipc.open_stream(source) as stream:
                    for rows in stream:
                        check_rows(rows)
                        yield rows
            except OSError as error:
                if error.errno is not None:  # the disk failed; pyarrow sets none for damage
                    raise
                raise StagedRowsDamaged(str(path), str(error)[:200]) from error
            except (pa.ArrowException, ValueError) as error:
                raise StagedRowsDamaged(str(path), str(error)[:200]) from error

    def _check(self, path: Path) -> None:
        """Raise StagedRowsDamaged unless a file has the bytes that were written."""
        size = self._files.size(path) - _TRAILER.size
        trailer = self._files.read(path, max(size, 0), _TRAILER.size)
        if trailer == _END:
            return
        if len(trailer) < _TRAILER.size or not trailer.endswith(_MARK):
            raise StagedRowsDamaged(str(path), "it does not end as it was written")
        crc = 0
        for position in range(0, size, _READ_BYTES):
            part = self._files.read(path, position, min(_READ_BYTES, size - position))
            crc = zlib.crc32(part, crc)
        if _TRAILER.pack(crc, _MARK) != trailer:
            raise StagedRowsDamaged(str(path), "its checksum is wrong")

    def tidy(self, writer: str, *, seconds_max: float) -> None:
        """Remove rows that were staged more than `seconds_max` ago."""
        oldest = time.time() - seconds_max
        for task in self.tasks(writer):
            path = self._path(writer, task)
            if path.stat().st_mtime < oldest:
                self._files.remove(path)

    def sweep(self) -> None:
        """Remove unfinished files; call it before anything is written."""
        for writer in self.writers():
            folder = self._folder / writer
            for name in self._files.names(folder):
                if name.endswith(TEMPORARY):
                    self._files.remove(folder / name)

    def _size(self, path: Path) -> int:
        try:
            return self._files.size(path)
        except FileNotFoundError:  # removed by another task of the writer
            return 0

    def _path(self, writer: str, task: Task) -> Path:
        token = f"-{task.token}" if task.token else ""
        return self._folder / writer / f"{task.epoch}-{task.partition}{token}.arrows"


class _Checksummed(io.RawIOBase):
    """A file that Arrow writes to, with the checksum of what was written."""

    def __init__(self, files: Files, handle: int) -> None:
        self._files = files
        self._handle = handle
        self._size = 0
        self.crc = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer) -> int:  # type: ignore[override]  # Arrow gives these alone
        self._files.append(self._handle, [data])
        self.crc = zlib.crc32(data, self.crc)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size


def _check_room(writer: str, size: int) -> None:
    if size > SINK_STAGED_BYTES_MAX:
        raise StagingFull(writer, "bytes", SINK_STAGED_BYTES_MAX)


def _together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Concatenate small batches: each becomes a row group of the log."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += len(batch)
        size += batch.nbytes
        if rows >= BLOCK_ROWS_MAX or size >= BLOCK_BYTES_MAX:
            yield pa.concat_batches(waiting)
            waiting, rows, size = [], 0, 0
    if rows:
        yield pa.concat_batches(waiting)
