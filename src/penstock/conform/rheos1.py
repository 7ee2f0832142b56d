"""Conformance cases of Rheos v1."""

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
    versioned,
)
from penstock.conform.stage import Stage

__all__ = ["CASES", "enter"]

RHEOS1: Final = Rheos(1)
_OWN: Final[Book[[]]] = Book()


def enter(stage: Stage) -> None:
    """Have a client let in; raise Skipped if it is refused."""
    let_in(stage, RHEOS1)


@_OWN.case("2. Acknowledgment Packet", "An acknowledgment has 18 bytes and nothing behind it")
def an_acknowledgment_has_18_bytes(stage: Stage) -> None:
    peer = stage.open(RheosPeer)
    peer.send(RHEOS1.request(CREATE, stage.name()))
    peer.expect(b"\xac", 16, b"\x00")
    peer.expect_silence("18 bytes and nothing more")


@_OWN.case("3. Response Packet", "A response carries the client id of who published")
def a_response_names_its_sender(stage: Stage) -> None:
    sender_is_named(stage, RHEOS1)


@_OWN.case("6. General Notes", "A payload that is longer than its packet is refused")
def a_payload_beyond_the_body_is_refused(stage: Stage) -> None:
    name = stage.name().encode()
    body = struct.pack("<H", len(name)) + name + struct.pack("<H", 9) + b"short"
    refused(created(stage, RHEOS1, stage.name()), RHEOS1, RHEOS1.packet(PUBLISH, body))


CASES: Final[tuple[Case, ...]] = (*versioned(RHEOS1), *_OWN.cases())
"""In the order in which they are run."""
