"""Offsets of a stream: the next offset of each partition, with the log that it belongs to.

    {"0123456789ab": {"0": 1234}}     partition 0 of the log with this id
    {"0": 1234}                       before offsets had a log id, and for a log whose id is unknown

An offset means nothing in another log, so a stream compares the ids before it continues. An offset
without an id is taken as one of the current log.
"""

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["JsonOffsets", "LogOffset", "lag_between", "parse_stream_offsets", "to_json_offsets"]

JsonOffsets = dict[str, int | dict[str, int]]


class LogOffset(NamedTuple):
    """The next offset of a partition of a log; `log` is empty if the id is unknown."""

    log: str
    offset: int

    def is_of(self, log: str) -> bool:
        """Return whether the offset may belong to a log."""
        return not self.log or not log or self.log == log


def parse_stream_offsets(offsets: JsonOffsets | None) -> dict[int, LogOffset]:
    """Return the offset of each partition."""
    found: dict[int, LogOffset] = {}
    for name, value in (offsets or {}).items():
        if isinstance(value, int):
            found[int(name)] = LogOffset("", value)
        else:
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
        if not isinstance(below, int):
            below[str(partition)] = each.offset
    return found


def lag_between(start: JsonOffsets, end: JsonOffsets) -> int:
    """Return the number of offsets from `start` up to `end`; all of a log that `start` lacks."""
    begun = parse_stream_offsets(start)
    count = 0
    for partition, last in parse_stream_offsets(end).items():
        first = begun.get(partition)
        same = first is not None and first.is_of(last.log)
        count += max(0, last.offset - (first.offset if first is not None and same else 0))
    return count
