"""Rebuild of a table: all of its rows are computed from bronze again, with the current settings.

The new table grows beside the old one, in the folder `_rebuild` of the warehouse. One commit then
replaces the rows, the columns and the offsets of the old table. A process that is killed before it
leaves the old table as it was.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.bronze import bronze_offsets, table_offsets
from penstock.pipeline.config import SilverConfig
from penstock.pipeline.data_files import DataFile
from penstock.pipeline.errors import CannotRebuild
from penstock.pipeline.gold_jobs import REVISION
from penstock.pipeline.offsets import to_transactions
from penstock.pipeline.progress import StageProgress
from penstock.pipeline.publication import PUBLISHED, Job, TableJob
from penstock.pipeline.silver_job import WATERMARK, SilverJob
from penstock.pipeline.tables import Table
from penstock.pipeline.warehouse import REBUILD, Warehouse

__all__ = ["RebuildWarehouse", "Rebuilt", "rebuild_gold", "rebuild_silver"]

_STATE: Final = (WATERMARK, "input", "query", "now")
"""App transactions of jobs in addition to their offsets and the revision."""


class Rebuilt(NamedTuple):
    """The number of rows of a rebuilt table, and of its dead letters."""

    rows: int
    dead_letters: int


class RebuildWarehouse(Warehouse):
    """A warehouse in which some tables are new and all others are those of another warehouse."""

    def __init__(self, warehouse: Warehouse, *paths: str) -> None:
        super().__init__(warehouse.config)
        self._paths = paths
        self.remove()

    def _table(self, path: str, *, by_day: bool = True) -> Table:
        old = super()._table(path, by_day=by_day)
        if path not in self._paths:
            return old
        if old.exists():  # the partitions of a table cannot change
            by_day = old.log.by_day()
        return super()._table(f"{REBUILD}/{path}", by_day=by_day)

    def remove(self) -> None:
        """Delete the folder of the new tables."""
        self.store.delete_all(REBUILD)


def rebuild_silver(
    spark: SparkSession, warehouse: Warehouse, schema: SilverConfig, *, rows_max: int
) -> Rebuilt:
    """Decode all records of a silver table again; raise CannotRebuild.

    New dead letters are added before the rows are replaced, and the old ones are removed after, so
    each message is in one of the two tables at any time.
    """
    name = schema.name
    beside = RebuildWarehouse(warehouse, f"silver/{name}", "dead_letters")
    job = SilverJob(spark, beside, schema, rows_max=rows_max)
    _run(job)
    new, new_letters = beside.silver(name), beside.dead_letters()
    transactions = _transactions(warehouse, name, new)
    letters = warehouse.dead_letters()
    old_letters = list(letters.log.files()) if letters.exists() else []
    dead = 0
    if new_letters.exists() and new_letters.log.files():
        letters.evolve_arrow_schema(new_letters.log.schema())
        streams = bronze_offsets(warehouse.bronze())
        prefix = f"{name}:"
        offsets = table_offsets(new_letters, streams, prefix)
        files = _move(new_letters, letters)
        letters.commit(add=files, transactions=to_transactions(offsets, prefix))
        dead = sum(each.rows for each in files)
    rows = _replace(warehouse.silver(name, by_day=new.log.by_day()), new, transactions)
    if old_letters:
        found = letters.read(spark, old_letters)
        if found.where(f.col("schema") == name).limit(1).count():
            kept = letters.write(found.where(f.col("schema") != name))
            letters.commit(add=kept, remove=old_letters)
    beside.remove()
    return Rebuilt(rows, dead)


def rebuild_gold(
    warehouse: Warehouse,
    beside: RebuildWarehouse,
    job: TableJob,
    spark: SparkSession,
    *,
    published: bool,
) -> Rebuilt:
    """Compute a gold table again with a job of `beside`; raise CannotRebuild.

    All rows get a new revision, so a table with a publication is published as a whole.
    """
    old = warehouse.gold(job.table.name, by_day=job.table.by_day)
    revision = old.log.transaction_version(REVISION) or 0
    if published and revision > (old.log.transaction_version(PUBLISHED) or 0):
        reason = "its last changes are not published yet; run penstock pipeline run --once first"
        raise CannotRebuild(old.name, reason)
    _run(job)
    new = job.table
    transactions = _transactions(warehouse, old.name, new) | {REVISION: revision + 1}
    column = f.lit(revision + 1).cast("long")
    frame = new.read(spark).withColumn(REVISION, column)
    files = new.write(frame.coalesce(1))
    rows = _replace(old, new, transactions, files)
    beside.remove()
    return Rebuilt(rows, 0)


def _run(job: Job) -> None:
    stage = StageProgress()
    while job.step(stage):
        pass


def _transactions(warehouse: Warehouse, name: str, new: Table) -> dict[str, int]:
    """Return the app transactions of a new table; raise CannotRebuild if it was not created."""
    streams = bronze_offsets(warehouse.bronze())
    if not new.exists():
        raise CannotRebuild(name, "bronze has no messages, or tables that it reads are missing")
    state = {each: new.log.transaction_version(each) for each in _STATE}
    return to_transactions(table_offsets(new, streams)) | {
        each: version for each, version in state.items() if version is not None
    }


def _replace(
    old: Table, new: Table, transactions: Mapping[str, int], files: list[DataFile] | None = None
) -> int:
    """Replace the rows and columns of `old` by those of `new`; return the number of rows."""
    if not old.exists():
        old.evolve_arrow_schema(new.log.schema())
    moved = _move(new, old, files)
    old.log.replace(add=moved, schema=new.log.schema(), transactions=transactions)
    old.read_offsets.clear()
    return sum(each.rows for each in moved)


def _move(new: Table, old: Table, files: list[DataFile] | None = None) -> list[DataFile]:
    """Move the data files of `new` into the folder of `old`; their names are unique."""
    found = list(new.log.files()) if files is None else files
    for each in found:
        new.store.move(each.path, old.store, each.path)
    return found
