"""Finds Arrow messages that stand for more bytes than they have, while they arrive.

A message of DoPut is a FlightData of protobuf. Its field 2 is the header of an Arrow IPC message, a
FlatBuffer; other calls have JSON or nothing there. A compressed record batch says itself how large
it becomes, and Arrow allocates that much, so none is accepted. Dictionaries that are sent in parts
are not accepted either: they grow without a limit.
"""

from typing import Final

from penstock.limits import FLIGHT_REQUEST_BYTES_MAX
from penstock.storage.flatbuffer import BadFlatbuffer, Table, root

__all__ = ["FlightDataScan", "check_ipc_header"]

_HEADER_FIELD: Final = 2
_DICTIONARY_BATCH: Final = 2
_RECORD_BATCH: Final = 3
_OLD_COMPRESSION: Final = b"ARROW:experimental_compression"
"""Key of the message's metadata by which Arrow 0.17 marked compressed batches."""
_TAG_BYTES_MAX: Final = 2
_LENGTH_BYTES_MAX: Final = 5
_VARINT_BYTES_MAX: Final = 10


class FlightDataScan:
    """Follows the fields of one message. `feed` raises ValueError for what is not accepted."""

    __slots__ = ("_collected", "_field", "_number", "_shift", "_skip", "_state")

    def __init__(self) -> None:
        self._state = "tag"
        self._number = 0
        self._shift = 0
        self._skip = 0
        self._field = 0
        self._collected: bytearray | None = None

    def feed(self, data: memoryview) -> None:
        """Follow bytes of the message."""
        place = 0
        size = len(data)
        while place < size:
            if self._skip:
                passed = min(self._skip, size - place)
                if self._collected is not None:
                    self._collected += data[place : place + passed]
                self._skip -= passed
                place += passed
                if not self._skip:
                    self._end_field()
                continue
            byte = data[place]
            place += 1
            self._number |= (byte & 0x7F) << 7 * self._shift
            self._shift += 1
            if byte & 0x80:
                if self._shift >= _BYTES_MAX[self._state]:
                    raise ValueError("a field of the message is not valid")
                continue
            number, self._number, self._shift = self._number, 0, 0
            self._read(number)

    def _read(self, number: int) -> None:
        if self._state == "tag":
            self._field, kind = number >> 3, number & 7
            if kind == 2:
                self._state = "length"
            elif kind == 0:
                self._state = "varint"
            elif kind in {1, 5}:
                self._skip = 8 if kind == 1 else 4
            else:
                raise ValueError("a field of the message is not valid")
            return
        if self._state == "length" and number:
            self._skip = number
            if self._field == _HEADER_FIELD:
                if number > FLIGHT_REQUEST_BYTES_MAX:
                    raise ValueError(f"a request or header has {number} bytes")
                self._collected = bytearray()
        self._state = "tag"

    def _end_field(self) -> None:
        collected, self._collected = self._collected, None
        if collected is not None:
            check_ipc_header(memoryview(collected))


_BYTES_MAX: Final = {
    "tag": _TAG_BYTES_MAX,
    "length": _LENGTH_BYTES_MAX,
    "varint": _VARINT_BYTES_MAX,
}


def check_ipc_header(data: memoryview) -> None:
    """Raise ValueError for a compressed batch or a part of a dictionary; take all other bytes."""
    try:
        message = root(data)
        kind = message.uint8(1)
        if kind == _RECORD_BATCH:
            batch = message.table(2)
        elif kind == _DICTIONARY_BATCH:
            dictionary = message.table(2)
            if _has(dictionary, 2) and dictionary.uint8(2):
                raise _Refused("dictionaries in parts are not accepted: send each whole")
            batch = dictionary.table(1)
        else:
            return
        if _has(batch, 3) or _OLD_COMPRESSION in bytes(data):
            raise _Refused("compressed record batches are not accepted: send them plain")
    except BadFlatbuffer:  # not Arrow, or damaged: gRPC's side says so
        return


class _Refused(ValueError):
    """A message that is Arrow, and is not accepted."""


def _has(table: Table, field: int) -> bool:
    try:
        table.slot(field)
    except BadFlatbuffer:
        return False
    return True
