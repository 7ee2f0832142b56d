"""How to load a broker in each protocol: the bytes of a publisher and of a subscriber.

Load generators send frames made beforehand and count the bytes that come back, so that what is
measured is the broker and not its clients.
"""

import socket
import struct
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

import msgspec

from penstock.wire import fleximq, herald, lamamq, rheos1, rheos2
from penstock.wire.rheos import AckCode, OpCode

__all__ = [
    "CLIENT",
    "TOPIC",
    "WIRE_KINDS",
    "AcknowledgmentCounter",
    "Fleximq",
    "HandshakeFailed",
    "Herald",
    "Lamamq",
    "PublishRefused",
    "Rheos1",
    "Rheos2",
    "Wire",
    "exchange",
]

CLIENT: Final = bytes(range(16))
TOPIC: Final = "channel/7"
"""A topic that clients of all protocols know without making it."""
_NO_CREDENTIALS: Final = "bench has no credentials: use a listener that lets anonymous clients in"
_HEADER_BYTES_MAX: Final = 65_536


def exchange(peer: socket.socket, request: bytes, answer_bytes: int) -> bytes:
    """Send `request` and read an answer of exactly `answer_bytes`."""
    peer.sendall(request)
    answer = b""
    while len(answer) < answer_bytes:
        more = peer.recv(answer_bytes - len(answer))
        if not more:
            raise ConnectionError("the broker closed the connection")
        answer += more
    return answer


class HandshakeFailed(Exception):
    """A broker that takes no load: `reason` goes behind its name, `remedy` is what helps."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason, remedy)
        self.reason = reason
        self.remedy = remedy

    def __str__(self) -> str:
        return f"the broker {self.reason}"


def not_let_in(where: str = "") -> HandshakeFailed:
    """Return the failure of a client that would need credentials; `where` narrows it down."""
    return HandshakeFailed(f"does not let anonymous clients in{where}", _NO_CREDENTIALS)


class Wire(ABC):
    """One protocol as a load generator needs it, with one topic.

    What opens a connection raises HandshakeFailed if the broker answers as none of the protocol
    does, or refuses.
    """

    name: ClassVar[str]
    acknowledged_bytes: ClassVar[int] = 0
    """Size of what answers one publish, 0 where nothing does."""
    acknowledged_same: ClassVar[Mapping[int, int]] = {}
    """Bytes that every such answer has, by place, unless it is a refusal."""
    trailer_bytes: ClassVar[int] = 0
    """What a delivery has behind its value."""
    interjection: ClassVar[bytes] = b""
    """What the broker may send a subscriber between two deliveries."""

    def __init__(self, topic: str = TOPIC) -> None:
        self.topic = topic

    def prepare(self, peer: socket.socket) -> None:  # noqa: B027  (most need nothing)
        """Make the topic, where one must; that it is there already is right too."""

    @abstractmethod
    def open_publisher(self, peer: socket.socket) -> Callable[[bytes], bytes]:
        """Make a connection ready to publish; return what makes the frame of a value."""

    @abstractmethod
    def open_subscriber(self, peer: socket.socket, value: bytes, *, start: str = "") -> int:
        """Make a connection a subscriber; return how many bytes a delivery of `value` has.

        `start` is a place in history, such as `@earliest`, in protocols with names.
        """

    def alive(self) -> bytes:
        """Return what a subscriber says now and then, so that the broker need not ask."""
        return b""

    def shake(self, peer: socket.socket, request: bytes, answer_bytes: int) -> bytes:
        """Exchange a part of a handshake; raise HandshakeFailed if no whole answer comes."""
        try:
            return exchange(peer, request, answer_bytes)
        except TimeoutError:
            reason = f"does not answer a {self.name} client without credentials"
            raise HandshakeFailed(reason, _NO_CREDENTIALS) from None
        except ConnectionError:
            raise self.not_spoken() from None

    def not_spoken(self) -> HandshakeFailed:
        """Return the failure of a broker that answers as none of the protocol does."""
        remedy = f"give --url a {self.name} listener, or --protocol what it speaks"
        return HandshakeFailed(f"does not speak {self.name}", remedy)

    def refused(self, what: str) -> HandshakeFailed:
        """Return the failure of a client that is let in and may not do what it must."""
        remedy = f"let anonymous clients publish and subscribe to {self.topic}, or give --topic"
        return HandshakeFailed(f"refuses {what}", remedy)


class PublishRefused(Exception):
    """An answer to a publish is no acknowledgment."""

    def __str__(self) -> str:
        return "the broker refused a publish"


class AcknowledgmentCounter:
    """Counts acknowledgments of a wire, in a stream that comes in pieces."""

    def __init__(self, wire: Wire) -> None:
        self._size = wire.acknowledged_bytes
        self._same = wire.acknowledged_same
        self._rest = b""

    def count(self, data: bytes | memoryview) -> int:
        """Take the next piece; return how many end in it. Raise PublishRefused."""
        if not self._size:
            raise PublishRefused  # where nothing is acknowledged, what is answered is a refusal
        whole = self._rest + data
        count = len(whole) // self._size
        end = count * self._size
        for place, byte in self._same.items():
            if whole[place : end : self._size].count(byte) != count:
                raise PublishRefused
        self._rest = whole[end:]
        return count


class Herald(Wire):
    """256 channels, no acknowledgments."""

    name = "herald"

    @property
    def channel(self) -> int:
        """The number of the channel that is the topic."""
        return int(self.topic.removeprefix("channel/"))

    def open_publisher(self, peer: socket.socket) -> Callable[[bytes], bytes]:
        """See Wire."""
        channel = self.channel
        self._join(peer, herald.HandshakePub(channel, "p"))
        return lambda value: herald.encode(herald.Publish(channel, value))

    def open_subscriber(
        self,
        peer: socket.socket,
        value: bytes,
        *,
        start: str = "",  # noqa: ARG002
    ) -> int:
        """See Wire."""
        self._join(peer, herald.HandshakeSub(bytes([self.channel]), "s"))
        return 16 + len(value)

    def _join(
        self, peer: socket.socket, handshake: herald.HandshakePub | herald.HandshakeSub
    ) -> None:
        answer = self.shake(peer, herald.encode(handshake), 16)
        head = herald.encode(herald.HandshakeAck(0))[:7]
        if answer[:7] != head:
            raise self.not_spoken()
        if answer[7] == herald.ErrorCode.UNAUTHORIZED:
            raise not_let_in(f", or not to {self.topic}")
        if answer[7]:
            raise self.refused(f"a handshake with status {answer[7]}")


class _Rheos(Wire):
    """What both versions have in common: a client is let in with its first request."""

    def prepare(self, peer: socket.socket) -> None:
        """See Wire."""
        create = self._request(OpCode.CREATE, self.topic)
        if not self._granted(peer, create):
            try:  # a topic that is there fails, and the connection stays
                exchange(peer, create, self.acknowledged_bytes)
            except ConnectionError:
                raise not_let_in() from None

    def open_publisher(self, peer: socket.socket) -> Callable[[bytes], bytes]:  # noqa: ARG002
        """See Wire."""
        return lambda value: self._request(OpCode.PUBLISH, self.topic, value)

    def subscribe(self, peer: socket.socket, start: str) -> None:
        """Subscribe to the topic."""
        if not self._granted(peer, self._request(OpCode.SUBSCRIBE, self.topic + start)):
            raise self.refused(f"a subscription to {self.topic}")

    def _granted(self, peer: socket.socket, request: bytes) -> bool:
        """Tell whether a request succeeds or fails."""
        answer = self.shake(peer, request, self.acknowledged_bytes)
        code = self._code(answer)
        if answer[0] != self.acknowledged_same[0] or code not in set(AckCode):
            raise self.not_spoken()
        return code == AckCode.SUCCESS

    @abstractmethod
    def _request(self, operation: OpCode, name: str, value: bytes = b"") -> bytes:
        """Return a request."""

    @abstractmethod
    def _code(self, answer: bytes) -> int:
        """Return the code of an acknowledgment, -1 if it is none."""


class Rheos1(_Rheos):
    """Every publish is acknowledged with 18 bytes."""

    name = "rheos1"
    acknowledged_bytes = 18
    acknowledged_same: ClassVar[Mapping[int, int]] = {0: 0xAC, 17: 0}

    def open_subscriber(self, peer: socket.socket, value: bytes, *, start: str = "") -> int:
        """See Wire."""
        self.subscribe(peer, start)
        return 21 + len(value)

    def _request(self, operation: OpCode, name: str, value: bytes = b"") -> bytes:
        return rheos1.encode(rheos1.Request(CLIENT, operation, name.encode(), value))

    def _code(self, answer: bytes) -> int:
        return answer[17]


class Rheos2(_Rheos):
    """Every publish is acknowledged with 22 bytes, and checked by CRC-32."""

    name = "rheos2"
    acknowledged_bytes = 22
    acknowledged_same: ClassVar[Mapping[int, int]] = {0: 0xAC, 1: 0}
    trailer_bytes = 4

    def open_subscriber(self, peer: socket.socket, value: bytes, *, start: str = "") -> int:
        """See Wire."""
        self.subscribe(peer, start)
        return 32 + len(self.topic.encode()) + len(value)

    def _request(self, operation: OpCode, name: str, value: bytes = b"") -> bytes:
        return rheos2.encode(rheos2.Event(CLIENT, operation, name.encode(), value))

    def _code(self, answer: bytes) -> int:
        return answer[1] if answer[18:] == struct.pack("<I", zlib.crc32(answer[:18])) else -1


class _JoinReply(msgspec.Struct):
    """The header of what answers a JOIN; without a status it is a success."""

    status: int = 200


class Fleximq(Wire):
    """MessagePack headers; a publish has no answer."""

    name = "fleximq"

    def __init__(self, topic: str = TOPIC) -> None:
        super().__init__(topic)
        self._number = 0

    def open_publisher(self, peer: socket.socket) -> Callable[[bytes], bytes]:
        """See Wire."""
        number = self._join(peer)
        return lambda value: self._publish(number, value)

    def open_subscriber(self, peer: socket.socket, value: bytes, *, start: str = "") -> int:
        """See Wire."""
        number = self._join(peer)
        topic = fleximq.Header(topic=self.topic + start)
        subscribe = fleximq.Message(fleximq.MessageType.SUB, number, topic, b"")
        # A SUB has no answer; a PING behind it has.
        alive = fleximq.Header(keepalive=fleximq.KeepAlive(1))
        ping = fleximq.encode(fleximq.Message(fleximq.MessageType.PING, number, alive, b""))
        answer = self.shake(peer, fleximq.encode(subscribe) + ping, len(ping))
        if answer[1] in {fleximq.MessageType.REP, fleximq.MessageType.NOTIF}:
            raise self.refused(f"a subscription to {self.topic}")
        return len(self._publish(number, value))

    def alive(self) -> bytes:
        """See Wire: a PONG has no answer, and counts as a sign of life (section 3.7.3)."""
        header = fleximq.Header(keepalive=fleximq.KeepAlive(time.time_ns() // 1_000_000))
        pong = fleximq.Message(fleximq.MessageType.PONG, self._number, header, b"")
        return fleximq.encode(pong)

    def _join(self, peer: socket.socket) -> int:
        join = fleximq.Message(fleximq.MessageType.JOIN, 0, fleximq.Header(), b"")
        reply = self.shake(peer, fleximq.encode(join), 26)
        header_bytes = int.from_bytes(reply[22:26], "big")
        head = bytes((1, fleximq.MessageType.REP))
        if reply[:2] != head or any(reply[6:22]) or header_bytes > _HEADER_BYTES_MAX:
            raise self.not_spoken()
        tail = self.shake(peer, b"", header_bytes + 8)
        payload_bytes = int.from_bytes(tail[-8:], "big")
        try:
            header = msgspec.msgpack.decode(tail[:-8], type=_JoinReply) if header_bytes else None
        except msgspec.DecodeError:
            raise self.not_spoken() from None
        status = 200 if header is None else header.status
        if status in {401, 403}:
            raise not_let_in()
        if not 200 <= status < 300 or payload_bytes > _HEADER_BYTES_MAX:
            raise HandshakeFailed(f"refuses a client with status {status}", "see what it logged")
        self.shake(peer, b"", payload_bytes)
        self._number = int.from_bytes(reply[2:6], "big")
        return self._number

    def _publish(self, number: int, value: bytes) -> bytes:
        header = fleximq.Header(topic=self.topic)
        payload = fleximq.wrap_value(value)
        return fleximq.encode(fleximq.Message(fleximq.MessageType.PUB, number, header, payload))


class Lamamq(Wire):
    """Every push is answered with 5 bytes."""

    name = "lamamq"
    acknowledged_bytes = 5
    acknowledged_same: ClassVar[Mapping[int, int]] = {3: 7, 4: 0}

    def open_publisher(self, peer: socket.socket) -> Callable[[bytes], bytes]:
        """See Wire."""
        self._join(peer)
        return self._push

    def open_subscriber(self, peer: socket.socket, value: bytes, *, start: str = "") -> int:
        """See Wire."""
        self._join(peer)
        answer = self.shake(peer, lamamq.encode(lamamq.Subscribe(1, self.topic + start)), 5)
        if answer != b"\x00\x00\x00\x01\x00":
            raise self.refused(f"a subscription to {self.topic}")
        return len(self._push(value))

    def _join(self, peer: socket.socket) -> None:
        offer = self.shake(peer, lamamq.encode(lamamq.Authentication("bench")), 4)
        if offer == bytes(4):  # the id of an answer, which is an error
            raise not_let_in()
        if not offer[2:] <= bytes((1, 0)) <= offer[:2]:
            raise self.not_spoken()
        peer.sendall(lamamq.encode(lamamq.VersionChoice(1, 0)))

    def _push(self, value: bytes) -> bytes:
        kind = lamamq.PayloadType.BUFFER
        message = lamamq.Message(1_700_000_000, self.topic, (), kind, value)
        return lamamq.encode(lamamq.Push(7, message))


WIRE_KINDS: Final[Mapping[str, type[Wire]]] = {
    kind.name: kind for kind in (Herald, Rheos1, Rheos2, Fleximq, Lamamq)
}
