"""A raw LamaMQ connection, and the clients that cases begin with."""

import struct
from typing import Final, Self

from penstock.conform.context import CaseContext
from penstock.conform.lamamq.encoding import (
    BAD_REQUEST,
    BIG,
    BROKER_BIT,
    Forwarded,
    answer,
    authentication,
    counted,
    header,
    message,
    subscribe,
    unsubscribe,
)
from penstock.conform.peer import Failed, Peer, Skipped, check, equal, in_hex

__all__ = ["LamaPeer", "client", "enter", "middleware", "subscriber"]

TEXT_BYTES_MAX: Final = 65_536
BYTES_MAX: Final = 64 * 1024 * 1024
MAJOR_END: Final = 32
"""No version is this high; text from a server of another protocol starts with a higher byte."""


class LamaPeer(Peer):
    """A raw connection that reads answers and forwards in its byte order."""

    order = BIG
    _identifiers = 0x7000_0000

    # --- Handshake --------------------------------------------------------------------------------

    def offered(self) -> bytes:
        """Expect a version offer, and return it: the highest and the lowest version."""
        offer = self.take(4, "four bytes, the supported versions")
        if offer == bytes(4):
            rest = self.take(1, "an answer")
            raise Skipped(f"the server refuses the client, with error {rest[0]}")
        if offer[:2] < offer[2:]:
            raise self.failed("a highest version that is not below the lowest", in_hex(offer))
        if offer[2:] == bytes(2) or offer[0] >= MAJOR_END:
            raise self.failed(f"versions from 0.1 up and below {MAJOR_END}.0", in_hex(offer))
        return offer

    def join(self, name: bytes = b"conform", key: bytes | None = None) -> Self:
        """Do the handshake, with the highest version of the offer."""
        self.send(authentication(name, key, order=self.order))
        return self.send(self.offered()[:2])

    # --- Messages ---------------------------------------------------------------------------------

    def ask(self, data: bytes) -> None:
        """Send a message and expect that it is answered with error 0."""
        (identifier,) = struct.unpack(f"{self.order}I", data[:4])
        self.send(data).expect_answer(identifier)

    def request(self, data: bytes, *, error: int = 0) -> bytes:
        """Send a message under an id of its own and expect its answer; return the error's text."""
        self._identifiers += 1
        self.send(struct.pack(f"{self.order}I", self._identifiers) + data[4:])
        return self.expect_answer(self._identifiers, error)

    def settle(self) -> Self:
        """Wait until the server has processed everything sent; nothing else may arrive.

        It sends a request that is always refused, and waits for the answer.
        """
        self.request(unsubscribe(0, b"never/subscribed", order=self.order), error=BAD_REQUEST)
        return self

    def expect_answer(self, identifier: int, error: int = 0) -> bytes:
        """Expect the answer to a message; return the text of its error."""
        self.expect(header(identifier, error, order=self.order))
        if not error:
            return b""
        (size,) = self._unpack("I", "the size of the error message")
        if size > TEXT_BYTES_MAX:
            raise self.failed(f"an error message below {TEXT_BYTES_MAX} bytes", f"{size} bytes")
        text = self.take(size, f"an error message of {size} bytes")
        try:
            text.decode()
        except UnicodeDecodeError:
            raise self.failed("an error message in UTF-8", in_hex(text)) from None
        return text

    def expect_text(self, identifier: int, error: int, text: bytes) -> None:
        """Expect the answer to a message, with this error and text."""
        equal(self.expect_answer(identifier, error), text, "error message")

    def expect_answers(self, *identifiers: int) -> None:
        """Expect the answers to messages, all with error 0."""
        self.expect(b"".join(answer(identifier, order=self.order) for identifier in identifiers))

    # --- Forwards ---------------------------------------------------------------------------------

    def expect_forward(
        self,
        topic: bytes,
        payload: bytes = b"",
        *,
        kind: int = 2,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        created_at: int = 1_700_000_000,
    ) -> int:
        """Expect a forward of this message; return its id."""
        body = message(
            topic, payload, kind=kind, headers=headers, created_at=created_at, order=self.order
        )
        found = self.expect(4, b"\x01" + body)
        identifier: int = struct.unpack(f"{self.order}I", found[:4])[0]
        return identifier

    def forwarded(self) -> Forwarded:
        """Return the next message, which must be a forward under an id of the broker."""
        identifier, kind, created_at = self._unpack("IBI", "a forward")
        if kind != 1 or identifier < BROKER_BIT:
            found = struct.pack(f"{self.order}IBI", identifier, kind, created_at)
            raise self.failed("a forward with the top bit of its id set", in_hex(found))
        topic = self._counted("the topic of a forward")
        (count,) = self._unpack("H", "the number of headers of a forward")
        headers = [
            (self._counted("the name of a header"), self._counted("the value of a header"))
            for _ in range(count)
        ]
        (payload_type,) = self._unpack("B", "the payload type of a forward")
        payload = self._counted("the payload of a forward") if payload_type else b""
        return Forwarded(identifier, created_at, topic, headers, payload_type, payload)

    def expect_payloads(self, *payloads: bytes) -> None:
        """Expect forwards with these payloads."""
        for payload in payloads:
            equal(self.forwarded().payload, payload, "a forward with payload")

    # --- Middleware -------------------------------------------------------------------------------

    def called(self, hook: bytes, event: bytes) -> Forwarded:
        """Return the next message, which must be a call of this hook about this event."""
        call = self.forwarded()
        equal((call.about or ())[:2], (hook, event), "a call of")
        return call

    def call_identifiers(self, hook: bytes, event: bytes, count: int) -> list[int]:
        """Return the ids of the next `count` calls of this hook, all of the same size."""
        call = self.called(hook, event)
        headers = sum(8 + len(name) + len(value) for name, value in call.headers)
        size = 9 + 4 + len(call.topic) + 2 + headers + 1 + (4 + len(call.payload)) * (call.kind > 0)
        data = self.take(size * (count - 1), f"{count - 1} more calls")
        layout = struct.Struct(f"{self.order}I")
        rest = [layout.unpack_from(data, start)[0] for start in range(0, len(data), size)]
        return [call.identifier, *rest]

    def answer(self, call: Forwarded, error: int = 0, text: bytes = b"") -> None:
        """Answer a hook call."""
        self.send(answer(call.identifier, error, text, order=self.order))

    # --- Bytes ------------------------------------------------------------------------------------

    def _unpack(self, fields: str, what: str) -> tuple[int, ...]:
        layout = struct.Struct(self.order + fields)
        return layout.unpack(self.take(layout.size, what))

    def _counted(self, what: str) -> bytes:
        (size,) = self._unpack("I", what)
        check(size <= BYTES_MAX, f"{what} of a size that is possible", f"{size} bytes")
        return self.take(size, what)


def client(context: CaseContext, name: bytes = b"conform", *, order: str = BIG) -> LamaPeer:
    """Return a connection after its handshake."""
    peer = context.open(LamaPeer)
    peer.order = order
    return peer.join(name)


def subscriber(context: CaseContext, *patterns: bytes, order: str = BIG) -> LamaPeer:
    """Return a connection with subscriptions."""
    peer = client(context, b"subscriber", order=order)
    for pattern in patterns:
        peer.request(subscribe(0, pattern, order=order))
    return peer


def middleware(context: CaseContext, *registrations: bytes, order: str = BIG) -> LamaPeer:
    """Return a connection with hooks."""
    peer = client(context, b"middleware", order=order)
    for registration in registrations:
        peer.request(registration)
    return peer


def enter(context: CaseContext) -> None:
    """Connect a client; raise Skipped if it is refused, or must have a key."""
    peer = context.open(LamaPeer).send(authentication(b"conform"))
    try:
        peer.offered()
    except Failed:
        if peer.heard or peer.closed:
            raise
        peer.send(counted(b"conform")).offered()  # a server may wait for a key
