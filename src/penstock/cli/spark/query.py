"""Run a query in Spark, and print or write its rows. This module imports pyspark."""

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import typer
from pyarrow import csv, parquet

from penstock.cli.common.columns import plural
from penstock.cli.common.failure import CommandFailed
from penstock.cli.common.output import quiet_pipe
from penstock.cli.common.text import shown, text_of
from penstock.cli.spark.errors import spark_errors
from penstock.cli.spark.sessions import start_session
from penstock.cli.spark.sql import OutFormat
from penstock.errors import AuthenticationFailed, CallerError, CannotExport, PeerError
from penstock.pipeline.config import PipelineConfig, SparkConfig
from penstock.pipeline.query import run_query
from penstock.pipeline.tables import prepare
from penstock.pipeline.warehouse import Warehouse
from penstock.spark.errors import InvalidOption
from penstock.spark.options import Broker, read_options
from penstock.storage.object_store import ObjectStore
from penstock.storage.urls import is_url

__all__ = ["print_query", "write_query"]

SHOWN_CHARACTERS_MAX: Final = 60


def print_query(
    query: str,
    source: Mapping[str, str],
    settings: PipelineConfig | None,
    *,
    json: bool,
    rows_max: int,
) -> None:
    """Print at most `rows_max` rows of a query, and a note if there are more."""
    found = _run(query, source, settings, rows_max=rows_max + 1)
    with quiet_pipe():
        first = found.slice(0, rows_max)
        sys.stdout.buffer.write(_json(first) if json else _table(first))
        sys.stdout.buffer.flush()
    if found.num_rows > rows_max:
        typer.echo(f"penstock: more than {rows_max} rows; see --rows and --out", err=True)


def write_query(
    query: str, source: Mapping[str, str], settings: PipelineConfig | None, out: str
) -> None:
    """Write all rows of a query to a file, at a path or a URL; raise CannotExport."""
    opened = _opening(out)  # refuse a URL before the query, which may take long
    found = _run(query, source, settings, rows_max=None)
    _write(found, opened, out)
    typer.echo(f"{plural(found.num_rows, 'row')} in {out}", err=True)


def _run(
    query: str, source: Mapping[str, str], settings: PipelineConfig | None, *, rows_max: int | None
) -> pa.Table:
    tables = {} if settings is None else Warehouse(settings.warehouse).tables()
    with _source_errors(source):
        if "endpoint" in source:  # before Spark starts, which takes seconds
            broker = read_options(source, streaming=False).where
            if isinstance(broker, Broker):
                with broker.client(expected=False) as client:
                    client.bounds()
        with spark_errors(), tempfile.TemporaryDirectory(prefix="penstock-sql-") as folder:
            # The folder of Spark's own tables; by default it is the current folder.
            kept = {"spark.sql.warehouse.dir": folder}
            given = SparkConfig() if settings is None else settings.spark
            spark = start_session("penstock sql", given, kept, short=True)
            prepare(spark)
            frame = run_query(spark, query, tables=tables, source=source)
            return (frame if rows_max is None else frame.limit(rows_max)).toArrow()


@contextlib.contextmanager
def _source_errors(source: Mapping[str, str]) -> Iterator[None]:
    """Raise CommandFailed for errors of the log that is read."""
    try:
        yield
    except InvalidOption as error:
        raise CommandFailed(f"--{error.option}: {error.problem}", error.allowed) from error
    except AuthenticationFailed as error:
        text = f"{source.get('endpoint')} requires valid credentials"
        raise CommandFailed(text, "set PENSTOCK_TOKEN or PENSTOCK_API_KEY") from error
    except (CallerError, PeerError) as error:
        raise CommandFailed(str(error)) from error


def _opening(out: str) -> Callable[[], AbstractContextManager[Any]]:
    """Return what opens a file, or an object of a URL, to write it."""
    if not is_url(out):
        return lambda: Path(out).open("wb")
    folder, _, name = out.rpartition("/")
    try:
        store = ObjectStore(folder)
    except ValueError as error:
        raise CannotExport(out, str(error)) from error
    return lambda: store.writing(name)


def _write(table: pa.Table, opened: Callable[[], AbstractContextManager[Any]], out: str) -> None:
    try:
        if Path(out).suffix == OutFormat.CSV:
            nested = [
                field.name
                for field in table.schema
                if pa.types.is_nested(field.type) or pa.types.is_binary(field.type)
            ]
            for name in nested:
                place = table.schema.get_field_index(name)
                text = _texts(table.column(name))
                table = table.set_column(place, name, pa.array(text, pa.utf8()))
        with opened() as stream:
            if Path(out).suffix == OutFormat.CSV:
                csv.write_csv(table, stream)
            else:
                parquet.write_table(table, stream)
    except OSError as error:
        raise CannotExport(out, error.strerror or str(error)) from error


def _json(table: pa.Table) -> bytes:

    return msgspec.json.Encoder().encode_lines(table.to_pylist())


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    """Return a column as text: bytes as escaped text, nested values as JSON."""
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


def _table(table: pa.Table) -> bytes:
    """Return rows as a table of text; long values are cut."""
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
