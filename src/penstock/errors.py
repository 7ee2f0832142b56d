"""The base of every error, divided by who must act, and the catalogue of stable codes."""

import enum
from typing import ClassVar

__all__ = [
    "BadMagic",
    "BrokerFull",
    "CallerError",
    "ErrorCode",
    "FieldOutOfRange",
    "FrameTooLarge",
    "InvalidPattern",
    "InvalidTopicName",
    "NotAllowed",
    "OutOfSequence",
    "PeerError",
    "PenstockError",
    "TooManySubscriptions",
    "TopicTableFull",
    "UnrecognisedProtocol",
    "ValueNotDeliverable",
    "WireError",
]


class ErrorCode(enum.StrEnum):
    """Stable codes: logs, metrics and tests name an error by these, never by its text."""

    # Any protocol
    BAD_MAGIC = "bad-magic"
    FRAME_TOO_LARGE = "frame-too-large"
    OUT_OF_SEQUENCE = "out-of-sequence"
    UNRECOGNISED_PROTOCOL = "unrecognised-protocol"
    FIELD_OUT_OF_RANGE = "field-out-of-range"
    INVALID_TOPIC_NAME = "invalid-topic-name"
    TOPIC_TABLE_FULL = "topic-table-full"
    VALUE_NOT_DELIVERABLE = "value-not-deliverable"
    # The broker's own refusals
    INVALID_PATTERN = "invalid-pattern"
    NOT_ALLOWED = "not-allowed"
    BROKER_FULL = "broker-full"
    TOO_MANY_SUBSCRIPTIONS = "too-many-subscriptions"
    # Rheos, by the specifications' names
    RHEOS_CORRUPTED_DATA = "rheos-corrupted-data"
    RHEOS_INVALID_OPERATION = "rheos-invalid-operation"
    RHEOS_TRANSLATION_ERROR = "rheos-translation-error"
    RHEOS_CORRUPTED_TOPIC = "rheos-corrupted-topic"
    RHEOS_DUPLICATE_TOPIC = "rheos-duplicate-topic"
    RHEOS_TOPIC_NOT_FOUND = "rheos-topic-not-found"
    # herald, by the specification's names
    HERALD_INVALID_HANDSHAKE = "herald-invalid-handshake"
    HERALD_INVALID_OPCODE = "herald-invalid-opcode"
    HERALD_MALFORMED_MESSAGE = "herald-malformed-message"
    HERALD_MESSAGE_TOO_LARGE = "herald-message-too-large"
    # fleximq: each answers with a status of section 5.1
    FLEXIMQ_UNSUPPORTED_VERSION = "fleximq-unsupported-version"
    FLEXIMQ_UNKNOWN_TYPE = "fleximq-unknown-type"
    FLEXIMQ_BAD_HEADER = "fleximq-bad-header"
    FLEXIMQ_BAD_PAYLOAD = "fleximq-bad-payload"
    FLEXIMQ_BAD_AUTH = "fleximq-bad-auth"
    FLEXIMQ_INVALID_ROUTING = "fleximq-invalid-routing"
    FLEXIMQ_BAD_CLIENT_ID = "fleximq-bad-client-id"
    FLEXIMQ_PAYLOAD_TOO_LARGE = "fleximq-payload-too-large"
    # LamaMQ, by the specification's names
    LAMAMQ_SERVER_EXCEPTION = "lamamq-server-exception"
    LAMAMQ_BAD_REQUEST = "lamamq-bad-request"
    # MessagePack
    MESSAGEPACK_MALFORMED = "messagepack-malformed"
    MESSAGEPACK_TOO_DEEP = "messagepack-too-deep"
    MESSAGEPACK_TOO_MANY_ELEMENTS = "messagepack-too-many-elements"
    MESSAGEPACK_STRING_TOO_LONG = "messagepack-string-too-long"


class PenstockError(Exception):
    """Anything Penstock raises on purpose."""

    code: ClassVar[ErrorCode]


class PeerError(PenstockError):
    """The other end of a connection must act."""


class CallerError(PenstockError):
    """The code that called us must act."""


class WireError(PeerError):
    """Bytes from a peer that its protocol does not allow."""


class BadMagic(WireError):
    """A frame does not start as its protocol says: framing is lost."""

    code = ErrorCode.BAD_MAGIC

    def __init__(self, found: bytes, *expected: bytes) -> None:
        super().__init__(found, *expected)
        self.found = found
        self.expected = expected

    def __str__(self) -> str:
        expected = " or ".join(magic.hex(" ") for magic in self.expected)
        return f"frame starts with {self.found.hex(' ')}, expected {expected}"


class FrameTooLarge(WireError):
    """A frame, or a part of it, announces more bytes than its limit: framing is lost."""

    code = ErrorCode.FRAME_TOO_LARGE

    def __init__(self, part: str, size: int, size_max: int) -> None:
        super().__init__(part, size, size_max)
        self.part = part
        self.size = size
        self.size_max = size_max

    def __str__(self) -> str:
        return f"{self.part} of {self.size} bytes exceeds the limit of {self.size_max}"


class OutOfSequence(WireError):
    """A packet that is well formed came in a state that does not allow it."""

    code = ErrorCode.OUT_OF_SEQUENCE

    def __init__(self, state: str, packet: str) -> None:
        super().__init__(state, packet)
        self.state = state
        self.packet = packet

    def __str__(self) -> str:
        return f"{self.packet} is not allowed in state {self.state}"


class UnrecognisedProtocol(WireError):
    """The first bytes of a connection belong to none of the protocols it may speak."""

    code = ErrorCode.UNRECOGNISED_PROTOCOL

    def __init__(self, first_bytes: bytes, reason: str) -> None:
        super().__init__(first_bytes, reason)
        self.first_bytes = first_bytes
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.reason} (first bytes: {self.first_bytes.hex(' ')})"


class FieldOutOfRange(CallerError):
    """A value given to an encoder does not fit its field on the wire."""

    code = ErrorCode.FIELD_OUT_OF_RANGE

    def __init__(self, field: str, value: int, value_max: int, value_min: int = 0) -> None:
        super().__init__(field, value, value_max, value_min)
        self.field = field
        self.value = value
        self.value_max = value_max
        self.value_min = value_min

    def __str__(self) -> str:
        return f"{self.field} is {self.value}, allowed are {self.value_min} to {self.value_max}"


class InvalidTopicName(CallerError):
    """Nothing can be published under this name: it is empty, too long or has a wildcard level."""

    code = ErrorCode.INVALID_TOPIC_NAME

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"no topic can be named {self.name!r}"


class TopicTableFull(CallerError):
    """The process knows as many topics as it may."""

    code = ErrorCode.TOPIC_TABLE_FULL

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.capacity = capacity

    def __str__(self) -> str:
        return f"the limit of {self.capacity} topics is reached"


class ValueNotDeliverable(CallerError):
    """A row was selected for a protocol whose frames cannot carry it."""

    code = ErrorCode.VALUE_NOT_DELIVERABLE

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(row, reason)
        self.row = row
        self.reason = reason

    def __str__(self) -> str:
        return f"row {self.row} cannot be delivered: {self.reason}"


class InvalidPattern(PeerError):
    """A subscription that can match nothing: empty, too long, or going on behind `#` or `>`."""

    code = ErrorCode.INVALID_PATTERN

    def __init__(self, pattern: str) -> None:
        super().__init__(pattern)
        self.pattern = pattern

    def __str__(self) -> str:
        return f"nothing can be subscribed to by {self.pattern!r}"


class NotAllowed(PeerError):
    """The rules of a principal do not allow this."""

    code = ErrorCode.NOT_ALLOWED

    def __init__(self, principal: str, action: str, topic: str) -> None:
        super().__init__(principal, action, topic)
        self.principal = principal
        self.action = action
        self.topic = topic

    def __str__(self) -> str:
        return f"{self.principal} may not {self.action} to {self.topic!r}"


class BrokerFull(PeerError):
    """As many clients are connected as the broker takes."""

    code = ErrorCode.BROKER_FULL

    def __init__(self, sessions: int) -> None:
        super().__init__(sessions)
        self.sessions = sessions

    def __str__(self) -> str:
        return f"the limit of {self.sessions} clients is reached"


class TooManySubscriptions(PeerError):
    """One client has as many subscriptions as it may."""

    code = ErrorCode.TOO_MANY_SUBSCRIPTIONS

    def __init__(self, subscriptions_max: int) -> None:
        super().__init__(subscriptions_max)
        self.subscriptions_max = subscriptions_max

    def __str__(self) -> str:
        return f"the limit of {self.subscriptions_max} subscriptions is reached"
