"""WebSocket: a byte stream in binary messages, which need not match frames.

A message may hold part of a frame or many frames. The broker's own messages hold all bytes that
wait to be sent, up to the size that client libraries accept by default. Requests for anything else
go to the owner, which serves HTTP.
"""

import asyncio
import logging
import ssl
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol, cast

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode
from websockets.http11 import Request, Response

from penstock._kernels.gathered import Gathered
from penstock.limits import (
    HANDSHAKE_SECONDS_MAX,
    INPUT_GROWTH_BYTES_MAX,
    KIB,
    MEMORY_BLOCK_BYTES,
    MEMORY_WAIT_SECONDS_MAX,
    WEBSOCKET_CLOSE_SECONDS_MAX,
    WEBSOCKET_MESSAGE_BYTES_MAX,
    WEBSOCKET_PING_SECONDS,
    WEBSOCKET_SENT_MESSAGE_BYTES_MAX,
)
from penstock.memory import Account, Purpose, unlimited_account
from penstock.ports import Handler
from penstock.transport.certificate_names import certificate_names
from penstock.transport.links import InputBuffer, drained_bytes, peer_host, peer_name
from penstock.transport.origin_policy import OriginPolicy
from penstock.transport.out_queue import FrameSize, OutQueue, Piece
from penstock.transport.web_connection import HttpArrival, WebConnection

__all__ = ["WebSocketEndpoint", "WebSocketLink", "WebSocketOwner"]

_MESSAGES_AHEAD: Final = 4
"""Messages that the library reads ahead of the handler."""
_UNSENT_BYTES_MAX: Final = 32 * KIB
"""Bytes above which the transport of a connection is full."""

_ABORT_SECONDS: Final = 1.0
"""Time for tasks to see that their connections were aborted."""

# The library logs every failed handshake as free text. The owner counts those that matter.
_LIBRARY_LOG: Final = logging.getLogger("penstock.transport.websocket.library")
_LIBRARY_LOG.addHandler(logging.NullHandler())
_LIBRARY_LOG.propagate = False


class WebSocketOwner(Protocol):
    """The listener that connections belong to."""

    @property
    def congested_bytes(self) -> int:
        """Bytes buffered for a peer above which its link is congested."""

    @property
    def out_bytes_max(self) -> int:
        """Bytes buffered for a peer above which its connection is aborted."""

    def opened(self, link: "WebSocketLink") -> Handler:
        """Register a new connection; return its handler."""

    def closed(self, link: "WebSocketLink") -> None:
        """Remove a connection that is closed."""

    def failed(self, link: "WebSocketLink", error: Exception) -> None:
        """Log an exception of a connection's handler; the connection is aborted."""

    def refused(self, peer: str, reason: str, *, connection: int) -> None:
        """Count a connection that the transport refuses or ends."""

    def http(self, arrival: HttpArrival) -> None:
        """Take over a connection: give its transport another protocol, or close it."""

    def entered(self, connection: WebConnection) -> bool:
        """Count a new connection; return False if it may only ask for health."""

    def left(self, connection: WebConnection) -> None:
        """Count the end of a connection, or of its first line or handshake."""

    def health(self, request_line: bytes) -> bytes:
        """Return the whole answer to a request beyond the limit of connections."""


class WebSocketLink:
    """One connection; to its handler it is a `ports.Link`."""

    def __init__(
        self,
        owner: WebSocketOwner,
        connection: WebConnection,
        *,
        frame_size: FrameSize | None = None,
    ) -> None:
        """With `frame_size`, each frame is a message of its own, as pages expect."""
        self._owner = owner
        self._connection = connection
        self._input = InputBuffer()
        self._may_receive = asyncio.Event()
        self._may_receive.set()
        self._queue = OutQueue(bytes_max=WEBSOCKET_SENT_MESSAGE_BYTES_MAX, frame_size=frame_size)
        self._to_send = asyncio.Event()
        self._closing = False
        self._starved = False  # whether reading is paused until there is memory
        self._received = 0  # bytes since the start
        self._sent = 0
        self.account: Account = unlimited_account()
        self.congested = False
        self.connection = connection.number
        self.peer = peer_name(connection.transport)
        self.host = peer_host(connection.transport)
        self.descriptor = -1  # the connection was counted before its handshake
        self.certificate_names = certificate_names(connection.transport)

    # --- The connection ---------------------------------------------------------------------------

    async def run(self) -> None:
        """Read and write until the connection is closed."""
        sender = asyncio.create_task(self._send_all())
        reason = "closed"
        try:
            self._input.handler = self._owner.opened(self)
            self._connection.on_data = self._hold_input
            self._hold_input()
            await self._receive_all()
        except ConnectionClosed as closed:
            reason = str(closed)
        finally:
            if not self._closing:
                sender.cancel()
            # Otherwise the sender task sends what was written, then closes.
            await asyncio.wait([sender])
            handler = self._input.close()
            self._closing = True
            self._connection.on_data = lambda: None
            self.account.close()
            if handler is not None:
                handler.lost(reason)
            self._owner.closed(self)

    async def _receive_all(self) -> None:
        while not self._closing:
            if self._input.paused:
                await self._wait_for_resume()
            message = await self._connection.recv()
            if isinstance(message, str):
                self._refused("text message")
                await self._connection.close(CloseCode.UNSUPPORTED_DATA, "binary messages only")
                return
            if not self._closing:
                self._take(message)

    async def _wait_for_resume(self) -> None:
        """Wait until `resume` is called or the connection is closed."""
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
        """Offer `message` to the handler, or the waiting bytes if it is empty."""
        self._received += len(message)
        try:
            if message:
                self._input.feed(message)
            else:
                self._input.flush()
        except Exception as error:  # noqa: BLE001
            # A failing handler ends its own connection only.
            self._owner.failed(self, error)
            self.abort()

    async def _send_all(self) -> None:
        """Send the queue, many small messages in one write, until closed."""
        connection = self._connection
        try:
            while True:
                await self._to_send.wait()
                while self._queue:
                    before = self._queue.bytes
                    await self._send_some()
                    self._sent += before - self._queue.bytes
                    self.account.hold(Purpose.OUTPUT, self.buffered)
                    self._signal_drained()
                if self._closing:
                    break
                self._to_send.clear()
            await connection.close()
        except ConnectionClosed:
            pass

    def _refused(self, reason: str) -> None:
        self._owner.refused(self.peer, reason, connection=self.connection)

    async def _send_some(self) -> None:
        """Send messages of about WEBSOCKET_SENT_MESSAGE_BYTES_MAX, at least one."""
        connection, room = self._connection, WEBSOCKET_SENT_MESSAGE_BYTES_MAX
        large: list[Piece] = []
        async with connection.send_context():
            while self._queue and room > 0:
                pieces = self._queue.take()
                size = sum(map(len, pieces))
                if size > WEBSOCKET_SENT_MESSAGE_BYTES_MAX:
                    large = pieces
                    break
                connection.protocol.send_binary(pieces[0] if len(pieces) == 1 else b"".join(pieces))
                room -= size
        if large:  # in several frames of WebSocket, so that it is not copied as a whole
            await connection.send(_parts(large))

    def _signal_drained(self) -> None:
        if self.congested and self.buffered <= drained_bytes(self._owner.congested_bytes):
            self.congested = False
            if self._input.handler is not None:
                self._input.handler.drained()

    # --- Memory -----------------------------------------------------------------------------------

    def _hold_input(self) -> None:
        """Hold the input in the account; without memory, read no more until there is some."""
        size = self._connection.input_bytes + self._input.waiting_bytes
        account = self.account
        if account.hold(Purpose.INPUT, size) or self._closing:
            return
        account.force(Purpose.INPUT, size)
        wanted = size + min(size, INPUT_GROWTH_BYTES_MAX)
        if not account.authenticated or not account.ever_fits(wanted):
            self.evict()
        elif not self._starved:
            self._starved = True
            self._connection.pause_memory()
            account.wait(Purpose.INPUT, wanted, self._fed, seconds_max=MEMORY_WAIT_SECONDS_MAX)

    def _fed(self) -> None:
        self._starved = False
        self._connection.resume_memory()

    def measure(self) -> int:
        """See memory.Holder."""
        if not self._starved:
            size = self._connection.input_bytes + self._input.waiting_bytes
            self.account.force(Purpose.INPUT, size)
        self.account.force(Purpose.OUTPUT, self.buffered)
        return self._received + self._sent + len(self._connection.protocol.reader.buffer)

    def evict(self) -> None:
        """See memory.Holder: refuse unfinished input, or abort a peer that does not read."""
        handler = self._input.handler
        self._connection.pause_memory()
        if handler is None or self._closing or not self.account.size(Purpose.INPUT):
            self.abort()
            return
        try:
            handler.starved()
        except Exception as error:  # noqa: BLE001
            # A failing handler ends its own connection only.
            self._owner.failed(self, error)
        if self.buffered:  # an answer: send it, but wait for no more input
            asyncio.get_running_loop().call_later(WEBSOCKET_CLOSE_SECONDS_MAX, self.abort)
        else:
            self.abort()

    # --- ports.Link -------------------------------------------------------------------------------

    @property
    def has_left(self) -> bool:
        """See ports.Link."""
        return self._closing or self._connection.transport.is_closing()

    @property
    def buffered(self) -> int:
        """See ports.Link."""
        return self._queue.bytes + self._connection.transport.get_write_buffer_size()

    @property
    def established(self) -> bool:
        """Whether the handler has a session."""
        return self._input.handler is not None and self._input.handler.established

    def set_handler(self, handler: Handler) -> None:
        """See ports.Link."""
        self._input.handler = handler

    def write_gathered(self, frames: Gathered) -> None:
        """See ports.Link: the frames are copied."""
        self.write(frames.copied())

    def write(self, data: bytes | memoryview) -> None:
        """See ports.Link; abort a peer that does not read its replies."""
        if self._closing or not data:
            return
        self._queue.append(data)
        self._to_send.set()
        has_memory = True
        queued = self._queue.bytes
        if queued > MEMORY_BLOCK_BYTES:
            has_memory = self.account.force(Purpose.OUTPUT, self.buffered)
        if not has_memory or queued > self._owner.congested_bytes:
            self.congested = True
            if queued - len(data) > self._owner.out_bytes_max:
                self._refused("out-buffer full")
                self.abort()

    def pause(self) -> None:
        """See ports.Link."""
        self._input.pause()
        self._may_receive.clear()

    def resume(self) -> None:
        """See ports.Link: waiting bytes are offered first; the handler may pause again."""
        if self._input.resume() and not self._closing:
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
        self._may_receive.set()
        self._to_send.set()
        self._connection.transport.abort()


def _parts(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield pieces in parts of limited size."""
    for piece in pieces:
        view = memoryview(piece)
        for start in range(0, len(view), WEBSOCKET_SENT_MESSAGE_BYTES_MAX):
            yield view[start : start + WEBSOCKET_SENT_MESSAGE_BYTES_MAX]


class WebSocketEndpoint:
    """A listening socket: WebSocket at `path` (none if empty), HTTP at all other paths."""

    def __init__(
        self,
        owner: WebSocketOwner,
        *,
        path: str,
        origins: OriginPolicy,
        frame_size: FrameSize | None = None,
    ) -> None:
        self._owner = owner
        self._frame_size = frame_size
        self.unidentified: set[WebConnection] = set()
        """See transport.web_connection.WebConnectionOwner."""
        self._path = path.encode()
        self._origins = origins
        self._links: set[WebSocketLink] = set()
        self._connections: weakref.WeakSet[WebConnection] = weakref.WeakSet()
        self._server: Server | None = None
        self.tls: ssl.SSLContext | None = None
        """See transport.web_connection.WebConnectionOwner."""

    def __len__(self) -> int:
        return len(self._links)

    async def listen(
        self, host: str, port: int, *, tls: ssl.SSLContext | None = None
    ) -> tuple[str, int]:
        """Start to listen; return host and port, with the actual port for port 0."""

        def connection(*args: Any, **keywords: Any) -> WebConnection:  # noqa: ANN401
            made = WebConnection(self, *args, **keywords)
            self._connections.add(made)
            return made

        self.tls = tls  # connections do the handshake themselves, so that it is counted
        self._server = await serve(
            self._run,
            host,
            port,
            process_request=self._process_request,
            compression=None,
            server_header=None,
            open_timeout=HANDSHAKE_SECONDS_MAX,
            close_timeout=WEBSOCKET_CLOSE_SECONDS_MAX,
            ping_interval=WEBSOCKET_PING_SECONDS,
            ping_timeout=WEBSOCKET_PING_SECONDS,
            max_size=WEBSOCKET_MESSAGE_BYTES_MAX,
            max_queue=_MESSAGES_AHEAD,
            # Else a link could stay congested: nothing reports when the transport has sent these.
            write_limit=min(_UNSENT_BYTES_MAX, drained_bytes(self._owner.congested_bytes)),
            logger=_LIBRARY_LOG,
            create_connection=cast("type[ServerConnection]", connection),
        )
        name = next(iter(self._server.sockets)).getsockname()
        return name[0], name[1]

    def stop_accepting(self) -> None:
        """Accept no more connections; keep the open ones."""
        if self._server is not None:
            self._server.close(close_connections=False)

    async def close(self, *, seconds_max: float) -> None:
        """Close all connections; abort those that have unsent data after `seconds_max`."""
        self.stop_accepting()
        for unidentified in list(self.unidentified):
            unidentified.abort_unidentified()
        for link in list(self._links):
            link.close()
        if self._server is None:
            return
        waiting = asyncio.ensure_future(self._server.wait_closed())
        done, _ = await asyncio.wait([waiting], timeout=seconds_max)
        # Include connections in their handshake: the library does not track all of them.
        left = [each for each in self._connections if each.abort_all()]
        if left:
            await asyncio.wait([each.ended for each in left], timeout=_ABORT_SECONDS)
        if not done:
            await asyncio.wait([waiting], timeout=_ABORT_SECONDS)
            waiting.cancel()

    async def _run(self, connection: ServerConnection) -> None:
        web = cast("WebConnection", connection)
        link = WebSocketLink(self._owner, web, frame_size=self._frame_size)
        self._links.add(link)
        self._owner.left(web)  # from here on the link counts
        try:
            await link.run()
        finally:
            self._links.discard(link)

    def _process_request(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer 403 to pages of other origins; return None to continue the handshake."""
        headers = request.headers
        if self._origins.allows_websocket(headers.get("Origin"), headers.get("Host")):
            return None
        entered = cast("WebConnection", connection)
        peer = peer_name(entered.transport)
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
        """See transport.web_connection.WebConnectionOwner."""
        self._owner.http(arrival)

    def entered(self, connection: WebConnection) -> bool:
        """See transport.web_connection.WebConnectionOwner."""
        return self._owner.entered(connection)

    def left(self, connection: WebConnection) -> None:
        """See transport.web_connection.WebConnectionOwner."""
        self._owner.left(connection)

    def health(self, request_line: bytes) -> bytes:
        """See transport.web_connection.WebConnectionOwner."""
        return self._owner.health(request_line)

    def is_websocket(self, request_line: bytes | bytearray) -> bool:
        """See transport.web_connection.WebConnectionOwner."""
        method, _, rest = bytes(request_line).partition(b" ")
        path = rest.split(b" ", 1)[0].partition(b"?")[0]
        return bool(path) and method == b"GET" and path == self._path
