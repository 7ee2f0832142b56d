"""Errors of the fleximq codec, each with the status of section 5.1 that answers it."""

from typing import ClassVar, Self

from penstock import errors
from penstock.wire.fleximq.packets import StatusCode

__all__ = [
    "BadAuth",
    "BadClientId",
    "BadHeader",
    "BadPayload",
    "FleximqError",
    "InvalidMessage",
    "InvalidRouting",
    "PayloadTooLarge",
    "UnknownType",
    "UnsupportedVersion",
]


class FleximqError(errors.WireError):
    """A fault that fleximq answers with `status`.

    The last two fields of every subclass are those that the answer needs: `message_type` and
    `reqrep_id`, each None if it was not or could not be read. With an id the answer is a REP that
    carries it, without one a NOTIF.
    """

    status: ClassVar[StatusCode]

    @property
    def message_type(self) -> int | None:
        """Type of the faulty message; it may be one that section 3.1 does not define."""
        message_type: int | None = self.args[-2]
        return message_type

    @property
    def reqrep_id(self) -> str | None:
        """`reqrep.id` of the faulty message."""
        reqrep_id: str | None = self.args[-1]
        return reqrep_id

    def about(self, *, message_type: int, reqrep_id: str | None) -> Self:
        """Return this error with the type and id of the faulty message."""
        return type(self)(*self.args[:-2], message_type, reqrep_id)


class _Unacceptable(FleximqError):
    """A fault described by `reason`, which never quotes bytes of the peer."""

    template = "{reason}"

    reason: str
    message_type: int | None = None
    reqrep_id: str | None = None


class UnsupportedVersion(FleximqError):
    """A version other than 1: framing is lost."""

    code = "fleximq-unsupported-version"
    status = StatusCode.NOT_IMPLEMENTED
    template = "version {version} is not supported"

    version: int
    message_type: int | None = None
    reqrep_id: str | None = None


class PayloadTooLarge(FleximqError):
    """A header or a whole message announces more bytes than its limit: framing is lost."""

    code = "fleximq-payload-too-large"
    status = StatusCode.PAYLOAD_TOO_LARGE
    template = "{part} of {size} bytes exceeds the limit of {size_max}"

    part: str
    size: int
    size_max: int
    message_type: int | None = None
    reqrep_id: str | None = None


class UnknownType(FleximqError):
    """A type that section 3.1 does not define, or that this side never receives."""

    code = "fleximq-unknown-type"
    status = StatusCode.NOT_IMPLEMENTED
    template = "unknown message type {message_type}"

    message_type: int
    reqrep_id: str | None = None


class BadClientId(FleximqError):
    """A client id that section 4.1.2 does not allow in this message."""

    code = "fleximq-bad-client-id"
    status = StatusCode.BAD_REQUEST
    template = "client id {client_id} is not allowed in this message"

    client_id: int
    message_type: int | None = None
    reqrep_id: str | None = None


class BadHeader(_Unacceptable):
    """The header is not a MessagePack map, or a field is missing, forbidden or wrong."""

    code = "fleximq-bad-header"
    status = StatusCode.BAD_REQUEST


class InvalidRouting(_Unacceptable):
    """The `routing` field is malformed."""

    code = "fleximq-invalid-routing"
    status = StatusCode.INVALID_ROUTING


class BadAuth(_Unacceptable):
    """The `auth` field is malformed or of an unsupported type."""

    code = "fleximq-bad-auth"
    status = StatusCode.AUTHENTICATION_FAILED


class BadPayload(_Unacceptable):
    """The payload is neither empty nor one MessagePack value within the limits."""

    code = "fleximq-bad-payload"
    status = StatusCode.BAD_REQUEST


class InvalidMessage(errors.CallerError):
    """A message given to the encoder breaks a rule of the specification."""

    code = errors.ErrorCode.FIELD_OUT_OF_RANGE
    template = "{reason}"

    reason: str
