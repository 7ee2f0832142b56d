"""Replay positions of subscriptions: the part after the `@` of `topic@earliest`.

| written | starts with |
|---|---|
| `@earliest` | the first message in the log |
| `@-15m` | messages of the last 15 minutes; units ms, s, m, h, d and w, decimals allowed |
| `@2026-11-01T00:00:00Z` | messages received at or after a time; UTC without a zone offset |
| `@#1234` | the message with that offset; of several nodes, in the partition of the node asked |
| `@#0:1234,1:99` | that offset of each partition; the first message of partitions left out |
| `@last` | the last message of each topic |
| `@group=NAME` | where the consumer group NAME is; a new group begins with the next message |

`@group=NAME` may be followed by a start position other than `last`, at which a new group begins,
and by `ordered=topic`, in any order and with commas: `@group=billing,earliest,ordered=topic`.

An `@` followed by any other text is part of the name, except that a text which is almost one of
these (`@ealiest`, `@-15min`, `@gruop=billing`) is refused with a hint. No topic can be created
whose name ends in one of all these: a subscription could not name it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from penstock.errors import InvalidStart
from penstock.limits import GROUP_NAME_CHARACTERS_MAX

__all__ = [
    "GROUP_HINT",
    "Ago",
    "AtOffset",
    "AtOffsets",
    "AtTime",
    "Earliest",
    "GroupPlace",
    "Last",
    "Start",
    "check_replay",
    "ends_in_replay",
    "parse_start",
    "split_group",
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


@dataclass(frozen=True, slots=True)
class Last:
    """The last message of each topic, then all later ones."""


Start: TypeAlias = Earliest | Ago | AtTime | AtOffset | AtOffsets | Last


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """A consumer group that a subscription joins.

    A new group begins at `start`; None is the next message. `is_ordered` keeps the messages of a
    topic with one member.
    """

    name: str
    start: Start | None = None
    is_ordered: bool = False


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
_GROUP_CHARACTERS_MAX: Final = 2 * GROUP_NAME_CHARACTERS_MAX
_EDITS_MAX: Final = 2
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
_LAST: Final = "last"
_GROUP: Final = "group="
_ORDERED: Final = "ordered=topic"
_ALMOST_GROUP: Final = re.compile(r" *([A-Za-z]{4,6}) *([=:]) *(.*)", re.ASCII | re.DOTALL)
_JOINED_HINT: Final = "write one of these alone, or with a group: @group=NAME,earliest"
GROUP_HINT: Final = (
    f"write @group=NAME, with a name of up to {GROUP_NAME_CHARACTERS_MAX} letters, digits, "
    f"'_', '-' and '.', then ,earliest or another start position, or ,{_ORDERED}"
)
_GROUP_NAME: Final = re.compile(
    rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,{GROUP_NAME_CHARACTERS_MAX - 1}}}", re.ASCII
)


def _slips(word: str) -> frozenset[str]:
    """Return a word with two adjacent letters swapped, or with one letter doubled."""
    swapped = (
        word[:index] + word[index + 1] + word[index] + word[index + 2 :]
        for index in range(len(word) - 1)
    )
    doubled = (word[: index + 1] + word[index:] for index in range(len(word)))
    return frozenset((*swapped, *doubled))


# A letter replaced makes other words of so short a word: fast, list, past.
_ALMOST_LAST: Final = _slips(_LAST) | {_LAST}
_GROUP_SLIPS: Final = _slips("group")


def split_replay(text: str) -> tuple[str, Start | None]:
    """Return the pattern of a subscription and its replay position, None for new messages only.

    The position is None also for a subscription that joins a consumer group, see `split_group`.
    """
    pattern, at, place = text.rpartition("@")
    start = _start(place) if at else None
    if start is None and (not at or _group(place) is None):
        return text, None
    return pattern, start


def split_group(text: str) -> tuple[str, GroupPlace | None]:
    """Return the pattern of a subscription and the group that it joins, None if it joins none."""
    pattern, at, place = text.rpartition("@")
    group = _group(place) if at else None
    return (text, None) if group is None else (pattern, group)


def parse_start(place: str) -> Start | None:
    """Return the start position that is written without its `@`; None if it is none."""
    return _start(place)


def _group(place: str) -> GroupPlace | None:
    """Return the group of a list such as `group=billing,earliest`; None if it is none."""
    if _GROUP not in place:
        return None
    parts = place.split(",")
    names = [part.removeprefix(_GROUP) for part in parts if part.startswith(_GROUP)]
    rest = [part for part in parts if not part.startswith(_GROUP)]
    starts = [_start(part) for part in rest if part != _ORDERED]
    if len(names) != 1 or not _GROUP_NAME.fullmatch(names[0]):
        return None
    if len(starts) > 1 or starts[:1] in ([None], [Last()]) or rest.count(_ORDERED) > 1:
        return None
    return GroupPlace(names[0], starts[0] if starts else None, is_ordered=_ORDERED in rest)


def _start(place: str) -> Start | None:
    if place == "earliest":
        return Earliest()
    if place == _LAST:
        return Last()
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
    if at and _start(place) is None and _group(place) is None:
        hint = _hint(place)
        if hint is not None:
            raise InvalidStart(text[:200], f"@{place}", hint)


def ends_in_replay(name: str) -> bool:
    """Return whether a subscription could not name this topic, due to its end."""
    _, at, place = name.rpartition("@")
    return bool(at) and (
        _start(place) is not None or _group(place) is not None or _hint(place) is not None
    )


def _hint(place: str) -> str | None:
    """Return what to write instead of a text that is no start position; None if it is a name."""
    if len(place) > _GROUP_CHARACTERS_MAX:
        return None
    parts = place.split(",")
    if any(_group_meant(part) is not None for part in parts):
        meant = ",".join(_part_meant(part) for part in parts)
        return GROUP_HINT if _group(meant) is None else f"did you mean @{meant}?"
    if len(place) > _PLACE_CHARACTERS_MAX:
        return None
    if (meant_alone := _meant(place)) is not None:
        return f"did you mean {meant_alone}?"
    if len(parts) > 1 and all(_is_part(_part_meant(part)) for part in parts):
        return _JOINED_HINT
    return None


def _group_meant(part: str) -> str | None:
    """Return the part `group=NAME` that is probably meant; None if it is another text."""
    match = _ALMOST_GROUP.fullmatch(part)
    if match is None:
        return None
    word, sign, name = match[1].lower(), match[2], match[3].rstrip(" ")
    is_almost = word in _GROUP_SLIPS or (sign == "=" and _edits(word, "group") <= 1)
    return f"{_GROUP}{name}" if is_almost or word == "group" else None


def _part_meant(part: str) -> str:
    """Return what is probably meant by a part of a list such as `group=billing,ealiest`."""
    group = _group_meant(part)
    if group is not None:
        return group
    if len(part) > _PLACE_CHARACTERS_MAX or _is_part(part):
        return part
    if _edits(part.strip().lower(), _ORDERED) <= _EDITS_MAX:
        return _ORDERED
    meant = (_meant(part) or "").removeprefix("@")
    return meant if _start(meant) is not None else part


def _is_part(part: str) -> bool:
    return part == _ORDERED or _start(part) is not None


def _meant(place: str) -> str | None:
    place = place.strip().lower()
    if place == "latest":
        return "the name alone, which starts with the next message"
    if place in _ALMOST_LAST:
        return "@last"
    if place.isalpha() and _edits(place, "earliest") <= _EDITS_MAX:
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
    if abs(len(text) - len(word)) > _EDITS_MAX:
        return _EDITS_MAX + 1
    row = list(range(len(word) + 1))
    for count, letter in enumerate(text, 1):
        before, row[0] = row[0], count
        for place, wanted in enumerate(word, 1):
            before, row[place] = (
                row[place],
                min(row[place] + 1, row[place - 1] + 1, before + (letter != wanted)),
            )
    return row[-1]
