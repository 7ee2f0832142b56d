"""WebSocket: a byte stream in binary messages, cut anywhere.

A message may hold a part of a frame or many frames; the broker's own messages hold whatever waits
to be sent, up to a size that clients take by default. The port also answers plain HTTP requests:
those that the owner knows, 404 for the rest.
"""

import asyncio
import logging
import ssl
import weakref
from collections import deque
from typing import Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode
from websockets.http11 import Request, Response

from penstock.limits import (
    HANDSHAKE_SECONDS_MAX,
    WEBSOCKET_CLOSE_SECONDS_MAX,
    WEBSOCKET_MESSAGE_BYTES_MAX,
    WEBSOCKET_PING_SECONDS,
    WEBSOCKET_SENT_MESSAGE_BYTES_MAX,
)
from penstock.ports import Handler
from penstock.transport.intake import Intake

__all__ = ["HttpAnswer", "WebSocketEndpoint", "WebSocketLink", "WebSocketOwner"]

_MESSAGES_AHEAD: Final = 4
"""Messages that are read before the handler took those before them."""

_ABORT_SECONDS: Final = 1.0
"""For tasks to notice that their connections are gone."""

# The library tells of every handshake that fails, in prose; the owner counts what matters.
_SILENT: Final = logging.getLogger("penstock.transport.websocket.library")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class HttpAnswer(NamedTuple):
    """What is answered to a plain HTTP request."""

    status: int
    reason: str
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


class WebSocketOwner(Protocol):
    """Who the connections belong to: a listener."""

    @property
    def congested_bytes(self) -> int:
        """How much may be buffered for a peer before its link is congested."""

    @property
    def out_bytes_max(self) -> int:
        """How much may be buffered for a peer at all; with more it is cut off."""

    def opened(self, link: "WebSocketLink") -> Handler:
        """Take note of a new connection; return its handler."""

    def closed(self, link: "WebSocketLink") -> None:
        """Take note that a connection is gone."""

    def failed(self, link: "WebSocketLink", error: Exception) -> None:
        """Take note that a connection's handler broke; the connection is aborted."""

    def refused(self, peer: str, reason: str) -> None:
        """Count a connection that is ended for a reason of the transport's own."""

    def http(self, path: str) -> HttpAnswer | None:
        """Answer a GET of `path`, which is not the WebSocket's; None if there is nothing there."""


class WebSocketLink:
    """One connection; to its handler it is a `ports.Link`."""

    def __init__(self, owner: WebSocketOwner, connection: ServerConnection) -> None:
        self._owner = owner
        self._connection = connection
        self._intake = Intake()
        self._may_receive = asyncio.Event()
        self._may_receive.set()
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._to_send = asyncio.Event()
        self._closing = False
        self.congested = False
        name = connection.remote_address
        self.peer = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name or "")

    # --- The connection's side --------------------------------------------------------------------

    async def run(self) -> None:
        """Read and write until the connection is gone or closed."""
        sender = asyncio.create_task(self._send_all())
        reason = "closed"
        try:
            self._intake.handler = self._owner.opened(self)
            await self._receive_all()
        except ConnectionClosed as closed:
            reason = str(closed)
        finally:
            if not self._closing:
                sender.cancel()
            # Otherwise what was written is sent first, and the sender closes.
            await asyncio.wait([sender])
            handler = self._intake.end()
            self._closing = True
            if handler is not None:
                handler.lost(reason)
            self._owner.closed(self)

    async def _receive_all(self) -> None:
        while not self._closing:
            if self._intake.paused:
                await self._resumed_or_lost()
            message = await self._connection.recv()
            if isinstance(message, str):
                self._owner.refused(self.peer, "text message")
                await self._connection.close(CloseCode.UNSUPPORTED_DATA, "binary messages only")
                return
            self._take(message)

    async def _resumed_or_lost(self) -> None:
        """Wait for `resume`; a connection that is gone needs none."""
        tasks = [
            asyncio.ensure_future(self._may_receive.wait()),
            asyncio.ensure_future(self._connection.wait_closed()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    def _take(self, message: bytes) -> None:
        """Let the handler take what it can of `message`, or of what waits if that is empty."""
        try:
            if message:
                self._intake.take(message)
            else:
                self._intake.take_waiting()
        except Exception as error:  # noqa: BLE001
            # Whatever broke, it breaks one connection only.
            self._owner.failed(self, error)
            self.abort()

    async def _send_all(self) -> None:
        """Send what waits, as much at once as a message may hold, until closed."""
        connection = self._connection
        try:
            while True:
                await self._to_send.wait()
                while self._queue:
                    await connection.send(self._next_message())
                    self._relax()
                if self._closing:
                    break
                self._to_send.clear()
            await connection.close()
        except ConnectionClosed:
            pass

    def _next_message(self) -> bytes:
        chunks = []
        room = WEBSOCKET_SENT_MESSAGE_BYTES_MAX
        while self._queue and room:
            chunk = self._queue.popleft()
            if len(chunk) > room:
                self._queue.appendleft(chunk[room:])
                chunk = chunk[:room]
            chunks.append(chunk)
            room -= len(chunk)
        self._queued_bytes -= WEBSOCKET_SENT_MESSAGE_BYTES_MAX - room
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _relax(self) -> None:
        if self.congested and self.buffered <= self._owner.congested_bytes // 4:
            self.congested = False
            if self._intake.handler is not None:
                self._intake.handler.drained()

    # --- The handler's side -----------------------------------------------------------------------

    @property
    def buffered(self) -> int:
        """See ports.Link."""
        return self._queued_bytes + self._connection.transport.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        """See ports.Link; a peer that lets answers pile up without end is cut off."""
        if self._closing or not data:
            return
        self._queue.append(data)
        self._queued_bytes += len(data)
        self._to_send.set()
        if self._queued_bytes > self._owner.congested_bytes:
            self.congested = True
            if self._queued_bytes - len(data) > self._owner.out_bytes_max:
                self._owner.refused(self.peer, "out-buffer full")
                self.abort()

    def pause(self) -> None:
        """See ports.Link."""
        self._intake.pause()
        self._may_receive.clear()

    def resume(self) -> None:
        """See ports.Link: what waits is handed on first, and may pause again."""
        if self._intake.resume() and not self._closing:
            self._may_receive.set()
            self._take(b"")

    def close(self) -> None:
        """See ports.Link."""
        if not self._closing:
            self._closing = True
            self._may_receive.set()
            self._to_send.set()

    def abort(self) -> None:
        """See ports.Link."""
        self._closing = True
        self._queue.clear()
        self._queued_bytes = 0
        self._may_receive.set()
        self._to_send.set()
        self._connection.transport.abort()


class WebSocketEndpoint:
    """A listening socket that speaks WebSocket at one path and HTTP at others."""

    def __init__(self, owner: WebSocketOwner, *, path: str, origins: tuple[str, ...] = ()) -> None:
        self._owner = owner
        self._path = path
        self._origins = frozenset(origins)
        self._links: set[WebSocketLink] = set()
        self._connections: weakref.WeakSet[ServerConnection] = weakref.WeakSet()
        self._server: Server | None = None

    def __len__(self) -> int:
        return len(self._links)

    async def listen(
        self, host: str, port: int, *, tls: ssl.SSLContext | None = None
    ) -> tuple[str, int]:
        """Start to listen; return the address, with the port that port 0 became."""
        connections = self._connections

        class Connection(ServerConnection):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                connections.add(self)

        self._server = await serve(
            self._run,
            host,
            port,
            ssl=tls,
            process_request=self._process_request,
            compression=None,
            server_header=None,
            open_timeout=HANDSHAKE_SECONDS_MAX,
            close_timeout=WEBSOCKET_CLOSE_SECONDS_MAX,
            ping_interval=WEBSOCKET_PING_SECONDS,
            ping_timeout=WEBSOCKET_PING_SECONDS,
            max_size=WEBSOCKET_MESSAGE_BYTES_MAX,
            max_queue=_MESSAGES_AHEAD,
            logger=_SILENT,
            create_connection=Connection,
        )
        name = next(iter(self._server.sockets)).getsockname()
        return name[0], name[1]

    def stop_accepting(self) -> None:
        """Let nobody else in; who is in stays."""
        if self._server is not None:
            self._server.close(close_connections=False)

    async def close(self, *, seconds_max: float) -> None:
        """End all connections, once what was written to them is sent or the time is up."""
        self.stop_accepting()
        for link in list(self._links):
            link.close()
        if self._server is None:
            return
        waiting = asyncio.ensure_future(self._server.wait_closed())
        done, _ = await asyncio.wait([waiting], timeout=seconds_max)
        if not done:
            for connection in list(self._connections):
                connection.transport.abort()  # those too that are still shaking hands
            await asyncio.wait([waiting], timeout=_ABORT_SECONDS)
            waiting.cancel()

    async def _run(self, connection: ServerConnection) -> None:
        link = WebSocketLink(self._owner, connection)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    def _process_request(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer what is not for the WebSocket; None lets the handshake go on."""
        path = request.path.partition("?")[0]
        if path == self._path:
            if self._welcomes(request.headers):
                return None
            self._owner.refused(str(connection.remote_address), "origin not allowed")
            return _response(HttpAnswer(403, "Forbidden", b"origin not allowed\n"))
        if request.method != "GET":
            return _response(HttpAnswer(405, "Method Not Allowed", b"GET only\n"))
        answer = self._owner.http(path)
        return _response(answer or HttpAnswer(404, "Not Found", b"not found\n"))

    def _welcomes(self, headers: Headers) -> bool:
        """Judge the page that a browser runs: without this, any page could speak to the broker.

        Programs send no origin. A page that came from this very host is welcome.
        """
        origin = headers.get("Origin")
        if origin is None or "*" in self._origins or origin in self._origins:
            return True
        return urlsplit(origin).netloc == headers.get("Host")


def _response(answer: HttpAnswer) -> Response:
    headers = Headers(
        {
            "Content-Type": answer.content_type,
            "Content-Length": str(len(answer.body)),
            "Connection": "close",
        }
    )
    return Response(answer.status, answer.reason, headers, answer.body)
