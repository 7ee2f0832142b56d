"""Errors of Arrow Flight, and how the broker's errors reach the caller.

An error is sent as a Failure: its code, text and fields. The client raises the class that the
broker raised, with the same fields.
"""

import json
from collections.abc import Iterator
from typing import Final

import msgspec

from penstock import errors
from penstock.errors import (
    AuthenticationFailed,
    CallerError,
    ErrorCode,
    OperatorError,
    PeerError,
    PenstockError,
)
from penstock.flight.protocol import Failure
from penstock.storage import group_offsets as groups

__all__ = [
    "BadRequest",
    "BadRows",
    "EpochDiffers",
    "EpochOutOfOrder",
    "FlightFailed",
    "InternalError",
    "NoAnswer",
    "NotStaged",
    "SinkDamaged",
    "StagedRowsDamaged",
    "StagingFull",
    "TooBusy",
    "failure_of",
    "raised_by",
    "with_failure",
]


class BadRequest(CallerError):
    """A ticket, action or descriptor that is not valid."""

    code = ErrorCode.BAD_REQUEST
    template = "{request}: {problem}"

    request: str
    problem: str


class BadRows(CallerError):
    """Rows that cannot be published; no row of their task was staged."""

    code = ErrorCode.BAD_ROWS
    template = "column {column!r} cannot be published: {problem}"

    column: str
    problem: str


class EpochOutOfOrder(CallerError):
    """An epoch below the last one that the writer has published."""

    code = ErrorCode.EPOCH_OUT_OF_ORDER
    template = (
        "writer {writer!r} has published epoch {last} and now brings {epoch}: "
        "a query with a new checkpoint needs a new writer"
    )

    writer: str
    epoch: int
    last: int


class NotStaged(CallerError):
    """An epoch to publish has a task without staged rows."""

    code = ErrorCode.NOT_STAGED
    template = (
        "partition {partition} of epoch {epoch} of writer {writer!r} is not staged at this broker: "
        "it was staged at another node, or too long ago; write the epoch again"
    )

    writer: str
    epoch: int
    partition: int


class EpochDiffers(CallerError):
    """An epoch that was published in part, and was staged again with other rows."""

    code = ErrorCode.EPOCH_DIFFERS
    template = (
        "the log has {rows} rows of epoch {epoch} of writer {writer!r} that are not staged now: "
        "start the node that began the epoch, with its data folder, "
        "or choose a new writer"
    )

    writer: str
    epoch: int
    rows: int


class StagingFull(PeerError):
    """A limit on staged rows or writers is reached."""

    code = ErrorCode.STAGING_FULL
    template = (
        "writer {writer!r}: the limit of {limit} {what} is reached; "
        "publish or abort what waits, or write less at a time"
    )

    writer: str
    what: str
    limit: int


class SinkDamaged(OperatorError):
    """The state file of a writer cannot be read."""

    code = ErrorCode.SINK_DAMAGED
    template = (
        "{path} cannot be read: {reason}; without the file the writer begins anew, "
        "and what it sends again comes twice"
    )

    path: str
    reason: str


class StagedRowsDamaged(OperatorError):
    """A file of staged rows cannot be read."""

    code = ErrorCode.STAGED_ROWS_DAMAGED
    template = (
        "{path} cannot be read: {reason}; its epoch cannot be published. "
        "Without the folder of the writer, the writer begins anew"
    )

    path: str
    reason: str


class TooBusy(PeerError):
    """Too many calls run at the same time; this one could not start in time."""

    code = ErrorCode.TOO_BUSY
    template = "{reads} such calls run at the same time already; try again later"

    reads: int


class InternalError(OperatorError):
    """A fault of the broker; only its log has the details."""

    code = ErrorCode.INTERNAL_ERROR
    template = "the broker could not answer; its log has the reason, with error id {error_id}"

    error_id: str


class FlightFailed(OperatorError):
    """A call without an answer that can be understood."""

    code = ErrorCode.FLIGHT_FAILED
    template = (
        "no answer by Arrow Flight from {endpoint}: {reason}; "
        "is a broker running there, with [flight] at this address?"
    )

    endpoint: str
    reason: str


class NoAnswer(FlightFailed):
    """The broker is unreachable or disconnected; a later call may succeed."""


def _classes(base: type[PenstockError]) -> Iterator[type[PenstockError]]:
    for each in base.__subclasses__():
        if each.__module__.startswith((errors.__name__, groups.__name__, __name__)):
            yield each
        yield from _classes(each)


_BY_CODE: Final = {
    str(each.code): each for each in _classes(PenstockError) if "code" in each.__dict__
}


_MARK: Final = '{"code":"'
_TEXT_CHARACTERS_MAX: Final = 500


def failure_of(error: PenstockError) -> Failure:
    """Return an error in the form that is sent."""
    if isinstance(error, AuthenticationFailed):  # the reason is not for the client
        error = AuthenticationFailed(error.kind, "")
    fields = [each if isinstance(each, int | str) else str(each) for each in error.args]
    return Failure(error.code, str(error), fields)


def raised_by(data: bytes | None, text: str, *, endpoint: str) -> PenstockError:
    """Return the error of a failed call, from its extra information or else from its text."""
    try:
        failure = msgspec.json.decode(data, type=Failure) if data else _found_in(text)
    except msgspec.MsgspecError:
        failure = None
    if failure is None:
        return FlightFailed(endpoint, text[:_TEXT_CHARACTERS_MAX])
    known = _BY_CODE.get(failure.code)
    if known is not None:
        try:
            return known(*failure.fields)
        except TypeError:  # the broker has another version
            pass
    return FlightFailed(endpoint, failure.text)


def with_failure(error: PenstockError) -> str:
    """Return the text of an error with its Failure, where only text can be sent."""
    return f"{error.code}: {error} {msgspec.json.encode(failure_of(error)).decode()}"


def _found_in(text: str) -> Failure | None:
    """Return the Failure that `with_failure` put into a text, or None."""
    start = text.find(_MARK)
    if start < 0:
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(text[start:])
        return msgspec.convert(value, Failure)
    except (ValueError, msgspec.ValidationError):
        return None
