"""Queries in DuckDB: one SELECT over tables that are given, with limits.

Each query runs in a database of its own, in memory, which has these tables only. Access to files
and the network is disabled before the text of the query is parsed. DuckDB does not limit memory or
time within a single function call, so queries of visitors run in a separate process, see
`query_processes`.
"""

import contextlib
import dataclasses
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final

import duckdb
import pyarrow as pa

from penstock.console.limits import SQL_CHARACTERS_MAX, SQL_ROWS_MAX, SQL_SECONDS_MAX
from penstock.console.query_turns import QueryRefused

__all__ = [
    "TOO_LARGE",
    "Database",
    "QueryResult",
    "run_query",
    "too_long_text",
]

_SETTINGS: Final[dict[str, str | bool | int | float | list[str]]] = {
    "memory_limit": "512MB",
    "threads": 1,
    "max_temp_directory_size": "0MB",
    "python_enable_replacements": False,
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
}
"""Without replacements, a name in a query is never a variable of this program."""
TOO_LARGE: Final = "the query needs more memory than it may have"


@dataclasses.dataclass(frozen=True, slots=True)
class QueryResult:
    """The first rows of a result; `cut` says whether there are more."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    cut: bool


class Database:
    """A database in memory without access to files and the network; its tables are given to it."""

    def __init__(self) -> None:
        self._connection = duckdb.connect(":memory:", config=_SETTINGS)
        self._connection.execute("SET TimeZone = 'UTC'")
        self._connection.execute("SET lock_configuration = true")

    def close(self) -> None:
        """Close the database, and free its memory."""
        self._connection.close()

    def named_tables(self, text: str) -> list[str]:
        """Return the tables that a query reads; raise QueryRefused unless it is one SELECT."""
        with _refusing():
            _check(self._connection, text)
            found = sorted(self._connection.get_table_names(text))
        if len({name.casefold() for name in found}) < len(found):
            raise QueryRefused(
                "names that differ only in upper and lower case are one table in SQL"
            )
        return found

    def run(
        self, text: str, tables: Mapping[str, Any], *, rows_max: int = SQL_ROWS_MAX
    ) -> QueryResult:
        """Run one SELECT over tables, which are Arrow data by name; raise QueryRefused."""
        with _refusing():
            _check(self._connection, text)
            for name, data in tables.items():
                self._connection.register(name, data)
            return _run(self._connection, text, rows_max)


def run_query(text: str, tables: Mapping[str, Any], *, rows_max: int = SQL_ROWS_MAX) -> QueryResult:
    """Run one SELECT in a database of its own; raise QueryRefused."""
    with contextlib.closing(Database()) as database:
        return database.run(text, tables, rows_max=rows_max)


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Turn errors of a database into QueryRefused."""
    try:
        yield
    except duckdb.InterruptException:
        raise QueryRefused(too_long_text()) from None
    except (duckdb.OutOfMemoryException, MemoryError):
        raise QueryRefused(TOO_LARGE) from None
    except (duckdb.Error, OSError, pa.ArrowException) as error:
        raise QueryRefused(str(error)) from None


def too_long_text() -> str:
    """Return the error of a query that was stopped because it took too long."""
    return f"the query ran for {SQL_SECONDS_MAX:.0f} s and was stopped"


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
