"""Detection gives None until the bytes settle it, and one answer from there on.

The first byte selects the cap on the bytes looked at: 0 is the default, others are themselves.
"""

import zlib

from penstock.errors import UnrecognisedProtocol
from penstock.limits import DETECT_BYTES_MAX
from penstock.protocols.rheos1 import RHEOS1
from penstock.protocols.rheos2 import RHEOS2
from penstock.wire.detect import Detected, conclude, detect
from tests.fuzz.promises import cut_of

_RHEOS = bytes.fromhex("00112233445566778899AABBCCDDEEFF 02")
_BOTH_FIT = bytes.fromhex("FA 07010000") + _RHEOS + bytes.fromhex("0300 FE0000 0001") + bytes(256)

SEEDS = [
    b"\x00" + first
    for first in (
        bytes.fromhex("FECA 01 07000000 05 05 6465762D31"),
        bytes.fromhex("CAFE 01 00000007 05 05 6465762D31"),
        bytes.fromhex("01 00 00000000") + bytes(16) + bytes.fromhex("00000001 80") + bytes(8),
        bytes.fromhex("00 00000004 6C616D61"),
        bytes.fromhex("00 04000000 6C616D61"),
        bytes.fromhex("FA 0B000000") + _RHEOS + bytes.fromhex("0300 616263 0400 64617461"),
        bytes.fromhex("FA 04000000") + _RHEOS + bytes.fromhex("0000 0000"),
        bytes.fromhex("FA 0D000000") + _RHEOS + bytes.fromhex("0300 04000000 616263 64617461"),
        _BOTH_FIT + zlib.crc32(_BOTH_FIT).to_bytes(4, "little"),
        _BOTH_FIT + _BOTH_FIT,
    )
]

Answer = Detected | tuple[bytes, str] | None


def check(data: bytes) -> None:
    bytes_max = data[0] if data and data[0] else DETECT_BYTES_MAX
    stream = data[1:]
    for size in range(len(stream) + 1):
        settled = _answer(stream[:size], bytes_max)
        if settled is not None:
            break
    else:
        concluded = conclude(stream, bytes_max=bytes_max)
        assert concluded is None or concluded.protocol in {RHEOS1, RHEOS2}
        return
    for longer in (max(size, cut_of(stream)), min(size + 1, len(stream)), len(stream)):
        answer = _answer(stream[:longer], bytes_max)
        assert answer == settled, f"{settled} at {size} became {answer} at {longer}"


def _answer(data: bytes, bytes_max: int) -> Answer:
    try:
        return detect(data, bytes_max=bytes_max)
    except UnrecognisedProtocol as error:
        return error.first_bytes, error.reason
