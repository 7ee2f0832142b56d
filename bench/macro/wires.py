"""Load generators for each protocol: those of `penstock bench`, and one for nats-server.

They send prepared frames and count the bytes that arrive, for Penstock and nats-server alike, so
that the figures measure the broker and not its clients.
"""

import socket
from collections.abc import Callable

from penstock.cli.bench.wire import CLIENT, TOPIC, Wire, exchange, wire_of
from penstock.protocols import PROTOCOLS

__all__ = [
    "CHANNEL",
    "CLIENT",
    "TOPIC",
    "WIRES",
    "Mqtt",
    "Nats",
    "Redis",
    "Relay",
    "Wire",
    "exchange",
    "redis_command",
]

CHANNEL = 7


class Nats(Wire):
    """The text protocol of nats-server."""

    name = "nats"
    trailer_bytes = len(b"\r\n")
    interjection = b"PING\r\n"
    subject = b"channel.7"

    def open_publisher(self, peer: socket.socket) -> Callable[[bytes], bytes]:
        self.connect(peer)
        return lambda value: b"PUB %b %d\r\n%b\r\n" % (self.subject, len(value), value)

    def open_subscriber(
        self,
        peer: socket.socket,
        value: bytes,
        *,
        start: str = "",  # noqa: ARG002
    ) -> int:
        self.connect(peer)
        exchange(peer, b"SUB %b 1\r\nPING\r\n" % self.subject, len(b"PONG\r\n"))
        return len(b"MSG %b 1 %d\r\n%b\r\n" % (self.subject, len(value), value))

    def connect(self, peer: socket.socket) -> None:
        """Read the greeting of the server and introduce the client."""
        while peer.recv(1) != b"\n":  # the server's INFO line comes first
            pass
        exchange(peer, b'CONNECT {"verbose":false}\r\nPING\r\n', len(b"PONG\r\n"))


class Relay(Wire):
    """The bare relay: bytes that it does not look at, such as a frame of another protocol."""

    name = "relay"

    def open_publisher(self, peer: socket.socket) -> Callable[[bytes], bytes]:  # noqa: ARG002
        return lambda value: value

    def open_subscriber(
        self,
        peer: socket.socket,
        value: bytes,
        *,
        start: str = "",  # noqa: ARG002
    ) -> int:
        exchange(peer, b"?", 1)
        return len(value)


def redis_command(*words: bytes) -> bytes:
    """Return a command of Redis."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words)


class Redis(Wire):
    """Publish and subscribe of Redis: each publish is answered with the number of receivers."""

    name = "redis"
    trailer_bytes = len(b"\r\n")
    acknowledged_bytes = len(b":1\r\n")

    def open_publisher(self, peer: socket.socket) -> Callable[[bytes], bytes]:  # noqa: ARG002
        return lambda value: redis_command(b"PUBLISH", self.topic.encode(), value)

    def open_subscriber(
        self,
        peer: socket.socket,
        value: bytes,
        *,
        start: str = "",  # noqa: ARG002
    ) -> int:
        topic = self.topic.encode()
        answer = b"*3\r\n$9\r\nsubscribe\r\n$%d\r\n%b\r\n:1\r\n" % (len(topic), topic)
        exchange(peer, redis_command(b"SUBSCRIBE", topic), len(answer))
        return len(redis_command(b"message", topic, value))


class Mqtt(Wire):
    """MQTT 3.1.1 with QoS 0, for Mosquitto."""

    name = "mosquitto"

    def open_publisher(self, peer: socket.socket) -> Callable[[bytes], bytes]:
        self._connect(peer)
        return self._publish

    def open_subscriber(
        self,
        peer: socket.socket,
        value: bytes,
        *,
        start: str = "",  # noqa: ARG002
    ) -> int:
        self._connect(peer)
        body = b"\0\1" + self._text(self.topic) + b"\0"
        exchange(peer, b"\x82" + self._length(len(body)) + body, len(b"\x90\3\0\1\0"))
        return len(self._publish(value))

    def _connect(self, peer: socket.socket) -> None:
        body = self._text("MQTT") + b"\4\2\0\0" + self._text("")  # clean session, no keep-alive
        exchange(peer, b"\x10" + self._length(len(body)) + body, len(b"\x20\2\0\0"))

    def _publish(self, value: bytes) -> bytes:
        body = self._text(self.topic) + value
        return b"\x30" + self._length(len(body)) + body

    @staticmethod
    def _text(text: str) -> bytes:
        return len(text).to_bytes(2, "big") + text.encode()

    @staticmethod
    def _length(number: int) -> bytes:
        encoded = bytearray()
        while number > 127:
            encoded.append(number & 127 | 128)
            number >>= 7
        encoded.append(number)
        return bytes(encoded)


WIRES: dict[str, Wire] = {label: wire_of(label)() for label in PROTOCOLS.labels} | {"nats": Nats()}
