"""The encoder of herald (MessageEncoder of the specification), in either byte order.

    0        2        3            7
    ┌────────┬────────┬────────────┬───────────────┐
    │ magic  │ opcode │ length     │ payload       │
    │ u16    │ u8     │ u32        │ length bytes  │
    └────────┴────────┴────────────┴───────────────┘

`encode` returns the frame of any packet. The `encode_*` operations write to the start of a buffer
of at least `size_*` bytes, and return the number of bytes written.
"""

import struct
from typing import Final

from penstock.errors import FieldOutOfRange
from penstock.model import ByteOrder
from penstock.protocols.herald import HERALD_PAYLOAD_BYTES_MAX
from penstock.wire.herald.packets import (
    HEADER_BYTES,
    MAGIC,
    Disconnect,
    Error,
    ErrorCode,
    HandshakeAck,
    HandshakePub,
    HandshakeSub,
    Message,
    OpCode,
    Packet,
    Ping,
    Pong,
    Publish,
    Subscribe,
    Unsubscribe,
)

__all__ = [
    "encode",
    "encode_disconnect",
    "encode_error",
    "encode_handshake_ack",
    "encode_handshake_pub",
    "encode_handshake_sub",
    "encode_message",
    "encode_ping",
    "encode_pong",
    "encode_publish",
    "encode_subscribe",
    "encode_unsubscribe",
    "size_disconnect",
    "size_error",
    "size_handshake_ack",
    "size_handshake_pub",
    "size_handshake_sub",
    "size_message",
    "size_ping",
    "size_pong",
    "size_publish",
    "size_subscribe",
    "size_unsubscribe",
]

Buffer = bytearray | memoryview

HEADER: Final = {"little": struct.Struct("<HBI"), "big": struct.Struct(">HBI")}
BYTE_AND_U64: Final = {"little": struct.Struct("<BQ"), "big": struct.Struct(">BQ")}


def encode(packet: Packet, *, order: ByteOrder = "little") -> bytes:
    """Encode a packet; raise FieldOutOfRange if a value does not fit its field."""
    opcode, body = _body(packet, order)
    _check("payload length", len(body), HERALD_PAYLOAD_BYTES_MAX)
    return HEADER[order].pack(MAGIC, opcode, len(body)) + body


def _body(packet: Packet, order: ByteOrder) -> tuple[OpCode, bytes]:
    match packet:
        case Publish(channel, message):
            return OpCode.PUBLISH, _byte("channel", channel) + message
        case Message(channel, timestamp, message):
            _check("channel", channel, 0xFF)
            _check("timestamp", timestamp, 2**64 - 1)
            return OpCode.MESSAGE, BYTE_AND_U64[order].pack(channel, timestamp) + message
        case HandshakePub(channel, client_id):
            return OpCode.HANDSHAKE_PUB, _byte("channel", channel) + _counted(client_id.encode())
        case HandshakeSub(channels, client_id):
            return OpCode.HANDSHAKE_SUB, _counted(channels) + _counted(client_id.encode())
        case HandshakeAck(session_id, error):
            _check("session id", session_id, 2**64 - 1)
            return OpCode.HANDSHAKE_ACK, BYTE_AND_U64[order].pack(error or 0, session_id)
        case Subscribe(channel):
            return OpCode.SUBSCRIBE, _byte("channel", channel)
        case Unsubscribe(channel):
            return OpCode.UNSUBSCRIBE, _byte("channel", channel)
        case Error(error):
            return OpCode.ERROR, bytes((error,))
        case Disconnect():
            return OpCode.DISCONNECT, b""
        case Ping():
            return OpCode.PING, b""
        case Pong():
            return OpCode.PONG, b""


def _byte(field: str, value: int) -> bytes:
    _check(field, value, 0xFF)
    return bytes((value,))


def _counted(data: bytes) -> bytes:
    return _byte("length", len(data)) + data


def _check(field: str, value: int, value_max: int) -> None:
    if not 0 <= value <= value_max:
        raise FieldOutOfRange(field, value, value_max)


# --- The specification's own operations ---------------------------------------------------------


def size_handshake_pub(client_id: bytes) -> int:
    """Bytes of a HANDSHAKE_PUB frame."""
    return HEADER_BYTES + 2 + len(client_id)


def size_handshake_sub(channels: bytes, client_id: bytes) -> int:
    """Bytes of a HANDSHAKE_SUB frame."""
    return HEADER_BYTES + 1 + len(channels) + 1 + len(client_id)


def size_handshake_ack() -> int:
    """Bytes of a HANDSHAKE_ACK frame."""
    return HEADER_BYTES + 9


def size_publish(message: bytes) -> int:
    """Bytes of a PUBLISH frame."""
    return HEADER_BYTES + 1 + len(message)


def size_message(message: bytes) -> int:
    """Bytes of a MESSAGE frame."""
    return HEADER_BYTES + 1 + 8 + len(message)


def size_subscribe() -> int:
    """Bytes of a SUBSCRIBE frame."""
    return HEADER_BYTES + 1


def size_unsubscribe() -> int:
    """Bytes of an UNSUBSCRIBE frame."""
    return HEADER_BYTES + 1


def size_disconnect() -> int:
    """Bytes of a DISCONNECT frame."""
    return HEADER_BYTES


def size_ping() -> int:
    """Bytes of a PING frame."""
    return HEADER_BYTES


def size_pong() -> int:
    """Bytes of a PONG frame."""
    return HEADER_BYTES


def size_error() -> int:
    """Bytes of an ERROR frame."""
    return HEADER_BYTES + 1


def encode_handshake_pub(
    buffer: Buffer, channel: int, client_id: str, *, order: ByteOrder = "little"
) -> int:
    """Write a HANDSHAKE_PUB frame."""
    return _write(buffer, HandshakePub(channel, client_id), order)


def encode_handshake_sub(
    buffer: Buffer, channels: bytes, client_id: str, *, order: ByteOrder = "little"
) -> int:
    """Write a HANDSHAKE_SUB frame."""
    return _write(buffer, HandshakeSub(channels, client_id), order)


def encode_handshake_ack(
    buffer: Buffer, session_id: int, error: ErrorCode | None, *, order: ByteOrder = "little"
) -> int:
    """Write a HANDSHAKE_ACK frame; no error is status 0, success."""
    return _write(buffer, HandshakeAck(session_id, error), order)


def encode_publish(
    buffer: Buffer, channel: int, message: bytes, *, order: ByteOrder = "little"
) -> int:
    """Write a PUBLISH frame."""
    return _write(buffer, Publish(channel, message), order)


def encode_message(
    buffer: Buffer, message: bytes, *, channel: int, timestamp: int, order: ByteOrder = "little"
) -> int:
    """Write a MESSAGE frame; `timestamp` is in microseconds since the epoch."""
    return _write(buffer, Message(channel, timestamp, message), order)


def encode_subscribe(buffer: Buffer, channel: int, *, order: ByteOrder = "little") -> int:
    """Write a SUBSCRIBE frame."""
    return _write(buffer, Subscribe(channel), order)


def encode_unsubscribe(buffer: Buffer, channel: int, *, order: ByteOrder = "little") -> int:
    """Write an UNSUBSCRIBE frame."""
    return _write(buffer, Unsubscribe(channel), order)


def encode_disconnect(buffer: Buffer, *, order: ByteOrder = "little") -> int:
    """Write a DISCONNECT frame."""
    return _write(buffer, Disconnect(), order)


def encode_ping(buffer: Buffer, *, order: ByteOrder = "little") -> int:
    """Write a PING frame."""
    return _write(buffer, Ping(), order)


def encode_pong(buffer: Buffer, *, order: ByteOrder = "little") -> int:
    """Write a PONG frame."""
    return _write(buffer, Pong(), order)


def encode_error(buffer: Buffer, error: ErrorCode, *, order: ByteOrder = "little") -> int:
    """Write an ERROR frame."""
    return _write(buffer, Error(error), order)


def _write(buffer: Buffer, packet: Packet, order: ByteOrder) -> int:
    frame = encode(packet, order=order)
    _check("frame length", len(frame), len(buffer))
    buffer[: len(frame)] = frame
    return len(frame)
