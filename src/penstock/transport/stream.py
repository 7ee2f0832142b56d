"""Stream connections (TCP, TLS, IPC) on an asyncio loop.

All connections of a loop read into one buffer. A connection keeps only the bytes of a frame that is
not whole yet, and puts them back to the front of the buffer before its next read. A frame too large
for that gets a buffer of its own until it is done.
"""

import asyncio
import socket
from typing import Final, Protocol, cast

from penstock.limits import LINGER_SECONDS_MAX, RECEIVE_BUFFER_BYTES
from penstock.ports import Handler
from penstock.transport.numbers import next_connection

__all__ = ["ConnectionOwner", "ReceiveBuffer", "StreamConnection"]

REST_BYTES_MAX: Final = RECEIVE_BUFFER_BYTES // 4
"""More than this of an unfinished frame, and the connection reads into a buffer of its own."""


class ReceiveBuffer:
    """The one buffer of an event loop."""

    def __init__(self, size: int = RECEIVE_BUFFER_BYTES) -> None:
        self.data = bytearray(size)
        self.view = memoryview(self.data)


class ConnectionOwner(Protocol):
    """Who a connection belongs to: a listener."""

    @property
    def buffer(self) -> ReceiveBuffer:
        """The buffer of the event loop."""

    @property
    def congested_bytes(self) -> int:
        """How much may be buffered for a peer before its link is congested."""

    def opened(self, connection: "StreamConnection") -> Handler:
        """Take note of a new connection; return its handler."""

    def closed(self, connection: "StreamConnection") -> None:
        """Take note that a connection is gone."""

    def failed(self, connection: "StreamConnection", error: Exception) -> None:
        """Take note that a connection's handler broke; the connection is aborted."""


class StreamConnection(asyncio.BufferedProtocol):
    """One connection; to its handler it is a `ports.Link`."""

    __slots__ = (
        "_closing",
        "_ended",
        "_handler",
        "_own",
        "_own_filled",
        "_owner",
        "_pauses",
        "_rest",
        "_transport",
        "congested",
        "connection",
        "peer",
    )

    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._handler: Handler | None = None
        self._rest = b""
        self._own: bytearray | None = None
        self._own_filled = 0
        self._pauses = 0
        self._closing = False
        self._ended = False  # the peer sends nothing more; it may still read
        self.congested = False
        self.connection = next_connection()
        self.peer = ""

    # --- asyncio's side ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start: the handler is made for this link."""
        self._transport = cast("asyncio.Transport", transport)
        name = transport.get_extra_info("peername")
        self.peer = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name or "")
        high = self._owner.congested_bytes
        self._transport.set_write_buffer_limits(high=high, low=high // 4)
        peer = transport.get_extra_info("socket")
        if peer is not None and peer.family != socket.AF_UNIX:
            # A peer that is gone without a word is found out by the system, in its own time.
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._handler = self._owner.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Give the place for the next read: behind the bytes that wait for the rest."""
        if self._own is not None:
            return memoryview(self._own)[self._own_filled :]
        rest = self._rest
        if not rest:
            return self._owner.buffer.view
        self._owner.buffer.data[: len(rest)] = rest
        return self._owner.buffer.view[len(rest) :]

    def buffer_updated(self, nbytes: int) -> None:
        """Hand on what was read."""
        if self._own is None:
            filled = len(self._rest) + nbytes
            self._rest = b""
            self._take(self._owner.buffer.view[:filled])
            return
        own = full = self._own
        filled = self._own_filled + nbytes
        self._own = None
        with memoryview(own) as whole, whole[:filled] as view:
            taken = self._offer(view)
            if 0 < taken < filled:
                self._keep(view[taken:])
        if not taken:
            if filled == len(own):  # the loop still holds it: it cannot be made longer in place
                own = bytearray(2 * filled)
                own[:filled] = full
            self._own, self._own_filled = own, filled

    def pause_writing(self) -> None:
        """Note that the peer reads more slowly than it is written to."""
        self.congested = True

    def resume_writing(self) -> None:
        """Let the handler know that the peer has caught up."""
        self.congested = False
        if self._handler is not None:
            self._handler.drained()

    def eof_received(self) -> bool:
        """Let the handler end when the peer has no more to say; it may owe answers yet.

        TLS on asyncio cannot write to a peer that has ended: there the connection closes at once.
        """
        transport = self._transport
        if transport is None or transport.get_extra_info("sslcontext") is not None:
            self._closing = True
            self._linger()
            return False
        if not self._ended and not self._closing and self._handler is not None:
            self._ended = True
            self._rest, self._own = b"", None
            try:
                self._handler.ended()
            except Exception as error:  # noqa: BLE001
                # Whatever broke, it breaks one connection only.
                self._owner.failed(self, error)
                self.abort()
        return True  # what closes it is the handler

    def connection_lost(self, exc: Exception | None) -> None:
        """End: the handler learns why."""
        handler, self._handler = self._handler, None
        self._closing = True
        self._transport = None
        self._own = None
        self._rest = b""
        try:
            if handler is not None:
                handler.lost(str(exc) if exc else "closed")
        finally:
            self._owner.closed(self)

    def _take(self, view: memoryview) -> None:
        """Let the handler take what it can of `view`, and keep the rest."""
        taken = self._offer(view)
        if taken < len(view):
            self._keep(view[taken:])

    def _offer(self, view: memoryview) -> int:
        """Let the handler take what it can; return how much that was, all if nobody wants more."""
        if self._handler is None:
            return len(view)
        try:
            taken = 0 if self._pauses else self._handler.received(view)
        except Exception as error:  # noqa: BLE001
            # Whatever broke, it breaks one connection only.
            self._owner.failed(self, error)
            self.abort()
        return len(view) if self._closing else taken

    def _keep(self, rest: memoryview) -> None:
        if len(rest) <= REST_BYTES_MAX:
            self._rest = bytes(rest)
            return
        self._own = bytearray(2 * len(rest))
        self._own[: len(rest)] = rest
        self._own_filled = len(rest)

    def waiting(self) -> bytes:
        """Return the bytes that were received and not taken."""
        if self._own is not None:
            return bytes(self._own[: self._own_filled])
        return self._rest

    @property
    def _done_reading(self) -> bool:
        return self._closing or self._ended

    # --- the handler's side -----------------------------------------------------------------------

    @property
    def buffered(self) -> int:
        """See ports.Link."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def set_handler(self, handler: Handler) -> None:
        """See ports.Link."""
        self._handler = handler

    def write(self, data: bytes) -> None:
        """See ports.Link."""
        if self._transport is not None and not self._closing:
            self._transport.write(data)

    def pause(self) -> None:
        """See ports.Link."""
        self._pauses += 1
        if self._pauses == 1 and self._transport is not None and not self._done_reading:
            self._transport.pause_reading()

    def resume(self) -> None:
        """See ports.Link: what waits is handed on first, and may pause again."""
        transport = self._transport
        self._pauses -= 1
        if self._pauses or transport is None or self._done_reading:
            return
        transport.resume_reading()
        waiting = self.waiting()
        self._rest, self._own = b"", None
        if waiting:
            self._take(memoryview(waiting))

    def close(self) -> None:
        """See ports.Link."""
        if not self._closing and self._transport is not None:
            self._closing = True
            self._transport.close()
            self._linger()

    def abort(self) -> None:
        """See ports.Link."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def _linger(self, buffered_before: int | None = None) -> None:
        """Wait for a peer to read what is left for it, as long as it does."""
        if self._transport is None:
            return
        buffered = self.buffered
        if buffered_before is not None and buffered >= buffered_before:
            self._transport.abort()
        elif buffered:
            asyncio.get_running_loop().call_later(LINGER_SECONDS_MAX, self._linger, buffered)
