"""fleximq v1: ten message types with MessagePack headers and payloads, routed by client id."""

from penstock.wire.fleximq.decoder import BrokerDecoder, ClientDecoder
from penstock.wire.fleximq.encoder import encode
from penstock.wire.fleximq.errors import (
    BadAuth,
    BadClientId,
    BadHeader,
    BadPayload,
    FleximqError,
    InvalidMessage,
    InvalidRouting,
    PayloadTooLarge,
    UnknownType,
    UnsupportedVersion,
)
from penstock.wire.fleximq.headers import encode_header, parse_header
from penstock.wire.fleximq.packets import (
    ApiKeyAuth,
    Auth,
    BasicAuth,
    ClientId,
    Header,
    KeepAlive,
    Message,
    MessageType,
    ReqRep,
    ReqRepType,
    Routing,
    StatusCode,
    TokenAuth,
    is_success,
)
from penstock.wire.fleximq.payloads import publication, raw_value, wrap_value
from penstock.wire.fleximq.states import BROKER, CLIENT, BrokerState, ClientState

__all__ = [
    "BROKER",
    "CLIENT",
    "ApiKeyAuth",
    "Auth",
    "BadAuth",
    "BadClientId",
    "BadHeader",
    "BadPayload",
    "BasicAuth",
    "BrokerDecoder",
    "BrokerState",
    "ClientDecoder",
    "ClientId",
    "ClientState",
    "FleximqError",
    "Header",
    "InvalidMessage",
    "InvalidRouting",
    "KeepAlive",
    "Message",
    "MessageType",
    "PayloadTooLarge",
    "ReqRep",
    "ReqRepType",
    "Routing",
    "StatusCode",
    "TokenAuth",
    "UnknownType",
    "UnsupportedVersion",
    "encode",
    "encode_header",
    "is_success",
    "parse_header",
    "publication",
    "raw_value",
    "wrap_value",
]
