"""Data files in a bucket: Spark's tasks read and write them by pyarrow.

Spark itself needs packages of Hadoop for each kind of store, which PySpark does not have. The tasks
return the names of the files that they wrote, and the driver commits them, so files of tasks that
failed or ran twice are not part of a table. A vacuum deletes them.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from penstock.limits import PIPELINE_READ_ROWS_MAX, PIPELINE_ROW_GROUP_ROWS_MAX
from penstock.pipeline.data_files import DataFile, day_of, describe
from penstock.storage.object_store import ObjectStore

__all__ = ["read_objects", "write_objects"]

_PATH: Final = StructType([StructField("path", StringType())])
_DAY: Final = "day"
_NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"


def read_objects(
    spark: SparkSession, store: ObjectStore, files: Sequence[DataFile], schema: StructType
) -> DataFrame:
    """Return the rows of data files; a column that a file does not have is null."""
    # One row for each row of the files, so that Spark does not take them for small; see `scan`.
    share = max(1, -(-sum(each.rows for each in files) // len(files)))
    numbers = spark.range(0, share * len(files), 1, len(files)).where(f"id % {share} = 0")
    sized = numbers.select("id", f.lit(None).cast(schema).alias("row"))
    paths = [each.path for each in files]
    return sized.mapInArrow(_Reading(store, paths, share, schema), schema)


def write_objects(store: ObjectStore, frame: DataFrame) -> list[DataFile]:
    """Write rows to new data files, by their column `day` if they have one."""
    written = frame.mapInArrow(_Writing(store, by_day=_DAY in frame.columns), _PATH)
    paths = sorted(row.path for row in written.collect())
    return [describe(store, path, day=day_of(path)) for path in paths]


class _Reading:
    """The function of `mapInArrow` that reads the files whose numbers it gets."""

    def __init__(
        self, store: ObjectStore, paths: list[str], share: int, schema: StructType
    ) -> None:
        self._store = store
        self._paths = paths
        self._share = share
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._read(self._paths[number // self._share])

    def _read(self, path: str) -> Iterator[pa.RecordBatch]:
        store = self._store
        day = day_of(path)
        with pq.ParquetFile(store.path(path), filesystem=store.file_system) as file:
            for batch in file.iter_batches(PIPELINE_READ_ROWS_MAX):
                columns = [self._column(batch, field, day) for field in self._schema]
                yield pa.RecordBatch.from_arrays(columns, schema=self._schema)

    @staticmethod
    def _column(batch: pa.RecordBatch, field: pa.Field, day: str | None) -> pa.Array:
        if field.name in batch.schema.names:
            return batch.column(field.name).cast(field.type)
        if field.name == _DAY and day not in {None, _NO_DAY}:
            return pa.repeat(pa.scalar(day).cast(field.type), len(batch))
        return pa.nulls(len(batch), field.type)


class _Writing:
    """The function of `mapInArrow` that writes rows, and returns the paths of the files."""

    def __init__(self, store: ObjectStore, *, by_day: bool) -> None:
        self._store = store
        self._by_day = by_day

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        name = f"part-{uuid4().hex}.parquet"
        writers: dict[str, pq.ParquetWriter] = {}
        with contextlib.ExitStack() as opened:
            for batch in batches:
                for path, rows in self._parts(batch, name):
                    if path not in writers:
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
        """Yield the path of each day in a batch, and its rows without the day."""
        if not len(batch):
            return
        if not self._by_day:
            yield name, batch
            return
        days = batch.column(_DAY)
        rest = batch.select([each for each in batch.schema.names if each != _DAY])
        for day in pc.unique(days):
            mask = pc.equal(days, day) if day.is_valid else pc.is_null(days)
            value = day.as_py().isoformat() if day.is_valid else _NO_DAY
            yield f"day={value}/{name}", rest.filter(mask)
