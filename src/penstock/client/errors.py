"""Errors of the client library."""

from penstock.errors import CallerError, ErrorCode, PeerError
from penstock.protocols import Protocol

__all__ = [
    "BadOption",
    "ClientClosed",
    "ConnectFailed",
    "ConnectionLost",
    "InvalidAddress",
    "InvalidValue",
    "NotAChannel",
    "NotResumed",
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
    """The client's protocol does not have this operation."""

    code = ErrorCode.UNSUPPORTED
    template = "{protocol} has no {operation}"

    protocol: str
    operation: str


class InvalidAddress(CallerError):
    """The address given to `connect` is malformed or not for clients."""

    code = ErrorCode.INVALID_ADDRESS
    template = "{address!r}: {reason}"

    address: str
    reason: str


class BadOption(CallerError):
    """An option has an invalid value."""

    code = ErrorCode.BAD_OPTION
    template = "{option} {reason}"

    option: str
    reason: str


class InvalidValue(CallerError):
    """A value to publish is not of a type that can be sent. Nothing was sent."""

    code = ErrorCode.INVALID_VALUE
    template = "value {index} is of type {type}, not bytes; {advice}"

    index: int
    type: str
    advice: str


class NotAChannel(CallerError):
    """The topic is not a herald channel: `7` or `"channel/7"`, from 0 to 255."""

    code = ErrorCode.NOT_A_CHANNEL
    template = "{topic!r} is no herald channel; those are 0 to 255, or 'channel/0' and so on"

    topic: str


class NotResumed(PeerError):
    """A subscription goes on after a reconnect, but messages before may be missing."""

    code = ErrorCode.NOT_RESUMED
    template = "{topic!r} goes on, but messages may be missing: {reason}"

    topic: str
    reason: str


class Refused(CallerError):
    """The broker, or the client that served a request, refused it."""

    code = ErrorCode.REFUSED
    template = "refused with {protocol.label} answer {answer}: {text}"

    protocol: Protocol
    answer: int  # fleximq status, herald or LamaMQ error code, 1 for FAILED of Rheos
    text: str
    reply: bytes = b""  # payload of a fleximq answer, as MessagePack
    says_retriable: bool = False  # FAILED of Rheos with the message id for this

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later, or at another node, unchanged."""
        return self.says_retriable or self.answer in self.protocol.retriable


class PartlyRefused(CallerError):
    """Some values of `publish_many` were refused."""

    code = ErrorCode.PARTLY_REFUSED

    refusals: tuple[tuple[int, Refused], ...]  # with the index of each refused value
    count: int  # of all values

    def __str__(self) -> str:
        index, first = self.refusals[0]
        return f"{len(self.refusals)} of {self.count} values refused, value {index}: {first}"


class RequestFailed(CallerError):
    """Raised by a handler of `serve` to answer with this status and payload."""

    code = ErrorCode.REQUEST_FAILED
    template = "request failed with status {status}"

    status: int
    payload: object = None


class ClientClosed(CallerError):
    """The client was closed, or never opened."""

    code = ErrorCode.CLIENT_CLOSED
    template = "the client is not open"


class ConnectFailed(PeerError):
    """No connection was made. This class itself: the broker ended the handshake."""

    code = ErrorCode.CONNECT_FAILED
    template = "no connection to {address}: {reason}"

    address: str
    reason: str


class Unreachable(ConnectFailed):
    """No server answers at the address."""


class TlsFailed(ConnectFailed):
    """A server answers, but the TLS handshake failed."""

    template = "no connection to {address}: TLS failed: {reason}"


class Untrusted(TlsFailed):
    """The server's certificate is not trusted."""


class ConnectionLost(PeerError):
    """The connection ended before the answer came. The outcome of the request is unknown."""

    code = ErrorCode.CONNECTION_LOST
    template = "the connection was lost: {reason}"

    reason: str


class TimedOut(PeerError, TimeoutError):
    """No answer came in time. The outcome of the request is unknown."""

    code = ErrorCode.TIMED_OUT
    template = "{operation} got no answer within {seconds:g} s"

    operation: str
    seconds: float
