"""Positions in the log, which a client may ask for: no protocol has room for them in a delivery.

The broker sends them in frames of their own, whose payload is the same in every protocol. `Places`
stands before some deliveries and says where each is; `Anchor` says where a new subscription starts.
Integers are little-endian.

    Places   u8 kind (1), u8 flags, u16 partition, u32 count, u64 log id, u64 first offset,
             i64 time in microseconds since the epoch, u32 sender
             with ROWS      count times u32: what to add to the first offset
             with COLUMNS   count times i64 time, then count times u32 sender
    Anchor   u8 kind (2), u8 flags (HISTORY, REPLAY, GROUP), u16 count, u64 log id, i64 time,
             count times: u16 partition, u8 flags, u64 next offset, u64 first readable offset
             then the pattern in UTF-8
"""

import dataclasses
import struct
import sys
from array import array
from collections.abc import Iterator, Mapping
from typing import Final

from penstock.errors import ErrorCode, WireError

__all__ = [
    "ASK_HEADER",
    "ASK_NAME",
    "ASK_PATH",
    "TIMESTAMP",
    "Anchor",
    "AnchoredPartition",
    "InvalidPositions",
    "Place",
    "Places",
    "decode",
    "encode_anchor",
    "encode_places",
]

ASK_NAME: Final = "positions"
"""Ends the client id of a herald client that asks, and begins the payload of a Rheos SUBSCRIBE."""
ASK_HEADER: Final = "penstock-positions"
"""The header of a LamaMQ push without a routing key that asks."""
ASK_PATH: Final = "/positions"
"""The path of a fleximq request to the broker that asks, and of its answers."""
TIMESTAMP: Final = (1 << 64) - 1
"""The timestamp of a herald MESSAGE that has positions."""

_PLACES: Final = struct.Struct("<BBHIQQqI")
_ANCHOR: Final = struct.Struct("<BBHQq")
_PARTITION: Final = struct.Struct("<HBQQ")
_KIND_PLACES: Final = 1
_KIND_ANCHOR: Final = 2
_FINAL: Final = 1
_ROWS: Final = 2
_COLUMNS: Final = 4
_HISTORY: Final = 1
_REPLAY: Final = 2
_GROUP: Final = 4


class InvalidPositions(WireError):
    """A frame with positions cannot be read."""

    code = ErrorCode.INVALID_POSITIONS
    template = "positions of {size} bytes cannot be read"

    size: int


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a message is: log, partition, offset, and when it was received from which client."""

    log_id: int
    partition: int
    offset: int
    time_us: int
    sender: int
    is_final: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Places:
    """The places of the next `count` deliveries.

    `is_final` says that no offset of the partition is assigned again. Otherwise, messages that were
    delivered and not yet written may be lost with the broker, and their offsets go to others.
    """

    log_id: int
    partition: int
    count: int
    first_offset: int
    time_us: int
    sender: int
    is_final: bool = False
    rows: bytes = b""
    columns: bytes = b""

    def __iter__(self) -> Iterator[Place]:
        """Iterate over the place of each delivery."""
        rows: range | array[int] = range(self.count)
        if self.rows:
            rows = _numbers("I", self.rows)
        log_id, partition, first = self.log_id, self.partition, self.first_offset
        if not self.columns:
            for row in rows:
                yield Place(
                    log_id, partition, first + row, self.time_us, self.sender, self.is_final
                )
            return
        times = _numbers("q", self.columns[: 8 * self.count])
        senders = _numbers("I", self.columns[8 * self.count :])
        for row, time_us, sender in zip(rows, times, senders, strict=True):
            yield Place(log_id, partition, first + row, time_us, sender, self.is_final)


@dataclasses.dataclass(frozen=True, slots=True)
class AnchoredPartition:
    """The next offset of a partition. `is_final` is as in Places.

    `horizon` is the offset below which messages of the subscription may have been removed.
    """

    next_offset: int
    horizon: int
    is_final: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Anchor:
    """Where a subscription to `pattern` takes effect; an empty pattern answers the client's asking.

    Messages from the next offsets on were received at `time_us` or later. Without `has_history` the
    broker cannot deliver earlier messages; with `is_replay` some follow. With `in_group` the client
    is a member of a consumer group: its messages may be earlier ones, and may come again.
    """

    pattern: str
    log_id: int
    time_us: int
    partitions: Mapping[int, AnchoredPartition]
    has_history: bool = False
    is_replay: bool = False
    in_group: bool = False


def encode_places(places: Places) -> bytes:
    """Return the payload of a frame."""
    flags = places.is_final * _FINAL | bool(places.rows) * _ROWS | bool(places.columns) * _COLUMNS
    head = _PLACES.pack(
        _KIND_PLACES,
        flags,
        places.partition,
        places.count,
        places.log_id,
        places.first_offset,
        places.time_us,
        places.sender,
    )
    return head + places.rows + places.columns


def encode_anchor(anchor: Anchor) -> bytes:
    """Return the payload of a frame."""
    flags = anchor.has_history * _HISTORY | anchor.is_replay * _REPLAY | anchor.in_group * _GROUP
    count = len(anchor.partitions)
    parts = [_ANCHOR.pack(_KIND_ANCHOR, flags, count, anchor.log_id, anchor.time_us)]
    parts += (
        _PARTITION.pack(number, each.is_final, each.next_offset, each.horizon)
        for number, each in anchor.partitions.items()
    )
    return b"".join((*parts, anchor.pattern.encode()))


def decode(payload: bytes) -> Places | Anchor:
    """Return what a payload says; raise InvalidPositions."""
    try:
        if payload[0] == _KIND_PLACES:
            return _decode_places(payload)
        if payload[0] == _KIND_ANCHOR:
            return _decode_anchor(payload)
    except (IndexError, struct.error, UnicodeDecodeError):
        pass
    raise InvalidPositions(len(payload))


def _decode_places(payload: bytes) -> Places:
    _, flags, partition, count, log_id, first, time_us, sender = _PLACES.unpack_from(payload)
    start = _PLACES.size
    rows_end = start + (4 * count if flags & _ROWS else 0)
    end = rows_end + (12 * count if flags & _COLUMNS else 0)
    if end != len(payload):
        raise InvalidPositions(len(payload))
    return Places(
        log_id,
        partition,
        count,
        first,
        time_us,
        sender,
        is_final=bool(flags & _FINAL),
        rows=payload[start:rows_end],
        columns=payload[rows_end:end],
    )


def _decode_anchor(payload: bytes) -> Anchor:
    _, flags, count, log_id, time_us = _ANCHOR.unpack_from(payload)
    position = _ANCHOR.size
    partitions: dict[int, AnchoredPartition] = {}
    for _ in range(count):
        number, final, next_offset, horizon = _PARTITION.unpack_from(payload, position)
        partitions[number] = AnchoredPartition(next_offset, horizon, bool(final))
        position += _PARTITION.size
    pattern = payload[position:].decode()
    return Anchor(
        pattern,
        log_id,
        time_us,
        partitions,
        has_history=bool(flags & _HISTORY),
        is_replay=bool(flags & _REPLAY),
        in_group=bool(flags & _GROUP),
    )


def _numbers(kind: str, data: bytes) -> "array[int]":
    numbers = array(kind, data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
