"""Storage: the log, its segments and its object store; verification."""

import time
from typing import Any, Final

from nicegui import ui

from penstock.console.api import ApiRefused, BrokerAway
from penstock.console.dialogs import show_facts
from penstock.console.limits import PAGE_ROWS
from penstock.console.retention import retention_text
from penstock.console.sessions import LogIn
from penstock.console.shell import problem_card
from penstock.console.tables import Column, Pager, Table
from penstock.console.text import bytes_text, count_text, counted_text, time_text

__all__ = ["StoragePage", "segment_row"]

_COLUMNS: Final = (
    Column("base", "From offset"),
    Column("end", "Up to offset"),
    Column("bytes", "Size"),
    Column("last", "Last message (UTC)", wide=True),
)


class StoragePage:
    """The state of the log when the page was opened."""

    def __init__(self, login: LogIn, log: dict[str, Any]) -> None:
        self._login = login
        self._log = log
        if log["problem"]:
            problem_card(f"Messages cannot be stored: {log['problem']}")
        if not log["kept"]:
            problem_card("This broker keeps no log: messages are gone once they are delivered.")
            return
        with ui.element("div").classes("columns"):
            with ui.element("section").classes("card"):
                ui.label("Log").classes("heading")
                show_facts(_facts(log))
            with ui.element("section").classes("card"):
                ui.label("Verification").classes("heading")
                ui.label(
                    "Reads every message that is kept and compares it with its checksum."
                ).classes("muted")
                self._start = ui.button("Verify", on_click=self._verify).props("no-caps dense")
                self._start.style("margin: 10px 0; padding: 4px 14px")
                self._progress = ui.linear_progress(0, show_value=False)
                self._progress.props('aria-label="Progress of the verification"')
                self._progress.set_visibility(False)
                self._outcome = ui.label("").props('aria-live="polite"')
            if log["tier"] is not None:
                with ui.element("section").classes("card"):
                    ui.label("Object store").classes("heading")
                    show_facts(_tier_facts(log["tier"]))
        with ui.element("section").classes("card"):
            ui.label("Segments").classes("heading")
            self._table = Table(_COLUMNS, "base", empty="No segments.")
            self._pager = Pager(self._load)

    async def start(self) -> None:
        """Show the newest segments."""
        if self._log["kept"]:
            await self._pager.reload()

    async def _load(self, after: int | None) -> Any:  # noqa: ANN401
        first = after or 0
        newest = list(reversed(self._log["segments"]))
        self._table.show([segment_row(each) for each in newest[first : first + PAGE_ROWS]])
        order = ", the newest first" if len(newest) > 1 else ""
        self._pager.note.set_text(f"{_segments(self._log)}{order}")
        following = first + PAGE_ROWS
        return following if following < len(newest) else None

    async def _verify(self) -> None:
        """Verify part by part; each request is a short one for the broker."""
        self._start.disable()
        self._progress.set_visibility(True)
        messages, damage = 0, []
        first, following = self._log["horizon"], None
        try:
            while True:
                found = await self._login.api.get("/api/log/verify", {"start": following})
                messages += found["messages"]
                damage += found["damage"]
                following = found["next"]
                whole = max(self._log["end"] - first, 1)
                self._progress.set_value(min((found["end"] - first) / whole, 1.0))
                self._outcome.set_text(f"{messages:,} messages are verified …")
                if following is None:
                    break
        except (ApiRefused, BrokerAway) as error:
            self._outcome.set_text(str(error))
            return
        finally:
            self._start.enable()
        text = f"{messages:,} messages are verified, none is damaged."
        if damage:
            places = ", ".join(f"{each['first']} to {each['resumes'] - 1}" for each in damage[:10])
            text = f"{messages:,} messages are verified. Damaged offsets: {places}."
        self._outcome.set_text(text)


def _segments(log: dict[str, Any]) -> str:
    return counted_text(log["segment_count"], "segment")


def _facts(log: dict[str, Any]) -> dict[str, object]:
    mean = 1000 * log["sync_seconds"] / log["syncs"] if log["syncs"] else 0.0
    return {
        "Size": f"{bytes_text(log['bytes'])} in {_segments(log)}",
        "Kept": f"offsets {log['horizon']:,} to {max(log['end'] - 1, 0):,}",
        "On disk": f"up to offset {max(log['durable'] - 1, 0):,}",
        "Waiting": f"{bytes_text(log['waiting_bytes'])} to be written to disk",
        "Durability": log["durability"],
        "Retention": retention_text(log, time.time()),
        "Commits": f"{count_text(log['commits'])}, {log['failures']:,} failed",
        "Syncs": f"{count_text(log['syncs'])}, {mean:.1f} ms on average",
        "Log id": log["id"],
        "Partition": log["partition"],
    }


def _tier_facts(tier: dict[str, Any]) -> dict[str, object]:
    return {
        "Address": tier["url"],
        "Stored": f"{counted_text(tier['segments'], 'segment')}, {bytes_text(tier['bytes'])}",
        "To upload": counted_text(tier["waiting_segments"], "segment"),
        "Last upload": _upload_text(tier["last_upload"]),
        "Problem": tier["problem"] or "none",
    }


def _upload_text(last: str | None) -> str:
    return f"{time_text(last)} UTC" if last else "none since the start"


def segment_row(segment: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a segment; its last offset is that of its last message."""
    base, end = segment["base_offset"], segment["end_offset"]
    return {
        "base": f"{base:,}",
        "end": f"{end - 1:,}" if end > base else "empty",
        "bytes": bytes_text(segment["bytes"]),
        "last": time_text(segment["last_time"]),
    }
