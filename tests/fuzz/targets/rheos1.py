"""Rheos v1. Bit 0 of the first byte: the client's decoder; bit 1: a limit of 64 bytes."""

from functools import partial

from penstock.protocols.rheos1 import RHEOS1
from penstock.wire import rheos1
from tests.fuzz.kernels import KERNEL, agrees, kernel_seeds
from tests.fuzz.promises import assert_promises

_CLIENT = bytes(range(16))

_REQUESTS = [
    rheos1.Request(_CLIENT, rheos1.OpCode.CREATE, b"news", b""),
    rheos1.Request(_CLIENT, rheos1.OpCode.SUBSCRIBE, b"news/+", b""),
    rheos1.Request(_CLIENT, rheos1.OpCode.PUBLISH, b"a\xff\x00", b"hello"),
    rheos1.Request(_CLIENT, rheos1.OpCode.PUBLISH, b"", b""),
]
_ANSWERS: list[rheos1.ClientPacket] = [
    rheos1.Acknowledgment(_CLIENT, rheos1.AckCode.SUCCESS),
    rheos1.Acknowledgment(_CLIENT, rheos1.AckCode.FAILED),
    rheos1.Response(_CLIENT, b"hello"),
    rheos1.Response(_CLIENT, b""),
]

SEEDS = [
    bytes([options]) + frames
    for options, packets in ((0, _REQUESTS), (1, _ANSWERS))
    for frames in (
        *(rheos1.encode(packet) for packet in packets),
        b"".join(rheos1.encode(packet) for packet in packets),
    )
]
SEEDS += kernel_seeds(RHEOS1)


def check(data: bytes) -> None:
    options = data[0] if data else 0
    if options & KERNEL:
        agrees(RHEOS1, options, data[1:])
        return
    decoder = rheos1.ClientDecoder if options & 1 else rheos1.BrokerDecoder
    limits = {"body_bytes_max": 64} if options & 2 else {}
    assert_promises(partial(decoder, **limits), rheos1.encode, data[1:])
