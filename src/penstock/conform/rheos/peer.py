"""A raw Rheos connection, and the clients that cases begin with."""

import struct
import zlib
from typing import Final, Self

from penstock.conform.context import CaseContext
from penstock.conform.peer import Failed, Peer, Skipped, equal, in_hex
from penstock.conform.rheos.encoding import (
    ALICE,
    CREATE,
    FAILED,
    NO_MESSAGE,
    PUBLISH,
    RHEOS1,
    SUBSCRIBE,
    SUCCESS,
    Ack,
    Delivery,
    Rheos,
    offset_of,
)

__all__ = ["RheosPeer", "client", "created", "enter", "message_offset", "subscribed"]

PACKET_BYTES_MAX: Final = 64 * 1024 * 1024


def message_offset(identifier: bytes) -> int:
    """Return the offset in a message id; raise Failed if it is no UUIDv8."""
    try:
        return offset_of(identifier)
    except ValueError:
        raise Failed("a message id that is a UUIDv8", in_hex(identifier)) from None


class RheosPeer(Peer):
    """A raw connection that reads acknowledgments and deliveries of its version."""

    rheos = RHEOS1
    identity = ALICE

    def request(self, opcode: int, name: bytes, payload: bytes = b"") -> Self:
        """Send a request under this client's id."""
        return self.send(self.rheos.request(opcode, name, payload, client=self.identity))

    def granted(self, opcode: int, name: bytes, payload: bytes = b"") -> bytes:
        """Send a request and expect SUCCESS; return the message id."""
        return self.request(opcode, name, payload).acknowledged()

    def refused(self, opcode: int, name: bytes, payload: bytes = b"") -> None:
        """Send a request and expect FAILED, with an id that is no message's."""
        self.request(opcode, name, payload).expect_failed()

    def acknowledged(self, code: int = SUCCESS) -> bytes:
        """Expect an acknowledgment with this code; return its message id."""
        if self.rheos.version == 1:
            return self.expect(b"\xac", 16, bytes((code,)))[1:17]
        packet = self.expect(bytes((0xAC, code)), 20)
        self._check_sum(packet)
        return packet[2:18]

    def expect_failed(self) -> None:
        """Expect FAILED, with an id that is no message's."""
        equal(message_offset(self.acknowledged(FAILED)), NO_MESSAGE, "an id of no message,")

    def delivered(self, name: bytes, payload: bytes, sender: bytes | None = None) -> bytes:
        """Expect a delivery of this message; return the client id that it carries."""
        client_id = 16 if sender is None else sender
        if self.rheos.version == 1:
            head = b"\x15" + struct.pack("<I", len(payload))
            return self.expect(head, client_id, payload)[5:21]
        body = self.rheos.body(name, payload)
        head = b"\xfa" + struct.pack("<I", len(body))
        packet = self.expect(head, client_id, bytes((PUBLISH,)) + body, 4)
        self._check_sum(packet)
        return packet[5:21]

    def expect_alive(self) -> None:
        """Expect that requests are still answered, and that nothing else comes first."""
        self.refused(SUBSCRIBE, b"never/created")

    def next(self) -> Ack | Delivery:
        """Return the next packet, an acknowledgment or a delivery."""
        what = "an acknowledgment or a delivery"
        first = self.take(1, what)
        if first == b"\xac":
            packet = first + self.take(self.rheos.ack_bytes - 1, what)
            if self.rheos.version == 1:
                return Ack(packet[17], packet[1:17])
            self._check_sum(packet)
            return Ack(packet[1], packet[2:18])
        if first != (b"\x15" if self.rheos.version == 1 else b"\xfa"):
            raise self.failed(what, in_hex(first))
        return self._delivery(first + self.take(20, what))

    def ack(self) -> Ack:
        """Return the next packet, which must be an acknowledgment."""
        found = self.next()
        if not isinstance(found, Ack):
            raise self.failed("an acknowledgment", str(found))
        return found

    def codes(self, count: int) -> list[int]:
        """Return the codes of the next `count` acknowledgments."""
        return [self.ack().code for _ in range(count)]

    def delivery(self) -> Delivery:
        """Return the next packet, which must be a delivery."""
        found = self.next()
        if not isinstance(found, Delivery):
            raise self.failed("a delivery", str(found))
        return found

    def sort(self, *, acks: int, deliveries: int) -> tuple[list[Ack], list[Delivery]]:
        """Return so many acknowledgments and deliveries, which may be mixed."""
        found = [self.next() for _ in range(acks + deliveries)]
        answers = [packet for packet in found if isinstance(packet, Ack)]
        messages = [packet for packet in found if isinstance(packet, Delivery)]
        equal(len(answers), acks, "a number of acknowledgments of")
        return answers, messages

    def _delivery(self, start: bytes) -> Delivery:
        size, sender = struct.unpack("<I16s", start[1:])
        if size > PACKET_BYTES_MAX:
            raise self.failed("a delivery of a size that is possible", in_hex(start))
        if self.rheos.version == 1:
            return Delivery(sender, None, self.take(size, f"a payload of {size} bytes"))
        packet = start + self.take(size + 5, f"a delivery with a body of {size} bytes")
        self._check_sum(packet)
        body = packet[22:-4]
        name_bytes, data_bytes = struct.unpack_from("<HI", body) if size >= 6 else (0, 0)
        if packet[21] != PUBLISH or size != 6 + name_bytes + data_bytes:
            raise self.failed("PUBLISH with lengths that fill its body", in_hex(packet))
        return Delivery(sender, body[6 : 6 + name_bytes], body[6 + name_bytes :])

    def _check_sum(self, packet: bytes) -> None:
        checksum = struct.pack("<I", zlib.crc32(packet[:-4]))
        if packet[-4:] != checksum:
            raise self.failed(f"{in_hex(packet[:-4] + checksum)} (CRC32)", in_hex(packet))


def client(context: CaseContext, rheos: Rheos, *, identity: bytes = ALICE) -> RheosPeer:
    """Return a connection of a client that has sent nothing yet."""
    peer = context.open(RheosPeer)
    peer.rheos, peer.identity = rheos, identity
    return peer


def created(
    context: CaseContext, rheos: Rheos, name: bytes, *, identity: bytes = ALICE
) -> RheosPeer:
    """Return a connection that created a topic."""
    peer = client(context, rheos, identity=identity)
    peer.granted(CREATE, name)
    return peer


def subscribed(context: CaseContext, rheos: Rheos, name: bytes) -> RheosPeer:
    """Return a connection that subscribed to a topic."""
    peer = client(context, rheos)
    peer.granted(SUBSCRIBE, name)
    return peer


def enter(context: CaseContext, rheos: Rheos) -> None:
    """Connect a client; raise Skipped if its first request fails and the server then closes."""
    peer = client(context, rheos)
    try:
        peer.granted(CREATE, context.topic())
    except Failed:
        peer = client(context, rheos)
        peer.request(CREATE, context.topic()).acknowledged(FAILED)
        peer.request(CREATE, context.topic())
        if peer.is_closed():
            refusal = "the server refuses the client: FAILED, then the end of the connection"
            raise Skipped(refusal) from None
