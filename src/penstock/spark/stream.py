"""Stream reader: `spark.readStream.format("penstock")`.

An offset of the stream has the id of the log and the next offset of each partition; see
stream_offsets. `latestOffset` does not advance the stream, and a range has the same rows each time
it is read. A stream of some topics does not move while only others get messages; see batch_ends.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import structlog
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.errors import PenstockError
from penstock.spark.batch_ends import BatchEnds, limited_ends
from penstock.spark.errors import LogWentBack, OtherLog
from penstock.spark.joining import joining_selection, subscription_of, subscription_text
from penstock.spark.log_source import LogBounds, LogSource, Losses, Range, ReadRequest, Task
from penstock.spark.offset_spec import NamedOffset
from penstock.spark.options import ReadOptions
from penstock.spark.planning import bounds_to_read, plan_tasks, resolve_offsets
from penstock.spark.reader import open_source, read_task
from penstock.spark.schema import arrow_schema, check_columns
from penstock.spark.stream_offsets import (
    BatchStart,
    JsonOffsets,
    LogOffset,
    Subscribed,
    parse_batch_start,
    parse_stream_offsets,
    parse_subscribed,
    to_json_offsets,
)
from penstock.spark.topic_ranges import (
    Section,
    TopicOffsets,
    parse_starts,
    sections,
    starts_ahead,
    starts_text,
)
from penstock.spark.trigger_delay import TriggerDelay

__all__ = ["StreamReader"]

log = structlog.get_logger("penstock.spark")

_NO_START: Final = BatchStart()


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches in one Python process for the whole query; tasks run in Python workers."""

    def __init__(
        self,
        options: ReadOptions,
        schema: StructType,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_columns(schema)
        self._options = options
        self._request = ReadRequest(
            options.selection, arrow_schema(schema), options.fail_on_data_loss, options.traces
        )
        self._opened: LogSource | None = None
        self._ends: BatchEnds | None = None
        self._initial: JsonOffsets | None = None
        self._last: JsonOffsets = {}
        self._latest: dict[int, int] = {}
        least = options.offsets_min
        self._delay = (
            None if least is None else TriggerDelay(least, options.delay_seconds_max, clock=clock)
        )
        self._until: dict[int, int] | None = None
        self._reported: dict[int, int] = {}
        self._losses: Losses | None = None
        self._logs: dict[int, str] = {}
        self._replaced: set[tuple[str, str]] = set()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for tasks, without that of planning."""
        return {"_options": self._options, "_request": self._request}

    @property
    def _source(self) -> LogSource:
        if self._opened is None:
            self._opened = open_source(self._options.where)
        return self._opened

    @property
    def _batch_ends(self) -> BatchEnds:
        if self._ends is None:
            self._ends = BatchEnds(self._source, self._options.selection)
        return self._ends

    # --- Planning, in the driver

    def _bounds(self) -> dict[int, LogBounds]:
        found = bounds_to_read(self._source, self._options)
        self._logs = {partition: each.log for partition, each in found.items()}
        return found

    def initialOffset(self) -> JsonOffsets:  # noqa: N802
        """Return the start of a query without a checkpoint."""
        bounds = self._bounds()
        options = self._options
        starts = resolve_offsets(self._source, options.starting, bounds, options.selection)
        lowest = {number: each.lowest for number, each in starts.items()}
        begins = BatchStart(starts_text(starts, lowest))
        self._initial = self._offsets(lowest, bounds, begins)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of one batch: `maxOffsetsPerTrigger` or `minOffsetsPerTrigger`.

        Spark takes one limit of a Python source. `latestOffset` applies the other one itself.
        """
        if self._options.offsets_max is not None:
            return ReadMaxRows(self._options.offsets_max)
        if self._options.offsets_min is not None:
            return ReadMinRows(self._options.offsets_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the query at the current end of the log."""
        self._until = {number: each.end for number, each in self._bounds().items()}

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:  # noqa: N802
        """Return the end of the next batch from `start`, which is `start` if it has no rows.

        Raise LogWentBack or OtherLog.
        """
        bounds = self._bounds()
        begun = self._resume(start, bounds)
        self._report(begun)  # Spark calls this after it has processed all messages before `start`
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        joining = self._joining(start)
        if joining is not None:
            return self._history_end(joining, start, begun, bounds, rows_max)
        ends = self._available(begun, bounds)
        starts = {
            number: begun.get(number, bounds[number].horizon if number in bounds else end)
            for number, end in ends.items()
        }
        before = self._batch_start(start, bounds)
        topics = starts_ahead(before.starts, starts)
        firsts: dict[int, int] = {}
        until = ends
        if self._options.selection.columns or topics:
            found = self._batch_ends.find(starts, ends, bounds, topics, rows_max=rows_max)
            ends = {number: each.end for number, each in found.items()}
            firsts = {
                number: each.first for number, each in found.items() if each.first > starts[number]
            }
            self._latest = {} if rows_max is not None and ends != starts else ends
        elif rows_max is not None:
            ends = limited_ends(begun, ends, bounds, rows_max=rows_max)
        spans = [
            Range(number, starts[number], end, bounds[number].log)
            for number, end in until.items()
            if number in bounds
        ]
        is_all = isinstance(limit, ReadAllAvailable)
        if ends == starts or (not is_all and self._is_delayed(start, spans, bounds, topics)):
            self._last = self._offsets(starts, bounds, before)
            return self._last
        if start == self._initial:
            firsts = {**starts, **firsts}
        batch = BatchStart(starts_text(topics, starts), firsts)
        self._last = self._offsets(ends, bounds, batch)
        return self._last

    @staticmethod
    def _batch_start(offsets: JsonOffsets, bounds: Mapping[int, LogBounds]) -> BatchStart:
        """Return the start of the batch that ends at an offset, none if that is of another log."""
        for partition, each in parse_stream_offsets(offsets).items():
            if partition in bounds and not each.is_of(bounds[partition].log):
                return _NO_START
        return parse_batch_start(offsets)

    def _available(
        self, begun: Mapping[int, int], bounds: Mapping[int, LogBounds]
    ) -> dict[int, int]:
        """Return the end of each partition, or of the query; raise LogWentBack."""
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
        return ends

    def _is_delayed(
        self,
        start: JsonOffsets,
        spans: list[Range],
        bounds: Mapping[int, LogBounds],
        topics: Mapping[int, TopicOffsets],
    ) -> bool:
        """Return whether to wait for more rows. A query that ends at its end reads all."""
        if self._delay is None or self._until is not None:
            return False
        return self._delay.is_delayed(
            start, lambda: sum(self._count(span, bounds, topics) for span in spans)
        )

    def _count(
        self,
        span: Range,
        bounds: Mapping[int, LogBounds],
        topics: Mapping[int, TopicOffsets],
    ) -> int:
        """Return the number of rows of a range."""
        bound = bounds[span.partition]
        if self._options.selection.columns or topics:
            return self._batch_ends.count(span, bound, topics.get(span.partition))
        return max(span.end - max(span.start, bound.horizon), 0)

    def _joining(self, start: JsonOffsets) -> Subscribed | None:
        """Return the state of topics that join the stream at `start`, None if none do."""
        subscribed = parse_subscribed(start)
        if subscribed.history is not None:
            return subscribed
        current = subscription_text(self._options.selection)
        # Without a subscription, all topics were read, or which is not known.
        if not subscribed.subscription or subscribed.subscription == current:
            return None
        if self._options.new_topics is NamedOffset.LATEST:
            return None
        return Subscribed(subscribed.subscription, current, {})

    def _history_end(
        self,
        joining: Subscribed,
        at: JsonOffsets,
        begun: Mapping[int, int],
        bounds: Mapping[int, LogBounds],
        rows_max: int | None,
    ) -> JsonOffsets:
        """Return the end of the next batch of the history of topics that join."""
        selection = joining_selection(joining.subscription, joining.joining)
        history = dict(joining.history or {})
        rows = 0
        for partition, end in begun.items():
            bound = bounds.get(partition)
            if bound is None:
                continue
            start = history.setdefault(partition, bound.horizon)
            left = None if rows_max is None else rows_max - rows
            if start < end and left != 0:
                span = Range(partition, start, end, bound.log)
                found = self._source.match(span, selection, rows_max=left)
                history[partition] = found.end
                rows += found.rows
        state = Subscribed(joining.subscription, joining.joining, history)
        if not rows:
            state = Subscribed(joining.joining)
        starts = BatchStart(self._batch_start(at, bounds).starts)
        return {**_of_logs(begun, bounds), **state.to_json(), **starts.to_json()}

    def _offsets(
        self,
        offsets: Mapping[int, int],
        bounds: Mapping[int, LogBounds],
        batch: BatchStart = _NO_START,
    ) -> JsonOffsets:
        """Return offsets with their logs, the subscription and the start of the batch."""
        subscribed = Subscribed(subscription_text(self._options.selection))
        return {**_of_logs(offsets, bounds), **subscribed.to_json(), **batch.to_json()}

    def reportLatestOffset(self) -> JsonOffsets:  # noqa: N802
        """Return the end of the subscribed topics, for Spark's progress report.

        It is the end of the log if there is more than fits a batch, or nothing was read yet.
        """
        bounds = self._bounds()
        ends = {number: self._latest.get(number, each.end) for number, each in bounds.items()}
        found = self._offsets(ends, bounds)
        same = parse_stream_offsets(self._last) == parse_stream_offsets(found)
        return self._last if same else found

    def count_after(self, start: JsonOffsets) -> int:
        """Return the number of rows of the stream after an offset; raise OtherLog."""
        bounds = self._bounds()
        begun = self._resume(start, bounds)
        topics = starts_ahead(self._batch_start(start, bounds).starts, begun)
        rows = 0
        for partition, bound in bounds.items():
            first = max(begun.get(partition, bound.horizon), bound.horizon)
            if first < bound.end:
                rows += self._count(Range(partition, first, bound.end, bound.log), bounds, topics)
        return rows

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> list[InputPartition]:
        """Split a range into tasks; raise RangeLost, LogDamaged, LogWentBack or OtherLog.

        If another log has replaced the one of the range, the messages of the range are lost.
        """
        bounds = self._bounds()
        joining = parse_subscribed(end)
        ends = self._in_current_log(end, bounds)
        if joining.history is not None:
            history = {each: joining.history[each] for each in joining.history if each in ends}
            return self._history_tasks(
                joining._replace(history=history), parse_subscribed(start), bounds
            )
        begun = self._resume(start, bounds) if ends else {}
        batch = parse_batch_start(end)
        topics = parse_starts(batch.starts)
        selection = self._options.selection
        parts: list[Section] = []
        for partition, last in ends.items():
            known = bounds.get(partition, LogBounds(0, 0))
            first = begun.get(partition, known.horizon)
            if last > known.end:
                raise LogWentBack(last, known.end, f"partition {partition}, {self._source.name}")
            first = (batch.first or {}).get(partition, first)
            span = self._batch_ends.skip_empty(Range(partition, first, last, known.log))
            if span.start < span.end:
                starts = topics.get(partition, TopicOffsets(span.start))
                parts += sections(span, selection, starts, TopicOffsets(span.end))
        return list(self._tasks(parts))

    def _tasks(self, parts: list[Section]) -> list[Task]:
        if self._losses is None:
            self._losses = Losses(self._options, self._source.name)
        return plan_tasks(
            self._source,
            parts,
            self._request,
            options=self._options,
            losses=self._losses,
        )

    def _history_tasks(
        self, end: Subscribed, start: Subscribed, bounds: Mapping[int, LogBounds]
    ) -> list[InputPartition]:
        """Split a range of the history of topics that join into tasks."""
        selection = joining_selection(end.subscription, end.joining)
        parts = []
        for partition, last in (end.history or {}).items():
            bound = bounds.get(partition, LogBounds(0, 0))
            first = (start.history or {}).get(partition, bound.horizon)
            if first < last:
                parts.append(Section(Range(partition, first, last, bound.log), selection))
        return list(self._tasks(parts))

    def commit(self, end: JsonOffsets) -> None:
        """Report the group's offset: Spark has processed all messages before `end`."""
        found = parse_stream_offsets(end).items()
        self._report(
            {
                number: each.offset
                for number, each in found
                if each.is_of(self._logs.get(number, ""))
            }
        )

    def _resume(self, offsets: JsonOffsets, bounds: Mapping[int, LogBounds]) -> dict[int, int]:
        """Return the next offset of each partition, from the beginning of a log that is new.

        Raise OtherLog with failOnDataLoss.
        """
        found = self._in_current_log(offsets, bounds)
        for partition in parse_stream_offsets(offsets).keys() - found.keys():
            found[partition] = bounds[partition].horizon
        return found

    def _in_current_log(
        self, offsets: JsonOffsets, bounds: Mapping[int, LogBounds]
    ) -> dict[int, int]:
        """Return the offsets that belong to the current log.

        Log each that belongs to another log, once; raise OtherLog with failOnDataLoss.
        """
        found: dict[int, int] = {}
        for partition, each in parse_stream_offsets(offsets).items():
            log_id = bounds[partition].log if partition in bounds else ""
            if each.is_of(log_id):
                found[partition] = each.offset
                continue
            where = f"partition {partition}, {self._source.name}"
            error = OtherLog(each.log, log_id, each.offset, where)
            if self._options.fail_on_data_loss:
                raise error
            if (each.log, log_id) not in self._replaced:
                self._replaced.add((each.log, log_id))
                log.warning(
                    "the log was replaced: reading the new one from its beginning",
                    where=where,
                    old_log=each.log,
                    old_offset=each.offset,
                    new_log=log_id,
                )
        return found

    def _report(self, offsets: dict[int, int]) -> None:
        """Store the group's offsets at the broker; log a failure, do not raise it."""
        group = self._options.group
        if group is None or not offsets or offsets == self._reported:
            return
        lost = self._losses.offsets if self._losses is not None else 0
        try:
            subscription = subscription_of(self._options.selection)
            self._source.commit(group, offsets, lost=lost, subscription=subscription)
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


def _of_logs(offsets: Mapping[int, int], bounds: Mapping[int, LogBounds]) -> JsonOffsets:
    """Return offsets with the ids of the logs that they belong to."""
    return to_json_offsets(
        {
            partition: LogOffset(bounds[partition].log if partition in bounds else "", offset)
            for partition, offset in offsets.items()
        }
    )
