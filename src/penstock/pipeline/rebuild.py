"""Rebuild of a table: all of its rows are computed from bronze again, with the current settings.

The new table grows beside the old one, in the folder `_rebuild` of the warehouse. One commit then
replaces the rows, the columns and the offsets of the old table. A process that is killed before it
leaves the old table as it was.
"""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.bronze import bronze_offsets, table_offsets
from penstock.pipeline.config import RegistryConfig, SilverConfig
from penstock.pipeline.data_files import DataFile
from penstock.pipeline.errors import CannotRebuild
from penstock.pipeline.gold_jobs import REVISION
from penstock.pipeline.offsets import Stream, to_transactions
from penstock.pipeline.progress import StageProgress
from penstock.pipeline.publication import PUBLISHED, Job, TableJob
from penstock.pipeline.rebuild_recovery import LetterPlan, remove_old_letters, write_plan
from penstock.pipeline.silver_job import WATERMARK, SilverJob
from penstock.pipeline.tables import Table
from penstock.pipeline.warehouse import BY_DAY, REBUILD, Warehouse

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

    def _table(self, path: str, *, partition_by: Sequence[str] = BY_DAY) -> Table:
        old = super()._table(path, partition_by=partition_by)
        if path not in self._paths:
            return old
        if old.exists():  # the partitions of a table cannot change
            partition_by = old.log.partition_by()
        return super()._table(f"{REBUILD}/{path}", partition_by=partition_by)

    def remove(self) -> None:
        """Delete the new tables, and the plan for the old ones."""
        self.store.delete_all(REBUILD)
        shutil.rmtree(self.folder / REBUILD, ignore_errors=True)


def rebuild_silver(
    spark: SparkSession,
    warehouse: Warehouse,
    schema: SilverConfig,
    *,
    rows_max: int,
    registry: RegistryConfig,
) -> Rebuilt:
    """Decode all records of a silver table again; raise CannotRebuild.

    New dead letters are added before the rows are replaced, and the old ones are removed after, so
    each message is in one of the two tables at any time. If the process is killed in between, the
    next one that opens the warehouse completes the rebuild or undoes it.
    """
    name = schema.name
    beside = RebuildWarehouse(warehouse, f"silver/{name}", "dead_letters")
    old = warehouse.silver_of(schema)
    _check_partitions(old, old.partition_by)
    job = SilverJob(spark, beside, schema, rows_max=rows_max, registry=registry)
    _run(job)
    new = beside.silver(name, partition_by=old.partition_by)
    new_letters = beside.dead_letters()
    transactions = _transactions(warehouse, name, new)
    if not old.exists():
        old.evolve_arrow_schema(new.log.schema())
    letters = warehouse.dead_letters()
    letters.evolve_arrow_schema(new_letters.log.schema())
    streams = bronze_offsets(warehouse.bronze())
    files = _move(new_letters, letters)
    plan = _plan(spark, old, letters, added=files, streams=streams)
    write_plan(warehouse.folder / REBUILD, plan)
    if files:
        prefix = f"{name}:"
        offsets = to_transactions(table_offsets(new_letters, streams, prefix), prefix)
        letters.commit(add=files, transactions=offsets)
    rows = _replace(old, new, transactions)
    remove_old_letters(plan, letters)
    beside.remove()
    return Rebuilt(rows, sum(each.rows for each in files))


def _plan(
    spark: SparkSession,
    table: Table,
    letters: Table,
    *,
    added: list[DataFile],
    streams: Iterable[Stream],
) -> LetterPlan:
    """Return the plan for the dead letters of a silver table; write the rows of other tables."""
    old = list(letters.log.files())
    found = letters.read(spark, old)
    kept: list[DataFile] = []
    if old and found.where(f.col("schema") == table.name).limit(1).count():
        kept = letters.write(found.where(f.col("schema") != table.name))
    else:
        old = []
    prefix = f"{table.name}:"
    return LetterPlan(
        silver=table.name,
        version=table.log.refresh(),
        added=tuple(each.path for each in added),
        removed=tuple(each.path for each in old),
        kept=tuple(each.path for each in kept),
        offsets=to_transactions(table_offsets(letters, streams, prefix), prefix),
    )


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
    old = warehouse.gold(job.table.name, partition_by=job.table.partition_by)
    _check_partitions(old, job.table.partition_by)
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


def _check_partitions(old: Table, partition_by: Sequence[str]) -> None:
    """Raise PartitionsChanged if an existing table has other partitions: they cannot change."""
    if old.exists() and old.log.partition_by() != tuple(partition_by):
        raise old.partitions_changed()


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
