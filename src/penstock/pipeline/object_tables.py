"""Data files that pyarrow reads and writes: those in a bucket, and small ones of the driver.

Spark itself needs packages of Hadoop for each kind of store, which PySpark does not have. The tasks
return the names of the files that they wrote, and the driver commits them, so files of tasks that
failed or ran twice are not part of a table. A vacuum deletes them.
"""

import contextlib
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from penstock.limits import PIPELINE_READ_ROWS_MAX, PIPELINE_ROW_GROUP_ROWS_MAX
from penstock.pipeline.data_files import NULL_PARTITION, DataFile, describe, partition_of
from penstock.storage.object_store import ObjectStore

__all__ = ["read_objects", "read_rows", "write_objects", "write_rows"]

_PATH: Final = StructType([StructField("path", StringType())])


def read_objects(
    spark: SparkSession, store: ObjectStore, files: Sequence[DataFile], schema: StructType
) -> DataFrame:
    """Return the rows of data files; a column that a file does not have is null."""
    # One row for each row of the files, so that Spark does not take them for small; see `scan`.
    share = max(1, -(-sum(each.rows for each in files) // len(files)))
    numbers = spark.range(0, share * len(files), 1, len(files)).where(f"id % {share} = 0")
    sized = numbers.select("id", f.lit(None).cast(schema).alias("row"))
    paths = [each.path for each in files]
    arrow = to_arrow_schema(schema, timezone="UTC")
    return sized.mapInArrow(_Reading(store, paths, share, arrow), schema)


def read_rows(store: ObjectStore, files: Sequence[DataFile], schema: pa.Schema) -> pa.Table:
    """Return the rows of data files; a column that a file does not have is null."""
    reading = _Reading(store, [], 1, schema)
    batches = [batch for each in files for batch in reading.read(each.path)]
    return pa.Table.from_batches(batches, schema)


def write_objects(
    store: ObjectStore, frame: DataFrame, *, partition_by: Sequence[str]
) -> list[DataFile]:
    """Write rows to new data files, one of each task for each partition."""
    written = frame.mapInArrow(_Writing(store, partition_by), _PATH)
    paths = sorted(row.path for row in written.collect())
    return [describe(store, path) for path in paths]


def write_rows(store: ObjectStore, rows: pa.Table, *, partition_by: Sequence[str]) -> list[str]:
    """Write rows to new data files, one for each partition; return their paths."""
    (paths,) = _Writing(store, partition_by)(rows.combine_chunks().to_batches())
    return sorted(paths.column(0).to_pylist())


class _Reading:
    """The function of `mapInArrow` that reads the files whose numbers it gets."""

    def __init__(self, store: ObjectStore, paths: list[str], share: int, schema: pa.Schema) -> None:
        self._store = store
        self._paths = paths
        self._share = share
        self._schema = schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.read(self._paths[number // self._share])

    def read(self, path: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file."""
        store = self._store
        partition = dict(partition_of(path))
        with pq.ParquetFile(store.path(path), filesystem=store.file_system) as file:
            names = [name for name in self._schema.names if name in file.schema_arrow.names]
            for batch in file.iter_batches(PIPELINE_READ_ROWS_MAX, columns=names):
                columns = [self._column(batch, field, partition) for field in self._schema]
                yield pa.RecordBatch.from_arrays(columns, schema=self._schema)

    @staticmethod
    def _column(
        batch: pa.RecordBatch, field: pa.Field, partition: Mapping[str, str | None]
    ) -> pa.Array:
        if field.name in batch.schema.names:
            return batch.column(field.name).cast(field.type)
        value = partition.get(field.name)
        if value is None:
            return pa.nulls(len(batch), field.type)
        return pa.repeat(pa.scalar(value).cast(field.type), len(batch))


class _Writing:
    """The function of `mapInArrow` that writes rows, and returns the paths of the files."""

    def __init__(self, store: ObjectStore, partition_by: Sequence[str]) -> None:
        self._store = store
        self._partition_by = list(partition_by)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        name = f"part-{uuid4().hex}.parquet"
        writers: dict[str, pq.ParquetWriter] = {}
        with contextlib.ExitStack() as opened:
            for batch in batches:
                for path, rows in self._parts(batch, name):
                    if path not in writers:
                        if self._store.folder is not None:
                            (self._store.folder / path).parent.mkdir(parents=True, exist_ok=True)
                        writers[path] = opened.enter_context(
                            pq.ParquetWriter(
                                self._store.path(path),
                                rows.schema,
                                filesystem=self._store.file_system,
                                compression="zstd",
                                store_schema=False,
                            )
                        )
                    writers[path].write_batch(rows, PIPELINE_ROW_GROUP_ROWS_MAX)
        yield pa.RecordBatch.from_arrays([pa.array(list(writers), pa.string())], names=_PATH.names)

    def _parts(self, batch: pa.RecordBatch, name: str) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the path of each partition in a batch, and its rows without its columns."""
        if not len(batch):
            return
        names = self._partition_by
        if not names:
            yield name, batch
            return
        rest = batch.select([each for each in batch.schema.names if each not in names])
        found = pa.table({each: batch.column(each) for each in names}).group_by(names)
        for values in found.aggregate([]).to_pylist():
            masks = [_is_equal(batch.column(each), value) for each, value in values.items()]
            folders = [f"{each}={_folder_name(value)}" for each, value in values.items()]
            yield "/".join([*folders, name]), rest.filter(functools.reduce(pc.and_, masks))


def _is_equal(column: pa.Array, value: object) -> pa.Array:
    if value is None:
        return pc.is_null(column)
    return pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), fill_value=False)


def _folder_name(value: object) -> str:
    """Return the value of a partition as a part of a path; see data_files.partition_of."""
    if value is None:
        return NULL_PARTITION
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return quote(text, safe="")
