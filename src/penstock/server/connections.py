"""The connections of a listener: how many there may be, and how they are closed."""

import asyncio
import itertools
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol, cast

import structlog

from penstock.core.broker import Broker
from penstock.errors import MemoryExhausted
from penstock.gateway.detector import handler_for
from penstock.gateway.options import GatewayOptions
from penstock.limits import EVICTION_SEARCH_MAX, MEMORY_TLS_BYTES, SESSIONS_MAX
from penstock.memory import Account
from penstock.memory import Holder as MemoryHolder
from penstock.ports import Handler, Link
from penstock.transport.tls import TlsSettings

__all__ = ["BaseListener", "ConnectionLimit", "Holder", "SocketLink", "peer_address"]

log = structlog.get_logger("penstock.listener")

_ABORT_SECONDS: Final = 1.0
"""Time for the event loop to report aborted connections as closed."""


class Holder(Protocol):
    """A socket that is counted."""

    @property
    def connection(self) -> int:
        """The connection's number in logs."""

    @property
    def peer(self) -> str:
        """The peer for logs."""

    @property
    def host(self) -> str:
        """Its IP address, empty for a socket file."""

    @property
    def descriptor(self) -> int:
        """Its number in the table of open files, -1 if it was compared with the limit before."""

    @property
    def established(self) -> bool:
        """Whether it has a session or a request; if not, it may give way to a new connection."""

    def abort(self) -> None:
        """Close it at once."""


class SocketLink(Link, Holder, Protocol):
    """A link over a socket."""


class ConnectionLimit:
    """Limits the number of connections; all listeners of a process may share one.

    `per_address_max` limits the connections of one IP address. A socket whose descriptor is not
    below `descriptors_max` is refused: the descriptors above are for the log and other work. The
    system gives out the lowest free number, so this counts all descriptors of the process.

    At a limit, the oldest connection without a session gives way to a new one.
    """

    def __init__(
        self,
        connections_max: int = SESSIONS_MAX,
        *,
        per_address_max: int | None = None,
        descriptors_max: int | None = None,
    ) -> None:
        self.connections_max = connections_max
        self.per_address_max = per_address_max
        self.descriptors_max = descriptors_max
        self.connections = 0
        self._by_host: Counter[str] = Counter()
        self._strangers: dict[Holder, None] = {}  # in the order of their arrival

    @property
    def is_lowered(self) -> bool:
        """Whether descriptors, and no setting, limit the connections."""
        return self.descriptors_max is not None and self.connections_max >= self.descriptors_max

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return self.connections >= self.connections_max

    def acquire(
        self,
        host: str = "",
        *,
        descriptor: int = -1,
        refused: Callable[[Holder, str], None] | None = None,
    ) -> str | None:
        """Count a new connection; return None, or the reason why there may not be another.

        `refused` gets a connection that gives way, and the reason. Then that is aborted.
        """
        crowd = ""
        if host and self.per_address_max and self._by_host[host] >= self.per_address_max:
            reason, crowd = "too many connections of one address", host
        elif self.full or (self.descriptors_max and descriptor >= self.descriptors_max):
            reason = "too many connections"
        else:
            reason = ""
        if reason:
            oldest = self._oldest_stranger(crowd)
            if oldest is None:
                return reason
            del self._strangers[oldest]
            if refused is not None:
                refused(oldest, reason)
            oldest.abort()
        self.connections += 1
        if host:
            self._by_host[host] += 1
        return None

    def watch(self, holder: Holder) -> None:
        """Let a counted connection give way to others until it has a session."""
        self._strangers[holder] = None

    def release(self, host: str = "", holder: Holder | None = None) -> None:
        """Count a closed connection."""
        self.connections -= 1
        if holder is not None:
            self._strangers.pop(holder, None)
        if host:
            self._by_host[host] -= 1
            if self._by_host[host] <= 0:
                del self._by_host[host]

    def _oldest_stranger(self, host: str) -> Holder | None:
        """Return the oldest connection without a session, of an address if one is given."""
        established = []
        found = None
        for holder in itertools.islice(self._strangers, EVICTION_SEARCH_MAX):
            if holder.established:
                established.append(holder)
            elif not host or host == holder.host:
                found = holder
                break
        for holder in established:
            del self._strangers[holder]
        return found


class BaseListener:
    """Base of all listeners: admits, counts and closes connections."""

    trusted = False
    """Whether its clients need no handshake and have no share of their address."""

    def __init__(
        self,
        broker: Broker,
        options: GatewayOptions | None,
        connection_limit: ConnectionLimit | None,
        *,
        tls: TlsSettings | None = None,
    ) -> None:
        self.congested_bytes = broker.settings.out_buffer_bytes_max // 4
        self._broker = broker
        self._options = options or GatewayOptions()
        self._connection_limit = connection_limit or ConnectionLimit()
        self._tls = tls
        self.own_bytes = 0 if tls is None else MEMORY_TLS_BYTES
        """Memory of one connection above the usual."""
        self._links: dict[Link, Holder | None] = {}
        self._empty = asyncio.Event()

    @property
    def connections(self) -> int:
        """See Listener."""
        return len(self._links)

    @property
    def tls_context(self) -> ssl.SSLContext | None:
        """The TLS context of all connections; None without TLS."""
        return None if self._tls is None else self._tls.context

    @property
    def certificate_expires_at(self) -> float | None:
        """See Listener."""
        return None if self._tls is None else self._tls.expires_at

    def reload_certificate(self) -> bool:
        """See Listener."""
        return False if self._tls is None else self._tls.reload()

    def closed(self, link: Link) -> None:
        """Count a closed connection. Transports call this; see their owner protocols."""
        if link in self._links:
            holder = self._links.pop(link)
            if holder is None:
                self._connection_limit.release()
            else:
                self.release(holder)
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

    def acquire(self, holder: Holder) -> bool:
        """Count a socket; log it and return False if there may not be another."""
        reason = self._connection_limit.acquire(
            holder.host, descriptor=holder.descriptor, refused=self._gave_way
        )
        if reason is not None:
            self.refused(holder.peer, reason, connection=holder.connection)
            return False
        self._connection_limit.watch(holder)
        return True

    def release(self, holder: Holder) -> None:
        """Count the end of a socket."""
        self._connection_limit.release(holder.host, holder)

    def _gave_way(self, holder: Holder, reason: str) -> None:
        self.refused(holder.peer, reason, connection=holder.connection)

    def open_arrival(self, holder: Holder) -> Account | None:
        """Open the account of a counted socket before it has a link, such as in a TLS handshake.

        Without memory, log it, count the end of the socket and return None.
        """
        try:
            return self._broker.memory.open(
                peer_address(holder.peer), handshake_bytes_max=0, own_bytes=self.own_bytes
            )
        except MemoryExhausted as error:
            self.release(holder)
            self.refused(holder.peer, f"no memory ({error.share})", connection=holder.connection)
            return None

    def admit(
        self, link: Link, new_handler: Callable[[], Handler], *, holder: Holder | None = None
    ) -> Handler:
        """Return the handler of a new connection; abort it if the limit is reached.

        `holder` is the link, if it is a socket.
        """
        if holder is not None:
            admitted = self.acquire(holder)
        else:
            reason = self._connection_limit.acquire()
            admitted = reason is None
            if reason is not None:
                self.refused(link.peer, reason, connection=link.connection)
        if not admitted:
            link.abort()
            return _REFUSED
        try:
            link.account = self._open_account(link)
        except MemoryExhausted as error:
            if holder is not None:
                self.release(holder)
            else:
                self._connection_limit.release()
            self.refused(link.peer, f"no memory ({error.share})", connection=link.connection)
            link.abort()
            return _REFUSED
        self._links[link] = holder
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
        account.holder = cast("MemoryHolder", link)
        return account

    def connected(self, link: SocketLink) -> Handler:
        """Count a new connection; return its first handler."""
        return self.admit(link, lambda: handler_for(self._broker, link, self._options), holder=link)

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

    @property
    def established(self) -> bool:
        return False

    def ended(self) -> None:
        pass

    def drained(self) -> None:
        pass

    def starved(self) -> None:
        pass

    def lost(self, reason: str) -> None:
        pass


_REFUSED: Final = _RefusedHandler()
