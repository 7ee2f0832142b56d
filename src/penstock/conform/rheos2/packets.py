"""Rheos v2 cases: packets to the byte, and checksums."""

import struct
from typing import Final

from penstock.conform.case import CaseCollector, Setup
from penstock.conform.context import CaseContext
from penstock.conform.peer import Peer
from penstock.conform.rheos.encoding import ALICE, BOB, CREATE, PUBLISH, RHEOS2, SUBSCRIBE
from penstock.conform.rheos.packets import expect_refusal, sender_is_named
from penstock.conform.rheos.peer import client, created, subscribed

__all__ = ["cases"]

cases: Final[CaseCollector[[]]] = CaseCollector()


def crc32(data: bytes) -> int:
    """Return the CRC32, computed bit by bit from the polynomial, without a library."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0xEDB88320 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def sealed(text: str) -> bytes:
    """Return a packet given in hex with its checksum."""
    packet = bytes.fromhex(text)
    return packet + crc32(packet).to_bytes(4, "little")


# Packets in hex, as the specification describes them; the topic is plant/temp.
ID: Final = "00112233445566778899aabbccddeeff"
LOG: Final = "0190a3b4c5d6 8003"  # log id, version 8, partition 3
NAME: Final = "706c616e742f74656d70"
CREATE_TOPIC: Final = bytes.fromhex("fa 10000000" + ID + "00 0a00 00000000" + NAME + "2d678f17")
SUBSCRIBE_TOPIC: Final = sealed("fa 10000000" + ID + "01 0a00 00000000" + NAME)
PUBLISH_TEXT: Final = bytes.fromhex(
    "fa 14000000" + ID + "02 0a00 04000000" + NAME + "32312e35 e69ea3da"
)
SUCCESS_ACK: Final = sealed("ac 00" + LOG + "bfffffffffffffff")
FAILED_ACK: Final = bytes.fromhex("ac 01" + LOG + "bfffffffffffffff" + "3bb7a663")
FIRST_ACK: Final = sealed("ac 00" + LOG + "8000000000000000")
SECOND_ACK: Final = sealed("ac 00" + LOG + "8000000000000001")


@cases.rule("Acknowledgement Packet", "An acknowledgement has 22 bytes and nothing behind it")
def an_acknowledgement_has_22_bytes(context: CaseContext) -> None:
    peer = client(context, RHEOS2)
    peer.send(RHEOS2.request(CREATE, context.topic()))
    peer.expect(b"\xac\x00", 16, 4)
    peer.expect_silence("22 bytes and nothing more")


@cases.rule("Checksum", "A packet whose CRC32 does not match is refused")
def a_wrong_checksum_is_refused(context: CaseContext) -> None:
    packet = RHEOS2.request(PUBLISH, context.topic(), b"x")
    wrong = packet[:-4] + bytes(byte ^ 0xFF for byte in packet[-4:])
    expect_refusal(created(context, RHEOS2, context.topic()), wrong)


@cases.rule("Checksum", "A packet with one bit flipped is not delivered")
def a_flipped_bit_is_not_delivered(context: CaseContext) -> None:
    sender = created(context, RHEOS2, context.topic())
    receiver = subscribed(context, RHEOS2, context.topic())
    packet = bytearray(RHEOS2.request(PUBLISH, context.topic(), b"21.5"))
    packet[-6] ^= 1
    expect_refusal(sender, bytes(packet))
    receiver.expect_silence("nothing: the packet is corrupted")


@cases.profile("Checksum", "A packet that fails its checksum closes the connection")
def a_wrong_checksum_closes(context: CaseContext) -> None:
    peer = created(context, RHEOS2, context.topic())
    peer.send(RHEOS2.request(PUBLISH, context.topic(), b"x")[:-4] + bytes(4))
    peer.expect_failed()
    peer.expect_close()


@cases.rule("Body Layout", "Data of 100,000 bytes, more than 16 bits count, is delivered")
def data_above_64_kib_is_delivered(context: CaseContext) -> None:
    sender = created(context, RHEOS2, context.topic())
    receiver = subscribed(context, RHEOS2, context.topic())
    data = struct.pack("<I", 7) * 25_000
    sender.granted(PUBLISH, context.topic(), data)
    receiver.delivered(context.topic(), data)


@cases.profile("Rheos Event Packet", "A delivery carries the client id of its publisher")
def a_delivery_names_its_sender(context: CaseContext) -> None:
    sender_is_named(context, RHEOS2)


@cases.rule("Decoding Process", "Data that is longer than its packet is refused")
def data_beyond_the_body_is_refused(context: CaseContext) -> None:
    name = context.topic()
    body = struct.pack("<HI", len(name), 9) + name + b"short"
    expect_refusal(created(context, RHEOS2, name), RHEOS2.packet(PUBLISH, body))


# --- To the byte ----------------------------------------------------------------------------------


@cases.profile("Example Flow", "A session is answered with these bytes", requires=Setup.LOG)
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
            (PUBLISH_TEXT, PUBLISH_TEXT + SECOND_ACK),  # a delivery is the packet as published
        )
    ):
        peer.send(sent).expect(expected)


@cases.profile(
    "Example Flow", "Requests in one write are answered with these bytes", requires=Setup.LOG
)
def requests_in_one_write_to_the_byte(context: CaseContext) -> None:
    peer = context.open(Peer)
    peer.send(CREATE_TOPIC + PUBLISH_TEXT + CREATE_TOPIC + SUBSCRIBE_TOPIC + PUBLISH_TEXT)
    peer.expect(SUCCESS_ACK + FIRST_ACK + FAILED_ACK + SUCCESS_ACK + PUBLISH_TEXT + SECOND_ACK)


@cases.profile("Checksum", "A packet with any one bit flipped fails and closes")
def a_flipped_bit_closes(context: CaseContext) -> None:
    for bit in context.each(bit for bit in range(0, 8 * len(PUBLISH_TEXT), 5) if bit // 8 != 3):
        damaged = bytearray(PUBLISH_TEXT)
        damaged[bit // 8] ^= 1 << bit % 8
        length = int.from_bytes(damaged[1:5], "little")
        if length < 65_536:  # a longer body is waited for, unless it is above the limit
            damaged += bytes(max(length - 20, 0))
        peer = client(context, RHEOS2)
        peer.expect_alive()
        peer.send(bytes(damaged)).expect_failed()
        peer.expect_close()


@cases.profile("Checksum", "Nothing behind a wrong checksum is taken", requires=Setup.LOG)
def nothing_behind_a_wrong_checksum_is_taken(context: CaseContext) -> None:
    peer = context.open(Peer)
    peer.send(CREATE_TOPIC + PUBLISH_TEXT + PUBLISH_TEXT[:-1] + b"\x00" + PUBLISH_TEXT)
    peer.expect(SUCCESS_ACK + FIRST_ACK + FAILED_ACK)
    peer.expect_close()
    context.open(Peer).send(PUBLISH_TEXT).expect(SECOND_ACK)


@cases.profile(
    "Checksum", "A wrong checksum in the first packet fails and closes", requires=Setup.LOG
)
def a_wrong_checksum_in_the_first_packet_closes(context: CaseContext) -> None:
    peer = context.open(Peer).send(CREATE_TOPIC[:-1] + b"\x00")
    peer.expect(FAILED_ACK)
    peer.expect_close()


@cases.profile(
    "Decoding Process", "The checksum is checked before the operation", requires=Setup.LOG
)
def the_checksum_is_checked_before_the_operation(context: CaseContext) -> None:
    peer = context.open(Peer)
    peer.send(CREATE_TOPIC).expect(SUCCESS_ACK)
    peer.send(sealed("fa 10000000" + ID + "03 0a00 00000000" + NAME) + PUBLISH_TEXT)
    peer.expect(FAILED_ACK + FIRST_ACK)
    peer.send(bytes.fromhex("fa 10000000" + ID + "03 0a00 00000000" + NAME + "00000000"))
    peer.expect(FAILED_ACK)
    peer.expect_close()


@cases.profile("Decoding Process", "A body below six bytes fails and the connection goes on")
def a_body_below_six_bytes_does_not_close(context: CaseContext) -> None:
    topic = context.topic()
    peer = created(context, RHEOS2, topic)
    for size in context.each(range(6)):
        short = sealed(f"fa {size:02x}000000" + ID + "02" + "00" * size)
        peer.send(short + RHEOS2.request(PUBLISH, topic, b"21.5")).expect_failed()
        peer.acknowledged()


@cases.profile("Body Layout", "Packets of up to 16 MiB are delivered unchanged")
def large_messages_are_delivered(context: CaseContext) -> None:
    topic = context.topic()
    other = created(context, RHEOS2, topic, identity=BOB)
    peer = subscribed(context, RHEOS2, topic)
    largest = 16 * 1024 * 1024 - 6 - len(topic)
    for size in context.each((65_536, 1024 * 1024, largest)):
        payload = (bytes(range(251)) * (size // 251 + 1))[:size]
        other.granted(PUBLISH, topic, payload)
        peer.expect(RHEOS2.request(PUBLISH, topic, payload, client=BOB))
        peer.expect_alive()


@cases.profile("Body Layout", "The first packet may be a message of 1 MiB")
def a_large_message_may_be_the_first_packet(context: CaseContext) -> None:
    peer = created(context, RHEOS2, context.topic())
    peer.granted(SUBSCRIBE, context.topic())
    other = client(context, RHEOS2, identity=BOB)
    other.granted(PUBLISH, context.topic(), bytes(1024 * 1024))
    peer.delivered(context.topic(), bytes(1024 * 1024), BOB)


@cases.profile("Body Layout", "A length of 16 MiB and one byte fails and closes")
def a_length_above_16_mib_closes(context: CaseContext) -> None:
    peer = created(context, RHEOS2, context.topic())
    peer.send(bytes.fromhex("fa 01000001")).expect_failed()
    peer.expect_close()


@cases.profile("Body Layout", "A delivery carries the name of the topic that a pattern matched")
def a_delivery_carries_the_name_of_its_topic(context: CaseContext) -> None:
    peer, other = client(context, RHEOS2), client(context, RHEOS2)
    peer.granted(SUBSCRIBE, context.topic(b"#"))
    for ending in context.each((b"temp", b"\xff\xfe")):
        other.granted(CREATE, context.topic(ending))
        other.granted(PUBLISH, context.topic(ending), b"1")
        peer.delivered(context.topic(ending), b"1", ALICE)
