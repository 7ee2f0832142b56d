"""Load generators for each protocol: those of `penstock bench`, and one for nats-server.

They send prepared frames and count the bytes that arrive, for Penstock and nats-server alike, so
that the figures measure the broker and not its clients.
"""

import socket
from collections.abc import Callable

from penstock.cli.bench.wire import CLIENT, TOPIC, Wire, exchange, wire_of
from penstock.protocols import PROTOCOLS

__all__ = ["CHANNEL", "CLIENT", "TOPIC", "WIRES", "Nats", "Relay", "Wire", "exchange"]

CHANNEL = 7


class Nats(Wire):
    """The text protocol of nats-server."""

    name = "nats"
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
    """The bare relay: values with nothing around them."""

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


WIRES: dict[str, Wire] = {label: wire_of(label)() for label in PROTOCOLS.labels} | {"nats": Nats()}
