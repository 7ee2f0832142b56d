"""What can go wrong for a client, divided by who must act."""

from typing import Final

from penstock.errors import CallerError, ErrorCode, PeerError
from penstock.model import Protocol

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

_RETRIABLE: Final = frozenset(
    {
        (Protocol.FLEXIMQ, 429),
        (Protocol.FLEXIMQ, 503),
        (Protocol.FLEXIMQ, 605),
        (Protocol.HERALD, 4),  # RATE_LIMIT_EXCEEDED
        (Protocol.LAMAMQ, 1),  # Server Exception
        (Protocol.LAMAMQ, 3),  # middleware timeout
    }
)


class Unsupported(CallerError):
    """The protocol of this client does not have this operation."""

    code = ErrorCode.UNSUPPORTED
    template = "{protocol} has no {operation}"

    protocol: str
    operation: str


class InvalidAddress(CallerError):
    """The address given to `connect` cannot be connected to."""

    code = ErrorCode.INVALID_ADDRESS
    template = "{address!r}: {reason}"

    address: str
    reason: str


class BadOption(CallerError):
    """An option given to `connect` has a value that it cannot have."""

    code = ErrorCode.BAD_OPTION
    template = "{option} {reason}"

    option: str
    reason: str


class NotAChannel(CallerError):
    """herald knows channels only: `7` or `"channel/7"`, from 0 to 255."""

    code = ErrorCode.NOT_A_CHANNEL
    template = "{topic!r} is no herald channel; those are 0 to 255, or 'channel/0' and so on"

    topic: str


class Refused(CallerError):
    """The broker, or who a request was for, answered no.

    `answer` is the number the protocol answers with: fleximq's status, herald's and LamaMQ's error
    code, 1 for Rheos' FAILED. `reply` is the payload of a fleximq answer, as MessagePack.
    """

    code = ErrorCode.REFUSED
    template = "refused with {protocol.label} answer {answer}: {text}"

    protocol: Protocol
    answer: int
    text: str
    reply: bytes = b""

    @property
    def retriable(self) -> bool:
        """Whether the same may succeed later without anyone changing anything."""
        return (self.protocol, self.answer) in _RETRIABLE


class PartlyRefused(CallerError):
    """Some values of `publish_many` were refused: `refusals` has (index, Refused) of each."""

    code = ErrorCode.PARTLY_REFUSED

    refusals: tuple[tuple[int, Refused], ...]
    count: int

    def __str__(self) -> str:
        index, first = self.refusals[0]
        return f"{len(self.refusals)} of {self.count} values refused, value {index}: {first}"


class RequestFailed(CallerError):
    """Raised by a handler of `serve` to answer with a status and a payload of its choice."""

    code = ErrorCode.REQUEST_FAILED
    template = "request failed with status {status}"

    status: int
    payload: object = None


class ClientClosed(CallerError):
    """The client was closed, or never opened."""

    code = ErrorCode.CLIENT_CLOSED
    template = "the client is not open"


class ConnectFailed(PeerError):
    """No connection came about. Itself, none of its heirs: the other side ended the handshake."""

    code = ErrorCode.CONNECT_FAILED
    template = "no connection to {address}: {reason}"

    address: str
    reason: str


class Unreachable(ConnectFailed):
    """Nothing answers there."""


class TlsFailed(ConnectFailed):
    """Something answers there, but not in TLS."""

    template = "no connection to {address}: TLS failed: {reason}"


class Untrusted(TlsFailed):
    """The certificate of the other side is not one to trust."""


class ConnectionLost(PeerError):
    """The connection ended before the answer came: whether it was done is not known."""

    code = ErrorCode.CONNECTION_LOST
    template = "the connection was lost: {reason}"

    reason: str


class TimedOut(PeerError, TimeoutError):
    """No answer came in time: whether it was done is not known."""

    code = ErrorCode.TIMED_OUT
    template = "{operation} got no answer within {seconds:g} s"

    operation: str
    seconds: float
