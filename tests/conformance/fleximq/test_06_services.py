"""The broker as client 1: what a REQ to it answers."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.core.access import Action, Principal, Rule
from penstock.gateway.options import GatewayOptions
from tests.conformance.fleximq.client import Client
from tests.support import fleximq_bytes as fx
from tests.support.live import LiveBroker, Peer


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


def test_0601_time_is_in_milliseconds_since_the_epoch(client: Client) -> None:
    before = time.time_ns() // 1_000_000
    answer = service(client, "/time")
    assert answer.keys() == {"timestamp"}
    assert before <= answer["timestamp"] <= time.time_ns() // 1_000_000


def test_0602_topics_are_listed_once_somebody_published_to_them(client: Client) -> None:
    assert "services/new" not in service(client, "/topics")["topics"]
    client.say(fx.PUB, fx.topic("services/new"))
    answer = service(client, "/topics")
    assert "services/new" in answer["topics"]
    assert answer["count"] == len(answer["topics"])


def test_0603_clients_of_all_protocols_are_listed(broker: LiveBroker, client: Client) -> None:
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


def test_0604_stats_count_messages_by_protocol(client: Client) -> None:
    before = service(client, "/stats")
    client.subscribe("services/stats")
    for _ in range(3):
        client.expect(client.say(fx.PUB, fx.topic("services/stats")))
    client.expect(client.say(fx.NOTIF, fx.routing((client.number, "/"))))
    client.say(fx.SUB)
    client.expect_notice(400)
    after = service(client, "/stats")  # which is a message too
    for name, more in (("messages_received", 5), ("messages_sent", 4), ("frames_rejected", 1)):
        assert after[name]["fleximq"] - before[name]["fleximq"] == more, name
    assert after["clients"] >= 1
    assert after["topics"] >= 1


@pytest.mark.parametrize("path", ["", "/", "/topics/", "topics", "/TIME", "/secrets"])
def test_0605_another_path_is_404(client: Client, path: str) -> None:
    client.say(fx.REQ, fx.routing((fx.BROKER, path)), fx.request("s"))
    client.expect_refusal(404, "s")
    client.settle()


def test_0606_topics_that_a_client_may_not_use_are_not_listed() -> None:
    rules = [Rule(allow=True, actions=frozenset({Action.PUBLISH}), pattern="mine/#")]
    options = GatewayOptions(anonymous=Principal("guest", rules, default=False))
    with LiveBroker(options=options) as broker, Client(broker.address) as client:
        client.say(fx.PUB, fx.topic("mine/1"))
        assert service(client, "/topics")["topics"] == ["mine/1"]
