"""Job that updates the gold table `latency` from the exchanges that changed."""

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.limits import PIPELINE_SMALL_STEP_ROWS_MAX
from penstock.pipeline import gold
from penstock.pipeline.bronze import bronze_offsets, table_offsets
from penstock.pipeline.config import GoldConfig
from penstock.pipeline.data_files import DataFile
from penstock.pipeline.gold_jobs import REVISION, kept_plans, with_revision
from penstock.pipeline.kept_plan import KeptPlan
from penstock.pipeline.offsets import Stream, to_transactions
from penstock.pipeline.progress import StageProgress
from penstock.pipeline.step_session import session_for
from penstock.pipeline.tables import Table
from penstock.pipeline.warehouse import Warehouse

__all__ = ["LatencyJob"]

_INPUT: Final = "input"
_NOW: Final = "now"
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_TIME: Final = pa.timestamp("us", "UTC")


class _Step(NamedTuple):
    """The results of a step: exchanges after revision `done`, and requests open since `due`."""

    done: int
    due: dt.datetime | None
    """The time before which open requests counted as unanswered in the last step."""
    now: dt.datetime
    open_since: dt.datetime
    """The time since which requests without a reply are open."""
    revision: int


class _Changes(NamedTuple):
    """The result of a step: its files, and those that they replace."""

    add: Sequence[DataFile]
    remove: Sequence[DataFile]


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
        self._plans = kept_plans(spark, self.table, self._compute_few)
        self._schema_evolved = False
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
        open_since = now - dt.timedelta(seconds=self._config.unanswered_seconds)
        if last <= done and (self._open_since is None or self._open_since >= open_since):
            self._skip()
            return False
        streams = bronze_offsets(self._bronze)
        reflected = to_transactions(table_offsets(self._pairs, streams))
        revision = 1 + (self.table.log.transaction_version(REVISION) or 0)
        step = _Step(done, self._last_due(), now, open_since, revision)
        if self._plans is not None and self._pairs.rows() <= PIPELINE_SMALL_STEP_ROWS_MAX:
            changes = self._update_few(self._plans[0], step)
        else:
            changes = self._update(step)
        if changes is None:
            self._skip()
            return False
        numbers = {_INPUT: last, REVISION: revision, _NOW: (now - _EPOCH) // _MICROSECOND}
        self.table.commit(add=changes.add, remove=changes.remove, transactions=numbers | reflected)
        stage.batch_rows = sum(each.rows for each in changes.add)
        return False

    def _update(self, step: _Step) -> _Changes | None:
        """Write the days that changed; return None if there are none."""
        pairs = self._pairs.read(session_for(self._spark, self._pairs.rows()))
        changed = f.col(REVISION) > step.done
        if step.due is not None:  # requests that were still open at the last step
            changed |= f.col("replied").isNull() & (f.col("requested") >= f.lit(step.due))
        days = [row[0] for row in pairs.where(changed).select("day").distinct().collect()]
        is_open = f.col("replied").isNull() & (f.col("requested") >= f.lit(step.open_since))
        row = pairs.where(is_open).agg(f.min(f.unix_micros("requested"))).first()
        self._open_since = None if row is None or row[0] is None else _EPOCH + row[0] * _MICROSECOND
        frame = gold.latency(
            pairs.where(f.col("day").isin(*days)) if days else pairs.limit(0),
            window_seconds=self._config.latency_window_seconds,
            unanswered_seconds=self._config.unanswered_seconds,
            now=step.now,
            revision=step.revision,
        )
        self.table.evolve_schema(frame)
        if not days:
            return None
        old = self._files(days)
        frame = _unchanged_kept(self.table.read(pairs.sparkSession, old), frame)
        return _Changes(self.table.write(frame.coalesce(1)), old)

    def _compute_few(self, pairs: DataFrame) -> DataFrame:
        """Return the table for exchanges, which have the current time in a column."""
        return gold.latency(
            pairs,
            window_seconds=self._config.latency_window_seconds,
            unanswered_seconds=self._config.unanswered_seconds,
            now=f.col(_NOW),
        )

    def _update_few(self, plan: KeptPlan, step: _Step) -> _Changes | None:
        """Do what `_update` does, for a few exchanges."""
        pairs = self._pairs.read_rows(self._pairs.log.files())
        pairs = pairs.append_column(_NOW, pa.repeat(pa.scalar(step.now, _TIME), len(pairs)))
        if not self._schema_evolved:
            self.table.evolve_schema(plan.frame(pairs.schema))
            self._schema_evolved = True
        requested, unreplied = pairs.column("requested"), pc.is_null(pairs.column("replied"))

        def still_open(since: dt.datetime) -> pa.ChunkedArray:
            late = pc.greater_equal(requested, pa.scalar(since, _TIME))
            return pc.fill_null(pc.and_(unreplied, late), fill_value=False)

        changed = pc.greater(pairs.column(REVISION), step.done)
        if step.due is not None:
            changed = pc.or_(changed, still_open(step.due))
        self._open_since = pc.min(requested.filter(still_open(step.open_since))).as_py()
        days = pc.unique(pairs.column("day").filter(changed))
        if not len(days):
            return None
        new = plan(pairs.filter(pc.is_in(pairs.column("day"), days)))
        old = self._files(days.to_pylist())
        known = self.table.read_rows(old).select(new.schema.names).cast(new.schema)
        rows = _unchanged_rows_kept(known, with_revision(new, step.revision))
        return _Changes(self.table.write_rows(rows), old)

    def offsets(self, streams: Iterable[Stream]) -> dict[Stream, int]:
        """See Job."""
        return table_offsets(self.table, streams)

    def _files(self, days: Sequence[dt.date]) -> list[DataFile]:
        """Return the files of some days."""
        names = set(map(str, days))
        return [each for each in self.table.log.files() if each.day in names]

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


def _unchanged_rows_kept(old: pa.Table, new: pa.Table) -> pa.Table:
    """Do what `_unchanged_kept` does, for a few rows."""
    names = [name for name in new.schema.names if name != REVISION]

    def keys(table: pa.Table) -> list[tuple[object, ...]]:
        return [tuple(row.values()) for row in table.select(names).to_pylist()]

    known = dict(zip(keys(old), old.column(REVISION).to_pylist(), strict=True))
    numbers = new.column(REVISION).to_pylist()
    kept = [known.get(key, number) for key, number in zip(keys(new), numbers, strict=True)]
    column = pa.array(kept, pa.int64())
    return new.set_column(new.schema.get_field_index(REVISION), REVISION, column)
