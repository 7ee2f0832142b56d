"""A raw fleximq connection, and the clients that cases begin with."""

import struct
from typing import Any, Final, Self

from penstock.conform.context import CaseContext
from penstock.conform.fleximq.encoding import (
    BROKER,
    JOIN,
    NAMES,
    NOTIF,
    PING,
    PONG,
    PUB,
    REP,
    SUB,
    Frame,
    Header,
    correlation,
    frame,
    header_length,
    keepalive,
    parse,
    routing,
    status,
    topic,
)
from penstock.conform.peer import Peer, Skipped, equal, in_hex

__all__ = ["STAMP", "FleximqPeer", "identifier_of", "joined", "status_of"]

CLIENTS: Final = range(1000, 4_294_967_295)
HEADER_BYTES_MAX: Final = 65_536
PAYLOAD_BYTES_MAX: Final = 64 * 1024 * 1024
REFUSED: Final = frozenset({401, 403, 503, 604, 605})
STAMP: Final = 1_703_123_456_789


def status_of(found: Frame) -> int:
    """Return the status of a message: 200 where there is none (section 5.1)."""
    code = found.header.get("status", 200)
    return code if isinstance(code, int) else 0


def identifier_of(found: Frame) -> object:
    """Return the `reqrep.id` of a message."""
    reqrep = found.header.get("reqrep")
    return reqrep.get("id") if isinstance(reqrep, dict) else None


class FleximqPeer(Peer):
    """A raw connection that reads messages.

    `number` is the client id that the broker assigned, `data` the bytes of the last message.
    """

    number = 0
    data = b""

    # --- Reading ----------------------------------------------------------------------------------

    def frame(self, expected: str = "a message") -> Frame:
        """Return the next message."""
        base = self.take(26, expected)
        header_bytes = header_length(base)
        if header_bytes > HEADER_BYTES_MAX:
            raise self.failed(f"{expected} with a header length", in_hex(base))
        rest = self.take(header_bytes + 8, expected)
        (payload_bytes,) = struct.unpack_from(">Q", rest, header_bytes)
        if payload_bytes > PAYLOAD_BYTES_MAX:
            raise self.failed(f"{expected} of a size that is possible", in_hex(base + rest))
        self.data = base + rest + self.take(payload_bytes, expected)
        try:
            return parse(self.data)
        except ValueError as error:
            raise self.failed(
                f"{expected} that is valid", f"{error}: {in_hex(self.data)}"
            ) from None

    def message(self, kind: int, what: str = "") -> Frame:
        """Return the next message, which must be of this type."""
        expected = f"a {NAMES[kind]}{what and f' {what}'}"
        found = self.frame(expected)
        if found.type != kind:
            raise self.failed(expected, in_hex(self.data))
        return found

    def value(self, found: Frame) -> Any:  # noqa: ANN401  (MessagePack has values of any type)
        """Return the payload of a message as a value."""
        try:
            return found.value
        except ValueError as error:
            raise self.failed("a payload in MessagePack", f"{error}: {in_hex(self.data)}") from None

    def published(self, name: str, payload: bytes, sender: int) -> None:
        """Expect this PUB."""
        found = self.message(PUB, f"to {name}")
        if (found.client_id, found.header.get("topic"), found.payload) != (sender, name, payload):
            expected = in_hex(frame(PUB, sender, topic(name), payload))
            raise self.failed(expected, in_hex(self.data))

    def reply(self, kind: int, client_id: int, header: Header) -> Frame:
        """Return the next message, which must have this type, client id and header."""
        found = self.message(kind)
        equal((found.client_id, found.header), (client_id, header), f"{NAMES[kind]} of")
        return found

    def expect_notice(self, code: int) -> str:
        """Expect the broker's NOTIF with this status; return its text."""
        found = self.reply(NOTIF, BROKER, routing((self.number, "/errors")) | status(code))
        return self._text(found)

    def expect_refusal(self, code: int, identifier: str) -> str:
        """Expect the broker's REP with this status and id; return its text."""
        header = routing((self.number, "")) | correlation(identifier) | status(code)
        return self._text(self.reply(REP, BROKER, header))

    def _text(self, found: Frame) -> str:
        text = self.value(found)
        if not isinstance(text, str) or not text:
            raise self.failed("a text that says what is wrong", in_hex(self.data))
        return text

    # --- Sending ----------------------------------------------------------------------------------

    def join(self, header: Header | bytes = b"") -> Frame:
        """Join; return the reply, which reports success."""
        self.send(frame(JOIN, 0, header))
        reply = self.message(REP, "that answers JOIN")
        if status_of(reply) in REFUSED:
            raise Skipped(f"the server refuses the client, with status {status_of(reply)}")
        if not 200 <= status_of(reply) < 300 or reply.client_id not in CLIENTS:
            expected = "a REP with status 200 to 299 and a client id from 1000 up"
            raise self.failed(expected, in_hex(self.data))
        self.number = reply.client_id
        return reply

    def say(self, kind: int, *fields: Header, payload: bytes = b"", reserved: int = 0) -> bytes:
        """Send a message under this client's id; return its bytes."""
        header = {key: value for field in fields for key, value in field.items()}
        zeros = bytes(15) + bytes([reserved])
        data = frame(kind, self.number, header, payload, reserved=zeros)
        self.send(data)
        return data

    def settle(self, timestamp: int = STAMP) -> Self:
        """Send a PING and expect its PONG next: the broker has then processed everything sent."""
        self.say(PING, keepalive(timestamp))
        pong = self.message(PONG, f"with timestamp {timestamp}")
        found = pong.header.get("keepalive")
        if not isinstance(found, dict) or found.get("timestamp") != timestamp:
            raise self.failed(f"a PONG with timestamp {timestamp}", in_hex(self.data))
        return self

    def subscribe(self, *names: str) -> Self:
        """Subscribe to topics, and wait until the subscriptions are active."""
        for name in names:
            self.say(SUB, topic(name))
        return self.settle()


def joined(context: CaseContext) -> FleximqPeer:
    """Return a connection that has joined."""
    peer = context.open(FleximqPeer)
    peer.join()
    return peer
