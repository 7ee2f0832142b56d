"""Start and end of a read: `startingOffsets`, `endingTimestamp` and the like, parsed."""

import dataclasses
import datetime as dt
import enum
import json
from collections.abc import Mapping
from typing import Final

from penstock.spark.errors import InvalidOption

__all__ = ["NamedOffset", "OffsetSpec", "parse_offsets", "parse_timestamp"]

_OFFSETS: Final = (
    '"earliest", "latest", or JSON of offsets by partition such as {"0": 1234}, '
    "where -2 is earliest and -1 latest"
)
_TIME: Final = "milliseconds since the epoch, or a time such as 2026-11-01T08:00:00Z"
_EARLIEST: Final = -2
_LATEST: Final = -1


class NamedOffset(enum.Enum):
    """The first and the last offset of a partition, by Kafka's names."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclasses.dataclass(frozen=True)
class OffsetSpec:
    """A named offset, a timestamp, or offsets by partition.

    `named` applies to partitions that `offsets` does not list.
    """

    option: str
    named: NamedOffset
    offsets: Mapping[int, int | NamedOffset] = dataclasses.field(default_factory=dict)
    timestamp_us: int | None = None


def parse_offsets(option: str, text: str, *, others: NamedOffset) -> OffsetSpec:
    """Parse `startingOffsets` or `endingOffsets`; `others` is for partitions not in the JSON.

    Raise InvalidOption.
    """
    word = text.strip().lower()
    if word in {each.value for each in NamedOffset}:
        return OffsetSpec(option, NamedOffset(word))
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found:
        raise InvalidOption(option, f"{text!r} is neither a word nor JSON by partition", _OFFSETS)
    offsets: dict[int, int | NamedOffset] = {}
    for name, offset in found.items():
        if not (name.isascii() and name.isdigit()):
            raise InvalidOption(option, f"{name!r} is no partition", _OFFSETS)
        if type(offset) is not int or offset < _EARLIEST:
            raise InvalidOption(option, f"{offset!r} is no offset", _OFFSETS)
        special = {_EARLIEST: NamedOffset.EARLIEST, _LATEST: NamedOffset.LATEST}
        offsets[int(name)] = special.get(offset, offset)
    return OffsetSpec(option, others, offsets)


def parse_timestamp(option: str, text: str, *, others: NamedOffset) -> OffsetSpec:
    """Parse `startingTimestamp` or `endingTimestamp`; raise InvalidOption."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return OffsetSpec(option, others, timestamp_us=int(text) * 1000)
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOption(option, f"{text!r} is no time", _TIME) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    since = moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return OffsetSpec(option, others, timestamp_us=since // dt.timedelta(microseconds=1))
