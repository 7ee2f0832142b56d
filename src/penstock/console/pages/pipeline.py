"""Pipeline: tables and their freshness, last batches, dead letters, and SQL."""

import asyncio
import time
from typing import Any, Final

from nicegui import ui

from penstock.console.message_view import open_publish
from penstock.console.notes import Note
from penstock.console.payloads import short_text
from penstock.console.query_turns import QueryRefused, QueryTurns
from penstock.console.sessions import LogIn
from penstock.console.sql_box import SqlBox, pipeline_problem
from penstock.console.tables import Column, Table
from penstock.console.text import bytes_text, count_text, duration_text
from penstock.console.warehouse import Commit, TableState, Warehouse

__all__ = ["PipelinePage"]

_REFRESH_SECONDS: Final = 10.0
_NO_TABLES: Final = "There are no tables yet."
_TABLE_COLUMNS: Final = (
    Column("name", "Table", is_name=True),
    Column("rows", "Rows"),
    Column("size", "Size", wide=True),
    Column("version", "Version", wide=True),
    Column("fresh", "Last commit"),
)
_COMMIT_COLUMNS: Final = (
    Column("table", "Table", is_name=True),
    Column("version", "Version", wide=True),
    Column("rows", "Rows"),
    Column("added", "Files added", wide=True),
    Column("removed", "Files removed", wide=True),
    Column("operation", "Operation", is_name=True, wide=True),
    Column("time", "Committed"),
)
_LETTER_COLUMNS: Final = (
    Column("topic", "Topic", is_name=True, cut=True),
    Column("schema", "Schema", is_name=True, wide=True),
    Column("error", "Reason", wraps=True),
    Column("payload", "Payload", cut=True, wide=True),
)


class PipelinePage:
    """The tables of the folder that the console was started with."""

    def __init__(self, login: LogIn, warehouse: Warehouse, turns: QueryTurns) -> None:
        self._login = login
        self._warehouse = warehouse
        self._letters: dict[int, dict[str, Any]] = {}
        with ui.element("section").classes("card"):
            ui.label("Tables").classes("heading")
            self._tables = Table(_TABLE_COLUMNS, "name", empty=_NO_TABLES)
        with ui.element("section").classes("card"):
            ui.label("Last batches").classes("heading")
            self._commits = Table(_COMMIT_COLUMNS, "key", empty="Nothing was committed yet.")
        with ui.element("section").classes("card"):
            ui.label("Dead letters").classes("heading")
            self._dead = Table(_LETTER_COLUMNS, "key", empty=_NO_TABLES)
            self._dead.add_actions({"Edit and replay": self._replay})
        self._note = Note()
        SqlBox(login, warehouse, turns)

    async def start(self) -> None:
        """Show tables and dead letters, and keep them up to date; reading them may take a while."""
        ui.timer(_REFRESH_SECONDS, self._load)

    async def _load(self) -> None:
        if not await self._may_read():
            return
        states = await asyncio.to_thread(self._warehouse.states)
        now = time.time()
        self._tables.show([_table_row(each, now) for each in states])
        commits = await asyncio.to_thread(self._warehouse.commits)
        self._commits.show([_commit_row(each, now) for each in commits])
        try:
            letters = await asyncio.to_thread(self._warehouse.letters)
        except QueryRefused as error:
            self._note.fail(str(error))
            return
        self._letters = dict(enumerate(letters))
        self._dead.set_empty("Every message was decoded." if states else _NO_TABLES)
        self._dead.show([_letter_row(key, each) for key, each in self._letters.items()])

    async def _may_read(self) -> bool:
        """Ask the broker: the tables are files, which only this process protects."""
        problem = await pipeline_problem(self._login)
        if problem is None:
            self._note.say("")
        else:
            self._note.fail(problem)
        return problem is None

    async def _replay(self, row: dict[str, Any]) -> None:
        """Publish the corrected payload to the same topic; the pipeline decodes it as any other."""
        letter = self._letters[row["key"]]
        open_publish(self._login, topic=letter["topic"] or "", value=bytes(letter["value"] or b""))


def _table_row(state: TableState, now: float) -> dict[str, Any]:
    if state.problem:
        return {"name": state.name, "rows": "", "fresh": state.problem}
    return {
        "name": state.name,
        "rows": count_text(state.rows),
        "size": bytes_text(state.size),
        "version": state.version,
        "fresh": f"{duration_text(now - state.committed.timestamp())} ago",
    }


def _commit_row(commit: Commit, now: float) -> dict[str, Any]:
    return {
        "key": f"{commit.table} {commit.version}",
        "table": commit.table,
        "version": commit.version,
        "rows": count_text(commit.rows),
        "added": commit.added,
        "removed": commit.removed,
        "operation": commit.operation,
        "time": f"{duration_text(now - commit.committed.timestamp())} ago",
    }


def _letter_row(key: int, letter: dict[str, Any]) -> dict[str, Any]:
    return {
        "key": key,
        "topic": letter["topic"] or "",
        "schema": letter["schema"],
        "error": letter["error"],
        "payload": short_text(bytes(letter["value"] or b"")),
    }
