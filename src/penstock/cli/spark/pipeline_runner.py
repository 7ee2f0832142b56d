"""Run the pipeline and replay dead letters. This module imports pyspark."""

import signal
import sys
import time
from collections.abc import Iterable
from typing import Any, Self

import msgspec
import typer
from pyspark.sql import SparkSession
from rich.console import Console
from rich.live import Live
from rich.table import Table as Grid

from penstock.cli.common.columns import plural
from penstock.cli.spark.errors import spark_errors
from penstock.cli.spark.pipeline_status import stage_line
from penstock.cli.spark.sessions import start_session
from penstock.pipeline.config import PipelineConfig, SilverConfig
from penstock.pipeline.dead_letters import replay
from penstock.pipeline.pipeline import Pipeline, rebuild
from penstock.pipeline.progress import Progress
from penstock.pipeline.tables import prepare
from penstock.pipeline.warehouse import Warehouse

__all__ = ["rebuild_table", "replay_tables", "run_pipeline"]


def run_pipeline(settings: PipelineConfig, *, once: bool) -> None:
    """Keep the tables up to date until SIGINT or SIGTERM, or process the log once."""
    with spark_errors(), Warehouse(settings.warehouse) as warehouse, _Display() as display:
        spark = _session(settings)
        pipeline = Pipeline(spark, warehouse, settings)
        ends = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(number, lambda *_: pipeline.stop()) for number in ends]
        try:
            if once:
                pipeline.run_once(display.show)
                display.show(pipeline.progress, last=True)
            else:
                pipeline.run(display.show)
        finally:
            for number, handler in zip(ends, before, strict=True):
                signal.signal(number, handler)


def replay_tables(settings: PipelineConfig, tables: Iterable[SilverConfig]) -> None:
    """Decode the dead letters of silver tables again and print the counts."""
    with spark_errors(), Warehouse(settings.warehouse) as warehouse:
        spark = _session(settings)
        prepare(spark)
        for each in tables:
            done = replay(spark, warehouse, each, settings.registry)
            typer.echo(f"{done.schema}: {done.replayed} replayed, {done.left} left")


def rebuild_table(settings: PipelineConfig, name: str) -> None:
    """Compute a table from bronze again and print its number of rows."""
    with spark_errors(), Warehouse(settings.warehouse) as warehouse:
        done = rebuild(_session(settings), warehouse, settings, name)
        text = f"{name}: {plural(done.rows, 'row')}"
        if done.dead_letters:
            text += f", {plural(done.dead_letters, 'dead letter')}"
        typer.echo(text)


def _session(settings: PipelineConfig) -> SparkSession:
    return start_session(
        "penstock pipeline", settings.spark, {"spark.scheduler.mode": "FAIR"}, short=False
    )


class _Display:
    """Shows progress: a live table on a terminal, else a line every LINE_SECONDS."""

    LINE_SECONDS = 10.0

    def __init__(self) -> None:
        self._live: Any = None
        self._printed = time.monotonic()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._live = Live(console=Console(stderr=True), refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, progress: Progress, *, last: bool = False) -> None:
        """Show the progress of all stages; the last one is shown in any case."""
        if self._live is not None:
            self._live.update(_grid(progress))
        elif last or time.monotonic() - self._printed >= self.LINE_SECONDS:
            self._printed = time.monotonic()

            for name, stage in progress.values().items():
                typer.echo(stage_line(name, msgspec.structs.asdict(stage)), err=True)


def _grid(progress: Progress) -> Grid:

    grid = Grid()
    for title in ("stage", "rows", "rows/s", "batch ms", "behind", "dead letters", ""):
        grid.add_column(title, justify="left" if title in {"stage", ""} else "right")
    for name, stage in progress.values().items():
        grid.add_row(
            name,
            f"{stage.rows:,}",
            f"{stage.rows_per_second:,.0f}",
            f"{stage.batch_ms:,.0f}",
            f"{stage.lag:,}",
            f"{stage.dead_letters:,}",
            stage.error,
        )
    return grid
