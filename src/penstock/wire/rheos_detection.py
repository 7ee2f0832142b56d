"""Detection of Rheos, and of its version.

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

Where both fit, the bytes behind the packet decide: v1 if they start the next packet (FA), else v2,
whose CRC32 they are, right or wrong. If none follow within CHECKSUM_SECONDS_MAX, it is v1. A
version that the length alone excludes leaves the other one, which then answers for what else is
wrong. For both to fit, v2's M must be v1's M less 2, so bytes 26 and 27 are zero. With
N = 0 the two Ms are then equal; with N = 2 v1's is 0; with N = 1 v1's is byte 25, and v2's at least
256 times that. So N >= 3, and byte 26 is a NUL in the name that v1 reads. (A v2 packet fits both
by accident when two bytes of its name spell the length of its data plus 2; its checksum follows.)
"""

import zlib
from typing import Final

from penstock.protocols.rheos1 import RHEOS1
from penstock.protocols.rheos2 import RHEOS2
from penstock.wire.decoder import Buffer
from penstock.wire.detection import Detected, Detection, unrecognised

__all__ = ["DETECTION"]

_HEADER_BYTES: Final = 22
_MAGIC: Final = 0xFA
_V1_BODY_BYTES: Final = (4, 4 + 2 * 0xFFFF)
_V2_BODY_BYTES_MIN: Final = 6
_NEITHER: Final = "neither Rheos version fits"
_RHEOS1: Final = Detected(RHEOS1, "little")
_RHEOS2: Final = Detected(RHEOS2, "little")


def _recognise(data: Buffer) -> Detected | None:
    if len(data) < 5:
        return None
    body_bytes = _body_bytes(data)
    least, most = _V1_BODY_BYTES
    if body_bytes > most:
        return _RHEOS2
    if body_bytes < _V2_BODY_BYTES_MIN:
        if body_bytes < least:
            raise unrecognised(data, 5, _NEITHER)
        return _RHEOS1
    name_bytes = int.from_bytes(data[22:24], "little")  # of what is there: at least this
    if name_bytes > body_bytes - 4:
        raise unrecognised(data, _HEADER_BYTES, _NEITHER)
    if len(data) < 24:
        return None
    fits_1, fits_2 = _fits(data)
    if fits_1 is None or fits_2 is None:
        return None
    if not fits_1 and not fits_2:
        raise unrecognised(data, _HEADER_BYTES, _NEITHER)
    if fits_1 and fits_2:
        fits_2 = _checksum_follows(data, _HEADER_BYTES + body_bytes)
        if fits_2 is None:
            return None
    return _RHEOS2 if fits_2 else _RHEOS1


def _fits(data: Buffer) -> tuple[bool | None, bool | None]:
    """Return whether the lengths of v1 and of v2 add up; None where bytes of them are missing."""
    body_bytes, name_bytes = _body_bytes(data), int.from_bytes(data[22:24], "little")
    return (
        _holds(data, 24 + name_bytes, size=2, value=body_bytes - 4 - name_bytes),
        _holds(data, 24, size=4, value=body_bytes - 6 - name_bytes),
    )


def _body_bytes(data: Buffer) -> int:
    return int.from_bytes(data[1:5], "little")


def _checksum_follows(data: Buffer, end: int) -> bool | None:
    if len(data) <= end:
        return None
    if data[end] != _MAGIC:
        return True
    return _holds(data, end, size=4, value=zlib.crc32(memoryview(data)[:end]))


def _holds(data: Buffer, start: int, *, size: int, value: int) -> bool | None:
    """Return whether the little-endian field at `start` is `value`; None if bytes are missing."""
    if not 0 <= value < 1 << 8 * size:
        return False
    found = data[start : start + size]
    if not value.to_bytes(size, "little").startswith(found):
        return False
    return True if len(found) == size else None


def _conclude(data: Buffer) -> Detected | None:
    # A whole packet settles which versions fit, so this one fits both and lacks its checksum.
    if len(data) >= _HEADER_BYTES + _body_bytes(data):
        return _RHEOS1
    if len(data) < 24:
        return None
    fits_1, fits_2 = _fits(data)
    if fits_1 is not False and fits_2 is not False:
        return None
    return _RHEOS2 if fits_1 is False else _RHEOS1


DETECTION: Final = Detection(b"\xfa", _recognise, _conclude)
