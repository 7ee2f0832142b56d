"""Replay of dead letters: decode them again with the current schema."""

from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.config import SilverConfig
from penstock.pipeline.silver import DEAD_LETTER_COLUMNS, ERROR, deduplicated, silver, valid_rows
from penstock.pipeline.warehouse import Warehouse

__all__ = ["Replayed", "replay"]


class Replayed(NamedTuple):
    """Counts of a replay: rows added to the silver table, and dead letters that stay."""

    schema: str
    replayed: int
    left: int


def replay(spark: SparkSession, warehouse: Warehouse, schema: SilverConfig) -> Replayed:
    """Move dead letters that the schema decodes now into its silver table.

    Late rows are moved too. A row that the silver table already has is not added again, so an
    interrupted replay can be repeated.
    """
    dead, table = warehouse.dead_letters(), warehouse.silver(schema.name)
    if not dead.exists():
        return Replayed(schema.name, 0, 0)
    letters = dead.read(spark)
    own = letters.where(f.col("schema") == schema.name)
    decoded = silver(own, schema).persist()
    try:
        rows = valid_rows(decoded)
        table.evolve_schema(rows)
        existing = table.read(spark) if table.log.files() else None
        new_rows = rows
        for keys in {("message_id",), schema.dedup}:
            new_rows = deduplicated(new_rows, keys, existing)
        files = table.write(new_rows)
        if files:
            table.commit(add=files)
        decodable = rows.select("message_id")
        count = decoded.where(f.col(ERROR).isNull()).count()
        if count:
            old = list(dead.log.files())
            others = letters.where(f.col("schema") != schema.name)
            left = own.join(decodable, "message_id", "left_anti").select(*DEAD_LETTER_COLUMNS)
            kept = dead.write(others.select(*DEAD_LETTER_COLUMNS).unionByName(left))
            dead.commit(add=kept, remove=old)
        return Replayed(schema.name, sum(each.rows for each in files), decoded.count() - count)
    finally:
        decoded.unpersist()
