"""Runs one query of a visitor in a process of its own: `python -m penstock.console.query_worker`.

The console starts this process, see `query_processes`, and kills it after the time limit. Before
the process reads the text of the query, it drops rights that it does not need: it can write no
file, and functions of DuckDB cannot exceed its limits of memory and processor time. A query over
topics only can open no file and no socket.
"""

import os
import resource
import sys
from typing import Any, BinaryIO, Final

import msgspec
import pyarrow as pa
import pyarrow.dataset

from penstock.console.cells import cell_text
from penstock.console.limits import (
    SQL_DESCRIPTORS_MAX,
    SQL_MEMORY_BYTES_MAX,
    SQL_NICENESS,
    SQL_REQUEST_BYTES_MAX,
    SQL_RESULT_BYTES_MAX,
    SQL_SECONDS_MAX,
    SQL_STOP_SECONDS,
)
from penstock.console.queries import TOO_LARGE, Database, QueryResult
from penstock.console.query_turns import QueryRefused

__all__: list[str] = []

_WARM_UP: Final = (
    "SELECT n, 1.5::DECIMAL(9, 2), uuid(), INTERVAL 1 DAY, TIME '10:00', DATE '2026-01-01', "
    "TIMESTAMPTZ '2026-01-01 00:00:00+00', TIMESTAMP '2026-01-01 00:00:00', {'a': 1}, MAP {'k': 1} "
    "FROM warm_up"
)


def main() -> None:
    """Answer with the tables of a query, and then with its result."""
    os.nice(SQL_NICENESS)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    # Text that a library prints to standard output must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    database = Database()
    # Load modules and time zones that results may need while files can still be opened.
    database.run(_WARM_UP, {"warm_up": pa.table({"n": [1]})})
    _limit()
    try:
        text = _request(sys.stdin.buffer)["text"]
        _answer(answers, {"tables": database.named_tables(text)})
        asked = _request(sys.stdin.buffer)
        tables: dict[str, Any] = {}
        if asked["folders"]:
            resource.setrlimit(resource.RLIMIT_NOFILE, (SQL_DESCRIPTORS_MAX, SQL_DESCRIPTORS_MAX))
            tables |= _delta_tables(asked["folders"])
        for name in asked["topics"]:
            with pa.ipc.open_stream(sys.stdin.buffer) as stream:
                tables[name] = stream.read_all()
        _answer(answers, {"result": _shown(database.run(text, tables))})
    except QueryRefused as error:
        _answer(answers, {"refused": str(error)})
    except MemoryError:
        _answer(answers, {"refused": TOO_LARGE})


def _limit() -> None:
    """Set limits of this process that it cannot raise again."""
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - a file of the system
        used = int(file.read().split()[0]) * resource.getpagesize()
    seconds = int(SQL_SECONDS_MAX + SQL_STOP_SECONDS)
    for limit, value in (
        (resource.RLIMIT_AS, used + SQL_MEMORY_BYTES_MAX),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, SQL_DESCRIPTORS_MAX))


def _request(requests: BinaryIO) -> dict[str, Any]:
    line = requests.readline(SQL_REQUEST_BYTES_MAX)
    if not line:
        raise SystemExit  # the console no longer needs the query
    found: dict[str, Any] = msgspec.json.decode(line)
    return found


def _answer(answers: BinaryIO, answer: object) -> None:
    line = msgspec.json.encode(answer)
    if len(line) >= SQL_RESULT_BYTES_MAX:
        line = msgspec.json.encode({"refused": "the result of the query is too large; select less"})
    answers.write(line + b"\n")
    answers.flush()


def _delta_tables(folders: dict[str, str]) -> dict[str, Any]:
    import deltalake  # noqa: PLC0415 - most queries read topics alone
    from deltalake.exceptions import DeltaError  # noqa: PLC0415

    try:
        return {
            name: deltalake.DeltaTable(folder).to_pyarrow_dataset()
            for name, folder in folders.items()
        }
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise QueryRefused(str(error)) from None


def _shown(result: QueryResult) -> dict[str, Any]:
    """Return a result as text, and the numbers of the columns that have numbers."""
    places = range(len(result.columns))
    numeric = [
        place for place in places if result.rows and isinstance(result.rows[0][place], int | float)
    ]
    return {
        "columns": result.columns,
        "rows": [[cell_text(cell) for cell in row] for row in result.rows],
        "numbers": {place: [_number(row[place]) for row in result.rows] for place in numeric},
        "cut": result.cut,
    }


def _number(cell: object) -> float | None:
    try:
        return float(cell) if isinstance(cell, int | float) else None
    except OverflowError:
        return None


if __name__ == "__main__":
    main()
