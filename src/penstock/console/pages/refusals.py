"""Refusals and limits: who was refused what, and which limits are near."""

import time
from typing import Any, Final

from nicegui import ui

from penstock.console.dialogs import show_facts
from penstock.console.refusal_text import limit_note, remedy_text, why_text
from penstock.console.sessions import LogIn
from penstock.console.tables import Column, Table
from penstock.console.text import ago_text, bytes_text, count_text, time_text

__all__ = ["RefusalsPage"]

_REFRESH_SECONDS: Final = 5.0
_NEAR: Final = 0.8
_ROWS_MAX: Final = 200
_COLUMNS: Final = (
    Column("last", "Last"),
    Column("count", "Times", wide=True),
    Column("client", "Client", is_name=True, cut=True),
    Column("principal", "Principal", is_name=True, wide=True, cut=True),
    Column("address", "Address", is_name=True, wide=True),
    Column("protocol", "Protocol", is_name=True, wide=True),
    Column("why", "Why", wraps=True),
)
_FAILED_COLUMNS: Final = (
    Column("reason", "Reason", is_name=True, cut=True),
    Column("count", "Connections"),
)


class RefusalsPage:
    """The last refusals, connections that failed, and limits."""

    def __init__(self, login: LogIn) -> None:
        self._login = login
        with ui.element("section").classes("card"):
            ui.label("Refused acts and log-ins").classes("heading")
            self._table = Table(_COLUMNS, "key", empty="Nothing was refused since the start.")
            self._table.add_actions({"Explain": self._explain})
        with ui.element("div").classes("columns"):
            with ui.element("section").classes("card"):
                ui.label("Limits").classes("heading")
                self._limits = ui.element("div")
            with ui.element("section").classes("card"):
                ui.label("Connections that failed").classes("heading")
                self._failed = Table(_FAILED_COLUMNS, "reason", empty="None since the start.")

    async def start(self) -> None:
        """Show all, then keep it up to date."""
        await self._load()
        ui.timer(_REFRESH_SECONDS, self._load)

    async def _load(self) -> None:
        found = await self._login.api.get("/api/refusals")
        now = time.time()
        rows = [_row(place, each, now) for place, each in enumerate(found["refusals"][:_ROWS_MAX])]
        self._table.show(rows)
        self._failed.show(
            [{**each, "count": count_text(each["count"])} for each in found["connections_failed"]]
        )
        if self._login.has_area("limits"):
            self._show_limits((await self._login.api.get("/api/limits"))["limits"])

    async def _explain(self, row: dict[str, Any]) -> None:
        with ui.dialog() as dialog, ui.card().classes("card"):
            ui.label("Why it was refused").classes("heading")
            ui.label(row["why"])
            ui.label(row["remedy"])
            show_facts(row["facts"])
            ui.button("Close", on_click=dialog.close).props("flat dense no-caps")
        dialog.on("hide", dialog.delete)
        dialog.open()

    def _show_limits(self, limits: list[dict[str, Any]]) -> None:
        self._limits.clear()
        with self._limits:
            for each in limits:
                _limit(each)


def _row(place: int, refusal: dict[str, Any], now: float) -> dict[str, Any]:
    return {
        "key": place,
        "last": ago_text(refusal["last"], now),
        "count": count_text(refusal["count"]),
        "client": refusal.get("client") or "(unnamed)",
        "principal": refusal["principal"] or "(unknown)",
        "address": refusal["address"],
        "protocol": refusal["protocol"],
        "why": why_text(refusal),
        "remedy": remedy_text(refusal),
        "facts": {
            "Client": refusal.get("client") or "(unnamed)",
            "Principal": refusal["principal"] or "(unknown)",
            "Address": refusal["address"],
            "Protocol": refusal["protocol"],
            "First": time_text(refusal["time"]),
            "Last": time_text(refusal["last"]),
            "Times": f"{refusal['count']:,}",
        },
    }


def _limit(limit: dict[str, Any]) -> None:
    share = limit["used"] / limit["maximum"] if limit["maximum"] else 0.0
    in_bytes = "bytes" in limit["setting"]
    used, most = (
        (bytes_text(limit[key]) if in_bytes else f"{limit[key]:,}") for key in ("used", "maximum")
    )
    with ui.element("div").style("margin-bottom: 14px"):
        with ui.element("div").classes("limit"):
            ui.label(limit["name"])
            ui.label(f"{used} of {most}").classes("muted")
        meter = ui.element("div").classes("meter near" if share >= _NEAR else "meter")
        meter.props(f'role="meter" aria-label="{limit["name"]}" aria-valuenow={share * 100:.0f}')
        with meter:
            ui.element("div").style(f"width: {min(100 * share, 100):.1f}%")
        ui.label(limit["setting"]).classes("muted mono")
        if note := limit_note(limit):
            ui.label(note).classes("muted")
