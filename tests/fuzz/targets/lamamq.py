"""LamaMQ. Bits of the first byte: 0 the client's decoder; 1 little-endian; 2 small limits; 3 no key.

Where the broker requires no key, whether one is read depends on the cut behind the name: then only
the errors are checked.
"""

from functools import partial

from penstock.model import ByteOrder
from penstock.protocols.lamamq import LAMAMQ
from penstock.wire import lamamq
from tests.fuzz.kernels import KERNEL, agrees, kernel_seeds
from tests.fuzz.promises import assert_promises, cut_of, outcome

_SMALL = lamamq.Limits(
    identity_name_bytes_max=8,
    identity_key_bytes_max=8,
    routing_key_bytes_max=8,
    headers_max=2,
    headers_bytes_max=32,
    payload_bytes_max=16,
    hook_name_bytes_max=8,
    hook_conditions_max=2,
    error_message_bytes_max=8,
)
_HOOK_CALL = lamamq.BROKER_ID_BIT | 1
_AWAITED_BY_BROKER = frozenset({_HOOK_CALL, lamamq.BROKER_ID_BIT | 2})
_AWAITED_BY_CLIENT = frozenset({1, 2})

_TEXT = lamamq.Message(1_700_000_000, "news", (("kind", b"x"),), lamamq.PayloadType.STRING, b"hi")
_BUFFER = lamamq.Message(0, "", (), lamamq.PayloadType.BUFFER, b"\x00\xff")
_EMPTY = lamamq.Message(1, "a.b", (("", b""), ("k", b"\xff")), lamamq.PayloadType.EMPTY, b"")

_HANDSHAKE: list[lamamq.Packet] = [
    lamamq.Authentication("lama", b"key"),
    lamamq.VersionChoice(1, 0),
]
_CONDITIONS = (lamamq.TopicIs("news"), lamamq.HeaderIs("kind", b"x"), lamamq.HasHeader("kind"))
_FROM_CLIENT: list[lamamq.Packet] = [
    lamamq.Push(1, _TEXT),
    lamamq.Push(2, _BUFFER),
    lamamq.Push(3, _EMPTY),
    lamamq.Subscribe(4, "news/#"),
    lamamq.Unsubscribe(5, "news/#"),
    lamamq.Register(
        6,
        "hook",
        1,
        500,
        lamamq.HookStrategy.WAIT_OR_REFUSE,
        lamamq.HookType.MESSAGE_PUSHED,
        _CONDITIONS,
    ),
    lamamq.Register(7, "hook", 0, 0, lamamq.HookStrategy.TELL, lamamq.HookType.CONNECT),
    lamamq.Unregister(8, "hook"),
    lamamq.Forward(9, _TEXT),
    lamamq.Answer(_HOOK_CALL),
    lamamq.Answer(_HOOK_CALL, lamamq.ErrorCode.BAD_REQUEST, "no"),
]
_OFFER: list[lamamq.Packet] = [lamamq.VERSIONS_OFFERED]
_FROM_BROKER: list[lamamq.Packet] = [
    lamamq.Answer(1),
    lamamq.Answer(2, lamamq.ErrorCode.MIDDLEWARE_REFUSED, "no"),
    lamamq.Answer(0, lamamq.ErrorCode.SERVER_EXCEPTION, ""),
    lamamq.Forward(_HOOK_CALL, _TEXT),
    lamamq.Forward(3, _EMPTY),
]


def _seeds(options: int) -> list[bytes]:
    """The handshake with nothing, with each message and with all messages behind it."""
    order = _order(options)
    handshake, messages = (_OFFER, _FROM_BROKER) if options & 1 else (_HANDSHAKE, _FROM_CLIENT)
    start = bytes([options]) + b"".join(lamamq.encode(packet, order=order) for packet in handshake)
    frames = [lamamq.encode(packet, order=order) for packet in messages]
    return [start, *(start + frame for frame in frames), start + b"".join(frames)]


def _order(options: int) -> ByteOrder:
    return "little" if options & 2 else "big"


def _limits(options: int) -> lamamq.Limits:
    return _SMALL if options & 4 else lamamq.DEFAULT_LIMITS


SEEDS = [
    *(seed for options in (0, 1, 2, 3) for seed in _seeds(options)),
    b"\x08" + lamamq.encode(lamamq.Authentication("lama")),
    b"\x01" + lamamq.encode(lamamq.Answer(0, lamamq.ErrorCode.BAD_REQUEST, "who?")),
]
SEEDS += kernel_seeds(LAMAMQ)


def check(data: bytes) -> None:
    options, stream = data[0] if data else 0, data[1:]
    if options & KERNEL:
        agrees(LAMAMQ, options, stream)
        return
    make = partial(_decoder, options)
    if options & 8:
        cut = cut_of(stream)
        outcome(make(), [stream])
        outcome(make(), [stream[:cut], stream[cut:]])
        return
    encode = partial(lamamq.encode, order=_order(options), limits=_limits(options))
    assert_promises(make, encode, stream)


def _decoder(options: int) -> lamamq.BrokerDecoder | lamamq.ClientDecoder:
    order, limits = _order(options), _limits(options)
    if options & 1:
        client = lamamq.ClientDecoder(order=order, limits=limits)
        client.awaited |= _AWAITED_BY_CLIENT
        return client
    broker = lamamq.BrokerDecoder(order=order, key_required=not options & 8, limits=limits)
    broker.awaited |= _AWAITED_BY_BROKER
    return broker
