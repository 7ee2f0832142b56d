"""A box for queries over tables of the pipeline and topics, with a table and a chart of the result.

A name in a query is a table of the pipeline, if the visitor may see these, else a topic or pattern:

    SELECT topic, count(*) FROM "plant/#" GROUP BY topic
"""

import asyncio
import time
from pathlib import Path
from typing import Final

import pyarrow as pa
from nicegui import ui

from penstock.console.api import ApiRefused, BrokerAway
from penstock.console.charts import AXIS_TEXT, GRID_LINE
from penstock.console.limits import SQL_TOPICS_MAX
from penstock.console.notes import Note
from penstock.console.query_processes import Query, ShownResult
from penstock.console.query_turns import QueryRefused, QueryTurns
from penstock.console.sessions import LogIn
from penstock.console.tables import Column, Table
from penstock.console.text import counted_text
from penstock.console.topic_tables import MESSAGE_COLUMNS, read_topic
from penstock.console.warehouse import Warehouse

__all__ = ["SqlBox", "pipeline_problem", "topics_query"]

_CHARTED_MAX: Final = 200
_OF_TABLES: Final = "SELECT topic, count(*) AS messages FROM bronze GROUP BY topic ORDER BY 2 DESC"
_OF_TOPICS: Final = (
    'SELECT topic, count(*) AS messages FROM "{pattern}" GROUP BY topic ORDER BY 2 DESC'
)
_HELP: Final = (
    'A topic or pattern in double quotes is a table of its newest messages: FROM "plant/#". '
    f"Its columns are {', '.join(MESSAGE_COLUMNS)}; text->>'celsius' is a field of JSON."
)


async def pipeline_problem(login: LogIn) -> str | None:
    """Return why a visitor may not read the tables of the pipeline; None if it may."""
    try:
        me = await login.api.get("/api/me")
    except (ApiRefused, BrokerAway) as error:
        return str(error)
    if "pipeline" in me["administers"]:
        return None
    return "This needs the right to administer pipeline."


class SqlBox:
    """The field for a query, and its result."""

    def __init__(
        self,
        login: LogIn,
        warehouse: Warehouse | None,
        turns: QueryTurns,
        *,
        pattern: str = "#",
    ) -> None:
        """`pattern` is one that the visitor may subscribe to, empty if there is none."""
        self._login = login
        self._warehouse = warehouse
        self._turns = turns
        with ui.element("section").classes("card"):
            ui.label("Query tables and topics").classes("heading")
            ui.label(_HELP).classes("muted note-line")
            has_tables = warehouse is not None and login.has_area("pipeline")
            query = _OF_TABLES if has_tables else topics_query(pattern)
            self._text = ui.textarea("Query", value=query)
            self._text.classes("mono").props("outlined rows=4").style("width: 100%")
            self._text.on("keydown.ctrl.enter", self._run)
            with ui.element("div").classes("bar").style("margin-top: 10px"):
                self._button = ui.button("Run", on_click=self._run).props("no-caps dense")
                self._button.style("padding: 4px 16px").tooltip("Ctrl+Enter")
                self._note = Note()
            self._result = ui.element("div")

    async def _run(self) -> None:
        self._button.disable()
        self._note.say("Running …")
        self._result.clear()
        began = time.monotonic()
        try:
            with self._turns.take(self._login.name):
                result, notes = await self._answer(self._text.value or "")
        except (QueryRefused, ApiRefused, BrokerAway) as error:
            self._note.fail(str(error))
            return
        finally:
            self._button.enable()
        count = f"{'the first ' if result.cut else ''}{counted_text(len(result.rows), 'row')}"
        taken = f"{count} in {time.monotonic() - began:.2f} s"
        self._note.say("; ".join([taken, *notes]))
        with self._result:
            _show_result(result)

    async def _answer(self, text: str) -> tuple[ShownResult, list[str]]:
        """Return the result of a query, and what to say about topics that are not whole."""
        query = Query(text)
        try:
            names = await asyncio.to_thread(query.named_tables)
            folders = await self._folders(names)
            topics, notes = await self._topics([name for name in names if name not in folders])
            return await asyncio.to_thread(query.run, topics, folders), notes
        finally:
            query.end()

    async def _folders(self, names: list[str]) -> dict[str, Path]:
        """Return those of the names that are tables of the pipeline, with their folders."""
        if self._warehouse is None or await pipeline_problem(self._login) is not None:
            return {}
        tables = await asyncio.to_thread(self._warehouse.tables)
        return {name: tables[name] for name in names if name in tables}

    async def _topics(self, names: list[str]) -> tuple[dict[str, pa.Table], list[str]]:
        if len(names) > SQL_TOPICS_MAX:
            raise QueryRefused(f"a query may name {SQL_TOPICS_MAX} topics, this has {len(names)}")
        topics, notes = {}, []
        for name in names:
            found = await read_topic(self._login.api, name)
            topics[name] = found.data
            if not found.whole:
                notes.append(f"{name}: the newest {found.data.num_rows:,} messages")
            elif not found.data.num_rows:
                notes.append(f"{name}: no messages")
        return topics, notes


def _show_result(result: ShownResult) -> None:
    numbers = set(result.numbers)
    charted = min(numbers - {0}, default=None)
    if charted is not None and len(result.rows) > 1:
        _show_chart(result, charted)
    columns = tuple(
        Column(f"c{place}", name, is_name=place not in numbers, cut=place not in numbers)
        for place, name in enumerate(result.columns)
    )
    table = Table(columns, "key", tall=True)
    table.show(
        [
            {"key": number, **{f"c{place}": cell for place, cell in enumerate(row)}}
            for number, row in enumerate(result.rows)
        ]
    )


def _show_chart(result: ShownResult, numeric: int) -> None:
    rows = result.rows[:_CHARTED_MAX]
    chart = ui.echart(
        {
            "animation": False,
            "grid": {"left": 8, "right": 12, "top": 12, "bottom": 4, "containLabel": True},
            "tooltip": {"trigger": "axis", "confine": True},
            "xAxis": {
                "type": "category",
                "data": [row[0] for row in rows],
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
                    "data": result.numbers[numeric][:_CHARTED_MAX],
                }
            ],
        }
    )
    chart.classes("chart").props(f'role="img" aria-label="Chart: {result.columns[numeric]}"')


def topics_query(pattern: str) -> str:
    """Return a query over the messages of a pattern; nothing for no pattern."""
    return _OF_TOPICS.format(pattern=pattern.replace('"', '""')) if pattern else ""
