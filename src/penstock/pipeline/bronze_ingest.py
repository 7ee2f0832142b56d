"""Ingest of records into bronze: the task that reads a part of the log writes it as Parquet.

A stream of records would turn each record into a Spark row, and Spark's Parquet writer would turn
the rows back into columns. Here the tasks write Arrow batches to Parquet files themselves, and
return only the names of the files. The driver commits the files.
"""

import datetime as dt
import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self
from uuid import uuid4
from weakref import WeakSet

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import StringType, StructField, StructType

from penstock.limits import (
    PIPELINE_COMMIT_ROWS,
    PIPELINE_ROW_GROUP_ROWS_MAX,
    PIPELINE_SMALL_BATCH_ROWS_MAX,
)
from penstock.pipeline.tables import STAGING
from penstock.spark.options import ReadOptions, read_options
from penstock.spark.schema import RECORD
from penstock.spark.stream import StreamReader
from penstock.spark.stream_offsets import JsonOffsets, lag_between, logs_of
from penstock.storage.object_store import ObjectStore

__all__ = [
    "INGEST_FORMAT",
    "INTERVAL_OPTION",
    "TABLE_OPTION",
    "BatchIngest",
    "DailyParquetFiles",
    "LogLag",
    "register_ingest",
]

INGEST_FORMAT: Final = "penstock_ingest"
"""The name of the data source."""
TABLE_OPTION: Final = "table"
"""The option with the table's folder."""
INTERVAL_OPTION: Final = "interval"
"""The option with the minimum seconds between two batches; all others are those of `penstock`."""

_FILE: Final = StructType([StructField("path", StringType())])
_DAY_US: Final = 86_400_000_000
_EPOCH: Final = dt.date(1970, 1, 1)

_DICTIONARY_COLUMNS: Final = [
    "topic", "protocol", "kind", "sender", "partition", "timestampType", "status",
    "headers.list.element.key",
]  # fmt: skip
_ENCODINGS: Final = {
    "offset": "DELTA_BINARY_PACKED",
    "timestamp": "DELTA_BINARY_PACKED",
    "created": "DELTA_BINARY_PACKED",
    "message_id": "DELTA_BYTE_ARRAY",
}
_STATISTICS_COLUMNS: Final = [
    field.name for field in RECORD if field.name not in {"key", "value", "headers"}
]


class IngestSource(DataSource):
    """A streaming data source whose tasks write files and whose rows are their paths."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return INGEST_FORMAT

    def schema(self) -> StructType:
        """Return the only column: a file's path in the table's folder."""
        return _FILE

    def streamReader(self, schema: StructType) -> "IngestReader":  # noqa: N802, ARG002
        """Return the reader of a stream; raise InvalidOption."""
        options = dict(self.options)
        store = ObjectStore.at(options.pop(TABLE_OPTION))
        seconds = float(options.pop(INTERVAL_OPTION, "0"))
        return IngestReader(read_options(options, streaming=True), store, seconds=seconds)


class IngestReader(StreamReader):
    """Plans like any stream of records; its tasks write the records to files.

    A batch begins `seconds` after the one before, or with enough rows. So there are few small
    commits, and a message that comes after a pause does not wait.
    """

    def __init__(
        self, options: ReadOptions, place: ObjectStore | Path, *, seconds: float = 0.0
    ) -> None:
        super().__init__(options, RECORD)
        self._store = ObjectStore.at(place)
        self._seconds = seconds
        self._begun = -math.inf  # the clock starts with the machine, perhaps seconds ago

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:  # noqa: N802
        """Return the end of the next batch, or `start` as long as the batch waits."""
        end = super().latestOffset(start, limit)
        now = time.monotonic()
        if now - self._begun >= self._seconds:
            if end != start:
                self._begun = now
            return end
        enough = PIPELINE_COMMIT_ROWS
        if isinstance(limit, ReadMaxRows):
            enough = min(enough, limit.max_rows)
        # Another log, or a new partition, is not held back.
        if logs_of(start) == logs_of(end) and lag_between(start, end) < enough:
            return start
        self._begun = now
        return end

    def __getstate__(self) -> dict[str, Any]:
        """See StreamReader."""
        return {**super().__getstate__(), "_store": self._store}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Write the records of a task; yield the paths of the files."""
        with DailyParquetFiles(self._store, self._request.schema) as files:
            for batch in super().read(partition):
                files.write(batch)
            paths = files.close()
        if paths:
            yield pa.RecordBatch.from_arrays([pa.array(paths, pa.string())], names=_FILE.names)


class DailyParquetFiles:
    """Parquet files in a table's folder, one for each day of the records.

    In a folder, files are staged until `close`. If the context ends before `close`, they are
    removed. No file is part of the table before the driver has committed it.
    """

    def __init__(self, place: ObjectStore | Path, schema: pa.Schema) -> None:
        self._store = ObjectStore.at(place)
        self._schema = schema
        self._name = uuid4().hex
        self._open: dict[int, pq.ParquetWriter] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for day, writer in self._open.items():
            writer.close()
            self._store.delete(self._staged(day))

    def write(self, batch: pa.RecordBatch) -> None:
        """Write each record to the file of its day, by the broker's timestamp."""
        days = pc.divide(batch.column("timestamp").cast(pa.int64()), _DAY_US)
        bounds = pc.min_max(days).as_py()
        if bounds["min"] == bounds["max"]:
            self._writer(bounds["min"]).write_batch(batch, PIPELINE_ROW_GROUP_ROWS_MAX)
            return
        for day in pc.unique(days).to_pylist():
            part = batch.filter(pc.equal(days, day))
            self._writer(day).write_batch(part, PIPELINE_ROW_GROUP_ROWS_MAX)

    def close(self) -> list[str]:
        """Complete the files and move them into place; return their paths in the table's folder."""
        paths = []
        for day in sorted(self._open):
            self._open.pop(day).close()
            path = self._final(day)
            if self._staged(day) != path:
                self._store.move(self._staged(day), self._store, path)
            paths.append(path)
        return paths

    def _writer(self, day: int) -> pq.ParquetWriter:
        writer = self._open.get(day)
        if writer is None:
            staged = self._store.path(self._staged(day))
            if self._store.folder is not None:
                Path(staged).parent.mkdir(parents=True, exist_ok=True)
            writer = self._open[day] = pq.ParquetWriter(
                staged,
                self._schema,
                filesystem=self._store.file_system,
                compression="zstd",
                use_dictionary=_DICTIONARY_COLUMNS,
                column_encoding=_ENCODINGS,
                write_statistics=_STATISTICS_COLUMNS,
                store_schema=False,
            )
        return writer

    def _staged(self, day: int) -> str:
        """Return the path of a file that is being written; an object appears when it is closed."""
        if self._store.folder is None:
            return self._final(day)
        return f"{STAGING}/{self._name}-{day}.parquet"

    def _final(self, day: int) -> str:
        return f"day={_EPOCH + dt.timedelta(days=day)}/part-{self._name}.parquet"


class BatchIngest:
    """Writes the records of a micro-batch to files.

    Spark's tasks write large batches. Starting a task takes longer than writing a few records, so
    the driver writes small batches itself. Spark stores the offsets of a batch in the checkpoint
    before it runs the batch.
    """

    def __init__(
        self, options: Mapping[str, str], place: ObjectStore | Path, checkpoint: Path
    ) -> None:
        store = ObjectStore.at(place)
        self._reader = IngestReader(read_options(options, streaming=True), store)
        self._offset_log = checkpoint / "offsets"

    def write(self, batch: DataFrame, number: int) -> list[str]:
        """Write the records of a batch; return the paths of the files."""
        bounds = self._small_batch(number)
        if bounds is None:
            return [row.path for row in batch.collect()]
        return [
            path
            for partition in self._reader.partitions(*bounds)
            for names in self._reader.read(partition)
            for path in names.column(0).to_pylist()
        ]

    def _small_batch(self, number: int) -> tuple[JsonOffsets, JsonOffsets] | None:
        """Return the start and end offsets of a small batch, None for a large one."""
        try:
            start, end = (_end_of(self._offset_log / str(each)) for each in (number - 1, number))
        except (OSError, IndexError, msgspec.DecodeError):  # the first batch has none before it
            return None
        small = lag_between(start, end) <= PIPELINE_SMALL_BATCH_ROWS_MAX
        return (start, end) if small else None


class LogLag:
    """Counts the messages of the log after the last completed batch of a stream."""

    def __init__(self, options: Mapping[str, str], checkpoint: Path) -> None:
        self._reader = StreamReader(read_options(options, streaming=True), RECORD)
        self._checkpoint = checkpoint

    def messages(self) -> int:
        """Return the number of messages; raise an error of the source, or OSError."""
        return self._reader.count_after(self._done())

    def _done(self) -> JsonOffsets:
        """Return the end of the last completed batch, or the start of the stream."""
        commits = self._checkpoint / "commits"
        names = [each.name for each in commits.iterdir()] if commits.is_dir() else []
        batches = [int(name) for name in names if name.isdigit()]
        if not batches:
            return self._reader.initialOffset()
        return _end_of(self._checkpoint / "offsets" / str(max(batches)))


def _end_of(batch: Path) -> JsonOffsets:
    """Return the end offsets of a batch from the checkpoint: line 3, after version and settings."""
    return msgspec.json.decode(batch.read_bytes().splitlines()[2], type=JsonOffsets)


_registered: Final[WeakSet[SparkSession]] = WeakSet()


def register_ingest(spark: SparkSession) -> None:
    """Register the data source in a session, once: Spark warns of a second registration."""
    if spark not in _registered:
        spark.dataSource.register(IngestSource)
        _registered.add(spark)
