"""`penstock sql`: a query over topics and tables."""

import enum
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.client_options import examples
from penstock.cli.columns import plural
from penstock.cli.log_options import DATA_DEFAULT, Data, quiet_pipe
from penstock.cli.spark_errors import spark_errors, starting_spark
from penstock.errors import CannotExport

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.pipeline.config import PipelineConfig

__all__ = ["SQL_EXAMPLES", "sql"]

SHOWN_CHARACTERS_MAX = 60

SQL_EXAMPLES: Final = examples(
    "penstock sql 'select topic, count(*) from `sensors/+/temp` group by topic'",
    "penstock sql 'select * from `#`' --data penstock-data --out all.parquet",
    "penstock sql 'select * from traffic' --config pipeline.toml --json",
)


class OutFormat(enum.StrEnum):
    """What `--out` writes, by the file's ending."""

    CSV = ".csv"
    PARQUET = ".parquet"


def sql(
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="A SELECT; topics stand in `backquotes`.")
    ],
    *,
    data: Data = DATA_DEFAULT,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A pipeline.toml: its source is read, and its tables are known by name.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a .csv or .parquet file.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one object a line.")] = False,
    rows: Annotated[int, typer.Option(min=1, help="Print so many rows at most.")] = 1000,
) -> None:
    """Ask topics and tables with SQL, and print the rows.

    A name in backquotes is a topic or a pattern, read from the log; bare names are the tables of
    --config. In a shell, put the query into single quotes.
    """
    if out is not None and out.suffix not in set(OutFormat):
        raise typer.BadParameter("its name must end in .csv or .parquet.", param_hint="--out")
    settings = _settings(config)
    from penstock.pipeline.query import run_query  # noqa: PLC0415
    from penstock.pipeline.tables import prepare  # noqa: PLC0415
    from penstock.pipeline.warehouse import Warehouse  # noqa: PLC0415
    from penstock.spark.session import session  # noqa: PLC0415

    source = {"path": str(data)}
    tables = {}
    if settings is not None:
        tables = Warehouse(settings.warehouse).tables()
        source = settings.source.options
    with spark_errors(), tempfile.TemporaryDirectory(prefix="penstock-sql-") as folder:
        with starting_spark():
            # Where Spark would keep tables of its own, which without this is the current folder.
            kept = {"spark.sql.warehouse.dir": folder}
            spark = session("penstock sql", short=True, **kept)
        prepare(spark)
        frame = run_query(spark, query, tables=tables, source=source)
        found = (frame if out is not None else frame.limit(rows + 1)).toArrow()
    if out is not None:
        _write(found, out)
        typer.echo(f"{plural(found.num_rows, 'row')} in {out}", err=True)
        return
    with quiet_pipe():
        shown = found.slice(0, rows)
        sys.stdout.buffer.write(_json(shown) if json else _table(shown))
        sys.stdout.buffer.flush()
    if found.num_rows > rows:
        typer.echo(f"penstock: more than {rows} rows; see --rows and --out", err=True)


def _settings(config: Path | None) -> "PipelineConfig | None":
    if config is None:
        return None
    from penstock.pipeline.config_loading import load  # noqa: PLC0415

    return load(config, environment=os.environ)


def _write(table: "pa.Table", out: Path) -> None:
    try:
        if out.suffix == OutFormat.CSV:
            import pyarrow as pa  # noqa: PLC0415
            from pyarrow import csv  # noqa: PLC0415

            nested = [
                field.name
                for field in table.schema
                if pa.types.is_nested(field.type) or pa.types.is_binary(field.type)
            ]
            for name in nested:
                place = table.schema.get_field_index(name)
                text = _texts(table.column(name))
                table = table.set_column(place, name, pa.array(text, pa.utf8()))
            csv.write_csv(table, out)
        else:
            from pyarrow import parquet  # noqa: PLC0415

            parquet.write_table(table, out)
    except OSError as error:
        raise CannotExport(str(out), error.strerror or str(error)) from error


def _json(table: "pa.Table") -> bytes:
    import msgspec  # noqa: PLC0415

    return msgspec.json.Encoder().encode_lines(table.to_pylist())


def _texts(column: "pa.ChunkedArray") -> list[str | None]:
    """Return a column as text for people: bytes that are text as such, the nested as JSON."""
    import msgspec  # noqa: PLC0415

    from penstock.cli.log_text import shown, text_of  # noqa: PLC0415

    found: list[str | None] = []
    for value in column.to_pylist():
        match value:
            case None:
                found.append(None)
            case bytes():
                found.append(text_of(value))
            case str():
                found.append(shown(value))
            case list() | dict():
                found.append(msgspec.json.encode(value).decode())
            case _:
                found.append(str(value))
    return found


def _table(table: "pa.Table") -> bytes:
    """Return rows as a table of text, with as much of each value as fits."""
    columns = []
    for name in table.column_names:
        texts = ["" if each is None else each for each in _texts(table.column(name))]
        cut = [
            each if len(each) <= SHOWN_CHARACTERS_MAX else f"{each[: SHOWN_CHARACTERS_MAX - 1]}…"
            for each in (name, *texts)
        ]
        width = max(map(len, cut))
        columns.append([each.ljust(width) for each in cut])
    lines = ["  ".join(parts).rstrip() for parts in zip(*columns, strict=True)]
    if lines:
        lines.insert(1, "  ".join("─" * len(column[0]) for column in columns))
    return ("\n".join(lines) + "\n").encode()
