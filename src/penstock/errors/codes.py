"""The catalogue of error codes."""

import enum

__all__ = ["ErrorCode"]


class ErrorCode(enum.StrEnum):
    """Stable name of an error in logs, metrics and tests. The text may change, the code may not."""

    # Any protocol
    BAD_MAGIC = "bad-magic"
    FRAME_TOO_LARGE = "frame-too-large"
    OUT_OF_SEQUENCE = "out-of-sequence"
    UNRECOGNISED_PROTOCOL = "unrecognised-protocol"
    FIELD_OUT_OF_RANGE = "field-out-of-range"
    INVALID_TOPIC_NAME = "invalid-topic-name"
    TOPIC_TABLE_FULL = "topic-table-full"
    VALUE_NOT_DELIVERABLE = "value-not-deliverable"
    # Refused by the broker
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
    STAGED_ROWS_DAMAGED = "staged-rows-damaged"
    TOO_BUSY = "too-busy"
    FLIGHT_FAILED = "flight-failed"
    INTERNAL_ERROR = "internal-error"
    # Settings and resources of the broker process
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
    # MessagePack
    MESSAGEPACK_MALFORMED = "messagepack-malformed"
    MESSAGEPACK_TOO_DEEP = "messagepack-too-deep"
    MESSAGEPACK_TOO_MANY_ELEMENTS = "messagepack-too-many-elements"
    MESSAGEPACK_STRING_TOO_LONG = "messagepack-string-too-long"
