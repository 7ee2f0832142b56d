"""Jobs that update the gold tables: compute new records and merge them, each record once."""

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.limits import PIPELINE_SMALL_STEP_ROWS_MAX
from penstock.pipeline import gold
from penstock.pipeline.bronze import (
    NewRecords,
    new_records,
    skip_slices,
    table_offsets,
)
from penstock.pipeline.config import GoldConfig
from penstock.pipeline.data_files import DataFile
from penstock.pipeline.kept_plan import KeptPlan
from penstock.pipeline.offsets import Slice, Stream
from penstock.pipeline.progress import StageProgress
from penstock.pipeline.small_gold import (
    merged_session_rows,
    merged_traffic_rows,
    session_rows,
    traffic_rows,
)
from penstock.pipeline.step_session import session_for
from penstock.pipeline.tables import STAGING, Table
from penstock.pipeline.warehouse import Warehouse
from penstock.spark.parallelism import is_local

__all__ = [
    "REVISION",
    "ExchangesJob",
    "GoldJob",
    "SessionsJob",
    "TrafficJob",
    "kept_plans",
    "with_revision",
]

REVISION: Final = "revision"
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
    columns: tuple[str, ...] = ()
    """The columns of records that `compute` needs."""
    kinds: tuple[str, ...] = ()
    """The kinds of messages that it needs, all if there are none."""

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
        self._recent = warehouse.recent_records
        self._schema_evolved = False
        self._plans = kept_plans(spark, self.table, self.compute, self.merge)

    def step(self, stage: StageProgress) -> bool:
        """Process the next records; return whether there are more."""
        found = new_records(self._bronze, self.table, rows_max=self._rows_max)
        if found is None:
            return False
        revision = 1 + (self.table.log.transaction_version(REVISION) or 0)
        changed = self._update_few(found, revision)
        if changed is None:
            changed = self._update(found, revision)
        stage.batch_rows = changed
        return found.more

    def offsets(self, streams: Iterable[Stream]) -> dict[Stream, int]:
        """See Job."""
        return table_offsets(self.table, streams)

    def _update(self, found: NewRecords, revision: int) -> int:
        """Merge the rows for new records; return their number."""
        records = found.frame(self._spark)
        if self._excluded:
            records = records.where(~f.col("topic").isin(*self._excluded))
        new = self.compute(records).withColumn(REVISION, f.lit(revision).cast("long")).persist()
        try:
            self.table.evolve_schema(new)
            row = new.agg(f.min("day"), f.max("day"), f.min(self.time_column), f.count("*")).first()
            if row is None or not row[3]:
                skip_slices(self.table, found.slices)
                return 0
            old = self.affected(_Span(*row[:3]))
            merged = new
            if old:
                merged = self.merge(self.table.read(new.sparkSession, old).unionByName(new))
            self._commit(self.table.write(merged.coalesce(1)), old, found.slices, revision)
            return int(row[3])
        finally:
            new.unpersist()

    def _update_few(self, found: NewRecords, revision: int) -> int | None:
        """Do what `_update` does for a few records, and return None if they are many."""
        if self._plans is None:
            return None
        records = found.few_rows(self._recent, self._selects)
        if records is None:
            return None
        records = records.select(self.columns)
        if not self._schema_evolved:
            self.table.evolve_schema(self._plans[0].frame(records.schema))
            self._schema_evolved = True
        new = with_revision(self.compute_few(records), revision) if len(records) else None
        if new is None or not len(new):
            skip_slices(self.table, found.slices)
            return 0
        days = pc.min_max(new.column("day")).as_py()
        since = pc.min(new.column(self.time_column)).as_py()
        old = self.affected(_Span(days["min"], days["max"], since))
        if sum(each.rows for each in old) + len(new) > PIPELINE_SMALL_STEP_ROWS_MAX:
            return None
        merged = new
        if old:
            known = self.table.read_rows(old).select(new.schema.names).cast(new.schema)
            merged = self.merge_few(pa.concat_tables([known, new]))
        self._commit(self.table.write_rows(merged), old, found.slices, revision)
        return len(new)

    def _selects(self, records: pa.Table) -> pa.ChunkedArray | None:
        """Return which records `compute` needs; see Selection."""
        chosen = None
        if self._excluded:
            excluded = pa.array(self._excluded, pa.string())
            chosen = pc.invert(pc.is_in(records.column("topic"), excluded))
        if self.kinds:
            fits = pc.is_in(records.column("kind"), pa.array(self.kinds, pa.string()))
            chosen = fits if chosen is None else pc.and_(chosen, fits)
        return chosen

    def _commit(
        self,
        files: Sequence[DataFile],
        old: Sequence[DataFile],
        slices: Sequence[Slice],
        revision: int,
    ) -> None:
        transactions = {each.stream.name: each.end for each in slices} | {REVISION: revision}
        self.table.commit(add=files, remove=old, transactions=transactions)

    @abstractmethod
    def compute(self, records: DataFrame) -> DataFrame:
        """Return the table for new records alone."""

    @abstractmethod
    def merge(self, rows: DataFrame) -> DataFrame:
        """Return the merge of the rows of the table and of those for new records."""

    def compute_few(self, records: pa.Table) -> pa.Table:
        """Do what `compute` does, for a few records; by a kept plan."""
        assert self._plans is not None  # noqa: S101
        return self._plans[0](records)

    def merge_few(self, rows: pa.Table) -> pa.Table:
        """Do what `merge` does, for a few rows; by a kept plan."""
        assert self._plans is not None  # noqa: S101
        return self._plans[1](rows)

    def affected(self, span: "_Span") -> list[DataFile]:
        """Return the files with rows that new rows may change: those of the same days."""
        return _of_days(self.table.log.files(), span.first, span.last)


class TrafficJob(GoldJob):
    """Updates `traffic`: messages and bytes by topic, protocol and window."""

    table_name = "traffic"
    time_column = "window_start"
    columns = ("timestamp", "topic", "protocol", "value")

    def compute(self, records: DataFrame) -> DataFrame:
        """See GoldJob."""
        return gold.traffic(records, window_seconds=self._config.traffic_window_seconds)

    def merge(self, rows: DataFrame) -> DataFrame:
        """See GoldJob."""
        return gold.merged_traffic(rows)

    def compute_few(self, records: pa.Table) -> pa.Table:
        """See GoldJob."""
        return traffic_rows(records, window_seconds=self._config.traffic_window_seconds)

    def merge_few(self, rows: pa.Table) -> pa.Table:
        """See GoldJob."""
        return merged_traffic_rows(rows)


class ExchangesJob(GoldJob):
    """Updates `exchanges`: requests with their replies.

    A reply pairs with a request of the same day or the day before, so new records change exchanges
    within one day of them.
    """

    table_name = "exchanges"
    time_column = "replied"
    columns = (
        "kind", "correlation", "sender", "headers", "topic", "status", "timestamp", "message_id",
    )  # fmt: skip
    kinds = ("request", "reply")

    def compute(self, records: DataFrame) -> DataFrame:
        """See GoldJob."""
        return gold.exchanges(records)

    def merge(self, rows: DataFrame) -> DataFrame:
        """See GoldJob."""
        return gold.merged_exchanges(rows)

    def affected(self, span: "_Span") -> list[DataFile]:
        """Return the files of the same days, the day before and the day after."""
        return _of_days(self.table.log.files(), span.first - _DAY, span.last + _DAY)


class SessionsJob(GoldJob):
    """Updates `sessions`: runs of messages of each sender."""

    table_name = "sessions"
    time_column = "started"
    columns = ("timestamp", "sender", "protocol", "value")

    def compute(self, records: DataFrame) -> DataFrame:
        """See GoldJob."""
        return gold.sessions(records, gap_seconds=self._config.session_gap_seconds)

    def merge(self, rows: DataFrame) -> DataFrame:
        """See GoldJob."""
        return gold.merged_sessions(rows, gap_seconds=self._config.session_gap_seconds)

    def compute_few(self, records: pa.Table) -> pa.Table:
        """See GoldJob."""
        return session_rows(records, gap_seconds=self._config.session_gap_seconds)

    def merge_few(self, rows: pa.Table) -> pa.Table:
        """See GoldJob."""
        return merged_session_rows(rows, gap_seconds=self._config.session_gap_seconds)

    def affected(self, span: "_Span") -> list[DataFile]:
        """Return the files with sessions that ended within the gap before the new records."""
        gap = dt.timedelta(seconds=self._config.session_gap_seconds, milliseconds=1)
        since = span.since.astimezone(dt.UTC) - gap
        return [each for each in self.table.log.files() if each.overlaps("ended", since, _FOREVER)]


def kept_plans(
    spark: SparkSession, table: Table, *functions: Callable[[DataFrame], DataFrame]
) -> list[KeptPlan] | None:
    """Return the plans of small steps of a table; None where tasks may not see its folder."""
    folder = table.store.folder
    if folder is None or not is_local(spark.sparkContext.master or ""):
        return None
    few = session_for(spark, 0)
    return [KeptPlan(few, folder / STAGING, function) for function in functions]


def with_revision(rows: pa.Table, revision: int) -> pa.Table:
    """Return rows that have a revision with another one."""
    column = pa.repeat(pa.scalar(revision, pa.int64()), len(rows))
    return rows.set_column(rows.schema.get_field_index(REVISION), REVISION, column)


def _of_days(files: Sequence[DataFile], first: dt.date, last: dt.date) -> list[DataFile]:
    return [each for each in files if each.day is None or str(first) <= each.day <= str(last)]
