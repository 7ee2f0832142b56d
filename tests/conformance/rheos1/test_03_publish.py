"""PUBLISH: each accepted message is acknowledged under its own id and reaches all who follow."""

import pytest

from penstock.core.access import Action, Principal, Rule
from penstock.gateway.options import GatewayOptions
from tests.support.live import LiveBroker
from tests.support.rheos_bytes import (
    ALICE,
    BOB,
    CREATE,
    FAILED,
    NO_MESSAGE,
    PUBLISH,
    SUBSCRIBE,
    SUCCESS,
    Client,
    Rheos,
    log_of,
    offset_of,
)


def test_01_publish_is_answered_under_the_id_of_the_message(
    broker: LiveBroker, rheos: Rheos, topic: bytes
) -> None:
    with Client(broker, rheos) as client:
        made = client.must(CREATE, topic)
        found = [client.must(PUBLISH, topic, b"%d" % number) for number in range(3)]
        first = offset_of(found[0].identifier)
        assert first < NO_MESSAGE
        assert [offset_of(ack.identifier) for ack in found] == [first, first + 1, first + 2]
        assert {log_of(ack.identifier) for ack in found} == {log_of(made.identifier)}


def test_02_a_topic_that_does_not_exist_cannot_be_fed_and_is_not_made_by_it(
    broker: LiveBroker, rheos: Rheos, topic: bytes
) -> None:
    with Client(broker, rheos) as client:
        for _ in range(2):
            client.request(PUBLISH, topic, b"1")
            client.expect_failed()
        assert client.ask(CREATE, topic) == SUCCESS


def test_03_the_first_request_may_be_a_publish(
    broker: LiveBroker, rheos: Rheos, topic: bytes
) -> None:
    with Client(broker, rheos) as follower:
        follower.must(CREATE, topic)
        follower.must(SUBSCRIBE, topic)
        with Client(broker, rheos, identity=BOB) as client:
            client.must(PUBLISH, topic, b"first")
        assert follower.delivery() == rheos.delivery(BOB, topic, b"first")
    with Client(broker, rheos) as client:
        client.request(PUBLISH, topic + b"/unknown", b"first")
        client.expect_failed()
        client.expect_alive()


def test_04_a_subscriber_gets_its_own_message_back(
    broker: LiveBroker, rheos: Rheos, topic: bytes
) -> None:
    with Client(broker, rheos) as client:
        client.must(CREATE, topic)
        client.must(SUBSCRIBE, topic)
        client.request(PUBLISH, topic, b"mine")
        (answer,), (message,) = client.sort(acks=1, deliveries=1)
        assert answer.code == SUCCESS
        assert message == rheos.delivery(ALICE, topic, b"mine")


def test_05_without_echo_it_does_not(rheos: Rheos, topic: bytes) -> None:
    with (
        LiveBroker(options=GatewayOptions(echo=False)) as broker,
        Client(broker, rheos) as client,
        Client(broker, rheos, identity=BOB) as other,
    ):
        client.must(CREATE, topic)
        client.must(SUBSCRIBE, topic)
        client.must(PUBLISH, topic, b"mine")
        other.must(PUBLISH, topic, b"other")
        assert client.delivery() == rheos.delivery(BOB, topic, b"other")


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_535])
def test_06_payloads_of_any_size_arrive_whole(
    broker: LiveBroker, rheos: Rheos, topic: bytes, size: int
) -> None:
    payload = bytes(position * 7 & 0xFF for position in range(size))
    with Client(broker, rheos) as client, Client(broker, rheos, identity=BOB) as other:
        other.must(CREATE, topic)
        client.must(SUBSCRIBE, topic)
        other.must(PUBLISH, topic, payload)
        assert client.delivery() == rheos.delivery(BOB, topic, payload)


def test_07_a_message_bears_the_client_id_of_its_own_request(
    broker: LiveBroker, rheos: Rheos, topic: bytes
) -> None:
    senders = [bytes((number,)) * 16 for number in range(200)]
    with Client(broker, rheos) as client, Client(broker, rheos) as other:
        other.must(CREATE, topic)
        client.must(SUBSCRIBE, topic)
        other.send(b"".join(rheos.request(PUBLISH, topic, one[:1], client=one) for one in senders))
        offsets = [offset_of(other.ack().identifier) for _ in senders]
        assert offsets == list(range(offsets[0], offsets[0] + len(senders)))
        for one in senders:
            assert client.delivery() == rheos.delivery(one, topic, one[:1])


def test_08_a_thousand_publishes_in_one_send_are_answered_in_order(
    broker: LiveBroker, rheos: Rheos, topic: bytes
) -> None:
    with Client(broker, rheos) as client, Client(broker, rheos, identity=BOB) as other:
        other.must(CREATE, topic)
        client.must(SUBSCRIBE, topic)
        payloads = [b"%d" % number for number in range(1000)]
        other.send(b"".join(rheos.request(PUBLISH, topic, one, client=BOB) for one in payloads))
        found = [other.ack() for _ in payloads]
        first = offset_of(found[0].identifier)
        assert {ack.code for ack in found} == {SUCCESS}
        assert [offset_of(ack.identifier) for ack in found] == list(range(first, first + 1000))
        assert [client.delivery() for _ in payloads] == [
            rheos.delivery(BOB, topic, one) for one in payloads
        ]


def test_09_a_refused_publish_is_answered_at_its_place(
    broker: LiveBroker, rheos: Rheos, topic: bytes
) -> None:
    with Client(broker, rheos) as client:
        client.must(CREATE, topic)
        known = [number % 7 != 3 for number in range(100)]
        client.send(
            b"".join(
                rheos.request(PUBLISH, topic if one else topic + b"/unknown", b"1") for one in known
            )
        )
        found = [client.ack() for _ in known]
        assert [ack.code == SUCCESS for ack in found] == known
        taken = [offset_of(ack.identifier) for ack in found if ack.code == SUCCESS]
        assert taken == list(range(taken[0], taken[0] + len(taken)))
        refused = {offset_of(ack.identifier) for ack in found if ack.code == FAILED}
        assert refused == {NO_MESSAGE}


def test_10_all_operations_in_one_send_are_done_and_answered_in_order(
    broker: LiveBroker, rheos: Rheos, topic: bytes
) -> None:
    steps = [
        (PUBLISH, topic, b"0", FAILED),
        (SUBSCRIBE, topic, b"", FAILED),
        (CREATE, topic, b"", SUCCESS),
        (PUBLISH, topic, b"1", SUCCESS),
        (SUBSCRIBE, topic, b"", SUCCESS),
        (PUBLISH, topic, b"2", SUCCESS),
        (PUBLISH, topic, b"3", SUCCESS),
        (CREATE, topic, b"", FAILED),
        (PUBLISH, topic + b"/unknown", b"4", FAILED),
        (PUBLISH, topic, b"5", SUCCESS),
    ]
    with Client(broker, rheos) as client:
        client.send(b"".join(rheos.request(*step[:3]) for step in steps))
        answers, messages = client.sort(acks=len(steps), deliveries=3)
        assert [ack.code for ack in answers] == [step[3] for step in steps]
        assert [message.payload for message in messages] == [b"2", b"3", b"5"]


def test_11_messages_of_many_topics_keep_their_order(
    broker: LiveBroker, rheos: Rheos, topic: bytes
) -> None:
    names = [topic + b"/%d" % number for number in range(50)]
    with Client(broker, rheos) as client, Client(broker, rheos, identity=BOB) as other:
        client.must(SUBSCRIBE, topic + b"/#")
        other.send(b"".join(rheos.request(CREATE, name) for name in names))
        assert {other.ack().code for _ in names} == {SUCCESS}
        sent = [(names[number * 17 % 50], b"%d" % number) for number in range(500)]
        other.send(b"".join(rheos.request(PUBLISH, *one, client=BOB) for one in sent))
        assert {other.ack().code for _ in sent} == {SUCCESS}
        assert [client.delivery() for _ in sent] == [rheos.delivery(BOB, *one) for one in sent]


def test_12_who_may_not_publish_to_a_topic_is_refused_at_its_place(rheos: Rheos) -> None:
    rule = Rule(allow=False, actions=frozenset({Action.PUBLISH}), pattern="channel/1")
    options = GatewayOptions(anonymous=Principal("guest", [rule]))
    with LiveBroker(options=options) as broker, Client(broker, rheos) as client:
        client.must(SUBSCRIBE, b"channel/+")
        names = [b"channel/%d" % (number % 3) for number in range(30)]
        client.send(b"".join(rheos.request(PUBLISH, name, name) for name in names))
        answers, messages = client.sort(acks=30, deliveries=20)
        assert [ack.code == FAILED for ack in answers] == [name == b"channel/1" for name in names]
        assert [message.payload for message in messages] == [
            name for name in names if name != b"channel/1"
        ]


def test_13_a_client_that_stops_sending_still_gets_its_answers(
    broker: LiveBroker, rheos: Rheos, topic: bytes
) -> None:
    with Client(broker, rheos) as client:
        client.must(CREATE, topic)
        client.send(rheos.request(PUBLISH, topic, b"1") * 1000)
        client.socket.shutdown(1)
        found = [client.ack().code for _ in range(1000)]
        assert found == [SUCCESS] * 1000
        client.expect_close()
