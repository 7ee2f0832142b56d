"""Messages: live, or back in time by offset and time, each with its payload and its frames."""

import base64
import dataclasses
from datetime import UTC, datetime
from typing import Any, Final

from nicegui import ui

from penstock.console.api import ApiRefused, BrokerAway
from penstock.console.limits import PAGE_ROWS, TAIL_MESSAGES_MAX
from penstock.console.message_view import open_message, open_publish
from penstock.console.payloads import short_text
from penstock.console.sessions import LogIn
from penstock.console.shell import Shell
from penstock.console.tables import Column, Table
from penstock.console.text import bytes_text, time_text

__all__ = ["MessagesPage", "note_text"]

_POLL_SECONDS: Final = 0.5
_BUSY_POLL_SECONDS: Final = 1.0
"""How often a live view asks for messages, and how often if there are more than it shows."""
_WAIT_SECONDS: Final = 5.0
_COLUMNS: Final = (
    Column("offset", "Offset"),
    Column("time", "Time (UTC)", is_name=True, wide=True),
    Column("topic", "Topic", is_name=True, cut=True),
    Column("protocol", "Protocol", is_name=True, wide=True),
    Column("sender", "Sender", is_name=True, cut=True, wide=True),
    Column("size", "Size", wide=True),
    Column("value", "Payload", cut=True),
)


@dataclasses.dataclass(slots=True)
class _Position:
    """Where the shown messages are in the log."""

    next: int = 0
    previous: int | None = None


class MessagesPage:
    """The message browser."""

    def __init__(self, shell: Shell, login: LogIn, topic: str) -> None:
        self._login = login
        self._messages: list[dict[str, Any]] = []
        self._position = _Position()
        self._timer: ui.timer
        with ui.element("div").classes("bar"):
            field = ui.input("Topic or pattern", value=topic).on("keydown.enter", self._latest)
            self._topic = field.props("outlined dense").classes("grow mono")
            self._filter = ui.input("Filter", on_change=self._show)
            self._filter.props("outlined dense clearable").classes("mono")
            shell.search = self._filter
            self._live = shell.pause = ui.switch("Live", value=True)
            self._live.props('aria-label="Live"')
        with ui.element("div").classes("bar"):
            self._place = ui.input("Offset or time").props("outlined dense").classes("mono")
            self._place.on("keydown.enter", self._go)
            for label, act in (
                ("Go", self._go),
                ("Older", self._older),
                ("Newer", self._newer),
                ("Latest", self._latest),
            ):
                ui.button(label, on_click=act).props("outline dense no-caps padding='4px 12px'")
            self._publish = ui.button("Publish", on_click=self._open_publish)
            self._publish.props("dense no-caps padding='4px 12px'").set_visibility(False)
        self._note = ui.label("").classes("muted note-line").props('aria-live="polite"')
        with ui.element("section").classes("card"):
            self._table = Table(_COLUMNS, "offset", empty="No messages.", tall=True)
            self._table.add_actions({"Open": self._open})

    async def start(self) -> None:
        """Show the latest messages, then those that come."""
        await self._latest(live=True)
        self._timer = ui.timer(_POLL_SECONDS, self._follow)

    # --- Positions --------------------------------------------------------------------------------

    async def _latest(self, *, live: bool = True) -> None:
        self._live.set_value(live)
        await self._read({})
        await self._ask_rights()

    async def _older(self) -> None:
        self._live.set_value(False)
        if self._position.previous is None:
            self._note.set_text("These are the oldest messages that are kept.")
            return
        await self._read({"before": self._position.previous})

    async def _newer(self) -> None:
        self._live.set_value(False)
        start = self._messages[-1]["offset"] + 1 if self._messages else self._position.next
        await self._read({"start": start})

    async def _go(self) -> None:
        self._live.set_value(False)
        text = (self._place.value or "").strip()
        if text.isdecimal():
            await self._read({"start": int(text)})
            return
        try:
            wanted = datetime.fromisoformat(text)
        except ValueError:
            self._note.set_text("Give an offset, or a time such as 2026-11-16 14:30 (UTC).")
            return
        aware = wanted if wanted.tzinfo else wanted.replace(tzinfo=UTC)
        await self._read({"time": aware.isoformat()})

    async def _follow(self) -> None:
        """Add the messages that came; NiceGUI calls it again when it has returned."""
        if not self._live.value:
            return
        query = {
            "topic": self._topic.value or "#",
            "start": self._position.next,
            "limit": TAIL_MESSAGES_MAX,
            "wait": _WAIT_SECONDS,
            "newest": "true",
        }
        found = await self._ask(query)
        if found is None or not self._live.value or query["topic"] != (self._topic.value or "#"):
            return
        is_busy = len(found["messages"]) == TAIL_MESSAGES_MAX
        self._timer.interval = _BUSY_POLL_SECONDS if is_busy else _POLL_SECONDS
        if found["messages"]:
            self._messages = [*self._messages, *found["messages"]][-TAIL_MESSAGES_MAX:]
            self._position.previous = self._messages[0]["offset"]
            self._show()
        self._position.next = found["next"]
        self._note.set_text(note_text(found, is_backward=False))

    async def _read(self, where: dict[str, object]) -> None:
        query = {"topic": self._topic.value or "#", "limit": PAGE_ROWS, **where}
        found = await self._ask(query)
        if found is None:
            return
        self._messages = found["messages"]
        self._position = _Position(found["next"], found["previous"])
        self._note.set_text(
            note_text(found, is_backward="start" not in where and "time" not in where)
        )
        self._show()

    async def _ask(self, query: dict[str, object]) -> dict[str, Any] | None:
        try:
            return await self._login.api.get("/api/messages", query)
        except (ApiRefused, BrokerAway) as error:
            self._live.set_value(False)
            self._messages = []
            self._note.set_text(str(error))
            self._show()
            return None

    async def _ask_rights(self) -> None:
        """Show the button to publish to those who may."""
        topic = self._topic.value or "#"
        try:
            me = await self._login.api.get("/api/me", {"topic": topic})
        except (ApiRefused, BrokerAway):
            return
        self._publish.set_visibility(me["publish"])

    # --- Showing ----------------------------------------------------------------------------------

    def _show(self) -> None:
        wanted = (self._filter.value or "").lower()
        rows = [_row(each) for each in reversed(self._messages)]
        if wanted:
            rows = [
                row for row in rows if any(wanted in str(cell).lower() for cell in row.values())
            ]
        self._table.show(rows)

    async def _open(self, row: dict[str, Any]) -> None:
        offset = row["number"]
        query = {"topic": row["topic"] or "#", "start": offset, "limit": 1, "value_bytes": 1 << 20}
        found = await self._ask(query)
        if found and found["messages"]:
            open_message(self._login, found["messages"][0], may_publish=self._publish.visible)

    def _open_publish(self) -> None:
        topic = self._topic.value or ""
        open_publish(self._login, topic="" if set(topic) & set("#+*>") else topic)


def note_text(found: dict[str, Any], *, is_backward: bool) -> str:
    """Return what an answer says beside its messages: a problem, or what is kept and searched."""
    if found["problem"]:
        return str(found["problem"])
    if not found["kept"]:
        return "There is no log."
    kept = f"Offsets {found['horizon']:,} to {max(found['end'] - 1, 0):,} are kept."
    if is_backward and found["previous"] is not None and len(found["messages"]) < PAGE_ROWS:
        return f"{kept} Searched back to {found['previous']:,}; Older searches on."
    return kept


def _row(message: dict[str, Any]) -> dict[str, Any]:
    return {
        "offset": f"{message['offset']:,}",
        "number": message["offset"],
        "time": time_text(message["time"]),
        "topic": message["topic"] or "",
        "protocol": message["protocol"],
        "sender": message["sender"] or "",
        "size": bytes_text(message["bytes"]),
        "value": short_text(base64.b64decode(message["value"])),
    }
