"""Errors that the calling code must act on."""

from penstock.errors.base import CallerError
from penstock.errors.codes import ErrorCode

__all__ = [
    "FieldOutOfRange",
    "InvalidTopicName",
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
    """A topic name that is empty, too long or has a wildcard level."""

    code = ErrorCode.INVALID_TOPIC_NAME
    template = "no topic can be named {name!r}"

    name: str


class TopicTableFull(CallerError):
    """The process has reached its limit of topics."""

    code = ErrorCode.TOPIC_TABLE_FULL
    template = "the limit of {capacity} topics is reached"

    capacity: int


class ValueNotDeliverable(CallerError):
    """A row was selected for a protocol whose frames cannot carry it."""

    code = ErrorCode.VALUE_NOT_DELIVERABLE
    template = "row {row} cannot be delivered: {reason}"

    row: int
    reason: str
