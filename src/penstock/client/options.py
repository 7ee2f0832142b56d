"""What a caller may say about a connection, checked."""

import dataclasses
import enum
import ssl
from collections.abc import Callable
from typing import Required, TypeAlias, TypedDict

from penstock.client.errors import BadOption, Unsupported
from penstock.protocols import Protocol

__all__ = [
    "Backoff",
    "ClientEvent",
    "ConnectOptions",
    "Credentials",
    "ErrorReported",
    "Observer",
    "Options",
    "ProtocolName",
    "State",
    "StateChanged",
]

ProtocolName: TypeAlias = str
"""The label of a protocol: rheos1, rheos2, fleximq, herald and so on."""


class State(enum.Enum):
    """Where a client is; `client.state` has the table of legal moves."""

    NEW = enum.auto()
    CONNECTING = enum.auto()
    CONNECTED = enum.auto()
    RECONNECTING = enum.auto()
    CLOSED = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True)
class StateChanged:
    """The client is in another state now; `reason` says why where a connection ended."""

    state: State
    reason: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class ErrorReported:
    """An error that no call waits for: a publish refused without an answer, a broken handler."""

    error: Exception


ClientEvent: TypeAlias = StateChanged | ErrorReported
Observer: TypeAlias = Callable[[ClientEvent], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before the next attempt to connect again.

    The wait starts at `seconds_min`, grows by `factor` up to `seconds_max`, and is then cut at
    random by up to the share `jitter`. After `attempts_max` attempts in a row (None: never) the
    client gives up and closes.
    """

    seconds_min: float = 0.1
    seconds_max: float = 10.0
    factor: float = 2.0
    jitter: float = 0.5
    attempts_max: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.seconds_min <= self.seconds_max:
            raise BadOption("backoff", "needs 0 <= seconds_min <= seconds_max")
        if self.factor < 1 or not 0 <= self.jitter <= 1:
            raise BadOption("backoff", "needs factor >= 1 and 0 <= jitter <= 1")

    def seconds(self, attempt: int, chance: float) -> float:
        """Return the wait before attempt `attempt` (from 0); `chance` is from 0 to 1."""
        # Beyond this many steps every growth has reached its bound, and a float its end.
        grown = self.seconds_min * self.factor ** min(attempt, 64)
        return min(grown, self.seconds_max) * (1 - self.jitter * chance)


@dataclasses.dataclass(frozen=True, slots=True)
class Credentials:
    """How a client says who it is. What is secret is never shown.

    `name` is herald's client id and LamaMQ's identity name, and what a Rheos client id is made of.
    """

    name: str | None = None
    token: str | None = dataclasses.field(default=None, repr=False)
    username: str | None = None
    password: str | None = dataclasses.field(default=None, repr=False)
    api_key: str | None = dataclasses.field(default=None, repr=False)
    key: bytes | None = dataclasses.field(default=None, repr=False)

    def check(self, protocol: Protocol) -> None:
        """Raise Unsupported for what the protocol cannot carry, BadOption for what is half said."""
        for option in ("token", "username", "password", "api_key", "key"):
            if getattr(self, option) is not None and option not in protocol.credentials:
                raise Unsupported(protocol.label, f"{option}= credentials")
        if (self.username is None) is not (self.password is None):
            raise BadOption("username", "and password belong together")
        if sum(part is not None for part in (self.token, self.username, self.api_key)) > 1:
            raise BadOption("credentials", "are one of token, username with password and api_key")


class ConnectOptions(TypedDict, total=False):
    """The keywords of `connect`."""

    protocol: Required[ProtocolName | Protocol]
    name: str | None
    token: str | None
    username: str | None
    password: str | None
    api_key: str | None
    key: bytes | str | None
    tls: ssl.SSLContext | None
    timeout: float
    queue_max: int
    requests_max: int
    reconnect: bool
    backoff: Backoff | None
    keepalive: float | None
    on_event: Observer | None


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """How a client behaves. Times are in seconds.

    `queue_max` bounds the deliveries that wait in one subscription: at that many the socket is
    read no more.
    """

    credentials: Credentials = Credentials()
    tls: ssl.SSLContext | None = None
    timeout: float = 30.0
    queue_max: int = 1024
    requests_max: int = 256
    reconnect: bool = True
    backoff: Backoff = Backoff()
    keepalive: float | None = 30.0
    on_event: Observer | None = None

    def __post_init__(self) -> None:
        for option in ("timeout", "queue_max", "requests_max", "keepalive"):
            value = getattr(self, option)
            if value is not None and value <= 0:
                raise BadOption(option, f"is {value}, not above 0")
