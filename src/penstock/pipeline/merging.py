"""Merge of rows into a silver table that has one row for each key: the newest one."""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from penstock.pipeline.config import MergeConfig, SilverConfig
from penstock.pipeline.errors import QueryFailed
from penstock.pipeline.silver import ERROR
from penstock.pipeline.tables import Table

__all__ = ["DELETED", "latest_rows", "mark_incomplete", "merge_rows"]

DELETED: Final = "_deleted"
"""The column of new rows that says whether the message removes the row of its key."""
_RANK: Final = "_rank"


def mark_incomplete(rows: DataFrame, merge: MergeConfig) -> DataFrame:
    """Set ERROR for rows without a value in a column of the key, or in `order_by`."""
    missing = [
        f.when(f.col(name).isNull(), f.lit(f"{name} is missing, merge needs it"))
        for name in (*merge.key, merge.order_by)
    ]
    return rows.withColumn(ERROR, f.coalesce(f.col(ERROR), *missing))


def latest_rows(rows: DataFrame, schema: SilverConfig, merge: MergeConfig) -> DataFrame:
    """Return the newest row of each key, with DELETED; raise QueryFailed."""
    columns = (merge.order_by, "timestamp", "offset", *schema.positions)
    order = [f.col(name).desc() for name in columns]
    rank = f.row_number().over(Window.partitionBy(*merge.key).orderBy(*order))
    found = rows.withColumn(_RANK, rank).where(f.col(_RANK) == 1).drop(_RANK)
    if not merge.delete_when:
        return found.withColumn(DELETED, f.lit(False))  # noqa: FBT003
    try:
        condition = f.expr(merge.delete_when).cast("boolean")
        return found.withColumn(DELETED, f.coalesce(condition, f.lit(False)))  # noqa: FBT003
    except (AnalysisException, ParseException) as error:
        where = f"silver {schema.name}: merge.delete_when"
        raise QueryFailed(where, str(error).splitlines()[0]) from None


def merge_rows(
    table: Table, rows: pa.Table, merge: MergeConfig, transactions: Mapping[str, int]
) -> None:
    """Merge rows of `latest_rows` into a table, with app transactions, in one commit."""
    with table.rewriting:
        table.log.refresh()
        table.log.merge(
            rows, key=merge.key, newer=_newer(merge), deleted=DELETED, transactions=transactions
        )


def _newer(merge: MergeConfig) -> str:
    """Return the condition for a new row `s` that is newer than the row `t` of the table.

    Of messages with equal values in `order_by`, the later one by the broker's time and offset is
    newer.
    """
    condition = 's."offset" >= t."offset"'
    for name in dict.fromkeys(("timestamp", merge.order_by)):
        if name != "offset":
            column = f'"{name}"'
            condition = f"(s.{column} > t.{column} OR (s.{column} = t.{column} AND {condition}))"
    return condition
