"""Errors of the LamaMQ decoder, each with the error code that answers it."""

from typing import ClassVar

from penstock import errors
from penstock.wire.lamamq.packets import ErrorCode

__all__ = ["BadRequest", "LamaError", "TooLarge"]


class LamaError(errors.WireError):
    """A fault that LamaMQ answers with error `answer` to message `message_id`."""

    answer: ClassVar[ErrorCode]

    message_id: int  # 0 in the handshake, where packets have none


class BadRequest(LamaError):
    """A packet does not follow its layout."""

    code = "lamamq-bad-request"
    answer = ErrorCode.BAD_REQUEST
    template = "bad request: {reason}"

    reason: str


class TooLarge(LamaError):
    """A packet announces more of `part` than its limit: framing is lost.

    `part` names its own unit: "payload bytes", "headers".
    """

    code = errors.ErrorCode.FRAME_TOO_LARGE
    answer = ErrorCode.BAD_REQUEST
    template = "{size} {part} exceed the limit of {size_max}"

    part: str
    size: int
    size_max: int
