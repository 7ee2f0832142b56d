"""A connection to a web port: the first line of its request selects WebSocket or HTTP."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast

from websockets.asyncio.server import ServerConnection

from penstock.limits import (
    HANDSHAKE_SECONDS_MAX,
    HTTP_HEALTH_SECONDS_MAX,
    HTTP_REQUEST_LINE_BYTES_MAX,
)
from penstock.transport.links import detect_loss, next_connection_number, peer_host, peer_name
from penstock.transport.tls_handshake import secured

__all__ = ["HttpArrival", "WebConnection", "WebConnectionOwner"]


class HttpArrival(NamedTuple):
    """A connection whose first request is not for the WebSocket.

    `received` is what the client has sent; it may grow until the transport has another protocol.
    """

    connection: int
    peer: str
    host: str
    transport: asyncio.Transport
    received: bytearray


class WebConnectionOwner(Protocol):
    """The endpoint that a connection belongs to."""

    @property
    def unidentified(self) -> set["WebConnection"]:
        """Connections whose first line is not complete."""

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The context of TLS, None without."""

    def entered(self, connection: "WebConnection") -> bool:
        """Count a new connection; return False if it may only ask for health."""

    def left(self, connection: "WebConnection") -> None:
        """Count the end of a connection; do nothing if it is not counted."""

    def health(self, request_line: bytes) -> bytes:
        """Return the whole answer to a request beyond the limit of connections."""

    def is_websocket(self, request_line: bytes | bytearray) -> bool:
        """Return whether a request with this first line is for the WebSocket."""

    def http(self, arrival: HttpArrival) -> None:
        """Take over a connection that is not for the WebSocket."""


class WebConnection(ServerConnection):
    """Reads the first line of a request, then starts the WebSocket or hands the socket on."""

    def __init__(self, owner: WebConnectionOwner, *args: Any, **keywords: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **keywords)
        self.number = next_connection_number()
        self._owner = owner
        self._received = bytearray()
        self._unidentified: asyncio.Transport | None = None  # the transport until the first line
        self._deadline: asyncio.TimerHandle | None = None
        self._is_websocket = False
        self._tls_task: asyncio.Task[None] | None = None
        self._securing = False
        self._early: bytearray | None = None
        self._health_only = False
        self.connection = self.number
        self.peer = ""
        self.host = ""
        self.descriptor = -1
        self._library_paused = False  # the library has read ahead far enough
        self._memory_paused = False  # there is no memory for more input
        self.on_data: Callable[[], None] = lambda: None
        """Called after each read, once the WebSocket is open."""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection is closed or handed on."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Do the TLS handshake, if any; wait for the first line before the library sees more."""
        loop = asyncio.get_running_loop()
        self._unidentified = accepted = cast("asyncio.Transport", transport)
        self.peer = peer_name(transport)
        self.host = peer_host(transport)
        connected = transport.get_extra_info("socket")
        self.descriptor = connected.fileno()
        detect_loss(connected)
        self._owner.unidentified.add(self)
        self._health_only = not self._owner.entered(self)
        seconds_max = HTTP_HEALTH_SECONDS_MAX if self._health_only else HANDSHAKE_SECONDS_MAX
        self._deadline = loop.call_later(seconds_max, self.abort_unidentified)
        if self._owner.tls is not None and not accepted.is_closing():
            self._securing = True
            self._early = bytearray()
            self._tls_task = loop.create_task(self._secure(accepted, self._owner.tls))

    async def _secure(self, accepted: asyncio.Transport, context: ssl.SSLContext) -> None:
        made = await secured(
            accepted,
            self,
            context,
            early=self._end_early,
            seconds_max=HANDSHAKE_SECONDS_MAX,
        )
        self._securing = False
        if made is None:
            self.connection_lost(None)
        elif not self.ended.done():
            self._unidentified = made
            self.data_received(b"")  # process what came with the end of the handshake

    def _end_early(self) -> bytes:
        """Return what was received before TLS took over; all that follows is decrypted."""
        early, self._early = bytes(self._early or b""), None
        return early

    @property
    def established(self) -> bool:
        """Whether the first request is complete; if not, the connection gives way to a new one."""
        return False

    def abort(self) -> None:
        """Close the connection now."""
        self.abort_all()

    def data_received(self, data: bytes) -> None:
        """Read the first line and pass all bytes on."""
        if self._is_websocket:
            super().data_received(data)
            self.on_data()
            return
        if self._early is not None:
            self._early += data
            return
        self._received += data
        transport = self._unidentified
        if transport is None or self._securing:
            return
        line, end, _ = self._received.partition(b"\n")
        if not end and len(line) <= HTTP_REQUEST_LINE_BYTES_MAX:
            return
        self._stop_waiting()
        if self._health_only:
            transport.write(self._owner.health(bytes(line)))
            transport.close()
            return
        if self._owner.is_websocket(line):
            self._is_websocket = True
            received, self._received = bytes(self._received), bytearray()
            super().connection_made(transport)
            self.recv_messages.pause = self._pause_library
            self.recv_messages.resume = self._resume_library
            super().data_received(received)
            return
        self.ended.set_result(None)
        self._owner.left(self)  # from here on the HTTP connection counts
        arrival = HttpArrival(self.number, self.peer, self.host, transport, self._received)
        self._owner.http(arrival)

    # --- Flow control: the library and the memory budget pause reading independently

    @property
    def input_bytes(self) -> int:
        """Bytes of the unfinished frame, and of the messages that were read ahead."""
        ahead = self.recv_messages.frames.queue
        return len(self.protocol.reader.buffer) + sum(len(frame.data) for frame in ahead)

    def pause_memory(self) -> None:
        """Read no more until `resume_memory`."""
        self._memory_paused = True
        self.transport.pause_reading()

    def resume_memory(self) -> None:
        """Undo `pause_memory`."""
        self._memory_paused = False
        if not self._library_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def _pause_library(self) -> None:
        self._library_paused = True
        self.transport.pause_reading()

    def _resume_library(self) -> None:
        self._library_paused = False
        if not self._memory_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def eof_received(self) -> None:
        """Close the connection if its first line is not complete."""
        if self._is_websocket:
            super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection."""
        self._stop_waiting()
        self._owner.left(self)
        if self._is_websocket:
            super().connection_lost(exc)
        if not self.ended.done():
            self.ended.set_result(None)

    def _stop_waiting(self) -> None:
        self._unidentified = None
        self._owner.unidentified.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def abort_unidentified(self) -> None:
        """Abort the connection if its first line is not complete."""
        if self._unidentified is None:
            return
        self._unidentified.abort()
        if self._securing and self._tls_task is not None:
            # TLS may report the end of its transport when its own time is over, or never.
            self._tls_task.cancel()
            self.connection_lost(None)

    def abort_all(self) -> bool:
        """Abort the connection in any state; return False if it had ended already."""
        if self.ended.done():
            return False
        is_open = self._is_websocket or self._unidentified is not None
        self.abort_unidentified()
        if self._is_websocket:
            self.transport.abort()
        return is_open
