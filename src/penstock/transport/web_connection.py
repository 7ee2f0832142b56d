"""A connection to a web port: nobody's until the first line of its request is there."""

import asyncio
from typing import Any, NamedTuple, Protocol, cast

from websockets.asyncio.server import ServerConnection

from penstock.limits import HANDSHAKE_SECONDS_MAX, HTTP_REQUEST_LINE_BYTES_MAX
from penstock.transport.numbers import next_connection

__all__ = ["Entrance", "HttpArrival", "WebConnection", "peer_of"]


class HttpArrival(NamedTuple):
    """A connection that asks for something else than the WebSocket.

    `received` is what it has sent; until the transport has another protocol it may grow.
    """

    connection: int
    peer: str
    transport: asyncio.Transport
    received: bytearray


class Entrance(Protocol):
    """Who the connections come to: an endpoint."""

    @property
    def entering(self) -> set["WebConnection"]:
        """Connections that have not said yet what they want."""

    def is_websocket(self, request_line: bytes | bytearray) -> bool:
        """Tell whether a request that begins with this line is for the WebSocket."""

    def http(self, arrival: HttpArrival) -> None:
        """Take a connection over that is for something else."""


class WebConnection(ServerConnection):
    """Waits for the first line of a request, which says whether the rest is for the WebSocket."""

    def __init__(self, entrance: Entrance, *args: Any, **keywords: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **keywords)
        self.number = next_connection()
        self._entrance = entrance
        self._received = bytearray()
        self._entering: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._inside = False  # from now on it is the library's
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when it is closed, or not ours any more."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait: the library hears of it when it is the WebSocket that is asked for."""
        self._entering = cast("asyncio.Transport", transport)
        self._entrance.entering.add(self)
        self._deadline = asyncio.get_running_loop().call_later(
            HANDSHAKE_SECONDS_MAX, self.abort_entry
        )

    def data_received(self, data: bytes) -> None:
        """Look at the first line, and hand all on."""
        if self._inside:
            super().data_received(data)
            return
        self._received += data
        transport = self._entering
        if transport is None:
            return
        line, end, _ = self._received.partition(b"\n")
        if not end and len(line) <= HTTP_REQUEST_LINE_BYTES_MAX:
            return
        self._entered()
        if self._entrance.is_websocket(line):
            self._inside = True
            received, self._received = bytes(self._received), bytearray()
            super().connection_made(transport)
            super().data_received(received)
            return
        self.gone.set_result(None)
        arrival = HttpArrival(self.number, peer_of(transport), transport, self._received)
        self._entrance.http(arrival)

    def eof_received(self) -> None:
        """Close what has not said what it wants."""
        if self._inside:
            super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go."""
        self._entered()
        if self._inside:
            super().connection_lost(exc)
        if not self.gone.done():
            self.gone.set_result(None)

    def _entered(self) -> None:
        self._entering = None
        self._entrance.entering.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def abort_entry(self) -> None:
        """End a connection that has not said what it wants."""
        if self._entering is not None:
            self._entering.abort()

    def abort_all(self) -> bool:
        """End the connection, whatever its state; tell whether there was one to end."""
        if self.gone.done():
            return False
        self.abort_entry()
        if self._inside:
            self.transport.abort()
        return self._inside or self._entering is not None


def peer_of(transport: asyncio.BaseTransport) -> str:
    """Return who is at the other end, for logs."""
    name = transport.get_extra_info("peername")
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name or "")
