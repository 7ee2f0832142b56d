"""Which protocol the first bytes of a connection speak.

    ┌─────────────────────┬──────────────────────────────────────────────────────────────────────┐
    │ first bytes         │ protocol                                                             │
    ├─────────────────────┼──────────────────────────────────────────────────────────────────────┤
    │ FE CA               │ herald, little-endian                                                │
    │ CA FE               │ herald, big-endian                                                   │
    │ 01 00  00 00 00 00  │ fleximq: version 1, JOIN, client id 0                                │
    │ 00  u32             │ LamaMQ: authentication method 0, length of the identity name; the    │
    │                     │ byte order in which the length is plausible is the connection's      │
    │ FA  u32 …           │ Rheos: v1 or v2 is settled by the first packet                       │
    │ anything else       │ unrecognised                                                         │
    └─────────────────────┴──────────────────────────────────────────────────────────────────────┘

Both versions of Rheos share a header, and differ in the body of L bytes behind it:

    0    1         5                21       22
    ┌────┬─────────┬────────────────┬────────┬─ … ─┐
    │ FA │ L u32   │ client id      │ opcode │ body│          little-endian, both versions
    └────┴─────────┴────────────────┴────────┴─ … ─┘
    22       24                          24+N     26+N
    ┌────────┬───────────────────────────┬────────┬─────────┐
    │ N u16  │ name (N)                  │ M u16  │ data (M)│  v1: 2 + N + 2 + M = L
    └────────┴───────────────────────────┴────────┴─────────┘
    ┌────────┬────────────────┬───────────────────┬─────────┐
    │ N u16  │ M u32          │ name (N)          │ data (M)│  v2: 6 + N + M = L, then CRC32
    └────────┴────────────────┴───────────────────┴─────────┘
    22       24               28                  28+N      22+L

Where both fit, the four bytes behind the packet decide: v2 if they are its CRC32, else v1. Only
these may lie beyond what the client sends before it waits for an answer, and they keep no ordinary
v1 client waiting. For both to fit, v2's M must be v1's M less 2, so bytes 26 and 27 are zero. With
N = 0 the two Ms are then equal; with N = 2 v1's is 0; with N = 1 v1's is byte 25, and v2's at least
256 times that. So N >= 3, and byte 26 is a NUL in the name that v1 reads. (A v2 packet fits both
by accident when two bytes of its name spell the length of its data plus 2; its checksum follows.)
"""

import dataclasses
import zlib
from typing import Final

from penstock.errors import UnrecognisedProtocol
from penstock.limits import (
    DETECT_BYTES_MAX,
    LAMAMQ_IDENTITY_NAME_BYTES_MAX,
    RHEOS_BODY_BYTES_MAX,
)
from penstock.model import ByteOrder, Protocol
from penstock.wire.decoder import Buffer

__all__ = ["Detected", "conclude", "detect"]

_FLEXIMQ_JOIN: Final = bytes.fromhex("01 00 00000000")
_HERALD_LITTLE: Final = bytes.fromhex("FECA")
_HERALD_BIG: Final = bytes.fromhex("CAFE")
_RHEOS_HEADER_BYTES: Final = 22
_NEITHER_RHEOS: Final = "neither Rheos version fits"


@dataclasses.dataclass(frozen=True, slots=True)
class Detected:
    """The protocol of a connection and the byte order of its integers."""

    protocol: Protocol
    order: ByteOrder


def detect(data: Buffer, *, bytes_max: int = DETECT_BYTES_MAX) -> Detected | None:
    """Return what the connection that starts with `data` speaks, None if more bytes are needed.

    Once a prefix is settled, every longer one gives the same answer or the same error. Raise
    UnrecognisedProtocol as soon as no protocol can match, or if `bytes_max` bytes settle nothing;
    bytes beyond them are not looked at.
    """
    if len(data) > bytes_max:
        data = data[:bytes_max]
    detected = _detect(data) if data else None
    if detected is None and len(data) == bytes_max:
        raise _unrecognised(data, _RHEOS_HEADER_BYTES, f"{bytes_max} bytes settle no protocol")
    return detected


def conclude(data: Buffer, *, bytes_max: int = DETECT_BYTES_MAX) -> Detected | None:
    """Return what `detect` does, but at the handshake deadline: nothing will follow `data`.

    A whole packet that fits both versions of Rheos and lacks bytes of a checksum is v1's. Return
    None if `data` is the beginning of something, and no more.
    """
    detected = detect(data, bytes_max=bytes_max)
    if detected is None and data[:1] == b"\xfa":
        # A whole packet settles which versions fit, so this one fits both.
        whole = len(data) >= _RHEOS_HEADER_BYTES + _body_bytes(data)
        return Detected(Protocol.RHEOS1, "little") if whole else None
    return detected


def _detect(data: Buffer) -> Detected | None:
    match data[0]:
        case 0xFE:
            return _by_magic(data, _HERALD_LITTLE, Detected(Protocol.HERALD, "little"))
        case 0xCA:
            return _by_magic(data, _HERALD_BIG, Detected(Protocol.HERALD, "big"))
        case 0x01:
            return _by_magic(data, _FLEXIMQ_JOIN, Detected(Protocol.FLEXIMQ, "big"))
        case 0x00:
            return _lamamq(data)
        case 0xFA:
            return _rheos(data)
        case _:
            raise _unrecognised(data, 1, "no protocol starts with this byte")


def _by_magic(data: Buffer, magic: bytes, detected: Detected) -> Detected | None:
    found = data[: len(magic)]
    for size in range(2, len(found) + 1):
        if found[size - 1] != magic[size - 1]:
            raise _unrecognised(data, size, f"not a {detected.protocol.label} handshake")
    return detected if len(found) == len(magic) else None


def _lamamq(data: Buffer) -> Detected | None:
    # The limit is below 64 KiB: no length but zero is plausible in both orders. An empty name is
    # no name; the codec refuses it, in network order.
    length = bytes(data[1:5])
    for size in range(1, len(length) + 1):
        big_least = int.from_bytes(length[:size].ljust(4, b"\0"), "big")
        little_least = int.from_bytes(length[:size], "little")
        if min(big_least, little_least) > LAMAMQ_IDENTITY_NAME_BYTES_MAX:
            raise _unrecognised(data, 1 + size, "not the length of a LamaMQ identity name")
    if len(length) < 4:
        return None
    big = int.from_bytes(length, "big") <= LAMAMQ_IDENTITY_NAME_BYTES_MAX
    return Detected(Protocol.LAMAMQ, "big" if big else "little")


def _rheos(data: Buffer) -> Detected | None:
    if len(data) < 5:
        return None
    body_bytes = _body_bytes(data)
    if body_bytes > RHEOS_BODY_BYTES_MAX:
        raise _unrecognised(data, 5, f"a Rheos body of {body_bytes} bytes exceeds the limit")
    if body_bytes < 4:
        raise _unrecognised(data, 5, _NEITHER_RHEOS)
    name_bytes = int.from_bytes(data[22:24], "little")  # of what is there: at least this
    if name_bytes > body_bytes - 4:
        raise _unrecognised(data, _RHEOS_HEADER_BYTES, _NEITHER_RHEOS)
    if len(data) < 24:
        return None
    fits_1 = _holds(data, 24 + name_bytes, size=2, value=body_bytes - 4 - name_bytes)
    fits_2 = _holds(data, 24, size=4, value=body_bytes - 6 - name_bytes)
    if fits_1 is None or fits_2 is None:
        return None
    if not fits_1 and not fits_2:
        raise _unrecognised(data, _RHEOS_HEADER_BYTES, _NEITHER_RHEOS)
    if fits_1 and fits_2:
        fits_2 = _checksum_follows(data, _RHEOS_HEADER_BYTES + body_bytes)
        if fits_2 is None:
            return None
    return Detected(Protocol.RHEOS2 if fits_2 else Protocol.RHEOS1, "little")


def _body_bytes(data: Buffer) -> int:
    return int.from_bytes(data[1:5], "little")


def _checksum_follows(data: Buffer, end: int) -> bool | None:
    if len(data) <= end:
        return None
    return _holds(data, end, size=4, value=zlib.crc32(memoryview(data)[:end]))


def _holds(data: Buffer, start: int, *, size: int, value: int) -> bool | None:
    """Tell whether the little-endian field at `start` is `value`; None if its bytes lack."""
    if not 0 <= value < 1 << 8 * size:
        return False
    found = data[start : start + size]
    if not value.to_bytes(size, "little").startswith(found):
        return False
    return True if len(found) == size else None


def _unrecognised(data: Buffer, size: int, reason: str) -> UnrecognisedProtocol:
    """Show as many bytes as it took, whatever came with them, so that no cut changes the error."""
    return UnrecognisedProtocol(bytes(data[:size]), reason)
