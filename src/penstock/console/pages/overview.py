"""Overview: rates by protocol, charts of 15 minutes, and what is wrong right now."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from nicegui import ui

from penstock.console.charts import Line, LineChart
from penstock.console.history import Collector, Point
from penstock.console.limits import CURRENT_SECONDS, MEASURE_SECONDS
from penstock.console.problems import Problem, find_problems
from penstock.console.sessions import LogIn
from penstock.console.shell import problem_card
from penstock.console.tables import Column, Table, message_link
from penstock.console.text import bytes_text, count_text, duration_text, rate_text

__all__ = ["Overview", "waiting_text"]

_PROTOCOL_COLUMNS = (
    Column("protocol", "Protocol", is_name=True),
    Column("clients", "Clients"),
    Column("in", "In/s"),
    Column("out", "Out/s"),
    Column("bytes_in", "Bytes in/s", wide=True),
    Column("bytes_out", "Bytes out/s", wide=True),
)
_TOPIC_COLUMNS = (
    Column("name", "Topic", link="link", is_name=True),
    Column("messages", "Messages/s"),
    Column("bytes", "Bytes/s", wide=True),
    Column("subscribers", "Subscribers", wide=True),
)


class Overview:
    """The first page. It reads nothing itself: the collector has all of it."""

    def __init__(self, collector: Collector, login: LogIn) -> None:
        self._collector = collector
        self._login = login
        if not login.has_area("rates"):
            problem_card(
                "You may not see the rates of this broker: that needs the right to administer "
                "rates. Topics and groups show what you may read."
            )
            return
        self._problems = ui.element("section").classes("card").props('aria-live="polite"')
        self._shown: tuple[list[Problem], str] | None = None
        with ui.element("div").classes("figures"):
            self._figures = {
                name: _figure(name)
                for name in ("Messages in", "Messages out", "Clients", "Disk sync", "Log", "Answer")
            }
        with ui.element("div").classes("columns"):
            self._messages = _card("Messages a second, received", "received", stacked=True)
            self._sent = _card("Messages a second, delivered", "delivered", stacked=True)
            self._bytes = _card("Bytes a second", "bytes")
            self._latency = _card("Latency in milliseconds", "latency")
        with ui.element("div").classes("columns"):
            with ui.element("section").classes("card"):
                ui.label("Protocols").classes("heading")
                self._protocols = Table(_PROTOCOL_COLUMNS, "protocol")
            with ui.element("section").classes("card"):
                ui.label("Busiest topics").classes("heading")
                self._topics = Table(_TOPIC_COLUMNS, "name")
        self.refresh()
        ui.timer(MEASURE_SECONDS, self.refresh)

    def refresh(self) -> None:
        """Show what the collector knows now."""
        self._collector.adopt(self._login)
        now = time.time()
        state, points = self._collector.state, list(self._collector.points)
        waiting = waiting_text(points, now)
        is_known = not waiting or state.away_since is not None
        self._show_problems(find_problems(state, points, now) if is_known else [], waiting)
        if not points:
            return
        self._show_figures(None if waiting else points[-1])
        labels = [name for name in points[-1].messages_in if _any(points, name)]
        received = {name: _rates(points, "messages_in", name) for name in labels}
        sent = {name: _rates(points, "messages_out", name) for name in labels}
        self._messages.show(received, now)
        self._sent.show(sent, now)
        self._bytes.show(
            {
                "received": _line(points, lambda each: each.bytes_in),
                "delivered": _line(points, lambda each: each.bytes_out),
            },
            now,
        )
        self._latency.show(
            {
                "disk sync": _line(points, lambda each: each.sync_ms),
                "answer of the broker": _line(points, lambda each: each.answer_ms),
            },
            now,
        )
        rates = {"protocols": [], "topics": []} if waiting else state.rates
        self._protocols.show([_protocol_row(each) for each in rates["protocols"]])
        self._topics.show([_topic_row(each) for each in rates["topics"][:10]])

    def _show_problems(self, problems: list[Problem], waiting: str) -> None:
        if (problems, waiting) == self._shown:
            return
        self._shown = problems, waiting
        self._problems.clear()
        self._problems.classes(replace="card problem problems" if problems else "card fine")
        with self._problems:
            if waiting and not problems:
                ui.label(waiting)
            elif not problems:
                ui.label("Nothing is wrong right now.")
            for problem in problems:
                with ui.element("div").classes("row"):
                    ui.label(problem.text)
                    ui.link("Look", problem.link)

    def _show_figures(self, point: Point | None) -> None:
        if point is None:
            for shown, below in self._figures.values():
                shown.set_text("-")
                below.set_text("")
            return
        rates, log = self._collector.state.rates, self._collector.state.log
        received, sent = sum(point.messages_in.values()), sum(point.messages_out.values())
        topics = f"{count_text(rates['topic_count'])} topics and channels"
        sync = "-" if point.sync_ms is None else f"{point.sync_ms:.1f} ms"
        for name, value, note in (
            ("Messages in", f"{rate_text(received)}/s", f"{bytes_text(point.bytes_in)}/s"),
            ("Messages out", f"{rate_text(sent)}/s", f"{bytes_text(point.bytes_out)}/s"),
            ("Clients", f"{point.clients:,}", topics),
            ("Disk sync", sync, f"{rates['syncs']} syncs in {rates['seconds']:.0f} s"),
            ("Log", bytes_text(log.get("bytes", 0)), f"{count_text(rates['end_offset'])} messages"),
            ("Answer", f"{point.answer_ms:.1f} ms", "of the broker's API"),
        ):
            shown, below = self._figures[name]
            shown.set_text(value)
            below.set_text(note)


def waiting_text(points: Sequence[Point], now: float) -> str:
    """Return why there are no current figures, nothing if there are some."""
    if not points:
        return "Measuring …"
    age = now - points[-1].time
    if age <= CURRENT_SECONDS:
        return ""
    return f"There are no current figures: the last are {duration_text(age)} old. Measuring …"


def _figure(name: str) -> tuple[ui.label, ui.label]:
    with ui.element("div").classes("figure"):
        ui.label(name).classes("name")
        return ui.label("-").classes("value"), ui.label("").classes("note")


def _card(title: str, label: str, *, stacked: bool = False) -> LineChart:
    with ui.element("section").classes("card"):
        ui.label(title).classes("heading")
        return LineChart(f"Chart: {label}", stacked=stacked)


def _any(points: Sequence[Point], name: str) -> bool:
    return any(each.messages_in.get(name) or each.messages_out.get(name) for each in points)


def _rates(points: Sequence[Point], field: str, protocol: str) -> Line:
    return [(each.time, getattr(each, field).get(protocol)) for each in points]


def _line(points: Sequence[Point], value: Callable[[Point], float | None]) -> Line:
    return [(each.time, value(each)) for each in points]


def _protocol_row(rate: dict[str, Any]) -> dict[str, Any]:
    return {
        "protocol": rate["protocol"],
        "clients": f"{rate['clients']:,}",
        "in": rate_text(rate["received_messages"]),
        "out": rate_text(rate["sent_messages"]),
        "bytes_in": bytes_text(rate["received_bytes"]),
        "bytes_out": bytes_text(rate["sent_bytes"]),
    }


def _topic_row(rate: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": rate["name"],
        "link": message_link(rate["name"]),
        "messages": rate_text(rate["messages"]),
        "bytes": bytes_text(rate["bytes"]),
        "subscribers": rate["subscribers"],
    }
