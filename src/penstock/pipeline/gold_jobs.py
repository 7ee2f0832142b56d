"""The jobs of the gold tables: what is new, merged into what is there, once."""

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.pipeline import gold
from penstock.pipeline.bronze import positions_of
from penstock.pipeline.config import GoldConfig
from penstock.pipeline.files import DataFile
from penstock.pipeline.positions import Slice, plan, within

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.pipeline.progress import StageProgress
    from penstock.pipeline.tables import Table
    from penstock.pipeline.warehouse import Warehouse

__all__ = ["REVISION", "ExchangesJob", "GoldJob", "LatencyJob", "SessionsJob", "TrafficJob"]

REVISION: Final = "revision"
_INPUT: Final = "input"
_NOW: Final = "now"
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_DAY: Final = dt.timedelta(days=1)
_FOREVER: Final = dt.datetime(9999, 12, 31, tzinfo=dt.UTC)


class _Span(NamedTuple):
    """The days that new rows are of, and their first moment."""

    first: dt.date
    last: dt.date
    since: dt.datetime


class GoldJob(ABC):
    """Brings a gold table up to bronze: the part of it that new records change is replaced."""

    table_name = ""
    moment = ""

    def __init__(
        self,
        spark: "SparkSession",
        warehouse: "Warehouse",
        config: GoldConfig,
        *,
        rows_max: int,
        excluded: Sequence[str] = (),
    ) -> None:
        self.name = f"gold.{self.table_name}"
        self.table: Table = warehouse.gold(self.table_name)
        self._config = config
        self._spark = spark
        self._rows_max = rows_max
        self._excluded = excluded
        self._bronze = warehouse.bronze()

    def step(self, stage: "StageProgress") -> bool:
        """Take the next records; tell whether there were any to look at."""
        from pyspark.sql import functions as f  # noqa: PLC0415

        until = positions_of(self._bronze)
        found = self.table.exists()
        done = {key: (self.table.log.mark(key.name) or 0) if found else 0 for key in until}
        files = self._bronze.log.files() if until else ()
        slices = plan(files, done=done, until=until, rows_max=self._rows_max)
        if not slices:
            stage.lag = 0
            return False
        records = self._bronze.read(self._spark, _overlapping(files, slices)).where(within(slices))
        if self._excluded:
            records = records.where(~f.col("topic").isin(*self._excluded))
        revision = 1 + ((self.table.log.mark(REVISION) or 0) if found else 0)
        new = self.compute(records, revision).persist()
        try:
            self.table.fit(new)
            stage.batch_rows = self._merge(new, slices, revision)
        finally:
            new.unpersist()
        stage.lag = sum(until.values()) - sum(
            {**done, **{each.stream: each.end for each in slices}}.values()
        )
        return True

    def _merge(self, new: "DataFrame", slices: Sequence[Slice], revision: int) -> int:
        from pyspark.sql import functions as f  # noqa: PLC0415

        marks = {each.stream.name: each.end for each in slices} | {REVISION: revision}
        row = new.agg(f.min("day"), f.max("day"), f.min(self.moment), f.count("*")).first()
        if row is None or not row[3]:
            self.table.commit(marks=marks)
            return 0
        old = self.affected(_Span(*row[:3]))
        merged = self.merge(self.table.read(self._spark, old), new) if old else new
        files = self.table.write(merged.coalesce(1))
        self.table.commit(add=files, remove=old, marks=marks)
        return int(row[3])

    @abstractmethod
    def compute(self, records: "DataFrame", revision: int) -> "DataFrame":
        """Return the table of records alone."""

    @abstractmethod
    def merge(self, old: "DataFrame", new: "DataFrame") -> "DataFrame":
        """Return the table of what is there and what is new."""

    def affected(self, span: "_Span") -> list[DataFile]:
        """Return the files with rows that new ones may change: those of the same days."""
        return _of_days(self.table.log.files(), span.first, span.last)


class TrafficJob(GoldJob):
    """Messages and bytes by topic, protocol and window."""

    table_name = "traffic"
    moment = "window_start"

    def compute(self, records: "DataFrame", revision: int) -> "DataFrame":
        """Return the traffic of records."""
        return gold.traffic(
            records, window_seconds=self._config.traffic_window_seconds, revision=revision
        )

    def merge(self, old: "DataFrame", new: "DataFrame") -> "DataFrame":
        """Return the sum of both."""
        return gold.merged_traffic(old, new)


class ExchangesJob(GoldJob):
    """Requests with their replies. A reply finds a request of the day before, no older one.

    New ones change no exchange that is further away than a day.
    """

    table_name = "exchanges"
    moment = "replied"

    def compute(self, records: "DataFrame", revision: int) -> "DataFrame":
        """Return the exchanges of records."""
        return gold.exchanges(records, revision=revision)

    def merge(self, old: "DataFrame", new: "DataFrame") -> "DataFrame":
        """Return pairs of both."""
        return gold.merged_exchanges(old, new)

    def affected(self, span: "_Span") -> list[DataFile]:
        """Return the files of the same days, of the day before and of the day after."""
        return _of_days(self.table.log.files(), span.first - _DAY, span.last + _DAY)


class SessionsJob(GoldJob):
    """Sessions of senders."""

    table_name = "sessions"
    moment = "started"

    def compute(self, records: "DataFrame", revision: int) -> "DataFrame":
        """Return the sessions of records."""
        return gold.sessions(
            records, gap_seconds=self._config.session_gap_seconds, revision=revision
        )

    def merge(self, old: "DataFrame", new: "DataFrame") -> "DataFrame":
        """Return sessions of both."""
        return gold.merged_sessions(old, new, gap_seconds=self._config.session_gap_seconds)

    def affected(self, span: "_Span") -> list[DataFile]:
        """Return the files with sessions that ended within the gap before the new ones."""
        gap = dt.timedelta(seconds=self._config.session_gap_seconds, milliseconds=1)
        since = span.since.astimezone(dt.UTC) - gap
        return [each for each in self.table.log.files() if each.overlaps("ended", since, _FOREVER)]


class LatencyJob:
    """How fast requests are answered: computed anew for the days whose exchanges changed."""

    table_name = "latency"

    def __init__(self, spark: "SparkSession", warehouse: "Warehouse", config: GoldConfig) -> None:
        self.name = "gold.latency"
        self.table: Table = warehouse.gold(self.table_name)
        self._pairs = warehouse.gold("exchanges")
        self._bronze = warehouse.bronze()
        self._config = config
        self._spark = spark

    def step(self, stage: "StageProgress") -> bool:
        """Take what changed; tell whether there was anything."""
        from pyspark.sql import functions as f  # noqa: PLC0415

        if not self._pairs.exists() or not self._bronze.exists():
            return False
        found = self.table.exists()
        done = (self.table.log.mark(_INPUT) or 0) if found else 0
        last = self._pairs.log.mark(REVISION) or 0
        if last <= done:
            return False
        pairs = self._pairs.read(self._spark)
        now = self._now()
        due = self._last_due(found=found)
        changed = f.col(REVISION) > done
        if due is not None:  # those that were not unanswered yet
            changed |= f.col("replied").isNull() & (f.col("requested") >= f.lit(due))
        days = [row[0] for row in pairs.where(changed).select("day").distinct().collect()]
        revision = 1 + ((self.table.log.mark(REVISION) or 0) if found else 0)
        frame = gold.latency(
            pairs.where(f.col("day").isin(*days)) if days else pairs.limit(0),
            window_seconds=self._config.latency_window_seconds,
            unanswered_seconds=self._config.unanswered_seconds,
            now=now,
            revision=revision,
        )
        self.table.fit(frame)
        old = [each for each in self.table.log.files() if each.day in set(map(str, days))]
        files = self.table.write(_unchanged_kept(self.table.read(self._spark, old), frame))
        self.table.commit(
            add=files,
            remove=old,
            marks={_INPUT: last, REVISION: revision, _NOW: (now - _EPOCH) // _MICROSECOND},
        )
        stage.batch_rows = sum(each.rows for each in files)
        return True

    def _last_due(self, *, found: bool) -> dt.datetime | None:
        """Return the time before which requests were unanswered the last time."""
        mark = self.table.log.mark(_NOW) if found else None
        if mark is None:
            return None
        return _EPOCH + mark * _MICROSECOND - dt.timedelta(seconds=self._config.unanswered_seconds)

    def _now(self) -> dt.datetime:
        """Return the time of the last message: what is computed of a log depends on it alone."""
        newest = [each.high.get("timestamp") for each in self._bronze.log.files()]
        return max(filter(None, newest), default=dt.datetime.now(dt.UTC))


def _unchanged_kept(old: "DataFrame", new: "DataFrame") -> "DataFrame":
    """Return `new`, where a row that was there has the revision that it had."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    columns = [name for name in new.columns if name != REVISION]
    return (
        old.select(*new.columns)
        .withColumn("is_new", f.lit(0))
        .unionByName(new.withColumn("is_new", f.lit(1)))
        .groupBy(*columns)
        .agg(f.min(REVISION).alias(REVISION), f.max("is_new").alias("is_new"))
        .where(f.col("is_new") == 1)
        .select(*new.columns)
    )


def _overlapping(files: Sequence[DataFile], slices: Sequence[Slice]) -> list[DataFile]:
    return [
        each
        for each in files
        if any(each.overlaps("offset", part.start, part.end) for part in slices)
    ]


def _of_days(files: Sequence[DataFile], first: dt.date, last: dt.date) -> list[DataFile]:
    return [each for each in files if each.day is None or str(first) <= each.day <= str(last)]
