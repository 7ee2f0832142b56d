"""A broker with its listeners, in one event loop: start, listen, stop."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from penstock.core.access import ANYONE, Peer, Principal
from penstock.core.broker import Broker, BrokerSettings
from penstock.core.sessions import node_numbers
from penstock.errors import CallerError, CannotListen, CertificateUnusable
from penstock.gateway.options import GatewayOptions
from penstock.limits import (
    FLIGHT_ARRIVING_BYTES_MAX,
    FLIGHT_STALL_SECONDS_MAX,
    GROUPS_STORE_SECONDS_MIN,
    SESSIONS_MAX,
    STALL_SECONDS_MIN,
    TOPIC_BYTES,
    TOPIC_NAME_COPIES,
)
from penstock.memory import MemoryBudget, Purpose
from penstock.ports import NO_AUDIT, Audit, Storage
from penstock.protocols import PROTOCOLS, load
from penstock.server.clock import SystemClock
from penstock.server.connections import ConnectionLimit
from penstock.server.group_store import ThreadedGroupStore
from penstock.server.http.context import HttpContext
from penstock.server.listener import Listener, StdioListener, new_listener
from penstock.server.message_keys import KeyReader
from penstock.server.process_memory import ProcessMemory
from penstock.server.recent_refusals import RecentRefusals
from penstock.server.session_numbers import NumberReserve
from penstock.server.stored_counts import StoredCountsKeeper
from penstock.server.watchdog import Watchdog
from penstock.storage.memory import MemoryLog
from penstock.storage.session_numbers import KeptNumbers
from penstock.storage.stored_counts import KeptCounts
from penstock.transport.addresses import Address
from penstock.transport.stdio import Program
from penstock.transport.stream import ReceiveBuffer

if TYPE_CHECKING:
    from penstock.server.flight.listener import FlightListener

__all__ = ["Server"]

logger = structlog.get_logger("penstock.server")

TICK_SECONDS = 0.05
"""Greatest delay of a timer."""


class Server:
    """Owns the broker, its storage, its listeners and its timers."""

    def __init__(
        self,
        *,
        settings: BrokerSettings | None = None,
        storage: Storage | None = None,
        channels: Mapping[int, str] | None = None,
        connections_max: int = SESSIONS_MAX,
        audit: Audit = NO_AUDIT,
        connections_per_address_max: int | None = None,
        descriptors_max: int | None = None,
        stall_seconds: float = STALL_SECONDS_MIN,
        memory: MemoryBudget | None = None,
        numbers: KeptNumbers | None = None,
        stored_counts: KeptCounts | None = None,
    ) -> None:
        """Without a storage, messages are kept in memory only until they are delivered.

        Without `numbers`, session numbers start again with every run; without `stored_counts`, the
        bytes that principals have in the log.

        A delay of the event loop by `stall_seconds` is counted and logged; 0 turns that off.
        """
        self.storage = storage or MemoryLog()
        limit = (settings or BrokerSettings()).groups_per_principal_max
        self.storage.groups.owner_groups_max = limit
        self._group_store = ThreadedGroupStore(self.storage.groups)
        refusals = RecentRefusals(audit)
        self.broker = Broker(
            log=self.storage,
            reader=self.storage if self.storage.keeps_history else None,
            group_store=self._group_store,
            clock=SystemClock(self.storage.last_us),
            settings=settings,
            audit=refusals,
            memory=memory,
        )
        if self.storage.sessions is not None:
            self.broker.sessions.numbers = node_numbers(self.storage.partition)
            self.broker.roam(self.storage.sessions)
            if self.storage.services is not None:
                self.broker.share_services(self.storage.services)
            if self.broker.following is not None:
                for protocol in PROTOCOLS:
                    if protocol.remote:
                        receiver = load(protocol.remote)(self.broker)
                        self.broker.following.receivers[protocol] = receiver.receive
        names = channels or {channel: f"channel/{channel}" for channel in range(256)}
        for channel, name in names.items():
            self.broker.topics.bind_channel(channel, name)
        self._restore_topics()
        self._buffer = ReceiveBuffer()
        self._connection_limit = ConnectionLimit(
            connections_max,
            per_address_max=connections_per_address_max,
            descriptors_max=descriptors_max,
        )
        self.broker.memory.on_short = self._buffer.narrow
        self.http = HttpContext(
            self.broker,
            self.storage,
            lambda: self._connection_limit.connections,
            refusals=refusals.newest,
            connections_max=lambda: self._connection_limit.connections_max,
            connections_lowered=lambda: self._connection_limit.is_lowered,
        )
        self.http.certificates = self._certificates
        self._numbers = None if numbers is None else NumberReserve(numbers)
        self._stored_counts = (
            None
            if stored_counts is None
            else StoredCountsKeeper(self.broker.stored, stored_counts, log_id=self.storage.log_id)
        )
        self._listeners: list[Listener] = []
        self._flights: list[FlightListener] = []
        self._ticking: asyncio.TimerHandle | None = None
        self._counts_at = 0.0  # monotonic time of the next count of memory
        self.process_memory = ProcessMemory(self.broker.memory)
        self._watchdog = Watchdog(self.broker.stalls, stall_seconds=stall_seconds)
        self._log_bytes = 0  # reserved for the log's backlog

    def _restore_topics(self) -> None:
        """Intern the topics that the storage knows from earlier runs."""
        broker = self.broker
        for name in self.storage.deleted_topics:
            broker.topics.mark_removed(name)
        for name, creator, owner in self.storage.known_topics:
            try:
                identifier = broker.topics.restore(name, owner)
                broker.topics.set_parent(identifier, creator)
            except CallerError as error:
                logger.warning("topic not restored", topic=name, error=str(error))

    async def start(self) -> None:
        """Start the storage, the timers and the watchdog."""
        self.storage.attach(self.broker.topics, self.broker.settle)
        if self.broker.following is not None:
            self.storage.follow(self.broker.following)
        for protocol in PROTOCOLS:
            if protocol.services:
                load(protocol.services)(self.broker)
        if self._numbers is not None:
            self._numbers.start(self.broker.sessions)
        if self._stored_counts is not None:
            self._stored_counts.start()
        loop = asyncio.get_running_loop()
        self._group_store.start()
        if self.broker.groups is not None:
            self.broker.groups.later = loop.call_later
        if self.storage.keeps_history:
            keys = KeyReader(self.storage, keys_max=self.broker.settings.dedupe_keys_max)
            self.broker.deduplication.load = keys.read
            for name in self.storage.deleted_topics:
                self.broker.deduplication.topic_deleted(name, next_offset=self.storage.next_offset)
        self.broker.slices.schedule = loop.call_soon
        self.broker.turn.schedule = loop.call_soon
        self.broker.turn.flush = self._buffer.late_writes.flush

        def post(work: Callable[[], None]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(work)

        self.broker.memory.post = post
        self._log_bytes = self.broker.memory.fixed(Purpose.LOG)
        self._tick()
        self._watchdog.start()

    async def listen(self, address: Address, *, options: GatewayOptions | None = None) -> Address:
        """Accept clients at an address; return it, with the port that replaced port 0.

        Raise OperatorError.
        """
        listener = new_listener(
            address,
            self.broker,
            self._buffer,
            options=options,
            connection_limit=self._connection_limit,
            context=self.http,
        )
        self._listeners.append(listener)
        await listener.start()
        return listener.address

    async def listen_tcp(
        self, host: str = "127.0.0.1", port: int = 0, *, options: GatewayOptions | None = None
    ) -> tuple[str, int]:
        """Accept clients at a TCP port; return host and port, which replaces port 0."""
        address = await self.listen(Address("tcp", host, port), options=options)
        return address.host, address.port

    async def listen_flight(
        self,
        address: Address,
        *,
        data: Path,
        anonymous: Principal | None = ANYONE,
        verify: Callable[[str, Peer], Principal] | None = None,
        identify: Callable[[Peer], Principal | None] | None = None,
        seconds_left: Callable[[str], float | None] | None = None,
        stall_seconds_max: float = FLIGHT_STALL_SECONDS_MAX,
        arriving_bytes_max: int = FLIGHT_ARRIVING_BYTES_MAX,
    ) -> Address:
        """Serve Arrow Flight at an address; return it, with the port that replaced port 0.

        `data` is the folder for rows that sinks stage. `anonymous`, `verify`, `identify` and
        `seconds_left` are those of FlightAuth. A client that stalls for `stall_seconds_max` is cut.
        Raise OperatorError, also if the storage keeps no history.
        """
        if not self.storage.keeps_history:
            raise CannotListen(address.location, "there is no log", "set broker.durability")
        from penstock.server.flight.auth import FlightAuth  # noqa: PLC0415  (imports pyarrow: slow)
        from penstock.server.flight.listener import FlightListener  # noqa: PLC0415

        flight = FlightListener(
            address,
            broker=self.broker,
            storage=self.storage,
            data=data,
            auth=FlightAuth(
                anonymous=None if address.anonymous is False else anonymous,
                verify=verify,
                identify=identify,
                seconds_left=seconds_left,
            ),
            counts=self.http.flight_reads,
            stall_seconds_max=stall_seconds_max,
            arriving_bytes_max=arriving_bytes_max,
        )
        await flight.start()
        self._flights.append(flight)
        return flight.address

    async def run_programs(
        self, programs: Sequence[Program], *, options: GatewayOptions | None = None
    ) -> None:
        """Start programs that are clients of the broker over their pipes."""
        listener = StdioListener(
            self.broker, programs, options=options, connection_limit=self._connection_limit
        )
        self._listeners.append(listener)
        await listener.start()

    def _certificates(self) -> dict[str, float]:
        """Return when the certificate of each listener expires, in seconds since the epoch."""
        listeners: list[Listener | FlightListener] = [*self._listeners, *self._flights]
        found = {each.url: each.certificate_expires_at for each in listeners}
        return {url: seconds for url, seconds in found.items() if seconds is not None}

    def reload_certificates(self) -> frozenset[str]:
        """Read the certificates of all listeners again, for new connections.

        Return the URLs of listeners whose client authorities changed. A certificate that cannot be
        used is logged, and the listener keeps the old one.
        """
        changed = set()
        listeners: list[Listener | FlightListener] = [*self._listeners, *self._flights]
        for listener in listeners:
            try:
                if listener.reload_certificate():
                    changed.add(listener.url)
            except CertificateUnusable as error:
                logger.warning("certificate not reloaded", listener=listener.url, error=str(error))
        return frozenset(changed)

    async def stop(self, *, seconds_max: float = 5.0) -> None:
        """Stop accepting, flush the storage, drain connections, close.

        Bytes that are not sent within `seconds_max` are dropped. Calls of Flight and the storage
        have half of that time; then connections have the rest.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds_max
        self.http.stopping = True
        for listener in self._listeners:
            listener.stop_accepting()
        if self.broker.groups is not None:
            self.broker.groups.stop_delivery()
        await asyncio.gather(
            *(each.close(seconds_max=seconds_max / 2) for each in self._flights),
            self._flush(seconds_max / 2),
        )
        for session in self.broker.sessions:
            session.say_farewell()
        left = max(0.0, ends - loop.time())
        await asyncio.gather(*(each.close(seconds_max=left) for each in self._listeners))
        if self._ticking is not None:
            self._ticking.cancel()
        self._watchdog.stop()
        self.process_memory.stop()
        if self._numbers is not None:
            await self._numbers.stop()
        if self._stored_counts is not None:
            await self._stored_counts.stop()
        await self._store_groups(max(GROUPS_STORE_SECONDS_MIN, ends - loop.time()))
        self.storage.close()

    async def _store_groups(self, seconds_max: float) -> None:
        """Store the states of all consumer groups, those that the disk takes in time."""
        stored = asyncio.Event()
        if self.broker.groups is not None:
            self.broker.groups.flush(stored.set)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stored.wait(), seconds_max)
        self._group_store.close()

    async def _flush(self, seconds_max: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.storage.flush(), seconds_max)

    def kill_programs(self) -> None:
        """Kill all programs; any thread may call this."""
        for listener in self._listeners:
            if isinstance(listener, StdioListener):
                listener.kill()

    def _count_memory(self) -> None:
        """Update the parts of the budget that belong to no client.

        The log's backlog may exceed its limit by what was read before.
        """
        memory = self.broker.memory
        topics = self.broker.topics
        memory.level(
            Purpose.NAMES, TOPIC_BYTES * topics.live + TOPIC_NAME_COPIES * topics.name_bytes
        )
        memory.level(Purpose.LOG, max(self._log_bytes, self.storage.waiting_bytes))
        now = self.broker.clock.monotonic()
        self._counts_at = now + TICK_SECONDS
        self.process_memory.tick(now)
        memory.tick(now)

    def _tick(self) -> None:
        wait: float | None = None
        try:
            wait = self.broker.timers.run_due()
            if self.broker.clock.monotonic() >= self._counts_at:
                self._count_memory()
        except Exception:  # one broken timer must not stop the others
            logger.exception("timer failed")
        seconds = 0.001 if wait == 0.0 else TICK_SECONDS
        self._ticking = asyncio.get_running_loop().call_later(seconds, self._tick)
