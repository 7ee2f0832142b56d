"""What is wrong is answered FAILED; where framing is lost, that is the last answer."""

import random
import struct

import pytest

from tests.support.live import LiveBroker, Peer
from tests.support.rheos_bytes import (
    ALICE,
    BOB,
    CREATE,
    INVALID_OPERATION,
    PUBLISH,
    SUBSCRIBE,
    SUCCESS,
    Client,
    Rheos,
)


@pytest.mark.parametrize("opcode", [INVALID_OPERATION, 4, 0x7F, 0xFF])
def test_01_an_operation_that_is_reserved_or_unknown_is_refused_and_the_stream_goes_on(
    broker: LiveBroker, rheos: Rheos, topic: bytes, opcode: int
) -> None:
    with Client(broker, rheos) as client:
        client.must(CREATE, topic)
        client.send(rheos.request(opcode, topic, b"1") + rheos.request(PUBLISH, topic, b"2"))
        client.expect_failed()
        assert client.ack().code == SUCCESS


def test_02_the_first_request_may_be_one_that_is_refused(
    broker: LiveBroker, rheos: Rheos, topic: bytes
) -> None:
    with Client(broker, rheos) as client:
        client.request(INVALID_OPERATION, topic)
        client.expect_failed()
        assert client.ask(CREATE, topic) == SUCCESS


@pytest.mark.parametrize("opcode", [CREATE, SUBSCRIBE, PUBLISH])
@pytest.mark.parametrize("change", [-1, 1, 100])
def test_03_a_body_that_its_lengths_do_not_fill_is_refused_and_the_stream_goes_on(
    broker: LiveBroker, rheos: Rheos, topic: bytes, opcode: int, change: int
) -> None:
    whole = rheos.request(opcode, topic, b"12345")
    body = whole[22:] if rheos.version == 1 else whole[22:-4]
    body = body[:change] if change < 0 else body + bytes(change)
    with Client(broker, rheos) as client:
        client.must(CREATE, topic)
        client.send(rheos.packet(opcode, body) + rheos.request(PUBLISH, topic, b"2"))
        client.expect_failed()
        assert client.ack().code == SUCCESS


@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_04_a_body_too_short_for_its_lengths_is_refused_and_the_stream_goes_on(
    broker: LiveBroker, rheos: Rheos, size: int
) -> None:
    with Client(broker, rheos) as client:
        client.expect_alive()
        client.send(rheos.packet(PUBLISH, bytes(size)))
        client.expect_failed()
        client.expect_alive()


def test_05_a_name_length_beyond_the_body_is_refused_and_the_stream_goes_on(
    broker: LiveBroker, rheos: Rheos
) -> None:
    with Client(broker, rheos) as client:
        client.expect_alive()
        client.send(rheos.packet(CREATE, b"\xff\xff" + bytes(20)))
        client.expect_failed()
        client.expect_alive()


@pytest.mark.parametrize("first", [b"\x00", b"\xac", b"\xfb", b"\x15", b"\xfe\xca", b"GET / "])
def test_06_a_wrong_magic_is_the_end(
    broker: LiveBroker, rheos: Rheos, topic: bytes, first: bytes
) -> None:
    with Client(broker, rheos) as client:
        client.must(CREATE, topic)
        client.send(rheos.request(PUBLISH, topic, b"1") + first)
        assert client.ack().code == SUCCESS
        client.expect_failed()
        client.expect_close()


def test_07_a_length_above_the_limit_is_the_end_and_not_waited_for(
    broker: LiveBroker, rheos: Rheos
) -> None:
    for length in (rheos.body_bytes_max + 1, 2**32 - 1):
        with Client(broker, rheos) as client:
            client.expect_alive()
            client.send(struct.pack("<BI", 0xFA, length))
            client.expect_failed()
            client.expect_close()


def test_08_nothing_behind_the_end_is_taken(broker: LiveBroker, rheos: Rheos, topic: bytes) -> None:
    with Client(broker, rheos, identity=BOB) as follower:
        follower.must(CREATE, topic)
        follower.must(SUBSCRIBE, topic)
        with Client(broker, rheos) as client:
            good = rheos.request(PUBLISH, topic, b"before")
            client.send(good + b"\x00" + rheos.request(PUBLISH, topic, b"behind"))
            assert client.ack().code == SUCCESS
            client.expect_failed()
            client.expect_close()
        assert follower.delivery() == rheos.delivery(ALICE, topic, b"before")
        follower.expect_alive()


def test_09_on_a_pinned_port_the_first_byte_is_judged_like_any_other(
    pinned: LiveBroker, rheos: Rheos
) -> None:
    for data in (b"\x00", b"\xfe\xca\x01", struct.pack("<BI", 0xFA, 2**32 - 1)):
        with Client(pinned, rheos) as client:
            client.send(data)
            client.expect_failed()
            client.expect_close()
    with Client(pinned, rheos) as client:
        client.send(rheos.packet(CREATE, b"\0"))
        client.expect_failed()
        client.expect_alive()


def test_10_on_a_shared_port_what_fits_no_version_is_nobody_s_and_gets_no_answer(
    broker: LiveBroker, rheos: Rheos
) -> None:
    bodies = (b"", b"\0\0\0", b"\xff\xff" + bytes(20), b"\x01\x00a\x09\x00" + bytes(20))
    for body in bodies:
        with Peer(broker.address) as peer:
            peer.send(rheos.packet(CREATE, body))
            peer.expect_close()


def test_11_garbage_takes_nobody_with_it(broker: LiveBroker, rheos: Rheos, topic: bytes) -> None:
    chance = random.Random(1)
    with Client(broker, rheos) as follower, Client(broker, rheos, identity=BOB) as other:
        other.must(CREATE, topic)
        follower.must(SUBSCRIBE, topic)
        # Half a request ends each: what follows it, in whatever order, could not be Bob's.
        stream = rheos.request(INVALID_OPERATION, topic, b"1") * 3 + rheos.request(3, topic)[:-1]
        for number in range(100):
            damaged = bytearray(stream)
            for _ in range(chance.randrange(1, 6)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(3, 256)
            with Client(broker, rheos) as client:
                client.send(bytes(damaged))
                broker.call(lambda: None)
            other.must(PUBLISH, topic, b"%d" % number)
            assert follower.delivery() == rheos.delivery(BOB, topic, b"%d" % number)
        assert (
            broker.call(lambda: broker.server.broker.counters.connections_failed)["internal error"]
            == 0
        )
