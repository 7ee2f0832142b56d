"""Parquet files: what pyarrow, DuckDB and Polars read of them is what was written."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import CannotExport
from penstock.storage.arrow.read import export
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.export import export_exists, export_parquet
from penstock.storage.arrow.read.records import plain_records, record_batches
from penstock.storage.dictionaries import RECORD_SCHEMA
from penstock.storage.object_store import ObjectStore
from tests.support.object_store import bucket, s3_endpoint
from tests.support.written_log import WrittenLog, message

__all__ = ["bucket", "s3_endpoint"]


@pytest.fixture
def view(tmp_path: Path) -> LogView:
    with WrittenLog(tmp_path / "data", segment_bytes_max=1) as log:
        log.put_many(3)
        log.put(
            message("ü/☂", b"\x00\xff", 9, headers=(("h", b"\x01"),), status=7, correlation="r")
        )
    return LogView(tmp_path / "data")


def rows(view: LogView) -> list[dict[str, object]]:
    return [row for batch in plain_records(record_batches(view)) for row in batch.to_pylist()]


def test_three_readers_read_the_messages(view: LogView, tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    exported = export_parquet(record_batches(view, coalesce=True), path)
    assert exported == (10, 1, path.stat().st_size)
    expected = rows(view)
    table = pq.read_table(path)
    assert table.schema.equals(RECORD_SCHEMA)
    assert table.to_pylist() == expected
    assert pl.read_parquet(path).to_arrow().cast(RECORD_SCHEMA).to_pylist() == expected
    found = duckdb.sql(f"FROM '{path}'").to_arrow_table()
    assert found.cast(RECORD_SCHEMA).to_pylist() == expected


def test_it_is_compressed_with_zstd_and_can_be_skipped_by_offset(
    view: LogView, tmp_path: Path
) -> None:
    path = tmp_path / "out.parquet"
    export_parquet(record_batches(view), path)
    metadata = pq.read_metadata(path).row_group(0)
    columns = {
        metadata.column(number).path_in_schema: metadata.column(number)
        for number in range(metadata.num_columns)
    }
    assert {each.compression for each in columns.values()} == {"ZSTD"}
    assert (columns["offset"].statistics.min, columns["offset"].statistics.max) == (0, 9)
    assert columns["value"].statistics is None


@pytest.mark.parametrize(("name", "bound"), [("EXPORT_ROWS_MAX", 4), ("EXPORT_BYTES_MAX", 1)])
def test_row_groups_are_bounded(
    view: LogView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, bound: int
) -> None:
    monkeypatch.setattr(export, name, bound)
    path = tmp_path / "out.parquet"
    assert export_parquet(record_batches(view), path).row_groups == (3 if bound == 4 else 4)
    assert pq.read_table(path).to_pylist() == rows(view)


def test_no_messages_are_a_file_without_rows(view: LogView, tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    assert export_parquet(record_batches(view, start=10), path).messages == 0
    assert pq.read_table(path).schema.equals(RECORD_SCHEMA)


def test_an_export_that_fails_leaves_what_was_there(view: LogView, tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    path.write_bytes(b"before")

    def batches() -> Iterator[pa.RecordBatch]:
        yield next(record_batches(view))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(CannotExport, match="No space left"):
        export_parquet(batches(), path)
    assert path.read_bytes() == b"before"
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["out.parquet"]


def test_a_folder_that_is_not_there_is_named(view: LogView, tmp_path: Path) -> None:
    with pytest.raises(CannotExport, match="nowhere"):
        export_parquet(record_batches(view), tmp_path / "nowhere" / "out.parquet")


def test_an_object_store_gets_the_same_file(view: LogView, bucket: str) -> None:
    url = f"{bucket}/exports/out.parquet"
    assert not export_exists(url)
    exported = export_parquet(record_batches(view, coalesce=True), url)
    assert export_exists(url)
    store = ObjectStore(f"{bucket}/exports")
    assert store.objects()[0].size == exported.size
    table = pq.read_table(store.path("out.parquet"), filesystem=store.file_system)
    assert table.to_pylist() == rows(view)


def test_a_url_that_cannot_be_used_is_named(view: LogView) -> None:
    with pytest.raises(CannotExport, match="begins with one of s3://"):
        export_parquet(record_batches(view), "hdfs://host/out.parquet")


def test_damage_leaves_an_object_as_it_was(view: LogView, bucket: str) -> None:
    url = f"{bucket}/out.parquet"
    ObjectStore(bucket).write("out.parquet", b"before")

    def failing() -> Iterator[pa.RecordBatch]:
        yield from record_batches(view)
        raise OSError(errno.EIO, "the disk failed")

    with pytest.raises(CannotExport, match="the disk failed"):
        export_parquet(failing(), url)
    assert ObjectStore(bucket).read("out.parquet") == b"before"
