"""A log on Kafka; executors read the row groups of its partitions themselves.

The driver finds the places of ranges. A task has the place of its first record and the heads of
its records, so an executor asks Kafka for nothing but the records.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import pyarrow as pa
import structlog

from penstock.errors import (
    CannotReadKafka,
    LogDamaged,
    LogError,
    LogReplaced,
    OffsetBelowHorizon,
)
from penstock.limits import (
    SPARK_KAFKA_RETRY_SECONDS,
    SPARK_KAFKA_SECONDS_MAX,
    SPARK_TASK_OFFSETS,
    SPARK_TASK_OFFSETS_MIN,
)
from penstock.ports import Matched, PartitionRange, Subscription
from penstock.ports.selection import Selection
from penstock.spark.errors import OtherLog, RangeLost
from penstock.spark.kafka_place import KafkaPlace
from penstock.spark.log_source import (
    Kept,
    LogBounds,
    Losses,
    Range,
    ReadRequest,
    Task,
    lost_while_reading,
)
from penstock.spark.parallelism import TaskLimit, task_count
from penstock.storage.kafka.log_reader import KafkaLogReader
from penstock.storage.kafka.range_reader import RangeReader
from penstock.storage.kafka.scanner import rows_in

__all__ = ["KafkaSource", "KafkaTask"]

log = structlog.get_logger("penstock.spark")

_Answer = TypeVar("_Answer")
_UNKNOWN: Final = ""


class _Retries:
    """Waits between attempts, up to `seconds_max` after the last success."""

    def __init__(self, where: str, seconds_max: float) -> None:
        self._where = where
        self._seconds_max = seconds_max
        self._deadline: float | None = None

    def succeeded(self) -> None:
        self._deadline = None

    def wait(self, error: OSError) -> None:
        """Sleep until the next attempt; raise CannotReadKafka after the deadline."""
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._seconds_max
            if self._seconds_max:
                log.warning("retrying until kafka answers", where=self._where, error=str(error))
        if now >= self._deadline:
            raise CannotReadKafka(self._where, error.strerror or str(error)) from error
        time.sleep(SPARK_KAFKA_RETRY_SECONDS)


class KafkaTask(Task):
    """Offsets of a partition to read from Kafka; the first record is at `place` or later."""

    def __init__(
        self, where: KafkaPlace, span: Range, place: int, heads: Mapping[str, bytes]
    ) -> None:
        super().__init__(None)
        self.where = where
        self.span = span
        self.place = place
        self.heads = heads

    @property
    def rows_max(self) -> int:
        """See Task."""
        return self.span.end - self.span.start

    def batches(self, request: ReadRequest) -> Iterator[pa.RecordBatch]:
        """See Task. Reading resumes after lost offsets, and while Kafka does not answer."""
        options = self.where.options
        retries = _Retries(options.location, SPARK_KAFKA_SECONDS_MAX)
        log_id = int(self.span.log, 16) if self.span.log else 0
        left = PartitionRange(self.span.partition, self.span.start, self.span.end)
        place = self.place
        with contextlib.closing(RangeReader(options, log_id=log_id, heads=self.heads)) as reader:
            while left.start < left.end:
                try:
                    for record in reader.records(left, place, request.selection.overlaps):
                        batch = rows_in(record, left, request.columns)
                        left = left._replace(start=min(record.end_offset, left.end))
                        place = record.place + 1
                        retries.succeeded()
                        yield batch
                    left = left._replace(start=left.end)
                except LogError as error:
                    left = left._replace(start=self._lost(error, left, request))
                except OSError as error:
                    retries.wait(error)

    def _lost(self, error: LogError, left: PartitionRange, request: ReadRequest) -> int:
        """Return the offset after messages that are lost; raise the error with failOnDataLoss."""
        name = self.where.options.location
        where = f"partition {self.span.partition}, {name}"
        if isinstance(error, OffsetBelowHorizon):
            until = min(max(error.horizon, left.start), left.end)
            if request.fail_on_data_loss:
                raise RangeLost(left.start, until, where) from error
        elif isinstance(error, LogReplaced):
            until = left.end
            if request.fail_on_data_loss:
                raise OtherLog(error.expected, error.found, left.start, where) from error
        elif isinstance(error, LogDamaged):
            until = min(max(error.resumes_at, left.start + 1), left.end)
            if request.fail_on_data_loss:
                raise error
        else:
            raise error
        lost_while_reading(error, name, until - left.start)
        return until


class KafkaSource:
    """The LogSource of a log on Kafka. After the first answer, calls retry while it is away."""

    has_index = False

    def __init__(self, where: KafkaPlace) -> None:
        """Raise CannotReadKafka for settings that librdkafka does not have."""
        options = where.options
        self.name = options.location
        self._where = where
        self._log = KafkaLogReader(options)
        self._answered = False

    def bounds(self) -> dict[int, LogBounds]:
        """See LogSource."""
        found = self._retry(self._log.refresh)
        return {
            number: LogBounds(each.horizon, each.end, self._log_id)
            for number, each in found.items()
        }

    @property
    def _log_id(self) -> str:
        return f"{self._log.log_id:012x}" if self._log.log_id else _UNKNOWN

    def _retry(self, call: Callable[[], _Answer]) -> _Answer:
        retries = _Retries(self.name, SPARK_KAFKA_SECONDS_MAX if self._answered else 0)
        while True:
            try:
                found = call()
            except OSError as error:
                retries.wait(error)
            else:
                self._answered = True
                return found

    def offset_at(self, partition: int, timestamp_us: int) -> int:
        """See LogSource."""
        return self._retry(lambda: self._log.scanner.offset_at(partition, timestamp_us))

    def match(self, span: Range, selection: Selection, *, rows_max: int | None = None) -> Matched:
        """See LogSource: Kafka has no index of topics, so the messages of the range are read."""
        whole = PartitionRange(span.partition, span.start, span.end)
        try:
            return self._retry(lambda: self._log.scanner.match(whole, selection, rows_max))
        except OffsetBelowHorizon as error:  # retention removed it meanwhile
            end = min(max(error.horizon, span.start + 1), span.end)
            return Matched(end, end - span.start)

    def kept(self, span: Range, selection: Selection) -> Kept:
        """See LogSource. Which topics Kafka removed is not known: all records count."""
        _ = selection
        horizon = self._log.scanner.bounds()[span.partition].horizon
        until = max(span.start, min(horizon, span.end))
        return Kept(until, until)

    def tasks(
        self, ranges: Sequence[Range], request: ReadRequest, *, limit: TaskLimit, losses: Losses
    ) -> list[Task]:
        """See LogSource: parts with about the same number of Kafka's records."""
        left = [losses.kept(span, self.kept(span, request.selection)) for span in ranges]
        total = sum(span.end - span.start for span in left)
        if not total:
            return []
        count = limit.tasks or task_count(
            total, cores=limit.cores, size_min=SPARK_TASK_OFFSETS_MIN, size_usual=SPARK_TASK_OFFSETS
        )
        heads = {
            number: self._retry(lambda number=number: self._log.heads(number))  # type: ignore[misc]
            for number in {span.partition for span in left}
        }
        return [
            KafkaTask(self._where, part, place, heads[span.partition])
            for span in left
            for part, place in self._split(
                span,
                request.selection,
                max(1, round(count * (span.end - span.start) / total)),
                losses,
            )
        ]

    def _split(
        self, span: Range, selection: Selection, count: int, losses: Losses
    ) -> list[tuple[Range, int]]:
        """Return the parts of a range, each with the place of its first record."""
        while span.start < span.end:
            try:
                return self._retry(lambda span=span: self._parts(span, selection, count))  # type: ignore[misc]
            except OffsetBelowHorizon as error:
                until = min(max(error.horizon, span.start + 1), span.end)
                span = losses.kept(span, Kept(until, until))
            except LogDamaged as error:
                until = min(max(error.resumes_at, span.start + 1), span.end)
                losses.damaged(span.partition, LogDamaged(span.start, until, error.reason))
                span = span._replace(start=until)
        return []

    def _parts(self, span: Range, selection: Selection, count: int) -> list[tuple[Range, int]]:
        whole = PartitionRange(span.partition, span.start, span.end)
        scanner = self._log.scanner
        partition = scanner.partition(span.partition)
        parts = [whole]
        first = partition.place_at(span.start)  # raises LogDamaged for messages at the start only
        if count > 1:
            with contextlib.suppress(LogDamaged):  # at the end: the task finds it
                parts = scanner.split(whole, selection, count)
        return [
            (
                span._replace(start=part.start, end=part.end),
                first if part.start == span.start else partition.place_at(part.start),
            )
            for part in parts
        ]

    def commit(
        self,
        group: str,
        offsets: Mapping[int, int],
        *,
        lost: int,
        subscription: Subscription | None,
    ) -> None:
        """See LogSource: the state topic has the groups of all nodes."""
        self._log.groups.commit(group, offsets, lost=lost, subscription=subscription)
