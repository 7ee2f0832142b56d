"""HTTP for the connections of a listener; its libraries are imported at the first connection."""

import asyncio
import importlib
from typing import TYPE_CHECKING, Protocol

import structlog

from penstock.gateway.options import GatewayOptions
from penstock.limits import HTTP_CONNECTIONS_MAX, HTTP_INPUT_BYTES_MAX
from penstock.server.connections import peer_address
from penstock.server.http.context import HttpContext
from penstock.server.http.health import answer_when_crowded
from penstock.transport.addresses import Address
from penstock.transport.web_connection import HttpArrival

if TYPE_CHECKING:
    from penstock.server.http.protocol import HttpConnection, HttpSettings

__all__ = ["ConnectionCounter", "HttpService"]

log = structlog.get_logger("penstock.http")

_ABORT_SECONDS = 1.0
_APPLICATION = "penstock.server.http.application"
_PROTOCOL = "penstock.server.http.protocol"


class ConnectionCounter(Protocol):
    """Counts connections; a listener is one."""

    def acquire(self, holder: "HttpHolder") -> bool:
        """Count a new connection; return False at the limit."""

    def release(self, holder: "HttpHolder") -> None:
        """Count the end of a connection."""


class HttpHolder:
    """A counted connection; see server.connections.Holder."""

    descriptor = -1  # it was compared with the limit when the connection was accepted

    def __init__(self, arrival: HttpArrival) -> None:
        self._transport = arrival.transport
        self.connection = arrival.connection
        self.peer = arrival.peer
        self.host = arrival.host
        self.made: HttpConnection | None = None

    @property
    def established(self) -> bool:
        """Whether a request is being answered, or the libraries are being imported."""
        return self.made is None or not self.made.idle

    def abort(self) -> None:
        """Close the connection now."""
        self._transport.abort()


class HttpService:
    """Answers the requests of one listener."""

    def __init__(
        self,
        context: HttpContext,
        counter: ConnectionCounter,
        address: Address,
        options: GatewayOptions,
    ) -> None:
        self._context = context
        self._counter = counter
        self._address = address
        self._options = options
        self._settings: HttpSettings | None = None
        self._loading: asyncio.Task[None] | None = None
        self._waiting: list[tuple[HttpArrival, HttpHolder]] = []
        self._connections: dict[HttpConnection, HttpHolder] = {}
        self._empty = asyncio.Event()

    def __len__(self) -> int:
        return len(self._connections)

    def take(self, arrival: HttpArrival) -> None:
        """Take over a connection, at once or when the libraries are imported."""
        if len(self._connections) + len(self._waiting) >= HTTP_CONNECTIONS_MAX - 1:
            line = bytes(arrival.received).partition(b"\n")[0]
            arrival.transport.write(answer_when_crowded(self._context, line))
            arrival.transport.close()
            return
        holder = HttpHolder(arrival)
        if not self._counter.acquire(holder):
            arrival.transport.abort()
            return
        if self._settings is not None:
            self._begin(arrival, holder, self._settings)
            return
        arrival.transport.pause_reading()
        self._waiting.append((arrival, holder))
        if self._loading is None:
            self._loading = asyncio.create_task(self._load())

    async def _load(self) -> None:
        """Import the libraries in a thread, so that the event loop is not blocked."""
        try:
            self._settings = settings = await asyncio.to_thread(self._new_settings)
        except Exception:
            log.exception("request failed", connection=None, path="")
            for arrival, holder in self._waiting:
                arrival.transport.abort()
                self._counter.release(holder)
            self._waiting.clear()
            self._loading = None
            return
        waiting, self._waiting = self._waiting, []
        for arrival, holder in waiting:
            if arrival.transport.is_closing():
                self._counter.release(holder)
            else:
                arrival.transport.resume_reading()
                self._begin(arrival, holder, settings)

    def _new_settings(self) -> "HttpSettings":
        application = importlib.import_module(_APPLICATION)
        protocol = importlib.import_module(_PROTOCOL)
        app = application.new_application(self._context, self._address, self._options)
        settings: HttpSettings = protocol.HttpSettings(app)
        return settings

    def _begin(self, arrival: HttpArrival, holder: HttpHolder, settings: "HttpSettings") -> None:
        from penstock.server.http.protocol import HttpConnection  # noqa: PLC0415

        account = self._context.broker.memory.open(
            peer_address(arrival.peer), handshake_bytes_max=HTTP_INPUT_BYTES_MAX, always=True
        )
        made = HttpConnection(
            settings,
            connection=arrival.connection,
            peer=arrival.peer,
            account=account,
            closed=self._closed,
        )
        holder.made = made
        self._connections[made] = holder
        self._empty.clear()
        arrival.transport.set_protocol(made)
        made.connection_made(arrival.transport)
        made.data_received(bytes(arrival.received))

    def _closed(self, connection: "HttpConnection") -> None:
        holder = self._connections.pop(connection, None)
        if holder is not None:
            self._counter.release(holder)
            if not self._connections:
                self._empty.set()

    async def close(self, *, seconds_max: float) -> None:
        """Close all connections after their responses, or when the time is up."""
        for connection in list(self._connections):
            connection.close()
        if await self._emptied(seconds_max):
            return
        for connection in list(self._connections):
            connection.abort()
        await self._emptied(_ABORT_SECONDS)

    async def _emptied(self, seconds_max: float) -> bool:
        if not self._connections:
            return True
        try:
            await asyncio.wait_for(self._empty.wait(), seconds_max)
        except TimeoutError:
            return False
        return True
