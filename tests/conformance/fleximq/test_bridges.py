"""What fleximq and herald make of each other's payloads; herald's bytes by hand."""

import struct

import pytest

from penstock.conform.fleximq import encoding as fx
from tests.conformance.fleximq.client import Client
from tests.support.live import LiveBroker, Peer

CHANNEL = 7
TOPIC = "channel/7"


def herald_subscriber(broker: LiveBroker) -> Peer:
    peer = Peer(broker.address)
    peer.send(struct.pack(">2sBI", b"\xca\xfe", 0x02, 4) + bytes([1, CHANNEL, 1]) + b"s")
    assert peer.receive(16)[:8] == bytes.fromhex("CAFE 03 00000009 00")
    return peer


def herald_publisher(broker: LiveBroker) -> tuple[Peer, int]:
    peer = Peer(broker.address)
    peer.send(struct.pack(">2sBI", b"\xca\xfe", 0x01, 3) + bytes([CHANNEL, 1]) + b"p")
    acknowledged = peer.receive(16)
    assert acknowledged[:8] == bytes.fromhex("CAFE 03 00000009 00")
    return peer, int.from_bytes(acknowledged[8:], "big")


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_535, 65_536])
def test_what_herald_publishes_arrives_as_bin(broker: LiveBroker, size: int) -> None:
    value = bytes(i & 255 for i in range(size))
    publisher, number = herald_publisher(broker)
    with publisher, Client(broker.address) as client:
        client.subscribe(TOPIC)
        publisher.send(struct.pack(">2sBI", b"\xca\xfe", 0x10, 1 + size) + bytes([CHANNEL]) + value)
        client.expect(fx.frame(fx.PUB, number, fx.topic(TOPIC), fx.pack(value)))


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        (b"\xc4\x03\x00\xff\x01", b"\x00\xff\x01"),
        (b"\xc5\x00\x02hi", b"hi"),
        (b"\xa2hi", b"hi"),
        (b"\xdb\x00\x00\x00\x02hi", b"hi"),
        (b"", b""),
        (b"\x81\xa1C\x15", b"\x81\xa1C\x15"),
        (b"\x92\x01\x02", b"\x92\x01\x02"),
        (b"\xc0", b"\xc0"),
        (b"\xd4\x05x", b"\xd4\x05x"),
    ],
    ids=["bin", "bin 16", "str", "str 32", "nothing", "map", "array", "nil", "ext"],
)
def test_bin_and_str_reach_herald_as_their_bytes_all_else_as_messagepack(
    broker: LiveBroker, payload: bytes, value: bytes
) -> None:
    with herald_subscriber(broker) as subscriber, Client(broker.address) as client:
        client.say(fx.PUB, fx.topic(TOPIC), payload=payload)
        found = subscriber.receive(16 + len(value))
        assert found[:8] == struct.pack(">2sBIB", b"\xca\xfe", 0x13, 9 + len(value), CHANNEL)
        assert found[16:] == value


def test_a_routed_message_does_not_reach_herald(broker: LiveBroker) -> None:
    with herald_subscriber(broker) as subscriber, Client(broker.address) as client:
        client.say(fx.PUB, fx.topic(TOPIC), fx.routing((client.number, "")), payload=b"\x01")
        client.settle()
        client.say(fx.PUB, fx.topic(TOPIC), payload=b"\x02")
        assert subscriber.receive(17)[16:] == b"\x02"
