"""A broker with its listeners, in one event loop: start, listen, stop."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from penstock.core.access import ANYONE, Principal
from penstock.core.broker import Broker, BrokerSettings
from penstock.errors import CallerError, CannotListen
from penstock.gateway.options import GatewayOptions
from penstock.limits import FLIGHT_STALL_SECONDS_MAX, SESSIONS_MAX
from penstock.ports import Storage
from penstock.server.clock import SystemClock
from penstock.server.connections import ConnectionLimit
from penstock.server.http.context import HttpContext
from penstock.server.listener import Listener, StdioListener, new_listener
from penstock.storage.memory import MemoryLog
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
    ) -> None:
        """Without a storage, messages are kept in memory only until they are delivered."""
        self.storage = storage or MemoryLog()
        self.broker = Broker(
            log=self.storage,
            reader=self.storage if self.storage.keeps_history else None,
            clock=SystemClock(),
            settings=settings,
        )
        names = channels or {channel: f"channel/{channel}" for channel in range(256)}
        for channel, name in names.items():
            self.broker.topics.bind_channel(channel, name)
        self._restore_topics()
        self._buffer = ReceiveBuffer()
        self._connection_limit = ConnectionLimit(connections_max)
        self.http = HttpContext(
            self.broker, self.storage, lambda: self._connection_limit.connections
        )
        self._listeners: list[Listener] = []
        self._flights: list[FlightListener] = []
        self._ticking: asyncio.TimerHandle | None = None

    def _restore_topics(self) -> None:
        """Intern the topics that the storage knows from earlier runs."""
        broker = self.broker
        for name, _ in self.storage.known_topics:
            try:
                broker.topics.intern(name)
            except CallerError as error:
                logger.warning("topic not restored", topic=name, error=str(error))

    async def start(self) -> None:
        """Start the storage and the timers."""
        self.storage.attach(self.broker.topics, self.broker.settle)
        self._tick()

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
        verify: Callable[[str], Principal] | None = None,
        stall_seconds_max: float = FLIGHT_STALL_SECONDS_MAX,
    ) -> Address:
        """Serve Arrow Flight at an address; return it, with the port that replaced port 0.

        `data` is the folder for rows that sinks stage. `verify` returns the principal of a token,
        or raises AuthenticationFailed. A client that stalls for `stall_seconds_max` is cut. Raise
        OperatorError, also if the storage keeps no history.
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
                anonymous=None if address.anonymous is False else anonymous, verify=verify
            ),
            counts=self.http.flight_reads,
            stall_seconds_max=stall_seconds_max,
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

    async def stop(self, *, seconds_max: float = 5.0) -> None:
        """Stop accepting, flush the storage, drain connections, close.

        Bytes that are not sent within `seconds_max` are dropped.
        """
        self.http.stopping = True
        for listener in self._listeners:
            listener.stop_accepting()
        await asyncio.gather(*(each.close(seconds_max=seconds_max) for each in self._flights))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.storage.flush(), seconds_max)
        await asyncio.gather(*(each.close(seconds_max=seconds_max) for each in self._listeners))
        if self._ticking is not None:
            self._ticking.cancel()
        self.storage.close()

    def _tick(self) -> None:
        try:
            self.broker.timers.run_due()
        except Exception:  # one broken timer must not stop the others
            logger.exception("timer failed")
        self._ticking = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)
