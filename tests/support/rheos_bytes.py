"""Rheos v1 and v2 in struct and zlib, from the specifications: owes nothing to the codecs.

A `Rheos` says how one version spells requests, acknowledgments and deliveries, so that a case
which holds in both is written once. A `Client` is a socket that speaks it.
"""

import dataclasses
import struct
import uuid
import zlib
from typing import NamedTuple

from tests.support.live import LiveBroker, Peer

CREATE, SUBSCRIBE, PUBLISH, INVALID_OPERATION = range(4)
SUCCESS, FAILED = range(2)

NO_MESSAGE = (1 << 62) - 1
ALICE = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff").bytes
BOB = uuid.UUID("6f1c0ab2-d4e5-4a7c-9b3e-8f2054d1a6c8").bytes


class Ack(NamedTuple):
    code: int
    identifier: bytes


class Delivery(NamedTuple):
    sender: bytes
    name: bytes | None  # v1 does not say which topic it was
    payload: bytes


def offset_of(identifier: bytes) -> int:
    """The offset in a message id, whose version and variant are those of a UUIDv8."""
    found = uuid.UUID(bytes=identifier)
    assert found.version == 8
    assert found.variant == uuid.RFC_4122
    return found.int & NO_MESSAGE


def log_of(identifier: bytes) -> bytes:
    """The log id in a message id."""
    return identifier[:6]


@dataclasses.dataclass(frozen=True)
class Rheos:
    """One version of the protocol."""

    version: int

    @property
    def ack_bytes(self) -> int:
        return 18 if self.version == 1 else 22

    @property
    def body_bytes_max(self) -> int:
        return 4 + 2 * 65_535 if self.version == 1 else 16 * 1024 * 1024

    def request(
        self, opcode: int, name: bytes, payload: bytes = b"", *, client: bytes = ALICE
    ) -> bytes:
        if self.version == 1:
            lengths = struct.pack("<H", len(name)), struct.pack("<H", len(payload))
            return self.packet(opcode, lengths[0] + name + lengths[1] + payload, client=client)
        lengths_2 = struct.pack("<HI", len(name), len(payload))
        return self.packet(opcode, lengths_2 + name + payload, client=client)

    def packet(self, opcode: int, body: bytes, *, client: bytes = ALICE) -> bytes:
        """A packet with any body, right or wrong, under a checksum that is right."""
        packet = struct.pack("<BI16sB", 0xFA, len(body), client, opcode) + body
        return packet if self.version == 1 else packet + struct.pack("<I", zlib.crc32(packet))

    def delivery(self, sender: bytes, name: bytes, payload: bytes) -> Delivery:
        return Delivery(sender, name if self.version == 2 else None, payload)


class Client(Peer):
    """A Rheos client that knows one client id and looks at every byte it gets."""

    def __init__(
        self, broker: LiveBroker | tuple[str, int], rheos: Rheos, *, identity: bytes = ALICE
    ) -> None:
        super().__init__(broker.address if isinstance(broker, LiveBroker) else broker)
        self.rheos = rheos
        self.identity = identity

    def request(self, opcode: int, name: bytes, payload: bytes = b"") -> None:
        self.send(self.rheos.request(opcode, name, payload, client=self.identity))

    def next(self) -> Ack | Delivery:
        """The next packet, whichever it is."""
        first = self.receive(1)
        assert first, "the broker closed the connection"
        if first == b"\xac":
            return self._ack(first)
        return self._response(first) if self.rheos.version == 1 else self._event(first)

    def ack(self) -> Ack:
        found = self.next()
        assert isinstance(found, Ack), found
        return found

    def delivery(self) -> Delivery:
        found = self.next()
        assert isinstance(found, Delivery), found
        return found

    def sort(self, *, acks: int, deliveries: int) -> tuple[list[Ack], list[Delivery]]:
        """As many packets as these together; each kind in its order."""
        found = [self.next() for _ in range(acks + deliveries)]
        answers = [packet for packet in found if isinstance(packet, Ack)]
        messages = [packet for packet in found if isinstance(packet, Delivery)]
        assert (len(answers), len(messages)) == (acks, deliveries)
        return answers, messages

    def ask(self, opcode: int, name: bytes, payload: bytes = b"") -> int:
        """Make a request, wait for its answer and return its code."""
        self.request(opcode, name, payload)
        return self.ack().code

    def must(self, opcode: int, name: bytes, payload: bytes = b"") -> Ack:
        """Make a request that is granted."""
        self.request(opcode, name, payload)
        found = self.ack()
        assert found.code == SUCCESS
        return found

    def expect_failed(self) -> None:
        """The next packet refuses something, under an id that is no message's."""
        found = self.ack()
        assert found.code == FAILED
        assert offset_of(found.identifier) == NO_MESSAGE

    def expect_alive(self) -> None:
        """Requests are still answered: this one is, and what comes is its answer."""
        self.request(SUBSCRIBE, b"nobody/ever/made/this")
        self.expect_failed()

    def _ack(self, first: bytes) -> Ack:
        rest = self.receive(self.rheos.ack_bytes - 1)
        if self.rheos.version == 1:
            return Ack(rest[16], rest[:16])
        code, identifier, checksum = struct.unpack("<B16sI", rest)
        assert checksum == zlib.crc32(first + rest[:-4])
        return Ack(code, identifier)

    def _response(self, first: bytes) -> Delivery:
        assert first == b"\x15", first.hex()
        size, sender = struct.unpack("<I16s", self.receive(20))
        return Delivery(sender, None, self.receive(size))

    def _event(self, first: bytes) -> Delivery:
        assert first == b"\xfa", first.hex()
        header = first + self.receive(21)
        _, size, sender, opcode = struct.unpack("<BI16sB", header)
        assert opcode == PUBLISH
        body = self.receive(size)
        assert struct.unpack("<I", self.receive(4))[0] == zlib.crc32(body, zlib.crc32(header))
        name_size, data_size = struct.unpack_from("<HI", body)
        assert size == 6 + name_size + data_size
        return Delivery(sender, body[6 : 6 + name_size], body[6 + name_size :])


RHEOS1 = Rheos(1)
RHEOS2 = Rheos(2)
