"""`penstock top`: live rates of a running broker."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Final

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.cli.common.columns import count_text, short_size
from penstock.cli.common.output import Json, json_line, quiet_pipe
from penstock.cli.common.text import shown
from penstock.cli.lazy_command import examples
from penstock.cli.monitor.api import API_URL_DEFAULT, Api, ApiCa, ApiUrl
from penstock.cli.monitor.clients import CLIENT_COLUMNS, CLIENT_COLUMNS_LEFT, client_row

__all__ = ["TOP_EXAMPLES", "top"]

TOP_EXAMPLES: Final = examples(
    "penstock top",
    "penstock top --once",
    "penstock top --json --count 10 | jq '.protocols[] | select(.clients > 0)'",
)
_PIPE_COLUMNS: Final = 250
_SLOW_SHOWN: Final = 10
_GROUPS_SHOWN: Final = 20


def top(
    *,
    url: ApiUrl = API_URL_DEFAULT,
    once: Annotated[bool, typer.Option("--once", help="Show one interval, then exit.")] = False,
    count: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Exit after N intervals.", show_default=False),
    ] = None,
    interval: Annotated[
        float, typer.Option(min=0.1, max=10.0, metavar="SECONDS", help="Length of an interval.")
    ] = 1.0,
    topics: Annotated[int, typer.Option(min=1, max=100, help="The most topics to show.")] = 15,
    ca: ApiCa = None,
    json: Json = False,
) -> None:
    """Show rates per protocol and topic, lag of groups and slow clients, until interrupted."""
    api = Api(url, ca=ca)
    times = 1 if once else count
    frames = _frames(api, interval=interval, topics=topics, times=times)
    try:
        with quiet_pipe():
            if json:
                for frame in frames:
                    sys.stdout.buffer.write(json_line(frame))
                    sys.stdout.buffer.flush()
            else:
                _show(api.url, frames, live=not once and _can_draw())
    except KeyboardInterrupt:  # the way to end it
        raise typer.Exit from None


def _frames(
    api: Api, *, interval: float, topics: int, times: int | None
) -> Iterator[dict[str, Any]]:
    """Yield the rates of one interval after the other; the broker waits for its length."""
    done = 0
    while times is None or done < times:
        query = {"seconds": interval, "topics": topics}
        yield api.get("/api/rates", query, seconds=interval)
        done += 1


def _can_draw() -> bool:
    """Return whether the output is a terminal with cursor control."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in {"dumb", "unknown"}


def _show(url: str, frames: Iterable[dict[str, Any]], *, live: bool) -> None:
    draws = _can_draw()
    width = None if draws else _PIPE_COLUMNS
    console = Console(highlight=False, markup=False, emoji=False, width=width, force_terminal=draws)
    if not live:
        for frame in frames:
            console.print(_drawn(url, frame, console), soft_wrap=True)
        return
    with Live(console=console, screen=True, auto_refresh=False) as screen:
        for frame in frames:
            screen.update(_drawn(url, frame, console), refresh=True)


def _drawn(url: str, frame: dict[str, Any], console: Console) -> RenderableType:

    parts: list[RenderableType] = [Text(line) for line in _head(url, frame)]
    rates = ("IN/S", "IN BYTES/S", "OUT/S", "OUT BYTES/S")
    parts.append(
        _table(("PROTOCOL", "CLIENTS", *rates), [_protocol(each) for each in frame["protocols"]])
    )
    if frame["topics"]:
        rows = [_topic(each) for each in frame["topics"]]
        parts.append(_table(("TOPIC", "SUBSCRIBERS", "IN/S", "BYTES/S"), rows))
    if frame["groups"]:
        rows = [
            (shown(each["name"]), f"{each['lag']:,}", f"{each['lost']:,}")
            for each in sorted(frame["groups"], key=lambda each: -each["lag"])[:_GROUPS_SHOWN]
        ]
        parts.append(_table(("GROUP", "LAG", "LOST"), rows))
    if frame["slow"]:
        rows = [client_row(each) for each in frame["slow"][:_SLOW_SHOWN]]
        left = len(CLIENT_COLUMNS) - CLIENT_COLUMNS_LEFT
        parts.append(_table(CLIENT_COLUMNS, rows, left=set(range(left, len(CLIENT_COLUMNS)))))
    if not console.is_terminal:
        parts.append(Text(""))
    return Group(*parts)


def _head(url: str, frame: dict[str, Any]) -> list[str]:
    clients = (
        f"clients {frame['clients']:,} ({frame['slow_count']:,} slow), "
        f"connections {frame['connections']:,}, subscriptions {frame['subscriptions']:,}, "
        f"topics {frame['topic_count']:,}, waiting {short_size(frame['waiting_bytes'])}"
    )
    log = (
        f"log: end {frame['end_offset']:,}, waiting {short_size(frame['log_waiting_bytes'])}, "
        f"{frame['syncs'] / frame['seconds']:.0f} syncs/s{_sync_time(frame)}"
    )
    lines = [f"{url}  {frame['time']}", clients, log]
    if frame["problem"]:
        lines.append(f"messages cannot be written: {frame['problem']}")
    return lines


def _sync_time(frame: dict[str, Any]) -> str:
    if not frame["syncs"]:
        return ""
    return f" of {1000 * frame['sync_seconds'] / frame['syncs']:.1f} ms"


def _protocol(rate: dict[str, Any]) -> tuple[str, ...]:
    return (
        rate["protocol"],
        f"{rate['clients']:,}",
        count_text(rate["received_messages"]),
        short_size(rate["received_bytes"]),
        count_text(rate["sent_messages"]),
        short_size(rate["sent_bytes"]),
    )


def _topic(rate: dict[str, Any]) -> tuple[str, ...]:
    return (
        shown(rate["name"]),
        f"{rate['subscribers']:,}",
        count_text(rate["messages"]),
        short_size(rate["bytes"]),
    )


def _table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], *, left: set[int] | None = None
) -> RenderableType:
    """Return a table; the columns in `left`, by default the first, are aligned left."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, title in enumerate(titles):
        justify = "left" if number in (left or {0}) else "right"
        table.add_column(title, justify=justify, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
