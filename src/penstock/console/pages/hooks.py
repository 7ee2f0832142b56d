"""Hooks and requests: who judges what, and how long answers take."""

from typing import Any, Final

from nicegui import ui

from penstock.console.api import ApiRefused, BrokerAway
from penstock.console.sessions import LogIn
from penstock.console.tables import Column, Table
from penstock.console.text import count_text, milliseconds_text

__all__ = ["HooksPage"]

_REFRESH_SECONDS: Final = 3.0
_STRATEGIES: Final = {
    "tell": "is told",
    "wait_or_refuse": "must consent",
    "wait_or_go_on": "may refuse",
}
_TIMES: Final = ("mean", "p50", "p99", "max")
_COLUMNS: Final = (
    Column("name", "Hook", is_name=True, cut=True),
    Column("event", "Event", is_name=True, wraps=True),
    Column("topics", "Topics", is_name=True, cut=True, wide=True),
    Column("client", "Client", is_name=True, cut=True, wide=True),
    Column("calls", "Calls"),
    Column("refusals", "Refused", wide=True),
    Column("unanswered", "Unanswered", wide=True),
    Column("mean", "Mean", wide=True),
    Column("p99", "p99"),
    Column("max", "Longest", wide=True),
)
_REQUEST_COLUMNS: Final = (
    Column("pending", "Pending"),
    Column("answered", "Answered"),
    Column("timed_out", "Timed out"),
    Column("target_left", "Target left", wide=True),
    Column("mean", "Mean", wide=True),
    Column("p50", "p50", wide=True),
    Column("p99", "p99"),
    Column("max", "Longest", wide=True),
)


class HooksPage:
    """All hooks, and the requests between clients."""

    def __init__(self, login: LogIn) -> None:
        self._login = login
        self._note = ui.label("").classes("muted note-line trouble").props('aria-live="polite"')
        with ui.element("section").classes("card"):
            ui.label("Hooks").classes("heading")
            ui.label("Calls and times are since a hook was registered.").classes("muted note-line")
            self._hooks = Table(_COLUMNS, "name", empty="No client has registered a hook.")
        with ui.element("section").classes("card"):
            ui.label("Requests between clients").classes("heading")
            ui.label("Since the start of the broker.").classes("muted note-line")
            self._requests = Table(_REQUEST_COLUMNS, "pending")

    async def start(self) -> None:
        """Show all, then keep it up to date."""
        self._show(await self._login.api.get("/api/hooks"))
        ui.timer(_REFRESH_SECONDS, self._refresh)

    async def _refresh(self) -> None:
        try:
            self._show(await self._login.api.get("/api/hooks"))
            self._note.set_text("")
        except (ApiRefused, BrokerAway) as error:
            self._note.set_text(str(error))

    def _show(self, found: dict[str, Any]) -> None:
        self._hooks.show([_row(each) for each in found["hooks"]])
        self._requests.show(
            [
                {
                    "pending": f"{found['requests_pending']:,}",
                    "timed_out": count_text(found["requests_timed_out"]),
                    "target_left": count_text(found["requests_target_left"]),
                    "answered": count_text(found["request_answers"]["count"]),
                    **_times(found["request_answers"]),
                }
            ]
        )


def _row(hook: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": hook["name"],
        "event": f"{hook['event']}, {_STRATEGIES.get(hook['strategy'], hook['strategy'])}",
        "topics": ", ".join(hook["topics"]) or "all",
        "client": hook["client"] if hook["connected"] else f"{hook['client']} (has left)",
        "calls": count_text(hook["calls"]),
        "refusals": count_text(hook["refusals"]),
        "unanswered": count_text(hook["unanswered"]),
        **_times(hook["answers"]),
    }


def _times(answers: dict[str, Any]) -> dict[str, str]:
    if not answers["count"]:
        return dict.fromkeys(("mean", "p50", "p99", "max"), "-")
    return {
        name: milliseconds_text(answers[f"{name}_seconds"])
        for name in ("mean", "p50", "p99", "max")
    }
