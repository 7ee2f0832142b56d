"""`/metrics` of a live broker, read by Prometheus' own parser."""

import dataclasses
import re
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from penstock.limits import METRICS_GROUPS_MAX, METRICS_REASONS_MAX
from penstock.ports import FollowStatus, Subscription
from penstock.storage.arrow.log import ArrowLog
from penstock.storage.group_offsets import GroupOffsets
from tests.support import herald_bytes, lamamq_bytes
from tests.support.http_live import HttpBroker

ROOT = Path(__file__).parents[2]
TLS = ROOT / "tests" / "support" / "tls"
PROTOCOLS = {"rheos1", "rheos2", "fleximq", "herald", "lamamq"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[HttpBroker]:
    with HttpBroker(data=tmp_path) as live:
        yield live


def families(broker: HttpBroker) -> dict[str, Metric]:
    answer = broker.get("/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    return {each.name: each for each in text_string_to_metric_families(answer.body.decode())}


def samples(broker: HttpBroker) -> dict[tuple[str, str], float]:
    """Values by name and by the value of the only label."""
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in families(broker).values()
        for sample in family.samples
    }


def test_messages_and_bytes_are_counted_by_protocol(broker: HttpBroker) -> None:
    with (
        lamamq_bytes.subscriber(broker, b"channel/7") as subscriber,
        herald_bytes.publisher(broker, 7) as publisher,
    ):
        frames = herald_bytes.publish(7, b"abc") * 1000
        publisher.send(frames)
        publisher.settle()
        received = sum(len(subscriber.forwarded().payload) for _ in range(1000))
        assert received == 3000
        # Delivery does not wait for the log.
        broker.until(lambda: broker.server.http.storage.status().end == 1000)
        found = samples(broker)
    assert found["penstock_messages_received_total", "herald"] == 1000
    assert found["penstock_messages_received_total", "lamamq"] == 0
    assert found["penstock_received_bytes_total", "herald"] >= len(frames)
    assert found["penstock_messages_delivered_total", "lamamq"] == 1000
    assert found["penstock_delivered_bytes_total", "lamamq"] > 3000
    assert found["penstock_clients", "herald"] == found["penstock_clients", "lamamq"] == 1
    assert found["penstock_subscriptions", "lamamq"] == 1
    assert found["penstock_connections", ""] == 3  # the one that asks counts too
    assert found["penstock_log_committed_offset", ""] == 1000
    assert found["penstock_log_appended_offset", ""] == 1000


def test_syncs_are_counted_by_commit_and_not_by_message(broker: HttpBroker) -> None:
    with lamamq_bytes.client(broker) as sender:
        batch = b"".join(lamamq_bytes.push(number + 1, b"t", b"x") for number in range(500))
        sender.send(batch)
        for number in range(500):
            sender.expect_answer(number + 1)
    found = samples(broker)
    count = found["penstock_log_sync_seconds_count", ""]
    assert 1 <= count < 500
    assert found["penstock_log_commits_total", ""] == count
    assert found["penstock_log_sync_seconds_sum", ""] > 0
    assert found["penstock_log_durable_offset", ""] == 500
    buckets = [
        sample
        for sample in families(broker)["penstock_log_sync_seconds"].samples
        if sample.name.endswith("_bucket")
    ]
    values = [sample.value for sample in buckets]
    assert values == sorted(values)
    assert (buckets[-1].labels["le"], buckets[-1].value) == ("+Inf", count)


def test_what_is_refused_is_counted(broker: HttpBroker) -> None:
    with herald_bytes.publisher(broker, 7) as publisher:
        publisher.send(herald_bytes.frame(0x77))
        publisher.receive(8)
    context = broker.server.http
    assert isinstance(context.storage, ArrowLog)
    context.storage._appends.unavailable = OSError(28, "No space left on device")
    with lamamq_bytes.client(broker) as sender:
        sender.request(lamamq_bytes.push(0, b"t", b"x"), error=lamamq_bytes.SERVER_EXCEPTION)
    found = samples(broker)
    assert found["penstock_frames_rejected_total", "herald"] == 1
    assert found["penstock_messages_refused_total", "lamamq"] == 1
    assert found["penstock_log_failing", "0"] == 1
    assert found["penstock_ready", ""] == 0
    context.storage._appends.unavailable = None


def test_messages_of_other_nodes_that_are_not_read_are_a_reason_not_to_be_ready(
    broker: HttpBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = broker.server.http.storage
    assert "penstock_follow_failing" not in families(broker), "no other process can write"
    status, reason = storage.status(), "Kafka: no answer for 10 seconds"
    following = FollowStatus(reason, 3, {-1: True, 1: False, 2: True})
    monkeypatch.setattr(storage, "follow_problem", reason)
    status = dataclasses.replace(status, following=following, writers_replaced=2)
    monkeypatch.setattr(storage, "status", lambda: status)
    found = samples(broker)
    assert found["penstock_follow_failing", "1"] == 0
    assert found["penstock_follow_failing", "2"] == 1
    assert found["penstock_follow_state_failing", ""] == 1
    assert found["penstock_follow_replaced_total", ""] == 3
    assert found["penstock_log_writers_replaced_total", ""] == 2
    assert found["penstock_log_failing", "0"] == 0
    assert found["penstock_ready", ""] == 0
    answer = broker.get("/readyz")
    assert answer.status == 503
    assert f"messages of other nodes are not read: {reason}" in answer.body.decode()
    page = (ROOT / "docs" / "http.md").read_text()
    assert "`penstock_follow_failing`" in page
    assert "`penstock_follow_replaced_total`" in page
    assert "`penstock_log_writers_replaced_total`" in page


def test_every_message_has_a_time_from_arrival_to_acknowledgment(broker: HttpBroker) -> None:
    with lamamq_bytes.client(broker) as sender:
        sender.send(b"".join(lamamq_bytes.push(n + 1, b"t", b"x") for n in range(500)))
        for number in range(500):
            sender.expect_answer(number + 1)
    assert broker.publish(topic="t", json=1).status == 200
    found = samples(broker)
    assert found["penstock_acknowledge_seconds_count", ""] == 501
    assert found["penstock_acknowledge_seconds_sum", ""] > 0


def test_the_free_space_of_the_disk_is_shown(broker: HttpBroker, tmp_path: Path) -> None:
    found = samples(broker)
    usage = shutil.disk_usage(tmp_path)
    assert found["penstock_disk_size_bytes", ""] == usage.total
    assert 0 < found["penstock_disk_free_bytes", ""] <= usage.total


def test_certificates_have_their_expiry(broker: HttpBroker) -> None:
    pem = TLS / "localhost.pem"
    address = broker.listen(f"tls://127.0.0.1:0?certificate={pem}&key={TLS / 'localhost.key'}")
    ends = ssl.cert_time_to_seconds("Jan  1 00:00:00 2120 GMT")
    expiry = samples(broker)["penstock_certificate_expiry_timestamp_seconds", address.location]
    assert ends < expiry < ends + 10 * 366 * 86_400


def test_groups_have_a_lag_and_not_too_many_of_them(broker: HttpBroker, tmp_path: Path) -> None:
    for number in range(3):
        assert broker.publish(topic="t", json=number).status == 200
    groups = GroupOffsets(tmp_path)
    for number in range(METRICS_GROUPS_MAX + 5):
        groups.commit(f"g{number:04}", {0: 1})
    found = samples(broker)
    assert found["penstock_groups", ""] == METRICS_GROUPS_MAX + 5
    lags = {label: value for (name, label), value in found.items() if name == "penstock_group_lag"}
    assert len(lags) == METRICS_GROUPS_MAX
    assert set(lags.values()) == {2}
    assert f"g{METRICS_GROUPS_MAX + 4:04}" in lags  # those that reported last
    assert found["penstock_messages_received_total", "http"] == 3


def test_groups_have_a_lag_by_topic_and_not_too_many_of_them(
    broker: HttpBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("a", "b", "b", "c", "c", "c"):
        assert broker.publish(topic=topic, json=1).status == 200
    GroupOffsets(tmp_path).commit("g", {0: 1}, subscription=Subscription(patterns=("+",)))

    def lags() -> dict[tuple[str, str], float]:
        family = families(broker)["penstock_group_topic_lag"]
        return {(each.labels["group"], each.labels["topic"]): each.value for each in family.samples}

    assert lags() == {("g", "b"): 2, ("g", "c"): 3}
    monkeypatch.setattr("penstock.server.http.metrics.METRICS_GROUP_TOPICS_MAX", 1)
    assert lags() == {("g", "c"): 3}


def test_no_label_grows_with_topics_or_clients(broker: HttpBroker) -> None:
    with lamamq_bytes.client(broker, b"some client") as sender:
        for number in range(50):
            sender.request(lamamq_bytes.push(0, b"topic/%d" % number, b"x"))
        failed = broker.server.broker.counters.connections_failed
        broker.call(lambda: failed.update({f"reason {n}": n + 1 for n in range(100)}))
        text = broker.get("/metrics").body.decode()
        found = families(broker)
    assert "topic/" not in text
    assert "some client" not in text
    labels = {
        label
        for name, family in found.items()
        if name.startswith("penstock_")
        for sample in family.samples
        for label in sample.labels
    }
    labels.discard("cause")  # of the last stall, if there was one: functions of Penstock
    assert labels == {
        "protocol", "purpose", "quota", "reason", "share", "status", "version", "le", "outcome",
        "partition",
    }  # fmt: skip
    reasons = [sample.labels["reason"] for sample in found["penstock_connections_failed"].samples]
    assert len(reasons) == METRICS_REASONS_MAX + 1
    assert reasons[-1] == "other"
    protocols = {sample.labels["protocol"] for sample in found["penstock_clients"].samples}
    assert protocols == PROTOCOLS


def test_names_are_by_convention_and_on_the_page(broker: HttpBroker) -> None:
    page = (ROOT / "docs" / "http.md").read_text()
    for name, family in families(broker).items():
        if not name.startswith("penstock_"):
            assert name.startswith("process_"), name
            continue
        assert re.fullmatch(r"penstock_[a-z_]+", name), name
        assert family.documentation
        shown = f"{name}_total" if family.type == "counter" else name
        assert f"`{shown}`" in page, shown


def test_openmetrics_is_spoken_to_who_asks_for_it(broker: HttpBroker) -> None:
    answer = broker.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    assert answer.body.endswith(b"# EOF\n")
