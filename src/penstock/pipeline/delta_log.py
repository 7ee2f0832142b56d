"""The transaction log of a Delta table, read and written by the `deltalake` package."""

import hashlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from penstock.limits import (
    PIPELINE_CHECKPOINT_COMMITS,
    PIPELINE_COMPACT_FACTOR,
    PIPELINE_COMPACT_STEPS,
)
from penstock.pipeline.data_files import DataFile, json_value, partition_of
from penstock.storage.object_store import ObjectStore, StoredObject

__all__ = ["DeltaLog"]

Partition: TypeAlias = tuple[tuple[str, str | None], ...]
_LOG: Final = "_delta_log"
_STREAMS_PROPERTY: Final = "penstock.streams"
_CONFIGURATION: Final = {"delta.checkpointInterval": "100"}


class DeltaLog:
    """The transaction log `_delta_log` of a table: its files, its schema, its app transactions.

    App transactions last as long as the table, and two writers that set the same one conflict.
    One process writes a table; in it, one thread appends and another may compact. Every object
    has a snapshot of its own, which `refresh` updates.
    """

    def __init__(self, place: ObjectStore | Path) -> None:
        self._store = ObjectStore.at(place)
        self._place = self._store.url
        self._table: DeltaTable | None = None
        self._files: tuple[int, Sequence[DataFile]] = (-1, ())

    def refresh(self) -> int:
        """Load the newest snapshot; return its version, -1 if there is no table yet."""
        if self._table is not None:
            if not self._is_newest(self._table.version()):
                self._table.update_incremental()
        elif DeltaTable.is_deltatable(self._place):
            self._table = DeltaTable(self._place)
        else:
            return -1
        return self._table.version()

    def _is_newest(self, version: int) -> bool:
        """Return whether there is no newer version, from the names of two files.

        A list of all commits takes much longer, and steps ask often. Old commits are deleted in the
        order of their versions, so after a commit that exists none was deleted.
        """
        folder = self._store.folder
        if folder is None:
            return False
        here, after = (folder / _LOG / f"{each:020}.json" for each in (version, version + 1))
        return here.exists() and not after.exists()

    def create(self, schema: pa.Schema, *, partition_by: Sequence[str]) -> None:
        """Create the table unless it exists."""
        if self.refresh() < 0:
            self._table = DeltaTable.create(
                self._place,
                schema=Schema.from_arrow(schema),
                mode="ignore",
                partition_by=list(partition_by) or None,
                configuration=dict(_CONFIGURATION),
            )

    def table_id(self) -> str:
        """Return the unique id that the table got when it was created."""
        return str(self._open().metadata().id)

    def schema(self) -> pa.Schema:
        """Return the columns, including those by which the table is partitioned."""
        return pa.schema(self._open().schema().to_arrow())

    def partition_by(self) -> tuple[str, ...]:
        """Return the columns by which the table is partitioned."""
        return tuple(self._open().metadata().partition_columns)

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        """Add columns; they are null in existing rows."""
        table = self._open()
        table.alter.add_columns(list(Schema.from_arrow(pa.schema(fields)).fields))
        table.update_incremental()

    def files(self) -> Sequence[DataFile]:
        """Return the data files of the snapshot."""
        table = self._open()
        if self._files[0] != table.version():
            actions = pa.table(table.get_add_actions(flatten=True))
            self._files = table.version(), [_file(row) for row in actions.to_pylist()]
        return self._files[1]

    def transaction_version(self, name: str) -> int | None:
        """Return the last committed version of an app transaction, None if there is none."""
        if self._table is None and self.refresh() < 0:
            return None
        try:
            return self._open().transaction_version(name)
        except DeltaError:
            # It reads commits, the newest first. Others may have deleted old ones, which are in a
            # checkpoint that this snapshot does not know.
            self._table = None
            return self._open().transaction_version(name)

    def stream_names(self) -> frozenset[str]:
        """Return the names of the streams in the table."""
        return frozenset(
            filter(None, self._open().metadata().configuration.get(_STREAMS_PROPERTY, "").split())
        )

    def set_stream_names(self, names: frozenset[str]) -> None:
        """Store the names of the streams as a property of the table."""
        table = self._open()
        table.alter.set_table_properties(
            {_STREAMS_PROPERTY: " ".join(sorted(names))}, raise_if_not_exists=False
        )
        table.update_incremental()

    def commit(
        self,
        *,
        add: Sequence[DataFile] = (),
        remove: Sequence[DataFile] = (),
        transactions: Mapping[str, int] | None = None,
    ) -> None:
        """Add and remove files and set app transactions in one commit."""
        now_ms = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [_add(each) for each in add]
        actions += [
            RemoveAction(
                each.path,
                data_change=True,
                deletion_timestamp=now_ms,
                size=each.size,
                partition_values=dict(each.partition),
            )
            for each in remove
        ]
        self._write(actions, "append", self._open().schema(), transactions)

    def replace(
        self, *, add: Sequence[DataFile], schema: pa.Schema, transactions: Mapping[str, int]
    ) -> None:
        """Replace all files and the columns in one commit, and set app transactions."""
        actions = [_add(each) for each in add]
        self._write(actions, "overwrite", Schema.from_arrow(schema), transactions)

    def merge(
        self,
        rows: pa.Table,
        *,
        key: Sequence[str],
        newer: str,
        deleted: str,
        transactions: Mapping[str, int],
    ) -> None:
        """Update, insert and delete rows by key, and set app transactions, in one commit.

        `newer` is the condition for a new row `s` that replaces the row `t` of the table; `deleted`
        names the column of new rows that delete. If no row of the table changes, nothing is
        committed.
        """
        same = " AND ".join(f't."{name}" = s."{name}"' for name in key)
        values = {f'"{name}"': f's."{name}"' for name in rows.column_names if name != deleted}
        (
            self._open()
            .merge(
                rows,
                same,
                source_alias="s",
                target_alias="t",
                commit_properties=_properties(transactions),
            )
            .when_matched_delete(f's."{deleted}" AND {newer}')
            .when_matched_update(values, newer)
            .when_not_matched_insert(values, f'NOT s."{deleted}"')
            .execute()
        )
        self.refresh()

    def _write(
        self,
        actions: Sequence[AddAction | RemoveAction],
        mode: str,
        schema: Schema,
        transactions: Mapping[str, int] | None,
    ) -> None:
        table = self._open()
        table.create_write_transaction(
            list(actions),
            mode,
            schema,
            table.metadata().partition_columns or None,
            commit_properties=_properties(transactions or {}),
        )
        table.update_incremental()

    def compact(self, *, files_min: int, size: int) -> int:
        """Merge small files of the same partition; return by how many files the table shrank.

        Files grow to `size` in several steps, so that a row is rewritten once in each.
        """
        removed = 0
        low = 0
        for step in reversed(range(PIPELINE_COMPACT_STEPS)):
            target = size // PIPELINE_COMPACT_FACTOR**step
            sizes = [each for each in self.files() if low <= each.size < target // 2]
            small = Counter(each.partition for each in sizes)
            for partition, count in small.items():
                if count >= files_min:
                    removed += self._compact_partition(partition, target)
            low = target // 2
        return removed

    def _compact_partition(self, partition: Partition, size: int) -> int:
        table = self._open()
        done = table.optimize.compact(
            partition_filters=_filters(partition), target_size=size, max_concurrent_tasks=1
        )
        table.update_incremental()
        return int(done["numFilesRemoved"] - done["numFilesAdded"])

    def z_order(self, columns: Sequence[str], *, size: int, growth: float) -> int:
        """Sort the rows of partitions by columns together; return the number of partitions.

        A partition is sorted when it has several files and `growth` times the bytes that it had
        after it was sorted last. An app transaction of each partition has that number.
        """
        done = 0
        sizes: Counter[Partition] = Counter()
        for each in self.files():
            sizes[each.partition] += each.size
        counts = Counter(each.partition for each in self.files())
        for partition, count in counts.items():
            name = _z_order_name(columns, partition)
            before = self.transaction_version(name) or 0
            if count > 1 and sizes[partition] > growth * before:
                self._z_order_partition(columns, partition, size, {name: sizes[partition]})
                done += 1
        return done

    def _z_order_partition(
        self,
        columns: Sequence[str],
        partition: Partition,
        size: int,
        transactions: Mapping[str, int],
    ) -> None:
        table = self._open()
        table.optimize.z_order(
            list(columns),
            partition_filters=_filters(partition),
            target_size=size,
            max_concurrent_tasks=1,
            commit_properties=_properties(transactions),
        )
        table.update_incremental()

    def delete_replaced(self, *, before: float, since: int = 0) -> tuple[int, int]:
        """Delete files that commits before a time removed from the table.

        Only commits from version `since` on are read. Return the number of deleted files and the
        version of the first commit that was not read.
        """
        self.refresh()
        used = {each.path for each in self.files()}
        deleted = 0
        for version, commit in self._commits():
            if version < since:
                continue
            if commit.modified >= before:
                break
            for path in self._removed_by(commit):
                if path not in used:
                    deleted += self._store.delete(path)
            since = version + 1
        return deleted, since

    def delete_commits(self, *, before: float) -> int:
        """Delete commits before a time that a checkpoint replaces; return how many.

        Call `delete_replaced` first: it reads the commits.
        """
        version = self.refresh()
        old = [
            (each, commit)
            for each, commit in self._commits()
            if each < version and commit.modified < before
        ]
        if sum(each >= self._checkpoint() for each, _ in old) >= PIPELINE_CHECKPOINT_COMMITS:
            self._open().create_checkpoint()
        checkpoint = self._checkpoint()
        deleted = sum(self._store.delete(commit.name) for each, commit in old if each < checkpoint)
        for each in self._store.objects(_LOG, recursive=False):
            number, _, suffix = each.name.removeprefix(f"{_LOG}/").partition(".")
            if suffix != "checkpoint.parquet" or int(number) >= checkpoint:
                continue
            if each.modified < before:
                self._store.delete(each.name)
        return deleted

    def removed_paths(self) -> set[str]:
        """Return the files that the commits on disk removed from the table."""
        return {path for _, commit in self._commits() for path in self._removed_by(commit)}

    def _commits(self) -> list[tuple[int, StoredObject]]:
        """Return the commits in the store with their versions, in order."""
        found = []
        for each in self._store.objects(_LOG, recursive=False):
            version, _, suffix = each.name.removeprefix(f"{_LOG}/").partition(".")
            if suffix == "json" and version.isdigit():
                found.append((int(version), each))
        return sorted(found)

    def _removed_by(self, commit: StoredObject) -> list[str]:
        """Return the paths of the files that a commit removes from the table."""
        actions = map(msgspec.json.decode, self._store.read(commit.name).splitlines())
        return [unquote(each["remove"]["path"]) for each in actions if "remove" in each]

    def _checkpoint(self) -> int:
        """Return the version of the last checkpoint, 0 if there is none."""
        try:
            last = msgspec.json.decode(self._store.read(f"{_LOG}/_last_checkpoint"))
        except FileNotFoundError:
            return 0
        return int(last["version"])

    def vacuum(self, *, seconds: float) -> int:
        """Delete files that no version of the table has used for `seconds`; return how many.

        These are files of removed versions, and files that a killed process did not commit.
        """
        self.refresh()
        before = time.time() - seconds
        kept = {each.path for each in self.files()}
        kept |= {
            path
            for _, commit in self._commits()
            if commit.modified >= before
            for path in self._removed_by(commit)
        }
        return sum(
            self._store.delete(each.name)
            for each in self._data_objects()
            if each.name not in kept and each.modified < before
        )

    def paths_on_disk(self) -> set[str]:
        """Return all data files in the table's folder, whether the table uses them or not."""
        return {each.name for each in self._data_objects()}

    def _data_objects(self) -> list[StoredObject]:
        return [
            each for each in self._store.objects(hidden=False) if each.name.endswith(".parquet")
        ]

    def _open(self) -> DeltaTable:
        if self._table is None:
            self.refresh()
        assert self._table is not None, f"{self._place} has no table yet"  # noqa: S101
        return self._table


def _properties(transactions: Mapping[str, int]) -> CommitProperties:
    return CommitProperties(
        app_transactions=[Transaction(name, number) for name, number in transactions.items()]
    )


def _filters(partition: Partition) -> list[tuple[str, str, Any]] | None:
    """Return the filters that select one partition, None for a table without partitions."""
    return [(name, "=", "" if value is None else value) for name, value in partition] or None


def _z_order_name(columns: Sequence[str], partition: Partition) -> str:
    """Return the app transaction of a sorted partition; other columns have another one."""
    values = msgspec.json.encode([list(columns), partition])
    return f"z_order/{hashlib.sha256(values).hexdigest()[:16]}"


def _add(file: DataFile) -> AddAction:
    statistics = {
        "numRecords": file.rows,
        "minValues": {name: json_value(value) for name, value in file.low.items()},
        "maxValues": {name: json_value(value) for name, value in file.high.items()},
        "nullCount": dict(file.nulls),
    }
    return AddAction(
        path=file.path,
        size=file.size,
        partition_values=dict(file.partition),
        modification_time=file.modified_ms,
        data_change=True,
        stats=msgspec.json.encode(statistics).decode(),
    )


def _file(row: dict[str, object]) -> DataFile:
    bounds: dict[str, dict[str, object]] = {"min": {}, "max": {}}
    for name, value in row.items():
        kind, dot, column = name.partition(".")
        if dot and kind in bounds and value is not None:
            bounds[kind][column] = value
    path = unquote(str(row["path"]))
    return DataFile(
        path=path,
        size=int(str(row["size_bytes"])),
        rows=int(str(row["num_records"] or 0)),
        partition=partition_of(path),
        low=bounds["min"],
        high=bounds["max"],
        nulls={},
        modified_ms=int(str(row["modification_time"])),
    )
