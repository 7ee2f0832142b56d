"""fleximq. Bits of the first byte: 0 the client's decoder; 1 the broker's is strict."""

import struct
from functools import partial

from penstock.protocols.fleximq import FLEXIMQ
from penstock.wire import fleximq
from penstock.wire.fleximq import Header, Message, MessageType
from tests.fuzz.kernels import KERNEL, agrees, kernel_seeds
from tests.fuzz.promises import assert_promises

_TO_ONE = (fleximq.Routing(1000, "/a"),)
_TO_TWO = (fleximq.Routing(1000, "/a"), fleximq.Routing(4_294_967_294, ""))
_REQUEST = fleximq.ReqRep(fleximq.ReqRepType.REQUEST, "01H2XQ")
_CORRELATION = fleximq.ReqRep(fleximq.ReqRepType.CORRELATION, "01H2XQ")
_VALUE = bytes.fromhex("83 A161 93 01 C0 CB3FF0000000000000  A162 C40200FF  A163 D501 6162")

_JOINS = [
    Message(MessageType.JOIN, 0),
    Message(MessageType.JOIN, 0, Header(auth=fleximq.TokenAuth("t"), reqrep=_REQUEST)),
    Message(MessageType.JOIN, 0, Header(auth=fleximq.BasicAuth("u", "p"))),
    Message(MessageType.JOIN, 0, Header(auth=fleximq.ApiKeyAuth("k"))),
]
_JOIN_REPLIES = [
    Message(MessageType.REP, 0, Header(status=604, reqrep=_CORRELATION)),
    Message(MessageType.REP, 1000, Header(status=200)),
]
_EITHER_WAY = [
    Message(MessageType.REQ, 1001, Header(routing=_TO_ONE, reqrep=_REQUEST), _VALUE),
    Message(MessageType.REP, 1000, Header(routing=_TO_ONE, reqrep=_CORRELATION, status=404)),
    Message(MessageType.NOTIF, 1, Header(routing=_TO_TWO, status=600), b"\xa2no"),
    Message(MessageType.BCAST, 1000, Header(), b"\xc0"),
    Message(MessageType.PUB, 1000, Header(topic="news"), b"\xc4\x02hi"),
    Message(MessageType.PUB, 1000, Header(topic="news", routing=_TO_TWO, status=200), b"\xcd\x01\x00"),
    Message(MessageType.SUB, 1000, Header(topic="news/+")),
    Message(MessageType.UNSUB, 1000, Header(topic="news/+")),
    Message(MessageType.PING, 1000, Header(keepalive=fleximq.KeepAlive(1_703_123_456_789, 30))),
    Message(MessageType.PONG, 1000, Header(keepalive=fleximq.KeepAlive(1_703_123_456_789))),
]  # fmt: skip

# REP to client 1000 whose routing entry has no path, and a field nobody knows
_WITHOUT_PATH = bytes.fromhex(
    "01 02 000003E8" + "00" * 16 + "00000040"
    "83 A7726F7574696E67 91 81 A9636C69656E745F6964 CD03E8"
    "   A6726571726570 82 A474797065 AB636F7272656C6174696F6E A26964 A178"
    "   A466757475 C702056162"
    "0000000000000000"
)  # fmt: skip

SEEDS = [
    bytes([options]) + frames
    for options, messages in ((0, _JOINS + _EITHER_WAY), (1, _JOIN_REPLIES + _EITHER_WAY))
    for frames in (
        _WITHOUT_PATH,
        *(fleximq.encode(message) for message in messages),
        b"".join(fleximq.encode(message) for message in messages),
    )
]
SEEDS += kernel_seeds(FLEXIMQ)


def check(data: bytes) -> None:
    options = data[0] if data else 0
    if options & KERNEL:
        agrees(FLEXIMQ, options, data[1:])
        return
    strict = bool(options & 2)
    make = fleximq.ClientDecoder if options & 1 else partial(fleximq.BrokerDecoder, strict=strict)
    assert_promises(make, _encode, data[1:])


def _encode(message: Message) -> bytes:
    header = message.header
    if message.type is not MessageType.REP or header.routing or header.status is not None:
        return fleximq.encode(message)
    # A reply to JOIN without status is read, but our encoder does not send it.
    fields = fleximq.encode_header(header)
    base = struct.pack(">BBI16xI", 1, message.type, message.client_id, len(fields))
    return base + fields + struct.pack(">Q", len(message.payload)) + message.payload
