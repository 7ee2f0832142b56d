"""Numbers, sizes and times as the pages show them."""

from datetime import UTC, datetime
from typing import Final

__all__ = [
    "ago_text",
    "bytes_text",
    "clock_text",
    "count_text",
    "counted_text",
    "duration_text",
    "milliseconds_text",
    "rate_text",
    "time_text",
]

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def count_text(number: float) -> str:
    """Return a number with separators: `12,345,678`."""
    return f"{number:,.0f}"


def counted_text(number: int, noun: str) -> str:
    """Return a number with its noun, whose plural ends in s: `1 topic`, `1,200 topics`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def rate_text(number: float) -> str:
    """Return a rate; small ones with a decimal."""
    return f"{number:.1f}" if 0 < number < 10 else count_text(number)


def bytes_text(number: float) -> str:
    """Return a size: 4,096 is `4.0 KiB`."""
    for unit in _UNITS[:-1]:
        if abs(number) < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} {_UNITS[-1]}"


def duration_text(seconds: float) -> str:
    """Return a duration in its largest unit."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def milliseconds_text(seconds: float) -> str:
    """Return a short duration in milliseconds; long ones in seconds."""
    if seconds >= 10:
        return f"{seconds:.0f} s"
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def time_text(time: str | None) -> str:
    """Return a time of the API as UTC with milliseconds; nothing for None."""
    if not time:
        return ""
    return datetime.fromisoformat(time).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def clock_text(time: str | None) -> str:
    """Return a time of the API as UTC without the day; nothing for None."""
    return time_text(time)[11:19]


def ago_text(time: str | None, now: float) -> str:
    """Return how long ago a time of the API is."""
    if not time:
        return ""
    return f"{duration_text(now - datetime.fromisoformat(time).timestamp())} ago"
