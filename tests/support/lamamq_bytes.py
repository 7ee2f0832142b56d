"""LamaMQ over a socket, with the encoder of the conformance cases."""

import struct
from typing import Self

from penstock.conform.lamamq.encoding import *  # noqa: F403
from penstock.conform.lamamq.encoding import (
    BAD_REQUEST,
    BIG,
    BROKER_BIT,
    CHOICE,
    OFFER,
    Forwarded,
    answer,
    authentication,
    header,
    subscribe,
    unsubscribe,
)
from tests.support.live import LiveBroker, Peer


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
        assert call.about is not None
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
