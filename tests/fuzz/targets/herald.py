"""herald, whose two roles read the same frames. Bit 0 of the first byte: big-endian."""

from functools import partial

from penstock.model import ByteOrder
from penstock.protocols.herald import HERALD
from penstock.wire import herald
from tests.fuzz.kernels import KERNEL, agrees, kernel_seeds
from tests.fuzz.promises import assert_promises

_PACKETS: list[herald.Packet] = [
    herald.HandshakePub(5, "dev-1"),
    herald.HandshakeSub(bytes([1, 2, 255]), "s"),
    herald.HandshakeAck(0x1122334455667788),
    herald.HandshakeAck(0, herald.ErrorCode.UNAUTHORIZED),
    herald.Disconnect(),
    herald.Publish(7, b"hello"),
    herald.Subscribe(9),
    herald.Unsubscribe(255),
    herald.Message(7, 0x0006_0B4F_AC2E_1234, b"hi"),
    herald.Ping(),
    herald.Pong(),
    herald.Error(herald.ErrorCode.MALFORMED_MESSAGE),
]


def _order(options: int) -> ByteOrder:
    return "big" if options & 1 else "little"


SEEDS = [
    bytes([options]) + frames
    for options in (0, 1)
    for frames in (
        *(herald.encode(packet, order=_order(options)) for packet in _PACKETS),
        b"".join(herald.encode(packet, order=_order(options)) for packet in _PACKETS),
    )
]
SEEDS += kernel_seeds(HERALD)


def check(data: bytes) -> None:
    options = data[0] if data else 0
    if options & KERNEL:
        agrees(HERALD, options, data[1:])
        return
    order = _order(options)
    encode = partial(herald.encode, order=order)
    assert_promises(partial(herald.Decoder, order=order), encode, data[1:])
