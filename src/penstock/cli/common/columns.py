"""Columns of text, and numbers in a short form."""

from collections.abc import Sequence

import typer

__all__ = ["count_text", "plural", "print_columns", "short_size", "size_text"]


def print_columns(rows: Sequence[Sequence[str]], *, left: int) -> None:
    """Print columns; the last `left` are aligned left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    first_left = len(widths) - left
    for row in rows:
        cells = [
            cell.ljust(width) if number >= first_left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        typer.echo("  ".join(cells).rstrip())


def count_text(number: float) -> str:
    """Return a number as text: whole, or with a unit if it is large."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= limit:
            divisor = 1e3 if unit == "k" else limit
            return f"{number / divisor:.1f}{unit}"
    return f"{number:.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"


def short_size(size: float) -> str:
    """Return a size as text, with the unit B."""
    return _scaled(size, "B")


def size_text(size: int) -> str:
    """Return a size as text, with the unit bytes."""
    return _scaled(size, "bytes")


def _scaled(size: float, byte: str) -> str:
    for unit in (byte, "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == byte else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
