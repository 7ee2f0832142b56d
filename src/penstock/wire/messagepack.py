"""MessagePack with limits: measure, encode and decode values.

    first byte   format              after the first byte
    ──────────   ──────              ────────────────────
    00 … 7F      positive fixint     nothing
    80 … 8F      fixmap              2n values
    90 … 9F      fixarray            n values
    A0 … BF      fixstr              n bytes of UTF-8
    C0           nil                 nothing
    C1           (never used)
    C2 C3        false, true         nothing
    C4 C5 C6     bin 8, 16, 32       length, n bytes
    C7 C8 C9     ext 8, 16, 32       length, type, n bytes
    CA CB        float 32, 64        4, 8 bytes
    CC … CF      uint 8 … 64         1, 2, 4, 8 bytes
    D0 … D3      int 8 … 64          1, 2, 4, 8 bytes
    D4 … D8      fixext 1 … 16       type, n bytes
    D9 DA DB     str 8, 16, 32       length, n bytes of UTF-8
    DC DD        array 16, 32        count, n values
    DE DF        map 16, 32          count, 2n values
    E0 … FF      negative fixint     nothing

`measure` visits the values in the order of their bytes and raises for the first fault. It checks
each value in this order:

1. The first byte and the length or count after it must be complete, and the first byte must not be
   C1: else Malformed.
2. An array or map: its depth (1, and 1 more for each array or map around it) against `depth_max`:
   TooDeep. Then all elements declared so far (n for an array, 2n for a map) against
   `elements_max`: TooManyElements. Its elements are not read before that.
3. A str, bin or ext: its length (without the type of an ext) against `string_bytes_max`:
   StringTooLong. Then its bytes must be complete, and those of a str must be UTF-8 (RFC 3629):
   else Malformed.
4. Any other value: its bytes must be complete, else Malformed.

Any value may be the key of a map, a key may repeat, formats need not be the shortest, and an ext
may have any type and content. Bytes after the value are not read.
"""

import enum
import sys
from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec

from penstock.errors import CallerError, ErrorCode, WireError

__all__ = [
    "Kind",
    "Malformed",
    "StringTooLong",
    "TooDeep",
    "TooManyElements",
    "Unencodable",
    "decode",
    "elements",
    "encode",
    "head",
    "measure",
    "string",
    "unsigned",
]

Data: TypeAlias = bytes | bytearray | memoryview


class Malformed(WireError):
    """Bytes that are not MessagePack; `position` is the start of the faulty value."""

    code = ErrorCode.MESSAGEPACK_MALFORMED
    template = "{reason} at byte {position}"

    reason: str
    position: int


class TooDeep(WireError):
    """Arrays and maps are nested deeper than the limit."""

    code = ErrorCode.MESSAGEPACK_TOO_DEEP
    template = "depth {depth} exceeds the limit of {depth_max}"

    depth: int
    depth_max: int


class TooManyElements(WireError):
    """The arrays and maps of one value have more elements than the limit."""

    code = ErrorCode.MESSAGEPACK_TOO_MANY_ELEMENTS
    template = "{count} elements exceed the limit of {count_max}"

    count: int
    count_max: int


class StringTooLong(WireError):
    """A str, bin or ext is longer than the limit."""

    code = ErrorCode.MESSAGEPACK_STRING_TOO_LONG
    template = "string of {size} bytes exceeds the limit of {size_max}"

    size: int
    size_max: int


class Unencodable(CallerError):
    """A value that MessagePack has no format for."""

    code = ErrorCode.FIELD_OUT_OF_RANGE
    template = "not encodable as MessagePack: {reason}"

    reason: str


class Kind(enum.Enum):
    """Kind of a value, by its first byte."""

    SCALAR = enum.auto()
    STR = enum.auto()
    BIN = enum.auto()
    EXT = enum.auto()
    ARRAY = enum.auto()
    MAP = enum.auto()
    NEVER_USED = enum.auto()


_SCALAR, _STR, _BIN, _EXT, _ARRAY, _MAP, _NEVER_USED = Kind


def _formats() -> Iterator[tuple[Kind, int, int]]:
    """Yield (kind, bytes of the length or count, fixed length or count) of each first byte."""
    yield from [(_SCALAR, 0, 0)] * 0x80
    yield from ((_MAP, 0, count) for count in range(16))
    yield from ((_ARRAY, 0, count) for count in range(16))
    yield from ((_STR, 0, size) for size in range(32))
    yield _SCALAR, 0, 0
    yield _NEVER_USED, 0, 0
    yield from [(_SCALAR, 0, 0)] * 2
    yield from ((_BIN, width, 0) for width in (1, 2, 4))
    yield from ((_EXT, width, 0) for width in (1, 2, 4))
    yield from ((_SCALAR, 0, size) for size in (4, 8))
    yield from ((_SCALAR, 0, size) for size in (1, 2, 4, 8) * 2)
    yield from ((_EXT, 0, size) for size in (1, 2, 4, 8, 16))
    yield from ((_STR, width, 0) for width in (1, 2, 4))
    yield from ((_ARRAY, width, 0) for width in (2, 4))
    yield from ((_MAP, width, 0) for width in (2, 4))
    yield from [(_SCALAR, 0, 0)] * 0x20


_FORMATS: Final = tuple(_formats())


def head(data: Data, start: int) -> tuple[Kind, int, int]:
    """Return (kind, count, start of the body) of the value at `start`.

    The count is the number of elements of an array, of pairs of a map, and of bytes of any other
    body; the body of an ext is its type and then that many bytes. Raise Malformed if the head is
    incomplete or starts with C1.
    """
    if start >= len(data):
        raise Malformed("cut short", start)
    kind, width, count = _FORMATS[data[start]]
    if kind is _NEVER_USED:
        raise Malformed("0xC1, which is never used,", start)
    body_start = start + 1 + width
    if width:
        if body_start > len(data):
            raise Malformed("cut short", start)
        count = int.from_bytes(data[start + 1 : body_start], "big")
    return kind, count, body_start


def measure(
    data: Data,
    start: int,
    *,
    depth_max: int,
    elements_max: int,
    string_bytes_max: int,
    check_text: bool = True,
) -> int:
    """Return the end of the value at `start`; without `check_text` a str may hold any bytes.

    Raise Malformed, TooDeep, TooManyElements or StringTooLong by the rules at the top of this
    module. Memory is bounded by `depth_max`.
    """
    position = start
    elements_seen = 0
    waiting: list[int] = []  # values still to come in each outer array or map
    missing = 1  # values still to come in the innermost one
    while True:
        while not missing:
            if not waiting:
                return position
            missing = waiting.pop()
        missing -= 1
        kind, count, body_start = head(data, position)
        if kind is _SCALAR:
            end = body_start + count
            if end > len(data):
                raise Malformed("cut short", position)
            position = end
        elif kind is _ARRAY or kind is _MAP:
            depth = len(waiting) + 1
            if depth > depth_max:
                raise TooDeep(depth, depth_max)
            if kind is _MAP:
                count *= 2
            elements_seen += count
            if elements_seen > elements_max:
                raise TooManyElements(elements_seen, elements_max)
            waiting.append(missing)
            missing = count
            position = body_start
        else:
            if count > string_bytes_max:
                raise StringTooLong(count, string_bytes_max)
            end = body_start + count + (kind is _EXT)
            if end > len(data):
                raise Malformed("cut short", position)
            if kind is _STR and check_text:
                _text(data, position, body_start, end)
            position = end


def _text(data: Data, start: int, body_start: int, end: int) -> str:
    try:
        return str(data[body_start:end], "utf-8")
    except UnicodeDecodeError:
        raise Malformed("str that is not UTF-8", start) from None


# --- Values -------------------------------------------------------------------------------------


def encode(value: object) -> bytes:
    """Encode `value` in the shortest formats; raise Unencodable if it has none."""
    try:
        return msgspec.msgpack.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Unencodable(str(error)) from None


def decode(data: bytes, *, depth_max: int, elements_max: int, string_bytes_max: int) -> object:
    """Measure and decode `data`, which must be one value.

    Raise the errors of `measure`, and Malformed for bytes after the value and for values that
    Python cannot represent: a timestamp beyond its calendar, a map as the key of a map.
    """
    end = measure(
        data,
        0,
        depth_max=depth_max,
        elements_max=elements_max,
        string_bytes_max=string_bytes_max,
    )
    if end != len(data):
        raise Malformed("more than one value", end)
    try:
        value: object = msgspec.msgpack.decode(data)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:  # a base of DecodeError
        raise Malformed(f"no value ({error})", 0) from None
    return value


# --- Parts of a value that was measured ---------------------------------------------------------


def elements(data: bytes, *, check_text: bool = True) -> list[bytes]:
    """Return the MessagePack bytes of each element of an array; of a map, key, value, key, value.

    `data` is one array or map that was measured before: no limit is applied.
    """
    kind, count, position = head(data, 0)
    found = []
    for _ in range(count * 2 if kind is _MAP else count):
        end = measure(
            data,
            position,
            depth_max=sys.maxsize,
            elements_max=sys.maxsize,
            string_bytes_max=sys.maxsize,
            check_text=check_text,
        )
        found.append(data[position:end])
        position = end
    return found


def string(data: bytes) -> str | None:
    """Decode `data`, measured before, as a str; return None if it is another kind."""
    kind, count, body_start = head(data, 0)
    return _text(data, 0, body_start, body_start + count) if kind is _STR else None


def unsigned(data: bytes, value_max: int) -> int | None:
    """Decode `data`, measured before, as an integer from 0 to `value_max`; else return None."""
    if head(data, 0)[0] is not _SCALAR:
        return None
    value = msgspec.msgpack.decode(data)
    return value if type(value) is int and 0 <= value <= value_max else None
