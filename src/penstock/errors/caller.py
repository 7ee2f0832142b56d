"""Errors that the calling code must act on."""

from penstock.errors.base import CallerError
from penstock.errors.codes import ErrorCode

__all__ = [
    "FieldOutOfRange",
    "InvalidTopicName",
    "NoSuchTopic",
    "TopicHasChannel",
    "TopicTableFull",
    "ValueNotDeliverable",
]


class FieldOutOfRange(CallerError):
    """A value given to an encoder does not fit its field on the wire."""

    code = ErrorCode.FIELD_OUT_OF_RANGE
    template = "{field} is {value}, allowed are {value_min} to {value_max}"

    field: str
    value: int
    value_max: int
    value_min: int = 0


class InvalidTopicName(CallerError):
    """A topic name that is empty, too long, has a wildcard level or ends in a start position."""

    code = ErrorCode.INVALID_TOPIC_NAME
    template = "no topic can be named {name!r}: {reason}"

    name: str
    reason: str = "it is empty or too long, or has a wildcard level"


class NoSuchTopic(CallerError):
    """A topic to be deleted does not exist."""

    code = ErrorCode.NO_SUCH_TOPIC
    template = "there is no topic {name!r}"

    name: str


class TopicHasChannel(CallerError):
    """A topic to be deleted is that of a herald channel, which the configuration sets."""

    code = ErrorCode.TOPIC_HAS_CHANNEL
    template = "topic {name!r} belongs to a herald channel; remove it from [herald.channels]"

    name: str


class TopicTableFull(CallerError):
    """A new topic would exceed a limit of topics, or of their names, of all or of one principal."""

    code = ErrorCode.TOPIC_TABLE_FULL
    template = "no new topic: {limit} of {maximum} is reached; delete topics or raise the limit"

    limit: str
    maximum: int


class ValueNotDeliverable(CallerError):
    """A row was selected for a protocol whose frames cannot carry it."""

    code = ErrorCode.VALUE_NOT_DELIVERABLE
    template = "row {row} cannot be delivered: {reason}"

    row: int
    reason: str
