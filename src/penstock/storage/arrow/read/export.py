"""Exports messages of a log to a Parquet file, or to one in an object store."""

import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import CannotExport
from penstock.limits import EXPORT_BYTES_MAX, EXPORT_ROWS_MAX
from penstock.storage.arrow.read.records import plain_records
from penstock.storage.dictionaries import RECORD_SCHEMA
from penstock.storage.files import TEMPORARY
from penstock.storage.object_store import ObjectStore
from penstock.storage.urls import is_url

__all__ = ["Exported", "export_exists", "export_parquet"]

_REPEATING: Final = ["topic", "partition", "timestampType", "protocol", "kind", "sender", "status"]
_COMPARED: Final = [*_REPEATING, "offset", "timestamp", "created"]
"""Columns with statistics, by which readers skip Parquet row groups."""


class Exported(NamedTuple):
    """Totals of an exported file; `row_groups` are those of Parquet."""

    messages: int
    row_groups: int
    size: int


def export_exists(place: Path | str) -> bool:
    """Return whether there is a file at a path or a URL; raise CannotExport."""
    if not isinstance(place, str) or not is_url(place):
        return Path(place).exists()
    store, name = _store_of(place)
    try:
        return store.size(name) is not None
    except OSError as error:
        raise CannotExport(place, error.strerror or str(error)) from error


def export_parquet(batches: Iterable[pa.RecordBatch], place: Path | str) -> Exported:
    """Write batches of the log to a Parquet file with the record schema, compressed with zstd.

    `place` is a path or a URL. Parquet row groups are written as they fill, to a temporary file.
    When it is complete and on disk, it replaces an existing file, or is uploaded; after an error
    an existing file stays unchanged. Raise CannotExport.
    """
    if isinstance(place, str) and is_url(place):
        return _export_object(batches, place)
    path = Path(place)
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        try:
            exported = _write(batches, temporary)
            temporary.replace(path)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
    except OSError as error:
        raise CannotExport(str(path), error.strerror or str(error)) from error
    return exported


def _export_object(batches: Iterable[pa.RecordBatch], url: str) -> Exported:
    """Write to a file of this machine first: an object appears when its stream is closed."""
    store, name = _store_of(url)
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-export-") as folder:
            path = Path(folder, name)
            exported = _write(batches, path)
            store.upload(path, name)
            complete = store.size(name) == exported.size
    except OSError as error:
        raise CannotExport(url, error.strerror or str(error)) from error
    if not complete:
        raise CannotExport(url, "the object is not complete")
    return exported


def _store_of(url: str) -> tuple[ObjectStore, str]:
    """Return the store and the name of an object; raise CannotExport."""
    folder, _, name = url.rpartition("/")
    try:
        return ObjectStore(folder), name
    except ValueError as error:
        raise CannotExport(url, str(error)) from error


def _write(batches: Iterable[pa.RecordBatch], path: Path) -> Exported:
    waiting: list[pa.RecordBatch] = []
    messages = row_groups = rows = size = 0
    with path.open("wb") as file:
        writer = pq.ParquetWriter(
            file,
            RECORD_SCHEMA,
            compression="zstd",
            use_dictionary=_REPEATING,
            write_statistics=_COMPARED,
        )
        with writer:
            for batch in plain_records(batches):
                batch_size = batch.nbytes
                if waiting and (
                    rows + len(batch) > EXPORT_ROWS_MAX or size + batch_size > EXPORT_BYTES_MAX
                ):
                    writer.write_table(pa.Table.from_batches(waiting), EXPORT_ROWS_MAX)
                    row_groups += 1
                    waiting, rows, size = [], 0, 0
                waiting.append(batch)
                messages += len(batch)
                rows += len(batch)
                size += batch_size
            if waiting:
                writer.write_table(pa.Table.from_batches(waiting), EXPORT_ROWS_MAX)
                row_groups += 1
        file.flush()
        os.fsync(file.fileno())
        return Exported(messages, row_groups, file.tell())
