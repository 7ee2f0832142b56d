"""Rheos v1 to the byte: what a client sends and gets, spelled out from the specification."""

from collections.abc import Iterator

import pytest

from penstock.storage.memory import MemoryLog
from tests.support.live import LiveBroker, Peer
from tests.support.rheos_bytes import BOB, CREATE, PUBLISH, RHEOS1, SUBSCRIBE, Client

ID = "00112233445566778899aabbccddeeff"
LOG = "0190a3b4c5d6 8003"  # log id, version 8, partition 3
NO_MESSAGE = LOG + "bfffffffffffffff"

CREATE_IT = bytes.fromhex("fa 0e000000" + ID + "00  0a00 706c616e742f74656d70  0000")
FOLLOW_IT = bytes.fromhex("fa 0e000000" + ID + "01  0a00 706c616e742f74656d70  0000")
FEED_IT = bytes.fromhex("fa 12000000" + ID + "02  0a00 706c616e742f74656d70  0400 32312e35")
GRANTED = bytes.fromhex("ac" + NO_MESSAGE + "00")
REFUSED = bytes.fromhex("ac" + NO_MESSAGE + "01")
FIRST = bytes.fromhex("ac" + LOG + "8000000000000000" + "00")
SECOND = bytes.fromhex("ac" + LOG + "8000000000000001" + "00")
DELIVERY = bytes.fromhex("15 04000000" + ID + "32312e35")


@pytest.fixture
def fresh() -> Iterator[LiveBroker]:
    with LiveBroker(writer=MemoryLog(log_id=0x0190A3B4C5D6, partition=3)) as live:
        yield live


def test_01_a_session(fresh: LiveBroker) -> None:
    with Peer(fresh.address) as peer:
        peer.send(FOLLOW_IT)
        peer.expect(REFUSED)
        peer.send(FEED_IT)
        peer.expect(REFUSED)
        peer.send(CREATE_IT)
        peer.expect(GRANTED)
        peer.send(CREATE_IT)
        peer.expect(REFUSED)
        peer.send(FEED_IT)
        peer.expect(FIRST)
        peer.send(FOLLOW_IT)
        peer.expect(GRANTED)
        peer.send(FEED_IT)
        peer.expect(DELIVERY + SECOND)


def test_02_requests_in_one_send(fresh: LiveBroker) -> None:
    with Peer(fresh.address) as peer:
        peer.send(CREATE_IT + FEED_IT + CREATE_IT + FOLLOW_IT + FEED_IT)
        peer.expect(GRANTED + FIRST + REFUSED + GRANTED + DELIVERY + SECOND)


def test_03_an_invalid_operation_and_a_corrupted_topic(fresh: LiveBroker) -> None:
    with Peer(fresh.address) as peer:
        peer.send(CREATE_IT)
        peer.expect(GRANTED)
        peer.send(bytes.fromhex("fa 02000000" + ID + "03 ffff"))
        peer.expect(REFUSED)
        peer.send(bytes.fromhex("fa 04000000" + ID + "02 0100 6100"))
        peer.expect(REFUSED)
        peer.send(b"\x00")
        peer.expect(REFUSED)
        peer.expect_close()


def test_04_the_largest_request(fresh: LiveBroker) -> None:
    name, payload = b"n" * 65_526, b"\xfa" * 65_535
    with Client(fresh, RHEOS1) as client, Client(fresh, RHEOS1, identity=BOB) as other:
        other.must(CREATE, name, payload)
        client.must(SUBSCRIBE, name, payload)
        other.must(PUBLISH, name, payload)
        client.expect(bytes.fromhex("15 ffff0000") + BOB + payload)
        whole = RHEOS1.request(CREATE, b"m" * 65_535, payload)
        assert len(whole) == 22 + 131_074
        client.send(whole)
        client.expect_failed()
        client.expect_alive()


def test_05_a_length_one_above_the_largest(fresh: LiveBroker) -> None:
    with Peer(fresh.address) as peer:
        peer.send(CREATE_IT)
        peer.expect(GRANTED)
        peer.send(bytes.fromhex("fa 03000200"))  # 131,075
        peer.expect(REFUSED)
        peer.expect_close()


def test_06_a_message_without_a_payload(fresh: LiveBroker) -> None:
    with Peer(fresh.address) as peer:
        peer.send(bytes.fromhex("fa 05000000" + ID + "00 0100 61 0000"))
        peer.expect(GRANTED)
        peer.send(bytes.fromhex("fa 05000000" + ID + "01 0100 61 0000"))
        peer.expect(GRANTED)
        peer.send(bytes.fromhex("fa 05000000" + ID + "02 0100 61 0000"))
        peer.expect(bytes.fromhex("15 00000000" + ID) + FIRST)
