"""What is wrong with a LamaMQ packet, and the answer it gets."""

from typing import ClassVar

from penstock import errors
from penstock.wire.lamamq.packets import ErrorCode

__all__ = ["BadRequest", "LamaError", "TooLarge"]


class LamaError(errors.WireError):
    """A fault that LamaMQ answers with error `answer` to message `message_id`.

    The id is 0 in the handshake, where packets have none.
    """

    answer: ClassVar[ErrorCode]
    message_id: int


class BadRequest(LamaError):
    """A packet does not follow its layout."""

    code = errors.ErrorCode.LAMAMQ_BAD_REQUEST
    answer = ErrorCode.BAD_REQUEST

    def __init__(self, message_id: int, reason: str) -> None:
        super().__init__(message_id, reason)
        self.message_id = message_id
        self.reason = reason

    def __str__(self) -> str:
        return f"bad request: {self.reason}"


class TooLarge(LamaError):
    """A packet announces more of `part` than its limit: framing is lost.

    `part` names its own unit: "payload bytes", "headers".
    """

    code = errors.ErrorCode.FRAME_TOO_LARGE
    answer = ErrorCode.BAD_REQUEST

    def __init__(self, message_id: int, part: str, size: int, size_max: int) -> None:
        super().__init__(message_id, part, size, size_max)
        self.message_id = message_id
        self.part = part
        self.size = size
        self.size_max = size_max

    def __str__(self) -> str:
        return f"{self.size} {self.part} exceed the limit of {self.size_max}"
