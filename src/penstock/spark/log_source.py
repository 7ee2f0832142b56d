"""The interface of a log that Spark reads: planning in the driver, tasks in the executors."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from typing import Protocol as Port

import pyarrow as pa
import structlog
from pyspark.sql.datasource import InputPartition

from penstock.errors import LogDamaged, LogReplaced, OffsetBelowHorizon
from penstock.ports import Matched, Subscription
from penstock.ports.selection import Selection
from penstock.spark.errors import RangeLost
from penstock.spark.options import ReadOptions
from penstock.spark.parallelism import TaskLimit

__all__ = [
    "TRACE_COLUMNS",
    "Kept",
    "LogBounds",
    "LogSource",
    "Losses",
    "Range",
    "ReadRequest",
    "Task",
]

log = structlog.get_logger("penstock.spark")

TRACE_COLUMNS: Final = ("topic", "partition", "offset", "headers", "message_id")
"""Columns of the spans of traced messages."""


class LogBounds(NamedTuple):
    """The readable offsets of a partition, from `horizon` to `end` (exclusive), and the log's id.

    `log` is empty if the id is unknown.
    """

    horizon: int
    end: int
    log: str = ""


class Kept(NamedTuple):
    """The part of a range that retention has left: it starts at `start`.

    Selected records before `lost_until` may have been removed; none was if that is the start of the
    range.
    """

    lost_until: int
    start: int


class Range(NamedTuple):
    """Offsets of a partition, from `start` to `end` (exclusive).

    `log` is the id of the log that they belong to; it is empty if the id is unknown.
    """

    partition: int
    start: int
    end: int
    log: str = ""


@dataclasses.dataclass(frozen=True)
class ReadRequest:
    """The rows and columns that each task reads; pickled with the reader."""

    selection: Selection
    schema: pa.Schema
    fail_on_data_loss: bool
    traces: str | None = None
    """The URL of a collector for spans of traced messages."""

    @property
    def columns(self) -> list[str]:
        """The columns to read, including those that only the selection or traces need."""
        traced = () if self.traces is None else TRACE_COLUMNS
        names = (*self.schema.names, *sorted(self.selection.columns), *traced)
        return list(dict.fromkeys(names))


class Task(InputPartition, ABC):
    """A part of a range: small and picklable, with everything an executor needs to read it."""

    @property
    @abstractmethod
    def rows_max(self) -> int:
        """The upper bound of its records."""

    @abstractmethod
    def batches(self, request: ReadRequest) -> Iterator[pa.RecordBatch]:
        """Yield its records. They may have more columns and rows than requested."""


class LogSource(Port):
    """A log that Spark can read. It plans the tasks, in the driver's Python process."""

    @property
    def name(self) -> str:
        """The folder, endpoint or URL, for messages."""

    @property
    def has_index(self) -> bool:
        """Whether `match` looks into an index; without one it reads the messages."""

    def bounds(self) -> dict[int, LogBounds]:
        """Return the offsets that each partition has now, and the log that has them."""

    def offset_at(self, partition: int, timestamp_us: int) -> int:
        """Return the offset of the first record at or after a time, or the end."""

    def match(self, span: Range, selection: Selection, *, rows_max: int | None = None) -> Matched:
        """Count the selected records of a range, at most `rows_max`, and find their end.

        Records that are lost are counted, since they may have been selected.
        """

    def kept(self, span: Range, selection: Selection) -> Kept:
        """Tell whether retention removed selected records of a range, and which part is left."""

    def tasks(
        self, ranges: Sequence[Range], request: ReadRequest, *, limit: TaskLimit, losses: "Losses"
    ) -> list[Task]:
        """Divide ranges into tasks.

        Records that retention removed, or that are known to be damaged, are reported to `losses`
        and left out.
        """

    def commit(
        self,
        group: str,
        offsets: Mapping[int, int],
        *,
        lost: int,
        subscription: Subscription | None,
    ) -> None:
        """Commit the offsets of a consumer group, and report the topics that it reads."""


class Losses:
    """Messages that were lost before they were read: raised as an error, or counted and logged."""

    def __init__(self, options: ReadOptions, where: str) -> None:
        self._fail = options.fail_on_data_loss
        self._where = where
        self.offsets = 0
        """Lost messages since this was last set to 0."""

    def kept(self, span: Range, kept: Kept) -> Range:
        """Return the part of a range that is left; raise RangeLost with failOnDataLoss."""
        if kept.lost_until > span.start:
            if self._fail:
                where = f"partition {span.partition}, {self._where}"
                raise RangeLost(span.start, kept.lost_until, where)
            self._count(span.partition, span.start, kept.lost_until, "retention took them")
        return span._replace(start=kept.start)

    def damaged(self, partition: int, error: LogDamaged) -> None:
        """Count messages that cannot be read; raise the error with failOnDataLoss."""
        if self._fail:
            raise error
        self._count(partition, error.offset, error.resumes_at, error.reason)

    def _count(self, partition: int, first: int, until: int, reason: str) -> None:
        self.offsets += until - first
        log.warning(
            "messages are lost to this query",
            where=self._where,
            partition=partition,
            first_offset=first,
            last_offset=until - 1,
            count=until - first,
            reason=reason,
        )


def lost_while_reading(
    error: OffsetBelowHorizon | LogDamaged | LogReplaced, where: str, count: int
) -> None:
    """Log messages that were lost before a task read them."""
    log.warning("messages are lost to this query", where=where, count=count, reason=str(error))
