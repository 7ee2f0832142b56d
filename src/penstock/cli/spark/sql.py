"""The options of `penstock sql`."""

import enum
import os
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.lazy_command import examples
from penstock.cli.log.options import DATA_DEFAULT, Data
from penstock.pipeline.config_loading import load

__all__ = ["SQL_EXAMPLES", "OutFormat", "sql"]

SQL_EXAMPLES: Final = examples(
    "penstock sql 'select topic, count(*) from `sensors/+/temp` group by topic'",
    "penstock sql 'select * from `#`' --data penstock-data --out all.parquet",
    "penstock sql 'select * from traffic' --config pipeline.toml --json",
)


class OutFormat(enum.StrEnum):
    """The formats of `--out`, by suffix."""

    CSV = ".csv"
    PARQUET = ".parquet"


def sql(
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="A SELECT; topics are in `backquotes`.")
    ],
    *,
    data: Data = DATA_DEFAULT,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A pipeline.toml: read its source, and its tables by name.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a .csv or .parquet file.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one object per line.")] = False,
    rows: Annotated[int, typer.Option(min=1, help="Print at most so many rows.")] = 1000,
) -> None:
    """Query topics and tables with SQL, and print the rows.

    A name in backquotes is a topic or a pattern, read from the log; plain names are the tables of
    --config. In a shell, put the query in single quotes.
    """
    if out is not None and out.suffix not in set(OutFormat):
        raise typer.BadParameter("its name must end in .csv or .parquet.", param_hint="--out")
    settings = None if config is None else load(config, environment=os.environ)
    from penstock.cli.spark.query import print_query, write_query  # noqa: PLC0415  (pyspark)

    if out is None:
        print_query(query, data, settings, json=json, rows_max=rows)
    else:
        write_query(query, data, settings, out)
