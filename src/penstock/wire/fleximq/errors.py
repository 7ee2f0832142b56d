"""What is wrong with a fleximq message, and the status of section 5.1 that answers it."""

from typing import Any, ClassVar, Self

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

    The arguments of every subclass end in the two that its answer needs: the type of the message
    and its `reqrep.id`, each None where it was not or could not be read. With an id the answer is
    a REP that carries it, without one a NOTIF.
    """

    status: ClassVar[StatusCode]

    @property
    def message_type(self) -> int | None:
        """The type of the faulty message, which may be one that no table has."""
        message_type: int | None = self.args[-2]
        return message_type

    @property
    def reqrep_id(self) -> str | None:
        """The `reqrep.id` of the faulty message."""
        reqrep_id: str | None = self.args[-1]
        return reqrep_id

    def about(self, *, message_type: int, reqrep_id: str | None) -> Self:
        """Return this fault as one of a message with this type and id."""
        fields: tuple[Any, ...] = self.args[:-2]
        return type(self)(*fields, message_type, reqrep_id)


class _Unacceptable(FleximqError):
    """A fault told in words, which never quote what the peer sent."""

    def __init__(
        self, reason: str, message_type: int | None = None, reqrep_id: str | None = None
    ) -> None:
        super().__init__(reason, message_type, reqrep_id)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class UnsupportedVersion(FleximqError):
    """A version other than 1: framing is lost."""

    code = errors.ErrorCode.FLEXIMQ_UNSUPPORTED_VERSION
    status = StatusCode.NOT_IMPLEMENTED

    def __init__(
        self, version: int, message_type: int | None = None, reqrep_id: str | None = None
    ) -> None:
        super().__init__(version, message_type, reqrep_id)
        self.version = version

    def __str__(self) -> str:
        return f"version {self.version} is not supported"


class PayloadTooLarge(FleximqError):
    """A header or a whole message announces more bytes than its limit: framing is lost."""

    code = errors.ErrorCode.FLEXIMQ_PAYLOAD_TOO_LARGE
    status = StatusCode.PAYLOAD_TOO_LARGE

    def __init__(
        self,
        part: str,
        size: int,
        size_max: int,
        message_type: int | None = None,
        reqrep_id: str | None = None,
    ) -> None:
        super().__init__(part, size, size_max, message_type, reqrep_id)
        self.part = part
        self.size = size
        self.size_max = size_max

    def __str__(self) -> str:
        return f"{self.part} of {self.size} bytes exceeds the limit of {self.size_max}"


class UnknownType(FleximqError):
    """A type that section 3.1 does not have, or that this side of a connection never receives."""

    code = errors.ErrorCode.FLEXIMQ_UNKNOWN_TYPE
    status = StatusCode.NOT_IMPLEMENTED

    def __init__(self, message_type: int, reqrep_id: str | None = None) -> None:
        super().__init__(message_type, reqrep_id)

    def __str__(self) -> str:
        return f"unknown message type {self.message_type}"


class BadClientId(FleximqError):
    """A client id that section 4.1.2 does not allow in this message."""

    code = errors.ErrorCode.FLEXIMQ_BAD_CLIENT_ID
    status = StatusCode.BAD_REQUEST

    def __init__(
        self, client_id: int, message_type: int | None = None, reqrep_id: str | None = None
    ) -> None:
        super().__init__(client_id, message_type, reqrep_id)
        self.client_id = client_id

    def __str__(self) -> str:
        return f"client id {self.client_id} is not allowed in this message"


class BadHeader(_Unacceptable):
    """The header is no MessagePack map, or a field is missing, forbidden or wrong."""

    code = errors.ErrorCode.FLEXIMQ_BAD_HEADER
    status = StatusCode.BAD_REQUEST


class InvalidRouting(_Unacceptable):
    """The `routing` field is malformed."""

    code = errors.ErrorCode.FLEXIMQ_INVALID_ROUTING
    status = StatusCode.INVALID_ROUTING


class BadAuth(_Unacceptable):
    """The `auth` field is malformed or of an unsupported type."""

    code = errors.ErrorCode.FLEXIMQ_BAD_AUTH
    status = StatusCode.AUTHENTICATION_FAILED


class BadPayload(_Unacceptable):
    """The payload is neither empty nor one MessagePack value within the caps."""

    code = errors.ErrorCode.FLEXIMQ_BAD_PAYLOAD
    status = StatusCode.BAD_REQUEST


class InvalidMessage(errors.CallerError):
    """A message given to the encoder breaks a rule that a receiver would reject it for."""

    code = errors.ErrorCode.FIELD_OUT_OF_RANGE

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason
