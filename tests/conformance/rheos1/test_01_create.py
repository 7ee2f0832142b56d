"""CREATE: makes a topic, once."""

import pytest

from penstock.core.access import Action, Principal, Rule
from penstock.gateway.options import GatewayOptions
from tests.support.live import LiveBroker, Peer
from tests.support.rheos_bytes import (
    BOB,
    CREATE,
    FAILED,
    NO_MESSAGE,
    PUBLISH,
    SUBSCRIBE,
    SUCCESS,
    Client,
    Rheos,
    offset_of,
)

LONGEST = 65_526


def test_01_create_is_answered_success_under_an_id_that_is_no_message(
    broker: LiveBroker, rheos: Rheos, topic: bytes
) -> None:
    with Client(broker, rheos) as client:
        found = client.must(CREATE, topic)
        assert offset_of(found.identifier) == NO_MESSAGE


def test_02_a_topic_that_was_created_can_be_followed_and_fed(
    broker: LiveBroker, rheos: Rheos, topic: bytes
) -> None:
    with Client(broker, rheos) as client:
        assert client.ask(SUBSCRIBE, topic) == FAILED
        assert client.ask(PUBLISH, topic) == FAILED
        assert client.ask(CREATE, topic) == SUCCESS
        assert client.ask(PUBLISH, topic) == SUCCESS
        assert client.ask(SUBSCRIBE, topic) == SUCCESS


def test_03_a_second_create_fails_whoever_asks(
    broker: LiveBroker, rheos: Rheos, topic: bytes
) -> None:
    with Client(broker, rheos) as first, Client(broker, rheos, identity=BOB) as second:
        first.must(CREATE, topic)
        first.request(CREATE, topic)
        first.expect_failed()
        second.request(CREATE, topic)
        second.expect_failed()


def test_04_a_topic_outlives_its_creator(broker: LiveBroker, rheos: Rheos, topic: bytes) -> None:
    with Client(broker, rheos) as client:
        client.must(CREATE, topic)
    with Client(broker, rheos) as client:
        assert client.ask(CREATE, topic) == FAILED
        assert client.ask(PUBLISH, topic) == SUCCESS


@pytest.mark.parametrize("name", [b"", b"#", b">", b"+", b"*", b"a/+/b", b"a.*", b"a/#", b"a.>"])
def test_05_no_topic_has_an_empty_name_or_a_wildcard_level(
    broker: LiveBroker, rheos: Rheos, name: bytes
) -> None:
    with Client(broker, rheos) as client:
        client.request(CREATE, name)
        client.expect_failed()
        client.request(PUBLISH, name, b"nothing is published under it either")
        client.expect_failed()


@pytest.mark.parametrize("name", [b"a+", b"#1", b"c*d", b">>", b"a//b", b"/", b".", b" ", b"\0"])
def test_06_what_only_resembles_a_wildcard_is_a_name(
    broker: LiveBroker, rheos: Rheos, name: bytes
) -> None:
    with Client(broker, rheos) as client:
        assert client.ask(CREATE, name) == SUCCESS
        assert client.ask(PUBLISH, name, b"1") == SUCCESS


def test_07_a_name_has_65_526_bytes_at_most(broker: LiveBroker, rheos: Rheos) -> None:
    with Client(broker, rheos) as client:
        assert client.ask(CREATE, b"n" * LONGEST) == SUCCESS
        assert client.ask(PUBLISH, b"n" * LONGEST, b"1") == SUCCESS
        for size in (LONGEST + 1, 65_535):
            client.request(CREATE, b"n" * size)
            client.expect_failed()
            client.request(PUBLISH, b"n" * size)
            client.expect_failed()
            client.request(SUBSCRIBE, b"n" * size)
            client.expect_failed()


def test_08_bytes_that_are_not_utf_8_count_three_times(broker: LiveBroker, rheos: Rheos) -> None:
    with Client(broker, rheos) as client:
        assert client.ask(CREATE, b"\xff" * (LONGEST // 3)) == SUCCESS
        assert client.ask(CREATE, b"\xff" * (LONGEST // 3 + 1)) == FAILED


@pytest.mark.parametrize(
    "name", [b"caf\xe9", b"caf\xc3\xa9", b"caf%E9", b"50%", b"%25", b"\x80\xfe\xff/\xc3\x28"]
)
def test_09_a_name_is_any_bytes_and_each_is_a_topic_of_its_own(
    broker: LiveBroker, rheos: Rheos, name: bytes
) -> None:
    with Client(broker, rheos) as client, Client(broker, rheos, identity=BOB) as other:
        assert client.ask(SUBSCRIBE, name) == FAILED
        assert client.ask(CREATE, name) == SUCCESS
        assert client.ask(CREATE, name) == FAILED
        assert client.ask(SUBSCRIBE, name) == SUCCESS
        other.must(PUBLISH, name, name)
        assert client.delivery() == rheos.delivery(BOB, name, name)


def test_10_a_payload_in_a_create_means_nothing(
    broker: LiveBroker, rheos: Rheos, topic: bytes
) -> None:
    with Client(broker, rheos) as client, Client(broker, rheos, identity=BOB) as other:
        client.must(SUBSCRIBE, topic + b"/#")
        other.must(CREATE, topic + b"/made", b"x" * 65_535)
        other.must(PUBLISH, topic + b"/made", b"first")
        assert client.delivery() == rheos.delivery(BOB, topic + b"/made", b"first")


def test_11_a_topic_of_another_protocol_exists_already(broker: LiveBroker, rheos: Rheos) -> None:
    with Client(broker, rheos) as client, Peer(broker.address) as herald:
        assert client.ask(CREATE, b"channel/7") == FAILED
        assert client.ask(SUBSCRIBE, b"channel/7") == SUCCESS
        assert client.ask(SUBSCRIBE, b"channel/256") == FAILED
        herald.send(bytes.fromhex("FECA 02 04000000 01 07 01 73"))  # follow channel 7
        assert herald.receive(16)[:8] == bytes.fromhex("FECA 03 09000000 00")
        client.request(PUBLISH, b"channel/7", b"hi")
        (answer,), (message,) = client.sort(acks=1, deliveries=1)
        assert answer.code == SUCCESS
        assert message == rheos.delivery(client.identity, b"channel/7", b"hi")
        frame = herald.receive(18)
        assert frame[:8] == bytes.fromhex("FECA 13 0B000000 07")
        assert frame[16:] == b"hi"


def test_12_who_may_not_publish_to_a_topic_may_not_make_it(rheos: Rheos) -> None:
    rule = Rule(allow=False, actions=frozenset({Action.PUBLISH}), pattern="secret/#")
    options = GatewayOptions(anonymous=Principal("guest", [rule]))
    with LiveBroker(options=options) as broker, Client(broker, rheos) as client:
        client.request(CREATE, b"secret/plan")
        client.expect_failed()
        assert client.ask(SUBSCRIBE, b"secret/plan") == FAILED, "it is there after all"
        assert client.ask(CREATE, b"open") == SUCCESS
        assert client.ask(PUBLISH, b"open") == SUCCESS
