"""The job of a silver table: what is new in bronze, decoded, once."""

import datetime as dt
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from penstock.pipeline.bronze import positions_of
from penstock.pipeline.config import SilverConfig
from penstock.pipeline.positions import Slice, Stream, not_before, plan, within
from penstock.pipeline.silver import ERROR, dead_letters, deduplicated, good, judged_late, silver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.pipeline.progress import StageProgress
    from penstock.pipeline.tables import Table
    from penstock.pipeline.warehouse import Warehouse

__all__ = ["SilverJob"]

_WATERMARK: Final = "watermark"
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FOREVER: Final = dt.datetime(9999, 12, 31, tzinfo=dt.UTC)
_TRUNCATED: Final = dt.timedelta(milliseconds=1)
"""Bounds of times in a table's log may be cut to milliseconds."""


class SilverJob:
    """Brings one silver table, and its dead letters, up to bronze.

    Dead letters are committed before the rows, each with their own position. A crash in between
    leaves the next step to do what is missing of each, and only that.
    """

    def __init__(
        self, spark: "SparkSession", warehouse: "Warehouse", schema: SilverConfig, *, rows_max: int
    ) -> None:
        self.schema = schema
        self.name = f"silver.{schema.name}"
        self._spark = spark
        self._rows_max = rows_max
        self._bronze = warehouse.bronze()
        self._table = warehouse.silver(schema.name)
        self._dead = warehouse.dead_letters()
        self._fitted = False

    def step(self, stage: "StageProgress") -> bool:
        """Take the next rows; tell whether there were any messages to look at."""
        until = positions_of(self._bronze)
        done = self._positions(self._table, until.keys(), "")
        files = self._bronze.log.files() if until else ()
        slices = plan(files, done=done, until=until, rows_max=self._rows_max)
        if not slices:
            stage.lag = 0
            return False
        records = self._bronze.read(
            self._spark,
            [
                each
                for each in files
                if any(each.overlaps("offset", part.start, part.end) for part in slices)
            ],
        ).where(within(slices))
        stage.batch_rows = self._put(records, slices, stage)
        ends = {each.stream: each.end for each in slices}
        stage.lag = sum(end - ends.get(key, done.get(key, 0)) for key, end in until.items())
        return True

    def _put(self, records: "DataFrame", slices: list[Slice], stage: "StageProgress") -> int:
        from pyspark.sql import Observation  # noqa: PLC0415
        from pyspark.sql import functions as f  # noqa: PLC0415

        decoded = silver(records, self.schema)
        if not self._fitted:
            self._table.fit(good(decoded))
            self._dead.fit(dead_letters(decoded, self.schema))
            self._fitted = True
        watermark = self._watermark()
        judged = judged_late(decoded, self.schema, watermark)
        # A clock that is ahead, and a row without a time of its own, move no watermark.
        told = f.col(ERROR).isNull() & f.col(self.schema.event_time).isNotNull()
        moment = f.unix_micros(f.least("event_time", "timestamp"))
        measures = (
            f.count_if(f.col(ERROR).isNotNull()).alias("dead"),
            f.max(f.when(told, moment)).alias("newest"),
        )
        seen = Observation()
        rows = deduplicated(
            good(judged.observe(seen, *measures)),
            self.schema.dedup,
            self._existing(slices, watermark),
        )
        files = self._table.write(rows)
        # Spark loses what it observed where nothing is left to be written.
        dead, newest = (
            (seen.get["dead"], seen.get["newest"])
            if files
            else (judged.agg(*measures).first() or (0, None))
        )
        if dead:
            stage.dead_letters += self._bury(judged, slices)
        marks = {each.stream.name: each.end for each in slices}
        if self.schema.watermark_seconds and newest is not None:
            mark = newest - int(self.schema.watermark_seconds * 1_000_000)
            marks[_WATERMARK] = max(mark, self._table.log.mark(_WATERMARK) or mark)
        self._table.commit(add=files, marks=marks)
        return sum(each.rows for each in files)

    def _bury(self, judged: "DataFrame", slices: list[Slice]) -> int:
        """Put rows that do not fit into the dead-letter table; return how many were new."""
        self._dead.exists()
        prefix = f"{self.schema.name}:"
        done = self._positions(self._dead, [each.stream for each in slices], prefix)
        rows = dead_letters(judged, self.schema)
        condition = not_before(done)
        files = self._dead.write(rows if condition is None else rows.where(condition))
        self._dead.commit(
            add=files,
            marks={
                f"{prefix}{each.stream.name}": max(each.end, done.get(each.stream, 0))
                for each in slices
            },
        )
        return sum(each.rows for each in files)

    def _existing(self, slices: list[Slice], watermark: dt.datetime | None) -> "DataFrame | None":
        """Return rows of the table that new ones could repeat, None if there are none."""
        files = self._table.log.files()
        if set(self.schema.dedup) <= {"message_id"}:
            found = [
                each
                for each in files
                if any(each.overlaps("offset", part.start, part.end) for part in slices)
            ]
        else:
            since = _EPOCH if watermark is None else watermark - _TRUNCATED
            found = [each for each in files if each.overlaps("event_time", since, _FOREVER)]
        return self._table.read(self._spark, found) if found else None

    def _watermark(self) -> dt.datetime | None:
        """Return the time before which rows are late, None if none are."""
        mark = self._table.log.mark(_WATERMARK) if self.schema.watermark_seconds else None
        return None if mark is None else _EPOCH + dt.timedelta(microseconds=mark)

    @staticmethod
    def _positions(table: "Table", streams: Iterable[Stream], prefix: str) -> dict[Stream, int]:
        if not table.exists():
            return {}
        return {stream: table.log.mark(f"{prefix}{stream.name}") or 0 for stream in streams}
