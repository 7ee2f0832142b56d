"""SUBSCRIBE: follows a topic that exists, or all that a pattern matches."""

import time

import pytest

from penstock.core.access import Action, Principal, Rule
from penstock.core.broker import BrokerSettings
from penstock.gateway.options import GatewayOptions
from tests.support.live import LiveBroker
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


def test_01_subscribe_is_answered_success_under_an_id_that_is_no_message(
    broker: LiveBroker, rheos: Rheos, topic: bytes
) -> None:
    with Client(broker, rheos) as client:
        client.must(CREATE, topic)
        assert offset_of(client.must(SUBSCRIBE, topic).identifier) == NO_MESSAGE


def test_02_a_topic_that_does_not_exist_cannot_be_followed(
    broker: LiveBroker, rheos: Rheos, topic: bytes
) -> None:
    with Client(broker, rheos) as client, Client(broker, rheos, identity=BOB) as other:
        client.request(SUBSCRIBE, topic)
        client.expect_failed()
        other.must(CREATE, topic)
        other.must(PUBLISH, topic, b"not for who was refused")
        client.must(SUBSCRIBE, topic)
        other.must(PUBLISH, topic, b"2")
        assert client.delivery() == rheos.delivery(BOB, topic, b"2")


def test_03_only_what_was_asked_for_comes(broker: LiveBroker, rheos: Rheos, topic: bytes) -> None:
    with Client(broker, rheos) as client, Client(broker, rheos, identity=BOB) as other:
        for name in (topic, topic + b"2", topic + b"/below"):
            other.must(CREATE, name)
        client.must(SUBSCRIBE, topic)
        other.must(PUBLISH, topic + b"2", b"no")
        other.must(PUBLISH, topic + b"/below", b"no")
        other.must(PUBLISH, topic, b"yes")
        assert client.delivery() == rheos.delivery(BOB, topic, b"yes")


def test_04_a_second_subscribe_is_granted_and_changes_nothing(
    broker: LiveBroker, rheos: Rheos, topic: bytes
) -> None:
    with Client(broker, rheos) as client, Client(broker, rheos, identity=BOB) as other:
        other.must(CREATE, topic)
        for _ in range(3):
            client.must(SUBSCRIBE, topic)
        other.must(PUBLISH, topic, b"once")
        assert client.delivery().payload == b"once"
        client.expect_alive()


def test_05_a_message_that_two_subscriptions_match_comes_once(
    broker: LiveBroker, rheos: Rheos, topic: bytes
) -> None:
    with Client(broker, rheos) as client, Client(broker, rheos, identity=BOB) as other:
        other.must(CREATE, topic)
        for pattern in (topic, topic + b"/#", b"case/+"):
            client.must(SUBSCRIBE, pattern)
        other.must(PUBLISH, topic, b"once")
        assert client.delivery().payload == b"once"
        client.expect_alive()


@pytest.mark.parametrize("tail", [b"/#", b".>", b"/+", b".*"])
def test_06_a_pattern_may_be_followed_before_any_topic_matches(
    broker: LiveBroker, rheos: Rheos, topic: bytes, tail: bytes
) -> None:
    with Client(broker, rheos) as client, Client(broker, rheos, identity=BOB) as other:
        client.must(SUBSCRIBE, topic + tail)
        other.must(CREATE, topic + b"/later")
        other.must(PUBLISH, topic + b"/later", b"1")
        assert client.delivery() == rheos.delivery(BOB, topic + b"/later", b"1")


def test_07_one_level_is_not_the_rest(broker: LiveBroker, rheos: Rheos, topic: bytes) -> None:
    with (
        Client(broker, rheos) as level,
        Client(broker, rheos) as rest,
        Client(broker, rheos, identity=BOB) as other,
    ):
        level.must(SUBSCRIBE, topic + b"/+/c")
        rest.must(SUBSCRIBE, topic + b"/#")
        names = [topic + tail for tail in (b"", b"/b", b"/b/c", b".b.c", b"/b/c/d", b"/x/y")]
        for name in names:
            other.must(CREATE, name)
            other.must(PUBLISH, name, name)
        assert [rest.delivery().payload for _ in names] == names
        assert [level.delivery().payload for _ in range(2)] == names[2:4]
        level.expect_alive()


@pytest.mark.parametrize("pattern", [b"", b"a/#/b", b">.a"])
def test_08_a_pattern_that_matches_nothing_is_refused(
    broker: LiveBroker, rheos: Rheos, pattern: bytes
) -> None:
    with Client(broker, rheos) as client:
        client.request(SUBSCRIBE, pattern)
        client.expect_failed()


def test_09_binary_names_are_followed_by_patterns(
    broker: LiveBroker, rheos: Rheos, topic: bytes
) -> None:
    name = topic + b"/\xff\x00\xfe"
    with Client(broker, rheos) as client, Client(broker, rheos, identity=BOB) as other:
        client.must(SUBSCRIBE, topic + b"/+")
        other.must(CREATE, name)
        other.must(PUBLISH, name, b"\xff")
        assert client.delivery() == rheos.delivery(BOB, name, b"\xff")


def test_10_a_payload_in_a_subscribe_means_nothing(
    broker: LiveBroker, rheos: Rheos, topic: bytes
) -> None:
    with Client(broker, rheos) as client:
        client.must(CREATE, topic)
        client.must(SUBSCRIBE, topic, b"not a message")
        client.expect_alive()


def test_11_a_subscription_ends_with_its_connection(
    broker: LiveBroker, rheos: Rheos, topic: bytes
) -> None:
    def followers() -> int:
        return len(broker.server.broker.router.subscribers(topic.decode()))

    with Client(broker, rheos, identity=BOB) as other:
        other.must(CREATE, topic)
        with Client(broker, rheos) as client:
            client.must(SUBSCRIBE, topic)
            assert broker.call(followers) == 1
        deadline = time.monotonic() + 5
        while broker.call(followers):
            assert time.monotonic() < deadline, "the subscription stayed"
        other.must(PUBLISH, topic, b"to nobody")
        with Client(broker, rheos) as client:
            # The same client id is no reason to get anything.
            client.expect_alive()
            other.must(PUBLISH, topic, b"to nobody")
            client.expect_alive()


def test_12_a_refused_subscription_brings_nothing(rheos: Rheos) -> None:
    rule = Rule(allow=False, actions=frozenset({Action.SUBSCRIBE}), pattern="secret/#")
    options = GatewayOptions(anonymous=Principal("guest", [rule]))
    with LiveBroker(options=options) as broker, Client(broker, rheos) as client:
        client.must(CREATE, b"secret/plan")
        for pattern in (b"secret/plan", b"secret/+", b"secret/#"):
            client.request(SUBSCRIBE, pattern)
            client.expect_failed()
        client.must(PUBLISH, b"secret/plan", b"not for you")
        client.expect_alive()


def test_13_beyond_its_limit_a_client_gets_no_subscription_and_keeps_those_it_has(
    rheos: Rheos,
) -> None:
    settings = BrokerSettings(subscriptions_max=2)
    with LiveBroker(settings=settings) as broker, Client(broker, rheos) as client:
        for name in (b"a", b"b", b"c"):
            client.must(CREATE, name)
        assert [client.ask(SUBSCRIBE, name) for name in (b"a", b"b", b"c", b"a")] == [
            SUCCESS,
            SUCCESS,
            FAILED,
            SUCCESS,
        ]
        with Client(broker, rheos, identity=BOB) as other:
            for name in (b"c", b"b", b"a"):
                other.must(PUBLISH, name, name)
        assert [client.delivery().payload for _ in range(2)] == [b"b", b"a"]
