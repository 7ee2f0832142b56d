"""Output of the demo: chapters, lines and tables."""

import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.status import Status
from rich.table import Table

__all__ = ["chapter", "line", "problem", "table", "waiting"]

WIDTH_ELSEWHERE = 100
_console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH_ELSEWHERE)


def chapter(title: str, summary: str) -> None:
    """Print the title of a chapter and a summary."""
    _console.print(f"\n[bold cyan]{escape(title)}[/]  {escape(summary)}")


def line(text: str) -> None:
    """Print an indented line."""
    _console.print(f"  {escape(text)}", soft_wrap=True)


def problem(text: str) -> None:
    """Print a problem and what to do about it."""
    _console.print(f"  [bold red]{escape(text)}[/]", soft_wrap=True)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; numbers are right-aligned."""
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
    """Show a status text; on a terminal with a spinner, and it can be updated."""
    if not _console.is_terminal:
        line(text)
    return _console.status(escape(text))
