"""Messages with a key: stored once, delivered once, acknowledged as often as they are sent."""

import concurrent.futures
import json
from pathlib import Path
from typing import Any

import pytest

from penstock.client import BadOption, HookCall, Refused, SyncClient, Unsupported, connect_sync
from penstock.core.access import Principal
from penstock.core.broker import BrokerSettings
from penstock.gateway.options import GatewayOptions
from penstock.protocols import PROTOCOLS
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.records import plain_records, record_batches
from tests.support import fleximq_bytes as fx
from tests.support import lamamq_bytes as lama
from tests.support.http_live import JSON, Answer, HttpBroker
from tests.support.live import LiveBroker
from tests.support.settling_peers import FleximqPeer

TOPIC = "channel/7"
KEY = "penstock-dedupe"
KEYED = ("lamamq", "fleximq")
every_keyed = pytest.mark.parametrize("publisher", KEYED)


def client(broker: LiveBroker, protocol: str) -> SyncClient:
    host, port = broker.address
    return connect_sync(f"tcp://{host}:{port}", protocol=protocol, name="c", timeout=5)  # type: ignore[arg-type]


def rows(data: Path) -> list[dict[str, Any]]:
    view = LogView(data, partition=0)
    return [row for batch in plain_records(record_batches(view)) for row in batch.to_pylist()]


def values(data: Path) -> list[bytes]:
    return [row["value"] for row in rows(data)]


def publish(broker: HttpBroker, key: str, text: str, *, topic: str = TOPIC) -> Answer:
    body = json.dumps({"topic": topic, "text": text}).encode()
    headers = {**JSON, "Idempotency-Key": key}
    return broker.ask("POST", "/api/publish", body=body, headers=headers)


# --- Delivery -------------------------------------------------------------------------------------


@every_keyed
@pytest.mark.parametrize("subscriber", PROTOCOLS.labels)
@pytest.mark.parametrize("kept", [True, False])
def test_subscribers_of_every_protocol_get_one_of_two_and_what_follows(
    tmp_path: Path,
    publisher: str,
    subscriber: str,
    kept: bool,  # noqa: FBT001
) -> None:
    topic: Any = 7 if subscriber == "herald" else TOPIC
    with (
        LiveBroker(data=tmp_path if kept else None) as broker,
        client(broker, publisher) as sender,
        client(broker, subscriber) as receiver,
        receiver.subscribe(topic, timeout=5) as messages,
    ):
        for value, key in ((b"a", "1"), (b"again", "1"), (b"b", "2"), (b"c", None)):
            sender.publish(TOPIC, value, dedupe=key)
        assert [next(messages).value for _ in range(3)] == [b"a", b"b", b"c"]
        assert broker.call(lambda: broker.server.broker.deduplication.duplicates) == 1
    if kept:
        assert values(tmp_path) == [b"a", b"b", b"c"]


@every_keyed
def test_the_log_has_the_message_as_if_it_had_no_key_but_for_the_correlation(
    tmp_path: Path, publisher: str
) -> None:
    extras: dict[str, Any] = {"lamamq": {"headers": {"a": b"b"}}, "fleximq": {"status": 206}}
    with LiveBroker(data=tmp_path) as broker, client(broker, publisher) as sender:
        for key in (None, "k"):
            sender.publish("t", b"value", dedupe=key, **extras[publisher])
        broker.until(lambda: broker.server.storage.end == 2)  # type: ignore[attr-defined]
    plain, keyed = rows(tmp_path)
    assert plain["correlation"] is None
    assert keyed["correlation"].startswith("dedupe:")
    for different in ("offset", "timestamp", "message_id", "created", "correlation"):
        assert (plain.pop(different) is None) == (keyed.pop(different) is None) or (
            different == "correlation"
        )
    assert keyed == plain


@every_keyed
def test_replay_and_live_delivery_show_the_same_message(tmp_path: Path, publisher: str) -> None:
    with (
        LiveBroker(data=tmp_path) as broker,
        client(broker, publisher) as sender,
        client(broker, "lamamq") as receiver,
        receiver.subscribe("t", timeout=5) as live,
    ):
        sender.publish("t", b"v", dedupe="k")
        first = next(live)
        with receiver.subscribe("#@earliest", timeout=5) as replay:
            second = next(replay)
        assert (first.value, first.headers) == (second.value, second.headers) == (b"v", ())


# --- Whose keys -----------------------------------------------------------------------------------


def test_keys_belong_to_a_topic_and_both_protocols_and_http_share_them(tmp_path: Path) -> None:
    with (
        HttpBroker(data=tmp_path) as broker,
        client(broker, "lamamq") as lamamq,
        client(broker, "fleximq") as fleximq,
    ):
        lamamq.publish("t/1", b"first", dedupe="k")
        lamamq.publish("t/2", b"other topic", dedupe="k")
        fleximq.publish("t/1", b"second", dedupe="k")
        fleximq.ping()
        answer = publish(broker, "k", "third", topic="t/1").json()
    assert (answer["offset"], answer["duplicate"]) == (0, True)
    assert values(tmp_path) == [b"first", b"other topic"]


def test_keys_belong_to_a_principal(tmp_path: Path) -> None:
    with LiveBroker(data=tmp_path) as broker:
        for name in ("one", "other", "one"):
            broker.options = GatewayOptions(anonymous=Principal(name, is_anonymous=True))
            address = broker.run(lambda: broker.server.listen_tcp(options=broker.options))
            url = f"tcp://{address[0]}:{address[1]}"
            with connect_sync(url, protocol="lamamq", timeout=5) as sender:
                sender.publish("t", name.encode(), dedupe="k")
    assert values(tmp_path) == [b"one", b"other"]


# --- HTTP -----------------------------------------------------------------------------------------


def test_http_answers_a_second_request_with_the_id_of_the_first(tmp_path: Path) -> None:
    with HttpBroker(data=tmp_path) as broker:
        first = publish(broker, "k", "a").json()
        second = publish(broker, "k", "b").json()
        metrics = broker.get("/metrics").body.decode()
    assert first["duplicate"] is False
    assert second == {**first, "duplicate": True}
    assert values(tmp_path) == [b"a"]
    assert "penstock_duplicates_total 1.0" in metrics
    assert "penstock_message_keys 1.0" in metrics


def test_of_requests_at_the_same_time_one_is_stored(tmp_path: Path) -> None:
    with HttpBroker(data=tmp_path) as broker, concurrent.futures.ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda n: publish(broker, "k", str(n)).json(), range(8)))
    assert len({answer["message_id"] for answer in answers}) == 1
    assert sum(not answer["duplicate"] for answer in answers) == 1
    assert len(values(tmp_path)) == 1


@pytest.mark.parametrize("key", ["", "k" * 256])
def test_http_refuses_a_key_that_is_empty_or_too_long(tmp_path: Path, key: str) -> None:
    with HttpBroker(data=tmp_path) as broker:
        status, code, message = publish(broker, key, "a").error()
    assert (status, code) == (400, "invalid-message-key")
    assert "expected 1 to 255" in message
    assert values(tmp_path) == []


# --- Refusals -------------------------------------------------------------------------------------


def test_lamamq_refuses_a_key_of_the_wrong_size_and_other_reserved_headers() -> None:
    with LiveBroker() as broker, lama.client(broker) as sender:
        for name, text in (
            (b"penstock-dedupe", b""),
            (b"penstock-dedupe", bytes(256)),
            (b"penstock-other", b"k"),
        ):
            sender.request(lama.push(0, b"t", b"v", headers=[(name, text)]), error=2)
        both = [(b"penstock-dedupe", b"k"), (b"penstock-other", b"k")]
        sender.request(lama.push(0, b"t", b"v", headers=both), error=2)
        assert broker.call(lambda: broker.server.broker.log.next_offset) == 0


@pytest.mark.parametrize("protocol", [each for each in PROTOCOLS.labels if each not in KEYED])
def test_the_library_says_which_protocols_have_no_keys(protocol: str) -> None:
    with LiveBroker() as broker, client(broker, protocol) as sender:
        with pytest.raises(Unsupported, match="dedupe"):
            sender.publish(7 if protocol == "herald" else "t", b"v", dedupe="k")
        assert broker.call(lambda: broker.server.broker.log.next_offset) == 0


@every_keyed
@pytest.mark.parametrize("key", ["", "k" * 256, 7])
def test_the_library_refuses_keys_of_the_wrong_size_or_type(publisher: str, key: Any) -> None:
    with (
        LiveBroker() as broker,
        client(broker, publisher) as sender,
        pytest.raises(BadOption, match="dedupe"),
    ):
        sender.publish("t", b"v", dedupe=key)


def test_the_library_refuses_a_key_with_routing() -> None:
    with (
        LiveBroker() as broker,
        client(broker, "fleximq") as sender,
        pytest.raises(BadOption, match="routing"),
    ):
        sender.publish("t", b"v", dedupe="k", routing={2: "/"})


def test_fleximq_keys_are_text_of_1_to_255_bytes_in_a_pub_without_routing() -> None:
    with LiveBroker() as broker, FleximqPeer(broker.address) as sender:
        for key in (7, "", "k" * 256):
            sender.say(fx.PUB, fx.topic("t"), {KEY: key}, payload=b"\xa1v")
        sender.say(fx.PUB, fx.topic("t"), fx.routing((2, "/")), {KEY: "k"}, payload=b"\xa1v")
        assert sender.settle()[1] == 4
        assert set(sender.statuses) == {400}
        sender.say(fx.PUB, fx.topic("t"), {KEY: None}, payload=b"\xa1v")  # nil is no key
        sender.say(fx.SUB, fx.topic("t"), {KEY: 7})  # nor is an unknown field of another type
        assert sender.settle()[1] == 0
        assert broker.call(lambda: broker.server.broker.log.next_offset) == 1
        assert broker.call(lambda: len(broker.server.broker.deduplication)) == 0


def test_a_fleximq_pub_with_a_routing_entry_for_the_broker_may_have_a_key() -> None:
    with LiveBroker() as broker, FleximqPeer(broker.address) as sender:
        for _ in range(2):
            to_all = fx.topic("t"), fx.routing((1, "/"))
            sender.say(fx.PUB, *to_all, {KEY: "k"}, payload=b"\xa1v")
        assert sender.settle()[1] == 0
        assert broker.call(lambda: broker.server.broker.log.next_offset) == 1


@pytest.mark.parametrize("publisher", KEYED)
def test_middleware_judges_a_message_with_a_key_and_does_not_see_the_key(
    tmp_path: Path, publisher: str
) -> None:
    seen: list[Any] = []

    def judge(call: HookCall) -> str | None:
        seen.append(call.packet)
        return "too bad" if call.value == b"bad" else None

    with (
        LiveBroker(data=tmp_path) as broker,
        client(broker, "lamamq") as guard,
        client(broker, publisher) as sender,
        guard.middleware("judge", judge),
    ):
        if publisher == "lamamq":
            with pytest.raises(Refused, match="too bad"):
                sender.publish("t", b"bad", dedupe="k")
        else:
            sender.publish("t", b"bad", dedupe="k")
        sender.publish("t", b"good", dedupe="k")
        sender.publish("t", b"again", dedupe="k")
        broker.until(lambda: broker.server.broker.deduplication.duplicates == 1)
    assert len(seen) == 3
    assert not any(KEY in str(each) for each in seen)
    assert values(tmp_path) == [b"good"]


# --- Restarts -------------------------------------------------------------------------------------


@every_keyed
def test_keys_outlive_a_restart_and_their_window_does_not_begin_again(
    tmp_path: Path, publisher: str
) -> None:
    with LiveBroker(data=tmp_path) as broker, client(broker, publisher) as sender:
        sender.publish("t", b"first", dedupe="k")
        broker.until(lambda: broker.server.storage.end == 1)  # type: ignore[attr-defined]
    with HttpBroker(data=tmp_path) as broker, client(broker, publisher) as sender:
        sender.publish("t", b"second", dedupe="k")
        sender.publish("t", b"new", dedupe="n")
        answer = publish(broker, "k", "third", topic="t").json()
        assert (answer["offset"], answer["duplicate"], answer["durable"]) == (0, True, True)
        broker.until(lambda: broker.server.storage.end == 2)  # type: ignore[attr-defined]
    short = BrokerSettings(dedupe_seconds=0.001)
    with LiveBroker(data=tmp_path, settings=short) as broker, client(broker, publisher) as sender:
        sender.publish("t", b"later", dedupe="k")
        broker.until(lambda: broker.server.storage.end == 3)  # type: ignore[attr-defined]
    assert values(tmp_path) == [b"first", b"new", b"later"]


def test_after_a_restart_only_the_window_is_read(tmp_path: Path) -> None:
    with LiveBroker(data=tmp_path) as broker, client(broker, "lamamq") as sender:
        for number in range(3):
            sender.publish("t", b"%d" % number, dedupe=str(number))
    times = [row["timestamp"] for row in rows(tmp_path)]
    since_us = int(times[-1].timestamp() * 1_000_000)
    found: list[Any] = []
    starts: list[int] = []
    with LiveBroker(data=tmp_path) as broker:
        storage = broker.server.storage
        scan = storage.scan

        def noted(span: Any, *arguments: Any, **more: Any) -> Any:
            starts.append(span.start)
            return scan(span, *arguments, **more)

        storage.scan = noted  # type: ignore[method-assign]
        load = broker.server.broker.deduplication.load
        assert load is not None
        broker.call(lambda: load(since_us, found.extend))
        broker.until(lambda: found)
    assert [key.offset for key in found] == [2]
    assert starts == [2]


def test_the_keys_of_a_deleted_topic_are_forgotten(tmp_path: Path) -> None:
    with LiveBroker(data=tmp_path) as broker, client(broker, "lamamq") as publisher:
        publisher.publish("jobs/1", b"first", dedupe="k")
        publisher.publish("jobs/2", b"other", dedupe="k")
        broker.call(lambda: broker.server.broker.delete_topic("jobs/1"))
        publisher.publish("jobs/1", b"again", dedupe="k")
        publisher.publish("jobs/1", b"twice", dedupe="k")
        publisher.publish("jobs/2", b"twice", dedupe="k")
        broker.call(lambda: broker.server.broker.delete_topic("jobs/2"))
    assert values(tmp_path) == [b"first", b"other", b"again"]
    with LiveBroker(data=tmp_path) as broker, client(broker, "lamamq") as publisher:
        publisher.publish("jobs/2", b"after a restart", dedupe="k")
    assert values(tmp_path) == [b"first", b"other", b"again", b"after a restart"]
