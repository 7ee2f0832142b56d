"""Rheos sessions and topics as the broker has them, and a topic that herald shares."""

import time
import uuid

from penstock.gateway.options import GatewayOptions
from tests.support.live import LiveBroker, Peer
from tests.support.rheos_bytes import (
    ALICE,
    BOB,
    CREATE,
    FAILED,
    PUBLISH,
    SUBSCRIBE,
    SUCCESS,
    Client,
    Rheos,
)


def test_a_topic_of_another_protocol_exists_already(broker: LiveBroker, rheos: Rheos) -> None:
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


def test_a_subscription_ends_with_its_connection(
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


def names(broker: LiveBroker) -> list[str]:
    return sorted(broker.call(lambda: [one.name for one in broker.server.broker.sessions]))


def test_a_session_goes_by_the_client_id_of_the_first_request(rheos: Rheos) -> None:
    with LiveBroker() as broker, Client(broker, rheos) as client:
        client.send(rheos.request(CREATE, b"a", client=ALICE))
        assert client.ack().code == SUCCESS
        client.send(rheos.request(CREATE, b"b", client=BOB))
        assert client.ack().code == SUCCESS
        assert names(broker) == [str(uuid.UUID(bytes=ALICE))]


def test_the_session_opens_with_a_whole_request_and_not_before(rheos: Rheos) -> None:
    whole = rheos.request(CREATE, b"a")
    with LiveBroker() as broker, Client(broker, rheos) as client:
        client.send(whole[:-1])
        broker.call(lambda: None)
        assert names(broker) == []
        client.send(whole[-1:])
        assert client.ack().code == SUCCESS
        assert len(names(broker)) == 1


def test_two_connections_may_bear_one_client_id(rheos: Rheos) -> None:
    with LiveBroker() as broker, Client(broker, rheos) as first, Client(broker, rheos) as second:
        first.must(CREATE, b"a")
        second.must(PUBLISH, b"a", b"1")
        first.must(PUBLISH, b"a", b"2")
        assert len(names(broker)) == 2


def test_a_client_without_credentials_gets_no_session(
    rheos: Rheos,
) -> None:
    with LiveBroker(options=GatewayOptions(anonymous=None)) as broker:
        for opcode in (CREATE, PUBLISH):
            with Client(broker, rheos) as client:
                client.send(rheos.request(opcode, b"channel/1") * 3)
                client.expect_failed()
                client.expect_close()
        assert names(broker) == []
