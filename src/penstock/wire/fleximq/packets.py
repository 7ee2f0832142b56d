"""The message of fleximq as frozen values, and the numbers of its tables.

Section 2.1, all integers big-endian:

    0         1      2           6          22              26
    ┌─────────┬──────┬───────────┬──────────┬───────────────┬──────────┬────────────────┬──────────┐
    │ version │ type │ client id │ reserved │ header length │ header   │ payload length │ payload  │
    │ u8      │ u8   │ u32       │ 16 bytes │ u32           │ (length) │ u64            │ (length) │
    └─────────┴──────┴───────────┴──────────┴───────────────┴──────────┴────────────────┴──────────┘

Header and payload are MessagePack (section 7.4): a map, and any one value; both may be empty.
"""

import dataclasses
import enum
import struct
from collections.abc import Callable
from typing import Final, TypeAlias

__all__ = [
    "BASE",
    "MESSAGE_BYTES_MIN",
    "PAYLOAD_LENGTH",
    "VERSION",
    "ApiKeyAuth",
    "Auth",
    "BasicAuth",
    "ClientId",
    "Header",
    "KeepAlive",
    "Message",
    "MessageType",
    "ReqRep",
    "ReqRepType",
    "Routing",
    "StatusCode",
    "TokenAuth",
    "frame_size",
    "is_success",
]

VERSION: Final = 1
BASE: Final = struct.Struct(">BBI16xI")
"""Version, type, client id, reserved bytes (written as zero, skipped when read), header length."""
PAYLOAD_LENGTH: Final = struct.Struct(">Q")


def frame_size(peek: Callable[[int], bytes]) -> int:
    """Return the size of a frame, whose first bytes `peek` returns."""
    header_bytes: int = BASE.unpack(peek(BASE.size))[-1]
    payload_start = BASE.size + header_bytes + PAYLOAD_LENGTH.size
    (payload_bytes,) = PAYLOAD_LENGTH.unpack(peek(payload_start)[-PAYLOAD_LENGTH.size :])
    return int(payload_start + payload_bytes)


MESSAGE_BYTES_MIN: Final = BASE.size + PAYLOAD_LENGTH.size
"""Section 7.1: 34 bytes, a message with neither header nor payload."""


class MessageType(enum.IntEnum):
    """Section 3.1."""

    JOIN = 0
    REQ = 1
    REP = 2
    NOTIF = 3
    BCAST = 4
    PUB = 5
    SUB = 6
    UNSUB = 7
    PING = 8
    PONG = 9


class ClientId(enum.IntEnum):
    """The client ids with a fixed meaning in section 4.1.1."""

    UNASSIGNED = 0
    BROKER = 1
    DYNAMIC_MIN = 1000
    DYNAMIC_MAX = 4_294_967_294
    RESERVED_MAX = 4_294_967_295


class StatusCode(enum.IntEnum):
    """Section 5.1. A status on the wire may be any number."""

    # 5.1.1 Success
    OK = 200
    CREATED = 201
    ACCEPTED = 202
    NO_CONTENT = 204
    # 5.1.2 Client errors
    BAD_REQUEST = 400
    UNAUTHORIZED = 401
    FORBIDDEN = 403
    NOT_FOUND = 404
    METHOD_NOT_ALLOWED = 405
    REQUEST_TIMEOUT = 408
    CONFLICT = 409
    PAYLOAD_TOO_LARGE = 413
    TOO_MANY_REQUESTS = 429
    # 5.1.3 Server errors
    INTERNAL_SERVER_ERROR = 500
    NOT_IMPLEMENTED = 501
    BAD_GATEWAY = 502
    SERVICE_UNAVAILABLE = 503
    GATEWAY_TIMEOUT = 504
    # 5.1.4 Protocol errors
    CLIENT_NOT_FOUND = 600
    TOPIC_NOT_FOUND = 601
    INVALID_ROUTING = 602
    SUBSCRIPTION_FAILED = 603
    AUTHENTICATION_FAILED = 604
    JOIN_REJECTED = 605


def is_success(status: int | None) -> bool:
    """Return whether `status` reports success; a REP without status does (section 5.1)."""
    return status is None or 200 <= status <= 299


class ReqRepType(enum.StrEnum):
    """Type of a `reqrep` object: of a request or of its response."""

    REQUEST = "request"
    CORRELATION = "correlation"


@dataclasses.dataclass(frozen=True, slots=True)
class Routing:
    """One destination; `path` is for its application. A REP without path has ""."""

    client_id: int
    path: str


@dataclasses.dataclass(frozen=True, slots=True)
class ReqRep:
    """Correlation of a response with its request."""

    type: ReqRepType
    id: str


@dataclasses.dataclass(frozen=True, slots=True)
class TokenAuth:
    """Section 5.2.1."""

    token: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class BasicAuth:
    """Section 5.2.2."""

    username: str
    password: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class ApiKeyAuth:
    """Section 5.2.3."""

    api_key: str = dataclasses.field(repr=False)


Auth: TypeAlias = TokenAuth | BasicAuth | ApiKeyAuth


@dataclasses.dataclass(frozen=True, slots=True)
class KeepAlive:
    """Section 3.7: `timestamp` in ms since the epoch; PING may suggest an `interval` in s."""

    timestamp: int
    interval: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Header:
    """Section 2.2.1, in its order; an absent field is None.

    `dedupe` is an addition of Penstock: the key of a PUB, for deduplication.
    """

    routing: tuple[Routing, ...] | None = None
    reqrep: ReqRep | None = None
    topic: str | None = None
    status: int | None = None
    auth: Auth | None = None
    keepalive: KeepAlive | None = None
    dedupe: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """One message of any type; `payload` is empty or the bytes of one MessagePack value."""

    type: MessageType
    client_id: int
    header: Header = Header()
    payload: bytes = b""
