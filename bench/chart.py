"""Draws the results of `bench.macro.brokers` as an SVG file, without any library.

A row is a cell of the comparison. Left is throughput, right the p99 latency at 10 % load, both as
multiples of the peer: nats-server, or JetStream where messages are stored.
"""

import math
from collections.abc import Iterable
from html import escape
from typing import Any, Final

__all__ = ["draw"]

Rows = list[dict[str, Any]]

WIDTH: Final = 950
LABELS: Final = 220
PANEL: Final = 320
GAP: Final = 40
TOP: Final = 86
ROW: Final = 22
LEAST, MOST = 0.1, 30.0
TICKS: Final = (0.1, 0.3, 1, 3, 10, 30)
PENSTOCK, REDIS, MOSQUITTO, INK, PALE = "#1f6feb", "#d1570b", "#2e7d32", "#24292f", "#d0d7de"


def draw(rows: Rows) -> str:
    """Return the chart of all rows, as the text of an SVG file."""
    cells: dict[tuple[str, int, int], Rows] = {}
    for row in rows:
        key = row["durability"], row["value_bytes"], row["subscribers"]
        cells.setdefault(key, []).append(row)
    height = TOP + ROW * len(cells) + 24
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
            f' font-family="sans-serif" font-size="12" fill="{INK}">'
        ),
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        *_legend(),
        *_panel(LABELS, height, "throughput, times the peer (more is better)"),
        *_panel(LABELS + PANEL + GAP, height, "p99 at 10 % load, times the peer (less is better)"),
    ]
    for number, ((durability, size, subscribers), found) in enumerate(cells.items()):
        y = TOP + ROW * number + ROW // 2
        noun = "subscriber" if subscribers == 1 else "subscribers"
        parts.append(
            _text(8, y + 4, f"{durability}, {size:,} bytes, {subscribers} {noun}", size=11)
        )
        parts += _cell(LABELS, y, [(row["system"], row["times_peer"]) for row in found])
        parts += _cell(LABELS + PANEL + GAP, y, _latencies(found))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _latencies(rows: Rows) -> list[tuple[str, float]]:
    """Return the p99 latencies at 10 % load as multiples of the peer's."""
    found = {row["system"]: row["latency"]["10"] for row in rows if "latency" in row}
    least = next(found[name]["p99_us"] for name in ("nats", "jetstream") if name in found)
    return [(name, row["p99_us"] / least) for name, row in found.items() if "p99_us" in row]


def _cell(left: int, y: int, values: Iterable[tuple[str, float]]) -> list[str]:
    """Return the marks of a row: a bar over all protocols of Penstock, a mark for each peer."""
    own, marks = [], []
    for name, times in values:
        x = _x(left, times)
        if name == "redis":
            marks.append(f'<rect x="{x - 4:.1f}" y="{y - 4}" width="8" height="8" fill="{REDIS}"/>')
        elif name == "mosquitto":
            points = f"{x:.1f},{y - 5} {x - 5:.1f},{y + 4} {x + 5:.1f},{y + 4}"
            marks.append(f'<polygon points="{points}" fill="{MOSQUITTO}"/>')
        elif name not in {"nats", "jetstream"}:
            own.append(x)
    bar = (
        f'<line x1="{min(own):.1f}" x2="{max(own):.1f}" y1="{y}" y2="{y}" stroke="{PENSTOCK}"'
        ' stroke-width="4" stroke-linecap="round" opacity="0.5"/>'
    )
    dots = [f'<circle cx="{x:.1f}" cy="{y}" r="4" fill="{PENSTOCK}"/>' for x in own]
    return [bar, *dots, *marks]


def _panel(left: int, height: int, title: str) -> list[str]:
    """Return title, scale and lines of a panel."""
    parts = [_text(left, TOP - 30, title, weight="bold")]
    for tick in TICKS:
        x = _x(left, tick)
        width, color = (1.5, INK) if tick == 1 else (1, PALE)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{height - 20}" stroke="{color}"'
            f' stroke-width="{width}"/>'
        )
        parts.append(_text(x, TOP - 11, f"{tick:g}", anchor="middle", size=11))
    return parts


def _legend() -> list[str]:
    entries = (
        (PENSTOCK, "Penstock, a dot for each protocol"),
        (REDIS, "Redis (square)"),
        (MOSQUITTO, "Mosquitto (triangle)"),
        (INK, "line at 1: nats-server; JetStream with os and fsync"),
    )
    parts = []
    x = 8
    for color, text in entries:
        parts.append(f'<rect x="{x}" y="14" width="10" height="10" fill="{color}"/>')
        parts.append(_text(x + 16, 23, text))
        x += 40 + 6.3 * len(text)
    return parts


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, weight: str = "normal"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
        f' font-weight="{weight}">{escape(text)}</text>'
    )


def _x(left: int, times: float) -> float:
    """Return the place of a multiple on the logarithmic scale of a panel."""
    bounded = min(max(times, LEAST), MOST)
    return left + PANEL * math.log(bounded / LEAST) / math.log(MOST / LEAST)
