"""Start and end of a read: `startingOffsets`, `endingTimestamp` and the like, parsed."""

import dataclasses
import datetime as dt
import enum
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from penstock.limits import SPARK_TOPIC_OFFSETS_MAX
from penstock.spark.errors import InvalidOption

__all__ = [
    "NamedOffset",
    "OffsetSpec",
    "parse_offsets",
    "parse_timestamp",
    "parse_topic_timestamps",
]

_OFFSETS: Final = (
    '"earliest", "latest", or JSON of offsets by topic and partition such as {"a": {"0": 1234}}, '
    'or by partition for all topics such as {"0": 1234}, where -2 is earliest and -1 latest'
)
_TIME: Final = "milliseconds since the epoch, or a time such as 2026-11-01T08:00:00Z"
_TIMES: Final = (
    'JSON of milliseconds since the epoch by topic and partition such as {"a": {"0": 1000}}'
)
_Value = TypeVar("_Value")
_EARLIEST: Final = -2
_LATEST: Final = -1


class NamedOffset(enum.Enum):
    """The first and the last offset of a partition, by Kafka's names."""

    EARLIEST = "earliest"
    LATEST = "latest"


_SPECIAL: Final = {_EARLIEST: NamedOffset.EARLIEST, _LATEST: NamedOffset.LATEST}


@dataclasses.dataclass(frozen=True)
class OffsetSpec:
    """A named offset, a timestamp, offsets by partition, or offsets or timestamps by topic.

    `named` applies to partitions and topics that are not listed. With `must_match`, there must be a
    message at or after each timestamp. Timestamps are microseconds since the epoch.
    """

    option: str
    named: NamedOffset
    offsets: Mapping[int, int | NamedOffset] = dataclasses.field(default_factory=dict)
    timestamp_us: int | None = None
    topics: Mapping[str, Mapping[int, int | NamedOffset]] = dataclasses.field(default_factory=dict)
    topic_timestamps_us: Mapping[str, Mapping[int, int]] = dataclasses.field(default_factory=dict)
    must_match: bool = False

    @property
    def topic_names(self) -> set[str]:
        """The topics that are listed."""
        return {*self.topics, *self.topic_timestamps_us}

    @property
    def partitions(self) -> set[int]:
        """The partitions that are listed."""
        found = set(self.offsets)
        for by_partition in (*self.topics.values(), *self.topic_timestamps_us.values()):
            found.update(by_partition)
        return found

    def has(self, named: NamedOffset) -> bool:
        """Return whether a topic or partition is at a named offset, by name or by default."""
        if self.timestamp_us is not None or self.topic_timestamps_us:
            return False
        listed = [*self.offsets.values()]
        for by_partition in self.topics.values():
            listed += by_partition.values()
        return named in listed if listed else self.named is named


def parse_offsets(option: str, text: str, *, others: NamedOffset) -> OffsetSpec:
    """Parse `startingOffsets` or `endingOffsets`; `others` is for those not in the JSON.

    Raise InvalidOption.
    """
    word = text.strip().lower()
    if word in {each.value for each in NamedOffset}:
        return OffsetSpec(option, NamedOffset(word))
    found = _parse_json(option, text, _OFFSETS, "a word nor JSON of offsets")
    if not any(isinstance(value, dict) for value in found.values()):
        offsets: dict[int, int | NamedOffset] = _by_partition(option, found, _OFFSETS, _offset)
        return OffsetSpec(option, others, offsets)
    topics: dict[str, dict[int, int | NamedOffset]] = _by_topic(option, found, _OFFSETS, _offset)
    return OffsetSpec(option, others, topics=topics)


def parse_timestamp(option: str, text: str, *, must_match: bool = False) -> OffsetSpec:
    """Parse `startingTimestamp` or `endingTimestamp`; raise InvalidOption."""
    text = text.strip()
    latest = NamedOffset.LATEST
    if text.isascii() and text.isdigit():
        time_us = int(text) * 1000
        return OffsetSpec(option, latest, timestamp_us=time_us, must_match=must_match)
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOption(option, f"{text!r} is no time", _TIME) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    since = moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    time_us = since // dt.timedelta(microseconds=1)
    return OffsetSpec(option, latest, timestamp_us=time_us, must_match=must_match)


def parse_topic_timestamps(
    option: str, text: str, *, others: NamedOffset, must_match: bool = False
) -> OffsetSpec:
    """Parse `startingOffsetsByTimestamp` or `endingOffsetsByTimestamp`; raise InvalidOption."""
    found = _parse_json(option, text, _TIMES, "JSON of times")
    times = _by_topic(option, found, _TIMES, _time)
    return OffsetSpec(option, others, topic_timestamps_us=times, must_match=must_match)


def _parse_json(option: str, text: str, allowed: str, expected: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found:
        neither = "neither " if " nor " in expected else "no "
        raise InvalidOption(option, f"{text!r} is {neither}{expected}", allowed)
    return found


def _by_topic(
    option: str, found: dict[str, Any], allowed: str, parse: Callable[[object], _Value | None]
) -> dict[str, dict[int, _Value]]:
    if len(found) > SPARK_TOPIC_OFFSETS_MAX:
        problem = f"it has {len(found)} topics"
        raise InvalidOption(option, problem, f"at most {SPARK_TOPIC_OFFSETS_MAX} topics")
    topics = {}
    for topic, by_partition in found.items():
        if not isinstance(by_partition, dict) or not by_partition:
            problem = f"{topic!r} has {by_partition!r}, which is not by partition"
            raise InvalidOption(option, problem, allowed)
        topics[topic] = _by_partition(option, by_partition, allowed, parse)
    return topics


def _by_partition(
    option: str, found: dict[str, Any], allowed: str, parse: Callable[[object], _Value | None]
) -> dict[int, _Value]:
    values: dict[int, _Value] = {}
    for name, given in found.items():
        if not (name.isascii() and name.isdigit()):
            raise InvalidOption(option, f"{name!r} is no partition", allowed)
        value = parse(given)
        if value is None:
            kind = "time" if parse is _time else "offset"
            raise InvalidOption(option, f"{given!r} is no {kind}", allowed)
        values[int(name)] = value
    return values


def _offset(given: object) -> int | NamedOffset | None:
    if type(given) is not int or given < _EARLIEST:
        return None
    return _SPECIAL.get(given, given)


def _time(given: object) -> int | None:
    return given * 1000 if type(given) is int and given >= 0 else None
