"""Values of a query's result as text."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from penstock.console.payloads import short_text

__all__ = ["cell_text"]

_CHARACTERS_MAX: Final = 120
_WHOLE: Final = 1e6
_HUGE: Final = 1e15
"""Floating point numbers between these are shown without decimals, others with six digits."""


def cell_text(cell: object) -> str:
    """Return a value of a result as the table shows it; times are UTC."""
    match cell:
        case None:
            return ""
        case bool():
            return str(cell).lower()
        case int() | Decimal():
            return f"{cell:,}"
        case bytes() | bytearray() | memoryview():
            return short_text(bytes(cell))
        case datetime():
            zone = "" if cell.tzinfo is None else " UTC"
            wanted = cell if cell.tzinfo is None else cell.astimezone(UTC).replace(tzinfo=None)
            return f"{wanted.isoformat(sep=' ', timespec='milliseconds')}{zone}"
        case float():
            return f"{cell:,.0f}" if _WHOLE <= abs(cell) < _HUGE else f"{cell:,.6g}"
    text = str(cell)
    return text if len(text) <= _CHARACTERS_MAX else f"{text[: _CHARACTERS_MAX - 1]}…"
