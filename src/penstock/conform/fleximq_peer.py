"""A raw fleximq connection. Frames are made here from section 2.1; MessagePack is msgspec's."""

import struct
from typing import Any, Final, NamedTuple, Self

import msgspec

from penstock.conform.peer import Peer, Skipped, spelled
from penstock.conform.stage import Stage

__all__ = [
    "BCAST",
    "BROKER",
    "JOIN",
    "NOTIF",
    "PING",
    "PUB",
    "REP",
    "REQ",
    "STAMP",
    "SUB",
    "UNSUB",
    "FleximqPeer",
    "Header",
    "Received",
    "correlation",
    "frame",
    "joined",
    "keepalive",
    "request",
    "routing",
]

JOIN, REQ, REP, NOTIF, BCAST, PUB, SUB, UNSUB, PING, PONG = range(10)
NAMES: Final = ("JOIN", "REQ", "REP", "NOTIF", "BCAST", "PUB", "SUB", "UNSUB", "PING", "PONG")
BROKER: Final = 1
CLIENTS: Final = range(1000, 4_294_967_295)
HEADER_BYTES_MAX: Final = 65_536
PAYLOAD_BYTES_MAX: Final = 64 * 1024 * 1024
REFUSED: Final = frozenset({401, 403, 503, 604, 605})
STAMP: Final = 1_703_123_456_789

Header = dict[str, Any]


def frame(
    kind: int,
    client_id: int,
    header: Header | bytes = b"",
    payload: bytes = b"",
    *,
    version: int = 1,
    reserved: bytes = bytes(16),
) -> bytes:
    """Return a message; a header that is a map is packed, an empty one is no bytes."""
    packed = header if isinstance(header, bytes) else msgspec.msgpack.encode(header)
    head = struct.pack(">BBI", version, kind, client_id) + reserved
    lengths = struct.pack(">I", len(packed)), struct.pack(">Q", len(payload))
    return head + lengths[0] + packed + lengths[1] + payload


def routing(*entries: tuple[int, str]) -> Header:
    """Return the field `routing`."""
    return {"routing": [{"client_id": number, "path": path} for number, path in entries]}


def request(identifier: str) -> Header:
    """Return the field `reqrep` of a request."""
    return {"reqrep": {"type": "request", "id": identifier}}


def correlation(identifier: str) -> Header:
    """Return the field `reqrep` of a response."""
    return {"reqrep": {"type": "correlation", "id": identifier}}


def keepalive(timestamp: int = STAMP) -> Header:
    """Return the field `keepalive`."""
    return {"keepalive": {"timestamp": timestamp}}


class Received(NamedTuple):
    """A message as it was read."""

    kind: int
    client_id: int
    header: Header
    payload: bytes
    data: bytes

    @property
    def status(self) -> int:
        """The status, 200 where there is none (section 5.1)."""
        found = self.header.get("status", 200)
        return found if isinstance(found, int) else 0

    @property
    def identifier(self) -> object:
        """The `reqrep.id`."""
        reqrep = self.header.get("reqrep")
        return reqrep.get("id") if isinstance(reqrep, dict) else None


class FleximqPeer(Peer):
    """A raw connection that reads messages; `number` is the id that the broker gave it."""

    number = 0

    def message(self, kind: int, what: str = "") -> Received:
        """Expect a message of this type and return it."""
        expected = f"a {NAMES[kind]}{what and f' {what}'}"
        base = self.take(26, expected)
        (header_bytes,) = struct.unpack_from(">I", base, 22)
        if base[0] != 1 or any(base[6:22]) or header_bytes > HEADER_BYTES_MAX:
            raise self.failed(f"{expected}: version 1, 16 zeros, a header length", spelled(base))
        rest = self.take(header_bytes + 8, expected)
        (payload_bytes,) = struct.unpack_from(">Q", rest, header_bytes)
        if payload_bytes > PAYLOAD_BYTES_MAX:
            raise self.failed(f"{expected} of a size that fits", spelled(base + rest))
        payload = self.take(payload_bytes, expected)
        data = base + rest + payload
        if base[1] != kind:
            raise self.failed(expected, spelled(data))
        return Received(
            kind,
            int.from_bytes(base[2:6], "big"),
            self._header(rest[:header_bytes], data),
            payload,
            data,
        )

    def _header(self, packed: bytes, data: bytes) -> Header:
        try:
            header = msgspec.msgpack.decode(packed) if packed else {}
        except msgspec.DecodeError:
            header = None
        if not isinstance(header, dict):
            raise self.failed("a header that is a MessagePack map", spelled(data))
        return header

    def join(self, header: Header | bytes = b"") -> Received:
        """Join; return the reply, which reports success."""
        self.send(frame(JOIN, 0, header))
        reply = self.message(REP, "that answers JOIN")
        if reply.status in REFUSED:
            raise Skipped(f"the server refuses the client, with status {reply.status}")
        if not 200 <= reply.status < 300 or reply.client_id not in CLIENTS:
            expected = "a REP with status 200 to 299 and a client id from 1000 up"
            raise self.failed(expected, spelled(reply.data))
        self.number = reply.client_id
        return reply

    def say(self, kind: int, header: Header | bytes = b"", payload: bytes = b"") -> Self:
        """Send a message in this client's own name."""
        return self.send(frame(kind, self.number, header, payload))

    def settle(self, timestamp: int = STAMP) -> None:
        """Wait, by a PING, until all that was sent was acted on; nothing else may come."""
        self.say(PING, keepalive(timestamp))
        pong = self.message(PONG, f"with timestamp {timestamp}")
        found = pong.header.get("keepalive")
        if not isinstance(found, dict) or found.get("timestamp") != timestamp:
            raise self.failed(f"a PONG with timestamp {timestamp}", spelled(pong.data))

    def subscribe(self, *topics: str) -> Self:
        """Subscribe to topics, and wait until that counts."""
        for topic in topics:
            self.say(SUB, {"topic": topic})
        self.settle()
        return self

    def published(self, topic: str, payload: bytes, sender: int) -> None:
        """Expect this PUB."""
        found = self.message(PUB, f"to {topic}")
        if (found.client_id, found.header.get("topic"), found.payload) != (sender, topic, payload):
            expected = spelled(frame(PUB, sender, {"topic": topic}, payload))
            raise self.failed(expected, spelled(found.data))


def joined(stage: Stage) -> FleximqPeer:
    """Return a connection that has joined."""
    peer = stage.open(FleximqPeer)
    peer.join()
    return peer
