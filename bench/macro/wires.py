"""How to load a broker in each protocol: the bytes of a publisher and of a subscriber.

Load generators send frames made beforehand and count the bytes that come back, for Penstock and for
its peers alike, so that what is measured is the broker and not its clients.
"""

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from penstock.wire import fleximq, herald, lamamq, rheos1, rheos2
from penstock.wire.rheos import OpCode

CLIENT = bytes(range(16))
TOPIC = "channel/7"
CHANNEL = 7


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
    """One protocol as a load generator needs it."""

    name: ClassVar[str]
    acknowledged_bytes: ClassVar[int] = 0
    """Size of what answers one publish, 0 where nothing does."""
    interjection: ClassVar[bytes] = b""
    """What the broker may send a subscriber between two deliveries."""

    @abstractmethod
    def open_publisher(self, peer: socket.socket) -> Callable[[bytes], bytes]:
        """Make a connection ready to publish; return what makes the frame of a value."""

    @abstractmethod
    def open_subscriber(self, peer: socket.socket, value: bytes, *, start: str = "") -> int:
        """Make a connection a subscriber; return how many bytes a delivery of `value` has.

        `start` is a place in history, such as `@earliest`, in protocols with names.
        """


class Herald(Wire):
    """256 channels, no acknowledgments."""

    name = "herald"

    def open_publisher(self, peer: socket.socket) -> Callable[[bytes], bytes]:
        exchange(peer, herald.encode(herald.HandshakePub(CHANNEL, "p")), 16)
        return lambda value: herald.encode(herald.Publish(CHANNEL, value))

    def open_subscriber(
        self,
        peer: socket.socket,
        value: bytes,
        *,
        start: str = "",  # noqa: ARG002
    ) -> int:
        exchange(peer, herald.encode(herald.HandshakeSub(bytes([CHANNEL]), "s")), 16)
        return 16 + len(value)


class Rheos1(Wire):
    """Every publish is acknowledged with 18 bytes."""

    name = "rheos1"
    acknowledged_bytes = 18

    def open_publisher(self, peer: socket.socket) -> Callable[[bytes], bytes]:  # noqa: ARG002
        name = TOPIC.encode()
        return lambda value: rheos1.encode(rheos1.Request(CLIENT, OpCode.PUBLISH, name, value))

    def open_subscriber(self, peer: socket.socket, value: bytes, *, start: str = "") -> int:
        request = rheos1.Request(CLIENT, OpCode.SUBSCRIBE, (TOPIC + start).encode(), b"")
        exchange(peer, rheos1.encode(request), 18)
        return 21 + len(value)


class Rheos2(Wire):
    """Every publish is acknowledged with 22 bytes, and checked by CRC-32."""

    name = "rheos2"
    acknowledged_bytes = 22

    def open_publisher(self, peer: socket.socket) -> Callable[[bytes], bytes]:  # noqa: ARG002
        name = TOPIC.encode()
        return lambda value: rheos2.encode(rheos2.Event(CLIENT, OpCode.PUBLISH, name, value))

    def open_subscriber(self, peer: socket.socket, value: bytes, *, start: str = "") -> int:
        request = rheos2.Event(CLIENT, OpCode.SUBSCRIBE, (TOPIC + start).encode(), b"")
        exchange(peer, rheos2.encode(request), 22)
        return 32 + len(TOPIC) + len(value)


class Fleximq(Wire):
    """MessagePack headers; a publish has no answer."""

    name = "fleximq"

    def open_publisher(self, peer: socket.socket) -> Callable[[bytes], bytes]:
        number = self._join(peer)
        return lambda value: self._publish(number, value)

    def open_subscriber(self, peer: socket.socket, value: bytes, *, start: str = "") -> int:
        number = self._join(peer)
        topic = fleximq.Header(topic=TOPIC + start)
        subscribe = fleximq.Message(fleximq.MessageType.SUB, number, topic, b"")
        # A SUB has no answer; a PING behind it has.
        alive = fleximq.Header(keepalive=fleximq.KeepAlive(1))
        ping = fleximq.encode(fleximq.Message(fleximq.MessageType.PING, number, alive, b""))
        exchange(peer, fleximq.encode(subscribe) + ping, len(ping))
        return len(self._publish(number, value))

    def _join(self, peer: socket.socket) -> int:
        join = fleximq.Message(fleximq.MessageType.JOIN, 0, fleximq.Header(), b"")
        reply = exchange(peer, fleximq.encode(join), 26)
        rest = int.from_bytes(reply[22:26], "big") + 8
        tail = exchange(peer, b"", rest)
        exchange(peer, b"", int.from_bytes(tail[-8:], "big"))
        return int.from_bytes(reply[2:6], "big")

    def _publish(self, number: int, value: bytes) -> bytes:
        header = fleximq.Header(topic=TOPIC)
        payload = fleximq.wrap_value(value)
        return fleximq.encode(fleximq.Message(fleximq.MessageType.PUB, number, header, payload))


class Lamamq(Wire):
    """Every push is answered with 5 bytes."""

    name = "lamamq"
    acknowledged_bytes = 5

    def open_publisher(self, peer: socket.socket) -> Callable[[bytes], bytes]:
        self._join(peer)
        return self._push

    def open_subscriber(self, peer: socket.socket, value: bytes, *, start: str = "") -> int:
        self._join(peer)
        exchange(peer, lamamq.encode(lamamq.Subscribe(1, TOPIC + start)), 5)
        return len(self._push(value))

    def _join(self, peer: socket.socket) -> None:
        exchange(peer, lamamq.encode(lamamq.Authentication("bench")), 4)
        peer.sendall(lamamq.encode(lamamq.VersionChoice(1, 0)))

    def _push(self, value: bytes) -> bytes:
        kind = lamamq.PayloadType.BUFFER
        message = lamamq.Message(1_700_000_000, TOPIC, (), kind, value)
        return lamamq.encode(lamamq.Push(7, message))


class Nats(Wire):
    """The text protocol of nats-server, the peer."""

    name = "nats"
    interjection = b"PING\r\n"
    subject = b"channel.7"

    def open_publisher(self, peer: socket.socket) -> Callable[[bytes], bytes]:
        self._connect(peer)
        return lambda value: b"PUB %b %d\r\n%b\r\n" % (self.subject, len(value), value)

    def open_subscriber(
        self,
        peer: socket.socket,
        value: bytes,
        *,
        start: str = "",  # noqa: ARG002
    ) -> int:
        self._connect(peer)
        exchange(peer, b"SUB %b 1\r\nPING\r\n" % self.subject, len(b"PONG\r\n"))
        return len(b"MSG %b 1 %d\r\n%b\r\n" % (self.subject, len(value), value))

    def _connect(self, peer: socket.socket) -> None:
        while peer.recv(1) != b"\n":  # the server's INFO line comes first
            pass
        exchange(peer, b'CONNECT {"verbose":false}\r\nPING\r\n', len(b"PONG\r\n"))


WIRES: dict[str, Wire] = {
    wire.name: wire for wire in (Herald(), Rheos1(), Rheos2(), Fleximq(), Lamamq(), Nats())
}
