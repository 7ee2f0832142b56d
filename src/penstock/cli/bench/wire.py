"""A protocol as a load generator needs it: the bytes of a publisher and of a subscriber.

Load generators send frames that were made beforehand and count the bytes that come back, so the
broker is measured and not its clients. `Protocol.bench` refers to a
protocol's class.
"""

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from penstock.protocols import PROTOCOLS, load

__all__ = [
    "CLIENT",
    "TOPIC",
    "AcknowledgmentCounter",
    "HandshakeFailed",
    "PublishRefused",
    "Wire",
    "exchange",
    "not_let_in",
    "wire_of",
]

CLIENT: Final = bytes(range(16))
TOPIC: Final = "channel/7"
"""A topic that clients of all protocols can use without creating it."""
_NO_CREDENTIALS: Final = "bench sends no credentials: use a listener that accepts anonymous clients"


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
    """A broker that refuses the load. `reason` is a phrase to follow its name."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason, remedy)
        self.reason = reason
        self.remedy = remedy

    def __str__(self) -> str:
        return f"the broker {self.reason}"


def not_let_in(where: str = "") -> HandshakeFailed:
    """Return the error of a client that needs credentials; `where` limits it to a topic."""
    return HandshakeFailed(f"does not accept anonymous clients{where}", _NO_CREDENTIALS)


class Wire(ABC):
    """A protocol with one topic.

    Methods that open a connection raise HandshakeFailed if the broker refuses it, or speaks another
    protocol.
    """

    name: ClassVar[str]
    acknowledged_bytes: ClassVar[int] = 0
    """Size of the answer to one publish, 0 if there is none."""
    acknowledged_same: ClassVar[Mapping[int, int]] = {}
    """Bytes that every answer has by position, unless it is a refusal."""
    trailer_bytes: ClassVar[int] = 0
    """Size of the part of a delivery after its value."""
    interjection: ClassVar[bytes] = b""
    """Bytes that the broker may send a subscriber between two deliveries."""

    def __init__(self, topic: str = TOPIC) -> None:
        self.topic = topic

    def prepare(self, peer: socket.socket) -> None:  # noqa: B027  (most protocols need nothing)
        """Create the topic, if the protocol requires it; it may exist already."""

    @abstractmethod
    def open_publisher(self, peer: socket.socket) -> Callable[[bytes], bytes]:
        """Prepare a connection to publish; return a function that encodes a value."""

    @abstractmethod
    def open_subscriber(self, peer: socket.socket, value: bytes, *, start: str = "") -> int:
        """Subscribe on a connection; return the size of a delivery of `value`.

        `start` is a replay position, such as `@earliest`; herald has none.
        """

    def alive(self) -> bytes:
        """Return a keep-alive that a subscriber sends from time to time; empty if there is none."""
        return b""

    def shake(self, peer: socket.socket, request: bytes, answer_bytes: int) -> bytes:
        """Send a request of the handshake and return the answer; raise HandshakeFailed."""
        try:
            return exchange(peer, request, answer_bytes)
        except TimeoutError:
            reason = f"does not answer a {self.name} client without credentials"
            raise HandshakeFailed(reason, _NO_CREDENTIALS) from None
        except ConnectionError:
            raise self.not_spoken() from None

    def not_spoken(self) -> HandshakeFailed:
        """Return the error of a broker that speaks another protocol."""
        remedy = f"give --url a {self.name} listener, or --protocol what it speaks"
        return HandshakeFailed(f"does not speak {self.name}", remedy)

    def refused(self, what: str) -> HandshakeFailed:
        """Return the error of a client that may not publish or subscribe."""
        remedy = f"let anonymous clients publish and subscribe to {self.topic}, or give --topic"
        return HandshakeFailed(f"refuses {what}", remedy)


class PublishRefused(Exception):
    """The answer to a publish is not an acknowledgment."""

    def __str__(self) -> str:
        return "the broker refused a publish"


class AcknowledgmentCounter:
    """Counts the acknowledgments of a protocol in a stream that arrives in pieces."""

    def __init__(self, wire: Wire) -> None:
        self._size = wire.acknowledged_bytes
        self._same = wire.acknowledged_same
        self._rest = b""

    def count(self, data: bytes | memoryview) -> int:
        """Return how many acknowledgments end in the next piece; raise PublishRefused."""
        if not self._size:
            raise PublishRefused  # without acknowledgments, any answer is a refusal
        whole = self._rest + data
        count = len(whole) // self._size
        end = count * self._size
        for place, byte in self._same.items():
            if whole[place : end : self._size].count(byte) != count:
                raise PublishRefused
        self._rest = whole[end:]
        return count


def wire_of(label: str) -> type[Wire]:
    """Return the class of a protocol."""
    wire: type[Wire] = load(PROTOCOLS[label].bench)
    return wire
