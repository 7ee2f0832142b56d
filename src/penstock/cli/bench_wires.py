"""How to load a broker in each protocol: the bytes of a publisher and of a subscriber.

Load generators send frames made beforehand and count the bytes that come back, so that what is
measured is the broker and not its clients.
"""

import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from penstock.wire import fleximq, herald, lamamq, rheos1, rheos2
from penstock.wire.rheos import OpCode

__all__ = [
    "CLIENT",
    "TOPIC",
    "WIRE_KINDS",
    "AcknowledgmentCounter",
    "Fleximq",
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


class Wire(ABC):
    """One protocol as a load generator needs it, with one topic."""

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
        exchange(peer, herald.encode(herald.HandshakePub(channel, "p")), 16)
        return lambda value: herald.encode(herald.Publish(channel, value))

    def open_subscriber(
        self,
        peer: socket.socket,
        value: bytes,
        *,
        start: str = "",  # noqa: ARG002
    ) -> int:
        """See Wire."""
        exchange(peer, herald.encode(herald.HandshakeSub(bytes([self.channel]), "s")), 16)
        return 16 + len(value)


class Rheos1(Wire):
    """Every publish is acknowledged with 18 bytes."""

    name = "rheos1"
    acknowledged_bytes = 18
    acknowledged_same: ClassVar[Mapping[int, int]] = {0: 0xAC, 17: 0}

    def prepare(self, peer: socket.socket) -> None:
        """See Wire."""
        request = rheos1.Request(CLIENT, OpCode.CREATE, self.topic.encode(), b"")
        exchange(peer, rheos1.encode(request), 18)

    def open_publisher(self, peer: socket.socket) -> Callable[[bytes], bytes]:  # noqa: ARG002
        """See Wire."""
        name = self.topic.encode()
        return lambda value: rheos1.encode(rheos1.Request(CLIENT, OpCode.PUBLISH, name, value))

    def open_subscriber(self, peer: socket.socket, value: bytes, *, start: str = "") -> int:
        """See Wire."""
        request = rheos1.Request(CLIENT, OpCode.SUBSCRIBE, (self.topic + start).encode(), b"")
        exchange(peer, rheos1.encode(request), 18)
        return 21 + len(value)


class Rheos2(Wire):
    """Every publish is acknowledged with 22 bytes, and checked by CRC-32."""

    name = "rheos2"
    acknowledged_bytes = 22
    acknowledged_same: ClassVar[Mapping[int, int]] = {0: 0xAC, 1: 0}
    trailer_bytes = 4

    def prepare(self, peer: socket.socket) -> None:
        """See Wire."""
        request = rheos2.Event(CLIENT, OpCode.CREATE, self.topic.encode(), b"")
        exchange(peer, rheos2.encode(request), 22)

    def open_publisher(self, peer: socket.socket) -> Callable[[bytes], bytes]:  # noqa: ARG002
        """See Wire."""
        name = self.topic.encode()
        return lambda value: rheos2.encode(rheos2.Event(CLIENT, OpCode.PUBLISH, name, value))

    def open_subscriber(self, peer: socket.socket, value: bytes, *, start: str = "") -> int:
        """See Wire."""
        request = rheos2.Event(CLIENT, OpCode.SUBSCRIBE, (self.topic + start).encode(), b"")
        exchange(peer, rheos2.encode(request), 22)
        return 32 + len(self.topic.encode()) + len(value)


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
        exchange(peer, fleximq.encode(subscribe) + ping, len(ping))
        return len(self._publish(number, value))

    def alive(self) -> bytes:
        """See Wire: a PONG has no answer, and counts as a sign of life (section 3.7.3)."""
        header = fleximq.Header(keepalive=fleximq.KeepAlive(time.time_ns() // 1_000_000))
        pong = fleximq.Message(fleximq.MessageType.PONG, self._number, header, b"")
        return fleximq.encode(pong)

    def _join(self, peer: socket.socket) -> int:
        join = fleximq.Message(fleximq.MessageType.JOIN, 0, fleximq.Header(), b"")
        reply = exchange(peer, fleximq.encode(join), 26)
        rest = int.from_bytes(reply[22:26], "big") + 8
        tail = exchange(peer, b"", rest)
        exchange(peer, b"", int.from_bytes(tail[-8:], "big"))
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
        exchange(peer, lamamq.encode(lamamq.Subscribe(1, self.topic + start)), 5)
        return len(self._push(value))

    def _join(self, peer: socket.socket) -> None:
        exchange(peer, lamamq.encode(lamamq.Authentication("bench")), 4)
        peer.sendall(lamamq.encode(lamamq.VersionChoice(1, 0)))

    def _push(self, value: bytes) -> bytes:
        kind = lamamq.PayloadType.BUFFER
        message = lamamq.Message(1_700_000_000, self.topic, (), kind, value)
        return lamamq.encode(lamamq.Push(7, message))


WIRE_KINDS: Final[Mapping[str, type[Wire]]] = {
    kind.name: kind for kind in (Herald, Rheos1, Rheos2, Fleximq, Lamamq)
}
