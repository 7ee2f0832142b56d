"""The connected clients with their rates and lag, and a button to disconnect each."""

import time
from typing import Any, Final

from nicegui import ui

from penstock.console.api import ApiRefused, BrokerAway
from penstock.console.dialogs import attempt, confirm
from penstock.console.limits import PAGE_ROWS
from penstock.console.notes import Note
from penstock.console.sessions import LogIn
from penstock.console.shell import Shell
from penstock.console.tables import Column, Pager, Table, message_link
from penstock.console.text import ago_text, bytes_text, count_text, counted_text, rate_text
from penstock.protocols import PROTOCOLS
from penstock.replay import split_replay

__all__ = ["ClientsPage", "pattern_link"]

_REFRESH_SECONDS: Final = 3.0
_ALL: Final = "all protocols"
_NO_CLIENT: Final = "No client is connected."
_PATTERNS_MAX: Final = 200
_COLUMNS: Final = (
    Column("name", "Name", is_name=True, cut=True),
    Column("protocol", "Protocol", is_name=True),
    Column("address", "Address", is_name=True, wide=True),
    Column("principal", "Principal", is_name=True, wide=True),
    Column("in", "In/s"),
    Column("out", "Out/s", wide=True),
    Column("waiting", "Waiting", wide=True),
    Column("behind", "Behind", wide=True),
    Column("state", "State", wide=True),
    Column("since", "Connected", wide=True),
)


class ClientsPage:
    """One page of the clients at a time; rates are those between two looks."""

    def __init__(self, shell: Shell, login: LogIn, *, slow: bool, search: str = "") -> None:
        self._login = login
        self._counts: dict[int, tuple[float, int, int]] = {}
        with ui.element("div").classes("bar"):
            placeholder = "Search by name or principal  ( / )"
            field = ui.input(placeholder=placeholder, value=search, on_change=self._changed)
            field.props('outlined dense clearable debounce=300 aria-label="Search clients"')
            self._contains = field.classes("grow mono")
            shell.set_search(field)
            self._protocol = ui.select(
                [_ALL, *PROTOCOLS.labels], value=_ALL, on_change=self._changed
            )
            self._protocol.props('outlined dense aria-label="Protocol"')
            self._slow = ui.switch("Only slow clients", value=slow, on_change=self._changed)
        with ui.element("section").classes("card"):
            self._note = Note()
            self._table = Table(_COLUMNS, "connection", empty=_NO_CLIENT)
            actions: dict[str, Any] = {}
            if login.has_area("subscriptions"):
                actions["Topics"] = self._open_subscriptions
            if login.has_area("clients/disconnect"):
                actions["Disconnect"] = self._disconnect
            self._table.add_actions(actions)
            self._pager = Pager(self._load)

    async def start(self) -> None:
        """Show the first page, then keep it up to date."""
        await self._pager.reload()
        ui.timer(_REFRESH_SECONDS, self._pager.reload)

    async def _changed(self) -> None:
        await self._pager.restart()

    async def _load(self, after: int | None) -> Any:  # noqa: ANN401
        query = {
            "protocol": None if self._protocol.value == _ALL else self._protocol.value,
            "slow": "true" if self._slow.value else None,
            "contains": self._contains.value or None,
            "after": after,
            "limit": PAGE_ROWS,
        }
        try:
            found = await self._login.api.get("/api/clients", query)
        except (ApiRefused, BrokerAway) as error:
            self._note.fail(str(error))
            return None
        self._note.say("")
        now = time.time()
        is_filtered = query["protocol"] or query["slow"] or query["contains"]
        self._table.set_empty("No such client is connected." if is_filtered else _NO_CLIENT)
        self._table.show([self._row(each, now) for each in found["clients"]])
        self._counts = {
            each["connection"]: (now, each["received_messages"], each["sent_messages"])
            for each in found["clients"]
        }
        self._pager.note.set_text(f"{counted_text(found['total'], 'client')} in all")
        return found["next"]

    def _row(self, client: dict[str, Any], now: float) -> dict[str, Any]:
        before = self._counts.get(client["connection"])
        received = sent = ""
        if before is not None and now > before[0]:
            seconds = now - before[0]
            received = rate_text((client["received_messages"] - before[1]) / seconds)
            sent = rate_text((client["sent_messages"] - before[2]) / seconds)
        return {
            "connection": client["connection"],
            "name": client["name"] or f"client {client['id']}",
            "protocol": client["protocol"],
            "address": client["address"],
            "principal": client["principal"],
            "in": received,
            "out": sent,
            "waiting": bytes_text(client["waiting_bytes"]),
            "behind": count_text(client["behind"]),
            "state": "slow" if client["slow"] else "live",
            "since": ago_text(client["since"], now),
        }

    async def _open_subscriptions(self, row: dict[str, Any]) -> None:
        query = {"connection": row["connection"], "limit": _PATTERNS_MAX}
        try:
            found = await self._login.api.get("/api/subscriptions", query)
        except (ApiRefused, BrokerAway) as error:
            ui.notify(str(error), type="negative")
            return
        with ui.dialog() as dialog, ui.card().classes("card"):
            ui.label(f"{row['name']} subscribes to").classes("heading")
            for each in found["subscriptions"]:
                ui.link(each["pattern"], pattern_link(each["pattern"])).classes("mono")
            if not found["subscriptions"]:
                ui.label("nothing").classes("muted")
            if found["next"] is not None:
                ui.label(f"and more than these {_PATTERNS_MAX}").classes("muted")
            ui.button("Close", on_click=dialog.close).props("flat dense no-caps")
        dialog.on("hide", dialog.delete)
        dialog.open()

    async def _disconnect(self, row: dict[str, Any]) -> None:
        question = f"Disconnect {row['name']} at {row['address']}? It may connect again."
        if not await confirm(question, "Disconnect"):
            return

        async def act() -> str:
            await self._login.api.delete(f"/api/clients/{row['connection']}")
            return f"{row['name']} was disconnected."

        await attempt(act)
        await self._pager.reload()


def pattern_link(subscription: str) -> str:
    """Return the address of the messages of a subscription, without its group or start."""
    pattern, _ = split_replay(subscription)
    return message_link(pattern)
