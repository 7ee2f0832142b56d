"""A cursor over the fields of one packet, which may be incomplete."""

import struct
from typing import Any

from penstock.wire.decoder import Buffer
from penstock.wire.lamamq.errors import TooLarge
from penstock.wire.lamamq.layouts import Layouts

__all__ = ["Cursor", "Incomplete"]


class Incomplete(Exception):
    """The next field ends at `end`, beyond the received bytes."""

    def __init__(self, end: int) -> None:
        super().__init__(end)
        self.end = end


class Cursor:
    """Reads one field after the other; an incomplete field raises Incomplete and is not consumed.

    `fault` is the first fault that does not lose framing.
    """

    __slots__ = ("_data", "fault", "layouts", "message_id", "position")

    def __init__(self, data: Buffer, position: int, layouts: Layouts) -> None:
        self._data = data
        self.layouts = layouts
        self.position = position
        self.message_id = 0
        self.fault: str | None = None

    @property
    def has_more(self) -> bool:
        """Whether unread bytes are left."""
        return self.position < len(self._data)

    def peek(self, size: int) -> bytes:
        """Return the next `size` bytes, or what there is of them, without reading them."""
        return bytes(self._data[self.position : self.position + size])

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Read consecutive fields of fixed size."""
        end = self.position + layout.size
        if end > len(self._data):
            raise Incomplete(end)
        fields = layout.unpack_from(self._data, self.position)
        self.position = end
        return fields

    def byte(self) -> int:
        """Read a UINT8."""
        position = self.position
        if position >= len(self._data):
            raise Incomplete(position + 1)
        self.position = position + 1
        return self._data[position]

    def header(self) -> int:
        """Read a message header: keep the message id, return the type (of an answer, the error)."""
        kind: int
        self.message_id, kind = self.unpack(self.layouts.header)
        return kind

    def count(self, elements: str, count_max: int) -> int:
        """Read the count of an ARRAY; raise TooLarge if it is above `count_max`."""
        count: int
        (count,) = self.unpack(self.layouts.array)
        if count > count_max:
            raise TooLarge(self.message_id, elements, count, count_max)
        return count

    def buffer(self, name: str, size_max: int, *, used: int = 0) -> bytes:
        """Read a BUFFER or a STRING as bytes; raise TooLarge if with `used` it exceeds its limit.

        The size is checked as soon as it is complete.
        """
        data = self._data
        start = self.position + 4
        if start > len(data):
            raise Incomplete(start)
        (size,) = self.layouts.u32.unpack_from(data, self.position)
        if used + size > size_max:
            raise TooLarge(self.message_id, f"{name} bytes", used + size, size_max)
        end = start + size
        if end > len(data):
            raise Incomplete(end)
        self.position = end
        return bytes(data[start:end])

    def string(self, name: str, size_max: int) -> str:
        """Read a STRING as text, see `buffer` and `text`."""
        return self.text(name, self.buffer(name, size_max))

    def text(self, name: str, value: bytes) -> str:
        """Decode `value`; if it is not UTF-8, note a fault and return an empty text."""
        try:
            return value.decode()
        except UnicodeDecodeError:
            self.note(f"the {name} is not UTF-8")
            return ""

    def note(self, fault: str) -> None:
        """Keep `fault` if it is the first."""
        if self.fault is None:
            self.fault = fault
