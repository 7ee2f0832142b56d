"""Topics: level by level, by search, with rates and last values."""

import base64
import time
from typing import Any, Final
from urllib.parse import quote

from nicegui import ui

from penstock.console.api import ApiRefused, BrokerAway
from penstock.console.limits import SORTED_TOPICS_MAX, TOPIC_ROWS
from penstock.console.notes import Note
from penstock.console.payloads import short_text
from penstock.console.retention import retention_text
from penstock.console.sessions import LogIn
from penstock.console.shell import Shell
from penstock.console.tables import Column, Pager, Table, message_link
from penstock.console.text import ago_text, bytes_text, count_text, counted_text, rate_text

__all__ = ["TopicsPage", "total_text"]

_REFRESH_SECONDS: Final = 3.0
_VALUE_BYTES: Final = 200
_LEVEL_COLUMNS: Final = (
    Column("name", "Level", link="link", is_name=True),
    Column("topics", "Topics"),
    Column("messages", "Messages"),
)
_TOPIC_COLUMNS: Final = (
    Column("name", "Topic", link="link", is_name=True, cut=True),
    Column("rate", "Messages/s"),
    Column("messages", "Messages", wide=True),
    Column("bytes", "Bytes", wide=True),
    Column("last", "Last", wide=True),
    Column("subscribers", "Subscribers", wide=True),
    Column("value", "Last value", cut=True),
)


class TopicsPage:
    """One level of the tree, and the topics below it or with a part of a name."""

    def __init__(self, shell: Shell, login: LogIn, prefix: str) -> None:
        self._login = login
        self._prefix = prefix
        self._order = "name"
        self._counts: dict[str, tuple[float, int]] = {}
        self._values: dict[str, str] = {}
        with ui.element("div").classes("bar"):
            search = ui.input(placeholder="Search topics  ( / )", on_change=self._search)
            search.props('outlined dense clearable debounce=300 aria-label="Search topics"')
            self._contains = search.classes("grow mono")
            shell.set_search(search)
        self._crumbs()
        with ui.element("section").classes("card") as self._level_card:
            ui.label("Levels").classes("heading")
            self._levels = Table(_LEVEL_COLUMNS, "name", empty="No topics below this level.")
            self._level_pager = Pager(self._load_levels)
        with ui.element("section").classes("card"):
            ui.label("Topics").classes("heading")
            self._retention = ui.label("").classes("muted note-line")
            self._note = Note()
            self._topics = Table(_TOPIC_COLUMNS, "name", empty="No topics.")
            self._pager = Pager(self._load_topics)

    async def start(self) -> None:
        """Show the first page, then keep it up to date."""
        await self._level_pager.reload()
        total = (await self._login.api.get("/api/topics", {"limit": 1}))["total"]
        is_short = total is not None and total <= SORTED_TOPICS_MAX
        self._order = "name" if is_short else "creation"
        await self._pager.reload()
        if self._login.has_area("log"):
            log = await self._login.api.get("/api/log")
            self._retention.set_text(retention_text(log, time.time()))
        ui.timer(_REFRESH_SECONDS, self._pager.reload)

    def _crumbs(self) -> None:
        with ui.element("nav").classes("crumbs bar").props('aria-label="Levels above"'):
            ui.link("all topics", "/topics")
            above = ""
            for level in self._prefix.split("/")[:-1]:
                above += f"{level}/"
                ui.label("/").classes("muted")
                ui.link(level or "(empty)", f"/topics?prefix={quote(above, safe='')}")

    async def _search(self) -> None:
        self._level_card.set_visibility(not self._contains.value)
        await self._pager.restart()

    async def _load_levels(self, after: str | None) -> Any:  # noqa: ANN401
        query = {"prefix": self._prefix, "after": after, "limit": TOPIC_ROWS}
        found = await self._login.api.get("/api/topic-levels", query)
        rows = [self._level_row(each) for each in found["levels"]]
        self._levels.show(rows)
        self._level_pager.note.set_text(f"{found['total']:,} on this level")
        return found["next"]

    def _level_row(self, level: dict[str, Any]) -> dict[str, Any]:
        below = f"{self._prefix}{level['name']}/"
        is_leaf = level["is_topic"] and level["topics"] == 1
        link = message_link(below[:-1]) if is_leaf else f"/topics?prefix={quote(below, safe='')}"
        return {
            "name": level["name"] if is_leaf else f"{level['name']}/",
            "link": link,
            "topics": f"{level['topics']:,}",
            "messages": count_text(level["messages"]),
        }

    async def _load_topics(self, after: int | None) -> Any:  # noqa: ANN401
        query = {
            "prefix": self._prefix,
            "contains": self._contains.value or "",
            "after": after,
            "limit": TOPIC_ROWS,
            "value_bytes": _VALUE_BYTES,
            "order": self._order,
        }
        try:
            found = await self._login.api.get("/api/topics", query)
        except (ApiRefused, BrokerAway) as error:
            self._note.fail(str(error))
            return None
        self._note.say("")
        topics, now = found["topics"], time.time()
        self._values = {each["name"]: self._value(each) for each in topics}
        self._topics.show([self._row(each, now) for each in topics])
        self._counts = {each["name"]: (now, each["messages"]) for each in topics}
        self._pager.note.set_text(total_text(found))
        return found["next"]

    def _row(self, topic: dict[str, Any], now: float) -> dict[str, Any]:
        name = topic["name"]
        before = self._counts.get(name)
        rate = ""
        if before is not None and now > before[0]:
            rate = rate_text((topic["messages"] - before[1]) / (now - before[0]))
        return {
            "name": name,
            "link": message_link(name),
            "rate": rate,
            "messages": count_text(topic["messages"]),
            "bytes": bytes_text(topic["bytes"]),
            "last": ago_text(topic["last_time"], now),
            "subscribers": f"{topic['subscribers']:,}",
            "value": self._values.get(name, ""),
        }

    def _value(self, topic: dict[str, Any]) -> str:
        """Return the last value; the one before if the broker did not find it in time."""
        if topic["value"] is None:
            return self._values.get(topic["name"], "")
        return short_text(base64.b64decode(topic["value"]))


def total_text(found: dict[str, Any]) -> str:
    """Return how many topics an answer of `/api/topics` is a page of."""
    if found["found"] is not None:
        return counted_text(found["found"], "topic")
    if found["total"] is None:
        return "topics in the order of their creation"
    return f"{counted_text(found['total'], 'topic')} in all; in the order of their creation"
