"""Exports messages of a log to a Parquet file."""

import contextlib
import os
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

__all__ = ["Exported", "export_parquet"]

_REPEATING: Final = ["topic", "partition", "timestampType", "protocol", "kind", "sender", "status"]
_COMPARED: Final = [*_REPEATING, "offset", "timestamp", "created"]
"""Columns with statistics, by which readers skip Parquet row groups."""


class Exported(NamedTuple):
    """Totals of an exported file; `row_groups` are those of Parquet."""

    messages: int
    row_groups: int
    size: int


def export_parquet(batches: Iterable[pa.RecordBatch], path: Path) -> Exported:
    """Write batches of the log to a Parquet file with the record schema, compressed with zstd.

    Parquet row groups are written as they fill, to a temporary file. When it is complete and on
    disk, it replaces an existing file; after an error that stays unchanged. Raise CannotExport.
    """
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
