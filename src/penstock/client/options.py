"""Options of a client connection, and their validation."""

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
    """The state of a client; `client.state` has the table of legal transitions."""

    NEW = enum.auto()
    CONNECTING = enum.auto()
    CONNECTED = enum.auto()
    RECONNECTING = enum.auto()
    CLOSED = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True)
class StateChanged:
    """The client has changed its state; `reason` says why a connection ended."""

    state: State
    reason: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class ErrorReported:
    """An error that no call can raise: of an unacknowledged publish, or of a handler."""

    error: Exception


ClientEvent: TypeAlias = StateChanged | ErrorReported
Observer: TypeAlias = Callable[[ClientEvent], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Backoff:
    """The delay before each attempt to reconnect.

    The delay starts at `seconds_min` and grows by `factor` up to `seconds_max`. It is then reduced
    by a random share of up to `jitter`. After `attempts_max` failed attempts in a row the client
    closes; None means no limit.
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
        """Return the delay before attempt `attempt` (from 0); `chance` is random, from 0 to 1."""
        # Beyond 64 steps the delay has reached its maximum, and a float would overflow.
        grown = self.seconds_min * self.factor ** min(attempt, 64)
        return min(grown, self.seconds_max) * (1 - self.jitter * chance)


@dataclasses.dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of a client. Secrets are left out of its repr.

    `name` is herald's client id and LamaMQ's identity name. A Rheos client id is derived from it.
    """

    name: str | None = None
    token: str | None = dataclasses.field(default=None, repr=False)
    username: str | None = None
    password: str | None = dataclasses.field(default=None, repr=False)
    api_key: str | None = dataclasses.field(default=None, repr=False)
    key: bytes | None = dataclasses.field(default=None, repr=False)

    def check(self, protocol: Protocol) -> None:
        """Raise Unsupported for credentials the protocol lacks, BadOption for incomplete ones."""
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
    """Options of a client. Times are in seconds.

    `queue_max` limits the deliveries that wait in one subscription. At the limit the client stops
    reading the socket.
    """

    credentials: Credentials = Credentials()
    tls: ssl.SSLContext | None = None
    timeout: float = 30.0
    queue_max: int = 1024
    requests_max: int = 256
    reconnect: bool = True
    backoff: Backoff = Backoff()
    keepalive: float | None = 10.0
    on_event: Observer | None = None

    def __post_init__(self) -> None:
        for option in ("timeout", "queue_max", "requests_max", "keepalive"):
            value = getattr(self, option)
            if value is not None and value <= 0:
                raise BadOption(option, f"is {value}, not above 0")
