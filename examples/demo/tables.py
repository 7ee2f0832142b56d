"""Chapters 6 and 7: the tables, read with `deltalake`; any other Delta reader would do."""

from pathlib import Path

import deltalake
from examples.demo.screen import chapter, table

__all__ = ["show"]

ROWS_MAX = 8
GOLD = {
    "traffic": ("topic", "protocol", "messages", "bytes"),
    "latency": ("path", "requests", "replies", "unanswered", "p50_ms", "p95_ms", "p99_ms"),
    "sessions": ("protocol", "sender", "messages", "bytes"),
    "report": ("topic", "readings", "mean", "warmest"),
}
LETTERS = ("topic", "schema", "value", "error")


def show(warehouse: Path) -> None:
    """Show the gold tables and the dead letters."""
    chapter("6 Gold", "Traffic, request latency, sender sessions, and an SQL query.")
    for name, columns in GOLD.items():
        show_table(warehouse / "gold" / name, f"gold/{name}", columns)
    chapter(
        "7 Dead letters",
        "Messages that fit no schema are kept, with the reason.",
    )
    show_table(warehouse / "dead_letters", "dead_letters", LETTERS)


def show_table(folder: Path, title: str, columns: tuple[str, ...]) -> None:
    """Show a few rows of a table."""
    found = deltalake.DeltaTable(str(folder)).to_pyarrow_table(columns=list(columns))
    found = found.sort_by([(columns[0], "ascending"), (columns[1], "ascending")])
    if found.num_rows > ROWS_MAX:
        title = f"{title} ({ROWS_MAX} of {found.num_rows} rows)"
    rows = [[_shown(cell) for cell in row.values()] for row in found.slice(0, ROWS_MAX).to_pylist()]
    table(title, columns, rows)


def _shown(cell: object) -> object:
    match cell:
        case bytes():
            return cell.decode(errors="replace")
        case "":
            return "(none: requests and replies)"
        case float():
            return round(cell, 3)
        case _:
            return cell
