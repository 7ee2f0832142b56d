"""The Apache Kafka of `make kafka` and of tests."""

import stat
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tools import kafka as tool
from tools.kafka import KafkaBroker, KafkaFailed, KafkaMissing, free_ports, start_brokers


def test_a_broker_answers_and_keeps_below_its_memory(kafka: KafkaBroker) -> None:
    client = Producer({"bootstrap.servers": kafka.address})
    assert len(client.list_topics(timeout=10).brokers) == 1
    assert kafka.process is not None
    status = Path(f"/proc/{kafka.process.pid}/status").read_text()
    (resident,) = [line for line in status.split("\n") if line.startswith("VmRSS")]
    assert int(resident.split()[1]) < 1 << 20, "more than 1 GiB"


def test_it_is_missing_with_one_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KafkaMissing, match=r"^Java is not installed$"):
        tool.fetch()
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho first; echo no route to host; exit 1\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(KafkaMissing, match="Maven Central: no route to host"):
        tool.fetch()
    assert list((tmp_path / "cache/penstock").iterdir()) == [], "a part of it would be used later"


def test_a_broker_that_does_not_run_is_a_failure(
    kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that need Kafka are skipped if it is missing, but not if it ends or hangs."""
    assert not issubclass(KafkaFailed, KafkaMissing)
    crashes = start_brokers(tmp_path / "a", free_ports(1), {"listeners": "nonsense"})
    with pytest.raises(KafkaFailed, match="a broker ended while starting"), crashes:
        pass
    monkeypatch.setattr(tool, "START_SECONDS_MAX", 0.0)
    with pytest.raises(KafkaFailed, match="did not start"):
        tool._wait([kafka, kafka])
