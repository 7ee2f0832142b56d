"""Offsets of a stream: the next offset of each partition, with the log that it belongs to.

    {"0123456789ab": {"0": 1234}}     partition 0 of the log with this id
    {"0": 1234}                       before offsets had a log id, and for a log whose id is unknown

An offset means nothing in another log, so a stream compares the ids before it continues. An offset
without an id is taken as one of the current log.

Beside the logs there may be `"subscription"`, the topics of the stream (see joining). While it
reads the history of topics that join, there are `"joining"`, its subscription with these, and
`"history"`, the next offset of each partition in their history.

The offset at which a batch ends also tells where the batch really starts. `"first"` has the offset
of each partition before which the batch has no record of the stream, if it is not that of the batch
before; a reader need not look there, and messages that retention removes there are not lost to the
stream. The first batch always has it, since Spark asks for its start again after a failure.
`"starts"` has the offsets by topic from which the records of the batch are read, as text, while
topics start at different offsets (see topic_ranges).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = [
    "BatchStart",
    "JsonOffsets",
    "LogOffset",
    "Subscribed",
    "lag_between",
    "logs_of",
    "parse_batch_start",
    "parse_stream_offsets",
    "parse_subscribed",
    "to_json_offsets",
]

JsonOffsets = dict[str, int | str | dict[str, int]]
_SUBSCRIPTION: Final = "subscription"
_JOINING: Final = "joining"
_HISTORY: Final = "history"
_STARTS: Final = "starts"
_FIRST: Final = "first"
_NO_LOGS: Final = frozenset({_SUBSCRIPTION, _JOINING, _HISTORY, _STARTS, _FIRST})


class LogOffset(NamedTuple):
    """The next offset of a partition of a log; `log` is empty if the id is unknown."""

    log: str
    offset: int

    def is_of(self, log: str) -> bool:
        """Return whether the offset may belong to a log."""
        return not self.log or not log or self.log == log


class Subscribed(NamedTuple):
    """The subscription of a stream, as text; empty for all topics, or if it is unknown.

    `history` has the next offsets in the history of topics that join by the subscription
    `joining`; it is None if none do.
    """

    subscription: str
    joining: str = ""
    history: Mapping[int, int] | None = None

    def to_json(self) -> JsonOffsets:
        """Return the entries beside those of logs."""
        found: JsonOffsets = {}
        if self.subscription:
            found[_SUBSCRIPTION] = self.subscription
        if self.history is not None:
            found[_JOINING] = self.joining
            found[_HISTORY] = {str(each): self.history[each] for each in sorted(self.history)}
        return found


def parse_subscribed(offsets: JsonOffsets | None) -> Subscribed:
    """Return the subscription of a stream."""
    given = offsets or {}
    history = given.get(_HISTORY)
    return Subscribed(
        str(given.get(_SUBSCRIPTION, "")),
        str(given.get(_JOINING, "")),
        {int(number): offset for number, offset in history.items()}
        if isinstance(history, dict)
        else None,
    )


class BatchStart(NamedTuple):
    """The start of a batch, in the offset at which it ends.

    `starts` has the offsets by topic, as text; it is empty if all topics have started. `first` has
    the offset of each partition before which the batch has no record.
    """

    starts: str = ""
    first: Mapping[int, int] | None = None

    def to_json(self) -> JsonOffsets:
        """Return the entries beside those of logs."""
        found: JsonOffsets = {}
        if self.starts:
            found[_STARTS] = self.starts
        if self.first:
            found[_FIRST] = {str(each): self.first[each] for each in sorted(self.first)}
        return found


def parse_batch_start(offsets: JsonOffsets | None) -> BatchStart:
    """Return the start of the batch that ends at an offset."""
    given = offsets or {}
    first = given.get(_FIRST)
    return BatchStart(
        str(given.get(_STARTS, "")),
        {int(number): offset for number, offset in first.items()}
        if isinstance(first, dict)
        else None,
    )


def parse_stream_offsets(offsets: JsonOffsets | None) -> dict[int, LogOffset]:
    """Return the offset of each partition."""
    found: dict[int, LogOffset] = {}
    for name, value in (offsets or {}).items():
        if name in _NO_LOGS:
            continue
        if isinstance(value, int):
            found[int(name)] = LogOffset("", value)
        elif isinstance(value, dict):
            found.update({int(each): LogOffset(name, offset) for each, offset in value.items()})
    return found


def to_json_offsets(offsets: Mapping[int, LogOffset]) -> JsonOffsets:
    """Return offsets as Spark stores them: equal offsets become equal text."""
    found: JsonOffsets = {}
    for partition, each in sorted(offsets.items()):
        if not each.log:
            found[str(partition)] = each.offset
            continue
        below = found.setdefault(each.log, {})
        if isinstance(below, dict):
            below[str(partition)] = each.offset
    return found


def logs_of(offsets: JsonOffsets) -> frozenset[tuple[str, int]]:
    """Return the partitions that offsets name, each with the id of its log."""
    found = parse_stream_offsets(offsets)
    return frozenset((each.log, number) for number, each in found.items())


def lag_between(start: JsonOffsets, end: JsonOffsets) -> int:
    """Return the number of offsets from `start` up to `end`; all of a log that `start` lacks."""
    begun = parse_stream_offsets(start)
    count = 0
    for partition, last in parse_stream_offsets(end).items():
        first = begun.get(partition)
        same = first is not None and first.is_of(last.log)
        count += max(0, last.offset - (first.offset if first is not None and same else 0))
    return count
