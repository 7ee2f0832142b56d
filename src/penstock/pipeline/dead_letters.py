"""Replay of dead letters: decode them again with the current schema."""

from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.config import RegistryConfig, SilverConfig
from penstock.pipeline.merging import latest_rows, mark_incomplete, merge_rows
from penstock.pipeline.silver import DEAD_LETTER_COLUMNS, ERROR, deduplicated, silver, valid_rows
from penstock.pipeline.tables import Table
from penstock.pipeline.warehouse import Warehouse

__all__ = ["Replayed", "replay"]

_NO_REGISTRY: Final = RegistryConfig()


class Replayed(NamedTuple):
    """Counts of a replay: rows added to the silver table, and dead letters that stay."""

    schema: str
    replayed: int
    left: int


def replay(
    spark: SparkSession,
    warehouse: Warehouse,
    schema: SilverConfig,
    registry: RegistryConfig = _NO_REGISTRY,
) -> Replayed:
    """Move dead letters that the schema decodes now into its silver table.

    Late rows are moved too. A row that the silver table already has is not added again, so an
    interrupted replay can be repeated.
    """
    dead, table = (
        warehouse.dead_letters(),
        warehouse.silver_of(schema),
    )
    if not dead.exists():
        return Replayed(schema.name, 0, 0)
    letters = dead.read(spark)
    own = letters.where(f.col("schema") == schema.name)
    decoded = silver(own, schema, registry)
    if schema.merge is not None:
        decoded = mark_incomplete(decoded, schema.merge)
    decoded = decoded.persist()
    try:
        rows = valid_rows(decoded)
        table.evolve_schema(rows)
        added = _add(spark, table, rows, schema)
        failed = decoded.where(f.col(ERROR).isNotNull()).select("message_id").distinct()
        decodable = rows.select("message_id").distinct().join(failed, "message_id", "left_anti")
        count = decodable.count()
        if count:
            old = list(dead.log.files())
            others = letters.where(f.col("schema") != schema.name)
            left = own.join(decodable, "message_id", "left_anti").select(*DEAD_LETTER_COLUMNS)
            kept = dead.write(others.select(*DEAD_LETTER_COLUMNS).unionByName(left))
            dead.commit(add=kept, remove=old)
        return Replayed(schema.name, added, failed.count())
    finally:
        decoded.unpersist()


def _add(spark: SparkSession, table: Table, rows: DataFrame, schema: SilverConfig) -> int:
    """Add rows that the table does not have, or merge them; return their number."""
    if schema.merge is not None:
        latest = latest_rows(rows, schema, schema.merge).toArrow()
        if len(latest):
            merge_rows(table, latest, schema.merge, {})
        return len(latest)
    existing = table.read(spark) if table.log.files() else None
    for keys in {("message_id", *schema.positions), schema.dedup_key}:
        rows = deduplicated(rows, keys, existing, positions=schema.positions)
    files = table.write(rows)
    if files:
        table.commit(add=files)
    return sum(each.rows for each in files)
