"""Who is let in, under which name, and who is not."""

import time
import uuid

from penstock.core.broker import BrokerSettings
from penstock.gateway.options import GatewayOptions
from tests.support.live import LiveBroker
from tests.support.rheos_bytes import ALICE, BOB, CREATE, PUBLISH, SUCCESS, Client, Rheos


def names(broker: LiveBroker) -> list[str]:
    return sorted(broker.call(lambda: [one.name for one in broker.server.broker.sessions]))


def test_01_a_session_goes_by_the_client_id_of_the_first_request(rheos: Rheos) -> None:
    with LiveBroker() as broker, Client(broker, rheos) as client:
        client.send(rheos.request(CREATE, b"a", client=ALICE))
        assert client.ack().code == SUCCESS
        client.send(rheos.request(CREATE, b"b", client=BOB))
        assert client.ack().code == SUCCESS
        assert names(broker) == [str(uuid.UUID(bytes=ALICE))]


def test_02_the_session_opens_with_a_whole_request_and_not_before(rheos: Rheos) -> None:
    whole = rheos.request(CREATE, b"a")
    with LiveBroker() as broker, Client(broker, rheos) as client:
        client.send(whole[:-1])
        broker.call(lambda: None)
        assert names(broker) == []
        client.send(whole[-1:])
        assert client.ack().code == SUCCESS
        assert len(names(broker)) == 1


def test_03_two_connections_may_bear_one_client_id(rheos: Rheos) -> None:
    with LiveBroker() as broker, Client(broker, rheos) as first, Client(broker, rheos) as second:
        first.must(CREATE, b"a")
        second.must(PUBLISH, b"a", b"1")
        first.must(PUBLISH, b"a", b"2")
        assert len(names(broker)) == 2


def test_04_where_nobody_may_come_without_credentials_the_answer_is_failed_and_the_end(
    rheos: Rheos,
) -> None:
    with LiveBroker(options=GatewayOptions(anonymous=None)) as broker:
        for opcode in (CREATE, PUBLISH):
            with Client(broker, rheos) as client:
                client.send(rheos.request(opcode, b"channel/1") * 3)
                client.expect_failed()
                client.expect_close()
        assert names(broker) == []


def test_05_a_full_broker_answers_failed_and_closes(rheos: Rheos) -> None:
    with (
        LiveBroker(settings=BrokerSettings(sessions_max=1)) as broker,
        Client(broker, rheos) as first,
    ):
        first.must(CREATE, b"a")
        with Client(broker, rheos) as second:
            second.request(PUBLISH, b"a", b"1")
            second.expect_failed()
            second.expect_close()
        first.must(PUBLISH, b"a", b"2")


def test_06_who_leaves_makes_room(rheos: Rheos) -> None:
    with LiveBroker(settings=BrokerSettings(sessions_max=1)) as broker:
        for number in range(5):
            with Client(broker, rheos) as client:
                client.must(CREATE, b"%d" % number)
            deadline = time.monotonic() + 5
            while names(broker):
                assert time.monotonic() < deadline, "the session stayed"


def test_07_who_sends_no_whole_request_in_time_is_closed_without_an_answer(rheos: Rheos) -> None:
    options = GatewayOptions(handshake_seconds_max=0.5)
    with LiveBroker(options=options) as broker, Client(broker, rheos) as client:
        client.must(CREATE, b"a")
        late = [Client(broker, rheos) for _ in range(3)]
        for one, part in zip(late, (b"", b"\xfa", rheos.request(CREATE, b"b")[:-1]), strict=True):
            one.send(part)
        for one in late:
            with one:
                one.expect_close()
        client.must(PUBLISH, b"a", b"who was in time may take its time")
