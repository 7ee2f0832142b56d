"""LamaMQ bytes by hand: an encoder and a reader that share nothing with the project's."""

import struct
from collections.abc import Iterable
from typing import NamedTuple, Self

from tests.support.live import LiveBroker, Peer

BIG, LITTLE = ">", "<"
OFFER = b"\x01\x00\x01\x00"
CHOICE = b"\x01\x00"
BROKER_BIT = 0x8000_0000

CONNECT, DISCONNECT, PUSHED, SUBSCRIBED, UNSUBSCRIBED, REGISTERED, UNREGISTERED = (
    0, 1, 16, 32, 33, 64, 65,
)  # fmt: skip
TELL, WAIT_OR_REFUSE, WAIT_OR_GO_ON = 0, 1, 2
SERVER_EXCEPTION, BAD_REQUEST, TIMEOUT, REFUSED = 1, 2, 3, 4
EMPTY, STRING, BUFFER = 0, 1, 2

Headers = Iterable[tuple[bytes, bytes]]


def counted(data: bytes, *, order: str = BIG) -> bytes:
    return struct.pack(f"{order}I", len(data)) + data


def authentication(name: bytes = b"c", key: bytes | None = None, *, order: str = BIG) -> bytes:
    return (
        b"\x00" + counted(name, order=order) + (b"" if key is None else counted(key, order=order))
    )


def header(identifier: int, kind: int, *, order: str = BIG) -> bytes:
    return struct.pack(f"{order}IB", identifier, kind)


def message(
    topic: bytes,
    payload: bytes = b"",
    *,
    kind: int = BUFFER,
    headers: Headers = (),
    created_at: int = 1_700_000_000,
    order: str = BIG,
) -> bytes:
    """What stands behind the message header of a push or a forward."""
    pairs = list(headers)
    return b"".join(
        [
            struct.pack(f"{order}I", created_at),
            counted(topic, order=order),
            struct.pack(f"{order}H", len(pairs)),
            *(counted(part, order=order) for pair in pairs for part in pair),
            bytes([kind]),
            counted(payload, order=order) if kind else b"",
        ]
    )


def push(
    identifier: int, topic: bytes, payload: bytes = b"", *, order: str = BIG, **more: object
) -> bytes:
    return header(identifier, 0, order=order) + message(topic, payload, order=order, **more)  # type: ignore[arg-type]


def forward(
    identifier: int, topic: bytes, payload: bytes = b"", *, order: str = BIG, **more: object
) -> bytes:
    return header(identifier, 1, order=order) + message(topic, payload, order=order, **more)  # type: ignore[arg-type]


def subscribe(identifier: int, pattern: bytes, *, order: str = BIG) -> bytes:
    return header(identifier, 32, order=order) + counted(pattern, order=order)


def unsubscribe(identifier: int, pattern: bytes, *, order: str = BIG) -> bytes:
    return header(identifier, 33, order=order) + counted(pattern, order=order)


def topic_is(topic: bytes, *, order: str = BIG) -> bytes:
    return b"\x00" + counted(topic, order=order)


def header_is(name: bytes, value: bytes, *, order: str = BIG) -> bytes:
    return b"\x04" + counted(name, order=order) + counted(value, order=order)


def has_header(name: bytes, *, order: str = BIG) -> bytes:
    return b"\x05" + counted(name, order=order)


def register(
    identifier: int,
    name: bytes,
    hook_type: int,
    *conditions: bytes,
    strategy: int = WAIT_OR_REFUSE,
    priority: int = 0,
    timeout_ms: int = 5000,
    order: str = BIG,
) -> bytes:
    data = header(identifier, 64, order=order) + counted(name, order=order)
    data += struct.pack(f"{order}IIBB", priority, timeout_ms, strategy, hook_type)
    if hook_type == PUSHED:
        data += struct.pack(f"{order}H", len(conditions)) + b"".join(conditions)
    return data


def unregister(identifier: int, name: bytes, *, order: str = BIG) -> bytes:
    return header(identifier, 65, order=order) + counted(name, order=order)


def answer(identifier: int, error: int = 0, text: bytes = b"", *, order: str = BIG) -> bytes:
    return header(identifier, error, order=order) + (counted(text, order=order) if error else b"")


class Forwarded(NamedTuple):
    """A forward as it was read."""

    identifier: int
    created_at: int
    topic: bytes
    headers: list[tuple[bytes, bytes]]
    kind: int
    payload: bytes

    @property
    def about(self) -> tuple[bytes, bytes, bytes, bytes]:
        """Of a hook call: hook, event, client, protocol."""
        names = [name for name, _ in self.headers[:4]]
        assert names == [
            b"penstock-hook", b"penstock-event", b"penstock-client", b"penstock-protocol",
        ]  # fmt: skip
        hook, event, client, protocol = (value for _, value in self.headers[:4])
        return hook, event, client, protocol


class LamaPeer(Peer):
    """A raw LamaMQ connection."""

    def __init__(self, broker: LiveBroker, *, order: str = BIG) -> None:
        super().__init__(broker.address)
        self.order = order
        self._next = 0

    def join(self, name: bytes = b"c", key: bytes | None = None) -> Self:
        """Do the handshake."""
        self.send(authentication(name, key, order=self.order))
        self.expect(OFFER)
        self.send(CHOICE)
        return self

    def settle(self) -> Self:
        """Everything sent so far has been acted on: a question that is always refused is answered."""
        self.request(unsubscribe(0, b"never/subscribed", order=self.order), error=BAD_REQUEST)
        return self

    def request(self, data: bytes, *, error: int = 0) -> bytes:
        """Send a message under an id of its own and expect its answer; return the error's text."""
        self._next += 1
        identifier = 0x7000_0000 + self._next
        self.send(struct.pack(f"{self.order}I", identifier) + data[4:])
        return self.expect_answer(identifier, error)

    def expect_answer(self, identifier: int, error: int = 0) -> bytes:
        """The next bytes are the answer to a message; return the error's text."""
        self.expect(header(identifier, error, order=self.order))
        return self._counted() if error else b""

    def forwarded(self) -> Forwarded:
        """The next message is a forward."""
        identifier, kind, created_at = self._unpack("IBI")
        assert kind == 1, f"expected a forward, got {kind} of {identifier:x}"
        assert identifier & BROKER_BIT
        topic = self._counted()
        (count,) = self._unpack("H")
        headers = [(self._counted(), self._counted()) for _ in range(count)]
        (payload_type,) = self._unpack("B")
        payload = self._counted() if payload_type else b""
        return Forwarded(identifier, created_at, topic, headers, payload_type, payload)

    def called(self, hook: bytes, event: bytes) -> Forwarded:
        """The next message is a call of this hook about this event."""
        call = self.forwarded()
        assert call.about[:2] == (hook, event), call
        return call

    def answer(self, call: Forwarded, error: int = 0, text: bytes = b"") -> None:
        """Answer a hook call."""
        self.send(answer(call.identifier, error, text, order=self.order))

    def _unpack(self, fields: str) -> tuple[int, ...]:
        layout = struct.Struct(self.order + fields)
        return layout.unpack(self.receive(layout.size))

    def _counted(self) -> bytes:
        (size,) = self._unpack("I")
        return self.receive(size)


def client(broker: LiveBroker, name: bytes = b"c", *, order: str = BIG) -> LamaPeer:
    return LamaPeer(broker, order=order).join(name)


def subscriber(broker: LiveBroker, *patterns: bytes, order: str = BIG) -> LamaPeer:
    peer = client(broker, b"subscriber", order=order)
    for pattern in patterns:
        peer.request(subscribe(0, pattern, order=order))
    return peer
