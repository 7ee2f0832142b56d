"""Rheos v1 cases: packets to the byte."""

import struct
from typing import Final

from penstock.conform.case import CaseCollector, Setup
from penstock.conform.context import CaseContext
from penstock.conform.peer import Peer, equal
from penstock.conform.rheos.encoding import BOB, CREATE, PUBLISH, RHEOS1, RHEOS2, SUBSCRIBE
from penstock.conform.rheos.packets import expect_refusal, sender_is_named
from penstock.conform.rheos.peer import client, created

__all__ = ["cases"]

# Packets in hex, as the specification describes them; the topic is plant/temp.
ID: Final = "00112233445566778899aabbccddeeff"
LOG: Final = "0190a3b4c5d6 8003"  # log id, version 8, partition 3
NO_MESSAGE: Final = LOG + "bfffffffffffffff"
CREATE_TOPIC: Final = bytes.fromhex("fa 0e000000" + ID + "00  0a00 706c616e742f74656d70  0000")
SUBSCRIBE_TOPIC: Final = bytes.fromhex("fa 0e000000" + ID + "01  0a00 706c616e742f74656d70  0000")
PUBLISH_TEXT: Final = bytes.fromhex(
    "fa 12000000" + ID + "02  0a00 706c616e742f74656d70  0400 32312e35"
)
SUCCESS_ACK: Final = bytes.fromhex("ac" + NO_MESSAGE + "00")
FAILED_ACK: Final = bytes.fromhex("ac" + NO_MESSAGE + "01")
FIRST_ACK: Final = bytes.fromhex("ac" + LOG + "8000000000000000" + "00")
SECOND_ACK: Final = bytes.fromhex("ac" + LOG + "8000000000000001" + "00")
DELIVERY: Final = bytes.fromhex("15 04000000" + ID + "32312e35")

cases: Final[CaseCollector[[]]] = CaseCollector()


@cases.rule("2. Acknowledgment Packet", "An acknowledgment has 18 bytes and nothing behind it")
def an_acknowledgment_has_18_bytes(context: CaseContext) -> None:
    peer = client(context, RHEOS1)
    peer.send(RHEOS1.request(CREATE, context.topic()))
    peer.expect(b"\xac", 16, b"\x00")
    peer.expect_silence("18 bytes and nothing more")


@cases.rule("3. Response Packet", "A response carries the client id of its publisher")
def a_response_names_its_sender(context: CaseContext) -> None:
    sender_is_named(context, RHEOS1)


@cases.rule("6. General Notes", "A payload that is longer than its packet is refused")
def a_payload_beyond_the_body_is_refused(context: CaseContext) -> None:
    name = context.topic()
    body = struct.pack("<H", len(name)) + name + struct.pack("<H", 9) + b"short"
    expect_refusal(created(context, RHEOS1, name), RHEOS1.packet(PUBLISH, body))


@cases.profile("8. Compatibility", "A session is answered with these bytes", requires=Setup.LOG)
def a_session_to_the_byte(context: CaseContext) -> None:
    peer = context.open(Peer)
    for sent, expected in context.each(
        (
            (SUBSCRIBE_TOPIC, FAILED_ACK),
            (PUBLISH_TEXT, FAILED_ACK),
            (CREATE_TOPIC, SUCCESS_ACK),
            (CREATE_TOPIC, FAILED_ACK),
            (PUBLISH_TEXT, FIRST_ACK),
            (SUBSCRIBE_TOPIC, SUCCESS_ACK),
            (PUBLISH_TEXT, DELIVERY + SECOND_ACK),
        )
    ):
        peer.send(sent).expect(expected)


@cases.profile(
    "8. Compatibility", "Requests in one write are answered with these bytes", requires=Setup.LOG
)
def requests_in_one_write_to_the_byte(context: CaseContext) -> None:
    peer = context.open(Peer)
    peer.send(CREATE_TOPIC + PUBLISH_TEXT + CREATE_TOPIC + SUBSCRIBE_TOPIC + PUBLISH_TEXT)
    peer.expect(SUCCESS_ACK + FIRST_ACK + FAILED_ACK + SUCCESS_ACK + DELIVERY + SECOND_ACK)


@cases.profile(
    "1. Request Packet, Errors",
    "An invalid operation and a wrong topic fail; a wrong magic closes",
    requires=Setup.LOG,
)
def wrong_packets_to_the_byte(context: CaseContext) -> None:
    peer = context.open(Peer)
    peer.send(CREATE_TOPIC).expect(SUCCESS_ACK)
    peer.send(bytes.fromhex("fa 02000000" + ID + "03 ffff")).expect(FAILED_ACK)
    peer.send(bytes.fromhex("fa 04000000" + ID + "02 0100 6100")).expect(FAILED_ACK)
    peer.send(b"\x00").expect(FAILED_ACK)
    peer.expect_close()


@cases.profile("4. Topic Encoding", "The largest request is taken", requires=Setup.LOG)
def the_largest_request_is_taken(context: CaseContext) -> None:
    name, payload = b"n" * 65_535, b"\xfa" * 65_535
    equal(len(RHEOS1.request(CREATE, name, payload)), 22 + 131_074, "size")
    peer, other = client(context, RHEOS1), client(context, RHEOS1, identity=BOB)
    other.granted(CREATE, name, payload)
    peer.granted(SUBSCRIBE, name, payload)
    other.granted(PUBLISH, name, payload)
    peer.expect(bytes.fromhex("15 ffff0000") + BOB + payload)
    peer.expect_alive()


@cases.profile(
    "1. Request Packet, Errors", "A length of 131,075 bytes fails and closes", requires=Setup.LOG
)
def a_length_above_the_largest_request_closes(context: CaseContext) -> None:
    peer = context.open(Peer)
    peer.send(CREATE_TOPIC).expect(SUCCESS_ACK)
    peer.send(bytes.fromhex("fa 03000200")).expect(FAILED_ACK)
    peer.expect_close()


@cases.profile(
    "3. Response Packet", "A message without a payload has these bytes", requires=Setup.LOG
)
def an_empty_message_to_the_byte(context: CaseContext) -> None:
    peer = context.open(Peer)
    for opcode in ("00", "01"):
        peer.send(bytes.fromhex("fa 05000000" + ID + opcode + "0100 61 0000")).expect(SUCCESS_ACK)
    peer.send(bytes.fromhex("fa 05000000" + ID + "02 0100 61 0000"))
    peer.expect(bytes.fromhex("15 00000000" + ID) + FIRST_ACK)


@cases.profile(
    "Overview",
    "A first packet that fits v2 too is v1 when nothing follows in time",
    requires=Setup.SHORT_HANDSHAKE,
)
def an_ambiguous_packet_is_v1_when_time_is_up(context: CaseContext) -> None:
    peer = client(context, RHEOS1)
    name = struct.pack("<I", 1) + context.topic()  # read as v2: 1 byte of data
    peer.granted(CREATE, name, b"abc")
    peer.granted(PUBLISH, name, b"1")


@cases.profile(
    "6. General Notes",
    "A first body of 4 or 5 bytes, which v2 cannot have, fails as v1",
    requires=Setup.SHARED,
)
def a_first_body_that_only_v1_can_have_is_answered(context: CaseContext) -> None:
    for size in context.each((4, 5)):
        peer = client(context, RHEOS1).send(RHEOS1.packet(CREATE, b"\xff" * size))
        peer.expect_failed()
        peer.expect_alive()


@cases.profile("Overview", "A port that serves v1 alone does not serve v2", requires=Setup.PINNED)
def a_pinned_port_serves_no_other_version(context: CaseContext) -> None:
    peer = client(context, RHEOS1)
    peer.send(RHEOS2.request(CREATE, b"abc", b"data"))
    peer.expect_failed()
    peer.expect_failed()
    peer.expect_close()
