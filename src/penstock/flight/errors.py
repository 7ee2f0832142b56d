"""Errors of Arrow Flight calls, and their encoding between broker and client.

An error is sent as a Failure: its code, and the fields of its class. The client raises the same
class with the same fields.
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
    "EpochOutOfOrder",
    "FlightFailed",
    "NoAnswer",
    "NotStaged",
    "SinkDamaged",
    "StagingFull",
    "TooBusy",
    "failure_of",
    "raised_by",
    "with_failure",
]


class BadRequest(CallerError):
    """A ticket, action or descriptor that is not valid."""

    code = ErrorCode.BAD_REQUEST

    def __init__(self, request: str, problem: str) -> None:
        super().__init__(request, problem)
        self.request = request
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.request}: {self.problem}"


class BadRows(CallerError):
    """Rows that cannot be published; no row of their task was staged."""

    code = ErrorCode.BAD_ROWS

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(column, problem)
        self.column = column
        self.problem = problem

    def __str__(self) -> str:
        return f"column {self.column!r} cannot be published: {self.problem}"


class EpochOutOfOrder(CallerError):
    """An epoch below the last one that the writer has published."""

    code = ErrorCode.EPOCH_OUT_OF_ORDER

    def __init__(self, writer: str, epoch: int, last: int) -> None:
        super().__init__(writer, epoch, last)
        self.writer = writer
        self.epoch = epoch
        self.last = last

    def __str__(self) -> str:
        return (
            f"writer {self.writer!r} has published epoch {self.last} and now brings {self.epoch}: "
            f"a query with a new checkpoint needs a new writer"
        )


class NotStaged(CallerError):
    """An epoch to publish has a task without staged rows."""

    code = ErrorCode.NOT_STAGED

    def __init__(self, writer: str, epoch: int, partition: int) -> None:
        super().__init__(writer, epoch, partition)
        self.writer = writer
        self.epoch = epoch
        self.partition = partition

    def __str__(self) -> str:
        return (
            f"partition {self.partition} of epoch {self.epoch} of writer {self.writer!r} "
            f"was not put aside, or too long ago: write it again"
        )


class StagingFull(PeerError):
    """A limit on staged rows or writers is reached."""

    code = ErrorCode.STAGING_FULL

    def __init__(self, writer: str, what: str, limit: int) -> None:
        super().__init__(writer, what, limit)
        self.writer = writer
        self.what = what
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"writer {self.writer!r}: the limit of {self.limit} {self.what} is reached; "
            f"publish or abort what waits, or write less at a time"
        )


class SinkDamaged(OperatorError):
    """The state file of a writer cannot be read."""

    code = ErrorCode.SINK_DAMAGED

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.path} cannot be read: {self.reason}; without the file the writer begins anew, "
            f"and what it sends again comes twice"
        )


class TooBusy(PeerError):
    """Too many ranges are being read; this one could not start in time."""

    code = ErrorCode.TOO_BUSY

    def __init__(self, reads: int) -> None:
        super().__init__(reads)
        self.reads = reads

    def __str__(self) -> str:
        return f"{self.reads} ranges are read at the same time already; try again later"


class FlightFailed(OperatorError):
    """A call without an answer that can be understood."""

    code = ErrorCode.FLIGHT_FAILED

    def __init__(self, endpoint: str, reason: str) -> None:
        super().__init__(endpoint, reason)
        self.endpoint = endpoint
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"no answer by Arrow Flight from {self.endpoint}: {self.reason}; "
            f"is a broker running there, with [flight] at this address?"
        )


class NoAnswer(FlightFailed):
    """The broker is unreachable or disconnected; a later call may succeed."""


def _classes(base: type[PenstockError]) -> Iterator[type[PenstockError]]:
    for each in base.__subclasses__():
        if each.__module__ in {errors.__name__, groups.__name__, __name__}:
            yield each
        yield from _classes(each)


_BY_CODE: Final = {
    str(each.code): each for each in _classes(PenstockError) if "code" in each.__dict__
}


_MARK: Final = '{"code":"'
_TEXT_CHARACTERS_MAX: Final = 500


def failure_of(error: PenstockError) -> Failure:
    """Return the Failure of an error."""
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
