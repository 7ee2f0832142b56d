"""What the demo prints: chapters, what was seen, tables."""

import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.status import Status
from rich.table import Table

__all__ = ["chapter", "problem", "seen", "table", "waiting"]

WIDTH_ELSEWHERE = 100
_console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH_ELSEWHERE)


def chapter(title: str, what_happens: str) -> None:
    """Begin a chapter: one line that says what happens."""
    _console.print(f"\n[bold cyan]{escape(title)}[/]  {escape(what_happens)}")


def seen(text: str) -> None:
    """Print a line of what was seen."""
    _console.print(f"  {escape(text)}", soft_wrap=True)


def problem(text: str) -> None:
    """Print one line that says what is wrong and what to do."""
    _console.print(f"  [bold red]{escape(text)}[/]", soft_wrap=True)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows; numbers stand on the right."""
    rows = list(rows)
    grid = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="cyan")
    for place, name in enumerate(columns):
        numbers = all(isinstance(row[place], int | float) for row in rows)
        grid.add_column(name, justify="right" if numbers else "left")
    for row in rows:
        grid.add_row(*(escape(str(cell)) for cell in row))
    _console.print(f"  [bold]{escape(title)}[/]")
    _console.print(Padding(grid, (0, 0, 0, 4), expand=False))


def waiting(text: str) -> Status:
    """Say what is waited for; on a terminal it turns, and may be updated."""
    if not _console.is_terminal:
        seen(text)
    return _console.status(escape(text))
