"""Inputs for which a target compares the compiled scanner and encoders with the plain codec.

In every codec's target, bit 4 of the first byte asks for this comparison, and bit 0 of the upper
half (bit 5) for big-endian byte order where the protocol has both.
"""

from penstock.model import ByteOrder
from penstock.protocols import Protocol
from penstock.protocols.fleximq import FLEXIMQ
from penstock.wire.lamamq import PayloadType
from tests.support.agreement import assert_kernel_agrees
from tests.support.publishes import PAYLOADS, TOPICS, UUIDS, publish

KERNEL = 0x10
KERNEL_BIG = 0x20


def agrees(protocol: Protocol, options: int, stream: bytes) -> None:
    """Assert that kernel and plain codec make the same of `stream`."""
    big = protocol is FLEXIMQ or bool(options & KERNEL_BIG)
    assert_kernel_agrees(protocol, stream, "big" if big else "little")


def kernel_seeds(protocol: Protocol, *, options: int = 0) -> list[bytes]:
    """Runs of publish frames with repeats and changes, each behind the byte that asks for them."""
    seeds = []
    orders: list[tuple[ByteOrder, int]] = [("little", 0), ("big", KERNEL_BIG)]
    for order, bit in orders:
        first = bytes([KERNEL | bit | options])
        seeds.append(first + publish(protocol, order, value=b"12") * 2)
        seeds.append(
            first
            + publish(protocol, order, value=b"x", headers=(("k", b"v"),), sender=UUIDS[0])
            + publish(protocol, order, headers=(("k", b"v"),), status=200, reserved=b"\x01" * 16)
            + publish(protocol, order, channel=9, value=bytes(40), payload_type=PayloadType.STRING)
            + publish(protocol, order, channel=9, payload_type=PayloadType.EMPTY)
        )
        seeds += [first + publish(protocol, order, topic=topic) for topic in TOPICS[:2]]
        if protocol is FLEXIMQ:
            seeds += [first + publish(protocol, order, payload=payload) for payload in PAYLOADS]
    return seeds
