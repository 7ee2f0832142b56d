"""A log on a Kafka that asks for TLS and SASL: `[storage.kafka]`."""

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from penstock.errors import CannotReadKafka, KafkaUnusable, LogDamaged
from penstock.ports import PartitionRange
from penstock.storage.kafka import cluster_topics
from penstock.storage.kafka.log import KafkaLog
from penstock.storage.kafka.moving import import_log
from penstock.storage.kafka.options import KafkaOptions, KafkaReadOptions
from penstock.storage.kafka.range_reader import RangeReader
from tests.support import running
from tests.support.kafka_node import TOPIC, Node
from tests.support.kafka_secure import PASSWORD, TLS, SecureKafka, start_secure_kafka
from tools.kafka import KafkaMissing

pytestmark = pytest.mark.kafka

WRONG = "hunter2"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    try:
        with start_secure_kafka(tmp_path_factory.mktemp("secure")) as found:
            yield found
    except KafkaMissing as error:
        pytest.skip(f"Apache Kafka: {error}")


def file_with(folder: Path, settings: dict[str, str]) -> Path:
    file = folder / "penstock.toml"
    file.write_bytes(
        msgspec.toml.encode(
            {"storage": {"kind": "kafka", "bootstrap": "overridden:1", "kafka": settings}}
        )
    )
    return file


def unexpected(error: LogDamaged) -> None:
    raise error


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_node_commits_delivers_and_is_read_with_tls_and_sasl(
    secure: SecureKafka, tmp_path: Path, mechanism: str
) -> None:
    settings = secure.settings(mechanism)
    topic = f"tls-{secrets.token_hex(4)}"
    config = file_with(tmp_path, settings)
    errors = tmp_path / "errors.txt"
    with (
        Node(secure.address, tmp_path, topic=topic, config=config, errors=errors) as node,
        node.connect() as publisher,
        node.connect() as subscriber,
    ):
        stream = subscriber.subscribe(TOPIC, timeout=20)
        values = [b"%d" % number for number in range(3)]
        for value in values:
            publisher.publish(TOPIC, value)
        assert [next(stream).value for _ in values] == values
        assert node.history(3) == values
    assert PASSWORD not in errors.read_text()
    options = KafkaReadOptions(secure.address, topic, settings=settings)
    with contextlib.closing(RangeReader(options, log_id=0, heads={})) as reader:  # of Spark
        records = reader.records(PartitionRange(1, 0, 3), 0)
        assert sum(each.group.count for each in records) == 3
    moved = import_log(
        options, tmp_path / "copy", partition=1, damaged=unexpected, progress=lambda _: None
    )
    assert moved.messages == 3


def test_a_wrong_password_ends_the_start_and_names_the_setting(
    secure: SecureKafka, tmp_path: Path
) -> None:
    config = file_with(tmp_path, secure.settings(sasl_password=WRONG))
    storage = f"kafka://{secure.address}/refused"
    with running.Running(
        "serve", "--storage", storage, "--config", config, "--data", tmp_path / "data"
    ) as process:
        code, output = process.wait()
    assert code == 2
    last = output.rstrip("\n").split("\n")[-1]
    assert last.startswith(f"penstock: cannot keep messages on Kafka at {secure.address}: ")
    assert "Invalid username or password" in last
    assert "sasl.password in [storage.kafka]" in last
    assert WRONG not in output


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (
            {"ssl_ca_location": str(TLS / "client-ca.pem")},
            "certificate verify failed.*check ssl.ca.location and",
        ),
        ({"ssl_ca_location": "/no/such.pem"}, "ssl.ca.location failed"),
        ({"sasl_mechanism": "SCRAM-SHA-512"}, "Unsupported SASL mechanism.*check sasl.mechanism"),
        ({"sasl_pasword": WRONG}, '"sasl.pasword".*check'),
        ({"max_in_flight": "6"}, "max.in.flight.*check"),
        ({"session_timeout_ms": "3600000"}, "session.timeout.ms.*check"),
    ],
    ids=["other CA", "no CA", "mechanism", "unknown", "producer", "consumer"],
)
def test_settings_with_which_kafka_cannot_be_used_are_named(
    secure: SecureKafka, changed: dict[str, str], reason: str
) -> None:
    options = KafkaOptions(secure.address, "refused", settings=secure.settings(**changed))
    with pytest.raises(KafkaUnusable, match=reason) as caught:
        KafkaLog(options)
    assert WRONG not in str(caught.value)
    assert PASSWORD not in str(caught.value)


def test_a_reader_with_a_wrong_password_is_told_why(
    secure: SecureKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_topics, "KAFKA_READ_SECONDS_MAX", 3.0)
    settings = secure.settings(sasl_password=WRONG)
    options = KafkaReadOptions(secure.address, "refused", settings=settings)
    with pytest.raises(CannotReadKafka, match="Invalid username or password") as caught:
        import_log(
            options, tmp_path / "copy", partition=1, damaged=unexpected, progress=lambda _: None
        )
    assert WRONG not in str(caught.value)
