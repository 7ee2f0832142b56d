"""Compact, vacuum and check the tables of the pipeline, one line for each table."""

from collections.abc import Sequence

import typer

from penstock.cli.common.columns import plural
from penstock.pipeline.config import PipelineConfig
from penstock.pipeline.errors import NoSuchTable
from penstock.pipeline.maintenance import Maintenance, check_table
from penstock.pipeline.tables import Table
from penstock.pipeline.warehouse import Warehouse

__all__ = ["check_tables", "compact_tables", "vacuum_tables"]


def compact_tables(settings: PipelineConfig, names: Sequence[str]) -> None:
    """Merge small files, of two or more in a day; raise WarehouseInUse or NoSuchTable."""
    with Warehouse(settings.warehouse) as warehouse:
        maintenance = Maintenance(warehouse, settings.silver)
        for name, table in _chosen(warehouse, names).items():
            before = len(table.log.files())
            maintenance.compact(table, files_min=2)
            typer.echo(f"{name}: {plural(before, 'file')}, now {len(table.log.files())}")


def vacuum_tables(settings: PipelineConfig, names: Sequence[str]) -> None:
    """Delete old files and commits; raise WarehouseInUse or NoSuchTable."""
    with Warehouse(settings.warehouse) as warehouse:
        maintenance = Maintenance(warehouse, settings.silver)
        for name, table in _chosen(warehouse, names).items():
            deleted = maintenance.delete_history(table) + maintenance.vacuum(table)
            typer.echo(f"{name}: {plural(deleted, 'file')} deleted")


def check_tables(settings: PipelineConfig, names: Sequence[str]) -> None:
    """Print the problems of each table; exit with 1 if there are any."""
    warehouse = Warehouse(settings.warehouse)
    failed = False
    for name, table in _chosen(warehouse, names).items():
        found = check_table(table)
        text = f"{plural(found.rows, 'row')} in {plural(found.files, 'file')}"
        if found.uncommitted:
            text += f", {plural(found.uncommitted, 'uncommitted file')}"
        typer.echo(f"{name}: {text}, {'no problem' if not found.problems else 'damaged'}")
        for problem in found.problems:
            typer.echo(f"  {problem}")
        failed |= bool(found.problems)
    if failed:
        raise typer.Exit(1)


def _chosen(warehouse: Warehouse, names: Sequence[str]) -> dict[str, Table]:
    """Return the tables with the given names, all without names; raise NoSuchTable."""
    tables = warehouse.tables()
    for name in names:
        if name not in tables:
            raise NoSuchTable(name, ", ".join(sorted(tables)))
    return {name: table for name, table in tables.items() if not names or name in names}
