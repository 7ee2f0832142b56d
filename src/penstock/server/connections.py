"""The connections of a listener: how many there may be, and how they are closed."""

import asyncio
from collections.abc import Callable
from typing import Final, cast

import structlog

from penstock.core.broker import Broker
from penstock.errors import MemoryExhausted
from penstock.gateway.detector import handler_for
from penstock.gateway.options import GatewayOptions
from penstock.limits import SESSIONS_MAX
from penstock.memory import Account, Holder
from penstock.ports import Handler, Link

__all__ = ["BaseListener", "ConnectionLimit", "peer_address"]

log = structlog.get_logger("penstock.listener")

_ABORT_SECONDS: Final = 1.0
"""Time for the event loop to report aborted connections as closed."""


class ConnectionLimit:
    """Limits the number of connections; all listeners of a process may share one."""

    def __init__(self, connections_max: int = SESSIONS_MAX) -> None:
        self.connections_max = connections_max
        self.connections = 0

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return self.connections >= self.connections_max

    def acquire(self) -> bool:
        """Count a new connection; return False if the limit is reached."""
        if self.full:
            return False
        self.connections += 1
        return True

    def release(self) -> None:
        """Count a closed connection."""
        self.connections -= 1


class BaseListener:
    """Base of all listeners: admits, counts and closes connections."""

    own_bytes = 0
    """Memory of one connection above the usual."""
    trusted = False
    """Whether its clients need no handshake and have no share of their address."""

    def __init__(
        self,
        broker: Broker,
        options: GatewayOptions | None,
        connection_limit: ConnectionLimit | None,
    ) -> None:
        self.congested_bytes = broker.settings.out_buffer_bytes_max // 4
        self._broker = broker
        self._options = options or GatewayOptions()
        self._connection_limit = connection_limit or ConnectionLimit()
        self._links: set[Link] = set()
        self._empty = asyncio.Event()

    @property
    def connections(self) -> int:
        """See Listener."""
        return len(self._links)

    def closed(self, link: Link) -> None:
        """Count a closed connection. Transports call this; see their owner protocols."""
        if link in self._links:
            self._links.discard(link)
            self._connection_limit.release()
            if not self._links:
                self._empty.set()

    def failed(self, link: Link, error: Exception) -> None:
        """Log a handler that raised an error. Transports call this; see their owner protocols."""
        self._broker.counters.connections_failed["internal error"] += 1
        log.error("connection failed", connection=link.connection, peer=link.peer, exc_info=error)

    def refused(self, peer: str, reason: str, *, connection: int) -> None:
        """Count and log a refused connection."""
        self._broker.counters.connections_failed[reason] += 1
        log.info("connection refused", connection=connection, peer=peer, reason=reason)

    def admit(self, link: Link, new_handler: Callable[[], Handler]) -> Handler:
        """Return the handler of a new connection; abort it if the limit is reached."""
        if not self._connection_limit.acquire():
            self.refused(link.peer, "too many connections", connection=link.connection)
            link.abort()
            return _REFUSED
        try:
            link.account = self._open_account(link)
        except MemoryExhausted as error:
            self._connection_limit.release()
            self.refused(link.peer, f"no memory ({error.share})", connection=link.connection)
            link.abort()
            return _REFUSED
        self._links.add(link)
        self._empty.clear()
        return new_handler()

    def _open_account(self, link: Link) -> Account:
        """Open the account of a connection; raise MemoryExhausted."""
        if self.trusted:
            account = self._broker.memory.open()
        else:
            account = self._broker.memory.open(
                peer_address(link.peer),
                # The detector of protocols has a copy of the first bytes.
                handshake_bytes_max=2 * self._options.handshake_bytes_max,
                own_bytes=self.own_bytes,
            )
        account.holder = cast("Holder", link)
        return account

    def connected(self, link: Link) -> Handler:
        """Count a new connection; return its first handler."""
        return self.admit(link, lambda: handler_for(self._broker, link, self._options))

    async def end_all(self, seconds_max: float) -> None:
        """Close all connections; abort those that are still open after `seconds_max`."""
        for link in list(self._links):
            link.close()
        if not await self.emptied(seconds_max):
            for link in list(self._links):
                link.abort()
            await self.emptied()

    async def emptied(self, seconds_max: float = _ABORT_SECONDS) -> bool:
        """Wait until all connections are closed; return False after `seconds_max`."""
        if not self._links:
            return True
        try:
            await asyncio.wait_for(self._empty.wait(), seconds_max)
        except TimeoutError:
            return False
        return True


def peer_address(peer: str) -> str:
    """Return the address of a peer: its host, or the path of a socket file."""
    return peer if "/" in peer else peer.rpartition(":")[0] or peer


class _RefusedHandler:
    """The handler of a refused connection: ignores everything."""

    def received(self, data: memoryview) -> int:
        return len(data)

    def ended(self) -> None:
        pass

    def drained(self) -> None:
        pass

    def starved(self) -> None:
        pass

    def lost(self, reason: str) -> None:
        pass


_REFUSED: Final = _RefusedHandler()
