"""The warehouse: one folder with all tables, the checkpoints and the pipeline's status.

bronze/             every record
silver/NAME/        decoded rows of a schema
dead_letters/       rows that could not be decoded
gold/NAME/          computed tables
_rebuild/           a table that is being computed again
_checkpoints/       checkpoints of Spark's streams
_lock  _status.json

In a bucket there are only tables. Checkpoints, the lock and the status are then in a folder of this
machine, `state_folder`: Spark needs one, and a bucket has no locks.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import threading
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

import msgspec

from penstock.pipeline.config import SilverConfig, WarehouseConfig
from penstock.pipeline.errors import CannotKeep, WarehouseInUse
from penstock.pipeline.rebuild_recovery import read_plan, recover_letters
from penstock.pipeline.recent_records import RecentRecords
from penstock.pipeline.tables import Table
from penstock.storage.object_store import ObjectStore

__all__ = ["BY_DAY", "REBUILD", "Warehouse"]

REBUILD: Final = "_rebuild"
"""The folder in the warehouse for tables that are not complete yet."""
BY_DAY: Final = ("day",)
"""The partition columns of most tables."""
_STATUS: Final = "_status.json"
_NONE: Final[Mapping[str, Table]] = MappingProxyType({})


class Warehouse:
    """The tables of a folder. As a context manager it locks the folder: one process may write."""

    def __init__(self, config: WarehouseConfig) -> None:
        self.config = config
        self.store = ObjectStore.at(config.folder)
        self.folder = self.store.folder or Path(config.state_folder).absolute()
        """The folder of checkpoints, lock and status: that of the tables, unless it is a bucket."""
        self._lock = -1
        self._read_offsets: dict[str, dict[str, int]] = {}
        self._rewriting: dict[str, threading.Lock] = {}
        self.recent_records = RecentRecords(self.store.below("bronze"))

    def __enter__(self) -> Self:
        """Lock the folder and recover its tables; raise WarehouseInUse or CannotKeep."""
        with self._errors():
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = self.folder / "_lock"
            self._lock = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                self._lock_and_recover()
            except BaseException:
                os.close(self._lock)
                raise
        return self

    def _lock_and_recover(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WarehouseInUse(self.store.url) from None
        # Fail now: Spark would fail later, in the middle of a job.
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        for table in self.tables().values():
            table.recover()
        plan = read_plan(self.folder / REBUILD)
        if plan is not None:
            silver, letters = self.silver(plan.silver), self.dead_letters()
            recover_letters(plan, silver=silver, letters=letters)
        self.store.delete_all(REBUILD)
        shutil.rmtree(self.folder / REBUILD, ignore_errors=True)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise CannotKeep(self.store.url, reason) from error

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

    # --- Tables

    def bronze(self) -> Table:
        """Return the table of all records."""
        return self._table("bronze")

    def silver(self, name: str, *, partition_by: Sequence[str] = BY_DAY) -> Table:
        """Return the silver table of a schema."""
        return self._table(f"silver/{name}", partition_by=partition_by)

    def silver_of(self, schema: SilverConfig) -> Table:
        """Return the silver table of a schema, with its partitions.

        A table whose schema has no `partition_by` keeps the partitions that it has.
        """
        table = self.silver(schema.name, partition_by=schema.partition_columns)
        if schema.partition_by is None and table.exists():
            known = table.log.partition_by()
            table.partition_by = known if known in {(), BY_DAY} else table.partition_by
        return table

    def dead_letters(self) -> Table:
        """Return the table of rows that could not be decoded."""
        return self._table("dead_letters")

    def gold(self, name: str, *, partition_by: Sequence[str] = BY_DAY) -> Table:
        """Return a gold table."""
        return self._table(f"gold/{name}", partition_by=partition_by)

    def is_gold(self, table: Table) -> bool:
        """Return whether a table is a gold table."""
        return table.store == self.store.below(f"gold/{table.name}")

    def tables(
        self, names: Container[str] | None = None, *, opened: Mapping[str, Table] = _NONE
    ) -> dict[str, Table]:
        """Return the existing tables by name; with `names` only those, without opening others.

        Tables in `opened` are refreshed in place of opened again, which reads their whole logs.
        """
        with self._errors():
            return {table.name: table for table in self._found(names, opened)}

    def checkpoint(self, name: str) -> str:
        """Return the checkpoint folder of a stream."""
        return str(self.folder / "_checkpoints" / name)

    def _found(self, names: Container[str] | None, opened: Mapping[str, Table]) -> Iterator[Table]:
        below = ["bronze", "dead_letters"]
        for layer in ("silver", "gold"):
            found = self.store.folders(layer)
            below += [f"{layer}/{name}" for name in found if name[0].islower()]
        for path in below:
            if names is not None and path.rpartition("/")[2] not in names:
                continue
            table = opened.get(path.rpartition("/")[2]) or self._table(path)
            if table.exists():
                table.partition_by = table.log.partition_by()
                yield table

    def _table(self, path: str, *, partition_by: Sequence[str] = BY_DAY) -> Table:
        read_offsets = self._read_offsets.setdefault(path, {})
        rewriting = self._rewriting.setdefault(path, threading.Lock())
        return Table(
            self.store.below(path),
            partition_by=partition_by,
            read_offsets=read_offsets,
            rewriting=rewriting,
        )

    # --- Status

    def write_status(self, status: Mapping[str, Any]) -> None:
        """Write the status file that `penstock pipeline status` shows."""
        place = self.folder / f"{_STATUS}.new"
        place.write_bytes(msgspec.json.encode(status))
        place.replace(self.folder / _STATUS)

    def read_status(self) -> dict[str, Any]:
        """Return the contents of the status file, empty if there is none."""
        with self._errors():
            try:
                data = (self.folder / _STATUS).read_bytes()
            except FileNotFoundError:
                return {}
        return msgspec.json.decode(data, type=dict[str, Any])

    def is_running(self) -> bool:
        """Return whether a process holds the lock now."""
        with self._errors():
            try:
                handle = os.open(self.folder / "_lock", os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
        return False
