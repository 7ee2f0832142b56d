"""A payload in the forms that it can be read as: JSON, MessagePack, text, hex."""

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

__all__ = ["FORMS", "best_form", "payload_text", "short_text"]

FORMS: Final = ("json", "messagepack", "text", "hex")
_SHORT_CHARACTERS: Final = 120
_BYTES_PER_LINE: Final = 16


def payload_text(value: bytes, form: str) -> str | None:
    """Return a payload in a form of FORMS, None if it cannot be read so."""
    match form:
        case "json":
            return _json(value)
        case "messagepack":
            return _messagepack(value)
        case "text":
            return _text(value)
    return _hex(value)


def best_form(value: bytes) -> str:
    """Return the first form of FORMS that fits; MessagePack only for arrays and maps.

    A single byte is a MessagePack number, and short texts can be MessagePack by chance.
    """
    if _json(value) is not None:
        return "json"
    if _text(value) is not None:
        return "text"
    decoded = _unpacked(value)
    return "messagepack" if isinstance(decoded, dict | list) else "hex"


def short_text(value: bytes) -> str:
    """Return a payload in one line, cut, for lists."""
    form = best_form(value)
    found = _messagepack(value, indent=None) if form == "messagepack" else payload_text(value, form)
    if form == "hex":
        found = value[: _SHORT_CHARACTERS // 3].hex(" ")
    if form == "json":
        found = value.decode()
    line = " ".join((found or "").split())
    return line if len(line) <= _SHORT_CHARACTERS else f"{line[: _SHORT_CHARACTERS - 1]}…"


def _json(value: bytes) -> str | None:
    try:
        return json.dumps(json.loads(value), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def _messagepack(value: bytes, indent: int | None = 2) -> str | None:
    if not value:
        return None
    decoded = _unpacked(value)
    if decoded is _NOTHING:
        return None
    return json.dumps(_shown(decoded), indent=indent, ensure_ascii=False)


_NOTHING: Final = object()


def _unpacked(value: bytes) -> Any:  # noqa: ANN401
    try:
        return msgspec.msgpack.decode(value)
    except (msgspec.MsgspecError, ValueError, RecursionError, TypeError):
        return _NOTHING


def _shown(value: Any) -> Any:  # noqa: ANN401
    """Return a value that JSON can have: bytes as hex, keys as text."""
    if isinstance(value, bytes | bytearray):
        return f"0x{bytes(value).hex()}"
    if isinstance(value, Mapping):
        return {str(_shown(key)): _shown(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def _text(value: bytes) -> str | None:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    readable = all(each.isprintable() or each in "\r\n\t" for each in text)
    return text if readable else None


def _hex(value: bytes) -> str:
    lines = []
    for first in range(0, len(value), _BYTES_PER_LINE):
        part = value[first : first + _BYTES_PER_LINE]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{first:06x}  {part.hex(' '):<47}  {letters}")
    return "\n".join(lines)
