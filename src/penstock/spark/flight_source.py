"""A log that a broker serves by Arrow Flight; no shared folder is needed."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from penstock.errors import LogDamaged, LogReplaced, OffsetBelowHorizon
from penstock.flight.errors import BadRequest
from penstock.flight.protocol import Match, ReadRange, Splits
from penstock.limits import SPARK_TASK_OFFSETS, SPARK_TASK_OFFSETS_MIN
from penstock.ports import Matched, Subscription
from penstock.ports.selection import Selection
from penstock.spark.errors import OtherLog, RangeLost
from penstock.spark.log_source import (
    Kept,
    LogBounds,
    Losses,
    Range,
    ReadRequest,
    Task,
    lost_while_reading,
)
from penstock.spark.options import Broker
from penstock.spark.parallelism import TaskLimit, task_count
from penstock.spark.retrying_client import RetryingClient

__all__ = ["FlightSource", "FlightTask"]


class FlightTask(Task):
    """Offsets of a partition to read from a broker."""

    def __init__(self, broker: Broker, span: Range) -> None:
        super().__init__(None)
        self.broker = broker
        self.span = span

    @property
    def rows_max(self) -> int:
        """See Task."""
        return self.span.end - self.span.start

    def batches(self, request: ReadRequest) -> Iterator[pa.RecordBatch]:
        """See Task. The broker filters as far as it can; reading resumes after lost offsets.

        While the broker cannot be reached, the client retries.
        """
        start, end = self.span.start, self.span.end
        with self.broker.client() as client:
            while start < end:
                ticket = _ticket(self.span._replace(start=start), request)
                try:
                    for batch in client.read(ticket):
                        if len(batch):
                            start = batch.column("offset")[-1].as_py() + 1
                        yield batch
                    start = end
                except OffsetBelowHorizon as error:
                    until = min(error.horizon, end)
                    if until <= start:  # the lost offsets were read before: request the rest
                        continue
                    if request.fail_on_data_loss:
                        where = f"partition {self.span.partition}, {self.broker.endpoint}"
                        raise RangeLost(start, until, where) from error
                    lost_while_reading(error, self.broker.endpoint, until - start)
                    start = until
                except LogReplaced as error:
                    where = f"partition {self.span.partition}, {self.broker.endpoint}"
                    if request.fail_on_data_loss:
                        raise OtherLog(error.expected, error.found, start, where) from error
                    lost_while_reading(error, self.broker.endpoint, end - start)
                    start = end
                except LogDamaged as error:
                    until = min(max(error.resumes_at, error.offset + 1), end)
                    if until <= start:
                        continue
                    if request.fail_on_data_loss:
                        raise
                    lost = until - max(error.offset, start)
                    lost_while_reading(error, self.broker.endpoint, lost)
                    start = until


def _ticket(span: Range, request: ReadRequest) -> ReadRange:
    selection = request.selection
    columns = request.columns
    if "offset" not in columns:
        columns = [*columns, "offset"]  # to know where to resume
    topics, patterns, expression = _subscription(selection)
    return ReadRange(
        start=span.start,
        end=span.end,
        partition=span.partition,
        topics=topics,
        patterns=patterns,
        expression=expression,
        kinds=None if selection.kinds is None else sorted(selection.kinds),
        protocols=None if selection.protocols is None else sorted(selection.protocols),
        since_us=selection.since_us,
        until_us=selection.until_us,
        columns=columns,
        log=span.log,
    )


def _subscription(
    selection: Selection,
) -> tuple[list[str] | None, list[str] | None, str | None]:
    """Return topics, patterns and expression of a request."""
    return (
        None if selection.topics is None else sorted(selection.topics),
        None if selection.patterns is None else list(selection.patterns),
        selection.expression,
    )


class FlightSource:
    """The LogSource of a broker. After the first answer, calls retry while it cannot be reached."""

    has_index = True

    def __init__(self, broker: Broker) -> None:
        self.name = broker.endpoint
        self._broker = broker
        self._client: RetryingClient = broker.client(expected=False)
        self._known: dict[int, LogBounds] = {}

    def bounds(self) -> dict[int, LogBounds]:
        """See LogSource."""
        self._known = {
            partition: LogBounds(each.horizon, each.end, each.log)
            for partition, each in self._client.bounds().items()
        }
        return self._known

    def offset_at(self, partition: int, timestamp_us: int) -> int:
        """See LogSource."""
        return self._client.offset_at(timestamp_us, partition=partition)

    def match(self, span: Range, selection: Selection, *, rows_max: int | None = None) -> Matched:
        """See LogSource. An older broker cannot tell: all records count."""
        try:
            found = self._match(span, selection, rows_max)
        except OffsetBelowHorizon as error:  # retention removed it meanwhile
            end = min(max(error.horizon, span.start + 1), span.end)
            return Matched(end, end - span.start)
        except BadRequest as error:
            if not error.request.startswith("action "):
                raise
            end = span.end if rows_max is None else min(span.end, span.start + rows_max)
            return Matched(end, end - span.start)
        return found

    def _match(self, span: Range, selection: Selection, rows_max: int | None) -> Matched:
        topics, patterns, expression = _subscription(selection)
        found = self._client.match(
            Match(
                start=span.start,
                end=span.end,
                partition=span.partition,
                topics=topics,
                patterns=patterns,
                expression=expression,
                rows_max=rows_max,
                log=span.log,
            )
        )
        return Matched(found.end, found.rows, found.first)

    def kept(self, span: Range, selection: Selection) -> Kept:
        """See LogSource. For an older broker, any record below the horizon is lost."""
        known = self._known.get(span.partition)
        if known is None or span.start >= min(known.horizon, span.end):
            return Kept(span.start, span.start)
        below = span._replace(end=min(known.horizon, span.end))
        try:
            found = self._match(below, selection, 1)
        except OffsetBelowHorizon as error:
            until = min(max(error.horizon, below.end), span.end)
            return Kept(until, until)
        except BadRequest as error:
            if not error.request.startswith("action "):
                raise
            return Kept(below.end, below.end)
        # A broker that was restarted shows messages again until retention has run. They count.
        return Kept(below.end if found.rows else span.start, below.end)

    def tasks(
        self, ranges: Sequence[Range], request: ReadRequest, *, limit: TaskLimit, losses: Losses
    ) -> list[Task]:
        """See LogSource: the broker cuts between groups."""
        left = [losses.kept(span, self.kept(span, request.selection)) for span in ranges]
        total = sum(span.end - span.start for span in left)
        if not total:
            return []
        count = limit.tasks or task_count(
            total, cores=limit.cores, size_min=SPARK_TASK_OFFSETS_MIN, size_usual=SPARK_TASK_OFFSETS
        )
        return [
            FlightTask(self._broker, part)
            for span in left
            if span.start < span.end
            for part in self._split(
                span, request.selection, max(1, round(count * (span.end - span.start) / total))
            )
        ]

    def _split(self, span: Range, selection: Selection, count: int) -> list[Range]:
        if count == 1:
            return [span]
        topics, patterns, expression = _subscription(selection)
        parts = self._client.splits(
            Splits(
                start=span.start,
                end=span.end,
                count=count,
                partition=span.partition,
                topics=topics,
                patterns=patterns,
                expression=expression,
            )
        )
        return [span._replace(start=part.start, end=part.end) for part in parts]

    def commit(
        self,
        group: str,
        offsets: Mapping[int, int],
        *,
        lost: int,
        subscription: Subscription | None,
    ) -> None:
        """See LogSource."""
        self._client.commit_group(group, dict(offsets), lost=lost, subscription=subscription)
