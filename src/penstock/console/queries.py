"""Queries in DuckDB: one SELECT over tables that are given, with limits.

Each query runs in a database of its own, in memory: it sees these tables and nothing else, neither
files nor the network. All functions may block and run in threads.
"""

import dataclasses
import threading
from collections.abc import Mapping
from typing import Any, Final

import duckdb
import pyarrow as pa

from penstock.console.limits import SQL_CHARACTERS_MAX, SQL_ROWS_MAX, SQL_SECONDS_MAX

__all__ = ["QueryRefused", "QueryResult", "named_tables", "run_query"]

_LIMITS: Final[dict[str, str | bool | int | float | list[str]]] = {
    "memory_limit": "512MB",
    "threads": 1,
    "max_temp_directory_size": "0MB",
    "python_enable_replacements": False,
}
"""Without replacements, a name in a query is never a variable of this program."""


class QueryRefused(Exception):
    """A query that is not run, or that failed."""


@dataclasses.dataclass(frozen=True, slots=True)
class QueryResult:
    """The first rows of a result; `cut` says whether there are more."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    cut: bool


def named_tables(text: str) -> list[str]:
    """Return the tables that a query reads; raise QueryRefused unless it is one SELECT."""
    try:
        with duckdb.connect(":memory:", config=_LIMITS) as connection:
            _check(connection, text)
            found = sorted(connection.get_table_names(text))
    except duckdb.Error as error:
        raise QueryRefused(str(error)) from None
    if len({name.casefold() for name in found}) < len(found):
        raise QueryRefused("names that differ only in upper and lower case are one table in SQL")
    return found


def run_query(text: str, tables: Mapping[str, Any], *, rows_max: int = SQL_ROWS_MAX) -> QueryResult:
    """Run one SELECT over tables, which are Arrow data by name; raise QueryRefused."""
    try:
        with duckdb.connect(":memory:", config=_LIMITS) as connection:
            _check(connection, text)
            for name, data in tables.items():
                connection.register(name, data)
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
            return _run(connection, text, rows_max)
    except duckdb.InterruptException:
        raise QueryRefused(f"it ran for {SQL_SECONDS_MAX:.0f} s and was stopped") from None
    except (duckdb.Error, OSError, pa.ArrowException) as error:
        raise QueryRefused(str(error)) from None


def _check(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    """Raise QueryRefused unless a text is one query that only reads."""
    if len(text) > SQL_CHARACTERS_MAX:
        raise QueryRefused(f"a query may have {SQL_CHARACTERS_MAX:,} characters")
    statements = connection.extract_statements(text)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise QueryRefused("expected one SELECT; nothing can be changed here")


def _run(connection: duckdb.DuckDBPyConnection, text: str, rows_max: int) -> QueryResult:
    timer = threading.Timer(SQL_SECONDS_MAX, connection.interrupt)
    timer.start()
    try:
        result = connection.execute(text)
        rows = result.fetchmany(rows_max + 1)
    finally:
        timer.cancel()
    columns = tuple(str(each[0]) for each in result.description or ())
    return QueryResult(columns, rows[:rows_max], cut=len(rows) > rows_max)
