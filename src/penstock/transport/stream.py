"""Stream connections (TCP, TLS, IPC) on an asyncio loop.

All connections of a loop read into one shared buffer. The bytes of an incomplete frame stay in it
until another connection reads: then they are copied out, and back to its front before the next read
of their connection. A large incomplete frame is read into a buffer of the connection's own until it
is complete.

Unsent bytes wait in a queue of references, and the transport gets a small part of them at a time.
So a frame for many connections that do not read is in memory once. Small writes of a connection
that has written in the same turn of the loop wait there for the end of the turn (`late_writes`).

What is queued is held in the connection's account at each write; the little that the transport has
is held when `measure` is called. A connection whose incomplete frame finds no memory is not read
until there is some.
"""

import asyncio
import fcntl
import select
import socket
import struct
import termios
import time
from collections import deque
from typing import Final, Protocol, cast

from penstock._kernels.gathered import Gathered
from penstock.limits import (
    HANDOVER_BYTES_MAX,
    INPUT_GROWTH_BYTES_MAX,
    LARGE_READ_BYTES,
    LARGE_READ_SECONDS_MAX,
    LARGE_READS_PER_TURN_MAX,
    LATE_WRITE_BYTES_MAX,
    LINGER_SECONDS_MAX,
    MEMORY_SHORT_READ_BYTES,
    MEMORY_WAIT_SECONDS_MAX,
    RECEIVE_BUFFER_BYTES,
    TLS_HANDOVER_BYTES_MAX,
)
from penstock.memory import Account, Purpose, unlimited_account
from penstock.ports import Handler
from penstock.transport.certificate_names import certificate_names
from penstock.transport.late_writes import LateWrites
from penstock.transport.links import (
    detect_loss,
    drained_bytes,
    next_connection_number,
    peer_host,
    peer_name,
)

__all__ = ["ConnectionOwner", "ReceiveBuffer", "StreamConnection"]

REST_BYTES_MAX: Final = RECEIVE_BUFFER_BYTES // 4
"""An incomplete frame above this size is read into a buffer of the connection's own."""
_FREE_BYTES: Final = 4096
"""An incomplete frame up to this size is part of the connection's own memory."""


class ReceiveBuffer:
    """The buffer into which all connections of an event loop read."""

    def __init__(self, size: int = LARGE_READ_BYTES) -> None:
        self.data = bytearray(size)
        self.whole = memoryview(self.data)
        self.view = self.whole[:RECEIVE_BUFFER_BYTES]
        """The part for one read."""
        self.is_narrow = False
        self.large_reads = LargeReads()
        self.late_writes = LateWrites()
        self.resident: StreamConnection | None = None
        """The connection whose incomplete frame is in the buffer."""
        self.resident_at = 0
        """The index at which this frame begins."""
        self._last_reader: object = None

    def narrow(self, short: bool) -> None:  # noqa: FBT001
        """Read in small pieces while memory is short: a piece that was read must be kept."""
        self.is_narrow = short
        self.view = self.whole[: MEMORY_SHORT_READ_BYTES if short else RECEIVE_BUFFER_BYTES]

    def reads_alone(self, reader: object) -> bool:
        """Note who reads; return whether nobody else read in between."""
        alone = self._last_reader is reader
        self._last_reader = reader
        return alone


class LargeReads:
    """Connections in the middle of a large frame. In each turn of the loop a few of them read."""

    def __init__(self, per_turn_max: int = LARGE_READS_PER_TURN_MAX) -> None:
        self._per_turn_max = per_turn_max
        self._waiting: deque[StreamConnection] = deque()

    def wait(self, connection: "StreamConnection") -> None:
        """Pause a connection until it is its turn again."""
        connection.pause()
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._resume)
        self._waiting.append(connection)

    def _resume(self) -> None:
        for _ in range(min(len(self._waiting), self._per_turn_max)):
            self._waiting.popleft().resume()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._resume)


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
        "_acknowledged",
        "_closing",
        "_direct",
        "_ended",
        "_gathers",
        "_handing_over",
        "_handler",
        "_handover_bytes",
        "_input_held",
        "_late",
        "_own_buffer",
        "_own_filled",
        "_owner",
        "_pauses",
        "_queue",
        "_queued_bytes",
        "_reads_large",
        "_received",
        "_rest",
        "_starved",
        "_tls_written",
        "_transport",
        "_transport_full",
        "_turn_written",
        "_written",
        "account",
        "certificate_names",
        "congested",
        "connection",
        "descriptor",
        "host",
        "peer",
    )

    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._handler: Handler | None = None
        self._rest: bytes | memoryview = b""  # of an incomplete frame; a view of the shared buffer
        self._own_buffer: bytearray | None = None
        self._own_filled = 0
        self._pauses = 0
        self._closing = False
        self._ended = False  # half-closed: the peer sends nothing more, but may still read
        self._queue: deque[bytes | memoryview] | None = None  # made when it is first needed
        self._queued_bytes = 0
        self._handover_bytes = HANDOVER_BYTES_MAX
        self._transport_full = False
        self._handing_over = False
        self._direct = True  # nothing is queued, and the transport is not full
        self._late = False  # what is queued waits for the end of the turn only
        self._turn_written = -1  # the turn of the last write at once
        self._gathers = True  # whether the socket takes bytes as they are
        self._received = 0  # bytes since the start
        self._written = 0
        self._acknowledged = 0  # of them, as far as it is known
        self._tls_written = (0.0, 0)  # time and bytes written when `acknowledged` was called last
        self._input_held = False  # whether the account has an incomplete frame
        self._starved = False  # whether reading is paused until there is memory
        self._reads_large = False  # whether the next read is LARGE_READ_BYTES
        self.account: Account = unlimited_account()
        self.congested = False
        self.connection = next_connection_number()
        self.peer = self.host = ""
        self.descriptor = -1
        self.certificate_names: frozenset[str] = frozenset()

    # --- asyncio.BufferedProtocol -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set socket options and create the handler."""
        self._transport = cast("asyncio.Transport", transport)
        self.peer = peer_name(transport)
        self.host = peer_host(transport)
        self.certificate_names = certificate_names(transport)
        high = HANDOVER_BYTES_MAX
        if transport.get_extra_info("sslcontext") is not None:
            high = TLS_HANDOVER_BYTES_MAX
            self._gathers = False
        # Else a link could stay congested: a transport that is not full does not report its end.
        high = self._handover_bytes = min(high, drained_bytes(self._owner.congested_bytes))
        self._transport.set_write_buffer_limits(high=high, low=high // 4)
        connected = transport.get_extra_info("socket")
        if connected is not None:
            self.descriptor = connected.fileno()
        if connected is not None and connected.family != socket.AF_UNIX:
            detect_loss(connected)
        self._handler = self._owner.opened(self)
        waiting = self.waiting()
        if waiting:
            self._rest, self._own_buffer = b"", None
            self._take(memoryview(waiting))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Return the buffer for the next read, behind the bytes of an incomplete frame."""
        if self._own_buffer is not None:
            filled = self._own_filled
            return memoryview(self._own_buffer)[filled : filled + RECEIVE_BUFFER_BYTES]
        buffer, rest = self._owner.buffer, self._rest
        resident = buffer.resident
        if resident is not None and resident is not self:
            resident.move_out()
            buffer.resident = None
        size = len(rest)
        if size and (buffer.resident_at or not isinstance(rest, memoryview)):
            self._rest = buffer.whole[:size]
            self._rest[:] = rest
            buffer.resident, buffer.resident_at = self, 0
        if not self.account.authenticated:
            return buffer.whole[size : size + MEMORY_SHORT_READ_BYTES]
        view = buffer.whole if self._reads_large and not buffer.is_narrow else buffer.view
        if not size:
            return view
        return buffer.whole[size : size + len(view)]

    def move_out(self) -> None:
        """Copy an incomplete frame out of the buffer: another connection is about to read."""
        self._rest = bytes(self._rest)

    def buffer_updated(self, nbytes: int) -> None:
        """Offer the received bytes to the handler."""
        self._received += nbytes
        if self._own_buffer is None:
            buffer = self._owner.buffer
            size = len(self._rest) + nbytes
            view = buffer.whole[:size]
            self._rest = b""
            alone = buffer.reads_alone(self)
            if nbytes >= RECEIVE_BUFFER_BYTES and alone:
                self._take_timed(view)
                return
            self._reads_large = False
            taken = self._offer(view)
            if taken < size:
                self._keep(view[taken:], large=not taken, at=taken)
            elif self._input_held:
                self._release_input()
            return
        if not self._take_own(self._own_filled + nbytes):
            self._owner.buffer.large_reads.wait(self)

    def pause_writing(self) -> None:
        """Queue all further writes: the transport is full."""
        self._transport_full = True
        self._direct = False
        self._hold_output()

    def resume_writing(self) -> None:
        """Pass on what is queued, and tell the handler if the link is no longer congested."""
        self._transport_full = False
        if self._handing_over:
            return  # the running call continues
        self._hand_over()
        self.account.force(Purpose.OUTPUT, self.buffered)
        self._check_drained()

    def _hold_output(self) -> None:
        """Hold the out-buffer in the account; mark the link as congested above its limit.

        Without memory it is congested at any size: then it takes no messages until it is drained.
        """
        size = self.buffered
        has_memory = self.account.force(Purpose.OUTPUT, size)
        if size > self._owner.congested_bytes or not has_memory:
            self.congested = True

    def eof_received(self) -> bool:
        """On half-close, let the handler finish its replies and close the link.

        TLS connections cannot half-close on asyncio: they close at once.
        """
        transport = self._transport
        if transport is None or transport.get_extra_info("sslcontext") is not None:
            self.flush()
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
        self._acknowledge_last()
        self._transport = None
        self._own_buffer = None
        self._rest = b""
        if self._owner.buffer.resident is self:
            self._owner.buffer.resident = None
        self._drop_queue()
        self.account.close()
        try:
            if handler is not None:
                handler.lost(str(exc) if exc else "closed")
        finally:
            self._owner.closed(self)

    def _take(self, view: memoryview, *, is_shared: bool = False) -> None:
        """Offer `view` to the handler and keep what it does not take.

        `is_shared` tells that `view` begins at the front of the shared buffer.
        """
        taken = self._offer(view)
        if taken < len(view):
            self._keep(view[taken:], large=not taken, at=taken if is_shared else None)
        elif self._input_held:
            self._release_input()

    def _take_timed(self, view: memoryview) -> None:
        """Take the input of a full read; if that is quick, the next read may be a large one."""
        started = time.perf_counter()
        self._take(view, is_shared=True)
        took = time.perf_counter() - started
        self._reads_large = took * RECEIVE_BUFFER_BYTES < LARGE_READ_SECONDS_MAX * len(view)

    def _take_own(self, filled: int) -> bool:
        """Offer the connection's own buffer to the handler; keep it if nothing is taken of it.

        Return whether some was taken.
        """
        own = self._own_buffer
        if own is None:
            raise AssertionError("the connection has no buffer of its own")
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
        return taken > 0

    def _offer(self, view: memoryview) -> int:
        """Offer `view` to the handler; return the bytes taken, all of them once closing."""
        if self._handler is None:  # closed, or TLS has not finished its handshake
            return len(view) if self._closing else 0
        try:
            taken = 0 if self._pauses else self._handler.received(view)
        except Exception as error:  # noqa: BLE001
            # A failing handler ends its own connection only.
            self._owner.failed(self, error)
            self.abort()
        return len(view) if self._closing else taken

    def _keep(self, rest: memoryview, *, large: bool, at: int | None = None) -> None:
        """Keep the bytes of an incomplete frame; if there is no memory for them, stop reading.

        They stay in the shared buffer if they are in it, at the index `at`. While memory is short,
        a `large` frame, which a whole read is part of, gets a buffer of its own: then no more is
        read than the account holds.
        """
        size = len(rest)
        large = large and self._owner.buffer.is_narrow
        if (size <= _FREE_BYTES and not large) or self._pauses:
            self._stay(rest, at)
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
            self._stay(rest, at)
        else:
            self._own_buffer = bytearray(capacity)
            self._own_buffer[:size] = rest
            self._own_filled = size

    def _stay(self, rest: memoryview, at: int | None) -> None:
        """Leave `rest` in the shared buffer if it is there, at the index `at`; else copy it."""
        if at is None:
            self._rest = bytes(rest)
        else:
            self._rest = rest
            self._owner.buffer.resident, self._owner.buffer.resident_at = self, at

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
            return bytes(memoryview(self._own_buffer)[: self._own_filled])
        return bytes(self._rest)

    @property
    def _done_reading(self) -> bool:
        return self._closing or self._ended

    # --- ports.Link -------------------------------------------------------------------------------

    @property
    def has_left(self) -> bool:
        """See ports.Link: a paused transport does not report it."""
        if self._transport is None:
            return True
        connected = self._transport.get_extra_info("socket")
        if connected is None:
            return False
        descriptor = connected.fileno()
        if descriptor < 0:  # TLS reports the end of a closed socket later
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLRDHUP)
        return bool(poll.poll(0))

    @property
    def buffered(self) -> int:
        """See ports.Link."""
        if self._transport is None:
            return 0
        return self._queued_bytes + self._transport.get_write_buffer_size()

    @property
    def written(self) -> int:
        """See ports.AcknowledgedLink."""
        return self._written

    def acknowledged(self) -> int:
        """See ports.AcknowledgedLink; after the end, the number that was known last."""
        transport = self._transport
        connected = None if transport is None else transport.get_extra_info("socket")
        if transport is None or transport.is_closing() or connected is None:
            return self._acknowledged
        unacknowledged = _unacknowledged_bytes(connected.fileno())
        if transport.get_extra_info("sslcontext") is None:
            known = self._written - self.buffered - unacknowledged
        else:
            known = self._acknowledged_by_tls(unacknowledged)
        self._acknowledged = max(self._acknowledged, known)
        return self._acknowledged

    def _acknowledge_last(self) -> None:
        """Note what the peer has acknowledged, while the socket of a connection that ends is open.

        A reset has emptied the send queue by now; the count of acknowledged bytes stays.
        """
        transport = self._transport
        connected = None if transport is None else transport.get_extra_info("socket")
        if (
            transport is not None
            and transport.get_extra_info("sslcontext") is None
            and connected is not None
            and connected.family in {socket.AF_INET, socket.AF_INET6}
            and connected.fileno() >= 0
        ):
            self._acknowledged = max(self._acknowledged, _acknowledged_bytes(connected))

    def _acknowledged_by_tls(self, unacknowledged: int) -> int:
        """Return the bytes of an earlier turn of the loop if the system has sent all that it has.

        TLS keeps some bytes in buffers that cannot be seen, but not longer than a turn if the
        system takes them.
        """
        now = asyncio.get_running_loop().time()
        then, written = self._tls_written
        if now > then:
            self._tls_written = (now, self._written)
            if not unacknowledged and not self.buffered:
                return written
        return 0

    @property
    def established(self) -> bool:
        """Whether the handler has a session."""
        return self._handler is not None and self._handler.established

    def set_handler(self, handler: Handler) -> None:
        """See ports.Link."""
        self._handler = handler

    def write(self, data: bytes | memoryview) -> None:
        """See ports.Link; `data` is shared with other connections, not copied."""
        if self._transport is None or self._closing:
            return
        size = len(data)
        self._written += size
        if self._direct and size <= self._handover_bytes:
            late_writes = self._owner.buffer.late_writes
            if self._turn_written != late_writes.turn:
                self._turn_written = late_writes.turn
                self._transport.write(data)
            else:
                self._late = True
                late_writes.add(self)
                self._enqueue(data)
        else:
            self._enqueue(data)

    def flush(self) -> None:
        """See late_writes.LateWriter."""
        if not self._late:
            return
        self._late = False
        queue = self._queue
        if queue:
            if len(queue) > 1:
                joined = b"".join(queue)
                queue.clear()
                queue.append(joined)
            self._hand_over_all()

    def write_gathered(self, frames: Gathered) -> None:
        """See ports.Link: only what the system does not take at once is copied."""
        if self._transport is None or self._closing:
            return
        self.flush()
        size, sent = len(frames), 0
        self._written += size
        if self._direct and self._gathers and not self._transport.get_write_buffer_size():
            sent = frames.send(self.descriptor)
        if sent < size:
            for piece in frames.rest(sent):
                self._send(piece)

    def _send(self, data: bytes | memoryview) -> None:
        if self._transport is None:
            return
        if self._direct and len(data) <= self._handover_bytes:
            self._transport.write(data)
        else:
            self._enqueue(data)

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
        rest, self._rest = self._rest, b""
        if self._own_buffer is not None:
            self._take_own(self._own_filled)
        elif rest:
            self._take(memoryview(rest))

    def close(self) -> None:
        """See ports.Link."""
        if not self._closing and self._transport is not None:
            self.flush()
            self._closing = True
            if not self._queued_bytes:
                self._transport.close()
            elif not self._pauses and not self._ended:
                self._transport.pause_reading()  # the end of the queue closes the transport
            self._linger()

    def abort(self) -> None:
        """See ports.Link."""
        self._closing = True
        self._drop_queue()
        if self._transport is not None:
            self._transport.abort()

    # --- The queue --------------------------------------------------------------------------------

    def _enqueue(self, data: bytes | memoryview) -> None:
        """Write `data` after what is queued, as far as the transport takes it."""
        if self._queue is None:
            self._queue = deque()
        self._queue.append(data)
        self._queued_bytes += len(data)
        self._direct = False
        if self._late:
            if self._queued_bytes <= min(LATE_WRITE_BYTES_MAX, self._handover_bytes):
                return
            self._late = False
        self._hand_over_all()

    def _hand_over_all(self) -> None:
        """Give the transport what it takes of the queue, and hold the rest in the account."""
        if not self._handing_over:
            self._hand_over()
        self._hold_output()
        if self.congested and self._direct:  # the handler must not be called in its own call
            asyncio.get_running_loop().call_soon(self._check_drained)

    def _hand_over(self) -> None:
        """Give the transport queued bytes until it is full; then close it if the link is closing.

        A write may call `pause_writing` and `resume_writing` before it returns.
        """
        queue, transport = self._queue, self._transport
        if transport is None:
            return
        self._handing_over = True
        try:
            while queue and not self._transport_full:
                piece = queue.popleft()
                if len(piece) > self._handover_bytes:
                    piece = memoryview(piece)
                    queue.appendleft(piece[self._handover_bytes :])
                    piece = piece[: self._handover_bytes]
                self._queued_bytes -= len(piece)
                transport.write(piece)
        finally:
            self._handing_over = False
        if not queue:
            self._direct = not self._transport_full
            if self._closing and not transport.is_closing():
                transport.close()

    def _check_drained(self) -> None:
        """Tell the handler if the link was congested, and a quarter of that is left."""
        if self.congested and self.buffered <= drained_bytes(self._owner.congested_bytes):
            self.congested = False
            if self._handler is not None:
                self._handler.drained()

    def _drop_queue(self) -> None:
        if self._queue:
            self._queue.clear()
        self._queued_bytes = 0

    def _linger(self, buffered_before: int | None = None) -> None:
        """Abort a closing connection if its peer reads nothing for LINGER_SECONDS_MAX."""
        if self._transport is None:
            return
        buffered = self.buffered
        if buffered_before is not None and buffered >= buffered_before:
            self._transport.abort()
        elif buffered:
            asyncio.get_running_loop().call_later(LINGER_SECONDS_MAX, self._linger, buffered)


def _acknowledged_bytes(connected: socket.socket) -> int:
    """Return all bytes that the peer of a TCP socket has acknowledged: tcpi_bytes_acked."""
    information = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)
    found: int
    (found,) = struct.unpack_from("=Q", information, 120)
    return found


def _unacknowledged_bytes(descriptor: int) -> int:
    """Return the bytes in a socket's send queue; SIOCOUTQ is the same number as TIOCOUTQ."""
    found: int
    (found,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)))
    return found
