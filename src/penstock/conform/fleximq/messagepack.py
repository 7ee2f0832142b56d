"""MessagePack from its specification: struct alone, independent of any library.

The writer uses the shortest format, as every common library does. The reader accepts all formats.
"""

import struct
from typing import Any, Final, NamedTuple

__all__ = ["Ext", "pack", "unpack"]


class Ext(NamedTuple):
    """An extension value: its type, from -128 to 127, and its bytes."""

    kind: int
    data: bytes


def pack(value: Any) -> bytes:  # noqa: ANN401  (a value of any type)
    """Return one value in the shortest format; raise ValueError if no format fits."""
    if value is None:
        return b"\xc0"
    if value is False:
        return b"\xc2"
    if value is True:
        return b"\xc3"
    if isinstance(value, int):
        return _pack_int(value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        data = value.encode()
        if len(data) < 32:
            return bytes([0xA0 | len(data)]) + data
        return _sized(len(data), (0xD9, 0xDA, 0xDB)) + data
    if isinstance(value, bytes):
        return _sized(len(value), (0xC4, 0xC5, 0xC6)) + value
    if isinstance(value, Ext):
        return _pack_ext(value)
    if isinstance(value, dict):
        body = b"".join(pack(part) for pair in value.items() for part in pair)
        return _counted(len(value), 0x80, (0xDE, 0xDF)) + body
    return _counted(len(value), 0x90, (0xDC, 0xDD)) + b"".join(map(pack, value))


def _pack_int(value: int) -> bytes:
    if -32 <= value < 128:
        return struct.pack(">b", value)
    for code, layout, least, most in (
        (0xCC, ">B", 0, 2**8),
        (0xCD, ">H", 0, 2**16),
        (0xCE, ">I", 0, 2**32),
        (0xCF, ">Q", 0, 2**64),
        (0xD0, ">b", -(2**7), 2**7),
        (0xD1, ">h", -(2**15), 2**15),
        (0xD2, ">i", -(2**31), 2**31),
        (0xD3, ">q", -(2**63), 2**63),
    ):
        if least <= value < most:
            return bytes([code]) + struct.pack(layout, value)
    raise ValueError(value)


def _pack_ext(value: Ext) -> bytes:
    fixed = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}.get(len(value.data))
    head = bytes([fixed]) if fixed else _sized(len(value.data), (0xC7, 0xC8, 0xC9))
    return head + struct.pack(">b", value.kind) + value.data


def _sized(size: int, codes: tuple[int, int, int]) -> bytes:
    for code, layout, bound in zip(codes, (">B", ">H", ">I"), (2**8, 2**16, 2**32), strict=True):
        if size < bound:
            return bytes([code]) + struct.pack(layout, size)
    raise ValueError(size)


def _counted(count: int, short: int, codes: tuple[int, int]) -> bytes:
    if count < 16:
        return bytes([short | count])
    if count < 2**16:
        return bytes([codes[0]]) + struct.pack(">H", count)
    return bytes([codes[1]]) + struct.pack(">I", count)


def unpack(data: bytes) -> Any:  # noqa: ANN401  (a value of any type)
    """Parse one value; raise ValueError if `data` is not exactly one value."""
    try:
        value, end = _unpack_at(data, 0)
    except (IndexError, KeyError, RecursionError, TypeError, struct.error) as error:
        raise ValueError(f"not MessagePack: {error}") from None
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes behind the value")
    return value


_LITERALS: Final = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS: Final = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_SIZES: Final = {
    0xC4: ("bin", ">B"), 0xC5: ("bin", ">H"), 0xC6: ("bin", ">I"),
    0xC7: ("ext", ">B"), 0xC8: ("ext", ">H"), 0xC9: ("ext", ">I"),
    0xD9: ("str", ">B"), 0xDA: ("str", ">H"), 0xDB: ("str", ">I"),
    0xDC: ("array", ">H"), 0xDD: ("array", ">I"), 0xDE: ("map", ">H"), 0xDF: ("map", ">I"),
}  # fmt: skip


def _unpack_at(data: bytes, start: int) -> tuple[Any, int]:
    code = data[start]
    start += 1
    if code < 0x80:
        return code, start
    if code >= 0xE0:
        return code - 256, start
    if code in _LITERALS:
        return _LITERALS[code], start
    if code in _NUMBERS:
        layout = _NUMBERS[code]
        return struct.unpack_from(layout, data, start)[0], start + struct.calcsize(layout)
    if code < 0x90:
        kind, size = "map", code & 0x0F
    elif code < 0xA0:
        kind, size = "array", code & 0x0F
    elif code < 0xC0:
        kind, size = "str", code & 0x1F
    elif 0xD4 <= code <= 0xD8:
        kind, size = "ext", 1 << code - 0xD4
    else:
        kind, layout = _SIZES[code]
        (size,) = struct.unpack_from(layout, data, start)
        start += struct.calcsize(layout)
    return _unpack_sized(kind, size, data, start)


def _unpack_sized(kind: str, size: int, data: bytes, start: int) -> tuple[Any, int]:
    if kind in {"array", "map"}:
        parts = []
        for _ in range(size * 2 if kind == "map" else size):
            part, start = _unpack_at(data, start)
            parts.append(part)
        if kind == "array":
            return parts, start
        return dict(zip(parts[::2], parts[1::2], strict=True)), start
    if kind == "ext":
        (number,) = struct.unpack_from(">b", data, start)
        return Ext(number, data[start + 1 : start + 1 + size]), start + 1 + size
    body = data[start : start + size]
    if len(body) < size:
        raise ValueError(f"{size - len(body)} bytes are missing")
    return body.decode() if kind == "str" else body, start + size
