"""Replay positions of subscriptions: the part after the `@` of `topic@earliest`.

| written | starts with |
|---|---|
| `@earliest` | the first message in the log |
| `@-15m` | messages of the last 15 minutes; units ms, s, m, h, d and w, decimals allowed |
| `@2026-11-01T00:00:00Z` | messages received at or after a time; UTC without a zone offset |
| `@#1234` | the message with that offset |

An `@` followed by any other text is part of the name.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

__all__ = ["Ago", "AtOffset", "AtTime", "Earliest", "Start", "split_replay"]


@dataclass(frozen=True, slots=True)
class Earliest:
    """From the first message in the log."""


@dataclass(frozen=True, slots=True)
class Ago:
    """From a duration before the subscription."""

    us: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """From the first message received at or after a time, in microseconds since the epoch."""

    us: int


@dataclass(frozen=True, slots=True)
class AtOffset:
    """From the message at an offset."""

    offset: int


Start: TypeAlias = Earliest | Ago | AtTime | AtOffset

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_UNITS_US: Final = {
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
# The number of digits is limited to bound the cost of matching; 19 hold every offset.
_AGO: Final = re.compile(r"-(\d{1,12})(?:\.(\d{1,12}))?(ms|s|m|h|d|w)", re.ASCII)
_OFFSET: Final = re.compile(r"#(\d{1,19})", re.ASCII)
_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d(?::?\d\d)?)?)?", re.ASCII
)


def split_replay(text: str) -> tuple[str, Start | None]:
    """Return the pattern of a subscription and its replay position, None for new messages only."""
    pattern, at, place = text.rpartition("@")
    start = _start(place) if at else None
    return (text, None) if start is None else (pattern, start)


def _start(place: str) -> Start | None:
    if place == "earliest":
        return Earliest()
    if match := _AGO.fullmatch(place):
        whole, fraction, unit = match[1], match[2] or "0", _UNITS_US[match[3]]
        return Ago(int(whole) * unit + int(fraction) * unit // 10 ** len(fraction))
    if match := _OFFSET.fullmatch(place):
        return AtOffset(int(match[1]))
    if _TIME.fullmatch(place):
        return _at_time(place)
    return None


def _at_time(place: str) -> AtTime | None:
    try:
        moment = datetime.fromisoformat(place)
    except ValueError:  # for example month 13
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return AtTime((moment - _EPOCH) // _MICROSECOND)
