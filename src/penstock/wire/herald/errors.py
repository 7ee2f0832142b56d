"""What is wrong with a herald frame, by the specification's names."""

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

    code = errors.ErrorCode.HERALD_INVALID_HANDSHAKE
    answer = ErrorCode.INVALID_HANDSHAKE

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"invalid handshake: {self.reason}"


class InvalidOpCode(HeraldError):
    """An operation code that no table has."""

    code = errors.ErrorCode.HERALD_INVALID_OPCODE
    answer = ErrorCode.INVALID_OPCODE

    def __init__(self, opcode: int) -> None:
        super().__init__(opcode)
        self.opcode = opcode

    def __str__(self) -> str:
        return f"invalid operation code 0x{self.opcode:02x}"


class MalformedMessage(HeraldError):
    """The body of a frame does not fit its operation code."""

    code = errors.ErrorCode.HERALD_MALFORMED_MESSAGE
    answer = ErrorCode.MALFORMED_MESSAGE

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"malformed message: {self.reason}"


class MessageTooLarge(HeraldError):
    """A frame announces more than the maximum payload: framing is lost."""

    code = errors.ErrorCode.HERALD_MESSAGE_TOO_LARGE
    answer = ErrorCode.MESSAGE_TOO_LARGE

    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(size, size_max)
        self.size = size
        self.size_max = size_max

    def __str__(self) -> str:
        return f"payload of {self.size} bytes exceeds the limit of {self.size_max}"
