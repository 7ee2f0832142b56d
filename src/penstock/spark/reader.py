"""Batch reader: `spark.read.format("penstock")`."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.spark.arrow_batches import to_spark_batches
from penstock.spark.errors import InvalidOption
from penstock.spark.flight_source import FlightSource
from penstock.spark.folder_source import FolderSource
from penstock.spark.kafka_place import BOOTSTRAP, KafkaPlace
from penstock.spark.log_source import LogSource, Losses, Range, ReadRequest, Task
from penstock.spark.options import Broker, ReadOptions
from penstock.spark.planning import bounds_to_read, plan_tasks, resolve_offsets
from penstock.spark.schema import arrow_schema, check_columns
from penstock.spark.topic_ranges import Section, sections
from penstock.spark.traces import traced_batches

__all__ = ["BatchReader", "open_source", "read_task"]


def open_source(where: Path | Broker | KafkaPlace) -> LogSource:
    """Open the log of a data folder, a broker or Kafka.

    Raise CannotRead, FlightFailed, or InvalidOption without the client library of Kafka.
    """
    if isinstance(where, Path):
        return FolderSource(where)
    if isinstance(where, Broker):
        return FlightSource(where)
    try:
        from penstock.spark.kafka_source import KafkaSource  # noqa: PLC0415
    except ModuleNotFoundError as error:
        problem = "confluent-kafka is not installed"
        raise InvalidOption(BOOTSTRAP, problem, "install penstock-broker[kafka]") from error
    return KafkaSource(where)


def read_task(partition: InputPartition, request: ReadRequest) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task; none for the empty task that Spark itself adds."""
    if not isinstance(partition, Task):
        return iter(())
    batches = partition.batches(request)
    if request.traces is not None:
        batches = traced_batches(batches, request.selection, request.traces)
    return to_spark_batches(batches, request.schema, request.selection)


class BatchReader(DataSourceReader):
    """Plans tasks in a Python process of the driver, and reads them in Python workers.

    It takes no filters from Spark (`pushFilters`): Spark 4.3 keeps one plan of a reader for each
    DataFrame, so a scan would get the rows of the filters that another scan of it has pushed last.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_columns(schema)
        self._options = options
        self._request = ReadRequest(
            options.selection, arrow_schema(schema), options.fail_on_data_loss, options.traces
        )

    def partitions(self) -> list[InputPartition]:
        """Split the range into tasks; raise InvalidOption, CannotRead, RangeLost or LogDamaged."""
        options = self._options
        source = open_source(options.where)
        bounds = bounds_to_read(source, options)
        selection = options.selection
        starts = resolve_offsets(source, options.starting, bounds, selection)
        ends = resolve_offsets(source, options.ending, bounds, selection)
        parts: list[Section] = []
        for partition, start in starts.items():
            end = ends[partition]
            whole = Range(partition, start.lowest, end.highest, bounds[partition].log)
            if whole.start < whole.end:
                parts += sections(whole, selection, start, end)
        losses = Losses(options, source.name)
        return list(plan_tasks(source, parts, self._request, options=options, losses=losses))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task."""
        return read_task(partition, self._request)
