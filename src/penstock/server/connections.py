"""The connections of a listener: counted in, counted out, ended together."""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from penstock.core.broker import Broker
from penstock.gateway.detector import handler_for
from penstock.gateway.options import GatewayOptions
from penstock.limits import SESSIONS_MAX
from penstock.ports import Handler, Link

__all__ = ["ConnectionKeeper", "Turnstile"]

log = structlog.get_logger("penstock.listener")

_ABORT_SECONDS: Final = 1.0
"""For the loop to notice that aborted connections are gone."""


class Turnstile:
    """Counts connections; all listeners of a process may share one."""

    def __init__(self, connections_max: int = SESSIONS_MAX) -> None:
        self.connections_max = connections_max
        self.connections = 0

    @property
    def full(self) -> bool:
        """Whether one more would be too many."""
        return self.connections >= self.connections_max

    def enter(self) -> bool:
        """Count one in; tell whether there was room."""
        if self.full:
            return False
        self.connections += 1
        return True

    def leave(self) -> None:
        """Count one out."""
        self.connections -= 1


class ConnectionKeeper:
    """What all listeners do alike with their connections."""

    def __init__(
        self, broker: Broker, options: GatewayOptions | None, turnstile: Turnstile | None
    ) -> None:
        self.congested_bytes = broker.settings.out_buffer_bytes_max // 4
        self._broker = broker
        self._options = options or GatewayOptions()
        self._turnstile = turnstile or Turnstile()
        self._links: set[Link] = set()
        self._empty = asyncio.Event()

    @property
    def connections(self) -> int:
        """See Listener."""
        return len(self._links)

    def closed(self, link: Link) -> None:
        """Take note that a connection is gone; see the owners that transports ask for."""
        if link in self._links:
            self._links.discard(link)
            self._turnstile.leave()
            if not self._links:
                self._empty.set()

    def failed(self, link: Link, error: Exception) -> None:
        """Take note that a connection's handler broke; see the owners that transports ask for."""
        self._broker.counters.connections_failed["internal error"] += 1
        log.error("connection failed", connection=link.connection, peer=link.peer, exc_info=error)

    def refused(self, peer: str, reason: str, *, connection: int) -> None:
        """Count a connection that is not wanted."""
        self._broker.counters.connections_failed[reason] += 1
        log.info("connection refused", connection=connection, peer=peer, reason=reason)

    def admit(self, link: Link, new_handler: Callable[[], Handler]) -> Handler:
        """Take note of a new connection and return its handler, if there is room for it."""
        if not self._turnstile.enter():
            self.refused(link.peer, "too many connections", connection=link.connection)
            link.abort()
            return _NOBODY
        self._links.add(link)
        self._empty.clear()
        return new_handler()

    def connected(self, link: Link) -> Handler:
        """Count a new connection; return its first handler."""
        return self.admit(link, lambda: handler_for(self._broker, link, self._options))

    async def end_all(self, seconds_max: float) -> None:
        """Close all connections, and abort those that are not gone in time."""
        for link in list(self._links):
            link.close()
        if not await self.emptied(seconds_max):
            for link in list(self._links):
                link.abort()
            await self.emptied()

    async def emptied(self, seconds_max: float = _ABORT_SECONDS) -> bool:
        """Wait until no connection is left; tell whether that came in time."""
        if not self._links:
            return True
        try:
            await asyncio.wait_for(self._empty.wait(), seconds_max)
        except TimeoutError:
            return False
        return True


class _Nobody:
    """The handler of a connection that was not let in."""

    def received(self, data: memoryview) -> int:
        return len(data)

    def ended(self) -> None:
        pass

    def drained(self) -> None:
        pass

    def lost(self, reason: str) -> None:
        pass


_NOBODY: Final = _Nobody()
