"""Consumer groups of several nodes: one node has the members, and reads the partitions of all."""

import json
import secrets
import urllib.request
from pathlib import Path

import pytest

from penstock.client import Backoff, connect_sync
from penstock.client.errors import Refused
from penstock.client.options import ProtocolName
from penstock.client.sync import SyncClient, SyncConsumer
from tests.support.kafka_node import Node
from tests.support.served import until
from tools.kafka import KafkaBroker

SECONDS_MAX = 90.0
PATTERN = "orders/#"
QUICK = Backoff(seconds_min=0.1, seconds_max=1)


def client_of(node: Node) -> SyncClient:
    return connect_sync(node.address, protocol="lamamq", timeout=30)


def publish(node: Node, first: int, count: int) -> set[bytes]:
    values = [b"%d" % number for number in range(first, first + count)]
    with client_of(node) as client:
        client.publish_many("orders/1", values)
    return set(values)


def take(messages: SyncConsumer, count: int) -> list[bytes]:
    """Process `count` messages as a member of the group."""
    found = []
    for _ in range(count):
        message = messages.get(SECONDS_MAX)
        assert message.ack()
        found.append(message.value)
    return found


def group(node: Node) -> dict[str, object]:
    with urllib.request.urlopen(f"http://{node.http}/api/groups") as answer:
        groups = json.load(answer)["groups"]
    return next((each for each in groups if each["name"] == "billing"), {})


def refusal(node: Node) -> str:
    """Return why a member is refused; "" if it is not."""
    once = Backoff(attempts_max=0)
    with connect_sync(node.address, protocol="lamamq", timeout=30, backoff=once) as client:
        try:
            with client.consume(PATTERN, group="billing"):
                return ""
        except Refused as error:
            return str(error)


def test_a_group_reads_the_partitions_of_all_nodes_and_goes_on_at_another_one(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = f"groups-{secrets.token_hex(4)}"
    with (
        Node(kafka.address, tmp_path / "a", topic=topic, number=0) as first,
        Node(kafka.address, tmp_path / "b", topic=topic, number=1) as other,
    ):
        with client_of(first) as client, client.consume(PATTERN, group="billing") as messages:
            values = publish(first, 0, 30) | publish(other, 30, 30)
            got = take(messages, 60)
            assert len(got) == 60
            assert set(got) == values
            assert "node 0" in refusal(other)
        until(lambda: not refusal(other), "the members have left", seconds_max=SECONDS_MAX)
        values = publish(first, 60, 10) | publish(other, 70, 10)
        with client_of(other) as client, client.consume(PATTERN, group="billing") as messages:
            assert set(take(messages, 20)) == values
            values = publish(first, 80, 10)
            first.process.popen.kill()
            assert set(take(messages, 10)) == values
            until(
                lambda: (group(other)["lag"], group(other)["unacknowledged"]) == (0, 0),
                "the state is stored",
                seconds_max=SECONDS_MAX,
            )
            other.process.popen.kill()
    with Node(kafka.address, tmp_path / "c", topic=topic, number=2) as third:
        values = publish(third, 90, 10)
        until(lambda: not refusal(third), "the other node is gone", seconds_max=SECONDS_MAX)
        with client_of(third) as client, client.consume(PATTERN, group="billing") as messages:
            assert set(take(messages, 10)) == values


@pytest.mark.parametrize("protocol", ["rheos1", "lamamq"])
def test_a_consumer_finds_the_owner_of_its_group_and_goes_on_at_the_next_node(
    kafka: KafkaBroker, tmp_path: Path, protocol: ProtocolName
) -> None:
    topic = f"groups-{secrets.token_hex(4)}"
    with (
        Node(kafka.address, tmp_path / "a", topic=topic, number=0) as owner,
        Node(kafka.address, tmp_path / "b", topic=topic, number=1) as other,
        client_of(other) as publisher,
        client_of(owner) as first,
        first.consume(PATTERN, group="billing"),
        connect_sync(
            [other.address, owner.address], protocol=protocol, timeout=30, backoff=QUICK
        ) as client,
        client.consume(PATTERN, group="billing") as messages,
    ):
        assert group(owner)["members"] == 2
        owner.process.popen.kill()
        publisher.publish("orders/1", b"a")
        message = messages.get(SECONDS_MAX)
        assert (message.value, message.partition, message.offset) == (b"a", 1, 0)
        assert group(other)["members"] == 1
