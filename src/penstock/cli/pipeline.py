"""`penstock pipeline`: run the tables, look at them, replay what did not fit."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from penstock.cli.client_options import examples
from penstock.cli.columns import plural
from penstock.cli.spark_errors import spark_errors, starting_spark
from penstock.errors import CannotRead, ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.table import Table as Grid

    from penstock.pipeline.config import PipelineConfig
    from penstock.pipeline.progress import Progress

__all__ = ["pipeline_commands"]

pipeline_commands = typer.Typer(
    help="Bronze, silver and gold tables of what the log holds.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)

Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="A pipeline.toml.")]
CONFIG_DEFAULT = Path("pipeline.toml")


@pipeline_commands.command(
    "run",
    short_help="Keep the tables up to the log.",
    epilog=examples("penstock pipeline run", "penstock pipeline run --once --config plant.toml"),
)
def run(
    *,
    config: Config = CONFIG_DEFAULT,
    once: Annotated[bool, typer.Option("--once", help="Take what is there now, and end.")] = False,
) -> None:
    """Keep the tables up to the log until SIGINT or SIGTERM, and show how it goes."""
    settings = _load(config)
    _look_at_source(config, settings)
    from penstock.pipeline.pipeline import Pipeline  # noqa: PLC0415
    from penstock.pipeline.warehouse import Warehouse  # noqa: PLC0415

    with spark_errors(), Warehouse(settings.warehouse) as warehouse, _Display() as display:
        spark = _session(settings)
        pipeline = Pipeline(spark, warehouse, settings)
        ends = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(number, lambda *_: pipeline.stop()) for number in ends]
        try:
            if once:
                pipeline.run_once(display.show)
                display.show(pipeline.progress)
            else:
                pipeline.run(display.show)
        finally:
            for number, handler in zip(ends, before, strict=True):
                signal.signal(number, handler)


@pipeline_commands.command(
    "status",
    epilog=examples("penstock pipeline status", "penstock pipeline status --json | jq .tables"),
)
def status(
    *,
    config: Config = CONFIG_DEFAULT,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the tables, and what the pipeline did last."""
    settings = _load(config)
    import msgspec  # noqa: PLC0415

    from penstock.pipeline.warehouse import Warehouse  # noqa: PLC0415

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
    running = warehouse.is_running()
    last = warehouse.read_status()
    if json:
        found = {"running": running, "tables": tables, **last}
        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
        return
    typer.echo("running" if running else "not running")
    typer.echo(f"{'table':<24}{'rows':>14}{'files':>8}{'bytes':>16}{'version':>9}")
    for name, values in tables.items():
        typer.echo(
            f"{name:<24}{values['rows']:>14}{values['files']:>8}{values['bytes']:>16}"
            f"{values['version']:>9}"
        )
    for name, stage in last.get("stages", {}).items():
        typer.echo(_line(name, stage))


@pipeline_commands.command(
    "replay-dead-letters",
    short_help="Decode rows that did not fit once more.",
    epilog=examples("penstock pipeline replay-dead-letters --schema temps"),
)
def replay_dead_letters(
    *,
    config: Config = CONFIG_DEFAULT,
    schema: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only those of one silver table.", show_default=False),
    ] = None,
) -> None:
    """Decode rows that did not fit once more, by the schemas as they are now."""
    settings = _load(config)
    chosen = [each for each in settings.silver if schema in {None, each.name}]
    if not chosen:
        names = ", ".join(each.name for each in settings.silver) or "none"
        raise typer.BadParameter(f"there is no silver table {schema!r}; there are: {names}.")
    from penstock.pipeline.dead_letters import replay  # noqa: PLC0415
    from penstock.pipeline.tables import prepare  # noqa: PLC0415
    from penstock.pipeline.warehouse import Warehouse  # noqa: PLC0415

    with spark_errors(), Warehouse(settings.warehouse) as warehouse:
        spark = _session(settings)
        prepare(spark)
        for each in chosen:
            done = replay(spark, warehouse, each)
            typer.echo(f"{done.schema}: {done.replayed} replayed, {done.left} left")


def _load(config: Path) -> "PipelineConfig":
    from penstock.pipeline.config_loading import load  # noqa: PLC0415

    return load(config, environment=os.environ)


def _look_at_source(config: Path, settings: "PipelineConfig") -> None:
    """Raise ConfigError if the source is a folder without a log, before Spark is started."""
    from penstock.storage.arrow.read.follow import partitions_of  # noqa: PLC0415

    if settings.source.endpoint:
        return
    path = settings.source.path
    try:
        partitions_of(Path(path))
    except CannotRead as error:
        problem = f"{path}: {error.reason}; give a broker's data folder, or source.endpoint"
        raise ConfigError(str(config), "source.path", problem) from None


def _session(settings: "PipelineConfig") -> "SparkSession":
    from penstock.spark.session import session  # noqa: PLC0415

    conf = {
        "spark.driver.memory": settings.spark.memory,
        "spark.scheduler.mode": "FAIR",
        **settings.spark.conf,
    }
    with starting_spark():
        return session("penstock pipeline", master=settings.spark.master, short=False, **conf)


def _line(name: str, stage: dict[str, Any]) -> str:
    batches = "1 batch" if stage["batches"] == 1 else f"{stage['batches']:,} batches"
    text = (
        f"{name}: {plural(stage['rows'], 'row')} in {batches}; "
        f"the last {stage['batch_rows']} in {stage['batch_ms']:.0f} ms, {stage['lag']} behind"
    )
    if stage["dead_letters"]:
        text += f", {plural(stage['dead_letters'], 'dead letter')}"
    return f"{text}; failed: {stage['error']}" if stage["error"] else text


class _Display:
    """A table that is drawn anew on a terminal; elsewhere a line now and then."""

    LINE_SECONDS = 10.0

    def __init__(self) -> None:
        self._live: Any = None
        self._printed = time.monotonic()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console  # noqa: PLC0415
            from rich.live import Live  # noqa: PLC0415

            self._live = Live(console=Console(stderr=True), refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, progress: "Progress") -> None:
        """Show the numbers."""
        if self._live is not None:
            self._live.update(_grid(progress))
        elif time.monotonic() - self._printed >= self.LINE_SECONDS:
            self._printed = time.monotonic()
            import msgspec  # noqa: PLC0415

            for name, stage in progress.values().items():
                typer.echo(_line(name, msgspec.structs.asdict(stage)), err=True)


def _grid(progress: "Progress") -> "Grid":
    from rich.table import Table as Grid  # noqa: PLC0415

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
