"""The built-in gold tables of a few records, by Arrow: what `gold` computes, without Spark.

A Spark job takes longer than the sums of some thousand records. A record is a table of one row, so
one merge computes the rows of records and adds them to those of the table.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["merged_session_rows", "merged_traffic_rows", "session_rows", "traffic_rows"]

_TIME: Final = pa.timestamp("us", "UTC")
_SECOND_US: Final = 1_000_000
_SUMS: Final = [
    pa.field("messages", pa.int64()),
    pa.field("bytes", pa.int64()),
    pa.field("revision", pa.int64()),
    pa.field("day", pa.date32()),
]
_TRAFFIC: Final = pa.schema(
    [
        pa.field("window_start", _TIME),
        pa.field("window_end", _TIME),
        pa.field("topic", pa.string()),
        pa.field("protocol", pa.string()),
        *_SUMS,
    ]
)
_SESSIONS: Final = pa.schema(
    [
        pa.field("sender", pa.string()),
        pa.field("protocol", pa.string()),
        pa.field("started", _TIME),
        pa.field("ended", _TIME),
        *_SUMS,
    ]
)


def traffic_rows(records: pa.Table, *, window_seconds: int) -> pa.Table:
    """Do what `gold.traffic` does."""
    window_us = window_seconds * _SECOND_US
    moments = _integers(records.column("timestamp"))
    starts = moments - moments % window_us
    return merged_traffic_rows(
        _table(
            _TRAFFIC,
            [_times(starts), _times(starts + window_us)],
            [records.column("topic"), records.column("protocol"), *_one_each(records)],
            days=starts,
        )
    )


def merged_traffic_rows(rows: pa.Table) -> pa.Table:
    """Do what `gold.merged_traffic` does."""
    keys = ["window_start", "window_end", "topic", "protocol", "day"]
    sums = rows.group_by(keys, use_threads=False).aggregate(
        [("messages", "sum"), ("bytes", "sum"), ("revision", "max")]
    )
    names = {"messages": "messages_sum", "bytes": "bytes_sum", "revision": "revision_max"}
    return pa.table(
        [sums.column(names.get(each, each)) for each in _TRAFFIC.names], schema=_TRAFFIC
    )


def session_rows(records: pa.Table, *, gap_seconds: int) -> pa.Table:
    """Do what `gold.sessions` does."""
    moments = _integers(records.column("timestamp"))
    return merged_session_rows(
        _table(
            _SESSIONS,
            [records.column("sender"), records.column("protocol")],
            [_times(moments), _times(moments), *_one_each(records)],
            days=moments,
        ),
        gap_seconds=gap_seconds,
    )


def merged_session_rows(rows: pa.Table, *, gap_seconds: int) -> pa.Table:
    """Do what `gold.merged_sessions` does."""
    if not len(rows):
        return rows
    clients = _numbers(rows.column("sender")), _numbers(rows.column("protocol"))
    started, ended = _integers(rows.column("started")), _integers(rows.column("ended"))
    order = np.lexsort((ended, started, *clients))
    started, ended = started[order], ended[order]
    other = np.ones(len(rows), bool)
    other[1:] = False
    for each in clients:
        other[1:] |= each[order][1:] != each[order][:-1]
    begins = other.copy()
    begins[1:] |= started[1:] - _greatest_before(ended, other)[1:] > gap_seconds * _SECOND_US
    first = np.flatnonzero(begins)

    def total(name: str, function: Any = np.add) -> "np.ndarray[Any, Any]":  # noqa: ANN401
        return np.asarray(function.reduceat(_integers(rows.column(name))[order], first))

    chosen = pa.array(order[first])
    return _table(
        _SESSIONS,
        [rows.column("sender").take(chosen), rows.column("protocol").take(chosen)],
        [
            _times(started[first]),
            _times(np.maximum.reduceat(ended, first)),
            total("messages"),
            total("bytes"),
            total("revision", np.maximum),
        ],
        days=started[first],
    )


def _greatest_before(
    values: "np.ndarray[Any, Any]", begins: "np.ndarray[Any, Any]"
) -> "np.ndarray[Any, Any]":
    """Return the greatest value of the rows before each row since the last one that begins a group.

    The first row of a group has no such value, and gets any.
    """
    known, ranks = np.unique(values, return_inverse=True)
    groups = np.cumsum(begins) - 1
    # The number of a group counts more than any rank, so the maximum begins anew with each group.
    greatest = np.maximum.accumulate(groups * len(known) + ranks) % len(known)
    return np.asarray(known[np.roll(greatest, 1)])


def _one_each(records: pa.Table) -> list[Any]:
    """Return the sums of single records: one message, its bytes, and revision 0."""
    sizes = pc.fill_null(pc.binary_length(records.column("value")), 0)
    count = len(records)
    return [np.ones(count, np.int64), sizes.cast(pa.int64()), np.zeros(count, np.int64)]


def _table(
    schema: pa.Schema, first: Sequence[Any], then: Sequence[Any], *, days: "np.ndarray[Any, Any]"
) -> pa.Table:
    """Return a table of columns, and of the days of times in microseconds."""
    day = pa.array((days // (86_400 * _SECOND_US)).astype("int32"), pa.int32()).cast(pa.date32())
    return pa.table([*first, *then, day], schema=schema)


def _integers(column: pa.ChunkedArray) -> "np.ndarray[Any, Any]":
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(_TIME).cast(pa.int64())
    return np.asarray(column.to_numpy())


def _times(values: "np.ndarray[Any, Any]") -> pa.Array:
    return pa.array(values, pa.int64()).cast(_TIME)


def _numbers(column: pa.ChunkedArray) -> "np.ndarray[Any, Any]":
    """Return a number for each value, equal for equal values, -1 for null."""
    known = pc.unique(column)
    return np.asarray(pc.fill_null(pc.index_in(column, known), -1).to_numpy())
