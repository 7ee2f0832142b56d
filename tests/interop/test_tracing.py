"""A sampled message is followed: received, appended, durable, delivered, and read by Spark."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.client import SyncClient, connect_sync
from penstock.server.config import TracingConfig
from penstock.server.tracing import start_tracing
from tests.support.collector import Collector, Seen
from tests.support.http_live import JSON, HttpBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRACE, PUBLISHER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{PUBLISHER}-01"
NOT_SAMPLED = f"00-{TRACE}-{PUBLISHER}-00"
IN_BROKER = {"received", "appended", "durable", "delivered"}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


class TracedBroker(HttpBroker):
    """A broker whose spans go to a collector when it stops, at the latest."""

    def trace(self, collector: Collector, *, every: int = 0, publishers: bool = True) -> None:
        config = TracingConfig(endpoint=collector.url, every=every, publishers=publishers)
        self.sender = self.call(lambda: start_tracing(config, self.server.broker))

    def flush(self) -> None:
        self.sender.close()

    def client(self, name: str, protocol: str = "lamamq") -> SyncClient:
        url = "tcp://{}:{}".format(*self.address)
        return connect_sync(url, protocol=protocol, name=name, timeout=30)  # type: ignore[arg-type]


def check_way(spans: dict[str, Seen]) -> None:
    """The spans of the broker are one trace, each a child of `received`."""
    received = spans["received"]
    for name in IN_BROKER - {"received"}:
        assert spans[name].trace_id == received.trace_id
        assert spans[name].parent_id == received.span_id
        assert (
            spans[name].attributes["messaging.message.id"]
            == (received.attributes["messaging.message.id"])
        )
    assert spans["appended"].start_ns == received.start_ns
    assert spans["appended"].end_ns == spans["durable"].start_ns == spans["delivered"].start_ns
    assert spans["durable"].end_ns >= spans["durable"].start_ns
    assert spans["durable"].attributes["penstock.durability"] == "fsync"
    assert spans["delivered"].attributes["penstock.subscribers"] == 1
    assert not any(each.failed for each in spans.values())
    assert {each.service for each in spans.values()} == {"penstock"}


def test_a_message_is_followed_from_its_publisher_to_spark(
    tmp_path: Path, collector: Collector, spark: "SparkSession"
) -> None:
    with TracedBroker(data=tmp_path / "data") as broker:
        broker.trace(collector)
        with (
            broker.client("sensor") as sensor,
            broker.client("panel") as panel,
            panel.subscribe("plant/#", timeout=30) as received,
        ):
            sensor.publish("plant/other", b"without a context")
            sensor.publish("plant/temp", b"21.5", headers={"traceparent": SAMPLED})
            delivered = [received.get(30), received.get(30)]
        assert delivered[1].headers == (("traceparent", SAMPLED.encode()),)
        spans = collector.until(lambda found: found.keys() >= IN_BROKER)
    assert len(collector.spans) == len(IN_BROKER)
    assert (spans["received"].trace_id, spans["received"].parent_id) == (TRACE, PUBLISHER)
    check_way(spans)
    attributes = spans["received"].attributes
    assert attributes["messaging.destination.name"] == "plant/temp"
    assert (attributes["penstock.protocol"], attributes["penstock.offset"]) == ("lamamq", 1)
    assert attributes["messaging.client.id"] == "sensor"
    frame = spark.read.format("penstock").option("traces", collector.url)
    rows = frame.load(str(tmp_path / "data")).select("topic").collect()
    assert len(rows) == 2
    batch = collector.until(lambda found: "spark batch" in found)["spark batch"]
    assert (batch.trace_id, batch.parent_id) == (TRACE, spans["received"].span_id)
    assert batch.attributes["messaging.message.id"] == attributes["messaging.message.id"]
    assert batch.attributes["messaging.batch.message_count"] == 2
    assert batch.service == "penstock-spark"
    assert sum(each.name == "spark batch" for each in collector.spans) == 1


def test_the_context_of_a_request_becomes_a_header_of_its_message(
    tmp_path: Path, collector: Collector
) -> None:
    body = json.dumps({"topic": "plant/temp", "text": "21.5"}).encode()
    with TracedBroker(data=tmp_path) as broker:
        broker.trace(collector)
        with broker.client("panel") as panel, panel.subscribe("#", timeout=30) as received:
            headers = {**JSON, "traceparent": SAMPLED}
            answer = broker.ask("POST", "/api/publish", body=body, headers=headers)
            assert answer.status == 200
            assert received.get(30).value == b"21.5"
        check_way(collector.until(lambda found: found.keys() >= IN_BROKER))
        stored = broker.get("/api/messages?topic=plant/temp").json()["messages"]
    assert [each["name"] for each in stored[0]["headers"]] == ["traceparent"]
    found = next(each for each in collector.spans if each.name == "received")
    assert (found.trace_id, found.parent_id) == (TRACE, PUBLISHER)
    assert found.attributes["penstock.protocol"] == "http"


def test_messages_of_protocols_without_headers_are_sampled_by_their_offset(
    tmp_path: Path, collector: Collector
) -> None:
    with TracedBroker(data=tmp_path) as broker:
        broker.trace(collector, every=10)
        with broker.client("c", "rheos2") as client:
            for number in range(25):
                client.publish("channel/7", b"%d" % number)
        broker.flush()
    received = [each for each in collector.spans if each.name == "received"]
    assert [each.attributes["penstock.offset"] for each in received] == [0, 10, 20]
    for each in received:
        identity = each.attributes["messaging.message.id"]
        assert (each.trace_id, each.parent_id) == (identity.replace("-", ""), "")
    assert not any(each.name == "delivered" for each in collector.spans)  # there is no subscriber


@pytest.mark.parametrize("publishers", [True, False])
def test_only_sampled_messages_are_followed(
    tmp_path: Path, collector: Collector, *, publishers: bool
) -> None:
    given = NOT_SAMPLED if publishers else SAMPLED
    with TracedBroker(data=tmp_path) as broker:
        broker.trace(collector, publishers=publishers)
        with broker.client("c") as client:
            client.publish("plant/temp", b"1", headers={"traceparent": given})
            client.publish("plant/temp", b"2", headers={"traceparent": "nonsense"})
        broker.flush()
    assert collector.spans == []


def test_without_a_collector_nothing_is_traced_and_nothing_is_loaded(tmp_path: Path) -> None:
    with HttpBroker(data=tmp_path) as broker:
        assert start_tracing(TracingConfig(), broker.server.broker) is None
        assert broker.server.broker.delivery.traces is None
        headers = {**JSON, "traceparent": SAMPLED}
        body = json.dumps({"topic": "t", "text": "1"}).encode()
        assert broker.ask("POST", "/api/publish", body=body, headers=headers).status == 200
        stored = broker.get("/api/messages?topic=t").json()["messages"]
    assert stored[0]["headers"] == []
