"""Stream reader: `spark.readStream.format("penstock")`.

An offset of the stream is JSON with the next offset of each partition: `{"0": 1234}`.
`latestOffset` does not advance the stream, and a range has the same rows each time it is read.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import structlog
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.errors import PenstockError
from penstock.ports import Bounds
from penstock.spark.errors import LogWentBack
from penstock.spark.log_source import LogSource, Losses, Range, ReadRequest
from penstock.spark.options import ReadOptions
from penstock.spark.reader import open_source, read_task, resolve_offsets
from penstock.spark.schema import arrow_schema, check_columns

__all__ = ["StreamReader"]

log = structlog.get_logger("penstock.spark")

Offsets = dict[str, int]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches in one Python process for the whole query; tasks run in Python workers."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_columns(schema)
        self._options = options
        self._request = ReadRequest(
            options.selection, arrow_schema(schema), options.fail_on_data_loss
        )
        self._opened: LogSource | None = None
        self._until: dict[int, int] | None = None
        self._reported: dict[int, int] = {}
        self._losses: Losses | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for tasks, without that of planning."""
        return {"_options": self._options, "_request": self._request}

    @property
    def _source(self) -> LogSource:
        if self._opened is None:
            self._opened = open_source(self._options.where)
        return self._opened

    # --- Planning, in the driver

    def initialOffset(self) -> Offsets:  # noqa: N802
        """Return the start of a query without a checkpoint."""
        bounds = self._source.bounds()
        return _to_json_offsets(resolve_offsets(self._source, self._options.starting, bounds))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of one batch: `maxOffsetsPerTrigger`."""
        if self._options.offsets_max is None:
            return ReadAllAvailable()
        return ReadMaxRows(self._options.offsets_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the query at the current end of the log."""
        self._until = {number: each.end for number, each in self._source.bounds().items()}

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """Return the end of the next batch from `start`; raise LogWentBack."""
        begun = _parse_json_offsets(start)
        bounds = self._source.bounds()
        self._report(begun)  # Spark calls this after it has processed all messages before `start`
        ends: dict[int, int] = {}
        for partition, bound in bounds.items():
            first = begun.get(partition, bound.horizon)
            end = bound.end
            if first > end and self._options.fail_on_data_loss:
                raise LogWentBack(first, end, f"partition {partition}, {self._source.name}")
            if self._until is not None:
                end = min(end, self._until.get(partition, end))
            ends[partition] = max(first, end)
        for partition, offset in begun.items():
            ends.setdefault(partition, offset)
        if isinstance(limit, ReadMaxRows):
            ends = _limited(begun, ends, bounds, limit.max_rows)
        return _to_json_offsets(ends)

    def reportLatestOffset(self) -> Offsets:  # noqa: N802
        """Return the end of the log, for Spark's progress report."""
        return _to_json_offsets(
            {number: each.end for number, each in self._source.bounds().items()}
        )

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """Split a range into tasks; raise RangeLost, LogDamaged or LogWentBack."""
        begun, ends = _parse_json_offsets(start), _parse_json_offsets(end)
        bounds = self._source.bounds()
        ranges = []
        for partition, last in ends.items():
            known = bounds.get(partition, Bounds(0, 0))
            first = begun.get(partition, known.horizon)
            if last > known.end:
                raise LogWentBack(last, known.end, f"partition {partition}, {self._source.name}")
            if first < last:
                ranges.append(Range(partition, first, last))
        if self._losses is None:
            self._losses = Losses(self._options, self._source.name)
        return list(
            self._source.tasks(
                ranges, self._request, count=self._options.tasks, losses=self._losses
            )
        )

    def commit(self, end: Offsets) -> None:
        """Report the group's offset: Spark has processed all messages before `end`."""
        self._report(_parse_json_offsets(end))

    def _report(self, offsets: dict[int, int]) -> None:
        """Store the group's offsets at the broker; log a failure, do not raise it."""
        group = self._options.group
        if group is None or offsets == self._reported:
            return
        lost = self._losses.offsets if self._losses is not None else 0
        try:
            self._source.commit(group, offsets, lost=lost)
        except (OSError, PenstockError) as error:
            log.warning("group offset not reported", group=group, error=str(error))
            return
        self._reported = offsets
        if self._losses is not None:
            self._losses.offsets = 0

    # --- Reading, in Python workers

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task."""
        return read_task(partition, self._request)


def _limited(
    begun: dict[int, int], ends: dict[int, int], bounds: dict[int, Bounds], rows_max: int
) -> dict[int, int]:
    """Return ends for a batch of about `rows_max` offsets, in proportion to the partitions' lag.

    Offsets that retention removed do not count.
    """
    firsts = {
        partition: max(begun.get(partition, 0), bounds[partition].horizon)
        if partition in bounds
        else end
        for partition, end in ends.items()
    }
    total = sum(max(end - firsts[partition], 0) for partition, end in ends.items())
    if total <= rows_max:
        return ends
    return {
        partition: firsts[partition] + max(1, rows_max * (end - firsts[partition]) // total)
        if end > firsts[partition]
        else end
        for partition, end in ends.items()
    }


def _parse_json_offsets(offsets: Offsets | None) -> dict[int, int]:
    return {int(partition): offset for partition, offset in (offsets or {}).items()}


def _to_json_offsets(offsets: dict[int, int]) -> Offsets:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}
