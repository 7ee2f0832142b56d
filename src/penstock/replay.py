"""Replay positions of subscriptions: the part after the `@` of `topic@earliest`.

| written | starts with |
|---|---|
| `@earliest` | the first message in the log |
| `@-15m` | messages of the last 15 minutes; units ms, s, m, h, d and w, decimals allowed |
| `@2026-11-01T00:00:00Z` | messages received at or after a time; UTC without a zone offset |
| `@#1234` | the message with that offset; of several nodes, in the partition of the node asked |
| `@#0:1234,1:99` | that offset of each partition; the first message of partitions left out |

An `@` followed by any other text is part of the name, with two exceptions. A text that is almost a
start position (`@ealiest`, `@-15min`) is refused with a hint. `@last` and `@group=NAME`, alone or
in a list with commas, are reserved for later versions. No topic can be created whose name ends in
one of all these: a subscription could not name it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from penstock.errors import InvalidStart

__all__ = [
    "Ago",
    "AtOffset",
    "AtOffsets",
    "AtTime",
    "Earliest",
    "Start",
    "check_replay",
    "ends_in_replay",
    "split_replay",
]


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


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """From an offset of each partition, and the first message of partitions that are not named."""

    offsets: Mapping[int, int]


Start: TypeAlias = Earliest | Ago | AtTime | AtOffset | AtOffsets

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
_OFFSETS: Final = re.compile(r"#(\d{1,4}:\d{1,19}(?:,\d{1,4}:\d{1,19}){0,4095})", re.ASCII)
_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d(?::?\d\d)?)?)?", re.ASCII
)

# What is almost a start position.
_PLACE_CHARACTERS_MAX: Final = 64
"""A longer text is part of the name: the cost of the comparison is bounded."""
_EARLIEST_EDITS_MAX: Final = 2
_UNIT_NAMES: Final = {
    "ms": ("ms", "msec", "msecs", "millis", "millisecond", "milliseconds"),
    "s": ("s", "sec", "secs", "second", "seconds"),
    "m": ("m", "min", "mins", "minute", "minutes"),
    "h": ("h", "hr", "hrs", "hour", "hours"),
    "d": ("d", "day", "days"),
    "w": ("w", "wk", "wks", "week", "weeks"),
}
_UNITS_BY_NAME: Final = {name: unit for unit, names in _UNIT_NAMES.items() for name in names}
_UNITS_TOO_LONG: Final = frozenset(("mo", "month", "months", "y", "yr", "yrs", "year", "years"))
_ALMOST_AGO: Final = re.compile(r"- ?(\d*\.?\d*) ?([a-z]*)", re.ASCII)
_ALMOST_OFFSET: Final = re.compile(r"# ?[+-]?\d[\d_,. ]*", re.ASCII)
_ALMOST_TIME: Final = re.compile(
    r"\d{4}-\d{1,2}-\d{1,2}(?:[t ]?[\d:.]* ?(?:z|[+-][\d:]*)?)?", re.ASCII
)
_RESERVED: Final = re.compile(r"last|group=.*", re.DOTALL)


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
    if match := _OFFSETS.fullmatch(place):
        pairs = (pair.split(":") for pair in match[1].split(","))
        return AtOffsets({int(number): int(offset) for number, offset in pairs})
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


def check_replay(text: str) -> None:
    """Raise InvalidStart if a subscription ends in what is almost a start position, or reserved."""
    _, at, place = text.rpartition("@")
    if at and _start(place) is None:
        hint = _hint(place)
        if hint is not None:
            raise InvalidStart(text[:200], f"@{place}", hint)


def ends_in_replay(name: str) -> bool:
    """Return whether a subscription could not name this topic, due to its end."""
    _, at, place = name.rpartition("@")
    return bool(at) and (_start(place) is not None or _hint(place) is not None)


def _hint(place: str) -> str | None:
    """Return what to write instead of a text that is no start position; None if it is a name."""
    if len(place) > _PLACE_CHARACTERS_MAX:
        return None
    place = place.strip().lower()
    if _is_reserved(place):
        return "it is reserved for later versions"
    meant = _meant(place)
    return None if meant is None else f"did you mean {meant}?"


def _is_reserved(place: str) -> bool:
    """Return whether a list of start positions has one that later versions add."""
    parts = place.split(",")
    reserved = [part for part in parts if _RESERVED.fullmatch(part)]
    return bool(reserved) and all(part in reserved or _start(part) for part in parts)


def _meant(place: str) -> str | None:
    if place == "latest":
        return "the name alone, which starts with the next message"
    if place.isalpha() and _edits(place, "earliest") <= _EARLIEST_EDITS_MAX:
        return "@earliest"
    if match := _ALMOST_AGO.fullmatch(place):
        return _duration_meant(match[1], match[2])
    if _ALMOST_OFFSET.fullmatch(place):
        digits = re.sub(r"\D", "", place.partition(".")[0])
        return f"@#{digits}" if _start(f"#{digits}") and "-" not in place else "@#1234, an offset"
    if _ALMOST_TIME.fullmatch(place):
        time = place.replace(" ", "T", 1).upper()
        return f"@{time}" if _start(time) else "a time such as @2026-11-01T00:00:00Z"
    return None


def _duration_meant(number: str, unit: str) -> str | None:
    """Return the start position that is probably meant by a negative number and a unit."""
    known = not unit or unit in _UNITS_BY_NAME or unit in _UNITS_TOO_LONG
    if not number.strip(".") or not known:
        return None
    whole, _, fraction = number.partition(".")
    duration = f"-{whole or 0}{fraction and '.'}{fraction}{_UNITS_BY_NAME.get(unit, '')}"
    if _start(duration) is not None:
        return f"@{duration}"
    return "@-15m, with one of the units ms, s, m, h, d and w"


def _edits(text: str, word: str) -> int:
    """Return how many letters must be added, removed or replaced to make one text the other."""
    if abs(len(text) - len(word)) > _EARLIEST_EDITS_MAX:
        return _EARLIEST_EDITS_MAX + 1
    row = list(range(len(word) + 1))
    for count, letter in enumerate(text, 1):
        before, row[0] = row[0], count
        for place, wanted in enumerate(word, 1):
            before, row[place] = (
                row[place],
                min(row[place] + 1, row[place - 1] + 1, before + (letter != wanted)),
            )
    return row[-1]
