"""Dead letters replayed: decoded again, by the schema as it is now."""

from typing import TYPE_CHECKING, NamedTuple

from penstock.pipeline.config import SilverConfig
from penstock.pipeline.silver import DEAD_LETTER_COLUMNS, ERROR, deduplicated, good, silver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipeline.warehouse import Warehouse

__all__ = ["Replayed", "replay"]


class Replayed(NamedTuple):
    """What became of the dead letters of a schema."""

    schema: str
    replayed: int
    left: int


def replay(spark: "SparkSession", warehouse: "Warehouse", schema: SilverConfig) -> Replayed:
    """Put dead letters of a schema that fit now into its table, and take them out of theirs.

    Rows that were late are taken: it is asked for them. A row that is in the table already is not
    put there again, so a replay that was cut short is done again without harm.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    dead, table = warehouse.dead_letters(), warehouse.silver(schema.name)
    if not dead.exists():
        return Replayed(schema.name, 0, 0)
    letters = dead.read(spark)
    own = letters.where(f.col("schema") == schema.name)
    decoded = silver(own, schema).persist()
    try:
        rows = good(decoded)
        table.fit(rows)
        existing = table.read(spark) if table.log.files() else None
        fits = rows
        for keys in {("message_id",), schema.dedup}:
            fits = deduplicated(fits, keys, existing)
        files = table.write(fits)
        if files:
            table.commit(add=files)
        healed = rows.select("message_id")
        count = decoded.where(f.col(ERROR).isNull()).count()
        if count:
            old = list(dead.log.files())
            others = letters.where(f.col("schema") != schema.name)
            left = own.join(healed, "message_id", "left_anti").select(*DEAD_LETTER_COLUMNS)
            kept = dead.write(others.select(*DEAD_LETTER_COLUMNS).unionByName(left))
            dead.commit(add=kept, remove=old)
        return Replayed(schema.name, sum(each.rows for each in files), decoded.count() - count)
    finally:
        decoded.unpersist()
