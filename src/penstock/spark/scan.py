"""A range of the log as a DataFrame, with less work for Spark than `spark.read` makes.

Spark makes rows of what any Python data source yields, and then copies each row once more: its plan
has a projection over every source that does not say that its rows are of Spark's own kind, and one
in Python cannot say so. The rows that `mapInArrow` makes are not copied again. So this is a plan of
`mapInArrow` over as many rows as there are tasks; what a task reads is the same.
"""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.spark.options import read_options
from penstock.spark.origin import Task
from penstock.spark.reader import BatchReader
from penstock.spark.schema import RECORD, record

__all__ = ["scan"]


def scan(
    spark: SparkSession,
    *,
    columns: Sequence[str] | None = None,
    **options: str | int | bool | None,
) -> DataFrame:
    """Return what `spark.read.format("penstock").options(**options).load()` would, sooner.

    Only `columns` are read, if they are given, in that order. An option that is None counts as not
    given. Where the range ends is settled now, not when the DataFrame is first used. Filters are
    not pushed down.

    Raise InvalidOption, InvalidSchema, CannotRead, RangeLost or LogDamaged.
    """
    given = {name: _text(value) for name, value in options.items() if value is not None}
    reading = read_options(given, streaming=False)
    if columns is None:
        columns = [name for name in RECORD.names if reading.include_headers or name != "headers"]
    schema = record(columns)
    reader = BatchReader(reading, schema)
    tasks = [task for task in reader.partitions() if isinstance(task, Task)]
    if not tasks:
        return spark.createDataFrame([], schema)
    # Spark takes the result to be as large as what the plan starts with. If that were a row for
    # each task, it would send the whole log to every executor for a join. So it starts with a
    # number and an empty record for each record, of which a task gets one.
    share = max(1, -(-sum(task.rows_max for task in tasks) // len(tasks)))
    numbers = spark.range(0, share * len(tasks), 1, len(tasks)).where(f"id % {share} = 0")
    sized = numbers.select("id", f.lit(None).cast(schema).alias("record"))
    return sized.mapInArrow(_Reading(reader, tasks, share), schema)


def _text(value: str | int | bool) -> str:  # noqa: FBT001
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Reading:
    """Reads the tasks whose numbers it gets; it goes to the executors."""

    def __init__(self, reader: BatchReader, tasks: list[Task], share: int) -> None:
        self._reader = reader
        self._tasks = tasks
        self._share = share

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._reader.read(self._tasks[number // self._share])
