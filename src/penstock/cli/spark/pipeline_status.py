"""Show the tables of the pipeline and its last run. This module does not import pyspark."""

import datetime as dt
import sys
from pathlib import Path
from typing import Any

import msgspec
import typer

from penstock.cli.common.columns import plural
from penstock.errors import CannotRead, ConfigError
from penstock.pipeline.config import BUILT_IN_GOLD, PipelineConfig
from penstock.pipeline.warehouse import Warehouse
from penstock.storage.arrow.read.follow import partitions_of

__all__ = ["check_source", "show_status", "stage_line"]


def check_source(config: Path, settings: PipelineConfig) -> None:
    """Raise ConfigError if the source is a folder without a log. Starting Spark takes longer."""
    if settings.source.endpoint or settings.source.url:
        return
    path = settings.source.path
    try:
        partitions_of(Path(path))
    except CannotRead as error:
        problem = f"{path}: {error.reason}; give a broker's data folder, or source.endpoint"
        raise ConfigError(str(config), "source.path", problem) from None


def show_status(settings: PipelineConfig, *, json: bool) -> None:
    """Print the tables and the stages of the last run."""
    warehouse = Warehouse(settings.warehouse)
    tables = {
        name: {
            "rows": table.rows(),
            "files": len(table.log.files()),
            "bytes": sum(each.size for each in table.log.files()),
            "version": table.log.refresh(),
        }
        for name, table in warehouse.tables().items()
    }
    missing = [name for name in _configured(settings) if name not in tables]
    running = warehouse.is_running()
    last = warehouse.read_status()
    if json:
        found = {"running": running, "tables": tables, "missing": missing, **last}
        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
        return
    typer.echo("running" if running else "not running")
    typer.echo(f"{'table':<24}{'rows':>14}{'files':>8}{'bytes':>16}{'version':>9}")
    for name, values in tables.items():
        typer.echo(
            f"{name:<24}{values['rows']:>14}{values['files']:>8}{values['bytes']:>16}"
            f"{values['version']:>9}"
        )
    for name in missing:
        typer.echo(f"{name:<24}{'not created yet':>14}")
    if "updated" in last:
        moment = dt.datetime.fromtimestamp(last["updated"], dt.UTC)
        typer.echo(f"progress of the last run, {moment:%Y-%m-%d %H:%M:%S} UTC:")
    for name, stage in last.get("stages", {}).items():
        typer.echo(stage_line(name, stage))


def _configured(settings: PipelineConfig) -> list[str]:
    """Return the names of the tables that the configuration makes, without dead_letters."""
    gold = settings.gold
    files = sorted(Path(gold.sql).glob("*.sql")) if gold.enabled and gold.sql else []
    return [
        "bronze",
        *(silver.name for silver in settings.silver),
        *(BUILT_IN_GOLD if gold.enabled else ()),
        *(file.stem for file in files),
    ]


def stage_line(name: str, stage: dict[str, Any]) -> str:
    """Return the numbers of a stage as a line."""
    batches = "1 batch" if stage["batches"] == 1 else f"{stage['batches']:,} batches"
    text = (
        f"{name}: {plural(stage['rows'], 'row')} in {batches}; "
        f"the last {stage['batch_rows']} in {stage['batch_ms']:.0f} ms, {stage['lag']} behind"
    )
    if stage["dead_letters"]:
        text += f", {plural(stage['dead_letters'], 'dead letter')}"
    return f"{text}; failed: {stage['error']}" if stage["error"] else text
