"""Frames that the broker sends: its own replies, and messages between clients.

The decoder has validated the messages of clients. They are copied or framed again without a second
validation. The receivers of a NOTIF share its payload.
"""

from typing import Final

from penstock.positions import ASK_PATH
from penstock.wire import fleximq, messagepack
from penstock.wire.fleximq import (
    ClientId,
    Header,
    KeepAlive,
    Message,
    MessageType,
    ReqRep,
    ReqRepType,
    Routing,
    StatusCode,
)
from penstock.wire.fleximq.packets import BASE, PAYLOAD_LENGTH, VERSION

__all__ = [
    "answer",
    "as_sent",
    "error_reply",
    "join_reply",
    "ping",
    "pong",
    "positions",
    "reqrep_id",
    "routed_head",
]

ERRORS_PATH: Final = "/errors"
"""Path of errors about messages that had no `reqrep.id`."""

_RESERVED: Final = slice(6, 22)


# --- From client to client ----------------------------------------------------------------------


def as_sent(frame_view: memoryview) -> bytes:
    """Return a frame unchanged but for reserved bytes, which section 2.1 requires to be zero."""
    frame = bytes(frame_view)
    if any(frame[_RESERVED]):
        return frame[: _RESERVED.start] + bytes(16) + frame[_RESERVED.stop :]
    return frame


def routed_head(message: Message, entry: Routing | None) -> bytes:
    """Return the frame of `message` without its payload, with one routing entry or none."""
    routing = None if entry is None else (entry,)
    header = fleximq.encode_header(
        Header(routing=routing, topic=message.header.topic, status=message.header.status)
    )
    base = BASE.pack(VERSION, message.type, message.client_id, len(header))
    return b"".join((base, header, PAYLOAD_LENGTH.pack(len(message.payload))))


# --- From client 1, the broker ------------------------------------------------------------------


def join_reply(
    status: StatusCode, *, client_id: int, identifier: str | None, text: str = ""
) -> bytes:
    """Return the REP without `routing` that answers JOIN (section 4.2)."""
    header = Header(reqrep=_correlation(identifier), status=status)
    payload = messagepack.encode(text) if text else b""
    return fleximq.encode(Message(MessageType.REP, client_id, header, payload))


def answer(status: int, payload: bytes, *, client_id: int, identifier: str) -> bytes:
    """Return the broker's REP to a client's message."""
    header = Header(
        routing=(Routing(client_id, ""),), reqrep=_correlation(identifier), status=status
    )
    return fleximq.encode(Message(MessageType.REP, ClientId.BROKER, header, payload))


def error_reply(status: StatusCode, text: str, *, client_id: int, identifier: str | None) -> bytes:
    """Return an error: a REP if the message had an id, else a NOTIF."""
    payload = messagepack.encode(text)
    if identifier is not None:
        return answer(status, payload, client_id=client_id, identifier=identifier)
    header = Header(routing=(Routing(client_id, ERRORS_PATH),), status=status)
    return fleximq.encode(Message(MessageType.NOTIF, ClientId.BROKER, header, payload))


def positions(client_id: int, payload: bytes) -> bytes:
    """Return a frame with positions, see `penstock.positions`."""
    header = Header(routing=(Routing(client_id, ASK_PATH),))
    content = messagepack.encode(payload)
    return fleximq.encode(Message(MessageType.NOTIF, ClientId.BROKER, header, content))


def ping(*, timestamp_ms: int, interval_seconds: int) -> bytes:
    """Return the broker's PING."""
    header = Header(keepalive=KeepAlive(timestamp_ms, interval_seconds))
    return fleximq.encode(Message(MessageType.PING, ClientId.BROKER, header))


def pong(timestamp_ms: int) -> bytes:
    """Return the PONG to a PING with this timestamp (section 3.7.1)."""
    header = Header(keepalive=KeepAlive(timestamp_ms))
    return fleximq.encode(Message(MessageType.PONG, ClientId.BROKER, header))


def reqrep_id(message: Message) -> str | None:
    """Return the `reqrep.id` of a message, if it has one."""
    return message.header.reqrep.id if message.header.reqrep is not None else None


def _correlation(identifier: str | None) -> ReqRep | None:
    if identifier is None:
        return None
    return ReqRep(ReqRepType.CORRELATION, identifier)
