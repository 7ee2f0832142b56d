"""Conformance cases of Rheos v2."""

import struct
from typing import Final

from penstock.conform.case import Book, Case
from penstock.conform.rheos import (
    CREATE,
    PUBLISH,
    Rheos,
    RheosPeer,
    created,
    let_in,
    refused,
    sender_is_named,
    subscribed,
    versioned,
)
from penstock.conform.stage import Stage

__all__ = ["CASES", "enter"]

RHEOS2: Final = Rheos(2)
_OWN: Final[Book[[]]] = Book()


def enter(stage: Stage) -> None:
    """Have a client let in; raise Skipped if it is refused."""
    let_in(stage, RHEOS2)


@_OWN.case("Acknowledgement Packet", "An acknowledgement has 22 bytes and nothing behind it")
def an_acknowledgement_has_22_bytes(stage: Stage) -> None:
    peer = stage.open(RheosPeer)
    peer.send(RHEOS2.request(CREATE, stage.name()))
    peer.expect(b"\xac\x00", 16, 4)
    peer.expect_silence("22 bytes and nothing more")


@_OWN.case("Checksum", "A packet whose CRC32 does not match is refused")
def a_wrong_checksum_is_refused(stage: Stage) -> None:
    packet = RHEOS2.request(PUBLISH, stage.name(), b"x")
    wrong = packet[:-4] + bytes(byte ^ 0xFF for byte in packet[-4:])
    refused(created(stage, RHEOS2, stage.name()), RHEOS2, wrong)


@_OWN.case("Checksum", "A packet with one bit flipped is not delivered")
def a_flipped_bit_is_not_delivered(stage: Stage) -> None:
    sender = created(stage, RHEOS2, stage.name())
    receiver = subscribed(stage, RHEOS2, stage.name())
    packet = bytearray(RHEOS2.request(PUBLISH, stage.name(), b"21.5"))
    packet[-6] ^= 1
    refused(sender, RHEOS2, bytes(packet))
    receiver.expect_silence("nothing: the packet is corrupted")


@_OWN.case("Checksum", "A packet that fails its checksum ends the connection", profile=True)
def a_wrong_checksum_closes(stage: Stage) -> None:
    peer = created(stage, RHEOS2, stage.name())
    peer.send(RHEOS2.request(PUBLISH, stage.name(), b"x")[:-4] + bytes(4))
    peer.acknowledged(RHEOS2, 1)
    peer.expect_close()


@_OWN.case("Body Layout", "Data of 100,000 bytes, more than 16 bits count, is delivered")
def data_above_64_kib_is_delivered(stage: Stage) -> None:
    sender = created(stage, RHEOS2, stage.name())
    receiver = subscribed(stage, RHEOS2, stage.name())
    data = struct.pack("<I", 7) * 25_000
    sender.ask(RHEOS2, PUBLISH, stage.name(), data)
    receiver.delivered(RHEOS2, stage.name(), data)


@_OWN.case("Rheos Event Packet", "A delivery carries the client id of who published", profile=True)
def a_delivery_names_its_sender(stage: Stage) -> None:
    sender_is_named(stage, RHEOS2)


@_OWN.case("Decoding Process", "Data that is longer than its packet is refused")
def data_beyond_the_body_is_refused(stage: Stage) -> None:
    name = stage.name().encode()
    body = struct.pack("<HI", len(name), 9) + name + b"short"
    refused(created(stage, RHEOS2, stage.name()), RHEOS2, RHEOS2.packet(PUBLISH, body))


CASES: Final[tuple[Case, ...]] = (*versioned(RHEOS2), *_OWN.cases())
"""In the order in which they are run."""
