"""`penstock top`: live rates of a running broker."""

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Annotated, Any, Final

import typer
from rich.cells import cell_len
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
_GAP: Final = 2
"""Columns between two columns of a table."""
_NAME_COLUMNS_MIN: Final = 8
"""Names are not cut shorter than that."""
_NAME_COLUMNS: Final = 24
"""Columns of clients are left out before an address or a name is cut shorter than that."""
_CLIENT_NAMES: Final = frozenset({"ADDRESS", "NAME"})
_NARROW_LEFT_OUT: Final = frozenset({"SUBSCRIPTIONS", "IN", "BEHIND"})
"""Columns of slow clients that a narrow terminal does not show."""
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
    is_terminal = sys.stdout.isatty()
    width = None if is_terminal else _PIPE_COLUMNS
    console = Console(highlight=False, markup=False, emoji=False, width=width, force_terminal=draws)
    if not live:
        for frame in frames:
            console.print(_drawn(url, frame, console), soft_wrap=not is_terminal)
        return
    with Live(console=console, screen=True, auto_refresh=False) as screen:
        for frame in frames:
            screen.update(_drawn(url, frame, console), refresh=True)


def _drawn(url: str, frame: dict[str, Any], console: Console) -> RenderableType:
    width = console.width
    parts: list[RenderableType] = [Text(line) for line in _head(url, frame)]
    rates = ("IN/S", "IN BYTES/S", "OUT/S", "OUT BYTES/S")
    protocols = [_protocol(each) for each in frame["protocols"]]
    parts.append(_table(("PROTOCOL", "CLIENTS", *rates), protocols, width=width))
    if frame["topics"]:
        rows = [_topic(each) for each in frame["topics"]]
        titles = ("TOPIC", "SUBSCRIBERS", "IN/S", "BYTES/S")
        parts.append(_table(titles, rows, names={"TOPIC"}, width=width))
    if frame["groups"]:
        rows = [
            (shown(each["name"]), f"{each['lag']:,}", f"{each['lost']:,}")
            for each in sorted(frame["groups"], key=lambda each: -each["lag"])[:_GROUPS_SHOWN]
        ]
        parts.append(_table(("GROUP", "LAG", "LOST"), rows, names={"GROUP"}, width=width))
    if frame["slow"]:
        parts.append(_slow_clients(frame["slow"][:_SLOW_SHOWN], width))
    if not console.is_terminal:
        parts.append(Text(""))
    return Group(*parts)


def _slow_clients(clients: Sequence[dict[str, Any]], width: int) -> RenderableType:
    """Return the table of slow clients; some columns are left out if not all fit."""
    titles: Sequence[str] = CLIENT_COLUMNS
    rows: list[Sequence[str]] = [client_row(each) for each in clients]
    widths = [
        min(cells, _NAME_COLUMNS) if title in _CLIENT_NAMES else cells
        for title, cells in zip(titles, _widths(titles, rows), strict=True)
    ]
    if _excess(widths, width) > 0:
        kept = [number for number, title in enumerate(titles) if title not in _NARROW_LEFT_OUT]
        titles = [titles[number] for number in kept]
        rows = [[row[number] for number in kept] for row in rows]
    left = set(titles[-CLIENT_COLUMNS_LEFT:])
    return _table(titles, rows, left=left, names=_CLIENT_NAMES, width=width)


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


def _widths(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column, in cells of the terminal."""
    return [max(map(cell_len, column)) for column in zip(titles, *rows, strict=True)]


def _excess(widths: Sequence[int], width: int) -> int:
    """Return by how much columns with their gaps are wider than `width`."""
    return sum(widths) + _GAP * (len(widths) - 1) - width


def _table(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int,
    left: Collection[str] | None = None,
    names: Collection[str] = frozenset(),
) -> RenderableType:
    """Return a table; the columns in `left`, by default the first, are aligned left.

    The columns in `names` are cut, with an ellipsis, until the table fits `width`.
    """
    widths = _widths(titles, rows)
    cut = [number for number, title in enumerate(titles) if title in names]
    while cut and _excess(widths, width) > 0:
        longest = max(cut, key=widths.__getitem__)
        if widths[longest] <= _NAME_COLUMNS_MIN:
            break
        widths[longest] -= 1
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for title, cells in zip(titles, widths, strict=True):
        justify = "left" if title in (left or titles[:1]) else "right"
        table.add_column(
            title,
            justify=justify,  # type: ignore[arg-type]
            no_wrap=True,
            overflow="ellipsis",
            max_width=cells,
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
