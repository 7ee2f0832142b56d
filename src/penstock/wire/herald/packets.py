"""The packets of herald as frozen values, and the numbers of its tables."""

import dataclasses
import enum
from typing import Final, TypeAlias

__all__ = [
    "HEADER_BYTES",
    "MAGIC",
    "Disconnect",
    "Error",
    "ErrorCode",
    "HandshakeAck",
    "HandshakePub",
    "HandshakeSub",
    "Message",
    "OpCode",
    "Packet",
    "Ping",
    "Pong",
    "Publish",
    "Subscribe",
    "Unsubscribe",
]

MAGIC: Final = 0xCAFE
HEADER_BYTES: Final = 7


class OpCode(enum.IntEnum):
    """Operation codes."""

    HANDSHAKE_PUB = 0x01
    HANDSHAKE_SUB = 0x02
    HANDSHAKE_ACK = 0x03
    DISCONNECT = 0x04
    PUBLISH = 0x10
    SUBSCRIBE = 0x11
    UNSUBSCRIBE = 0x12
    MESSAGE = 0x13
    PING = 0x20
    PONG = 0x21
    ERROR = 0xFF


class ErrorCode(enum.IntEnum):
    """Error codes of ERROR and of a HANDSHAKE_ACK without success."""

    INVALID_HANDSHAKE = 0x01
    CHANNEL_NOT_FOUND = 0x02
    MESSAGE_TOO_LARGE = 0x03
    RATE_LIMIT_EXCEEDED = 0x04
    PROTOCOL_VERSION_MISMATCH = 0x05
    INVALID_OPCODE = 0x06
    MALFORMED_MESSAGE = 0x07
    UNAUTHORIZED = 0x08


@dataclasses.dataclass(frozen=True, slots=True)
class HandshakePub:
    """Handshake of a publisher, with the channel that it publishes to."""

    channel: int
    client_id: str


@dataclasses.dataclass(frozen=True, slots=True)
class HandshakeSub:
    """Handshake of a subscriber, with its first channels."""

    channels: bytes
    client_id: str


@dataclasses.dataclass(frozen=True, slots=True)
class HandshakeAck:
    """The broker's answer to a handshake: `error` is None for success."""

    session_id: int
    error: ErrorCode | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Disconnect:
    """The sender closes the connection."""


@dataclasses.dataclass(frozen=True, slots=True)
class Publish:
    """A message for a channel."""

    channel: int
    message: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Subscribe:
    """Subscribe to a channel."""

    channel: int


@dataclasses.dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Unsubscribe from a channel."""

    channel: int


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """A delivered message; `timestamp` is set by the broker, in microseconds since the epoch."""

    channel: int
    timestamp: int
    message: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Ping:
    """Keep-alive request."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pong:
    """Keep-alive response."""


@dataclasses.dataclass(frozen=True, slots=True)
class Error:
    """The broker reports an error."""

    error: ErrorCode


Packet: TypeAlias = (
    HandshakePub
    | HandshakeSub
    | HandshakeAck
    | Disconnect
    | Publish
    | Subscribe
    | Unsubscribe
    | Message
    | Ping
    | Pong
    | Error
)
