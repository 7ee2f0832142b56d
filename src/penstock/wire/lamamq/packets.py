"""The packets of LamaMQ as frozen values, and the numbers of its tables.

Names and texts are UTF-8 strings; header values and payloads are bytes that nothing interprets.
"""

import dataclasses
import enum
from typing import Final, TypeAlias

from penstock.middleware import Condition, HasHeader, HeaderIs, HookStrategy, HookType, TopicIs

__all__ = [
    "BROKER_ID_BIT",
    "Answer",
    "Authentication",
    "Condition",
    "ConditionType",
    "ErrorCode",
    "Forward",
    "FromBroker",
    "FromClient",
    "HasHeader",
    "HeaderIs",
    "HookStrategy",
    "HookType",
    "Message",
    "MessageType",
    "Packet",
    "PayloadType",
    "Push",
    "Register",
    "Subscribe",
    "TopicIs",
    "Unregister",
    "Unsubscribe",
    "Version",
    "VersionChoice",
    "VersionOffer",
]

BROKER_ID_BIT: Final = 0x8000_0000
"""Set in the id of every message the broker starts, clear in those our client starts."""

Version: TypeAlias = tuple[int, int]
"""Major and minor."""


class MessageType(enum.IntEnum):
    """Message codes of the specification's section "Messages"."""

    PUSH = 0
    FORWARD = 1
    SUBSCRIBE = 32
    UNSUBSCRIBE = 33
    REGISTER = 64
    UNREGISTER = 65


class ErrorCode(enum.IntEnum):
    """Error codes of an answer; 0 is no error. The last two are Penstock's own."""

    SERVER_EXCEPTION = 1
    BAD_REQUEST = 2
    MIDDLEWARE_TIMEOUT = 3
    MIDDLEWARE_REFUSED = 4


class PayloadType(enum.IntEnum):
    """What a message carries behind its headers."""

    EMPTY = 0
    STRING = 1
    BUFFER = 2


class ConditionType(enum.IntEnum):
    """The kinds of condition a MESSAGE_PUSHED hook may have."""

    TOPIC_IS = 0
    HEADER_IS = 4
    HAS_HEADER = 5


# --- Handshake --------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Authentication:
    """A client introduces itself; the key, where it sends one, is never shown."""

    name: str
    key: bytes | None = dataclasses.field(default=None, repr=False)
    method: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class VersionOffer:
    """The broker's answer to an authentication it accepts."""

    maximum: Version
    minimum: Version


@dataclasses.dataclass(frozen=True, slots=True)
class VersionChoice:
    """The version the client will speak."""

    major: int
    minor: int


# --- Messages ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """What is pushed and forwarded; `created_at` is the emitter's, in seconds since the epoch."""

    created_at: int
    routing_key: str
    headers: tuple[tuple[str, bytes], ...]
    payload_type: PayloadType
    payload: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Push:
    """A message for the broker."""

    message_id: int
    message: Message


@dataclasses.dataclass(frozen=True, slots=True)
class Forward:
    """A message from the broker: a delivery or a hook call."""

    message_id: int
    message: Message


@dataclasses.dataclass(frozen=True, slots=True)
class Subscribe:
    """Ask for the messages of a routing key, which may hold wildcards."""

    message_id: int
    routing_key: str


@dataclasses.dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Ask for the messages of a routing key no more."""

    message_id: int
    routing_key: str


@dataclasses.dataclass(frozen=True, slots=True)
class Register:
    """Make the sender a middleware; `conditions`, of MESSAGE_PUSHED only, must all hold."""

    message_id: int
    hook_name: str
    priority: int
    timeout_ms: int
    strategy: HookStrategy
    hook_type: HookType
    conditions: tuple[Condition, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Unregister:
    """Remove a middleware."""

    message_id: int
    hook_name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """The answer to the message of that id: `error` is None for success, then `text` is empty."""

    message_id: int
    error: ErrorCode | None = None
    text: str = ""


FromClient: TypeAlias = (
    Authentication
    | VersionChoice
    | Push
    | Forward
    | Subscribe
    | Unsubscribe
    | Register
    | Unregister
    | Answer
)
"""What a broker reads. A Forward is well formed there, but the table of states forbids it."""

FromBroker: TypeAlias = VersionOffer | Forward | Answer
"""What a client reads."""

Packet: TypeAlias = FromClient | FromBroker
