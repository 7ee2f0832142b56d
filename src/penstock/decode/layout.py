"""Layouts of frames as data, and `walk`, which splits a frame into fields by its layout.

A layout is a sequence of parts: numbers, data whose length is an earlier number, repeated groups,
and parts selected by a number. Each protocol has its layouts in one module; only `walk` reads them.
"""

import dataclasses
import enum
import uuid
import zlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from penstock.decode.messagepack import Piece, one_value, pieces
from penstock.model import ByteOrder

__all__ = [
    "Choice",
    "Data",
    "Field",
    "Form",
    "Layout",
    "Number",
    "Packed",
    "Repeat",
    "Window",
    "walk",
]

LEFT_OVER: Final = "(left over)"


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """Consecutive bytes of a frame; `start` and `end` are positions in its stream.

    `value` is a number or a text, None if only the bytes are shown. `means` is the specification's
    name of the number. `fault` is the text of the field's fault.
    """

    name: str
    start: int
    end: int
    value: int | str | None = None
    means: str = ""
    fault: str = ""


class Form(enum.Enum):
    """Interpretation of data."""

    BYTES = enum.auto()
    NAME = enum.auto()
    """Bytes that are usually text."""
    TEXT = enum.auto()
    """UTF-8; other bytes are a fault."""
    NUMBERS = enum.auto()
    """One number per byte."""
    UUID = enum.auto()
    ZEROS = enum.auto()
    """Reserved: bytes other than zero are shown, and are no fault."""


class Number(NamedTuple):
    """An unsigned integer.

    `names` are its known values; with `closed` any other value is a fault. A `sum` is the CRC32 of
    all earlier bytes of the frame. `maximum` limits lengths.
    """

    name: str
    size: int
    names: Mapping[int, str] = MappingProxyType({})
    closed: bool = False
    maximum: int | None = None
    sum: bool = False


class Data(NamedTuple):
    """Bytes; `length` is a number, the name of an earlier number, or None for the rest."""

    name: str
    length: int | str | None = None
    form: Form = Form.BYTES


class Packed(NamedTuple):
    """MessagePack with the length in number `length`; with `expand`, one field per entry."""

    name: str
    length: str
    expand: bool = False


class Repeat(NamedTuple):
    """`parts` repeated by the number `times`; their names are prefixed with `name` and an index."""

    name: str
    times: str
    parts: "Layout"


class Choice(NamedTuple):
    """Parts selected by the value of the number `on`; `other` for values without parts."""

    on: str
    cases: "Mapping[int, Layout]"
    other: "Layout"


class Window(NamedTuple):
    """Parts that must fill exactly the number of bytes in `length`."""

    length: str
    parts: "Layout"


Part: TypeAlias = Number | Data | Packed | Repeat | Choice | Window
Layout: TypeAlias = tuple[Part, ...]


class _Stop(Exception):
    """Ends the walk."""


def walk(
    layout: Layout,
    data: bytes,
    *,
    base: int = 0,
    order: ByteOrder = "big",
    until_fault: bool = False,
) -> list[Field]:
    """Return the fields of the frame `data`; they cover each byte exactly once.

    Positions count from `base`, the position of the frame in its stream. With `until_fault` the
    first field with a fault is the last. No input raises an exception.
    """
    walker = _Walker(data, base, order, until_fault=until_fault)
    try:
        walker.parts(layout, "")
        walker.left_over()
    except _Stop:
        pass
    return walker.fields


class _Walker:
    def __init__(self, data: bytes, base: int, order: ByteOrder, *, until_fault: bool) -> None:
        self.fields: list[Field] = []
        self._data = data
        self._base = base
        self._position = 0
        self._end = len(data)
        self._order: ByteOrder = order
        self._until_fault = until_fault
        self._numbers: dict[str, int] = {}

    def parts(self, layout: Layout, prefix: str) -> None:
        for part in layout:
            match part:
                case Number():
                    self._number(part, prefix)
                case Data():
                    self._bytes(part, prefix)
                case Packed():
                    self._packed(part)
                case Repeat(name, times, inner):
                    for index in range(self._numbers[times]):
                        self.parts(inner, f"{prefix}{name}[{index}].")
                case Choice(on, cases, other):
                    self.parts(cases.get(self._numbers[on], other), prefix)
                case Window(length, inner):
                    self._window(self._numbers[length], inner, prefix)

    def left_over(self) -> None:
        """Add a field for bytes beyond the layout."""
        if self._position < self._end:
            self._add(LEFT_OVER, self._end, fault="no field is left for these bytes")

    def _number(self, part: Number, prefix: str) -> None:
        name = prefix + part.name
        end = self._within(name, part.size)
        raw = self._data[self._position : end]
        value = int.from_bytes(raw, self._order)
        self._numbers[part.name] = value
        means = part.names.get(value, "")
        fault = ""
        if part.closed and not means:
            fault = "no such value"
        elif part.maximum is not None and value > part.maximum:
            fault = f"above the limit of {part.maximum}"
        elif part.sum:
            computed = zlib.crc32(self._data[: self._position])
            if computed != value:
                fault = f"computed 0x{computed:08x}"
        self._add(name, end, value=value, means=means, fault=fault)

    def _bytes(self, part: Data, prefix: str) -> None:
        name = prefix + part.name
        length = self._numbers[part.length] if isinstance(part.length, str) else part.length
        end = self._end if length is None else self._within(name, length)
        raw = self._data[self._position : end]
        value, fault = _value(part.form, raw)
        self._add(name, end, value=value, fault=fault)

    def _packed(self, part: Packed) -> None:
        end = self._within(part.name, self._numbers[part.length])
        raw = self._data[self._position : end]
        if part.expand:
            self._pieces(part.name, pieces(raw))
        else:
            value, fault = one_value(raw)
            self._add(part.name, end, value=value, fault=fault)

    def _pieces(self, name: str, found: list[Piece]) -> None:
        base = self._position
        for piece in found:
            full = f"{name}.{piece.path}" if piece.path else name
            self._add(full, base + piece.end, value=piece.value, fault=piece.fault)
        if not found:
            self._add(name, base)

    def _window(self, length: int, layout: Layout, prefix: str) -> None:
        outer = self._end
        end = self._position + length
        self._end = min(outer, end)
        try:
            self.parts(layout, prefix)
            self.left_over()
        except _Stop:
            if self._until_fault or end > outer:
                raise
        self._end = outer

    def _within(self, name: str, size: int) -> int:
        """Return the end of `size` bytes; if incomplete, add the rest as a field and stop."""
        end = self._position + size
        if end > self._end:
            there = self._end - self._position
            self._add(name, self._end, fault=f"{size} bytes are announced or due, {there} are left")
            raise _Stop
        return end

    def _add(
        self,
        name: str,
        end: int,
        *,
        value: int | str | None = None,
        means: str = "",
        fault: str = "",
    ) -> None:
        start, stop = self._base + self._position, self._base + end
        self.fields.append(Field(name, start, stop, value, means, fault))
        self._position = end
        if fault and self._until_fault:
            raise _Stop


def _value(form: Form, raw: bytes) -> tuple[str | None, str]:
    match form:
        case Form.UUID:
            return str(uuid.UUID(bytes=raw)) if len(raw) == 16 else None, ""
        case Form.TEXT | Form.NAME:
            try:
                return raw.decode(), ""
            except UnicodeDecodeError:
                return None, "" if form is Form.NAME else "not UTF-8"
        case Form.NUMBERS:
            return " ".join(map(str, raw)), ""
        case Form.ZEROS:
            return "zeros" if not any(raw) else "not zero, and ignored", ""
        case _:
            return None, ""
