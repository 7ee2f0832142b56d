"""What can go wrong for a client, divided by who must act."""

from penstock.errors import CallerError, ErrorCode, PeerError
from penstock.protocols import Protocol

__all__ = [
    "BadOption",
    "ClientClosed",
    "ConnectFailed",
    "ConnectionLost",
    "InvalidAddress",
    "NotAChannel",
    "PartlyRefused",
    "Refused",
    "RequestFailed",
    "TimedOut",
    "TlsFailed",
    "Unreachable",
    "Unsupported",
    "Untrusted",
]


class Unsupported(CallerError):
    """The protocol of this client does not have this operation."""

    code = ErrorCode.UNSUPPORTED

    def __init__(self, protocol: str, operation: str) -> None:
        super().__init__(protocol, operation)
        self.protocol = protocol
        self.operation = operation

    def __str__(self) -> str:
        return f"{self.protocol} has no {self.operation}"


class InvalidAddress(CallerError):
    """The address given to `connect` cannot be connected to."""

    code = ErrorCode.INVALID_ADDRESS

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, reason)
        self.address = address
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.address!r}: {self.reason}"


class BadOption(CallerError):
    """An option given to `connect` has a value that it cannot have."""

    code = ErrorCode.BAD_OPTION

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(option, reason)
        self.option = option
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.option} {self.reason}"


class NotAChannel(CallerError):
    """herald knows channels only: `7` or `"channel/7"`, from 0 to 255."""

    code = ErrorCode.NOT_A_CHANNEL

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return f"{self.topic!r} is no herald channel; those are 0 to 255, or 'channel/0' and so on"


class Refused(CallerError):
    """The broker, or who a request was for, answered no.

    `answer` is the number the protocol answers with: fleximq's status, herald's and LamaMQ's error
    code, 1 for Rheos' FAILED. `reply` is the payload of a fleximq answer, as MessagePack.
    """

    code = ErrorCode.REFUSED

    def __init__(self, protocol: Protocol, answer: int, text: str, reply: bytes = b"") -> None:
        super().__init__(protocol, answer, text, reply)
        self.protocol = protocol
        self.answer = answer
        self.text = text
        self.reply = reply

    @property
    def retriable(self) -> bool:
        """Whether the same may succeed later without anyone changing anything."""
        return self.answer in self.protocol.retriable

    def __str__(self) -> str:
        return f"refused with {self.protocol.label} answer {self.answer}: {self.text}"


class PartlyRefused(CallerError):
    """Some values of `publish_many` were refused: `refusals` has (index, Refused) of each."""

    code = ErrorCode.PARTLY_REFUSED

    def __init__(self, refusals: tuple[tuple[int, Refused], ...], count: int) -> None:
        super().__init__(refusals, count)
        self.refusals = refusals
        self.count = count

    def __str__(self) -> str:
        index, first = self.refusals[0]
        return f"{len(self.refusals)} of {self.count} values refused, value {index}: {first}"


class RequestFailed(CallerError):
    """Raised by a handler of `serve` to answer with a status and a payload of its choice."""

    code = ErrorCode.REQUEST_FAILED

    def __init__(self, status: int, payload: object = None) -> None:
        super().__init__(status, payload)
        self.status = status
        self.payload = payload

    def __str__(self) -> str:
        return f"request failed with status {self.status}"


class ClientClosed(CallerError):
    """The client was closed, or never opened."""

    code = ErrorCode.CLIENT_CLOSED

    def __init__(self) -> None:
        super().__init__()

    def __str__(self) -> str:
        return "the client is not open"


class ConnectFailed(PeerError):
    """No connection came about. Itself, none of its heirs: the other side ended the handshake."""

    code = ErrorCode.CONNECT_FAILED

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, reason)
        self.address = address
        self.reason = reason

    def __str__(self) -> str:
        return f"no connection to {self.address}: {self.reason}"


class Unreachable(ConnectFailed):
    """Nothing answers there."""


class TlsFailed(ConnectFailed):
    """Something answers there, but not in TLS."""

    def __str__(self) -> str:
        return f"no connection to {self.address}: TLS failed: {self.reason}"


class Untrusted(TlsFailed):
    """The certificate of the other side is not one to trust."""


class ConnectionLost(PeerError):
    """The connection ended before the answer came: whether it was done is not known."""

    code = ErrorCode.CONNECTION_LOST

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the connection was lost: {self.reason}"


class TimedOut(PeerError, TimeoutError):
    """No answer came in time: whether it was done is not known."""

    code = ErrorCode.TIMED_OUT

    def __init__(self, operation: str, seconds: float) -> None:
        super().__init__(operation, seconds)
        self.operation = operation
        self.seconds = seconds

    def __str__(self) -> str:
        return f"{self.operation} got no answer within {self.seconds:g} s"
