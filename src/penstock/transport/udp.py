"""herald over UDP: a datagram holds whole frames, a session is an address.

Delivery is at most once: what is lost, too large or too much is not sent again. A session begins
with the first datagram of an address that starts with herald's magic, in either byte order, and
ends with DISCONNECT, an error that would close a stream, or when nothing was heard for a while.
"""

import asyncio
import socket
from collections import deque
from typing import Any, Final, Protocol, cast

from penstock._kernels.herald import group_frames
from penstock.limits import (
    UDP_BATCH_BYTES_MAX,
    UDP_DATAGRAM_BYTES_MAX,
    UDP_OUT_BUFFER_BYTES_MAX,
    UDP_SESSION_SECONDS_MAX,
    UDP_SESSIONS_MAX,
    UDP_SOCKET_BUFFER_BYTES,
    UDP_WAITING_BYTES_MAX,
)
from penstock.model import ByteOrder
from penstock.ports import Handler
from penstock.transport.numbers import next_connection
from penstock.wire.herald import Disconnect, Error, ErrorCode, OpCode, encode

__all__ = ["DatagramEndpoint", "DatagramOwner", "DatagramSession", "split_frames"]

_ORDERS: Final[dict[bytes, ByteOrder]] = {b"\xfe\xca": "little", b"\xca\xfe": "big"}
_HEADER_BYTES: Final = 7
_HANDSHAKES: Final = frozenset({OpCode.HANDSHAKE_PUB, OpCode.HANDSHAKE_SUB})
_ACCEPTED: Final = bytes((0,))


def split_frames(data: bytes, *, order: ByteOrder) -> tuple[list[bytes], int]:
    """Cut a run of whole frames into datagrams; return them and how many frames fit none.

    Frames share a datagram up to UDP_BATCH_BYTES_MAX; a larger frame has one to itself.
    """
    if len(data) <= UDP_BATCH_BYTES_MAX:
        return [data], 0
    groups, too_large = group_frames(
        data, order=order, together_max=UDP_BATCH_BYTES_MAX, alone_max=UDP_DATAGRAM_BYTES_MAX
    )
    return [data[start:end] for start, end in groups], too_large


class DatagramOwner(Protocol):
    """Who the sessions belong to: a listener."""

    def opened(self, session: "DatagramSession") -> Handler:
        """Take note of a new session, whose byte order is known; return its handler."""

    def closed(self, session: "DatagramSession") -> None:
        """Take note that a session is gone."""

    def failed(self, session: "DatagramSession", error: Exception) -> None:
        """Take note that a session's handler broke; the session is aborted."""

    def not_heard(self, reason: str) -> None:
        """Count a datagram that was received and not looked at."""

    def not_sent(self, *, messages: int, too_large: int) -> None:
        """Count frames that were dropped for want of room, and frames that fit no datagram."""


class DatagramSession:
    """One address; to its handler it is a `ports.Link`.

    It is never congested: what cannot be sent is dropped.
    """

    __slots__ = (
        "_closing",
        "_endpoint",
        "_handshake",
        "_handshakes",
        "_pauses",
        "_receiving",
        "_waiting",
        "_waiting_bytes",
        "address",
        "connection",
        "handler",
        "heard_at",
        "order",
        "peer",
    )

    congested: Final = False

    def __init__(
        self, endpoint: "DatagramEndpoint", address: tuple[Any, ...], order: ByteOrder
    ) -> None:
        self._endpoint = endpoint
        self._pauses = 0
        self._closing = False
        self._receiving = False
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._handshake: bytes | None = None
        self._handshakes: dict[bytes, bytes] = {}
        self.address = address
        self.order: ByteOrder = order
        self.connection = next_connection()
        self.peer = f"{address[0]}:{address[1]}"
        self.handler: Handler | None = None
        self.heard_at = 0.0

    # --- The endpoint's side ----------------------------------------------------------------------

    def take(self, datagram: bytes) -> None:
        """Let the handler take a datagram, now or when it is resumed."""
        if self._closing:
            return
        if self._pauses or self._receiving:
            if self._waiting_bytes + len(datagram) > UDP_WAITING_BYTES_MAX:
                self._endpoint.owner.not_heard("session is paused")
                return
            self._waiting.append(datagram)
            self._waiting_bytes += len(datagram)
            return
        self._take(datagram)

    def _take(self, datagram: bytes) -> None:
        start = self._answer_repeated_handshake(datagram)
        handler = self.handler
        if start == len(datagram) or handler is None:
            return
        view = memoryview(datagram)[start:]
        self._receiving = True
        try:
            taken = handler.received(view)
        except Exception as error:  # noqa: BLE001
            # Whatever broke, it breaks one session only.
            self._endpoint.owner.failed(self, error)
            self.abort()
            taken = len(view)
        finally:
            self._receiving = False
            self._handshake = None
        if self._closing:
            self._endpoint.end(self, "closed")
        elif taken < len(view) and self._pauses:
            self._waiting.appendleft(bytes(view[taken:]))
            self._waiting_bytes += len(view) - taken
        elif taken < len(view):
            # Nothing is kept for the next datagram: it need not be the next that was sent.
            self.write(encode(Error(ErrorCode.MALFORMED_MESSAGE), order=self.order))

    def _answer_repeated_handshake(self, datagram: bytes) -> int:
        """Send an acknowledgment again that did not arrive; return how many bytes that answered.

        A client that gets no answer sends its handshake again, byte for byte.
        """
        if len(datagram) < _HEADER_BYTES or datagram[2] not in _HANDSHAKES:
            return 0
        end = _HEADER_BYTES + int.from_bytes(datagram[3:7], self.order)
        handshake = datagram[:end]
        answer = self._handshakes.get(handshake)
        if answer is None:
            self._handshake = handshake
            return 0
        self.write(answer)
        return end

    # --- The handler's side -----------------------------------------------------------------------

    @property
    def buffered(self) -> int:
        """See ports.Link: all sessions of a listener share the system's socket."""
        return self._endpoint.buffered

    def set_handler(self, handler: Handler) -> None:
        """See ports.Link."""
        self.handler = handler

    def write(self, data: bytes) -> None:
        """See ports.Link: whole frames, which is what herald's gateway writes."""
        if self._closing or not data:
            return
        if self._handshake is not None and data[2] == OpCode.HANDSHAKE_ACK:
            if data[7:8] == _ACCEPTED:
                self._handshakes[self._handshake] = data[:16]
            self._handshake = None
        self._endpoint.send(data, self)

    def pause(self) -> None:
        """See ports.Link."""
        self._pauses += 1

    def resume(self) -> None:
        """See ports.Link: what waits is handed on first, and may pause again."""
        self._pauses -= 1
        while self._waiting and not (self._pauses or self._closing or self._receiving):
            datagram = self._waiting.popleft()
            self._waiting_bytes -= len(datagram)
            self._take(datagram)

    def close(self) -> None:
        """See ports.Link; a session that the broker ends of its own accord is told so."""
        if self._closing:
            return
        if not self._receiving:
            self.write(encode(Disconnect(), order=self.order))
        self.abort()

    def abort(self) -> None:
        """See ports.Link."""
        if self._closing:
            return
        self._closing = True
        self._waiting.clear()
        if not self._receiving:
            self._endpoint.end_soon(self)


class DatagramEndpoint(asyncio.DatagramProtocol):
    """A bound socket and the sessions of the addresses that talk to it."""

    def __init__(
        self,
        owner: DatagramOwner,
        *,
        session_seconds_max: float = UDP_SESSION_SECONDS_MAX,
        sessions_max: int = UDP_SESSIONS_MAX,
    ) -> None:
        self.owner = owner
        self._session_seconds_max = session_seconds_max
        self._sessions_max = sessions_max
        self._accepting = True
        # In the order they were last heard: who is idle for longest comes first.
        self._sessions: dict[tuple[Any, ...], DatagramSession] = {}
        self._loop = asyncio.get_running_loop()
        self._sweep: asyncio.TimerHandle | None = None
        self._transport: asyncio.DatagramTransport | None = None
        self._gone = self._loop.create_future()
        self._split_data = b""
        self._split: tuple[list[bytes], int] = ([], 0)

    def __len__(self) -> int:
        return len(self._sessions)

    # --- asyncio's side ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start: ask for room for what arrives while the broker is busy."""
        self._transport = cast("asyncio.DatagramTransport", transport)
        bound = transport.get_extra_info("socket")
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            bound.setsockopt(socket.SOL_SOCKET, option, UDP_SOCKET_BUFFER_BYTES)

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        """Hand a datagram to the session of its address, which may begin with it."""
        session = self._sessions.pop(addr, None)
        if session is None:
            session = self._open(data, addr)
            if session is None:
                return
        self._sessions[addr] = session
        session.heard_at = self._loop.time()
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._session_seconds_max, self._end_idle)
        session.take(data)

    def error_received(self, exc: Exception) -> None:
        """Go on: an address that is gone ends by its idle limit."""

    def connection_lost(self, exc: Exception | None) -> None:
        """End: all sessions are gone."""
        self._transport = None
        if self._sweep is not None:
            self._sweep.cancel()
        for session in list(self._sessions.values()):
            self.end(session, str(exc) if exc else "closed")
        if not self._gone.done():
            self._gone.set_result(None)

    def _open(self, data: bytes, address: tuple[Any, ...]) -> DatagramSession | None:
        order = _ORDERS.get(data[:2])
        if order is None:
            self.owner.not_heard("not a herald frame")
        elif not self._accepting:
            self.owner.not_heard("the broker is stopping")
        elif len(self._sessions) >= self._sessions_max:
            self.owner.not_heard("too many sessions")
        else:
            session = DatagramSession(self, address, order)
            session.handler = self.owner.opened(session)
            return session
        return None

    def _end_idle(self) -> None:
        """Tell those that were not heard for too long; come back when the next may be due."""
        now = self._loop.time()
        self._sweep = None
        for session in list(self._sessions.values()):
            wait = session.heard_at + self._session_seconds_max - now
            if wait > 0:
                self._sweep = self._loop.call_later(wait, self._end_idle)
                return
            session.close()

    # --- The sessions' side -----------------------------------------------------------------------

    @property
    def buffered(self) -> int:
        """Bytes that were written and are not with the system yet."""
        transport = self._transport
        # asyncio's datagram transports have the method; its typed face forgets it.
        return 0 if transport is None else cast("Any", transport).get_write_buffer_size()

    def send(self, data: bytes, session: DatagramSession) -> None:
        """Send whole frames to an address, as far as there is room."""
        transport = self._transport
        if transport is None:
            return
        if data is not self._split_data:
            # Subscribers that see the same rows share their bytes: they are cut once for all.
            self._split_data, self._split = data, split_frames(data, order=session.order)
        datagrams, too_large = self._split
        dropped = 0
        room = -1
        for datagram in datagrams:
            if room < 0:
                room = UDP_OUT_BUFFER_BYTES_MAX - self.buffered
            if room < 0:
                dropped += _frame_count(datagram, session.order)
            else:
                room -= len(datagram)
                transport.sendto(datagram, session.address)
        if dropped or too_large:
            self.owner.not_sent(messages=dropped, too_large=too_large)

    def end_soon(self, session: DatagramSession) -> None:
        """End a session once the call that is being made is done."""
        self._loop.call_soon(self.end, session, "closed")

    def end(self, session: DatagramSession, reason: str) -> None:
        """Forget a session; its handler learns why. One that is gone already is no fault."""
        handler, session.handler = session.handler, None
        if self._sessions.get(session.address) is session:
            del self._sessions[session.address]
        if handler is not None:
            handler.lost(reason)
            self.owner.closed(session)

    # --- The owner's side -------------------------------------------------------------------------

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Start to listen; return the address, with the port that port 0 became."""
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, address = found[0]
        # Bound here, since not every event loop says why it could not.
        bound = socket.socket(family, kind, protocol)
        try:
            bound.bind(address)
            await self._loop.create_datagram_endpoint(lambda: self, sock=bound)
        except OSError:
            bound.close()
            raise
        name = bound.getsockname()
        return name[0], name[1]

    def stop_accepting(self) -> None:
        """Begin no further sessions."""
        self._accepting = False

    async def close(self, *, seconds_max: float) -> None:
        """End all sessions and the socket, once what was written is sent or the time is up."""
        self._accepting = False
        for session in list(self._sessions.values()):
            session.close()
        if self._transport is None:
            return
        self._transport.close()
        done, _ = await asyncio.wait([self._gone], timeout=seconds_max)
        if not done and self._transport is not None:
            self._transport.abort()


def _frame_count(datagram: bytes, order: ByteOrder) -> int:
    count = position = 0
    while position < len(datagram):
        position += _HEADER_BYTES + int.from_bytes(datagram[position + 3 : position + 7], order)
        count += 1
    return count
