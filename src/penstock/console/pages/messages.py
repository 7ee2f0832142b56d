"""Messages: live, or back in time by offset and time, each with its payload and its frames."""

import base64
import dataclasses
from datetime import UTC, datetime
from datetime import time as time_of_day
from typing import Any, Final

from nicegui import ui

from penstock.console.api import ApiRefused, BrokerAway
from penstock.console.limits import PAGE_ROWS, TAIL_MESSAGES_MAX
from penstock.console.message_view import open_message, open_publish, sender_of
from penstock.console.notes import Note
from penstock.console.payloads import short_text
from penstock.console.sessions import LogIn
from penstock.console.shell import Shell
from penstock.console.tables import Column, Table, message_link
from penstock.console.text import bytes_text, clock_text, time_text

__all__ = ["MessagesPage", "note_text", "position_of"]

_POLL_SECONDS: Final = 0.5
_BUSY_POLL_SECONDS: Final = 1.0
"""How often a live view asks for messages, and how often if there are more than it shows."""
_WAIT_SECONDS: Final = 5.0
_NO_TOPIC: Final = "Enter a topic or pattern that you may subscribe to."
_NO_POSITION: Final = "That is no offset, and no time such as 2026-11-16 14:30 or 14:30 (UTC)."
_SEARCHED: Final = ("offset", "time", "topic", "protocol", "sender", "value")
_COLUMNS: Final = (
    Column("offset", "Offset", wide=True),
    Column("time", "Time (UTC)", is_name=True, wide=True),
    Column("clock", "UTC", is_name=True, narrow=True),
    Column("topic", "Topic", link="link", is_name=True, cut=True),
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
        self._start = topic
        self._messages: list[dict[str, Any]] = []
        self._position = _Position()
        self._timer: ui.timer
        with ui.element("div").classes("bar"):
            field = ui.input("Topic or pattern", value=topic).on("keydown.enter", self._latest)
            self._topic = field.props("outlined dense").classes("grow mono")
            self._filter = ui.input("Filter", on_change=self._show)
            self._filter.props("outlined dense clearable").classes("mono")
            shell.set_search(self._filter)
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
        self._note = Note()
        with ui.element("section").classes("card") as self._card:
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
            self._note.say("These are the oldest messages that are kept.")
            return
        await self._read({"before": self._position.previous})

    async def _newer(self) -> None:
        self._live.set_value(False)
        start = self._messages[-1]["offset"] + 1 if self._messages else self._position.next
        await self._read({"start": start})

    async def _go(self) -> None:
        self._live.set_value(False)
        where = position_of(self._place.value or "", datetime.now(UTC))
        if where is None:
            self._note.fail(_NO_POSITION)
            return
        await self._read(where)

    async def _follow(self) -> None:
        """Add the messages that came; NiceGUI calls it again when it has returned."""
        pattern = self._pattern()
        if not self._live.value or not pattern:
            return
        query = {
            "topic": pattern,
            "start": self._position.next,
            "limit": TAIL_MESSAGES_MAX,
            "wait": _WAIT_SECONDS,
            "newest": "true",
        }
        found = await self._ask(query)
        if found is None or not self._live.value or pattern != self._pattern():
            return
        is_busy = len(found["messages"]) == TAIL_MESSAGES_MAX
        self._timer.interval = _BUSY_POLL_SECONDS if is_busy else _POLL_SECONDS
        if found["messages"]:
            self._messages = [*self._messages, *found["messages"]][-TAIL_MESSAGES_MAX:]
            self._position.previous = self._messages[0]["offset"]
            self._show()
        self._position.next = found["next"]
        self._describe(found, is_backward=False)

    async def _read(self, where: dict[str, object]) -> None:
        pattern = self._pattern()
        if not pattern:
            self._note.say(_NO_TOPIC)
            self._card.set_visibility(False)
            return
        query = {"topic": pattern, "limit": PAGE_ROWS, **where}
        found = await self._ask(query)
        if found is None:
            return
        self._messages = found["messages"]
        self._position = _Position(found["next"], found["previous"])
        self._describe(found, is_backward="start" not in where and "time" not in where)
        self._show()

    def _pattern(self) -> str:
        """Return the pattern of the field, that of the start if it is empty."""
        return (self._topic.value or "").strip() or self._start

    async def _ask(self, query: dict[str, object]) -> dict[str, Any] | None:
        try:
            found = await self._login.api.get("/api/messages", query)
        except (ApiRefused, BrokerAway) as error:
            self._live.set_value(False)
            self._messages = []
            self._note.fail(str(error))
            self._show()
            self._card.set_visibility(False)
            return None
        self._card.set_visibility(True)
        return found

    async def _ask_rights(self) -> None:
        """Show the button to publish to those who may."""
        topic = self._pattern()
        if not topic:
            return
        try:
            me = await self._login.api.get("/api/me", {"topic": topic})
        except (ApiRefused, BrokerAway):
            return
        self._publish.set_visibility(me["publish"])

    # --- Showing ----------------------------------------------------------------------------------

    def _describe(self, found: dict[str, Any], *, is_backward: bool) -> None:
        text = note_text(found, is_backward=is_backward)
        if found["problem"]:
            self._note.fail(text)
        else:
            self._note.say(text)

    def _show(self) -> None:
        wanted = (self._filter.value or "").lower()
        rows = [_row(each) for each in reversed(self._messages)]
        if wanted:
            rows = [row for row in rows if any(wanted in row[name].lower() for name in _SEARCHED)]
        self._table.show(rows)

    async def _open(self, row: dict[str, Any]) -> None:
        offset = row["number"]
        query = {"topic": row["topic"] or "#", "start": offset, "limit": 1, "value_bytes": 1 << 20}
        found = await self._ask(query)
        if found and found["messages"]:
            message = found["messages"][0]
            sender = await sender_of(self._login, message)
            open_message(self._login, message, sender, may_publish=self._publish.visible)

    def _open_publish(self) -> None:
        topic = self._pattern()
        open_publish(self._login, topic="" if set(topic) & set("#+*>") else topic)


def position_of(text: str, now: datetime) -> dict[str, object] | None:
    """Return the position in the log that a visitor entered, as parameters; None if it is none.

    An offset may have separators, as the page shows it. A time without a day is one of the day of
    `now`, a time without a zone is UTC.
    """
    entered = text.strip()
    number = entered.replace(",", "")
    if number.isascii() and number.isdecimal():
        return {"start": int(number)}
    try:
        clock = time_of_day.fromisoformat(entered)
        wanted = datetime.combine(now.date(), clock)
    except ValueError:
        try:
            wanted = datetime.fromisoformat(entered)
        except ValueError:
            return None
    aware = wanted if wanted.tzinfo else wanted.replace(tzinfo=UTC)
    return {"time": aware.isoformat()}


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
        "clock": clock_text(message["time"]),
        "topic": message["topic"] or "",
        "link": message_link(message["topic"]) if message["topic"] else "",
        "protocol": message["protocol"],
        "sender": message["sender"] or "",
        "size": bytes_text(message["bytes"]),
        "value": short_text(base64.b64decode(message["value"])),
    }
