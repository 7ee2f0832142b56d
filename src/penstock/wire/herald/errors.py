"""Errors of the herald decoder, by the specification's names."""

from typing import ClassVar

from penstock import errors
from penstock.wire.herald.packets import ErrorCode

__all__ = [
    "HeraldError",
    "InvalidHandshake",
    "InvalidOpCode",
    "MalformedMessage",
    "MessageTooLarge",
]


class HeraldError(errors.WireError):
    """A fault that herald answers with an ERROR frame carrying `answer`."""

    answer: ClassVar[ErrorCode]


class InvalidHandshake(HeraldError):
    """The body of a handshake does not fit its layout."""

    code = "herald-invalid-handshake"
    answer = ErrorCode.INVALID_HANDSHAKE
    template = "invalid handshake: {reason}"

    reason: str


class InvalidOpCode(HeraldError):
    """An operation code that the specification does not define."""

    code = "herald-invalid-opcode"
    answer = ErrorCode.INVALID_OPCODE
    template = "invalid operation code 0x{opcode:02x}"

    opcode: int


class MalformedMessage(HeraldError):
    """The body of a frame does not fit its operation code."""

    code = "herald-malformed-message"
    answer = ErrorCode.MALFORMED_MESSAGE
    template = "malformed message: {reason}"

    reason: str


class MessageTooLarge(HeraldError):
    """A frame announces more than the maximum payload: framing is lost."""

    code = "herald-message-too-large"
    answer = ErrorCode.MESSAGE_TOO_LARGE
    template = "payload of {size} bytes exceeds the limit of {size_max}"

    size: int
    size_max: int
