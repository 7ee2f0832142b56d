"""Jobs that update the gold tables: compute new records and merge them, each record once."""

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.pipeline import gold
from penstock.pipeline.bronze import (
    bronze_offsets,
    new_records,
    skip_slices,
    table_offsets,
)
from penstock.pipeline.config import GoldConfig
from penstock.pipeline.data_files import DataFile
from penstock.pipeline.offsets import Slice, Stream, to_transactions
from penstock.pipeline.progress import StageProgress
from penstock.pipeline.step_session import session_for
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
    """The first and last day of new rows, and their first time."""

    first: dt.date
    last: dt.date
    since: dt.datetime


class GoldJob(ABC):
    """Updates a gold table from bronze: replaces the files that new records change."""

    table_name = ""
    time_column = ""

    def __init__(
        self,
        spark: SparkSession,
        warehouse: Warehouse,
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

    def step(self, stage: StageProgress) -> bool:
        """Process the next records; return whether there are more."""
        found = new_records(self._spark, self._bronze, self.table, rows_max=self._rows_max)
        if found is None:
            return False
        records = found.records
        if self._excluded:
            records = records.where(~f.col("topic").isin(*self._excluded))
        revision = 1 + (self.table.log.transaction_version(REVISION) or 0)
        new = self.compute(records, revision).persist()
        try:
            self.table.evolve_schema(new)
            stage.batch_rows = self._merge(new, found.slices, revision)
        finally:
            new.unpersist()
        return found.more

    def offsets(self, streams: Iterable[Stream]) -> dict[Stream, int]:
        """See Job."""
        return table_offsets(self.table, streams)

    def _merge(self, new: DataFrame, slices: Sequence[Slice], revision: int) -> int:
        transactions = {each.stream.name: each.end for each in slices} | {REVISION: revision}
        row = new.agg(f.min("day"), f.max("day"), f.min(self.time_column), f.count("*")).first()
        if row is None or not row[3]:
            skip_slices(self.table, slices)
            return 0
        old = self.affected(_Span(*row[:3]))
        merged = self.merge(self.table.read(new.sparkSession, old), new) if old else new
        files = self.table.write(merged.coalesce(1))
        self.table.commit(add=files, remove=old, transactions=transactions)
        return int(row[3])

    @abstractmethod
    def compute(self, records: DataFrame, revision: int) -> DataFrame:
        """Return the table for new records alone."""

    @abstractmethod
    def merge(self, old: DataFrame, new: DataFrame) -> DataFrame:
        """Return the merge of the table and the rows for new records."""

    def affected(self, span: "_Span") -> list[DataFile]:
        """Return the files with rows that new rows may change: those of the same days."""
        return _of_days(self.table.log.files(), span.first, span.last)


class TrafficJob(GoldJob):
    """Updates `traffic`: messages and bytes by topic, protocol and window."""

    table_name = "traffic"
    time_column = "window_start"

    def compute(self, records: DataFrame, revision: int) -> DataFrame:
        """See GoldJob."""
        return gold.traffic(
            records, window_seconds=self._config.traffic_window_seconds, revision=revision
        )

    def merge(self, old: DataFrame, new: DataFrame) -> DataFrame:
        """See GoldJob."""
        return gold.merged_traffic(old, new)


class ExchangesJob(GoldJob):
    """Updates `exchanges`: requests with their replies.

    A reply pairs with a request of the same day or the day before, so new records change exchanges
    within one day of them.
    """

    table_name = "exchanges"
    time_column = "replied"

    def compute(self, records: DataFrame, revision: int) -> DataFrame:
        """See GoldJob."""
        return gold.exchanges(records, revision=revision)

    def merge(self, old: DataFrame, new: DataFrame) -> DataFrame:
        """See GoldJob."""
        return gold.merged_exchanges(old, new)

    def affected(self, span: "_Span") -> list[DataFile]:
        """Return the files of the same days, the day before and the day after."""
        return _of_days(self.table.log.files(), span.first - _DAY, span.last + _DAY)


class SessionsJob(GoldJob):
    """Updates `sessions`: runs of messages of each sender."""

    table_name = "sessions"
    time_column = "started"

    def compute(self, records: DataFrame, revision: int) -> DataFrame:
        """See GoldJob."""
        return gold.sessions(
            records, gap_seconds=self._config.session_gap_seconds, revision=revision
        )

    def merge(self, old: DataFrame, new: DataFrame) -> DataFrame:
        """See GoldJob."""
        return gold.merged_sessions(old, new, gap_seconds=self._config.session_gap_seconds)

    def affected(self, span: "_Span") -> list[DataFile]:
        """Return the files with sessions that ended within the gap before the new records."""
        gap = dt.timedelta(seconds=self._config.session_gap_seconds, milliseconds=1)
        since = span.since.astimezone(dt.UTC) - gap
        return [each for each in self.table.log.files() if each.overlaps("ended", since, _FOREVER)]


class LatencyJob:
    """Updates `latency`: computes the days whose exchanges changed."""

    table_name = "latency"

    def __init__(self, spark: SparkSession, warehouse: Warehouse, config: GoldConfig) -> None:
        self.name = "gold.latency"
        self.table: Table = warehouse.gold(self.table_name)
        self._pairs = warehouse.gold("exchanges")
        self._bronze = warehouse.bronze()
        self._config = config
        self._spark = spark
        self._open_since: dt.datetime | None = _EPOCH
        """The time of the first request that is still open, or a time before it."""

    def step(self, stage: StageProgress) -> bool:
        """Process exchanges that changed, or whose requests became unanswered."""
        if not self._pairs.exists() or not self._bronze.exists():
            return False
        self.table.exists()
        done = self.table.log.transaction_version(_INPUT) or 0
        last = self._pairs.log.transaction_version(REVISION) or 0
        now = self._now()
        unanswered = dt.timedelta(seconds=self._config.unanswered_seconds)
        if last <= done and (self._open_since is None or self._open_since >= now - unanswered):
            self._skip()
            return False
        streams = bronze_offsets(self._bronze)
        reflected = to_transactions(table_offsets(self._pairs, streams))
        pairs = self._pairs.read(session_for(self._spark, self._pairs.rows()))
        due = self._last_due()
        changed = f.col(REVISION) > done
        if due is not None:  # requests that were still open at the last step
            changed |= f.col("replied").isNull() & (f.col("requested") >= f.lit(due))
        days = [row[0] for row in pairs.where(changed).select("day").distinct().collect()]
        is_open = f.col("replied").isNull() & (f.col("requested") >= f.lit(now - unanswered))
        row = pairs.where(is_open).agg(f.min(f.unix_micros("requested"))).first()
        self._open_since = None if row is None or row[0] is None else _EPOCH + row[0] * _MICROSECOND
        revision = 1 + (self.table.log.transaction_version(REVISION) or 0)
        frame = gold.latency(
            pairs.where(f.col("day").isin(*days)) if days else pairs.limit(0),
            window_seconds=self._config.latency_window_seconds,
            unanswered_seconds=self._config.unanswered_seconds,
            now=now,
            revision=revision,
        )
        self.table.evolve_schema(frame)
        if not days:
            self._skip()
            return False
        old = [each for each in self.table.log.files() if each.day in set(map(str, days))]
        frame = _unchanged_kept(self.table.read(pairs.sparkSession, old), frame)
        files = self.table.write(frame.coalesce(1))
        numbers = {_INPUT: last, REVISION: revision, _NOW: (now - _EPOCH) // _MICROSECOND}
        self.table.commit(add=files, remove=old, transactions=numbers | reflected)
        stage.batch_rows = sum(each.rows for each in files)
        return False

    def offsets(self, streams: Iterable[Stream]) -> dict[Stream, int]:
        """See Job."""
        return table_offsets(self.table, streams)

    def _skip(self) -> None:
        """Note that the table reflects all exchanges, without a commit."""
        offsets = table_offsets(self._pairs, bronze_offsets(self._bronze))
        self.table.read_offsets.update(to_transactions(offsets))

    def _last_due(self) -> dt.datetime | None:
        """Return the time before which open requests counted as unanswered in the last step."""
        now_us = self.table.log.transaction_version(_NOW)
        if now_us is None:
            return None
        unanswered = dt.timedelta(seconds=self._config.unanswered_seconds)
        return _EPOCH + now_us * _MICROSECOND - unanswered

    def _now(self) -> dt.datetime:
        """Return the time of the last message, so that results depend on the log alone."""
        newest = [each.high.get("timestamp") for each in self._bronze.log.files()]
        return max(filter(None, newest), default=dt.datetime.now(dt.UTC))


def _unchanged_kept(old: DataFrame, new: DataFrame) -> DataFrame:
    """Return `new` with the old revision for rows that did not change."""
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


def _of_days(files: Sequence[DataFile], first: dt.date, last: dt.date) -> list[DataFile]:
    return [each for each in files if each.day is None or str(first) <= each.day <= str(last)]
