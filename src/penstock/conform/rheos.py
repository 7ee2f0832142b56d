"""Conformance cases of Rheos v1 and v2: what both have in common is written once.

The bytes are made here, from the specifications, and owe nothing to the codecs.
"""

import dataclasses
import struct
import zlib
from typing import Final

from penstock.conform.case import Book, Case
from penstock.conform.peer import Failed, Peer, Skipped, spelled
from penstock.conform.stage import Stage

__all__ = [
    "CREATE",
    "PUBLISH",
    "Rheos",
    "RheosPeer",
    "created",
    "let_in",
    "refused",
    "sender_is_named",
    "subscribed",
    "versioned",
]

CREATE, SUBSCRIBE, PUBLISH, INVALID_OPERATION = range(4)
SUCCESS, FAILED = range(2)
ALICE: Final = bytes.fromhex("00112233445566778899aabbccddeeff")
BOB: Final = bytes.fromhex("6f1c0ab2d4e54a7c9b3e8f2054d1a6c8")
ALL_BYTES: Final = bytes(range(256))


@dataclasses.dataclass(frozen=True, slots=True)
class Rheos:
    """How one version spells its packets."""

    version: int

    def body(self, name: bytes, payload: bytes = b"") -> bytes:
        """Return the body of a request."""
        if self.version == 1:
            return struct.pack("<H", len(name)) + name + struct.pack("<H", len(payload)) + payload
        return struct.pack("<HI", len(name), len(payload)) + name + payload

    def packet(self, operation: int, body: bytes, *, client: bytes = ALICE) -> bytes:
        """Return a packet with any body, right or wrong; its checksum is right."""
        packet = struct.pack("<BI16sB", 0xFA, len(body), client, operation) + body
        return packet if self.version == 1 else packet + struct.pack("<I", zlib.crc32(packet))

    def request(
        self, operation: int, name: str | bytes, payload: bytes = b"", *, client: bytes = ALICE
    ) -> bytes:
        """Return a request."""
        spelling = name.encode() if isinstance(name, str) else name
        return self.packet(operation, self.body(spelling, payload), client=client)


class RheosPeer(Peer):
    """A raw connection that reads acknowledgments and deliveries."""

    def acknowledged(self, rheos: Rheos, code: int = SUCCESS) -> bytes:
        """Expect an acknowledgment with this code; return its message id."""
        if rheos.version == 1:
            return self.expect(b"\xac", 16, bytes((code,)))[1:17]
        packet = self.expect(bytes((0xAC, code)), 20)
        checksum = struct.pack("<I", zlib.crc32(packet[:18]))
        if packet[18:] != checksum:
            raise self.failed(f"{spelled(packet[:18] + checksum)} (CRC32)", spelled(packet))
        return packet[2:18]

    def delivered(self, rheos: Rheos, name: str, payload: bytes) -> bytes:
        """Expect a delivery of this message; return the client id that it carries."""
        if rheos.version == 1:
            head = b"\x15" + struct.pack("<I", len(payload))
            return self.expect(head, 16, payload)[5:21]
        body = rheos.body(name.encode(), payload)
        head = b"\xfa" + struct.pack("<I", len(body))
        packet = self.expect(head, 16, bytes((PUBLISH,)) + body, 4)
        checksum = struct.pack("<I", zlib.crc32(packet[:-4]))
        if packet[-4:] != checksum:
            raise self.failed(f"{spelled(packet[:-4] + checksum)} (CRC32)", spelled(packet))
        return packet[5:21]

    def ask(
        self, rheos: Rheos, operation: int, name: str | bytes, payload: bytes = b"", code: int = 0
    ) -> bytes:
        """Make a request and expect its acknowledgment; return the message id."""
        return self.send(rheos.request(operation, name, payload)).acknowledged(rheos, code)

    def alive(self, rheos: Rheos, stage: Stage) -> None:
        """Expect that requests are still answered."""
        self.ask(rheos, CREATE, stage.name("alive"))


def let_in(stage: Stage, rheos: Rheos) -> None:
    """Have a client let in; raise Skipped if its first request fails and the server then closes."""
    peer = stage.open(RheosPeer)
    try:
        peer.ask(rheos, CREATE, stage.name())
    except Failed:
        peer = stage.open(RheosPeer)
        peer.ask(rheos, CREATE, stage.name(), code=FAILED)
        peer.send(rheos.request(CREATE, stage.name()))
        if peer.is_closed():
            refusal = "the server refuses the client: FAILED, then the end of the connection"
            raise Skipped(refusal) from None


RHEOS: Final[Book[[Rheos]]] = Book()


def created(stage: Stage, rheos: Rheos, name: str) -> RheosPeer:
    """Return a connection that made a topic."""
    peer = stage.open(RheosPeer)
    peer.ask(rheos, CREATE, name)
    return peer


def subscribed(stage: Stage, rheos: Rheos, name: str) -> RheosPeer:
    """Return a connection that subscribed to a topic."""
    peer = stage.open(RheosPeer)
    peer.ask(rheos, SUBSCRIBE, name)
    return peer


# Sections of v1 and v2
ACKNOWLEDGMENT: Final = "2. Acknowledgment Packet | Acknowledgement Packet"
REQUEST: Final = "1. Request Packet | Rheos Event Packet"
DELIVERY: Final = "3. Response Packet | Rheos Event Packet"
TOPIC: Final = "4. Topic Encoding | Body Layout"
OPERATIONS: Final = "1. Operation Codes | Operation Codes"
TOPIC_ERRORS: Final = "4. Topic Encoding, Errors | Error Codes"
NOTES: Final = "6. General Notes | Decoding Process"


def versioned(rheos: Rheos) -> tuple[Case, ...]:
    """Return the cases that both versions have, for one of them."""
    return tuple(
        dataclasses.replace(case, section=case.section.split(" | ")[rheos.version - 1])
        for case in RHEOS.cases(rheos)
    )


@RHEOS.case(ACKNOWLEDGMENT, "CREATE is acknowledged with SUCCESS")
def create_is_acknowledged(stage: Stage, rheos: Rheos) -> None:
    created(stage, rheos, stage.name())


@RHEOS.case(ACKNOWLEDGMENT, "SUBSCRIBE to a topic that exists is acknowledged with SUCCESS")
def subscribe_is_acknowledged(stage: Stage, rheos: Rheos) -> None:
    created(stage, rheos, stage.name()).ask(rheos, SUBSCRIBE, stage.name())


@RHEOS.case(ACKNOWLEDGMENT, "PUBLISH to a topic that exists is acknowledged with SUCCESS")
def publish_is_acknowledged(stage: Stage, rheos: Rheos) -> None:
    created(stage, rheos, stage.name()).ask(rheos, PUBLISH, stage.name(), b"x")


@RHEOS.case(ACKNOWLEDGMENT, "Each of many requests in one write is acknowledged once")
def requests_in_one_write_are_all_acknowledged(stage: Stage, rheos: Rheos) -> None:
    peer = created(stage, rheos, stage.name())
    peer.send(rheos.request(PUBLISH, stage.name(), b"x") * 20)
    for _ in range(20):
        peer.acknowledged(rheos)
    peer.expect_silence("no acknowledgment more")


@RHEOS.case(REQUEST, "A packet may arrive byte by byte")
def a_request_arrives_byte_by_byte(stage: Stage, rheos: Rheos) -> None:
    peer = stage.open(RheosPeer)
    peer.send_each(rheos.request(CREATE, stage.name()))
    peer.acknowledged(rheos)


@RHEOS.case(REQUEST, "Two packets that share a write, the second one cut, are both answered")
def a_cut_request_is_waited_for(stage: Stage, rheos: Rheos) -> None:
    peer = created(stage, rheos, stage.name())
    publish = rheos.request(PUBLISH, stage.name(), b"whole")
    peer.send(publish + publish[:30])
    peer.acknowledged(rheos)
    peer.send(publish[30:])
    peer.acknowledged(rheos)


@RHEOS.case(DELIVERY, "A subscriber receives what is published, with the payload unchanged")
def a_message_is_delivered(stage: Stage, rheos: Rheos) -> None:
    sender = created(stage, rheos, stage.name())
    receiver = subscribed(stage, rheos, stage.name())
    sender.ask(rheos, PUBLISH, stage.name(), b"21.5")
    receiver.delivered(rheos, stage.name(), b"21.5")


@RHEOS.case(DELIVERY, "An empty payload is delivered")
def an_empty_payload_is_delivered(stage: Stage, rheos: Rheos) -> None:
    sender = created(stage, rheos, stage.name())
    receiver = subscribed(stage, rheos, stage.name())
    sender.ask(rheos, PUBLISH, stage.name())
    receiver.delivered(rheos, stage.name(), b"")


@RHEOS.case(DELIVERY, "A payload may hold any bytes")
def any_bytes_are_delivered(stage: Stage, rheos: Rheos) -> None:
    sender = created(stage, rheos, stage.name())
    receiver = subscribed(stage, rheos, stage.name())
    payload = ALL_BYTES + b"\xfa\xac\x15" * 20
    sender.ask(rheos, PUBLISH, stage.name(), payload)
    receiver.delivered(rheos, stage.name(), payload)


@RHEOS.case(TOPIC, "A payload of 65,535 bytes is delivered")
def a_payload_of_64_kib_is_delivered(stage: Stage, rheos: Rheos) -> None:
    sender = created(stage, rheos, stage.name())
    receiver = subscribed(stage, rheos, stage.name())
    payload = (ALL_BYTES * 256)[:65_535]
    sender.ask(rheos, PUBLISH, stage.name(), payload)
    receiver.delivered(rheos, stage.name(), payload)


@RHEOS.case(TOPIC, "Two subscribers of a topic both receive a message")
def all_subscribers_receive(stage: Stage, rheos: Rheos) -> None:
    sender = created(stage, rheos, stage.name())
    receivers = [subscribed(stage, rheos, stage.name()) for _ in range(2)]
    sender.ask(rheos, PUBLISH, stage.name(), b"both")
    for receiver in receivers:
        receiver.delivered(rheos, stage.name(), b"both")


@RHEOS.case(TOPIC, "A subscriber receives nothing of other topics")
def other_topics_are_not_delivered(stage: Stage, rheos: Rheos) -> None:
    sender = created(stage, rheos, stage.name("mine"))
    sender.ask(rheos, CREATE, stage.name("other"))
    receiver = subscribed(stage, rheos, stage.name("mine"))
    sender.ask(rheos, PUBLISH, stage.name("other"), b"not this")
    sender.ask(rheos, PUBLISH, stage.name("mine"), b"this")
    receiver.delivered(rheos, stage.name("mine"), b"this")


@RHEOS.case(TOPIC, "Messages of one publisher arrive in their order")
def order_is_kept(stage: Stage, rheos: Rheos) -> None:
    sender = created(stage, rheos, stage.name())
    receiver = subscribed(stage, rheos, stage.name())
    numbers = [struct.pack("<I", number) for number in range(50)]
    sender.send(b"".join(rheos.request(PUBLISH, stage.name(), number) for number in numbers))
    for number in numbers:
        receiver.delivered(rheos, stage.name(), number)


@RHEOS.case(TOPIC_ERRORS, "CREATE of a topic that exists fails", profile=True)
def create_twice_fails(stage: Stage, rheos: Rheos) -> None:
    created(stage, rheos, stage.name()).ask(rheos, CREATE, stage.name(), code=FAILED)


@RHEOS.case(TOPIC_ERRORS, "SUBSCRIBE to a topic that does not exist fails", profile=True)
def subscribe_to_nothing_fails(stage: Stage, rheos: Rheos) -> None:
    peer = created(stage, rheos, stage.name())
    peer.ask(rheos, SUBSCRIBE, stage.name("missing"), code=FAILED)


@RHEOS.case(TOPIC_ERRORS, "PUBLISH to a topic that does not exist fails", profile=True)
def publish_to_nothing_fails(stage: Stage, rheos: Rheos) -> None:
    peer = created(stage, rheos, stage.name())
    peer.ask(rheos, PUBLISH, stage.name("missing"), b"x", FAILED)


def sender_is_named(stage: Stage, rheos: Rheos) -> None:
    """Check that a delivery carries the client id of who published."""
    sender = created(stage, rheos, stage.name())
    receiver = subscribed(stage, rheos, stage.name())
    sender.send(rheos.request(PUBLISH, stage.name(), b"hello", client=BOB)).acknowledged(rheos)
    found = receiver.delivered(rheos, stage.name(), b"hello")
    if found != BOB:
        raise receiver.failed(f"client id {spelled(BOB)}", spelled(found))


def refused(peer: RheosPeer, rheos: Rheos, data: bytes) -> None:
    """Send wrong bytes, and expect FAILED or the end: never SUCCESS, never silence."""
    peer.send(data)
    if not peer.is_closed():
        peer.acknowledged(rheos, FAILED)


@RHEOS.case(OPERATIONS, "Operation code 3 is refused")
def the_reserved_operation_is_refused(stage: Stage, rheos: Rheos) -> None:
    packet = rheos.request(INVALID_OPERATION, stage.name())
    refused(created(stage, rheos, stage.name()), rheos, packet)


@RHEOS.case(OPERATIONS, "Operation code 255 is refused")
def an_unknown_operation_is_refused(stage: Stage, rheos: Rheos) -> None:
    refused(created(stage, rheos, stage.name()), rheos, rheos.request(255, stage.name()))


@RHEOS.case(NOTES, "A packet whose first byte is not 0xFA is refused")
def a_wrong_magic_is_refused(stage: Stage, rheos: Rheos) -> None:
    packet = rheos.request(PUBLISH, stage.name(), b"x")
    refused(created(stage, rheos, stage.name()), rheos, b"\xfb" + packet[1:])


@RHEOS.case(NOTES, "A name that is longer than its packet is refused")
def a_name_beyond_the_body_is_refused(stage: Stage, rheos: Rheos) -> None:
    body = rheos.body(b"name", b"data")
    packet = rheos.packet(PUBLISH, b"\xff\x00" + body[2:])
    refused(created(stage, rheos, stage.name()), rheos, packet)


@RHEOS.case(NOTES, "A body with bytes behind its data is refused")
def a_body_with_bytes_left_over_is_refused(stage: Stage, rheos: Rheos) -> None:
    name = stage.name()
    packet = rheos.packet(PUBLISH, rheos.body(name.encode(), b"data") + b"more")
    refused(created(stage, rheos, name), rheos, packet)


@RHEOS.case(NOTES, "An empty body is refused")
def an_empty_body_is_refused(stage: Stage, rheos: Rheos) -> None:
    refused(created(stage, rheos, stage.name()), rheos, rheos.packet(PUBLISH, b""))


@RHEOS.case(NOTES, "A client that is cut off inside a packet does not disturb others")
def a_cut_client_disturbs_nobody(stage: Stage, rheos: Rheos) -> None:
    sender = created(stage, rheos, stage.name())
    receiver = subscribed(stage, rheos, stage.name())
    broken = subscribed(stage, rheos, stage.name())
    broken.send(rheos.request(PUBLISH, stage.name(), b"never whole")[:-3]).close()
    sender.ask(rheos, PUBLISH, stage.name(), b"goes on")
    receiver.delivered(rheos, stage.name(), b"goes on")


@RHEOS.case(NOTES, "A malformed packet of one client does not disturb others")
def a_malformed_packet_disturbs_nobody(stage: Stage, rheos: Rheos) -> None:
    sender = created(stage, rheos, stage.name())
    receiver = subscribed(stage, rheos, stage.name())
    refused(subscribed(stage, rheos, stage.name()), rheos, rheos.packet(PUBLISH, b"\xff"))
    sender.ask(rheos, PUBLISH, stage.name(), b"goes on")
    receiver.delivered(rheos, stage.name(), b"goes on")


# --- Penstock's profile ---------------------------------------------------------------------------


@RHEOS.case(ACKNOWLEDGMENT, "Accepted messages have message ids of their own", profile=True)
def message_ids_are_distinct(stage: Stage, rheos: Rheos) -> None:
    peer = created(stage, rheos, stage.name())
    found = {peer.ask(rheos, PUBLISH, stage.name(), b"x") for _ in range(10)}
    if len(found) < 10:
        raise peer.failed("10 message ids that differ", f"{len(found)} different ones")


@RHEOS.case(ACKNOWLEDGMENT, "A message id is a UUIDv8", profile=True)
def message_ids_are_uuids(stage: Stage, rheos: Rheos) -> None:
    peer = created(stage, rheos, stage.name())
    identifier = peer.ask(rheos, PUBLISH, stage.name(), b"x")
    if identifier[6] >> 4 != 8 or identifier[8] >> 6 != 2:
        raise peer.failed("version 8 and variant 2 in the message id", spelled(identifier))


@RHEOS.case(ACKNOWLEDGMENT, "Acknowledgments come in the order of the requests", profile=True)
def acknowledgments_keep_their_order(stage: Stage, rheos: Rheos) -> None:
    peer = created(stage, rheos, stage.name())
    good, bad = (rheos.request(PUBLISH, stage.name(name), b"x") for name in ("t", "missing"))
    peer.send(good + bad + good)
    for code in (SUCCESS, FAILED, SUCCESS):
        peer.acknowledged(rheos, code)


@RHEOS.case(NOTES, "After a request that fails the connection goes on", profile=True)
def a_failure_does_not_close(stage: Stage, rheos: Rheos) -> None:
    peer = created(stage, rheos, stage.name())
    peer.ask(rheos, SUBSCRIBE, stage.name("missing"), code=FAILED)
    peer.send(rheos.request(255, stage.name())).acknowledged(rheos, FAILED)
    peer.alive(rheos, stage)


@RHEOS.case(TOPIC, "A publisher that subscribed receives its own message", profile=True)
def a_publisher_hears_itself(stage: Stage, rheos: Rheos) -> None:
    peer = created(stage, rheos, stage.name())
    peer.ask(rheos, SUBSCRIBE, stage.name())
    peer.send(rheos.request(PUBLISH, stage.name(), b"echo"))
    if peer.take(1, "an acknowledgment or a delivery") == b"\xac":
        peer.take(17 if rheos.version == 1 else 21, "an acknowledgment")
        peer.delivered(rheos, stage.name(), b"echo")


@RHEOS.case(TOPIC, "The name of a topic may hold bytes that are not UTF-8", profile=True)
def a_name_may_be_binary(stage: Stage, rheos: Rheos) -> None:
    name = stage.name().encode() + b"\xff\xfe"
    peer = created(stage, rheos, stage.name())
    peer.ask(rheos, CREATE, name)
    receiver = stage.open(RheosPeer)
    receiver.ask(rheos, SUBSCRIBE, name)
    peer.ask(rheos, PUBLISH, name, b"binary")
    if rheos.version == 1:
        receiver.delivered(rheos, "", b"binary")
    else:
        receiver.expect(rheos.request(PUBLISH, name, b"binary"))
