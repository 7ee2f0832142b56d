"""Decoding of a few records: by kept plans, with the results in the driver's memory."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.config import METADATA_COLUMNS, RegistryConfig, SilverConfig
from penstock.pipeline.kept_plan import KeptPlan
from penstock.pipeline.merging import latest_rows, mark_incomplete
from penstock.pipeline.recent_records import of_topics
from penstock.pipeline.silver import (
    DEAD_LETTER_COLUMNS,
    ERROR,
    PAYLOAD,
    RECORD_COLUMNS,
    mark_late,
    silver,
    valid_rows,
)
from penstock.pipeline.step_session import session_for

__all__ = ["DecodedRows", "SmallSilver", "first_rows", "is_comparable"]

_WATERMARK: Final = "_watermark"
_NUMBER: Final = "_number"
_TIME: Final = pa.timestamp("us", "UTC")


class DecodedRows(NamedTuple):
    """The rows of a small step."""

    rows: pa.Table
    """Valid rows; with `merge`, the newest one of each key."""
    letters: pa.Table
    """Dead letters."""
    newest_us: int | None
    """The last event time of valid rows; see SilverJob."""


class SmallSilver:
    """Decodes the records of a small step; see SilverJob for what happens to the rows.

    The watermark changes with each step, so it is a column of the records.
    """

    def __init__(
        self, spark: SparkSession, schema: SilverConfig, registry: RegistryConfig, folder: Path
    ) -> None:
        self._schema = schema
        merge = schema.merge

        def decoded(records: DataFrame) -> DataFrame:
            rows = silver(records, schema, registry, carried=[_WATERMARK])
            rows = mark_late(rows, schema, f.col(_WATERMARK)).drop(_WATERMARK)
            return rows if merge is None else mark_incomplete(rows, merge)

        few = session_for(spark, 0)
        self._decoded = KeptPlan(few, folder, decoded)
        self._latest = None
        if merge is not None:
            self._latest = KeptPlan(
                few,
                folder,
                lambda records: latest_rows(valid_rows(decoded(records)), schema, merge),
            )

    def frame(self, records: pa.Table) -> DataFrame:
        """Return the decoded rows as a query that is not run, for its schema."""
        return self._decoded.frame(_with_watermark(records.slice(0, 0), None).schema)

    def selects(self, records: pa.Table) -> pa.ChunkedArray | None:
        """Return which records have a topic of the schema; see Selection."""
        return of_topics(records, self._schema.topics)

    def decode(self, records: pa.Table, watermark: dt.datetime | None) -> DecodedRows | None:
        """Return the rows of records that `selects` selected; None if there are none."""
        if not len(records):
            return None
        chosen = _with_watermark(records, watermark)
        decoded = self._decoded(chosen)
        wrong = pc.is_valid(decoded.column(ERROR))
        rows = decoded.filter(pc.invert(wrong)).drop_columns([ERROR, PAYLOAD])
        newest_us = self._newest_us(rows)
        if self._latest is not None:
            rows = self._latest(chosen)
        return DecodedRows(rows, self._letters(decoded.filter(wrong)), newest_us)

    def _newest_us(self, rows: pa.Table) -> int | None:
        timed = rows.filter(pc.is_valid(rows.column(self._schema.event_time)))
        names = ("event_time", "timestamp")
        both = (timed.column(name).cast(_TIME).cast(pa.int64()) for name in names)
        newest: int | None = pc.max(pc.min_element_wise(*both)).as_py()
        return newest

    def _letters(self, rows: pa.Table) -> pa.Table:
        """Return messages with an ERROR, each once, as `silver.dead_letters` does."""
        rows = first_rows(rows, ["message_id"], order_by=self._schema.positions)
        now = pa.scalar(dt.datetime.now(dt.UTC), _TIME)
        columns = {name: rows.column(name) for name in METADATA_COLUMNS} | {
            "schema": pa.repeat(pa.scalar(self._schema.name), len(rows)),
            "error": rows.column(ERROR),
            "value": rows.column(PAYLOAD),
            "failed_at": pa.repeat(now, len(rows)),
        }
        return pa.table({name: columns[name] for name in DEAD_LETTER_COLUMNS})


def _with_watermark(records: pa.Table, watermark: dt.datetime | None) -> pa.Table:
    column = pa.repeat(pa.scalar(watermark, _TIME), len(records))
    return records.select(RECORD_COLUMNS).append_column(_WATERMARK, column)


def first_rows(
    rows: pa.Table,
    keys: Sequence[str],
    existing: pa.Table | None = None,
    *,
    order_by: Sequence[str],
) -> pa.Table:
    """Return the first row of the rows with equal keys, in an order in which nulls are first.

    Rows whose keys are in `existing` are removed. A null key equals no other key. See
    `silver.deduplicated`, which does the same for many rows.
    """
    if not len(rows):
        return rows
    if order_by:
        rows = rows.take(_sorted(rows, order_by))
    numbers = pa.array(range(len(rows)), pa.int64())
    known = pa.table([*(rows.column(name) for name in keys), numbers], names=[*keys, _NUMBER])
    whole = known.drop_null()
    with_null = pc.invert(pc.is_in(numbers, whole.column(_NUMBER)))
    first = whole.group_by(list(keys)).aggregate([(_NUMBER, "min")])
    if existing is not None:
        first = first.join(existing.select(keys), list(keys), join_type="left anti")
    chosen = pc.is_in(numbers, first.column(f"{_NUMBER}_min"))
    return rows.filter(pc.or_(chosen, with_null))


def _sorted(rows: pa.Table, order_by: Sequence[str]) -> pa.Array:
    """Return the positions of rows in an order; a null is before all values."""
    columns: dict[str, pa.ChunkedArray] = {}
    for name in order_by:
        columns |= {f"{name} is valid": pc.is_valid(rows.column(name)), name: rows.column(name)}
    return pc.sort_indices(pa.table(columns), [(name, "ascending") for name in columns])


def is_comparable(kinds: Sequence[pa.DataType]) -> bool:
    """Return whether Arrow compares values of all these types as Spark does."""
    tests = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean,
             pa.types.is_timestamp, pa.types.is_date)  # fmt: skip
    return all(any(fits(kind) for fits in tests) for kind in kinds)
