"""Conformance cases: a rule of a specification and the steps that check it."""

import dataclasses
import enum
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Concatenate, Final, Generic, ParamSpec

from penstock.conform.context import CaseContext

__all__ = ["Case", "CaseCollector", "Setup", "Suite"]

Rest = ParamSpec("Rest")


class Setup(enum.StrEnum):
    """A server configuration that a case needs; `SETUP_DESCRIPTIONS` explains each."""

    ALLOW_LIST = "allow-list"
    CHANNELS = "channels"
    CREDENTIALS = "credentials"
    HISTORY = "history"
    HOOKS = "hooks"
    KEEPALIVE = "keepalive"
    LOG = "log"
    NO_ECHO = "no-echo"
    ONE_SESSION = "one-session"
    PINNED = "pinned"
    PROGRAM = "program"
    RATE = "rate"
    REQUEST_TIMEOUT = "request-timeout"
    REQUIRED_HOOKS = "required-hooks"
    RESTART = "restart"
    RULES = "rules"
    SHARED = "shared"
    SHORT_HANDSHAKE = "short-handshake"
    SLOW_MIDDLEWARE = "slow-middleware"
    STRICT = "strict"
    SUBSCRIPTIONS = "subscriptions"
    UDP = "udp"
    WEBSOCKET = "websocket"

    @property
    def description(self) -> str:
        """The server that cases with this setup need."""
        return SETUP_DESCRIPTIONS[self]


SETUP_DESCRIPTIONS: Final[Mapping[Setup, str]] = MappingProxyType(
    {
        Setup.ALLOW_LIST: (
            "a server whose clients may only publish to out/#, subscribe to in/# and do both "
            "with the topic both"
        ),
        Setup.CHANNELS: (
            "a server with the herald channels 1, 2 and 3 alone, where clients may not "
            "publish to 1 or subscribe to 2"
        ),
        Setup.CREDENTIALS: "a server that accepts no client without credentials",
        Setup.HISTORY: "a server with a log on a disk",
        Setup.HOOKS: "a server that has no middleware of its own, and no other clients",
        Setup.KEEPALIVE: "a server that pings clients after 0.25 s of silence",
        Setup.LOG: "a new server with log id 0190a3b4c5d6, partition 3 and no messages",
        Setup.NO_ECHO: "a server that does not send messages back to their publisher",
        Setup.ONE_SESSION: "a server that accepts one client at a time",
        Setup.PINNED: "a port that serves this protocol alone, in network byte order",
        Setup.PROGRAM: (
            "a program of the server at this address, which passes on all bytes between its "
            "standard streams and one client"
        ),
        Setup.RATE: "a server that accepts 10 messages a second from a client",
        Setup.REQUEST_TIMEOUT: "a server where requests time out after 0.25 s",
        Setup.REQUIRED_HOOKS: (
            "a server without middleware, where messages to guarded/# need its consent"
        ),
        Setup.RESTART: "a server with a log on a disk that the case can restart",
        Setup.RULES: (
            "a server whose clients, called guest, may not publish to secret/# or channel/1, "
            "nor subscribe to hidden/#"
        ),
        Setup.SHARED: "a port that serves all five protocols and detects which one a client uses",
        Setup.SHORT_HANDSHAKE: "a server that closes connections without a handshake after 0.5 s",
        Setup.SLOW_MIDDLEWARE: (
            "a server that closes connections without a handshake after 0.5 s, and whose "
            "middleware takes longer to accept a client; it serves UDP at the same port too"
        ),
        Setup.STRICT: "a fleximq server that holds JOIN to the header table of section 2.2.3",
        Setup.SUBSCRIPTIONS: "a server that grants a client two subscriptions",
        Setup.UDP: "a server that also serves UDP, at a port of the same number",
        Setup.WEBSOCKET: "a server at a ws: or wss: address",
    }
)


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A rule and its steps, which raise Failed, from `peer`, where the server breaks it.

    `section` is the place of the rule in the specification. With `profile` the specification
    leaves the point open and the rule is Penstock's decision. `requires` is the setup that the
    server must have; None means any server of the protocol.
    """

    name: str
    section: str
    rule: str
    steps: Callable[[CaseContext], None]
    profile: bool = False
    requires: Setup | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Suite:
    """All cases of a protocol, in the order in which they run.

    `enter` connects a client; it raises Skipped, from `peer`, where the server refuses it.
    """

    label: str
    cases: tuple[Case, ...]
    enter: Callable[[CaseContext], object]


@dataclasses.dataclass(frozen=True, slots=True)
class _Row(Generic[Rest]):
    section: str
    rule: str
    steps: Callable[Concatenate[CaseContext, Rest], None]
    profile: bool
    requires: Setup | None


class CaseCollector(Generic[Rest]):
    """Collects the cases of a module; each is named after its function."""

    def __init__(self) -> None:
        self._rows: list[_Row[Rest]] = []

    def rule(
        self, section: str, rule: str, *, requires: Setup | None = None
    ) -> Callable[
        [Callable[Concatenate[CaseContext, Rest], None]],
        Callable[Concatenate[CaseContext, Rest], None],
    ]:
        """Make a function a case of the specification."""
        return self._add(section, rule, profile=False, requires=requires)

    def profile(
        self, section: str, rule: str, *, requires: Setup | None = None
    ) -> Callable[
        [Callable[Concatenate[CaseContext, Rest], None]],
        Callable[Concatenate[CaseContext, Rest], None],
    ]:
        """Make a function a case of Penstock's profile."""
        return self._add(section, rule, profile=True, requires=requires)

    def _add(
        self, section: str, rule: str, *, profile: bool, requires: Setup | None
    ) -> Callable[
        [Callable[Concatenate[CaseContext, Rest], None]],
        Callable[Concatenate[CaseContext, Rest], None],
    ]:
        def add(
            steps: Callable[Concatenate[CaseContext, Rest], None],
        ) -> Callable[Concatenate[CaseContext, Rest], None]:
            self._rows.append(_Row(section, rule, steps, profile, requires))
            return steps

        return add

    def cases(self, *rest: Rest.args, **named: Rest.kwargs) -> tuple[Case, ...]:
        """Return the cases; the arguments are passed to each of them."""

        def bound(
            steps: Callable[Concatenate[CaseContext, Rest], None],
        ) -> Callable[[CaseContext], None]:
            return lambda context: steps(context, *rest, **named)

        return tuple(
            Case(
                row.steps.__name__.strip("_").replace("_", "-"),
                row.section,
                row.rule,
                bound(row.steps),
                row.profile,
                row.requires,
            )
            for row in self._rows
        )
