"""Job that updates a silver table: decodes new bronze records, each once."""

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.bronze import new_records, skip_slices, table_offsets
from penstock.pipeline.config import MergeConfig, RegistryConfig, SilverConfig
from penstock.pipeline.merging import latest_rows, mark_incomplete, merge_rows
from penstock.pipeline.offsets import Slice, Stream, at_or_after, overlapping
from penstock.pipeline.progress import StageProgress
from penstock.pipeline.recorded_frame import Recorded
from penstock.pipeline.silver import (
    ERROR,
    dead_letters,
    deduplicated,
    mark_late,
    silver,
    valid_rows,
)
from penstock.pipeline.warehouse import Warehouse

__all__ = ["WATERMARK", "SilverJob"]

WATERMARK: Final = "watermark"
_NO_REGISTRY: Final = RegistryConfig()
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FOREVER: Final = dt.datetime(9999, 12, 31, tzinfo=dt.UTC)
_TRUNCATED: Final = dt.timedelta(milliseconds=1)
"""Statistics of times in a table's log may be truncated to milliseconds."""


class SilverJob:
    """Updates one silver table and its dead letters from bronze.

    Dead letters are committed before the rows, each with offsets of their own. After a crash in
    between, the next step adds only the missing part of each.
    """

    def __init__(
        self,
        spark: SparkSession,
        warehouse: Warehouse,
        schema: SilverConfig,
        *,
        rows_max: int,
        registry: RegistryConfig = _NO_REGISTRY,
    ) -> None:
        self.schema = schema
        self.name = f"silver.{schema.name}"
        self._spark = spark
        self._rows_max = rows_max
        self._bronze = warehouse.bronze()
        self._table = warehouse.silver_of(schema)
        self._dead = warehouse.dead_letters()
        self._schema_evolved = False
        self._decode = Recorded(lambda records: silver(records, schema, registry))

    def step(self, stage: StageProgress) -> bool:
        """Process the next records; return whether there are more."""
        found = new_records(self._spark, self._bronze, self._table, rows_max=self._rows_max)
        if found is None:
            return False
        stage.batch_rows = self._update(found.records, found.slices, stage)
        return found.more

    def offsets(self, streams: Iterable[Stream]) -> dict[Stream, int]:
        """See Job."""
        return table_offsets(self._table, streams)

    def _update(self, records: DataFrame, slices: list[Slice], stage: StageProgress) -> int:
        decoded = self._decode(records)
        if not self._schema_evolved:
            self._table.evolve_schema(valid_rows(decoded))
            self._dead.evolve_schema(dead_letters(decoded, self.schema))
            self._schema_evolved = True
        watermark = self._watermark()
        checked = mark_late(decoded, self.schema, watermark)
        if self.schema.merge is not None:
            checked = mark_incomplete(checked, self.schema.merge)
        # Times ahead of the broker's clock count as its time; rows without one are ignored.
        has_time = f.col(ERROR).isNull() & f.col(self.schema.event_time).isNotNull()
        moment = f.unix_micros(f.least("event_time", "timestamp"))
        measures = (
            f.count_if(f.col(ERROR).isNotNull()).alias("dead"),
            f.max(f.when(has_time, moment)).alias("newest"),
        )
        if self.schema.merge is not None:
            return self._merge(checked, self.schema.merge, measures, slices, stage)
        observed = Observation()
        rows = valid_rows(checked.observe(observed, *measures))
        existing = self._existing(records.sparkSession, slices, watermark)
        # Bronze has each message once, so only rows of the table can have the same id.
        own = {"message_id", *self.schema.positions}
        if existing is not None or not set(self.schema.dedup) <= own:
            rows = deduplicated(
                rows, self.schema.dedup_key, existing, positions=self.schema.positions
            )
        files = self._table.write(rows)
        # Spark drops the observation if no row is written.
        dead, newest = (
            (observed.get["dead"], observed.get["newest"])
            if files
            else (checked.agg(*measures).first() or (0, None))
        )
        if dead:
            stage.dead_letters += self._write_dead_letters(checked, slices)
        transactions = self._transactions(slices, newest)
        if files or WATERMARK in transactions:
            self._table.commit(add=files, transactions=transactions)
        else:
            skip_slices(self._table, slices)
        return sum(each.rows for each in files)

    def _transactions(self, slices: list[Slice], newest_us: int | None) -> dict[str, int]:
        """Return the offsets after the slices, and the watermark if there is one."""
        transactions = {each.stream.name: each.end for each in slices}
        if self.schema.watermark_seconds and newest_us is not None:
            watermark_us = newest_us - int(self.schema.watermark_seconds * 1_000_000)
            last_us = self._table.log.transaction_version(WATERMARK) or watermark_us
            transactions[WATERMARK] = max(watermark_us, last_us)
        return transactions

    def _merge(
        self,
        checked: DataFrame,
        merge: MergeConfig,
        measures: Sequence[Column],
        slices: list[Slice],
        stage: StageProgress,
    ) -> int:
        """Merge the newest row of each key into the table; return the number of rows."""
        dead, newest = checked.agg(*measures).first() or (0, None)
        if dead:
            stage.dead_letters += self._write_dead_letters(checked, slices)
        rows = latest_rows(valid_rows(checked), self.schema, merge).toArrow()
        if len(rows):
            merge_rows(self._table, rows, merge, self._transactions(slices, newest))
        # Without a change there is no commit.
        log = self._table.log
        if any(each.end > (log.transaction_version(each.stream.name) or 0) for each in slices):
            skip_slices(self._table, slices)
        return len(rows)

    def _write_dead_letters(self, checked: DataFrame, slices: list[Slice]) -> int:
        """Add invalid rows to the dead-letter table; return the number of new ones."""
        prefix = f"{self.schema.name}:"
        done = table_offsets(self._dead, [each.stream for each in slices], prefix)
        rows = dead_letters(checked, self.schema)
        condition = at_or_after(done)
        files = self._dead.write(rows if condition is None else rows.where(condition))
        self._dead.commit(
            add=files,
            transactions={
                f"{prefix}{each.stream.name}": max(each.end, done.get(each.stream, 0))
                for each in slices
            },
        )
        return sum(each.rows for each in files)

    def _existing(
        self, spark: SparkSession, slices: list[Slice], watermark: dt.datetime | None
    ) -> DataFrame | None:
        """Return rows of the table that new rows may repeat, None if there are none."""
        files = self._table.log.files()
        if set(self.schema.dedup) <= {"message_id", *self.schema.positions}:
            found = overlapping(files, slices)
        else:
            since = _EPOCH if watermark is None else watermark - _TRUNCATED
            found = [each for each in files if each.overlaps("event_time", since, _FOREVER)]
        return self._table.read(spark, found) if found else None

    def _watermark(self) -> dt.datetime | None:
        """Return the time before which rows are late, None without a watermark."""
        if not self.schema.watermark_seconds:
            return None
        watermark_us = self._table.log.transaction_version(WATERMARK)
        return None if watermark_us is None else _EPOCH + dt.timedelta(microseconds=watermark_us)
