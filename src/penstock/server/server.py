"""A whole broker in one event loop: made, started, stopped."""

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
from penstock.limits import SESSIONS_MAX
from penstock.server.clock import SystemClock
from penstock.server.connections import ConnectionLimit
from penstock.server.http.view import ServerView
from penstock.server.listener import Listener, StdioListener, new_listener
from penstock.storage.memory import MemoryLog
from penstock.transport.addresses import Address
from penstock.transport.stdio import Program
from penstock.transport.stream import ReceiveBuffer

if TYPE_CHECKING:
    from penstock.server.flight.listener import FlightListener
    from penstock.storage.arrow.log import ArrowLog

__all__ = ["Server"]

logger = structlog.get_logger("penstock.server")

TICK_SECONDS = 0.05
"""How late a timer may be."""


class Server:
    """Owns the broker, its listeners and its timers."""

    def __init__(
        self,
        *,
        settings: BrokerSettings | None = None,
        log: "ArrowLog | None" = None,
        channels: Mapping[int, str] | None = None,
        connections_max: int = SESSIONS_MAX,
    ) -> None:
        self._log = log
        self.broker = Broker(
            log=log or MemoryLog(), reader=log, clock=SystemClock(), settings=settings
        )
        names = channels or {channel: f"channel/{channel}" for channel in range(256)}
        for channel, name in names.items():
            self.broker.topics.bind_channel(channel, name)
        if log is not None:
            self._remember_topics(log)
        self._buffer = ReceiveBuffer()
        self._connection_limit = ConnectionLimit(connections_max)
        self.view = ServerView(self.broker, log, lambda: self._connection_limit.connections)
        """What HTTP shows."""
        self._listeners: list[Listener] = []
        self._flights: list[FlightListener] = []
        self._ticking: asyncio.TimerHandle | None = None

    def _remember_topics(self, log: "ArrowLog") -> None:
        """Make the topics known that there were before."""
        broker = self.broker
        for name, creator in log.topics:
            try:
                identifier = broker.topics.intern(name)
            except CallerError as error:
                logger.warning("topic not restored", topic=name, error=str(error))
                continue
            if creator:
                broker.creators[identifier] = creator

    async def start(self) -> None:
        """Let time pass for the broker, and its log be written."""
        if self._log is not None:
            self._log.attach(self.broker.topics, self.broker.settle)
        self._tick()

    async def listen(self, address: Address, *, options: GatewayOptions | None = None) -> Address:
        """Take clients at an address; return it, with the port that port 0 became.

        Raise an OperatorError if that cannot be.
        """
        listener = new_listener(
            address,
            self.broker,
            self._buffer,
            options=options,
            connection_limit=self._connection_limit,
            view=self.view,
        )
        self._listeners.append(listener)
        await listener.start()
        return listener.address

    async def listen_tcp(
        self, host: str = "127.0.0.1", port: int = 0, *, options: GatewayOptions | None = None
    ) -> tuple[str, int]:
        """Take clients at a TCP port; return where, with the port that port 0 became."""
        address = await self.listen(Address("tcp", host, port), options=options)
        return address.host, address.port

    async def listen_flight(
        self,
        address: Address,
        *,
        data: Path,
        anonymous: Principal | None = ANYONE,
        verify: Callable[[str], Principal] | None = None,
    ) -> Address:
        """Serve tables at an address; return it, with the port that port 0 became.

        `data` is the folder of the log, without which there are none. `verify` returns whose token
        it is, or raises AuthenticationFailed. Raise an OperatorError if that cannot be.
        """
        if self._log is None:
            raise CannotListen(address.location, "there is no log", "set broker.durability")
        from penstock.server.flight.access import Door  # noqa: PLC0415  (a cost only Flight pays)
        from penstock.server.flight.listener import FlightListener  # noqa: PLC0415

        door = Door(anonymous=anonymous, verify=verify)
        flight = FlightListener(
            address,
            broker=self.broker,
            log=self._log,
            data=data,
            door=door,
            counts=self.view.flight_reads,
        )
        await flight.start()
        self._flights.append(flight)
        return flight.address

    async def run_programs(
        self, programs: Sequence[Program], *, options: GatewayOptions | None = None
    ) -> None:
        """Start programs that speak with the broker by their pipes."""
        listener = StdioListener(
            self.broker, programs, options=options, connection_limit=self._connection_limit
        )
        self._listeners.append(listener)
        await listener.start()

    async def stop(self, *, seconds_max: float = 5.0) -> None:
        """Stop accepting, send what is written, close; what is not sent in time is dropped."""
        self.view.stopping = True
        for listener in self._listeners:
            listener.stop_accepting()
        await asyncio.gather(*(each.close(seconds_max=seconds_max) for each in self._flights))
        if self._log is not None and self._log.attached:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._log.flush(), seconds_max)
        await asyncio.gather(*(each.close(seconds_max=seconds_max) for each in self._listeners))
        if self._ticking is not None:
            self._ticking.cancel()
        if self._log is not None:
            self._log.close()

    def _tick(self) -> None:
        try:
            self.broker.timers.run_due()
        except Exception:  # time must not stop for everyone because one timer broke
            logger.exception("timer failed")
        self._ticking = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)
