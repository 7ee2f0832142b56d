"""A table's log for plain Parquet: one JSON file that lists what belongs to the table."""

import os
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from penstock.pipeline.files import DataFile, describe, json_value

__all__ = ["ManifestLog"]

_MANIFEST: Final = "_manifest.json"
_HOURS_MS: Final = 3_600_000


class _File(msgspec.Struct):
    path: str
    size: int
    rows: int
    day: str | None
    low: dict[str, int | float | str]
    high: dict[str, int | float | str]
    modified_ms: int


class _Manifest(msgspec.Struct):
    """What `_manifest.json` holds. `removed` says since when files are not needed."""

    identity: str
    version: int
    schema: str
    files: list[_File] = []
    removed: dict[str, int] = {}
    marks: dict[str, int] = {}
    names: list[str] = []


class ManifestLog:
    """`TableLog` over a file that each commit replaces; its changes take turns.

    Read through the manifest, a table is exact. Whoever reads all files of the folder sees those
    of a batch that is under way too, and after a crash those of one that was cut short until the
    next start removes them.
    """

    _turns: ClassVar[dict[Path, threading.RLock]] = defaultdict(threading.RLock)

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._manifest: _Manifest | None = None
        self._turn = self._turns[folder.absolute()]

    def recover(self) -> None:
        """Remove the files of a batch that was cut short; nobody else may write the table."""
        if self.refresh() < 0:
            return
        manifest = self._open()
        listed = {each.path for each in manifest.files} | manifest.removed.keys()
        for place in self._folder.rglob("*.parquet"):
            path = str(place.relative_to(self._folder))
            if not path.startswith("_") and path not in listed:
                place.unlink()

    def refresh(self) -> int:
        """Look at what is committed; return the version, -1 if there is no table yet."""
        try:
            data = (self._folder / _MANIFEST).read_bytes()
        except FileNotFoundError:
            return -1
        self._manifest = msgspec.json.decode(data, type=_Manifest)
        return self._manifest.version

    def create(self, schema: pa.Schema, *, by_day: bool) -> None:  # noqa: ARG002
        """Make the table if there is none."""
        if self.refresh() < 0:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._write(_Manifest(identity=str(uuid4()), version=0, schema=_schema_text(schema)))

    def identity(self) -> str:
        """Return what no other table has, made with the table."""
        return self._open().identity

    def schema(self) -> pa.Schema:
        """Return the columns, with `day` if files are kept by day."""
        data = bytes.fromhex(self._open().schema)
        return pa.ipc.read_schema(pa.py_buffer(data))

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        """Let the table have further columns, null in the rows that are there."""
        with self._turn:
            self.refresh()
            schema = pa.schema([*self.schema(), *fields])
            self._write(msgspec.structs.replace(self._open(), schema=_schema_text(schema)))

    def files(self) -> Sequence[DataFile]:
        """Return the files of the table."""
        return [
            DataFile(each.path, each.size, each.rows, each.day, each.low, each.high, {},
                     each.modified_ms)
            for each in self._open().files
        ]  # fmt: skip

    def mark(self, name: str) -> int | None:
        """Return the number that was committed under a name, the last one."""
        return self._open().marks.get(name)

    def names(self) -> frozenset[str]:
        """Return the names that `remember` was given."""
        return frozenset(self._open().names)

    def remember(self, names: frozenset[str]) -> None:
        """Keep a set of names with the table."""
        with self._turn:
            self.refresh()
            self._write(msgspec.structs.replace(self._open(), names=sorted(names)))

    def commit(
        self,
        *,
        add: Sequence[DataFile] = (),
        remove: Sequence[DataFile] = (),
        marks: Mapping[str, int] | None = None,
    ) -> None:
        """Take files in and out and set marks, all in one."""
        gone = {each.path for each in remove}
        now_ms = time.time_ns() // 1_000_000
        with self._turn:
            self.refresh()
            old = self._open()
            if gone - {each.path for each in old.files}:
                raise RuntimeError(f"{self._folder}: files were removed by another writer")
            self._write(
                msgspec.structs.replace(
                    old,
                    files=[each for each in old.files if each.path not in gone]
                    + [_kept(each) for each in add],
                    removed=old.removed | dict.fromkeys(gone, now_ms),
                    marks=old.marks | dict(marks or {}),
                )
            )

    def compact(self, *, files_min: int, size: int) -> int:
        """Make one file of many small ones of a day; return how many there are fewer."""
        days: dict[str | None, list[DataFile]] = defaultdict(list)
        for each in self.files():
            if each.size < size // 2:
                days[each.day].append(each)
        removed = 0
        for day, files in days.items():
            if len(files) >= files_min:
                name = f"compact-{uuid4().hex}.parquet"
                path = name if day is None else f"day={day}/{name}"
                schema = self.schema()
                if day is not None:
                    schema = schema.remove(schema.get_field_index("day"))
                source = ds.dataset([str(self._folder / each.path) for each in files], schema)
                with pq.ParquetWriter(self._folder / path, schema) as writer:
                    for batch in source.to_batches():
                        writer.write_batch(batch)
                self.commit(add=[describe(self._folder, path, day=day)], remove=files)
                removed += len(files) - 1
        return removed

    def vacuum(self, *, hours: int) -> int:
        """Remove files that were not needed for so long; return how many."""
        due_ms = time.time_ns() // 1_000_000 - hours * _HOURS_MS
        with self._turn:
            self.refresh()
            old = self._open()
            due = {path for path, since_ms in old.removed.items() if since_ms <= due_ms}
            for path in due:
                (self._folder / path).unlink(missing_ok=True)
            if due:
                kept = {path: since for path, since in old.removed.items() if path not in due}
                self._write(msgspec.structs.replace(old, removed=kept))
        return len(due)

    def _open(self) -> _Manifest:
        if self._manifest is None:
            self.refresh()
        assert self._manifest is not None, f"{self._folder} has no table yet"  # noqa: S101
        return self._manifest

    def _write(self, manifest: _Manifest) -> None:
        """Replace the manifest; the new one is on disk before it has the name."""
        manifest = msgspec.structs.replace(manifest, version=manifest.version + 1)
        place = self._folder / f"{_MANIFEST}.new"
        with place.open("wb") as file:
            file.write(msgspec.json.encode(manifest))
            file.flush()
            os.fsync(file.fileno())
        place.replace(self._folder / _MANIFEST)
        self._manifest = manifest


def _schema_text(schema: pa.Schema) -> str:
    return bytes(schema.serialize()).hex()


def _kept(file: DataFile) -> _File:
    def plain(values: Mapping[str, object]) -> dict[str, int | float | str]:
        spelled = {name: json_value(value) for name, value in values.items()}
        return {
            name: value for name, value in spelled.items() if isinstance(value, int | float | str)
        }

    return _File(
        path=file.path,
        size=file.size,
        rows=file.rows,
        day=file.day,
        low=plain(file.low),
        high=plain(file.high),
        modified_ms=file.modified_ms,
    )
