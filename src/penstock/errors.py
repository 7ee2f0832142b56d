"""The base of every error, divided by who must act, and the catalogue of stable codes."""

import enum
from typing import ClassVar

__all__ = [
    "AuthenticationFailed",
    "BadAddress",
    "BadMagic",
    "BrokerFull",
    "CallerError",
    "CannotExport",
    "CannotKeep",
    "CannotListen",
    "CannotRead",
    "CertificateUnusable",
    "ConfigError",
    "ErrorCode",
    "FieldOutOfRange",
    "FrameTooLarge",
    "HookRefused",
    "HookTimeout",
    "InvalidConfig",
    "InvalidHook",
    "InvalidPattern",
    "InvalidTopicName",
    "LogDamaged",
    "LogError",
    "LogFormatTooNew",
    "LogInUse",
    "LogUnavailable",
    "NoHistory",
    "NotAllowed",
    "NotSubscribed",
    "OffsetBelowHorizon",
    "OffsetPastEnd",
    "OperatorError",
    "OutOfSequence",
    "PeerError",
    "PenstockError",
    "TooManyMessages",
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
    TOO_MANY_MESSAGES = "too-many-messages"
    NOT_SUBSCRIBED = "not-subscribed"
    INVALID_HOOK = "invalid-hook"
    HOOK_REFUSED = "hook-refused"
    HOOK_TIMEOUT = "hook-timeout"
    AUTHENTICATION_FAILED = "authentication-failed"
    # The log
    LOG_UNAVAILABLE = "log-unavailable"
    OFFSET_BELOW_HORIZON = "offset-below-horizon"
    OFFSET_PAST_END = "offset-past-end"
    LOG_DAMAGED = "log-damaged"
    NO_HISTORY = "no-history"
    LOG_FORMAT_TOO_NEW = "log-format-too-new"
    LOG_IN_USE = "log-in-use"
    CANNOT_KEEP = "cannot-keep"
    CANNOT_READ = "cannot-read"
    CANNOT_EXPORT = "cannot-export"
    # Arrow Flight
    BAD_REQUEST = "bad-request"
    BAD_ROWS = "bad-rows"
    EPOCH_OUT_OF_ORDER = "epoch-out-of-order"
    NOT_STAGED = "not-staged"
    STAGING_FULL = "staging-full"
    SINK_DAMAGED = "sink-damaged"
    TOO_BUSY = "too-busy"
    FLIGHT_FAILED = "flight-failed"
    # What an operator must set right
    INVALID_CONFIG = "invalid-config"
    CANNOT_LISTEN = "cannot-listen"
    BAD_ADDRESS = "bad-address"
    CERTIFICATE_UNUSABLE = "certificate-unusable"
    # The client library
    UNSUPPORTED = "unsupported"
    INVALID_ADDRESS = "invalid-address"
    BAD_OPTION = "bad-option"
    NOT_A_CHANNEL = "not-a-channel"
    REFUSED = "refused"
    PARTLY_REFUSED = "partly-refused"
    REQUEST_FAILED = "request-failed"
    CLIENT_CLOSED = "client-closed"
    CONNECT_FAILED = "connect-failed"
    CONNECTION_LOST = "connection-lost"
    TIMED_OUT = "timed-out"
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


class TooManyMessages(PeerError):
    """One client sends more messages a second than it may."""

    code = ErrorCode.TOO_MANY_MESSAGES

    def __init__(self, per_second_max: int) -> None:
        super().__init__(per_second_max)
        self.per_second_max = per_second_max

    def __str__(self) -> str:
        return f"the limit of {self.per_second_max} messages a second is exceeded"


class TooManySubscriptions(PeerError):
    """One client has as many subscriptions as it may."""

    code = ErrorCode.TOO_MANY_SUBSCRIPTIONS

    def __init__(self, subscriptions_max: int) -> None:
        super().__init__(subscriptions_max)
        self.subscriptions_max = subscriptions_max

    def __str__(self) -> str:
        return f"the limit of {self.subscriptions_max} subscriptions is reached"


class AuthenticationFailed(PeerError):
    """A client is not who it says it is, or nobody that is known.

    `reason` is for the broker's log: a client must not learn which of the two it was.
    """

    code = ErrorCode.AUTHENTICATION_FAILED

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(kind, reason)
        self.kind = kind
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.kind} refused"


# --- What an operator must set right ----------------------------------------------------------


class LogError(PeerError):
    """The log cannot keep or give what a client asks for."""


class LogUnavailable(LogError):
    """Messages cannot be kept at the moment; nothing of what was sent is."""

    code = ErrorCode.LOG_UNAVAILABLE

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the message cannot be kept: {self.reason}; send it again later"


class OffsetBelowHorizon(LogError):
    """History from there is no longer kept."""

    code = ErrorCode.OFFSET_BELOW_HORIZON

    def __init__(self, offset: int, horizon: int) -> None:
        super().__init__(offset, horizon)
        self.offset = offset
        self.horizon = horizon

    def __str__(self) -> str:
        return f"offset {self.offset} is no longer kept; the first that is kept is {self.horizon}"


class OffsetPastEnd(LogError):
    """There is no message there yet."""

    code = ErrorCode.OFFSET_PAST_END

    def __init__(self, offset: int, end: int) -> None:
        super().__init__(offset, end)
        self.offset = offset
        self.end = end

    def __str__(self) -> str:
        return f"offset {self.offset} is not taken yet; the next message gets {self.end}"


class LogDamaged(LogError):
    """Messages from `offset` up to `resumes_at` cannot be read; history goes on there."""

    code = ErrorCode.LOG_DAMAGED

    def __init__(self, offset: int, resumes_at: int, reason: str) -> None:
        super().__init__(offset, resumes_at, reason)
        self.offset = offset
        self.resumes_at = resumes_at
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"messages {self.offset} to {self.resumes_at - 1} cannot be read: {self.reason}; "
            f"see penstock log verify"
        )


class NoHistory(LogError):
    """A subscription asks for the past of a broker that keeps none."""

    code = ErrorCode.NO_HISTORY

    def __str__(self) -> str:
        return "this broker keeps no log: subscribe without @"


class OperatorError(PenstockError):
    """Who runs the process must act; the text is one line that says how."""


class ConfigError(OperatorError):
    """A setting that is unknown, wrong or missing.

    `source` is the file, environment variable or option it came from, `key` its path in the
    configuration (empty if the whole source is unusable), `problem` what was expected.
    """

    code = ErrorCode.INVALID_CONFIG

    def __init__(self, source: str, key: str, problem: str) -> None:
        super().__init__(source, key, problem)
        self.source = source
        self.key = key
        self.problem = problem

    def __str__(self) -> str:
        return ": ".join(part for part in (self.source, self.key, self.problem) if part)


class InvalidConfig(ConfigError):
    """A configuration with one or more problems; its own fields are those of the first."""

    def __init__(self, *problems: ConfigError) -> None:
        first = problems[0]
        super().__init__(first.source, first.key, first.problem)
        self.args = problems
        self.problems = problems

    def __str__(self) -> str:
        return "; ".join(map(str, self.problems))


class CannotListen(OperatorError):
    """An address that clients should connect to cannot be had."""

    code = ErrorCode.CANNOT_LISTEN

    def __init__(self, url: str, reason: str, remedy: str) -> None:
        super().__init__(url, reason, remedy)
        self.url = url
        self.reason = reason
        self.remedy = remedy

    def __str__(self) -> str:
        return f"cannot listen on {self.url}: {self.reason}; {self.remedy}"


class BadAddress(OperatorError):
    """A listener's URL that cannot be read, or that asks for what its scheme has not."""

    code = ErrorCode.BAD_ADDRESS

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(url, problem)
        self.url = url
        self.problem = problem

    def __str__(self) -> str:
        return f"address {self.url!r}: {self.problem}"


class CertificateUnusable(OperatorError):
    """A certificate or its key that TLS cannot be served with."""

    code = ErrorCode.CERTIFICATE_UNUSABLE

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return f"TLS file {self.path}: {self.problem}"


# --- What middleware says to a client ---------------------------------------------------------


class LogFormatTooNew(OperatorError):
    """Data of a later Penstock; reading it as if it were ours could lose it."""

    code = ErrorCode.LOG_FORMAT_TOO_NEW

    def __init__(self, path: str, found: int, known: int) -> None:
        super().__init__(path, found, known)
        self.path = path
        self.found = found
        self.known = known

    def __str__(self) -> str:
        return (
            f"{self.path} has log format {self.found}, this Penstock knows up to {self.known}: "
            f"use the version that wrote it, or a later one"
        )


class CannotKeep(OperatorError):
    """A folder in which no log can be kept."""

    code = ErrorCode.CANNOT_KEEP

    def __init__(self, folder: str, reason: str) -> None:
        super().__init__(folder, reason)
        self.folder = folder
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot keep messages in {self.folder}: {self.reason}; give another with --data"


class CannotRead(OperatorError):
    """A folder or file in which there is no log that can be read."""

    code = ErrorCode.CANNOT_READ

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot read a log in {self.path}: {self.reason}; give a broker's --data folder"


class CannotExport(OperatorError):
    """A file that messages cannot be exported to."""

    code = ErrorCode.CANNOT_EXPORT

    def __init__(
        self, path: str, reason: str, remedy: str = "give a file in a folder that is there"
    ) -> None:
        super().__init__(path, reason, remedy)
        self.path = path
        self.reason = reason
        self.remedy = remedy

    def __str__(self) -> str:
        return f"cannot export to {self.path}: {self.reason}; {self.remedy}"


class LogInUse(OperatorError):
    """Two brokers must not write one log."""

    code = ErrorCode.LOG_IN_USE

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.folder = folder

    def __str__(self) -> str:
        return f"another process writes the log in {self.folder}: stop it, or give --data"


class NotSubscribed(PeerError):
    """A subscription cannot be taken back by one that does not have it."""

    code = ErrorCode.NOT_SUBSCRIBED

    def __init__(self, pattern: str) -> None:
        super().__init__(pattern)
        self.pattern = pattern

    def __str__(self) -> str:
        return f"there is no subscription to {self.pattern[:200]!r}"


class InvalidHook(PeerError):
    """A hook that cannot be registered, or is not there to be unregistered."""

    code = ErrorCode.INVALID_HOOK

    def __init__(self, hook: str, reason: str) -> None:
        super().__init__(hook, reason)
        self.hook = hook
        self.reason = reason

    def __str__(self) -> str:
        return f"hook {self.hook!r}: {self.reason}"


class HookRefused(PeerError):
    """A middleware does not let this happen; `reason` is in its own words, and may be empty."""

    code = ErrorCode.HOOK_REFUSED

    def __init__(self, hook: str, reason: str) -> None:
        super().__init__(hook, reason)
        self.hook = hook
        self.reason = reason

    def __str__(self) -> str:
        return self.reason or f"refused by hook {self.hook!r}"


class HookTimeout(PeerError):
    """A middleware whose consent is needed gave no answer."""

    code = ErrorCode.HOOK_TIMEOUT

    def __init__(self, hook: str) -> None:
        super().__init__(hook)
        self.hook = hook

    def __str__(self) -> str:
        return f"hook {self.hook!r} gave no answer"
