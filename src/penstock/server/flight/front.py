"""The front of the Flight service: accepts connections, and relays them to gRPC.

gRPC accepts messages of any size before it calls Penstock, and pyarrow cannot change that. So gRPC
listens on a private socket, and clients connect to the front:

    client ──TCP, TLS──▶ front ──unix socket──▶ gRPC ──▶ FlightService

The front ends TLS, limits connections, and lets a message pass only if its announced size is within
the limits (`http2.RequestGate`). It closes connections that stall. It runs in a thread of its own.
docs/decisions/0020-a-front-for-flight.md has the reasons.
"""

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Final, cast

import structlog
import uvloop

from penstock.errors import AuthenticationFailed
from penstock.flight.errors import BadRequest, with_failure
from penstock.limits import (
    FLIGHT_ARRIVING_BYTES_MAX,
    FLIGHT_CONNECTIONS_MAX,
    FLIGHT_CONNECTIONS_PER_ADDRESS_MAX,
    FLIGHT_FIRST_BYTES_MAX,
    FLIGHT_FIRST_SECONDS_MAX,
    FLIGHT_RELAY_BYTES,
    FLIGHT_STALL_SECONDS_MAX,
)
from penstock.server.credentials import KnownPeer
from penstock.server.flight.call_rate import CallRate
from penstock.server.flight.http2 import (
    FrameCounter,
    NotHttp2,
    RequestGate,
    TooLarge,
    failure_frames,
)
from penstock.transport.certificate_names import certificate_names
from penstock.transport.links import next_connection_number, peer_host, peer_name
from penstock.transport.tls_handshake import TlsHandshake

__all__ = ["FlightFront"]

log = structlog.get_logger("penstock.flight")

_RESOURCE_EXHAUSTED: Final = 8
_TICK_SECONDS: Final = 0.5
_LINGER_SECONDS: Final = 2.0
_PEER: Final = "unix-abstract:"
_TOO_MANY: Final = "too many connections"


class _Arriving:
    """Bytes of unfinished messages of all connections. The memory budget has them reserved."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.taken = 0

    def room(self) -> int:
        """Return the greatest message that may begin now."""
        return self.bytes_max - self.taken


class FlightFront:
    """Relays connections at an address to the unix socket of a gRPC server.

    `start` and `close` belong to one thread; other methods may be called from any.
    """

    def __init__(
        self,
        target: Path,
        *,
        context: ssl.SSLContext | None = None,
        stall_seconds_max: float = FLIGHT_STALL_SECONDS_MAX,
        arriving_bytes_max: int = FLIGHT_ARRIVING_BYTES_MAX,
    ) -> None:
        self.target = target
        self.stall_seconds_max = stall_seconds_max
        self.arriving = _Arriving(arriving_bytes_max)
        self.connections: dict[str, _Connection] = {}
        self.addresses: Counter[str] = Counter()
        self.count = 0
        self._handshakes: set[TlsHandshake] = set()
        self._context = context
        self._loop = uvloop.new_event_loop()
        self.calls = CallRate(time.monotonic, self._loop.call_later)
        self._server: asyncio.AbstractServer | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-flight", daemon=True)

    def start(self, listening: socket.socket) -> None:
        """Accept connections of a listening socket."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(listening), self._loop).result()

    def authenticated(self, peer: str) -> None:
        """Mark the connection of a call: it may send larger messages from now on."""
        connection = self.connections.get(peer)
        if connection is not None and not connection.gate.trusted:
            with contextlib.suppress(RuntimeError):  # the front is closed
                self._loop.call_soon_threadsafe(connection.trust)

    def client_of(self, peer: str) -> KnownPeer:
        """Return the client of a call; raise AuthenticationFailed if it is gone.

        Without its address it could have the rights of another principal, and its wrong tokens
        would count for clients of socket files.
        """
        connection = self.connections.get(peer)
        if connection is None:
            raise AuthenticationFailed("call", "the client has left")
        return KnownPeer(connection.address, connection.certificate_names)

    def name_of(self, peer: str) -> str:
        """Return the address and port of the client of a call, empty if it is gone."""
        connection = self.connections.get(peer)
        return "" if connection is None else connection.name

    def cut(self, peer: str, reason: str) -> None:
        """Close the connection of a call at once."""
        connection = self.connections.get(peer)
        if connection is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(connection.cut, reason)

    def stop_accepting(self) -> None:
        """Accept no more connections."""
        if self._server is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._server.close)

    def close(self) -> None:
        """Close all connections and end the thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop)
        if self._thread.is_alive():
            self._thread.join(5.0)

    # --- In the front's thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    async def _start(self, listening: socket.socket) -> None:
        self._server = await self._loop.create_server(self._accept, sock=listening, backlog=256)
        self._loop.call_later(_TICK_SECONDS, self._tick)

    def _accept(self) -> asyncio.BaseProtocol:
        if self._context is None:
            return _Connection(self)
        return TlsHandshake(
            self, lambda: _Connection(self), self._context, seconds_max=FLIGHT_FIRST_SECONDS_MAX
        )

    def handshake_begun(self, handshake: TlsHandshake) -> bool:
        """See transport.tls_handshake.TlsHandshakeOwner."""
        if not self.enter(handshake.host):
            self.leave(handshake.host)
            log.info(
                "connection refused",
                connection=handshake.connection,
                peer=handshake.peer,
                reason=_TOO_MANY,
            )
            return False
        self._handshakes.add(handshake)
        return True

    def handshake_ended(self, handshake: TlsHandshake) -> None:
        """See transport.tls_handshake.TlsHandshakeOwner."""
        self._handshakes.discard(handshake)
        self.leave(handshake.host)

    def enter(self, address: str) -> bool:
        """Count a connection; return False if there are too many."""
        self.count += 1
        self.addresses[address] += 1
        return (
            self.count <= FLIGHT_CONNECTIONS_MAX
            and self.addresses[address] <= FLIGHT_CONNECTIONS_PER_ADDRESS_MAX
        )

    def leave(self, address: str) -> None:
        """Count the end of a connection."""
        self.count -= 1
        self.addresses[address] -= 1
        if not self.addresses[address]:
            del self.addresses[address]

    def _tick(self) -> None:
        now = time.monotonic()
        for connection in list(self.connections.values()):
            connection.check(now)
        self.calls.forget()
        self._loop.call_later(_TICK_SECONDS, self._tick)

    def room_changed(self) -> None:
        """Let connections go on that waited for room."""
        for connection in list(self.connections.values()):
            if connection.held:
                connection.go_on()

    def _stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for handshake in list(self._handshakes):
            handshake.abort()
        for connection in list(self.connections.values()):
            connection.cut("")
        self._loop.call_later(0.05, self._loop.stop)


class _Connection(asyncio.Protocol):
    """The client's side of a connection."""

    def __init__(self, front: FlightFront) -> None:
        self.front = front
        self.gate = RequestGate(self._may_call)
        self.address = ""
        self.name = ""
        self.connection = next_connection_number()
        self.certificate_names: frozenset[str] = frozenset()
        self.peer = ""
        self.held = b""
        """Bytes that wait until the client is authenticated, or until there is room."""
        self.counter = FrameCounter()
        self.client: asyncio.Transport | None = None
        self.server: asyncio.Transport | None = None
        self._server_full = False
        self._since = time.monotonic()
        self._moved = self._since
        """When the client last sent bytes."""
        self._sent = 0
        self._drained = 0
        self._drained_at = self._since
        """When the client last read bytes, or there were none."""
        self._waiting = 0
        self._waits_for_call = False
        self._refused = False
        self._opening: asyncio.Task[None] | None = None

    # --- The client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connect to the server, unless there are too many connections."""
        self.client = client = cast("asyncio.Transport", transport)
        self.address = peer_host(client)
        self.name = peer_name(client)
        self.certificate_names = certificate_names(client)
        if not self.front.enter(self.address):
            self.cut(_TOO_MANY)
            return
        client.set_write_buffer_limits(high=FLIGHT_RELAY_BYTES)
        self._opening = asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> None:
        own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            own.settimeout(0)
            own.bind("")  # the system gives it a name, by which gRPC's calls name the connection
            self.peer = _PEER + own.getsockname()[1:].decode()
            self.front.connections[self.peer] = self
            loop = asyncio.get_running_loop()
            await loop.sock_connect(own, str(self.front.target))
            try:
                await loop.create_unix_connection(lambda: _ServerSide(self), sock=own)
            finally:
                # The transport closes the descriptor. If it is aborted while it is opened, uvloop
                # leaves it to `own` as well: closed twice, it could be that of a file or client.
                own.detach()
        except OSError as error:
            own.close()
            self.cut(f"the service does not answer: {error}")

    def opened(self, transport: asyncio.Transport) -> None:
        """Relay from now on."""
        self.server = transport
        transport.set_write_buffer_limits(high=FLIGHT_RELAY_BYTES)
        # Later: uvloop does not close a socket whose transport is aborted while it is opened.
        asyncio.get_running_loop().call_soon(self.go_on)

    def data_received(self, data: bytes) -> None:
        """Check and relay bytes of the client."""
        self._moved = time.monotonic()
        if self._refused:
            return  # read and dropped, so that the client gets the answer
        if self.server is None or self.held:
            self.held += data
            self._pause_client()
        else:
            self._forward(data)

    def eof_received(self) -> bool:
        """End both sides: gRPC has no half-closed connections."""
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        """Forget the connection."""
        if self.client is None:
            return  # lost at the end of its TLS handshake
        front = self.front
        front.leave(self.address)
        if front.connections.get(self.peer) is self:
            del front.connections[self.peer]
        self._settle(0)
        front.calls.leave(self.address, self._call_again)
        self.client = None
        if self.server is not None:
            self.server.abort()

    def pause_writing(self) -> None:
        """Read no more from the server: the client does not read."""
        if self.server is not None:
            self.server.pause_reading()

    def resume_writing(self) -> None:
        """Read from the server again."""
        if self.server is not None:
            self.server.resume_reading()

    # --- The server

    def from_server(self, data: bytes) -> None:
        """Relay bytes of the server."""
        if self.client is None or self._refused:
            return
        for stream in self.counter.feed(data):
            self.gate.close_stream(stream)
            if self.held:
                asyncio.get_running_loop().call_soon(self.go_on)
        self._settle(self.gate.unfinished)
        self._sent += len(data)
        self.client.write(data)

    def server_full(self, *, full: bool) -> None:
        """Stop or continue reading from the client."""
        self._server_full = full
        if full:
            self._pause_client()
        else:
            self._resume_client()

    def server_lost(self) -> None:
        """Close the client's side after what was sent."""
        self.server = None
        if self.client is not None and not self._refused:
            self.client.close()

    # --- Relaying

    def trust(self) -> None:
        """Accept larger messages: a call was authenticated."""
        self.gate.trusted = True
        self.go_on()

    def go_on(self) -> None:
        """Try again to relay what was held."""
        held, self.held = self.held, b""
        if self.server is None:
            self.held = held
        elif held and not self._refused:
            self._forward(held)
        else:
            self._resume_client()

    def _forward(self, data: bytes) -> None:
        view = memoryview(data)
        arriving = self.front.arriving
        try:
            passed = self.gate.feed(view, arriving.room())
        except NotHttp2 as error:
            self.cut(str(error))
            return
        except TooLarge as error:
            self._refuse(error)
            return
        self._settle(self.gate.unfinished)
        if self.server is not None and passed:
            self.server.write(view[:passed] if passed < len(data) else data)
        self.held = bytes(view[passed:])
        if self.held:
            self._pause_client()
        else:
            self._resume_client()

    def _may_call(self) -> bool:
        """Return whether a call may begin now; if not, go on when it may."""
        calls = self.front.calls
        if self._waits_for_call or not calls.begin(self.address):
            if not self._waits_for_call:
                self._waits_for_call = True
                calls.wait(self.address, self._call_again)
            return False
        return True

    def _call_again(self) -> None:
        self._waits_for_call = False
        self.go_on()

    def _settle(self, unfinished: int) -> None:
        """Account for the unfinished messages of this connection."""
        arriving = self.front.arriving
        freed = self._waiting - unfinished
        arriving.taken -= freed
        self._waiting = unfinished
        if freed > 0:
            asyncio.get_running_loop().call_soon(self.front.room_changed)

    def _pause_client(self) -> None:
        if self.client is not None and self.client.is_reading():
            self.client.pause_reading()

    def _resume_client(self) -> None:
        free = not self.held and not self._server_full and self.server is not None
        if free and self.client is not None and not self.client.is_reading():
            self._moved = time.monotonic()
            self.client.resume_reading()

    def _log_refusal(self, reason: str) -> None:
        log.info("connection refused", connection=self.connection, peer=self.name, reason=reason)

    def _refuse(self, refusal: TooLarge) -> None:
        """Answer a call with an error, and end the connection."""
        self._log_refusal(refusal.problem)
        self._refused = True
        self._settle(0)
        if self.server is not None:
            self.server.abort()
        client = self.client
        if client is None:
            return
        if self.counter.between_frames:
            text = with_failure(BadRequest("message", refusal.problem))
            client.write(failure_frames(refusal.stream, status=_RESOURCE_EXHAUSTED, text=text))
        # Read for a while: an unread byte would make the system drop the answer.
        if not client.is_reading():
            client.resume_reading()
        asyncio.get_running_loop().call_later(_LINGER_SECONDS, client.close)

    def cut(self, reason: str) -> None:
        """Close the connection at once."""
        if self.client is not None:
            if reason:
                self._log_refusal(reason)
            self.client.abort()
        if self.server is not None:
            self.server.abort()

    def check(self, now: float) -> None:
        """Cut a connection that has taken too long."""
        if self.client is None:
            return
        if self._waits_for_call:
            self._since = self._moved = now  # it is not the one that takes long
        if not self.gate.trusted and now - self._since > FLIGHT_FIRST_SECONDS_MAX:
            if self.held and not self._refused:
                problem = f"it has more than {FLIGHT_FIRST_BYTES_MAX} bytes before any other call"
                self._refuse(TooLarge(self.gate.last_stream, problem))
            else:
                self.cut("no authenticated call in time")
            return
        drained = self._sent - self.client.get_write_buffer_size()
        if drained != self._drained or drained == self._sent:
            self._drained = drained
            self._drained_at = now
        silent = self.gate.unfinished and self.client.is_reading()
        stalled_since = min(self._drained_at, self._moved if silent else now)
        if now - stalled_since > self.front.stall_seconds_max:
            self.cut("it does not read or send what it has begun")


class _ServerSide(asyncio.Protocol):
    """The server's side of a connection."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server = cast("asyncio.Transport", transport)
        if self._connection.client is None:
            server.abort()
        else:
            self._connection.opened(server)

    def data_received(self, data: bytes) -> None:
        self._connection.from_server(data)

    def connection_lost(self, _error: Exception | None) -> None:
        self._connection.server_lost()

    def pause_writing(self) -> None:
        self._connection.server_full(full=True)

    def resume_writing(self) -> None:
        self._connection.server_full(full=False)
