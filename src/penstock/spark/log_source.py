"""Where records come from, to those who plan and to those who read: a folder or a broker."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from typing import Protocol as Port

import pyarrow as pa
import structlog
from pyspark.sql.datasource import InputPartition

from penstock.errors import LogDamaged, OffsetBelowHorizon
from penstock.ports import Bounds
from penstock.ports.selection import Selection
from penstock.spark.errors import RangeLost
from penstock.spark.options import ReadOptions

__all__ = ["LogSource", "Losses", "Range", "ReadRequest", "Task"]

log = structlog.get_logger("penstock.spark")


class Range(NamedTuple):
    """Offsets of a partition, from `start` up to `end`."""

    partition: int
    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class ReadRequest:
    """What each task is asked for; it goes with the reader."""

    selection: Selection
    schema: pa.Schema
    fail_on_data_loss: bool

    @property
    def columns(self) -> list[str]:
        """The columns that are needed, those that only the selection looks at included."""
        return list(dict.fromkeys((*self.schema.names, *sorted(self.selection.columns))))


class Task(InputPartition, ABC):
    """A part of a range: small, picklable, and whoever has it can read it."""

    @property
    @abstractmethod
    def rows_max(self) -> int:
        """How many records it has at most."""

    @abstractmethod
    def batches(self, request: ReadRequest) -> Iterator[pa.RecordBatch]:
        """Yield its records with the columns that are asked for, or more; filters may be left."""


class LogSource(Port):
    """What plans reading. It lives in the driver's Python process."""

    @property
    def name(self) -> str:
        """Where it is, for messages."""

    def bounds(self) -> dict[int, Bounds]:
        """Return what can be read of each partition now."""

    def offset_at(self, partition: int, timestamp_us: int) -> int:
        """Return the first offset that was taken at or after a time, or the end."""

    def tasks(
        self, ranges: Sequence[Range], request: ReadRequest, *, count: int | None, losses: "Losses"
    ) -> list[Task]:
        """Share ranges out to `count` tasks, to about as many as there are cores without it.

        What is below the horizon, or known to be damaged, is told to `losses` and left out.
        """

    def commit(self, group: str, offsets: Mapping[int, int], *, lost: int) -> None:
        """Report up to where a group has read."""


class Losses:
    """Messages that are gone before they were read: an error, or counted and logged."""

    def __init__(self, options: ReadOptions, where: str) -> None:
        self._fail = options.fail_on_data_loss
        self._where = where
        self.offsets = 0
        """How many are gone since this was last set to 0."""

    def below_horizon(self, span: Range, horizon: int) -> Range:
        """Return what is left of a range; raise RangeLost if none may be lost."""
        if span.start >= horizon:
            return span
        lost_until = min(horizon, span.end)
        if self._fail:
            raise RangeLost(span.start, lost_until, f"partition {span.partition}, {self._where}")
        self._count(span.partition, span.start, lost_until, "retention took them")
        return span._replace(start=lost_until)

    def damaged(self, partition: int, error: LogDamaged) -> None:
        """Take note of messages that cannot be read; raise the error if none may be lost."""
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


def lost_while_reading(error: OffsetBelowHorizon | LogDamaged, where: str, count: int) -> None:
    """Log what was gone when a task came to it."""
    log.warning("messages are lost to this query", where=where, count=count, reason=str(error))
