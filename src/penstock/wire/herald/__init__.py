"""herald v1: publishers and subscribers on 256 channels, 7-byte headers, either byte order."""

from penstock.wire.herald.decoder import (
    DecodedMessage,
    Decoder,
    MessageDecoder,
    ParseResult,
    decode,
)
from penstock.wire.herald.encoder import encode
from penstock.wire.herald.errors import (
    HeraldError,
    InvalidHandshake,
    InvalidOpCode,
    MalformedMessage,
    MessageTooLarge,
)
from penstock.wire.herald.packets import (
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
from penstock.wire.herald.states import BROKER, CLIENT, BrokerState, ClientState

__all__ = [
    "BROKER",
    "CLIENT",
    "BrokerState",
    "ClientState",
    "DecodedMessage",
    "Decoder",
    "Disconnect",
    "Error",
    "ErrorCode",
    "HandshakeAck",
    "HandshakePub",
    "HandshakeSub",
    "HeraldError",
    "InvalidHandshake",
    "InvalidOpCode",
    "MalformedMessage",
    "Message",
    "MessageDecoder",
    "MessageTooLarge",
    "OpCode",
    "Packet",
    "ParseResult",
    "Ping",
    "Pong",
    "Publish",
    "Subscribe",
    "Unsubscribe",
    "decode",
    "encode",
]
