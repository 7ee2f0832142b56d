"""herald over UDP: a datagram holds whole frames, a session is a peer address.

Delivery is at most once: lost, oversized or excess messages are not sent again. A session starts
with the first datagram of an address that begins with herald's magic, in either byte order. It ends
with DISCONNECT, after `session_seconds_max` of silence, or with another handshake: then the client
has started again, and gets a new session. A datagram that cannot be read ends nothing.

A sender can be forged. Until an address has shown that it receives (transport/address_proof.py), it
is sent no more bytes than it sent, and no messages.
"""

import asyncio
import itertools
import socket
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from penstock._kernels.gathered import Gathered
from penstock._kernels.herald import group_frames
from penstock.limits import (
    UDP_BATCH_BYTES_MAX,
    UDP_DATAGRAM_BYTES_MAX,
    UDP_OUT_BUFFER_BYTES_MAX,
    UDP_PROOF_BITS,
    UDP_SESSION_SECONDS_MAX,
    UDP_SESSIONS_MAX,
    UDP_SESSIONS_PER_ADDRESS_MAX,
    UDP_SOCKET_BUFFER_BYTES,
    UDP_UNPROVEN_BYTES_MAX,
    UDP_UNPROVEN_REQUESTS_MAX,
    UDP_UNPROVEN_SECONDS,
    UDP_WAITING_BYTES_MAX,
)
from penstock.memory import Account, Purpose, unlimited_account
from penstock.model import ByteOrder
from penstock.ports import Handler
from penstock.transport.address_proof import AddressProof
from penstock.transport.links import next_connection_number
from penstock.wire.herald import (
    Disconnect,
    Error,
    ErrorCode,
    HandshakePub,
    HandshakeSub,
    OpCode,
    Ping,
    decode,
    encode,
)

__all__ = ["DatagramEndpoint", "DatagramOwner", "DatagramSession", "split_frames"]

_ORDERS: Final[dict[bytes, ByteOrder]] = {b"\xfe\xca": "little", b"\xca\xfe": "big"}
_HEADER_BYTES: Final = 7
_HANDSHAKES: Final = frozenset({OpCode.HANDSHAKE_PUB, OpCode.HANDSHAKE_SUB})
_HANDSHAKE_OPCODES: Final = frozenset(bytes((opcode,)) for opcode in _HANDSHAKES)
_ACCEPTED: Final = bytes((0,))
_EVICTION_SEARCH_MAX: Final = 64
"""Sessions that are checked for one that may give way to a new one."""


def split_frames(data: bytes, *, order: ByteOrder) -> tuple[list[bytes], int]:
    """Split whole frames into datagrams; return them and the number of frames that fit in none.

    Frames share a datagram of up to UDP_BATCH_BYTES_MAX; a larger frame gets its own.
    """
    if len(data) <= UDP_BATCH_BYTES_MAX:
        return [data], 0
    groups, too_large = group_frames(
        data, order=order, together_max=UDP_BATCH_BYTES_MAX, alone_max=UDP_DATAGRAM_BYTES_MAX
    )
    return [data[start:end] for start, end in groups], too_large


class DatagramOwner(Protocol):
    """The listener that sessions belong to."""

    def opened(self, session: "DatagramSession") -> Handler:
        """Register a new session, whose byte order is known; return its handler."""

    def closed(self, session: "DatagramSession") -> None:
        """Remove a session that has ended."""

    def failed(self, session: "DatagramSession", error: Exception) -> None:
        """Log an exception of a session's handler; the session is aborted."""

    def datagram_dropped(self, reason: str) -> None:
        """Count a received datagram that was dropped."""

    def frames_dropped(self, *, messages: int, too_large: int) -> None:
        """Count frames dropped because the buffer was full, and frames too large for UDP."""


class DatagramSession:
    """One peer address; to its handler it is a `ports.Link`.

    It is never congested: messages that cannot be sent are dropped.
    """

    __slots__ = (
        "_actions",
        "_closing",
        "_endpoint",
        "_handshake",
        "_handshake_acks",
        "_held",
        "_held_bytes",
        "_pauses",
        "_proof",
        "_receiving",
        "_waiting",
        "_waiting_bytes",
        "account",
        "address",
        "connection",
        "handler",
        "host",
        "last_received",
        "order",
        "peer",
    )

    congested: Final = False
    certificate_names: Final[frozenset[str]] = frozenset()
    has_left: Final = False

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
        self._handshake_acks: dict[bytes, bytes] = {}
        self._proof: AddressProof | None = None
        if endpoint.proof_bits:
            self._proof = AddressProof(
                send_pings=self._send_pings,
                advanced=self._proof_advanced,
                bits_needed=endpoint.proof_bits,
            )
        self._held: deque[bytes] = deque()  # answers that may not be sent yet
        self._held_bytes = 0
        self._actions: list[Callable[[], None]] = []
        self.account: Account = unlimited_account()
        self.address = address
        self.order: ByteOrder = order
        self.connection = next_connection_number()
        self.peer = f"{address[0]}:{address[1]}"
        self.host = str(address[0])
        self.handler: Handler | None = None
        self.last_received = 0.0

    # --- Called by the endpoint -------------------------------------------------------------------

    def is_replaced_by(self, datagram: bytes) -> bool:
        """Return whether a datagram begins with the handshake of a client that started again.

        That is another handshake of a role that the session has. A repeated one is not, nor that of
        the second role.
        """
        if datagram[2:3] not in _HANDSHAKE_OPCODES:
            return False
        handshakes = list(self._handshake_acks)
        if self._handshake is not None:
            handshakes.append(self._handshake)
        if any(datagram.startswith(each) for each in handshakes):
            return False
        if not any(each[:3] == datagram[:3] or each[:2] != datagram[:2] for each in handshakes):
            return False
        found = decode(datagram, order=_ORDERS.get(datagram[:2], self.order))
        return isinstance(found.message, HandshakePub | HandshakeSub)

    def take(self, datagram: bytes) -> None:
        """Pass a datagram to the handler, or keep it while paused."""
        if self._closing:
            return
        proof = self._proof
        if proof is not None:
            proof.received += len(datagram)
            if proof.listening:
                proof.took_pongs(_frame_count(datagram, self.order, OpCode.PONG))
        if self._pauses or self._receiving:
            if self._handshake is not None and datagram.startswith(self._handshake):
                datagram = datagram[len(self._handshake) :]  # its answer is still to come
            if not datagram:
                self._send_held()
                return
            if self._waiting_bytes + len(datagram) > UDP_WAITING_BYTES_MAX:
                self._endpoint.owner.datagram_dropped("session is paused")
                return
            if not self.account.hold(Purpose.INPUT, self._waiting_bytes + len(datagram)):
                self._endpoint.owner.datagram_dropped("no memory")
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
            # A failing handler ends its own session only.
            self._endpoint.owner.failed(self, error)
            self.abort()
            taken = len(view)
        finally:
            self._receiving = False
            if not self._pauses:  # else its answer may still come
                self._handshake = None
        if self._closing:
            self._endpoint.end(self, "closed")
        elif taken < len(view) and self._pauses:
            self._waiting.appendleft(bytes(view[taken:]))
            self._waiting_bytes += len(view) - taken
        elif taken < len(view):
            # An incomplete frame is an error: the next datagram need not continue it.
            self.write(encode(Error(ErrorCode.MALFORMED_MESSAGE), order=self.order))
        self._send_held()

    def _answer_repeated_handshake(self, datagram: bytes) -> int:
        """Send the acknowledgment of a repeated handshake again; return the bytes it used.

        A client that gets no acknowledgment repeats its handshake byte for byte.
        """
        if len(datagram) < _HEADER_BYTES or datagram[2] not in _HANDSHAKES:
            return 0
        end = _HEADER_BYTES + int.from_bytes(datagram[3:7], self.order)
        handshake = datagram[:end]
        answer = self._handshake_acks.get(handshake)
        if answer is None:
            self._handshake = handshake
            return 0
        if answer not in self._held:
            self.write(answer)
        self._send_held()
        return end

    # --- Proof of the address ---------------------------------------------------------------------

    @property
    def proven(self) -> bool:
        """Whether the address has shown that it receives."""
        return self._proof is None

    def when_proven(self, action: Callable[[], None]) -> None:
        """See ports.UnprovenLink; drop the action if too many wait already."""
        if self._proof is None:
            action()
        elif len(self._actions) >= UDP_UNPROVEN_REQUESTS_MAX:
            self._endpoint.owner.datagram_dropped("address not proven")
        else:
            self._actions.append(action)
            self._proof.want()

    def _send_pings(self, count: int) -> None:
        self._endpoint.send(count * encode(Ping(), order=self.order), self)

    def _send_held(self) -> None:
        """Send the held answers that may be sent; begin a round of the proof if there is room."""
        proof = self._proof
        if proof is None or self._closing:
            return
        while self._held and (
            len(self._held[0]) + proof.reserve <= proof.room
            or (proof.room < proof.reserve and len(self._held[0]) <= proof.room)
        ):
            data = self._held.popleft()
            self._held_bytes -= len(data)
            proof.sent += len(data)
            self._endpoint.send(data, self)
        proof.proceed()

    def _proof_advanced(self) -> None:
        """Send more after a round; do all that waited if it was the last."""
        proof = self._proof
        if proof is None or self._closing:
            return
        if not proof.complete:
            self._send_held()
            return
        proof.cancel()
        self._proof = None
        for data in self._held:
            self._endpoint.send(data, self)
        self._held.clear()
        actions, self._actions = self._actions, []
        for action in actions:
            try:
                action()
            except Exception as error:  # noqa: BLE001
                # A failing handler ends its own session only.
                self._endpoint.owner.failed(self, error)
                self.abort()
                return

    def _hold(self, data: bytes) -> None:
        """Keep an answer until it may be sent."""
        if self._held_bytes + len(data) > UDP_UNPROVEN_BYTES_MAX:
            frames = _frame_count(data, self.order)
            self._endpoint.owner.frames_dropped(messages=frames, too_large=0)
            return
        self._held.append(data)
        self._held_bytes += len(data)
        if not self._receiving:  # else at the end of the datagram
            self._send_held()

    # --- ports.Link -------------------------------------------------------------------------------

    @property
    def buffered(self) -> int:
        """See ports.Link: all sessions of a listener share one socket."""
        return self._endpoint.buffered

    def set_handler(self, handler: Handler) -> None:
        """See ports.Link."""
        self.handler = handler

    def write_gathered(self, frames: Gathered) -> None:
        """See ports.Link: the frames are copied."""
        self.write(frames.copied())

    def write(self, data: bytes | memoryview) -> None:
        """See ports.Link; `data` is whole frames, as herald's gateway writes them."""
        if self._closing or not data:
            return
        if isinstance(data, memoryview):
            data = bytes(data)
        if self._handshake is not None and data[2] == OpCode.HANDSHAKE_ACK:
            if data[7:8] == _ACCEPTED:
                self._handshake_acks[self._handshake] = data[:16]
            self._handshake = None
        if self._proof is None:
            self._endpoint.send(data, self)
        else:
            self._hold(data)

    def pause(self) -> None:
        """See ports.Link."""
        self._pauses += 1

    def resume(self) -> None:
        """See ports.Link: waiting datagrams are offered first; the handler may pause again."""
        self._pauses -= 1
        if not self._pauses:
            self._handshake = None
        while self._waiting and not (self._pauses or self._closing or self._receiving):
            datagram = self._waiting.popleft()
            self._waiting_bytes -= len(datagram)
            self.account.hold(Purpose.INPUT, self._waiting_bytes)
            self._take(datagram)

    def measure(self) -> int:
        """See memory.Holder: the socket's buffer belongs to all sessions."""
        return 0

    def evict(self) -> None:
        """See memory.Holder."""
        self.abort()

    def close(self) -> None:
        """See ports.Link; send DISCONNECT unless the peer's own datagram caused the close."""
        if self._closing:
            return
        if not self._receiving:
            self.write(encode(Disconnect(), order=self.order))
        self.abort()

    def abort(self) -> None:
        """See ports.Link."""
        if self._closing:
            return
        if self._receiving:
            self._send_held()
        self._closing = True
        self._waiting.clear()
        self._actions.clear()
        if self._proof is not None:
            self._proof.cancel()
        if not self._receiving:
            self._endpoint.end_soon(self)


class DatagramEndpoint(asyncio.DatagramProtocol):
    """A bound socket and its sessions, one for each peer address."""

    def __init__(
        self,
        owner: DatagramOwner,
        *,
        session_seconds_max: float = UDP_SESSION_SECONDS_MAX,
        sessions_max: int = UDP_SESSIONS_MAX,
        sessions_per_address_max: int = UDP_SESSIONS_PER_ADDRESS_MAX,
        unproven_seconds: float = UDP_UNPROVEN_SECONDS,
        proof_bits: int = UDP_PROOF_BITS,
    ) -> None:
        """`proof_bits` is what an address must show; 0 trusts all addresses."""
        self.owner = owner
        self.proof_bits = proof_bits
        self._session_seconds_max = session_seconds_max
        self._sessions_max = sessions_max
        self._sessions_per_address_max = sessions_per_address_max
        self._unproven_seconds = unproven_seconds
        self._sessions_by_host: Counter[str] = Counter()
        self._accepting = True
        # Ordered by the last datagram: the session that is idle for longest comes first.
        self._sessions: dict[tuple[Any, ...], DatagramSession] = {}
        self._loop = asyncio.get_running_loop()
        self._sweep: asyncio.TimerHandle | None = None
        self._transport: asyncio.DatagramTransport | None = None
        self._ended = self._loop.create_future()
        self._split_data = b""
        self._split: tuple[list[bytes], int] = ([], 0)

    def __len__(self) -> int:
        return len(self._sessions)

    # --- asyncio.DatagramProtocol -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Enlarge the socket buffers, for datagrams that arrive while the broker is busy."""
        self._transport = cast("asyncio.DatagramTransport", transport)
        bound = transport.get_extra_info("socket")
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            bound.setsockopt(socket.SOL_SOCKET, option, UDP_SOCKET_BUFFER_BYTES)

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        """Pass a datagram to the session of its address; open one if there is none."""
        session = self._sessions.pop(addr, None)
        if session is not None and session.is_replaced_by(data):
            session.abort()
            self.end(session, "replaced")
            session = None
        if session is None:
            session = self._open(data, addr)
            if session is None:
                return
        self._sessions[addr] = session
        session.last_received = self._loop.time()
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._session_seconds_max, self._end_idle)
        session.take(data)

    def error_received(self, exc: Exception) -> None:
        """Ignore the error: the session of an unreachable address ends when it is idle."""

    def connection_lost(self, exc: Exception | None) -> None:
        """End all sessions."""
        self._transport = None
        if self._sweep is not None:
            self._sweep.cancel()
        for session in list(self._sessions.values()):
            self.end(session, str(exc) if exc else "closed")
        if not self._ended.done():
            self._ended.set_result(None)

    def _open(self, data: bytes, address: tuple[Any, ...]) -> DatagramSession | None:
        order = _ORDERS.get(data[:2])
        if order is None:
            self.owner.datagram_dropped("not a herald frame")
        elif not self._accepting:
            self.owner.datagram_dropped("the broker is stopping")
        elif self._sessions_by_host[address[0]] >= self._sessions_per_address_max:
            self.owner.datagram_dropped("too many sessions of one address")
        elif len(self._sessions) >= self._sessions_max and not self._evict():
            self.owner.datagram_dropped("too many sessions")
        else:
            session = DatagramSession(self, address, order)
            self._sessions_by_host[address[0]] += 1
            session.handler = self.owner.opened(session)
            return session
        return None

    def _evict(self) -> bool:
        """End a session without proof that is silent for longest; return False if there is none."""
        before = self._loop.time() - self._unproven_seconds
        for session in itertools.islice(self._sessions.values(), _EVICTION_SEARCH_MAX):
            if session.last_received > before:
                return False
            if not session.proven:
                session.abort()
                self.end(session, "replaced")
                return True
        return False

    def _end_idle(self) -> None:
        """Close the sessions that are idle for too long; schedule the next check."""
        now = self._loop.time()
        self._sweep = None
        for session in list(self._sessions.values()):
            wait = session.last_received + self._session_seconds_max - now
            if wait > 0:
                self._sweep = self._loop.call_later(wait, self._end_idle)
                return
            session.close()

    # --- Called by sessions -----------------------------------------------------------------------

    @property
    def buffered(self) -> int:
        """Bytes written that the system has not taken yet."""
        transport = self._transport
        # asyncio's datagram transports have this method; its type stubs lack it.
        return 0 if transport is None else cast("Any", transport).get_write_buffer_size()

    def send(self, data: bytes, session: DatagramSession) -> None:
        """Send whole frames to an address; drop those that find the buffer full."""
        transport = self._transport
        if transport is None:
            return
        if data is not self._split_data:
            # Subscribers of the same rows share one bytes object: split it once.
            self._split_data, self._split = data, split_frames(data, order=session.order)
        datagrams, too_large = self._split
        dropped = 0
        room = -1
        for datagram in datagrams:
            # The room is counted down, and measured again when it is used up.
            if room < 0 and (room := UDP_OUT_BUFFER_BYTES_MAX - self.buffered) < 0:
                dropped += _frame_count(datagram, session.order)
            else:
                room -= len(datagram)
                transport.sendto(datagram, session.address)
        if dropped or too_large:
            self.owner.frames_dropped(messages=dropped, too_large=too_large)

    def end_soon(self, session: DatagramSession) -> None:
        """End a session after the present callback."""
        self._loop.call_soon(self.end, session, "closed")

    def end(self, session: DatagramSession, reason: str) -> None:
        """Remove a session and report the reason to its handler; do nothing if it was removed."""
        handler, session.handler = session.handler, None
        if handler is not None:
            self._forget_host(session.address[0])
        if self._sessions.get(session.address) is session:
            del self._sessions[session.address]
        session.account.close()
        if handler is not None:
            handler.lost(reason)
            self.owner.closed(session)

    def _forget_host(self, host: str) -> None:
        self._sessions_by_host[host] -= 1
        if self._sessions_by_host[host] <= 0:
            del self._sessions_by_host[host]

    # --- Called by the owner ----------------------------------------------------------------------

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Start to listen; return host and port, with the actual port for port 0."""
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, address = found[0]
        # Bind here: not every event loop reports why a bind failed.
        bound = socket.socket(family, kind, protocol)
        try:
            bound.bind(address)
            await self._loop.create_datagram_endpoint(lambda: self, sock=bound)
        except OSError:
            bound.close()
            raise
        name = bound.getsockname()
        return name[0], name[1]

    def is_proven(self, address: tuple[Any, ...]) -> bool:
        """Return whether an address has a session and has shown that it receives."""
        session = self._sessions.get(address)
        return session is not None and session.proven

    def stop_accepting(self) -> None:
        """Open no more sessions."""
        self._accepting = False

    async def close(self, *, seconds_max: float) -> None:
        """Close all sessions and the socket; abort it if data is unsent after `seconds_max`."""
        self._accepting = False
        for session in list(self._sessions.values()):
            session.close()
        if self._transport is None:
            return
        self._transport.close()
        done, _ = await asyncio.wait([self._ended], timeout=seconds_max)
        if not done and self._transport is not None:
            self._transport.abort()


def _frame_count(datagram: bytes, order: ByteOrder, opcode: OpCode | None = None) -> int:
    """Return the number of frames of a datagram, or of those with one opcode."""
    count = position = 0
    while position < len(datagram):
        if opcode is None or datagram[position + 2 : position + 3] == bytes((opcode,)):
            count += 1
        position += _HEADER_BYTES + int.from_bytes(datagram[position + 3 : position + 7], order)
    return count
