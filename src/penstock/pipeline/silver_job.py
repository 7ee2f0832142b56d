"""Job that updates a silver table: decodes new bronze records, each once."""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from penstock.limits import PIPELINE_RECENT_ROWS_MAX
from penstock.pipeline.bronze import new_records, skip_slices, table_offsets
from penstock.pipeline.config import MergeConfig, RegistryConfig, SilverConfig
from penstock.pipeline.data_files import DataFile
from penstock.pipeline.merging import latest_rows, mark_incomplete, merge_rows
from penstock.pipeline.offsets import Slice, Stream, at_or_after, drop_before, overlapping
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
from penstock.pipeline.small_silver import SmallSilver, first_rows, is_comparable
from penstock.pipeline.tables import STAGING
from penstock.pipeline.warehouse import Warehouse
from penstock.spark.parallelism import is_local

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
        self._recent = warehouse.recent_records
        self._small = self._small_steps(registry)

    def _small_steps(self, registry: RegistryConfig) -> SmallSilver | None:
        """Return what decodes a few records; None if that needs a new plan for each step.

        `delete_when` may contain the current time.
        """
        folder, merge = self._table.store.folder, self.schema.merge
        if folder is None or not is_local(self._spark.sparkContext.master or ""):
            return None
        if merge is not None and merge.delete_when:
            return None
        return SmallSilver(self._spark, self.schema, registry, folder / STAGING)

    def step(self, stage: StageProgress) -> bool:
        """Process the next records; return whether there are more."""
        found = new_records(self._bronze, self._table, rows_max=self._rows_max)
        if found is None:
            return False
        written = None
        small = self._small
        few = None if small is None else found.few_rows(self._recent, small.selects)
        if small is not None and few is not None:
            written = self._update_few(small, few, found.slices, stage)
        if written is None:
            written = self._update(found.frame(self._spark), found.slices, stage)
        stage.batch_rows = written
        return found.more

    def offsets(self, streams: Iterable[Stream]) -> dict[Stream, int]:
        """See Job."""
        return table_offsets(self._table, streams)

    def _update_few(
        self, small: SmallSilver, records: pa.Table, slices: list[Slice], stage: StageProgress
    ) -> int | None:
        """Do what `_update` does for a few records; return None if that needs Spark."""
        if not self._schema_evolved:
            self._evolve_schema(small.frame(records))
        watermark = self._watermark()
        repeated = self._repeated(slices, watermark)
        keys = self.schema.dedup_key
        compared = bool(keys) and (bool(repeated) or not self._has_own_keys())
        compared = compared and self.schema.merge is None
        if compared and not self._compares_few(repeated):
            return None
        decoded = small.decode(records, watermark)
        if decoded is None:
            skip_slices(self._table, slices)
            return 0
        rows, letters, newest_us = decoded
        if len(letters):
            stage.dead_letters += self._add_dead_letters(
                slices, lambda done: self._dead.write_rows(drop_before(letters, done))
            )
        transactions = self._transactions(slices, newest_us)
        if self.schema.merge is not None:
            self._merge_rows(rows, self.schema.merge, transactions, slices)
            return len(rows)
        if compared:
            known = self._table.read_rows(repeated, keys)
            rows = first_rows(rows, keys, known, order_by=("partition", "offset"))
        if len(rows) or WATERMARK in transactions:
            self._table.commit(add=self._table.write_rows(rows), transactions=transactions)
        else:
            skip_slices(self._table, slices)
        return len(rows)

    def _has_own_keys(self) -> bool:
        """Return whether rows are equal only if they are of one message, which bronze has once."""
        return set(self.schema.dedup) <= {"message_id", *self.schema.positions}

    def _compares_few(self, files: Sequence[DataFile]) -> bool:
        """Return whether new rows can be compared with those of files in memory."""
        if sum(each.rows for each in files) > PIPELINE_RECENT_ROWS_MAX or self.schema.positions:
            return False
        schema = self._table.log.schema()
        return is_comparable([schema.field(name).type for name in self.schema.dedup_key])

    def _evolve_schema(self, decoded: DataFrame) -> None:
        self._table.evolve_schema(valid_rows(decoded))
        self._dead.evolve_schema(dead_letters(decoded, self.schema))
        self._schema_evolved = True

    def _update(self, records: DataFrame, slices: list[Slice], stage: StageProgress) -> int:
        decoded = self._decode(records)
        if not self._schema_evolved:
            self._evolve_schema(decoded)
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
        repeated = self._repeated(slices, watermark)
        existing = self._table.read(records.sparkSession, repeated) if repeated else None
        # Only rows of the table can have the same id.
        if existing is not None or not self._has_own_keys():
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
        self._merge_rows(rows, merge, self._transactions(slices, newest), slices)
        return len(rows)

    def _merge_rows(
        self,
        rows: pa.Table,
        merge: MergeConfig,
        transactions: Mapping[str, int],
        slices: list[Slice],
    ) -> None:
        if len(rows):
            merge_rows(self._table, rows, merge, transactions)
        # Without a change there is no commit.
        log = self._table.log
        if any(each.end > (log.transaction_version(each.stream.name) or 0) for each in slices):
            skip_slices(self._table, slices)

    def _write_dead_letters(self, checked: DataFrame, slices: list[Slice]) -> int:
        """Add invalid rows to the dead-letter table; return the number of new ones."""
        rows = dead_letters(checked, self.schema)

        def write(done: Mapping[Stream, int]) -> list[DataFile]:
            condition = at_or_after(done)
            return self._dead.write(rows if condition is None else rows.where(condition))

        return self._add_dead_letters(slices, write)

    def _add_dead_letters(
        self, slices: list[Slice], write: Callable[[Mapping[Stream, int]], list[DataFile]]
    ) -> int:
        """Commit what `write` writes: the dead letters at or after the offsets that it gets."""
        prefix = f"{self.schema.name}:"
        done = table_offsets(self._dead, [each.stream for each in slices], prefix)
        files = write(done)
        self._dead.commit(
            add=files,
            transactions={
                f"{prefix}{each.stream.name}": max(each.end, done.get(each.stream, 0))
                for each in slices
            },
        )
        return sum(each.rows for each in files)

    def _repeated(self, slices: list[Slice], watermark: dt.datetime | None) -> list[DataFile]:
        """Return the files with rows of the table that new rows may repeat."""
        if self.schema.merge is not None:
            return []
        files = self._table.log.files()
        if self._has_own_keys():
            return overlapping(files, slices)
        since = _EPOCH if watermark is None else watermark - _TRUNCATED
        return [each for each in files if each.overlaps("event_time", since, _FOREVER)]

    def _watermark(self) -> dt.datetime | None:
        """Return the time before which rows are late, None without a watermark."""
        if not self.schema.watermark_seconds:
            return None
        watermark_us = self._table.log.transaction_version(WATERMARK)
        return None if watermark_us is None else _EPOCH + dt.timedelta(microseconds=watermark_us)
