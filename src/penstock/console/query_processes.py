"""Queries of visitors, each in a process of its own that is killed after the time limit.

A process runs `query_worker` and serves one query. First it answers with the tables that the text
names; then it gets these tables, and answers with the result as text. Requests and answers are
lines of JSON; the messages of topics are sent as Arrow streams.
"""

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from penstock.console.limits import (
    SQL_RESULT_BYTES_MAX,
    SQL_SECONDS_MAX,
    SQL_STOP_SECONDS,
)
from penstock.console.queries import TOO_LARGE, too_long_text
from penstock.console.query_turns import QueryRefused
from penstock.environment import own_module_variables

__all__ = ["Query", "ShownResult"]

_COMMAND: Final = (sys.executable, "-P", "-m", "penstock.console.query_worker")


class ShownResult(msgspec.Struct, frozen=True):
    """The first rows of a result as text; `cut` says whether there are more.

    `numbers` has the values of the numeric columns, by the index of the column.
    """

    columns: list[str]
    rows: list[list[str]]
    numbers: dict[int, list[float | None]]
    cut: bool


class _Answer(msgspec.Struct, frozen=True):
    refused: str = ""
    tables: list[str] = []
    result: ShownResult | None = None


class Query:
    """A query in a process. All methods but `end` block; one thread at a time may call them."""

    def __init__(self, text: str, *, seconds_max: float = SQL_SECONDS_MAX) -> None:
        self._text = text
        self._seconds_max = seconds_max
        self.process: subprocess.Popen[bytes] | None = None
        self._is_late = False

    def named_tables(self) -> list[str]:
        """Start the process; return the tables that the query reads. Raise QueryRefused."""
        try:
            self.process = subprocess.Popen(  # noqa: S603 - our own module
                _COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=own_module_variables(),
                close_fds=True,
                process_group=0,
            )
        except OSError as error:
            raise QueryRefused(f"no query can run now: {error.strerror or error}") from None
        return self._ask(self.process, {"text": self._text}, ()).tables

    def run(self, topics: Mapping[str, pa.Table], folders: Mapping[str, Path]) -> ShownResult:
        """Run the query over messages of topics and Delta tables; raise QueryRefused."""
        if self.process is None:
            raise QueryRefused("the query was not started")
        asked = {
            "topics": list(topics),
            "folders": {name: str(folder) for name, folder in folders.items()},
        }
        result = self._ask(self.process, asked, topics.values()).result
        if result is None:
            raise QueryRefused("the query has no result")
        return result

    def end(self) -> None:
        """Kill the process."""
        process = self.process
        if process is None or process.stdin is None or process.stdout is None:
            return
        process.kill()
        process.wait()  # it is killed: this takes no time
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.stdout.close()

    def _ask(
        self, process: "subprocess.Popen[bytes]", asked: object, tables: Iterable[pa.Table]
    ) -> _Answer:
        if process.stdin is None or process.stdout is None:
            raise AssertionError("a process without pipes")
        # The process stops a query by itself, unless a single function call takes too long.
        timer = threading.Timer(self._seconds_max + SQL_STOP_SECONDS, self._kill)
        timer.start()
        try:
            with contextlib.suppress(OSError):  # the process has ended
                process.stdin.write(msgspec.json.encode(asked) + b"\n")
                for table in tables:
                    with pa.ipc.new_stream(process.stdin, table.schema) as stream:
                        stream.write_table(table)
                process.stdin.flush()
            line = process.stdout.readline(SQL_RESULT_BYTES_MAX + 1)
        finally:
            timer.cancel()
        if not line.endswith(b"\n"):
            raise QueryRefused(self._ending(process))
        answer = msgspec.json.decode(line, type=_Answer)
        if answer.refused:
            raise QueryRefused(answer.refused)
        return answer

    def _kill(self) -> None:
        self._is_late = True
        if self.process is not None:
            self.process.kill()

    def _ending(self, process: "subprocess.Popen[bytes]") -> str:
        """Return the error of a query whose process has not answered."""
        process.kill()
        code = process.wait()
        if self._is_late or code == -signal.SIGXCPU:
            return too_long_text()
        return TOO_LARGE
