"""WebSocket: a byte stream in binary messages, cut anywhere.

A message may hold a part of a frame or many frames; the broker's own messages hold whatever waits
to be sent, up to a size that clients take by default. What asks for anything else than the
WebSocket is handed on to the owner, which answers HTTP.
"""

import asyncio
import logging
import ssl
import weakref
from collections import deque
from typing import Any, Final, Protocol, cast

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
from penstock.transport.pages import Pages
from penstock.transport.web_connection import HttpArrival, WebConnection, peer_of

__all__ = ["WebSocketEndpoint", "WebSocketLink", "WebSocketOwner"]

_MESSAGES_AHEAD: Final = 4
"""Messages that are read before the handler took those before them."""

_ABORT_SECONDS: Final = 1.0
"""For tasks to notice that their connections are gone."""

# The library tells of every handshake that fails, in prose; the owner counts what matters.
_SILENT: Final = logging.getLogger("penstock.transport.websocket.library")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


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

    def refused(self, peer: str, reason: str, *, connection: int) -> None:
        """Count a connection that is ended for a reason of the transport's own."""

    def http(self, arrival: HttpArrival) -> None:
        """Take a connection over: give its transport another protocol, or end it."""


class WebSocketLink:
    """One connection; to its handler it is a `ports.Link`."""

    def __init__(self, owner: WebSocketOwner, connection: WebConnection) -> None:
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
        self.connection = connection.number
        self.peer = peer_of(connection.transport)

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
                self._refused("text message")
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

    def _refused(self, reason: str) -> None:
        self._owner.refused(self.peer, reason, connection=self.connection)

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

    def set_handler(self, handler: Handler) -> None:
        """See ports.Link."""
        self._intake.handler = handler

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
                self._refused("out-buffer full")
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
    """A listening socket that speaks WebSocket at one path, none if empty, and HTTP at others."""

    def __init__(self, owner: WebSocketOwner, *, path: str, pages: Pages) -> None:
        self._owner = owner
        self.entering: set[WebConnection] = set()
        """Connections that have not said yet what they want."""
        self._path = path.encode()
        self._pages = pages
        self._links: set[WebSocketLink] = set()
        self._connections: weakref.WeakSet[WebConnection] = weakref.WeakSet()
        self._server: Server | None = None

    def __len__(self) -> int:
        return len(self._links)

    async def listen(
        self, host: str, port: int, *, tls: ssl.SSLContext | None = None
    ) -> tuple[str, int]:
        """Start to listen; return the address, with the port that port 0 became."""

        def connection(*args: Any, **keywords: Any) -> WebConnection:  # noqa: ANN401
            made = WebConnection(self, *args, **keywords)
            self._connections.add(made)
            return made

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
            create_connection=cast("type[ServerConnection]", connection),
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
        for entering in list(self.entering):
            entering.abort_entry()
        for link in list(self._links):
            link.close()
        if self._server is None:
            return
        waiting = asyncio.ensure_future(self._server.wait_closed())
        done, _ = await asyncio.wait([waiting], timeout=seconds_max)
        # Those too that are still shaking hands: the library knows nothing of some of them.
        left = [each for each in self._connections if each.abort_all()]
        if left:
            await asyncio.wait([each.gone for each in left], timeout=_ABORT_SECONDS)
        if not done:
            await asyncio.wait([waiting], timeout=_ABORT_SECONDS)
            waiting.cancel()

    async def _run(self, connection: ServerConnection) -> None:
        link = WebSocketLink(self._owner, cast("WebConnection", connection))
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    def _process_request(self, connection: ServerConnection, request: Request) -> Response | None:
        """Refuse pages from elsewhere; None lets the handshake go on."""
        headers = request.headers
        if self._pages.may_connect(headers.get("Origin"), headers.get("Host")):
            return None
        entered = cast("WebConnection", connection)
        peer = peer_of(entered.transport)
        self._owner.refused(peer, "origin not allowed", connection=entered.number)
        body = b"origin not allowed\n"
        answer = Headers(
            {
                "Content-Type": "text/plain; charset=utf-8",
                "Content-Length": str(len(body)),
                "Connection": "close",
            }
        )
        return Response(403, "Forbidden", answer, body)

    def http(self, arrival: HttpArrival) -> None:
        """See transport.web_connection.Entrance."""
        self._owner.http(arrival)

    def is_websocket(self, request_line: bytes | bytearray) -> bool:
        """See transport.web_connection.Entrance."""
        method, _, rest = bytes(request_line).partition(b" ")
        path = rest.split(b" ", 1)[0].partition(b"?")[0]
        return bool(path) and method == b"GET" and path == self._path
