"""Quotas: what all clients of a principal together may use, in every protocol and over HTTP."""

import http.client
import itertools
import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from penstock.client import ErrorReported, Refused, SyncClient, connect_sync
from penstock.errors import PenstockError
from penstock.flight.client import FlightClient
from penstock.limits import MIB
from penstock.ports import AuditEvent
from penstock.server.config import (
    BrokerConfig,
    Config,
    DataConfig,
    FlightConfig,
    GroupsConfig,
    HttpConfig,
    ListenerConfig,
    LogConfig,
    PrincipalConfig,
    QuotaConfig,
    RoleConfig,
    RuleConfig,
)
from tests.support.commands import Commands
from tests.support.configured import ConfiguredBroker

PROTOCOLS = ("rheos1", "rheos2", "fleximq", "herald", "lamamq")
EVERYTHING = RuleConfig(
    topics=("#",), allow=("publish", "subscribe", "administer", "request", "serve")
)


def configured(data: Path, **quota: int) -> Config:
    """A broker whose clients are all of the principal `panel`."""
    panel = PrincipalConfig(
        "panel", networks=("127.0.0.0/8",), rule=(EVERYTHING,), quota=QuotaConfig(**quota)
    )
    return Config(
        broker=BrokerConfig(durability="os"),
        data=DataConfig(str(data)),
        listener=(ListenerConfig("tcp://127.0.0.1:0", anonymous=False),),
        http=HttpConfig("127.0.0.1:0", anonymous=False),
        principal=(panel,),
    )


def connect(broker: ConfiguredBroker, protocol: str) -> SyncClient:
    return connect_sync(broker.url(0), protocol=protocol, timeout=10)  # type: ignore[arg-type]


def use(client: SyncClient) -> None:
    """Send a request: the session of a Rheos client begins with it."""
    if client.protocol.label.startswith("rheos"):
        client.create_topic("a")


def ask(broker: ConfiguredBroker, method: str, path: str, body: object = None) -> tuple[int, Any]:
    address = broker.running.http
    assert address is not None
    connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=10)
    text = None if body is None else json.dumps(body)
    connection.request(method, path, text, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    found = json.loads(answer.read())
    connection.close()
    return answer.status, found


def metrics(broker: ConfiguredBroker) -> str:
    address = broker.running.http
    assert address is not None
    connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=10)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def reached(broker: ConfiguredBroker) -> dict[str, int]:
    return dict(broker.call(broker.running.authenticator.quotas)[0].reached)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_principal_may_have_so_many_clients(tmp_path: Path, protocol: str) -> None:
    with ConfiguredBroker(configured(tmp_path, connections_max=2)) as broker:
        with connect(broker, "lamamq"), connect(broker, "fleximq"):
            with pytest.raises(PenstockError), connect(broker, protocol) as third:
                use(third)
            assert reached(broker)["connections"] >= 1
        broker.until(lambda: not broker.principals())
        with connect(broker, protocol) as client:
            use(client)
            assert broker.principals() == ["panel"]


@pytest.mark.parametrize("protocol", ["rheos2", "lamamq"])
def test_clients_that_are_acknowledged_wait_above_the_rate(tmp_path: Path, protocol: str) -> None:
    with (
        ConfiguredBroker(configured(tmp_path, messages_per_second_max=50)) as broker,
        connect(broker, protocol) as one,
        connect(broker, "lamamq") as other,
    ):
        if protocol == "rheos2":
            one.create_topic("a")
        began = time.monotonic()
        for _ in range(2):
            one.publish_many("a", [b"x"] * 30)
            other.publish_many("a", [b"y"] * 30)
        seconds = time.monotonic() - began
        assert seconds > 1.0, "120 messages, of which 50 at once"
        assert reached(broker)["messages"] >= 1


@pytest.mark.parametrize("protocol", ["fleximq", "herald"])
def test_messages_above_the_rate_are_refused_without_acknowledgments(
    tmp_path: Path, protocol: str
) -> None:
    with ConfiguredBroker(configured(tmp_path, messages_per_second_max=3)) as broker:
        errors: list[object] = []
        topic: Any = 7 if protocol == "herald" else "a"
        with connect_sync(
            broker.url(0),
            protocol=protocol,  # type: ignore[arg-type]
            timeout=10,
            on_event=lambda event: errors.extend(
                [event.error] if isinstance(event, ErrorReported) else []
            ),
        ) as client:
            client.publish_many(topic, [b"x"] * 50)
            client.ping()
            broker.until(lambda: bool(errors))
        assert reached(broker)["messages"] >= 1
        expected = "RATE_LIMIT" if protocol == "herald" else "3 messages of principal panel"
        assert expected in str(errors[0])


def test_bytes_are_counted_over_http_and_answered_429(tmp_path: Path, commands: Commands) -> None:
    config = configured(tmp_path, bytes_per_second_max=1000)
    with ConfiguredBroker(config) as broker:
        message = {"topic": "a", "text": "x" * 5000}
        assert ask(broker, "POST", "/api/publish", message)[0] == 200
        status, answer = ask(broker, "POST", "/api/publish", message)
        assert status == 429
        assert "1000 bytes of principal panel a second" in str(answer)
        status, answer = ask(broker, "GET", "/api/limits")
        assert answer["quotas"] == [
            {
                "principal": "panel",
                "connections": 0,
                "connections_max": 0,
                "messages_per_second_max": 0,
                "bytes_per_second_max": 1000,
                "stored_bytes": 5001,
                "stored_bytes_max": 0,
                "topics": 1,
                "topics_max": 0,
                "reached": {"bytes": 1},
            }
        ]
        address = broker.running.http
        assert address is not None
        done = commands.run("limits", "--url", f"http://127.0.0.1:{address.port}")
        assert (done.code, done.err) == (0, "")
        assert done.out.splitlines()[-1].split() == [
            *("0", "-", "-", "1,000", "5,001", "-", "1", "-", "1", "panel")
        ]
        unlimited = replace(config.principal[0], quota=QuotaConfig())
        broker.reload(replace(config, principal=(unlimited,)))
        assert ask(broker, "POST", "/api/publish", message)[0] == 200


def test_a_limit_is_that_of_the_principal_its_role_or_the_default(tmp_path: Path) -> None:
    role = RoleConfig("devices", quota=QuotaConfig(connections_max=5, bytes_per_second_max=6))
    config = replace(
        configured(tmp_path, connections_max=9),
        role=(role,),
        quota=QuotaConfig(connections_max=1, bytes_per_second_max=2, messages_per_second_max=3),
    )
    config = replace(config, principal=(replace(config.principal[0], roles=("devices",)),))
    with ConfiguredBroker(config) as broker:
        limits = broker.call(broker.running.authenticator.quotas)[0].limits
        assert (limits.connections_max, limits.bytes_per_second_max) == (9, 6)
        assert limits.messages_per_second_max == 3


def test_a_quota_that_is_reached_is_recorded_once_a_minute(tmp_path: Path) -> None:
    class Records:
        def __init__(self) -> None:
            self.found: list[dict[str, object]] = []

        def record(self, event: AuditEvent, /, **fields: object) -> None:
            if event is AuditEvent.QUOTA_REACHED:
                self.found.append(fields)

    records = Records()
    with ConfiguredBroker(configured(tmp_path, connections_max=1)) as broker:
        broker.running.server.broker.audit = records  # type: ignore[assignment]
        with connect(broker, "lamamq"):
            for _ in range(3):
                with pytest.raises(PenstockError), connect(broker, "fleximq"):
                    pass
        assert reached(broker) == {"connections": 3}
    assert records.found == [{"principal": "panel", "quota": "connections", "limit": 1}]
    records.found.clear()
    with ConfiguredBroker(configured(tmp_path, topics_max=1)) as broker:
        broker.running.server.broker.audit = records  # type: ignore[assignment]
        with connect(broker, "lamamq") as client:
            client.publish("a", b"x")
            for topic in ("b", "c"):
                with pytest.raises(PenstockError, match=r"quota\.topics_max"):
                    client.publish(topic, b"x")
    assert records.found == [{"principal": "panel", "quota": "topics", "limit": 1}]


# --- Bytes in the log -----------------------------------------------------------------------------


def stored(broker: ConfiguredBroker) -> int:
    (panel, _) = broker.call(broker.running.authenticator.quotas)
    return broker.call(lambda: panel.stored.size)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_messages_of_a_principal_whose_room_in_the_log_is_full_are_refused(
    tmp_path: Path, protocol: str
) -> None:
    config = configured(tmp_path, stored_bytes_max=3000)
    errors: list[object] = []
    with (
        ConfiguredBroker(config) as broker,
        connect_sync(
            broker.url(0),
            protocol=protocol,  # type: ignore[arg-type]
            timeout=10,
            on_event=lambda event: errors.extend(
                [event.error] if isinstance(event, ErrorReported) else []
            ),
        ) as client,
    ):
        topic: Any = 7 if protocol == "herald" else "a"
        use(client)
        for _ in range(3):
            client.publish(topic, b"x" * 1000)
        end = broker.call(lambda: broker.running.server.storage.next_offset)
        if protocol in ("fleximq", "herald"):
            client.publish(topic, b"y")
            client.ping()
            broker.until(lambda: bool(errors))
            words = "RATE_LIMIT" if protocol == "herald" else "principal panel has its 3000 bytes"
            assert words in str(errors[0])
        else:
            with pytest.raises(PenstockError, match="3000 bytes" if protocol == "lamamq" else None):
                client.publish(topic, b"y")
        assert broker.call(lambda: broker.running.server.storage.next_offset) == end
        assert reached(broker) == {"stored_bytes": 1}
        raised = replace(config.principal[0], quota=QuotaConfig(stored_bytes_max=9000))
        broker.reload(replace(config, principal=(raised,)))
        client.publish(topic, b"z")
        broker.until(
            lambda: broker.call(lambda: broker.running.server.storage.next_offset) == end + 1
        )


@pytest.mark.parametrize("protocol", ["rheos1", "rheos2", "fleximq", "lamamq"])
def test_a_principal_may_create_so_many_topics(tmp_path: Path, protocol: str) -> None:
    config = configured(tmp_path, topics_max=2)
    errors: list[object] = []
    with (
        ConfiguredBroker(config) as broker,
        connect_sync(
            broker.url(0),
            protocol=protocol,  # type: ignore[arg-type]
            timeout=10,
            on_event=lambda event: errors.extend(
                [event.error] if isinstance(event, ErrorReported) else []
            ),
        ) as client,
    ):
        names = broker.running.server.broker.topics
        before = names.live
        for topic in ("a", "b", "c"):
            try:
                if protocol.startswith("rheos"):
                    client.create_topic(topic)
                client.publish(topic, b"x")
            except PenstockError as error:
                errors.append(error)
        if protocol == "fleximq":
            client.ping()
        broker.until(lambda: bool(errors))
        if not protocol.startswith("rheos"):  # its answers have no text
            assert "quota.topics_max" in str(errors[0])
        assert broker.call(lambda: names.live) == before + 2
        message = {"topic": "d", "text": "x"}
        status, answer = ask(broker, "POST", "/api/publish", message)
        assert (status, "quota.topics_max" in str(answer)) == (503, True)
        assert reached(broker) == {"topics": 2}
        assert 'penstock_quota_reached_total{quota="topics"} 2.0' in metrics(broker)
        raised = replace(config.principal[0], quota=QuotaConfig(topics_max=3))
        broker.reload(replace(config, principal=(raised,)))
        assert ask(broker, "POST", "/api/publish", message)[0] == 200
        _, answer = ask(broker, "GET", "/api/limits")
        assert (answer["quotas"][0]["topics"], answer["quotas"][0]["topics_max"]) == (3, 3)
        assert answer["quotas"][0]["reached"] == {"topics": 2}


def test_topics_of_rows_by_flight_and_of_requests_to_services_count(tmp_path: Path) -> None:
    config = replace(
        configured(tmp_path, topics_max=1),
        flight=FlightConfig(address="127.0.0.1:0", anonymous=False),
    )
    rows = pa.record_batch({"topic": ["a", "b"], "value": [b"x", b"x"]})
    with (
        ConfiguredBroker(config) as broker,
        connect(broker, "lamamq") as server,
        connect_sync(broker.url(0), protocol="fleximq", timeout=2) as client,
    ):
        assert broker.running.flight is not None
        with FlightClient(f"grpc://127.0.0.1:{broker.running.flight.port}") as flight:
            flight.stage([rows], writer="job", epoch=0, partition=0)
            with pytest.raises(PenstockError, match=r"quota\.topics_max"):
                flight.publish_epoch("job", 0, [0])
        assert reached(broker) == {"topics": 1}
        with (
            server.subscribe("service/serve/#"),
            pytest.raises(Refused, match=r"quota\.topics_max"),
        ):
            client.request_service("/price", b"apples")
        assert reached(broker) == {"topics": 2}


def test_bytes_in_the_log_are_counted_after_a_restart_and_over_http(
    tmp_path: Path, commands: Commands
) -> None:
    config = configured(tmp_path, stored_bytes_max=9000)
    message = {"topic": "a", "text": "x" * 5000}
    with ConfiguredBroker(config) as broker:
        assert ask(broker, "POST", "/api/publish", message)[0] == 200
        assert stored(broker) == 5001
    with ConfiguredBroker(config) as broker:
        assert stored(broker) == 5001
        assert ask(broker, "POST", "/api/publish", message)[0] == 200
        status, answer = ask(broker, "POST", "/api/publish", message)
        assert status == 429
        assert "principal panel has its 9000 bytes in the log" in str(answer)
        address = broker.running.http
        assert address is not None
        done = commands.run("limits", "--url", f"http://127.0.0.1:{address.port}")
        line = done.out.splitlines()[-1].split()
        assert line == ["0", "-", "-", "-", "10,002", "9,000", "1", "-", "1", "panel"]
        _, answer = ask(broker, "GET", "/api/limits")
        assert answer["quotas"][0]["stored_bytes"] == 10002
        text = metrics(broker)
        assert 'penstock_stored_bytes{principal="panel"} 10002.0' in text
        assert 'penstock_quota_reached_total{quota="stored_bytes"} 1.0' in text


def test_rows_by_flight_count_and_are_refused(tmp_path: Path) -> None:
    config = replace(
        configured(tmp_path, stored_bytes_max=3000),
        flight=FlightConfig(address="127.0.0.1:0", anonymous=False),
    )
    rows = pa.record_batch({"topic": ["a"] * 3, "value": [b"x" * 1000] * 3})
    with ConfiguredBroker(config) as broker:
        assert broker.running.flight is not None
        with FlightClient(f"grpc://127.0.0.1:{broker.running.flight.port}") as client:
            client.stage([rows], writer="job", epoch=0, partition=0)
            client.publish_epoch("job", 0, [0])
            assert stored(broker) == 3 * 1001
            client.stage([rows], writer="job", epoch=1, partition=0)
            with pytest.raises(PenstockError, match="panel has its 3000 bytes in the log"):
                client.publish_epoch("job", 1, [0])
            assert broker.call(lambda: broker.running.server.storage.next_offset) == 3


def test_counts_are_kept_while_the_broker_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a broker that is killed loses those of the last seconds only."""
    monkeypatch.setattr("penstock.server.stored_counts.STORED_SAVE_SECONDS", 0.05)
    with ConfiguredBroker(configured(tmp_path, stored_bytes_max=9000)) as broker:
        assert ask(broker, "POST", "/api/publish", {"topic": "a", "text": "x" * 700})[0] == 200
        found = broker.running.server.storage.status().location
        kept = Path(found) / "stored-bytes"
        broker.until(lambda: kept.exists() and b"701" in kept.read_bytes())


def test_retention_gives_room_back(tmp_path: Path) -> None:
    config = replace(
        configured(tmp_path, stored_bytes_max=4 * MIB),
        log=LogConfig(segment_bytes_max=MIB, age_seconds_max=1.0),
    )
    with ConfiguredBroker(config) as broker, connect(broker, "lamamq") as client:
        value = b"x" * (MIB // 2)
        for _ in range(8):
            client.publish("a", value)
        with pytest.raises(PenstockError, match="which is its limit"):
            client.publish("a", b"y")
        broker.until(lambda: stored(broker) < 2 * MIB)
        client.publish("a", b"y")


def test_bytes_over_http_are_those_of_topic_value_key_and_headers(tmp_path: Path) -> None:
    with ConfiguredBroker(configured(tmp_path)) as broker:
        message = {"topic": "abc", "text": "v" * 10, "key": "k" * 100, "headers": {"h": "x" * 1000}}
        assert ask(broker, "POST", "/api/publish", message)[0] == 200
        assert stored(broker) == 3 + 10 + 100 + 1 + 1000


def test_bytes_of_fleximq_notifications_are_those_of_their_frames(tmp_path: Path) -> None:
    with (
        ConfiguredBroker(configured(tmp_path)) as broker,
        connect(broker, "fleximq") as client,
    ):
        before = stored(broker)
        client.notify({9999: "/" + "x" * 1000})
        client.ping()
        assert stored(broker) - before > 1000


def test_dead_letters_count_for_the_owner_of_their_group(tmp_path: Path) -> None:
    """Its members need no right to publish: they could fill the log with copies of messages."""
    config = configured(tmp_path, stored_bytes_max=3000)
    rule = RuleConfig(topics=("#",), allow=("publish", "subscribe", "group"))
    panel = replace(config.principal[0], rule=(rule,))
    config = replace(config, principal=(panel,), groups=GroupsConfig(deliveries_max=1))
    with ConfiguredBroker(config) as broker, connect(broker, "lamamq") as client:
        for _ in range(3):
            client.publish("a", b"x" * 1000)

        def end() -> int:
            found: int = broker.call(lambda: broker.running.server.storage.next_offset)
            return found

        before = end()
        with client.consume("a", group="g", start="earliest", timeout=10) as messages:
            for message in itertools.islice(messages, 3):
                message.nack("no")
            broker.until(lambda: "stored_bytes" in reached(broker))
            assert end() == before
            raised = replace(panel, quota=QuotaConfig(stored_bytes_max=4000))
            broker.reload(replace(config, principal=(raised,)))
            broker.until(lambda: reached(broker)["stored_bytes"] > 1 and end() == before + 1)
            raised = replace(panel, quota=QuotaConfig())
            broker.reload(replace(config, principal=(raised,)))
            broker.until(lambda: end() == before + 3)
