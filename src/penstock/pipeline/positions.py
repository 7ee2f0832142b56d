"""How far a table has come in the log: the next offset of each stream of messages.

A stream is one partition of one log. A broker that starts over with an empty data folder has
another log, whose offsets begin at 0 again: the log's id, which every message id begins with,
tells them apart. Positions are kept with the table, in the commit that brings the rows, so a table
and its position never disagree.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.pipeline.files import DataFile

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["LOG_CHARACTERS", "Slice", "Stream", "ends", "not_before", "plan", "within", "without"]

LOG_CHARACTERS: Final = 13
"""The first characters of a message id, 48 bits and a hyphen, are the log's."""


class Stream(NamedTuple):
    """One partition of one log."""

    log: str
    partition: int

    @property
    def name(self) -> str:
        """How tables spell it."""
        return f"{self.log}/{self.partition}"

    @classmethod
    def parse(cls, name: str) -> "Stream":
        """Return the stream of a name."""
        log, _, partition = name.rpartition("/")
        return cls(log, int(partition))


class Slice(NamedTuple):
    """Messages of a stream from `start` up to `end`."""

    stream: Stream
    start: int
    end: int


def ends(folder: Path, files: Iterable[DataFile]) -> dict[Stream, int]:
    """Return the offset behind the last of each stream that files have rows of."""
    found: dict[Stream, int] = {}
    for each in files:
        low, high = each.low, each.high
        logs = {str(bound.get("message_id", ""))[:LOG_CHARACTERS] for bound in (low, high)}
        if len(logs) == 1 and all(logs) and low.get("partition", -1) == high.get("partition"):
            here = {Stream(logs.pop(), low["partition"]): high["offset"] + 1}
        else:
            here = _read_ends(folder / each.path)
        for stream, end in here.items():
            found[stream] = max(end, found.get(stream, 0))
    return found


def _read_ends(path: Path) -> dict[Stream, int]:
    """Return the same of one file whose bounds do not tell: its rows are looked at."""
    table = pq.read_table(path, columns=["message_id", "partition", "offset"], partitioning=None)
    log = pc.utf8_slice_codeunits(table.column("message_id"), 0, LOG_CHARACTERS)
    table = table.set_column(0, "log", log)
    most = table.group_by(["log", "partition"]).aggregate([("offset", "max")])
    return {Stream(row["log"], row["partition"]): row["offset_max"] + 1 for row in most.to_pylist()}


def not_before(positions: Mapping[Stream, int]) -> "Column | None":
    """Return the condition of rows that are at or behind the positions, None if all are."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    condition = None
    for stream, offset in positions.items():
        if offset > 0:
            done = _of(stream) & (f.col("offset") < offset)
            condition = ~done if condition is None else condition & ~done
    return condition


def without(records: pa.Table, positions: Mapping[Stream, int]) -> pa.Table:
    """Return the records that are at or behind the positions."""
    for stream, offset in positions.items():
        log = pc.starts_with(records.column("message_id"), stream.log)
        partition = pc.equal(records.column("partition"), stream.partition)
        done = pc.and_(pc.and_(log, partition), pc.less(records.column("offset"), offset))
        records = records.filter(pc.invert(done))
    return records


def within(slices: Sequence[Slice]) -> "Column":
    """Return the condition of rows that are in slices."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    condition = f.lit(False)  # noqa: FBT003
    for each in slices:
        offset = f.col("offset")
        condition |= _of(each.stream) & (offset >= each.start) & (offset < each.end)
    return condition


def _of(stream: Stream) -> "Column":
    from pyspark.sql import functions as f  # noqa: PLC0415

    return (f.col("partition") == stream.partition) & f.col("message_id").startswith(stream.log)


def plan(
    files: Sequence[DataFile],
    *,
    done: Mapping[Stream, int],
    until: Mapping[Stream, int],
    rows_max: int,
) -> list[Slice]:
    """Return what to take next of a table that has come to `until`: about `rows_max` rows.

    Where the table has nothing between two offsets, there is nothing to wait for.
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
