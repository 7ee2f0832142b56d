"""A place where clients connect, and the connections that came in by it."""

import asyncio
import ssl

import structlog

from penstock.core.broker import Broker
from penstock.gateway.front_door import FrontDoor
from penstock.gateway.options import GatewayOptions
from penstock.ports import Handler
from penstock.transport.stream import ReceiveBuffer, StreamConnection

__all__ = ["StreamListener"]

log = structlog.get_logger("penstock.listener")


class StreamListener:
    """A listening stream socket: a `transport.stream.ConnectionOwner`."""

    def __init__(
        self, broker: Broker, buffer: ReceiveBuffer, *, options: GatewayOptions | None = None
    ) -> None:
        self.buffer = buffer
        self.congested_bytes = broker.settings.out_buffer_bytes_max // 4
        self._broker = broker
        self._options = options or GatewayOptions()
        self._server: asyncio.Server | None = None
        self._connections: set[StreamConnection] = set()

    async def listen_tcp(
        self, host: str, port: int, *, tls: ssl.SSLContext | None = None
    ) -> tuple[str, int]:
        """Start to listen; return the address, with the port that port 0 became."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: StreamConnection(self), host, port, ssl=tls, backlog=1024
        )
        name = self._server.sockets[0].getsockname()
        return name[0], name[1]

    def stop_accepting(self) -> None:
        """Let nobody else in."""
        if self._server is not None:
            self._server.close()

    async def close(self, *, seconds_max: float) -> None:
        """End all connections, once what was written to them is sent or the time is up."""
        for connection in list(self._connections):
            connection.close()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds_max
        while self._connections and loop.time() < deadline:
            await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.abort()

    # --- transport.stream.ConnectionOwner ---------------------------------------------------------

    def opened(self, connection: StreamConnection) -> Handler:
        """See transport.stream.ConnectionOwner."""
        self._connections.add(connection)
        return FrontDoor(self._broker, connection, self._options)

    def closed(self, connection: StreamConnection) -> None:
        """See transport.stream.ConnectionOwner."""
        self._connections.discard(connection)

    def failed(self, connection: StreamConnection, error: Exception) -> None:
        """See transport.stream.ConnectionOwner."""
        self._broker.counters.connections_failed["internal error"] += 1
        log.error("connection failed", peer=connection.peer, exc_info=error)
