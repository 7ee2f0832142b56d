"""Pipeline: tables and their freshness, last batches, dead letters, and SQL."""

import asyncio
import time
from datetime import datetime
from typing import Any, Final

from nicegui import ui

from penstock.console.api import ApiRefused, BrokerAway
from penstock.console.charts import AXIS_TEXT, GRID_LINE
from penstock.console.message_view import open_publish
from penstock.console.payloads import short_text
from penstock.console.sessions import LogIn
from penstock.console.tables import Column, Table
from penstock.console.text import bytes_text, count_text, duration_text
from penstock.console.warehouse import (
    Commit,
    QueryRefused,
    QueryResult,
    TableState,
    Warehouse,
)

__all__ = ["PipelinePage"]

_REFRESH_SECONDS: Final = 10.0
_CHARTED_MAX: Final = 200
_CELL_CHARACTERS: Final = 120
_EXAMPLE: Final = "SELECT topic, count(*) AS messages FROM bronze GROUP BY topic ORDER BY 2 DESC"
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
    Column("error", "Reason", cut=True),
    Column("payload", "Payload", cut=True, wide=True),
)


class PipelinePage:
    """The tables of the folder that the console was started with."""

    def __init__(self, login: LogIn, warehouse: Warehouse) -> None:
        self._login = login
        self._warehouse = warehouse
        self._letters: dict[int, dict[str, Any]] = {}
        with ui.element("section").classes("card"):
            ui.label("Tables").classes("heading")
            self._tables = Table(_TABLE_COLUMNS, "name", empty="There are no tables yet.")
        with ui.element("section").classes("card"):
            ui.label("Last batches").classes("heading")
            self._commits = Table(_COMMIT_COLUMNS, "key", empty="Nothing was committed yet.")
        with ui.element("section").classes("card"):
            ui.label("Dead letters").classes("heading")
            self._dead = Table(_LETTER_COLUMNS, "key", empty="Every message was decoded.")
            self._dead.add_actions({"Edit and replay": self._replay})
        with ui.element("section").classes("card"):
            ui.label("SQL").classes("heading")
            self._text = ui.textarea("Query", value=_EXAMPLE).classes("mono")
            self._text.props("outlined autogrow").style("width: 100%")
            with ui.element("div").classes("bar").style("margin-top: 10px"):
                self._button = ui.button("Run", on_click=self._run).props("no-caps dense")
                self._button.style("padding: 4px 16px")
                self._note = ui.label("").classes("muted").props('aria-live="polite"')
            self._result = ui.element("div")

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
            self._note.set_text(str(error))
            return
        self._letters = dict(enumerate(letters))
        self._dead.show([_letter_row(key, each) for key, each in self._letters.items()])

    async def _may_read(self) -> bool:
        """Ask the broker: the tables are files, which only this process protects."""
        try:
            me = await self._login.api.get("/api/me")
        except (ApiRefused, BrokerAway) as error:
            self._note.set_text(str(error))
            return False
        if "pipeline" in me["administers"]:
            return True
        self._note.set_text("This needs the right to administer pipeline.")
        return False

    async def _replay(self, row: dict[str, Any]) -> None:
        """Publish the corrected payload to the same topic; the pipeline decodes it as any other."""
        letter = self._letters[row["key"]]
        open_publish(self._login, topic=letter["topic"] or "", value=bytes(letter["value"] or b""))

    async def _run(self) -> None:
        self._button.disable()
        self._note.set_text("Running …")
        try:
            if not await self._may_read():
                return
            began = time.monotonic()
            result = await asyncio.to_thread(self._warehouse.query, self._text.value or "")
        except QueryRefused as error:
            self._note.set_text(str(error))
            self._result.clear()
            return
        finally:
            self._button.enable()
        count = f"{'the first ' if result.cut else ''}{len(result.rows):,} rows"
        self._note.set_text(f"{count} in {time.monotonic() - began:.2f} s")
        self._result.clear()
        with self._result:
            _show_result(result)


def _show_result(result: QueryResult) -> None:
    numeric = next(
        (
            place
            for place in range(1, len(result.columns))
            if result.rows and isinstance(result.rows[0][place], int | float)
        ),
        None,
    )
    if numeric is not None and len(result.rows) > 1:
        _show_chart(result, numeric)
    columns = tuple(
        Column(f"c{place}", name, is_name=True, cut=True)
        for place, name in enumerate(result.columns)
    )
    table = Table(columns, "key", tall=True)
    table.show(
        [
            {"key": number, **{f"c{place}": _cell(cell) for place, cell in enumerate(row)}}
            for number, row in enumerate(result.rows)
        ]
    )


def _show_chart(result: QueryResult, numeric: int) -> None:
    rows = result.rows[:_CHARTED_MAX]
    chart = ui.echart(
        {
            "animation": False,
            "grid": {"left": 8, "right": 12, "top": 12, "bottom": 4, "containLabel": True},
            "tooltip": {"trigger": "axis", "confine": True},
            "xAxis": {
                "type": "category",
                "data": [_cell(row[0]) for row in rows],
                "axisLabel": AXIS_TEXT,
                "axisLine": GRID_LINE,
            },
            "yAxis": {"type": "value", "axisLabel": AXIS_TEXT, "splitLine": GRID_LINE},
            "series": [
                {
                    "type": "bar",
                    "name": result.columns[numeric],
                    "itemStyle": {"color": "#2b7fd4"},
                    "barMaxWidth": 48,
                    "data": [row[numeric] for row in rows],
                }
            ],
        }
    )
    chart.classes("chart").props(f'role="img" aria-label="Chart: {result.columns[numeric]}"')


def _cell(cell: object) -> str:
    match cell:
        case None:
            return ""
        case bytes() | bytearray() | memoryview():
            return short_text(bytes(cell))
        case datetime():
            return cell.isoformat(sep=" ", timespec="milliseconds")
        case float():
            return f"{cell:.6g}"
    text = str(cell)
    return text if len(text) <= _CELL_CHARACTERS else f"{text[: _CELL_CHARACTERS - 1]}…"


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
