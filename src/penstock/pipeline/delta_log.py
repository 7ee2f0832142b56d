"""The transaction log of a Delta table, read and written by the `deltalake` package."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction, RemoveAction

from penstock.pipeline.data_files import DataFile, json_value

__all__ = ["DeltaLog"]

_STREAMS_PROPERTY: Final = "penstock.streams"
_CONFIGURATION: Final = {"delta.checkpointInterval": "100"}


class DeltaLog:
    """The transaction log `_delta_log` of a table: its files, its schema, its app transactions.

    App transactions last as long as the table, and two writers that set the same one conflict.
    One process writes a table; in it, one thread appends and another may compact. Every object
    has a snapshot of its own, which `refresh` updates.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._table: DeltaTable | None = None
        self._files: tuple[int, Sequence[DataFile]] = (-1, ())

    def refresh(self) -> int:
        """Load the newest snapshot; return its version, -1 if there is no table yet."""
        if self._table is not None:
            self._table.update_incremental()
        elif DeltaTable.is_deltatable(str(self._folder)):
            self._table = DeltaTable(str(self._folder))
        else:
            return -1
        return self._table.version()

    def create(self, schema: pa.Schema, *, by_day: bool) -> None:
        """Create the table unless it exists."""
        if self.refresh() < 0:
            self._table = DeltaTable.create(
                str(self._folder),
                schema=Schema.from_arrow(schema),
                mode="ignore",
                partition_by=["day"] if by_day else None,
                configuration=dict(_CONFIGURATION),
            )

    def table_id(self) -> str:
        """Return the unique id that the table got when it was created."""
        return str(self._open().metadata().id)

    def schema(self) -> pa.Schema:
        """Return the columns, including `day` if the table is partitioned by day."""
        return pa.schema(self._open().schema().to_arrow())

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
        table = self._open()
        now_ms = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [_add(each) for each in add]
        actions += [
            RemoveAction(
                each.path,
                data_change=True,
                deletion_timestamp=now_ms,
                size=each.size,
                partition_values=_partition(each),
            )
            for each in remove
        ]
        by_day = table.metadata().partition_columns
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            by_day or None,
            commit_properties=CommitProperties(
                app_transactions=[
                    Transaction(name, number) for name, number in (transactions or {}).items()
                ]
            ),
        )
        table.update_incremental()

    def compact(self, *, files_min: int, size: int) -> int:
        """Merge small files of the same day; return by how many files the table shrank."""
        small = Counter(each.day for each in self.files() if each.size < size // 2)
        table = self._open()
        removed = 0
        for day, count in small.items():
            if count >= files_min:
                done = table.optimize.compact(
                    partition_filters=None if day is None else [("day", "=", day)],
                    target_size=size,
                    max_concurrent_tasks=1,
                )
                removed += done["numFilesRemoved"] - done["numFilesAdded"]
        return removed

    def vacuum(self, *, hours: int) -> int:
        """Delete files that the table has not used for `hours`; return how many."""
        table = self._open()
        deleted = table.vacuum(
            retention_hours=hours, dry_run=False, enforce_retention_duration=False, full=True
        )
        table.update_incremental()
        return len(deleted)

    def _open(self) -> DeltaTable:
        if self._table is None:
            self.refresh()
        assert self._table is not None, f"{self._folder} has no table yet"  # noqa: S101
        return self._table


def _partition(file: DataFile) -> dict[str, str | None]:
    return {} if file.day is None else {"day": file.day}


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
        partition_values=_partition(file),
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
    day = row.get("partition.day")
    return DataFile(
        path=str(row["path"]),
        size=int(str(row["size_bytes"])),
        rows=int(str(row["num_records"] or 0)),
        day=None if day is None else str(day),
        low=bounds["min"],
        high=bounds["max"],
        nulls={},
        modified_ms=int(str(row["modification_time"])),
    )
