"""fleximq beside other protocols, and the buffers of the broker."""

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.conform.fleximq import encoding as fx
from penstock.conform.fleximq.encoding import frame
from penstock.core.broker import BrokerSettings
from tests.conformance.fleximq.client import Client
from tests.support.live import LiveBroker, Peer


def ask(asker: Client, target: int, identifier: str, payload: bytes = b"") -> bytes:
    return asker.say(fx.REQ, fx.routing((target, "/do")), fx.request(identifier), payload=payload)


def test_a_request_to_a_client_of_another_protocol_is_600(
    broker: LiveBroker,
) -> None:
    with Client(broker.address) as asker, Peer(broker.address) as herald:
        herald.send(bytes.fromhex("CAFE 02 00000004 01 09 01 73"))  # HANDSHAKE_SUB, channel 9
        acknowledged = herald.receive(16)
        number = int.from_bytes(acknowledged[8:16], "big")
        assert number >= 1000
        ask(asker, number, "q")
        asker.expect_refusal(600, "q")


def test_a_broadcast_does_not_reach_clients_of_other_protocols(broker: LiveBroker) -> None:
    with Client(broker.address) as sender, Peer(broker.address) as herald:
        herald.send(bytes.fromhex("CAFE 02 00000004 01 09 01 73"))
        herald.receive(16)
        sender.expect(sender.say(fx.BCAST, fx.status(200), payload=b"\xd9\x02hi"))
        sender.settle()
        herald.expect_nothing(0.05)


@pytest.fixture
def client(broker: LiveBroker) -> Iterator[Client]:
    with Client(broker.address) as joined:
        yield joined


def service(client: Client, path: str) -> Any:
    client.say(fx.REQ, fx.routing((fx.BROKER, path)), fx.request("s"))
    reply = client.frame()
    assert (reply.type, reply.client_id) == (fx.REP, fx.BROKER)
    assert reply.header == (fx.routing((client.number, "")) | fx.correlation("s") | fx.status(200))
    return reply.value


def test_time_is_in_milliseconds_since_the_epoch(client: Client) -> None:
    before = time.time_ns() // 1_000_000
    answer = service(client, "/time")
    assert answer.keys() == {"timestamp"}
    assert before <= answer["timestamp"] <= time.time_ns() // 1_000_000


def test_clients_of_all_protocols_are_listed(broker: LiveBroker, client: Client) -> None:
    client.subscribe("a", "b")
    with Peer(broker.address) as herald:
        herald.send(bytes.fromhex("CAFE 02 00000004 01 09 01 73"))
        number = int.from_bytes(herald.receive(16)[8:], "big")
        answer = service(client, "/clients")
    assert answer["count"] == len(answer["clients"])
    found = {entry["client_id"]: entry for entry in answer["clients"]}
    assert found[client.number]["protocol"] == "fleximq"
    assert found[client.number]["subscriptions"] == 2
    assert found[number]["protocol"] == "herald"


def test_answers_that_are_not_read_do_not_pile_up() -> None:
    bound = 256 * 1024
    settings = BrokerSettings(out_buffer_bytes_max=bound)
    with (
        LiveBroker(settings=settings) as broker,
        Client(broker.address) as witness,
        Client(broker.address) as client,
    ):
        witness.subscribe("done")
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for i in range(10):
            client.say(fx.PUB, fx.topic(f"{i}" * 60_000))
        question = fx.routing((1, "/topics")) | fx.request("q")  # the answer has 600 KiB
        # In one piece: what comes after answers that are not read is not read either.
        requests = frame(fx.REQ, client.number, question) * 50
        client.send(requests + frame(fx.PUB, client.number, fx.topic("done")))
        assert witness.frame().type == fx.PUB
        session = broker.server.broker.sessions.get(client.number)
        assert session is not None
        waiting = broker.call(lambda: session.link.buffered)
        assert bound < waiting < bound + 1024 * 1024
