"""fleximq frames built by hand from section 2.1, without the code under test."""

import struct
from typing import Any

from penstock.wire import fleximq
from penstock.wire.decoder import Decoder, Rejected

# The six fields of a header, each key with a valid value, and a second one for reqrep.
ROUTING = "A7 726F7574696E67  91 82 A9 636C69656E745F6964 CD03E8 A4 70617468 A1 2F"
REQUEST = "A6 726571726570  82 A4 74797065 A7 72657175657374 A2 6964 A1 37"
CORRELATION = "A6 726571726570  82 A4 74797065 AB 636F7272656C6174696F6E A2 6964 A1 37"
TOPIC = "A5 746F706963  A4 6E657773"
STATUS = "A6 737461747573  CC C8"
AUTH = "A4 61757468  82 A4 74797065 A5 746F6B656E A5 746F6B656E A3 616263"
KEEPALIVE = "A9 6B656570616C697665  81 A9 74696D657374616D70 05"

JOIN, REQ, REP, NOTIF, BCAST, PUB, SUB, UNSUB, PING, PONG = range(10)


def frame(
    message_type: int,
    *fields: str,
    client_id: int | None = None,
    payload: str = "",
    reserved: bytes = bytes(16),
) -> bytes:
    """A frame whose header is a map of `fields`, each the hex of a key and its value."""
    header = bytes([0x80 + len(fields)]) + bytes.fromhex("".join(fields)) if fields else b""
    return raw_frame(
        message_type,
        header,
        client_id=client_id,
        payload=bytes.fromhex(payload),
        reserved=reserved,
    )


def raw_frame(
    message_type: int,
    header: bytes,
    *,
    client_id: int | None = None,
    payload: bytes = b"",
    reserved: bytes = bytes(16),
) -> bytes:
    """A frame with these bytes as its header; the client id is the one its type calls for."""
    if client_id is None:
        client_id = 0 if message_type == JOIN else 1000
    return (
        struct.pack(">BBI", 1, message_type, client_id)
        + reserved
        + struct.pack(">I", len(header))
        + header
        + struct.pack(">Q", len(payload))
        + payload
    )


def decoded(frames: bytes, decoder: Decoder[fleximq.Message] | None = None) -> list[Any]:
    """Messages, and the errors of rejected ones."""
    decoder = decoder or fleximq.BrokerDecoder()
    decoder.feed(frames)
    return [item.error if isinstance(item, Rejected) else item for item in decoder]
