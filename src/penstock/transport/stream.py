"""Stream connections (TCP, TLS, IPC) on an asyncio loop.

All connections of a loop read into one shared buffer. A connection keeps only the bytes of an
incomplete frame, and copies them to the front of the shared buffer before its next read. A large
incomplete frame is read into a buffer of the connection's own until it is complete.

An out-buffer above RECEIVE_BUFFER_BYTES is held in the connection's account at each write, a
smaller one when `measure` is called. A connection whose incomplete frame finds no memory is not
read until there is some.
"""

import asyncio
import socket
from typing import Final, Protocol, cast

from penstock.limits import (
    INPUT_GROWTH_BYTES_MAX,
    LINGER_SECONDS_MAX,
    MEMORY_SHORT_READ_BYTES,
    MEMORY_WAIT_SECONDS_MAX,
    RECEIVE_BUFFER_BYTES,
)
from penstock.memory import Account, Purpose, unlimited_account
from penstock.ports import Handler
from penstock.transport.links import next_connection_number, peer_name

__all__ = ["ConnectionOwner", "ReceiveBuffer", "StreamConnection"]

REST_BYTES_MAX: Final = RECEIVE_BUFFER_BYTES // 4
"""An incomplete frame above this size is read into a buffer of the connection's own."""
_FREE_BYTES: Final = 4096
"""An incomplete frame up to this size is part of the connection's own memory."""


class ReceiveBuffer:
    """The buffer into which all connections of an event loop read."""

    def __init__(self, size: int = RECEIVE_BUFFER_BYTES) -> None:
        self.data = bytearray(size)
        self.whole = memoryview(self.data)
        self.view = self.whole
        """The part for one read."""
        self.is_narrow = False

    def narrow(self, short: bool) -> None:  # noqa: FBT001
        """Read in small pieces while memory is short: a piece that was read must be kept."""
        self.is_narrow = short
        self.view = self.whole[:MEMORY_SHORT_READ_BYTES] if short else self.whole


class ConnectionOwner(Protocol):
    """The listener that connections belong to."""

    @property
    def buffer(self) -> ReceiveBuffer:
        """The shared buffer of the event loop."""

    @property
    def congested_bytes(self) -> int:
        """Bytes buffered for a peer above which its link is congested."""

    def opened(self, connection: "StreamConnection") -> Handler:
        """Register a new connection; return its handler."""

    def closed(self, connection: "StreamConnection") -> None:
        """Remove a connection that is closed."""

    def failed(self, connection: "StreamConnection", error: Exception) -> None:
        """Log an exception of a connection's handler; the connection is aborted."""


class StreamConnection(asyncio.BufferedProtocol):
    """One connection; to its handler it is a `ports.Link`."""

    __slots__ = (
        "_closing",
        "_ended",
        "_handler",
        "_input_held",
        "_output_held",
        "_own_buffer",
        "_own_filled",
        "_owner",
        "_pauses",
        "_received",
        "_rest",
        "_starved",
        "_transport",
        "_written",
        "account",
        "congested",
        "connection",
        "peer",
    )

    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._handler: Handler | None = None
        self._rest = b""
        self._own_buffer: bytearray | None = None
        self._own_filled = 0
        self._pauses = 0
        self._closing = False
        self._ended = False  # half-closed: the peer sends nothing more, but may still read
        self._received = 0  # bytes since the start
        self._written = 0
        self._input_held = False  # whether the account has an incomplete frame
        self._output_held = False  # whether much is buffered: held in the account at each write
        self._starved = False  # whether reading is paused until there is memory
        self.account: Account = unlimited_account()
        self.congested = False
        self.connection = next_connection_number()
        self.peer = ""

    # --- asyncio.BufferedProtocol -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set socket options and create the handler."""
        self._transport = cast("asyncio.Transport", transport)
        self.peer = peer_name(transport)
        self._watch_output()
        connected = transport.get_extra_info("socket")
        if connected is not None and connected.family != socket.AF_UNIX:
            # The system detects peers that vanish without closing the connection.
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._handler = self._owner.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Return the buffer for the next read, behind the bytes of an incomplete frame."""
        if self._own_buffer is not None:
            return memoryview(self._own_buffer)[self._own_filled :]
        buffer, rest = self._owner.buffer, self._rest
        if not self.account.authenticated:
            buffer.data[: len(rest)] = rest
            return buffer.whole[len(rest) : len(rest) + MEMORY_SHORT_READ_BYTES]
        if not rest:
            return buffer.view
        buffer.data[: len(rest)] = rest
        return buffer.whole[len(rest) : len(rest) + len(buffer.view)]

    def buffer_updated(self, nbytes: int) -> None:
        """Offer the received bytes to the handler."""
        self._received += nbytes
        if self._own_buffer is None:
            filled = len(self._rest) + nbytes
            self._rest = b""
            self._take(self._owner.buffer.whole[:filled])
            return
        own = self._own_buffer
        filled = self._own_filled + nbytes
        self._own_buffer = None
        with memoryview(own) as whole, whole[:filled] as view:
            taken = self._offer(view)
            if 0 < taken < filled:
                self._keep(view[taken:], large=False)
        if taken == filled:
            self._release_input()
        elif not taken:
            self._own_buffer, self._own_filled = own, filled
            if filled == len(own):
                self._enlarge(own)

    def pause_writing(self) -> None:
        """Hold the out-buffer in the account: it is larger than a full read."""
        self._output_held = True
        self._hold_output()

    def resume_writing(self) -> None:
        """Tell the handler that the link is no longer congested."""
        self._output_held = False
        self.account.force(Purpose.OUTPUT, self.buffered)
        congested, self.congested = self.congested, False
        self._watch_output()
        if congested and not self.congested and self._handler is not None:
            self._handler.drained()

    def _watch_output(self) -> None:
        """Ask for `pause_writing` above a full read, for `resume_writing` at a quarter of it."""
        if self._transport is not None:
            high = min(RECEIVE_BUFFER_BYTES, self._owner.congested_bytes)
            self._transport.set_write_buffer_limits(high=high, low=high // 4)

    def _hold_output(self) -> None:
        """Hold the out-buffer in the account; mark the link as congested above its limit.

        Without memory it is congested at any size: then it takes no messages until it is drained.
        """
        transport = self._transport
        if transport is None:
            return
        size = transport.get_write_buffer_size()
        has_memory = self.account.force(Purpose.OUTPUT, size)
        if self.congested:
            return
        high = self._owner.congested_bytes
        if size > high:
            self.congested = True
            transport.set_write_buffer_limits(high=high, low=high // 4)
        elif not has_memory:
            self.congested = True

    def eof_received(self) -> bool:
        """On half-close, let the handler finish its replies and close the link.

        TLS connections cannot half-close on asyncio: they close at once.
        """
        transport = self._transport
        if transport is None or transport.get_extra_info("sslcontext") is not None:
            self._closing = True
            self._linger()
            return False
        if not self._ended and not self._closing and self._handler is not None:
            self._ended = True
            self._rest, self._own_buffer = b"", None
            self._release_input()
            try:
                self._handler.ended()
            except Exception as error:  # noqa: BLE001
                # A failing handler ends its own connection only.
                self._owner.failed(self, error)
                self.abort()
        return True  # keep the transport open: the handler closes it

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection and tell the handler why it ended."""
        handler, self._handler = self._handler, None
        self._closing = True
        self._transport = None
        self._own_buffer = None
        self._rest = b""
        self.account.close()
        try:
            if handler is not None:
                handler.lost(str(exc) if exc else "closed")
        finally:
            self._owner.closed(self)

    def _take(self, view: memoryview) -> None:
        """Offer `view` to the handler and keep what it does not take."""
        taken = self._offer(view)
        if taken < len(view):
            self._keep(view[taken:], large=not taken)
        elif self._input_held:
            self._release_input()

    def _offer(self, view: memoryview) -> int:
        """Offer `view` to the handler; return the bytes taken, all of them once closing."""
        if self._handler is None:
            return len(view)
        try:
            taken = 0 if self._pauses else self._handler.received(view)
        except Exception as error:  # noqa: BLE001
            # A failing handler ends its own connection only.
            self._owner.failed(self, error)
            self.abort()
        return len(view) if self._closing else taken

    def _keep(self, rest: memoryview, *, large: bool) -> None:
        """Keep the bytes of an incomplete frame; if they find no memory, stop reading.

        While memory is short, a frame that is `large`, because a whole read is part of it, gets a
        buffer of its own: then no more is read than the account holds.
        """
        size = len(rest)
        large = large and self._owner.buffer.is_narrow
        if (size <= _FREE_BYTES and not large) or self._pauses:
            self._rest = bytes(rest)
            if size > _FREE_BYTES or self._input_held:
                self._input_held = True
                self.account.force(Purpose.INPUT, size)
            return
        self._input_held = True
        capacity = size
        if large or size > REST_BYTES_MAX:
            capacity = size + min(max(size, _FREE_BYTES), INPUT_GROWTH_BYTES_MAX)
        if not self.account.hold(Purpose.INPUT, capacity):
            self._rest = bytes(rest)
            self._starve(capacity)
        elif capacity == size:
            self._rest = bytes(rest)
        else:
            self._own_buffer = bytearray(capacity)
            self._own_buffer[:size] = rest
            self._own_filled = size

    def _enlarge(self, full: bytearray) -> None:
        """Replace the full buffer of an incomplete frame; if there is no memory, stop reading."""
        filled = len(full)
        capacity = filled + min(filled, INPUT_GROWTH_BYTES_MAX)
        if self.account.hold(Purpose.INPUT, capacity):
            # The loop still exports the old one: it cannot grow in place.
            self._own_buffer = bytearray(capacity)
            self._own_buffer[:filled] = full
        else:
            self._starve(capacity)

    def _release_input(self) -> None:
        self._input_held = False
        self.account.hold(Purpose.INPUT, 0)

    def _starve(self, size: int) -> None:
        """Stop reading until `size` bytes can be held; refuse the frame if they never can."""
        account = self.account
        kept = len(self._rest) if self._own_buffer is None else len(self._own_buffer)
        account.force(Purpose.INPUT, kept)
        if not account.ever_fits(size) or not account.authenticated:
            self.evict()
        elif not self._starved:
            self._starved = True
            self.pause()
            account.wait(Purpose.INPUT, size, self._fed, seconds_max=MEMORY_WAIT_SECONDS_MAX)

    def _fed(self) -> None:
        """Read on: the account holds the memory for the incomplete frame."""
        self._starved = False
        self.resume()

    # --- memory.Holder ----------------------------------------------------------------------------

    def measure(self) -> int:
        """See memory.Holder."""
        buffered = self.buffered
        self.account.force(Purpose.OUTPUT, buffered)
        return self._received + self._written - buffered

    def evict(self) -> None:
        """See memory.Holder: refuse an incomplete frame, or abort a peer that does not read."""
        handler = self._handler
        has_frame = bool(self._rest) or self._own_buffer is not None
        self._rest, self._own_buffer = b"", None
        self._release_input()
        if handler is None or not has_frame or self._closing:
            self.abort()
            return
        try:
            handler.starved()
        except Exception as error:  # noqa: BLE001
            # A failing handler ends its own connection only.
            self._owner.failed(self, error)
            self.abort()

    def waiting(self) -> bytes:
        """Return the received bytes that the handler has not taken."""
        if self._own_buffer is not None:
            return bytes(self._own_buffer[: self._own_filled])
        return self._rest

    @property
    def _done_reading(self) -> bool:
        return self._closing or self._ended

    # --- ports.Link -------------------------------------------------------------------------------

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
            self._written += len(data)
            self._transport.write(data)
            if self._output_held:
                self._hold_output()

    def pause(self) -> None:
        """See ports.Link."""
        self._pauses += 1
        if self._pauses == 1 and self._transport is not None and not self._done_reading:
            self._transport.pause_reading()

    def resume(self) -> None:
        """See ports.Link: waiting bytes are offered first; the handler may pause again."""
        transport = self._transport
        self._pauses -= 1
        if self._pauses or transport is None or self._done_reading:
            return
        transport.resume_reading()
        waiting = self.waiting()
        self._rest, self._own_buffer = b"", None
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
        """Abort a closing connection if its peer reads nothing for LINGER_SECONDS_MAX."""
        if self._transport is None:
            return
        buffered = self.buffered
        if buffered_before is not None and buffered >= buffered_before:
            self._transport.abort()
        elif buffered:
            asyncio.get_running_loop().call_later(LINGER_SECONDS_MAX, self._linger, buffered)
