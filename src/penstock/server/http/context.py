"""The parts of a running broker that HTTP handlers use."""

import dataclasses
import time
from asyncio import BaseTransport
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Final

from penstock.core.broker import Broker
from penstock.core.quotas import Quota
from penstock.ports import Storage
from penstock.server.flight.read_counts import ReadCounts
from penstock.server.group_lag import GroupLag
from penstock.server.http.schemas import Group
from penstock.server.http.shared_read import SharedRead
from penstock.server.recent_refusals import RefusalCount
from penstock.storage.memory import MemoryLog

__all__ = ["CHANGED", "MESSAGE_KEY", "PEER", "TRACE_PARENT", "TRANSPORT", "HttpContext"]

PEER: Final[ContextVar[str]] = ContextVar("peer", default="")
"""Address of the client whose request is being answered: host and port."""
CHANGED: Final[ContextVar[list[str] | None]] = ContextVar("changed", default=None)
"""Names of the things that the current request has changed, if its act may change several."""
TRANSPORT: Final[ContextVar[BaseTransport | None]] = ContextVar("transport", default=None)
"""Transport of the connection whose request is being answered."""
MESSAGE_KEY: Final[ContextVar[str | None]] = ContextVar("message_key", default=None)
"""`Idempotency-Key` of the request that is being answered."""

TRACE_PARENT: Final[ContextVar[str | None]] = ContextVar("trace_parent", default=None)
"""`traceparent` of the request that is being answered."""


@dataclasses.dataclass(slots=True)
class HttpContext:
    """State that HTTP handlers share. The event loop's thread owns it."""

    broker: Broker
    storage: Storage = dataclasses.field(default_factory=MemoryLog)
    connections: Callable[[], int] = lambda: 0
    """Returns the number of connections of all listeners."""
    flight_reads: ReadCounts = dataclasses.field(default_factory=ReadCounts)
    starting: bool = False
    stopping: bool = False
    draining: bool = False
    """Whether the broker stops because of a request over HTTP."""
    drain: Callable[[float | None], float] | None = None
    """Begins a drain of so many seconds, None for the configured ones, which it returns. Only the
    owner of a process sets it: the drain ends with the process."""
    started_at: float = dataclasses.field(default_factory=time.time)
    """Seconds since the epoch."""
    requests: dict[int, int] = dataclasses.field(default_factory=dict)
    """Answered HTTP requests, by the first digit of their status."""
    readiness_checks: list[Callable[[], str | None]] = dataclasses.field(default_factory=list)
    """Further checks of other parts, such as memory; each returns a problem, or None."""
    certificates: Callable[[], Mapping[str, float]] = dict
    """Returns when the certificate of each listener expires, in seconds since the epoch."""
    reloaded_at: float = dataclasses.field(default_factory=time.time)
    """When the configuration was read last, in seconds since the epoch."""
    reload_succeeded: bool = True
    """Whether that configuration was valid."""
    refusals: Callable[[], list[RefusalCount]] = list
    """Returns the last refusals, the newest first."""
    connections_max: Callable[[], int] = lambda: 0
    """Returns the limit of connections."""
    connections_lowered: Callable[[], bool] = lambda: False
    """Returns whether that is less than configured, because of the limit of open files."""
    quotas: Callable[[], list[Quota]] = list
    """Returns the quotas of all principals."""
    client: int = 0
    """Client number of messages published over HTTP; 0 until the first one."""

    group_lag: GroupLag = dataclasses.field(init=False)
    group_reads: SharedRead[list[Group]] = dataclasses.field(default_factory=SharedRead)
    """Reads the states of all consumer groups."""

    def __post_init__(self) -> None:
        self.group_lag = GroupLag(self.storage)

    def not_ready(self) -> str | None:
        """Return why the broker is not ready for clients, None if it is."""
        if self.starting:
            return "not all listeners take clients yet"
        if self.draining:
            return "the broker is draining"
        if self.stopping:
            return "the broker is stopping"
        problem = self.storage.problem
        if problem is not None:
            return f"messages cannot be kept: {problem}"
        problem = self.storage.follow_problem
        if problem is not None:
            return f"messages of other nodes are not read: {problem}"
        found = (check() for check in self.readiness_checks)
        return next((each for each in found if each is not None), None)
