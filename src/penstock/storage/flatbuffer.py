"""Reads the part of FlatBuffers that Arrow messages use.

A table starts with the distance back to its vtable; the vtable has a u16 for each field: its offset
in the table, 0 if it is absent. Vectors and strings start with a u32 count.
"""

import struct
from typing import Final

__all__ = ["BadFlatbuffer", "Table", "root"]

_U16: Final = struct.Struct("<H")
_I32: Final = struct.Struct("<i")
_U32: Final = struct.Struct("<I")
_I64: Final = struct.Struct("<q")


class BadFlatbuffer(ValueError):
    """Bytes that are not a table, or a table without a required field."""


class Table:
    """One table in `data`; positions are those of `data`, and are checked against it."""

    __slots__ = ("_data", "_position", "_vtable", "_vtable_size")

    def __init__(self, data: memoryview, position: int) -> None:
        self._data = data
        self._position = position
        self._vtable = position - self._unpack(_I32, position)
        self._vtable_size = self._unpack(_U16, self._vtable)

    def slot(self, field: int) -> int:
        """Return the position of a field; raise BadFlatbuffer if it is absent."""
        entry = 4 + 2 * field
        offset = self._unpack(_U16, self._vtable + entry) if entry < self._vtable_size else 0
        if not offset:
            raise BadFlatbuffer(f"field {field} is missing")
        return self._position + offset

    def int64(self, field: int) -> int:
        """Return a 64-bit field."""
        return self._unpack(_I64, self.slot(field))

    def uint8(self, field: int) -> int:
        """Return an 8-bit field."""
        return self._data[self._check(self.slot(field), 1)]

    def table(self, field: int) -> "Table":
        """Return the table that a field refers to."""
        return Table(self._data, self._reference(self.slot(field)))

    def vector(self, field: int, element_size: int) -> tuple[int, int]:
        """Return (start of the elements, count) of a vector of structs."""
        position = self._reference(self.slot(field))
        count = self._unpack(_U32, position)
        return self._check(position + 4, count * element_size), count

    def tables(self, field: int) -> "list[Table]":
        """Return the tables of a vector of tables."""
        start, count = self.vector(field, 4)
        return [Table(self._data, self._reference(start + 4 * index)) for index in range(count)]

    def string(self, field: int) -> tuple[int, int]:
        """Return (start of the bytes, length) of a string."""
        return self.vector(field, 1)

    def _reference(self, position: int) -> int:
        return position + self._unpack(_U32, position)

    def _unpack(self, layout: struct.Struct, position: int) -> int:
        number: int = layout.unpack_from(self._data, self._check(position, layout.size))[0]
        return number

    def _check(self, position: int, size: int) -> int:
        if not 0 <= position <= len(self._data) - size:
            raise BadFlatbuffer(f"{size} bytes at {position} of {len(self._data)}")
        return position


def root(data: memoryview) -> Table:
    """Return the root table of a buffer; raise BadFlatbuffer."""
    if len(data) < 4:
        raise BadFlatbuffer(f"{len(data)} bytes")
    return Table(data, _U32.unpack_from(data)[0])
