"""Rheos v2 to the byte: what a client sends and gets, spelled out from the specification."""

from collections.abc import Iterator

import pytest

from penstock.storage.memory import MemoryLog
from tests.support.live import LiveBroker, Peer
from tests.support.rheos_bytes import ALICE, BOB, CREATE, PUBLISH, RHEOS2, SUBSCRIBE, Client

ID = "00112233445566778899aabbccddeeff"
LOG = "0190a3b4c5d6 8003"  # log id, version 8, partition 3
NAME = "706c616e742f74656d70"


def crc32(data: bytes) -> int:
    """Bit by bit from the polynomial, so that no library is believed."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0xEDB88320 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def sealed(text: str) -> bytes:
    packet = bytes.fromhex(text)
    return packet + crc32(packet).to_bytes(4, "little")


CREATE_IT = bytes.fromhex("fa 10000000" + ID + "00 0a00 00000000" + NAME + "2d678f17")
FOLLOW_IT = sealed("fa 10000000" + ID + "01 0a00 00000000" + NAME)
FEED_IT = bytes.fromhex("fa 14000000" + ID + "02 0a00 04000000" + NAME + "32312e35 e69ea3da")
GRANTED = sealed("ac 00" + LOG + "bfffffffffffffff")
REFUSED = bytes.fromhex("ac 01" + LOG + "bfffffffffffffff" + "3bb7a663")
FIRST = sealed("ac 00" + LOG + "8000000000000000")
SECOND = sealed("ac 00" + LOG + "8000000000000001")


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
        peer.expect(FEED_IT + SECOND)  # a delivery is the packet as it was published


def test_02_requests_in_one_send(fresh: LiveBroker) -> None:
    with Peer(fresh.address) as peer:
        peer.send(CREATE_IT + FEED_IT + CREATE_IT + FOLLOW_IT + FEED_IT)
        peer.expect(GRANTED + FIRST + REFUSED + GRANTED + FEED_IT + SECOND)


@pytest.mark.parametrize("bit", [bit for bit in range(0, 8 * len(FEED_IT), 5) if bit // 8 != 3])
def test_03_a_bit_turned_over_is_refused_and_the_end(broker: LiveBroker, bit: int) -> None:
    damaged = bytearray(FEED_IT)
    damaged[bit // 8] ^= 1 << bit % 8
    length = int.from_bytes(damaged[1:5], "little")
    if length < 65_536:  # a longer one is waited for, unless it is above the limit
        damaged += bytes(max(length - 20, 0))
    with Client(broker, RHEOS2) as client:
        client.expect_alive()
        client.send(bytes(damaged))
        client.expect_failed()
        client.expect_close()


def test_04_what_follows_a_wrong_checksum_is_not_taken(fresh: LiveBroker) -> None:
    damaged = FEED_IT[:-1] + b"\x00"
    with Peer(fresh.address) as peer:
        peer.send(CREATE_IT + FEED_IT + damaged + FEED_IT)
        peer.expect(GRANTED + FIRST + REFUSED)
        peer.expect_close()
    with Peer(fresh.address) as peer:
        peer.send(FEED_IT)
        peer.expect(SECOND)


def test_05_a_wrong_checksum_in_the_first_packet_is_refused_too(fresh: LiveBroker) -> None:
    with Peer(fresh.address) as peer:
        peer.send(CREATE_IT[:-1] + b"\x00")
        peer.expect(REFUSED)
        peer.expect_close()


def test_06_a_checksum_is_judged_before_the_operation(fresh: LiveBroker) -> None:
    with Peer(fresh.address) as peer:
        peer.send(CREATE_IT)
        peer.expect(GRANTED)
        peer.send(sealed("fa 10000000" + ID + "03 0a00 00000000" + NAME) + FEED_IT)
        peer.expect(REFUSED + FIRST)
        peer.send(bytes.fromhex("fa 10000000" + ID + "03 0a00 00000000" + NAME + "00000000"))
        peer.expect(REFUSED)
        peer.expect_close()


@pytest.mark.parametrize("size", range(6))
def test_07_a_body_below_six_bytes_is_refused_and_the_stream_goes_on(
    fresh: LiveBroker, size: int
) -> None:
    with Peer(fresh.address) as peer:
        peer.send(CREATE_IT)
        peer.expect(GRANTED)
        peer.send(sealed(f"fa {size:02x}000000" + ID + "02" + "00" * size) + FEED_IT)
        peer.expect(REFUSED + FIRST)


@pytest.mark.parametrize("size", [65_536, 1024 * 1024, 16 * 1024 * 1024 - 6 - 3])
def test_08_large_messages_arrive_whole(fresh: LiveBroker, size: int) -> None:
    payload = bytes(range(251)) * (size // 251 + 1)
    payload = payload[:size]
    with Client(fresh, RHEOS2) as client, Client(fresh, RHEOS2, identity=BOB) as other:
        other.must(CREATE, b"big")
        client.must(SUBSCRIBE, b"big")
        other.must(PUBLISH, b"big", payload)
        whole = RHEOS2.request(PUBLISH, b"big", payload, client=BOB)
        assert client.receive(len(whole)) == whole
        client.expect_alive()


def test_09_a_large_message_may_be_the_first_thing_that_is_sent(fresh: LiveBroker) -> None:
    with Client(fresh, RHEOS2) as client, Client(fresh, RHEOS2, identity=BOB) as other:
        client.must(CREATE, b"big")
        client.must(SUBSCRIBE, b"big")
        other.must(PUBLISH, b"big", bytes(1024 * 1024))
        assert client.delivery() == (BOB, b"big", bytes(1024 * 1024))


def test_10_a_length_one_above_the_limit(fresh: LiveBroker) -> None:
    with Peer(fresh.address) as peer:
        peer.send(CREATE_IT)
        peer.expect(GRANTED)
        peer.send(bytes.fromhex("fa 01000001"))  # 16 MiB and one byte
        peer.expect(REFUSED)
        peer.expect_close()


def test_11_a_delivery_names_the_topic_that_a_pattern_matched(fresh: LiveBroker) -> None:
    with Client(fresh, RHEOS2) as client:
        client.must(SUBSCRIBE, b"plant/#")
        for name in (b"plant/temp", b"plant/\xff\xfe"):
            client.must(CREATE, name)
            client.request(PUBLISH, name, b"1")
            _, (message,) = client.sort(acks=1, deliveries=1)
            assert message == (ALICE, name, b"1")
