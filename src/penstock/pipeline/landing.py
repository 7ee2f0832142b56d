"""The way of records from the log into files of a table: Arrow in, Parquet out, in one task.

A stream of records would make each of them a row of Spark, only for its Parquet writer to make
columns of the rows again. Here the task that reads a part of the log writes it, and what Spark
gets from the task are the names of the files; the driver commits those.
"""

import datetime as dt
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4
from weakref import WeakSet

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StringType, StructField, StructType

from penstock.limits import PIPELINE_ROW_GROUP_ROWS_MAX, PIPELINE_SMALL_BATCH_ROWS_MAX
from penstock.pipeline.tables import STAGING
from penstock.spark.options import ReadOptions, read_options
from penstock.spark.schema import RECORD
from penstock.spark.stream import StreamReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["LANDING", "TABLE", "LandedFiles", "Lander", "register_landing"]

LANDING: Final = "penstock_landing"
"""What `format` takes."""
TABLE: Final = "table"
"""The option with the table's folder; the others are those of `penstock`."""

_FILE: Final = StructType([StructField("path", StringType())])
_DAY_US: Final = 86_400_000_000
_EPOCH: Final = dt.date(1970, 1, 1)

_FEW_VALUES: Final = [
    "topic", "protocol", "kind", "sender", "partition", "timestampType", "status",
    "headers.list.element.key",
]  # fmt: skip
_ENCODINGS: Final = {
    "offset": "DELTA_BINARY_PACKED",
    "timestamp": "DELTA_BINARY_PACKED",
    "created": "DELTA_BINARY_PACKED",
    "message_id": "DELTA_BYTE_ARRAY",
}
_BOUNDED: Final = [field.name for field in RECORD if field.name not in {"key", "value", "headers"}]
"""Columns whose least and greatest values are kept."""


class LandingSource(DataSource):
    """A stream of files that its tasks write."""

    @classmethod
    def name(cls) -> str:
        """Return what `format` takes."""
        return LANDING

    def schema(self) -> StructType:
        """Return the one column: a file's path in the table's folder."""
        return _FILE

    def streamReader(self, schema: StructType) -> "LandingReader":  # noqa: N802, ARG002
        """Return what plans and writes; raise InvalidOption."""
        options = dict(self.options)
        folder = Path(options.pop(TABLE))
        return LandingReader(read_options(options, streaming=True), folder)


class LandingReader(StreamReader):
    """Plans as any stream of records does; its tasks write what they read."""

    def __init__(self, options: ReadOptions, folder: Path) -> None:
        super().__init__(options, RECORD)
        self._folder = folder

    def __getstate__(self) -> dict[str, Any]:
        """See StreamReader."""
        return {**super().__getstate__(), "_folder": self._folder}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Write a task's records, and yield the names of the files."""
        with LandedFiles(self._folder, self._request.schema) as files:
            for batch in super().read(partition):
                files.write(batch)
            paths = files.close()
        if paths:
            yield pa.RecordBatch.from_arrays([pa.array(paths, pa.string())], names=_FILE.names)


class LandedFiles:
    """Parquet files of a table, one for each day of the records; none is left if it fails."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._folder = folder
        self._schema = schema
        self._name = uuid4().hex
        self._open: dict[int, pq.ParquetWriter] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for day, writer in self._open.items():
            writer.close()
            self._staged(day).unlink(missing_ok=True)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write records, each into the file of the day on which the broker took it."""
        days = pc.divide(batch.column("timestamp").cast(pa.int64()), _DAY_US)
        bounds = pc.min_max(days).as_py()
        if bounds["min"] == bounds["max"]:
            self._writer(bounds["min"]).write_batch(batch, PIPELINE_ROW_GROUP_ROWS_MAX)
            return
        for day in pc.unique(days).to_pylist():
            part = batch.filter(pc.equal(days, day))
            self._writer(day).write_batch(part, PIPELINE_ROW_GROUP_ROWS_MAX)

    def close(self) -> list[str]:
        """Make the files whole; return their paths in the table's folder."""
        paths = []
        for day in sorted(self._open):
            self._open.pop(day).close()
            path = f"day={_EPOCH + dt.timedelta(days=day)}/part-{self._name}.parquet"
            place = self._folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            self._staged(day).rename(place)
            paths.append(path)
        return paths

    def _writer(self, day: int) -> pq.ParquetWriter:
        writer = self._open.get(day)
        if writer is None:
            place = self._staged(day)
            place.parent.mkdir(parents=True, exist_ok=True)
            writer = self._open[day] = pq.ParquetWriter(
                place,
                self._schema,
                compression="zstd",
                use_dictionary=_FEW_VALUES,
                column_encoding=_ENCODINGS,
                write_statistics=_BOUNDED,
                store_schema=False,
            )
        return writer

    def _staged(self, day: int) -> Path:
        return self._folder / STAGING / f"{self._name}-{day}.parquet"


class Lander:
    """Has the records of a stream's batches written.

    Tasks of Spark do it; but to start one for a few records takes longer than to write them, so
    those of a small batch are written here. What a batch is, is in the checkpoint before it runs.
    """

    def __init__(self, options: Mapping[str, str], folder: Path, checkpoint: Path) -> None:
        self._reader = LandingReader(read_options(options, streaming=True), folder)
        self._batches = checkpoint / "offsets"

    def write(self, batch: "DataFrame", number: int) -> list[str]:
        """Return the paths of the files that hold a batch's records now."""
        bounds = self._bounds(number)
        if bounds is None:
            return [row.path for row in batch.collect()]
        return [
            path
            for partition in self._reader.partitions(*bounds)
            for names in self._reader.read(partition)
            for path in names.column(0).to_pylist()
        ]

    def _bounds(self, number: int) -> tuple[dict[str, int], dict[str, int]] | None:
        """Return where a small batch starts and ends, None for others."""
        try:
            start, end = (_end_of(self._batches / str(each)) for each in (number - 1, number))
        except (OSError, IndexError, msgspec.DecodeError):  # the first has none before it
            return None
        count = sum(last - start.get(partition, 0) for partition, last in end.items())
        return (start, end) if count <= PIPELINE_SMALL_BATCH_ROWS_MAX else None


def _end_of(batch: Path) -> dict[str, int]:
    """Return where a batch of a checkpoint ends: the third line, behind version and settings."""
    return msgspec.json.decode(batch.read_bytes().splitlines()[2], type=dict[str, int])


_knowing: Final[WeakSet["SparkSession"]] = WeakSet()


def register_landing(spark: "SparkSession") -> None:
    """Make the source known to a session; Spark complains of a second time."""
    if spark not in _knowing:
        spark.dataSource.register(LandingSource)
        _knowing.add(spark)
