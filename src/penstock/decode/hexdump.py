"""Hex dumps as text: plain hex, `xxd`, `hexdump -C`."""

import re
from typing import Final

from penstock.limits import DECODE_CAPTURE_BYTES_MAX

__all__ = ["NotHex", "from_hex", "looks_like_hex"]

_XXD: Final = re.compile(r"^\s*[0-9A-Fa-f]{4,16}:\s?(.*)$")
_CANONICAL: Final = re.compile(r"^([0-9A-Fa-f]{8,16})  ?((?:[0-9A-Fa-f]{2} {1,2})+)\s*\|.*\|?\s*$")
_CANONICAL_END: Final = re.compile(r"^[0-9A-Fa-f]{8,16}$")
_DIGITS: Final = re.compile(r"[0-9A-Fa-f]*")
_HEX_TEXT: Final = frozenset(b"0123456789abcdefABCDEFx \t\r\n,:")


class NotHex(ValueError):
    """A line is not hex; `line` counts from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(line, reason)
        self.line = line
        self.reason = reason

    def __str__(self) -> str:
        return f"line {self.line} is no hex: {self.reason}"


def looks_like_hex(data: bytes) -> bool:
    """Return whether a file is a hex dump rather than raw bytes."""
    head = data[:4096]
    lines = head.decode("latin-1").splitlines()
    if not lines:
        return False
    if any(_XXD.match(line) or _CANONICAL.match(line) for line in lines[:2]):
        return all(byte >= 0x20 or byte in b"\t\r\n" for byte in head)
    stripped = b"".join(line.partition(b"#")[0] for line in head.splitlines())
    return bool(stripped.strip()) and all(byte in _HEX_TEXT for byte in stripped)


def from_hex(text: str) -> bytes:
    """Return the bytes of a hex dump; raise NotHex.

    Plain hex may have spaces, commas, colons and `0x`, and comments after `#`.
    """
    lines = text.splitlines()
    canonical = any(_CANONICAL.match(line) for line in lines[:8])
    xxd = not canonical and any(_XXD.match(line) for line in lines[:8])
    found = bytearray()
    repeated = False
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if canonical:
            repeated = _canonical(line, number, found, repeated=repeated)
            continue
        digits = _xxd(line, number) if xxd else _plain(line, number)
        if len(digits) % 2:
            raise NotHex(number, "an odd number of digits")
        found += bytes.fromhex(digits)
    return bytes(found)


def _canonical(line: str, number: int, found: bytearray, *, repeated: bool) -> bool:
    """Parse a line of `hexdump -C`; `*` repeats the previous line."""
    if line.strip() == "*":
        return True
    match = _CANONICAL.match(line)
    if match is None and not _CANONICAL_END.match(line.strip()):
        raise NotHex(number, "no line of hexdump -C")
    offset = int(match[1] if match else line.strip(), 16)
    if repeated:
        row = bytes(found[-16:])
        if len(row) < 16 or offset < len(found):
            raise NotHex(number, "a * with no line before it")
        if offset > DECODE_CAPTURE_BYTES_MAX:
            raise NotHex(number, f"more than {DECODE_CAPTURE_BYTES_MAX} bytes")
        found += row * ((offset - len(found)) // 16)
    if offset != len(found):
        raise NotHex(number, f"its offset is {offset:x}, expected {len(found):x}")
    if match:
        found += bytes.fromhex(match[2])
    return False


def _xxd(line: str, number: int) -> str:
    """Return the digits of a line of `xxd`: the groups before two spaces and the text."""
    match = _XXD.match(line)
    if match is None:
        raise NotHex(number, "no line of xxd")
    return _plain(match[1].partition("  ")[0], number)


def _plain(line: str, number: int) -> str:
    text = line.partition("#")[0]
    digits = re.sub(r"0[xX]|[\s,:]", "", text)
    if not _DIGITS.fullmatch(digits):
        strange = next(character for character in digits if not _DIGITS.fullmatch(character))
        raise NotHex(number, f"{strange!r} is no hexadecimal digit")
    return digits
