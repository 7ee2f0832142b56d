"""herald frames from the specification: struct alone, independent of the codec.

`order` is the byte order of struct: little-endian, as the specification has it, unless it is ">".
"""

import struct
from typing import Final

__all__ = [
    "CHANNEL_NOT_FOUND",
    "DISCONNECT",
    "INVALID_HANDSHAKE",
    "INVALID_OPCODE",
    "MALFORMED_MESSAGE",
    "MESSAGE_TOO_LARGE",
    "PING",
    "PONG",
    "RATE_LIMIT_EXCEEDED",
    "UNAUTHORIZED",
    "error",
    "frame",
    "handshake_pub",
    "handshake_sub",
    "publish",
    "subscribe",
    "unsubscribe",
]

INVALID_HANDSHAKE, CHANNEL_NOT_FOUND, MESSAGE_TOO_LARGE, RATE_LIMIT_EXCEEDED = 1, 2, 3, 4
INVALID_OPCODE, MALFORMED_MESSAGE, UNAUTHORIZED = 6, 7, 8


def frame(opcode: int, body: bytes = b"", *, order: str = "<") -> bytes:
    """Return a frame."""
    return struct.pack(f"{order}HBI", 0xCAFE, opcode, len(body)) + body


def handshake_pub(channel: int = 7, client_id: bytes = b"p", *, order: str = "<") -> bytes:
    """Return a publisher's handshake."""
    return frame(0x01, bytes([channel, len(client_id)]) + client_id, order=order)


def handshake_sub(channels: bytes = b"\x07", client_id: bytes = b"s", *, order: str = "<") -> bytes:
    """Return a subscriber's handshake."""
    body = bytes([len(channels)]) + channels + bytes([len(client_id)]) + client_id
    return frame(0x02, body, order=order)


def publish(channel: int, message: bytes, *, order: str = "<") -> bytes:
    """Return a PUBLISH."""
    return frame(0x10, bytes([channel]) + message, order=order)


def subscribe(channel: int, *, order: str = "<") -> bytes:
    """Return a SUBSCRIBE."""
    return frame(0x11, bytes([channel]), order=order)


def unsubscribe(channel: int, *, order: str = "<") -> bytes:
    """Return an UNSUBSCRIBE."""
    return frame(0x12, bytes([channel]), order=order)


def error(code: int, *, order: str = "<") -> bytes:
    """Return an ERROR."""
    return frame(0xFF, bytes([code]), order=order)


PING: Final = frame(0x20)
PONG: Final = frame(0x21)
DISCONNECT: Final = frame(0x04)
