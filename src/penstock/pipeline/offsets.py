"""Offsets of a table: the next offset to read of each stream of messages.

A stream is one partition of one log. A broker that starts again with an empty data folder has a new
log, whose offsets begin at 0. The log id, the first part of every message id, identifies the log.
A table's offsets are app transactions of the commit that adds its rows, so rows and offsets always
agree.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as f

from penstock.pipeline.data_files import DataFile, read_parquet
from penstock.storage.object_store import ObjectStore

__all__ = [
    "LOG_ID_CHARACTERS",
    "Slice",
    "Stream",
    "at_or_after",
    "drop_before",
    "end_offsets",
    "in_any_slice",
    "in_slices",
    "lag",
    "least",
    "next_slices",
    "overlapping",
    "to_transactions",
]

LOG_ID_CHARACTERS: Final = 13
"""The first characters of a message id, 48 bits and a hyphen, are the log id."""


class Stream(NamedTuple):
    """One partition of one log."""

    log: str
    partition: int

    @property
    def name(self) -> str:
        """The name of the stream in a table's log."""
        return f"{self.log}/{self.partition}"

    @classmethod
    def parse(cls, name: str) -> "Stream":
        """Return the stream of a name."""
        log, _, partition = name.rpartition("/")
        return cls(log, int(partition))


class Slice(NamedTuple):
    """Messages of a stream from `start` up to, not including, `end`."""

    stream: Stream
    start: int
    end: int


def end_offsets(place: ObjectStore | Path, files: Iterable[DataFile]) -> dict[Stream, int]:
    """Return for each stream in the files the offset after its last message."""
    store = ObjectStore.at(place)
    found: dict[Stream, int] = {}
    for each in files:
        low, high = each.low, each.high
        logs = {str(bound.get("message_id", ""))[:LOG_ID_CHARACTERS] for bound in (low, high)}
        if len(logs) == 1 and all(logs) and low.get("partition", -1) == high.get("partition"):
            here = {Stream(logs.pop(), low["partition"]): high["offset"] + 1}
        else:
            here = _read_end_offsets(store, each.path)
        for stream, end in here.items():
            found[stream] = max(end, found.get(stream, 0))
    return found


def _read_end_offsets(store: ObjectStore, path: str) -> dict[Stream, int]:
    """Return the end offsets of a file with several streams, from its rows."""
    columns = ["message_id", "partition", "offset"]
    table = read_parquet(store, path, columns)
    log = pc.utf8_slice_codeunits(table.column("message_id"), 0, LOG_ID_CHARACTERS)
    table = table.set_column(0, "log", log)
    most = table.group_by(["log", "partition"]).aggregate([("offset", "max")])
    return {Stream(row["log"], row["partition"]): row["offset_max"] + 1 for row in most.to_pylist()}


def to_transactions(offsets: Mapping[Stream, int], prefix: str = "") -> dict[str, int]:
    """Return offsets as the app transactions of a commit, `prefix` + name of the stream."""
    return {f"{prefix}{stream.name}": offset for stream, offset in offsets.items()}


def lag(done: Mapping[Stream, int], until: Mapping[Stream, int]) -> int:
    """Return the number of offsets from `done` up to `until`."""
    return sum(max(0, end - done.get(stream, 0)) for stream, end in until.items())


def least(offsets: Iterable[Mapping[Stream, int]]) -> dict[Stream, int]:
    """Return the lowest offset of each stream; 0 for one that any of the mappings lacks."""
    given = list(offsets)
    streams = {stream for each in given for stream in each}
    return {stream: min(each.get(stream, 0) for each in given) for stream in streams}


def at_or_after(offsets: Mapping[Stream, int]) -> Column | None:
    """Return the condition for rows at or after the offsets; None if every row matches."""
    condition = None
    for stream, offset in offsets.items():
        if offset > 0:
            before = _is_of(stream) & (f.col("offset") < offset)
            condition = ~before if condition is None else condition & ~before
    return condition


def drop_before(records: pa.Table, offsets: Mapping[Stream, int]) -> pa.Table:
    """Return the records at or after the offsets."""
    for stream, offset in offsets.items():
        log = pc.starts_with(records.column("message_id"), stream.log)
        partition = pc.equal(records.column("partition"), stream.partition)
        before = pc.and_(pc.and_(log, partition), pc.less(records.column("offset"), offset))
        records = records.filter(pc.invert(before))
    return records


def in_any_slice(records: pa.Table, slices: Sequence[Slice]) -> pa.ChunkedArray:
    """Return which records are in a slice."""
    chosen = pa.chunked_array([pa.repeat(pa.scalar(value=False), len(records))])
    for each in slices:
        offset = records.column("offset")
        inside = pc.and_(pc.greater_equal(offset, each.start), pc.less(offset, each.end))
        log = pc.starts_with(records.column("message_id"), each.stream.log)
        partition = pc.equal(records.column("partition"), each.stream.partition)
        chosen = pc.or_(chosen, pc.and_(inside, pc.and_(log, partition)))
    return chosen


def in_slices(slices: Sequence[Slice]) -> Column:
    """Return the condition for rows of the slices."""
    condition = f.lit(False)  # noqa: FBT003
    for each in slices:
        offset = f.col("offset")
        condition |= _is_of(each.stream) & (offset >= each.start) & (offset < each.end)
    return condition


def _is_of(stream: Stream) -> Column:
    return (f.col("partition") == stream.partition) & f.col("message_id").startswith(stream.log)


def overlapping(files: Sequence[DataFile], slices: Sequence[Slice]) -> list[DataFile]:
    """Return the files that may have rows of the slices."""
    return [
        each
        for each in files
        if any(each.overlaps("offset", part.start, part.end) for part in slices)
    ]


def next_slices(
    files: Sequence[DataFile],
    *,
    done: Mapping[Stream, int],
    until: Mapping[Stream, int],
    rows_max: int,
) -> list[Slice]:
    """Return the next slices to read, about `rows_max` rows, from the offsets `done` to `until`.

    Offsets that no file holds are skipped.
    """
    slices = []
    left = rows_max
    for stream, end in sorted(until.items()):
        start = done.get(stream, 0)
        if start >= end or left <= 0:
            continue
        lows = [each.low.get("offset", 0) for each in files if each.overlaps("offset", start, end)]
        start = max(start, min(lows, default=end))
        last = min(end, start + left)
        left -= last - start
        slices.append(Slice(stream, start, last))
    return slices
