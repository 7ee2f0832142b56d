"""The options of `penstock sql`."""

import enum
import os
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.common.client_options import utf8
from penstock.cli.lazy_command import examples
from penstock.cli.log.options import DATA_DEFAULT, Data
from penstock.pipeline.config_loading import load

__all__ = ["SQL_EXAMPLES", "OutFormat", "sql"]

SQL_EXAMPLES: Final = examples(
    "penstock sql 'select topic, count(*) from `sensors/+/temp` group by topic'",
    "penstock sql 'select * from `#`' --data penstock-data --out all.parquet",
    "penstock sql 'select * from `alarms`' --endpoint grpc://127.0.0.1:7090 --json",
    "penstock sql 'select * from traffic' --config pipeline.toml --out s3://bucket/traffic.csv",
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
    endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Read from a running broker, at its Arrow Flight address, instead of a folder: "
            "grpc://127.0.0.1:7090, or grpc+tls:// with TLS.",
            show_default=False,
        ),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(
            "--ca",
            metavar="FILE",
            help="Certificates to trust with grpc+tls, instead of the system's.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A pipeline.toml: read its source, and its tables by name.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write a .csv or .parquet file, or one in an object store: s3://, gs:// or "
            "abfss://.",
            show_default=False,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one object per line.")] = False,
    rows: Annotated[int, typer.Option(min=1, help="Print at most so many rows.")] = 1000,
) -> None:
    """Query topics and tables with SQL, and print the rows.

    A name in backquotes is a topic or a pattern, read from the log; plain names are the tables of
    --config. In a shell, put the query in single quotes. With --endpoint, the variable
    PENSTOCK_TOKEN or PENSTOCK_API_KEY has the credentials.
    """
    if out is not None and Path(out).suffix not in set(OutFormat):
        raise typer.BadParameter("its name must end in .csv or .parquet.", param_hint="--out")
    settings = None if config is None else load(config, environment=os.environ)
    source = _source(data, endpoint, ca)
    if settings is not None and endpoint is None:
        source = settings.source.options
    from penstock.cli.spark.query import print_query, write_query  # noqa: PLC0415  (pyspark)

    if out is None:
        print_query(query, source, settings, json=json, rows_max=rows)
    else:
        write_query(query, source, settings, out)


def _source(data: Path, endpoint: str | None, ca: Path | None) -> dict[str, str]:
    """Return the options of the data source that name the log."""
    if endpoint is None:
        if ca is not None:
            raise typer.BadParameter("is for --endpoint.", param_hint="--ca")
        return {"path": str(data)}
    source = {"endpoint": endpoint}
    if ca is not None:
        source["certificate"] = str(ca)
    secret = os.environ.get("PENSTOCK_TOKEN") or os.environ.get("PENSTOCK_API_KEY")
    if secret:
        source["token"] = utf8(secret, "PENSTOCK_TOKEN or PENSTOCK_API_KEY")
    return source
