"""The options of `penstock pipeline`."""

import os
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.common.output import Json
from penstock.cli.lazy_command import examples
from penstock.pipeline.config_loading import load

__all__ = [
    "CHECK_EXAMPLES",
    "COMPACT_EXAMPLES",
    "REBUILD_EXAMPLES",
    "REPLAY_DEAD_LETTERS_EXAMPLES",
    "RUN_EXAMPLES",
    "STATUS_EXAMPLES",
    "VACUUM_EXAMPLES",
    "check",
    "compact",
    "rebuild",
    "replay_dead_letters",
    "run",
    "status",
    "vacuum",
]

Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="A pipeline.toml.")]
CONFIG_DEFAULT: Final = Path("pipeline.toml")

RUN_EXAMPLES: Final = examples(
    "penstock pipeline run", "penstock pipeline run --once --config plant.toml"
)
STATUS_EXAMPLES: Final = examples(
    "penstock pipeline status", "penstock pipeline status --json | jq .tables"
)
REPLAY_DEAD_LETTERS_EXAMPLES: Final = examples(
    "penstock pipeline replay-dead-letters --schema temps"
)

COMPACT_EXAMPLES: Final = examples(
    "penstock pipeline compact", "penstock pipeline compact bronze temps"
)
REBUILD_EXAMPLES: Final = examples("penstock pipeline rebuild temps")
VACUUM_EXAMPLES: Final = examples("penstock pipeline vacuum")
CHECK_EXAMPLES: Final = examples(
    "penstock pipeline check", "penstock pipeline check temps --config plant.toml"
)

Tables = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TABLE]...", help="Only these tables.", show_default=False),
]


def run(
    *,
    config: Config = CONFIG_DEFAULT,
    once: Annotated[
        bool, typer.Option("--once", help="Process the log up to its end, then exit.")
    ] = False,
) -> None:
    """Keep the tables up to date with the log until SIGINT or SIGTERM, and show the progress."""
    settings = load(config, environment=os.environ)
    from penstock.cli.spark.pipeline_status import check_source  # noqa: PLC0415  (pyarrow)

    check_source(config, settings)
    from penstock.cli.spark.pipeline_runner import run_pipeline  # noqa: PLC0415  (pyspark)

    run_pipeline(settings, once=once)


def status(*, config: Config = CONFIG_DEFAULT, json: Json = False) -> None:
    """Show the tables and the progress of the last run."""
    settings = load(config, environment=os.environ)
    from penstock.cli.spark.pipeline_status import show_status  # noqa: PLC0415  (pyarrow)

    show_status(settings, json=json)


def replay_dead_letters(
    *,
    config: Config = CONFIG_DEFAULT,
    schema: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only one silver table.", show_default=False),
    ] = None,
) -> None:
    """Decode dead letters again, with the current schemas."""
    settings = load(config, environment=os.environ)
    chosen = [each for each in settings.silver if schema in {None, each.name}]
    if not chosen:
        names = ", ".join(each.name for each in settings.silver) or "none"
        raise typer.BadParameter(f"there is no silver table {schema!r}; there are: {names}.")
    from penstock.cli.spark.pipeline_runner import replay_tables  # noqa: PLC0415  (pyspark)

    replay_tables(settings, chosen)


def compact(tables: Tables = None, *, config: Config = CONFIG_DEFAULT) -> None:
    """Merge the small files of each table. The pipeline must not run; it compacts by itself."""
    settings = load(config, environment=os.environ)
    from penstock.cli.spark.pipeline_maintenance import compact_tables  # noqa: PLC0415  (pyarrow)

    compact_tables(settings, tables or ())


def vacuum(tables: Tables = None, *, config: Config = CONFIG_DEFAULT) -> None:
    """Delete files and commits that no reader needs. The pipeline must not run."""
    settings = load(config, environment=os.environ)
    from penstock.cli.spark.pipeline_maintenance import vacuum_tables  # noqa: PLC0415  (pyarrow)

    vacuum_tables(settings, tables or ())


def check(tables: Tables = None, *, config: Config = CONFIG_DEFAULT) -> None:
    """Read all files of each table and compare them with its log; exit with 1 after a problem."""
    settings = load(config, environment=os.environ)
    from penstock.cli.spark.pipeline_maintenance import check_tables  # noqa: PLC0415  (pyarrow)

    check_tables(settings, tables or ())


def rebuild(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A silver or gold table.")],
    *,
    config: Config = CONFIG_DEFAULT,
) -> None:
    """Compute a table from bronze again, with the current settings. The pipeline must not run.

    The old table stays until the new one is complete.
    """
    settings = load(config, environment=os.environ)
    from penstock.cli.spark.pipeline_runner import rebuild_table  # noqa: PLC0415  (pyspark)

    rebuild_table(settings, table)
