"""Rheos v2. Bits of the first byte: 0 the client's decoder; 1 a limit of 64 bytes; 2 set checksums.

No change to a packet keeps its checksum right: bit 2 lets the input say what lies behind it.
"""

import zlib
from functools import partial

from penstock.protocols.rheos2 import RHEOS2
from penstock.wire import rheos2
from tests.fuzz.kernels import KERNEL, agrees, kernel_seeds
from tests.fuzz.promises import assert_promises

_CLIENT = bytes(range(16))

_EVENTS: list[rheos2.Packet] = [
    rheos2.Event(_CLIENT, rheos2.OpCode.CREATE, b"news", b""),
    rheos2.Event(_CLIENT, rheos2.OpCode.SUBSCRIBE, b"news/+", b""),
    rheos2.Event(_CLIENT, rheos2.OpCode.PUBLISH, b"a\xff\x00", b"hello"),
    rheos2.Event(_CLIENT, rheos2.OpCode.PUBLISH, b"", b""),
]
_ANSWERS: list[rheos2.Packet] = [
    rheos2.Acknowledgment(rheos2.AckCode.SUCCESS, _CLIENT),
    rheos2.Acknowledgment(rheos2.AckCode.FAILED, _CLIENT),
    rheos2.Event(_CLIENT, rheos2.OpCode.PUBLISH, b"news", b"hello"),
]

SEEDS = [
    bytes([options | checksums]) + frames
    for checksums in (0, 4)
    for options, packets in ((0, _EVENTS), (1, _ANSWERS))
    for frames in (
        *(rheos2.encode(packet) for packet in packets),
        b"".join(rheos2.encode(packet) for packet in packets),
    )
]
SEEDS += kernel_seeds(RHEOS2) + kernel_seeds(RHEOS2, options=4)


def check(data: bytes) -> None:
    options = data[0] if data else 0
    stream = _with_checksums(data[1:]) if options & 4 else data[1:]
    if options & KERNEL:
        agrees(RHEOS2, options, stream)
        return
    decoder = rheos2.ClientDecoder if options & 1 else rheos2.BrokerDecoder
    limits = {"body_bytes_max": 64} if options & 2 else {}
    assert_promises(partial(decoder, **limits), rheos2.encode, stream)


def _with_checksums(stream: bytes) -> bytes:
    """Set the checksum of every packet that is there whole, as far as lengths lead."""
    sealed = bytearray(stream)
    start = 0
    while True:
        match sealed[start : start + 1]:
            case b"\xfa":
                end = start + 22 + int.from_bytes(sealed[start + 1 : start + 5], "little")
            case b"\xac":
                end = start + 18
            case _:
                break
        if len(sealed) < end + 4:
            break
        sealed[end : end + 4] = zlib.crc32(sealed[start:end]).to_bytes(4, "little")
        start = end + 4
    return bytes(sealed)
