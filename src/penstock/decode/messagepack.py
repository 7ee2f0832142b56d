"""MessagePack with the byte positions of entries."""

import json
import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from penstock.errors import WireError
from penstock.limits import DECODE_VALUE_CHARACTERS_MAX
from penstock.protocols.fleximq import (
    FLEXIMQ_HEADER_BYTES_MAX,
    FLEXIMQ_HEADER_DEPTH_MAX,
    FLEXIMQ_HEADER_ELEMENTS_MAX,
    FLEXIMQ_PAYLOAD_DEPTH_CEILING,
)
from penstock.wire.messagepack import Kind, elements, head, measure, string

__all__ = ["Piece", "one_value", "pieces"]

_CONTAINERS: Final = {Kind.MAP: "map", Kind.ARRAY: "array"}


class Piece(NamedTuple):
    """Bytes up to `end` of the entry at `path`, including its key; pieces are contiguous."""

    path: str
    end: int
    value: int | str | None
    fault: str = ""


def pieces(data: bytes) -> list[Piece]:
    """Return the entries of one value; an invalid value is one piece with a fault.

    The head of a map or array is a piece of its own, followed by those of its entries.
    """
    if not data:
        return []
    try:
        end = measure(
            data,
            0,
            depth_max=FLEXIMQ_HEADER_DEPTH_MAX,
            elements_max=FLEXIMQ_HEADER_ELEMENTS_MAX,
            string_bytes_max=FLEXIMQ_HEADER_BYTES_MAX,
        )
    except WireError as error:
        return [Piece("", len(data), None, str(error))]
    found = list(_pieces(data[:end], "", 0, 0))
    if end < len(data):
        found.append(Piece("(left over)", len(data), None, "bytes behind the one value"))
    return found


def _pieces(data: bytes, path: str, base: int, lead: int) -> Iterator[Piece]:
    """Yield the pieces of the value after `lead` bytes of key; `base` is the position of `data`."""
    kind, count, body = head(data, lead)
    if kind not in _CONTAINERS:
        yield Piece(path, base + len(data), _scalar(data[lead:]))
        return
    yield Piece(path, base + body, f"{_CONTAINERS[kind]} of {count}")
    position = base + body
    parts = elements(data[lead:])
    if kind is Kind.ARRAY:
        for index, part in enumerate(parts):
            yield from _pieces(part, f"{path}[{index}]", position, 0)
            position += len(part)
        return
    for key, value in zip(parts[::2], parts[1::2], strict=True):
        name = string(key) or f"<{key.hex()}>"
        yield from _pieces(key + value, f"{path}.{name}" if path else name, position, len(key))
        position += len(key) + len(value)


def one_value(data: bytes) -> tuple[int | str | None, str]:
    """Return a payload as text, truncated if long, and its fault."""
    if not data:
        return None, ""
    try:
        end = measure(
            data,
            0,
            depth_max=FLEXIMQ_PAYLOAD_DEPTH_CEILING,
            elements_max=sys.maxsize,
            string_bytes_max=len(data),
        )
    except WireError as error:
        return None, str(error)
    if end != len(data):
        return None, f"the one value ends at byte {end} of {len(data)}"
    return _scalar(data), ""


def _scalar(data: bytes) -> int | str | None:
    try:
        value = msgspec.msgpack.decode(data)
    except (ValueError, TypeError, OverflowError):  # a timestamp beyond Python's calendar, a map
        return None  #                                as the key of a map
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return value if isinstance(value, str) else _text(value)


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return f"bin of {len(value)} bytes"
    try:
        text = json.dumps(value, ensure_ascii=False, default=_plain)
    except TypeError:  # a key that JSON cannot represent
        text = repr(value)
    if len(text) <= DECODE_VALUE_CHARACTERS_MAX:
        return text
    return text[:DECODE_VALUE_CHARACTERS_MAX] + "…"


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return f"bin:{value.hex()}"
    return str(value)
