"""Scan of a range of the log as a DataFrame, with one copy of each row less than `spark.read`.

Spark turns the batches of a Python data source into rows and then copies each row: its plan has a
projection over every source that does not declare Spark's own row type, and a Python source cannot
declare it. Rows from `mapInArrow` are not copied again. So a scan is a `mapInArrow` over one row
for each task; the tasks are those of the batch reader.
"""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.spark.log_source import Task
from penstock.spark.options import parse_columns, read_options
from penstock.spark.reader import BatchReader
from penstock.spark.schema import RECORD, record

__all__ = ["scan"]


def scan(
    spark: SparkSession,
    *,
    columns: Sequence[str] | str | None = None,
    **options: str | int | bool | None,
) -> DataFrame:
    """Return the rows of `spark.read.format("penstock").options(**options).load()`, faster.

    `columns` selects and orders the columns to read; the others are not read from the disk or sent
    by the broker. It may be the text of the option `columns`. An option with the value None is
    ignored. The end of the range is determined now, not when the DataFrame is first used.

    Raise InvalidOption, InvalidSchema, CannotRead, RangeLost or LogDamaged.
    """
    given = {name: _text(value) for name, value in options.items() if value is not None}
    reading = read_options(given, streaming=False, cores=_cores(spark))
    if isinstance(columns, str):
        columns = parse_columns(columns)
    if columns is None:
        columns = [name for name in RECORD.names if reading.include_headers or name != "headers"]
    schema = record(columns)
    reader = BatchReader(reading, schema)
    tasks = [task for task in reader.partitions() if isinstance(task, Task)]
    if not tasks:
        return spark.createDataFrame([], schema)
    # Spark estimates the size of the result by the size of the input. With one row for each task it
    # would broadcast the whole log in a join. So the input has one row for each record, of the
    # width of a record, and a filter keeps one row for each task.
    share = max(1, -(-sum(task.rows_max for task in tasks) // len(tasks)))
    numbers = spark.range(0, share * len(tasks), 1, len(tasks)).where(f"id % {share} = 0")
    sized = numbers.select("id", f.lit(None).cast(schema).alias("record"))
    return sized.mapInArrow(_Reading(reader, tasks, share), schema)


def _cores(spark: SparkSession) -> int | None:
    """Return the cores of the executors; None with Spark Connect, where they are not known."""
    try:
        return spark.sparkContext.defaultParallelism
    except PySparkException:
        return None


def _text(value: str | int | bool) -> str:  # noqa: FBT001
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Reading:
    """The function of `mapInArrow`: reads the tasks whose numbers it gets."""

    def __init__(self, reader: BatchReader, tasks: list[Task], share: int) -> None:
        self._reader = reader
        self._tasks = tasks
        self._share = share

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._reader.read(self._tasks[number // self._share])
