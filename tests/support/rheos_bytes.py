"""Rheos over a socket, with the encoder of the conformance cases."""

import struct
import zlib

from penstock.conform.rheos.encoding import *  # noqa: F403
from penstock.conform.rheos.encoding import (
    ALICE,
    FAILED,
    NO_MESSAGE,
    PUBLISH,
    SUBSCRIBE,
    SUCCESS,
    Ack,
    Delivery,
    Rheos,
    offset_of,
)
from tests.support.live import LiveBroker, Peer


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
