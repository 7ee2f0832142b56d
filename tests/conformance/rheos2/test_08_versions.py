"""Both versions on one port, told apart by the first packet, with one space of topics."""

import socket
import struct

import pytest

from penstock.gateway.options import GatewayOptions
from penstock.protocols import PROTOCOLS
from tests.support.live import LiveBroker
from tests.support.rheos_bytes import (
    BOB,
    CREATE,
    FAILED,
    PUBLISH,
    RHEOS1,
    RHEOS2,
    SUBSCRIBE,
    SUCCESS,
    Client,
    Rheos,
    offset_of,
)

BOTH = [RHEOS1, RHEOS2]
WAYS = pytest.mark.parametrize(
    ("sends", "follows"), [(a, b) for a in BOTH for b in BOTH], ids=["11", "12", "21", "22"]
)


def ambiguous_name(payload_bytes: int) -> bytes:
    """A name by which a v1 request fits v2 too: it starts with v2's data length, 2 below v1's."""
    return struct.pack("<I", payload_bytes - 2) + b"/x"


@WAYS
def test_01_a_message_of_either_version_reaches_followers_of_either(
    broker: LiveBroker, topic: bytes, sends: Rheos, follows: Rheos
) -> None:
    name = topic + b"/\xff\x00%E9"
    payloads = [b"", b"\xfa\xac\x15", bytes(range(256)), b"x" * 65_535]
    with Client(broker, follows) as client, Client(broker, sends, identity=BOB) as other:
        other.must(CREATE, name)
        client.must(SUBSCRIBE, name)
        other.send(b"".join(sends.request(PUBLISH, name, one, client=BOB) for one in payloads))
        assert {other.ack().code for _ in payloads} == {SUCCESS}
        assert [client.delivery() for _ in payloads] == [
            follows.delivery(BOB, name, one) for one in payloads
        ]


@WAYS
def test_02_a_topic_made_in_either_version_exists_in_either(
    broker: LiveBroker, topic: bytes, sends: Rheos, follows: Rheos
) -> None:
    with Client(broker, follows) as client, Client(broker, sends, identity=BOB) as other:
        assert client.ask(SUBSCRIBE, topic) == FAILED
        assert other.ask(CREATE, topic) == SUCCESS
        assert client.ask(CREATE, topic) == FAILED
        assert client.ask(SUBSCRIBE, topic) == SUCCESS
        assert client.ask(SUBSCRIBE, topic + b"/#") == SUCCESS


def test_03_all_share_one_sequence_of_ids(broker: LiveBroker, topic: bytes) -> None:
    with Client(broker, RHEOS1) as one, Client(broker, RHEOS2) as two:
        one.must(CREATE, topic)
        clients = (one, two, two, one)
        offsets = [offset_of(client.must(PUBLISH, topic).identifier) for client in clients]
        assert offsets == list(range(offsets[0], offsets[0] + 4))


def test_04_a_v2_message_too_large_for_a_v1_request_reaches_v1_followers(
    broker: LiveBroker, topic: bytes
) -> None:
    payload = bytes(range(256)) * 4096
    with Client(broker, RHEOS1) as client, Client(broker, RHEOS2, identity=BOB) as other:
        other.must(CREATE, topic)
        client.must(SUBSCRIBE, topic)
        other.must(PUBLISH, topic, payload)
        assert client.delivery() == (BOB, None, payload)


def test_05_a_first_packet_that_fits_both_is_v1_if_no_checksum_follows(broker: LiveBroker) -> None:
    name = ambiguous_name(3)
    with Client(broker, RHEOS1) as client:
        # The next request's first byte is not that of a checksum.
        client.send(RHEOS1.request(CREATE, name, b"abc") + RHEOS1.request(PUBLISH, name, b"1"))
        assert [client.ack().code for _ in range(2)] == [SUCCESS, SUCCESS]


def test_06_a_first_packet_that_fits_both_is_v2_if_its_checksum_follows(broker: LiveBroker) -> None:
    # Read as v1: a name of 8 bytes, then a payload length that is the data's length and 2 more.
    data = b"d" * 10
    name = b"wxyz" + struct.pack("<H", len(data) + 2) + b"ab"
    whole = RHEOS2.request(CREATE, name, data)
    body = whole[22:-4]
    assert body[10:12] == struct.pack("<H", len(body) - 2 - 8 - 2), "it does not fit v1"
    with Client(broker, RHEOS2) as client:
        client.send(whole)
        assert client.ack().code == SUCCESS
        client.must(PUBLISH, name, data)


def test_07_a_first_packet_that_fits_both_and_is_all_there_is_is_v1_when_time_is_up() -> None:
    options = GatewayOptions(handshake_seconds_max=0.3)
    with LiveBroker(options=options) as broker, Client(broker, RHEOS1) as client:
        client.request(CREATE, ambiguous_name(3), b"abc")
        assert client.ack().code == SUCCESS
        client.must(PUBLISH, ambiguous_name(3), b"1")


def test_07b_a_first_packet_that_fits_both_is_v1_when_nothing_follows(broker: LiveBroker) -> None:
    with Client(broker, RHEOS1) as client:
        client.request(CREATE, ambiguous_name(4), b"abcd")
        client.socket.shutdown(socket.SHUT_WR)
        assert client.ack().code == SUCCESS
        client.expect_close()


def test_08_a_connection_does_not_change_its_version(broker: LiveBroker, topic: bytes) -> None:
    with Client(broker, RHEOS1) as client:
        client.must(CREATE, topic)
        client.send(RHEOS2.request(PUBLISH, topic, b"1"))
        client.expect_failed()  # a body that is no topic encoding
        client.expect_failed()  # and a checksum that starts no request
        client.expect_close()
    with Client(broker, RHEOS2) as client:
        client.must(SUBSCRIBE, topic)
        client.send(RHEOS1.request(PUBLISH, topic, b"1") + bytes(4))
        client.expect_failed()  # four bytes that are not its checksum
        client.expect_close()


def test_09_a_port_pinned_to_one_version_speaks_no_other(pinned: LiveBroker) -> None:
    with Client(pinned, RHEOS2) as client:
        client.send(RHEOS1.request(CREATE, b"a") + bytes(4))
        client.expect_failed()
        client.expect_close()
    options = GatewayOptions(protocol=PROTOCOLS["rheos1"])
    with LiveBroker(options=options) as broker, Client(broker, RHEOS1) as client:
        client.send(RHEOS2.request(CREATE, b"abc", b"data"))
        client.expect_failed()
        client.expect_failed()
        client.expect_close()
