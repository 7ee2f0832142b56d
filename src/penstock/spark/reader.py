"""Batch reader: `spark.read.format("penstock")`."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.spark.arrow_batches import to_spark_batches
from penstock.spark.errors import InvalidOption
from penstock.spark.flight_source import FlightSource
from penstock.spark.folder_source import FolderSource
from penstock.spark.log_source import (
    LogBounds,
    LogSource,
    Losses,
    Range,
    ReadRequest,
    Task,
)
from penstock.spark.offset_spec import NamedOffset, OffsetSpec
from penstock.spark.options import Broker, ReadOptions
from penstock.spark.schema import arrow_schema, check_columns

__all__ = ["BatchReader", "open_source", "read_task", "resolve_offsets"]


def open_source(where: Path | Broker) -> LogSource:
    """Open the log of a data folder or a broker; raise CannotRead or FlightFailed."""
    return FolderSource(where) if isinstance(where, Path) else FlightSource(where)


def resolve_offsets(
    source: LogSource, spec: OffsetSpec, bounds: Mapping[int, LogBounds]
) -> dict[int, int]:
    """Return the offset of each partition for a spec; raise InvalidOption."""
    unknown = sorted(set(spec.offsets) - set(bounds))
    if unknown:
        allowed = f"partitions {', '.join(map(str, sorted(bounds)))}"
        raise InvalidOption(spec.option, f"{source.name} has no {unknown[0]}", allowed)
    found: dict[int, int] = {}
    for partition, bound in bounds.items():
        if spec.timestamp_us is not None:
            offset = source.offset_at(partition, spec.timestamp_us)
            found[partition] = min(max(offset, bound.horizon), bound.end)
            continue
        wanted = spec.offsets.get(partition, spec.named)
        if isinstance(wanted, NamedOffset):
            wanted = bound.horizon if wanted is NamedOffset.EARLIEST else bound.end
        elif wanted > bound.end:
            allowed = f"offsets up to {bound.end}"
            problem = f"{wanted} of partition {partition} is after the end of the log"
            raise InvalidOption(spec.option, problem, allowed)
        found[partition] = wanted
    return found


def read_task(partition: InputPartition, request: ReadRequest) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task; none for the empty task that Spark itself adds."""
    if not isinstance(partition, Task):
        return iter(())
    return to_spark_batches(partition.batches(request), request.schema, request.selection)


class BatchReader(DataSourceReader):
    """Plans tasks in a Python process of the driver, and reads them in Python workers.

    It takes no filters from Spark (`pushFilters`): Spark 4.3 keeps one plan of a reader for each
    DataFrame, so a scan would get the rows of the filters that another scan of it has pushed last.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_columns(schema)
        self._options = options
        self._request = ReadRequest(
            options.selection, arrow_schema(schema), options.fail_on_data_loss
        )

    def partitions(self) -> list[InputPartition]:
        """Split the range into tasks; raise InvalidOption, CannotRead, RangeLost or LogDamaged."""
        options = self._options
        source = open_source(options.where)
        bounds = source.bounds()
        starts = resolve_offsets(source, options.starting, bounds)
        ends = resolve_offsets(source, options.ending, bounds)
        losses = Losses(options, source.name)
        ranges = []
        for partition, start in starts.items():
            bound = bounds[partition]
            whole = Range(partition, start, ends[partition], bound.log)
            left = losses.below_horizon(whole, bound.horizon)
            if left.start < left.end:
                ranges.append(left)
        return list(source.tasks(ranges, self._request, limit=options.task_limit, losses=losses))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task."""
        return read_task(partition, self._request)
