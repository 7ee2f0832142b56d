"""Processes with a log on Kafka: killed, replaced, and without an answer from Kafka."""

import secrets
import signal
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from penstock.client.errors import ConnectionLost, Refused, TimedOut
from penstock.client.sync import SyncClient, connect_sync
from penstock.protocols.rheos2 import RHEOS2
from tests.support.running import Running
from tests.support.served import free_port, until
from tools.kafka import KafkaBroker

SECONDS_MAX = 60.0
NODES = f"nodes-{secrets.token_hex(4)}"
OUTAGE = f"outage-{secrets.token_hex(4)}"
TOPIC = "channel/7"


class Node:
    """A broker as a process, with node 1 of a topic on Kafka."""

    def __init__(
        self, kafka: KafkaBroker, folder: Path, *, topic: str, commit_seconds_max: int = 10
    ) -> None:
        self.address = f"tcp://127.0.0.1:{free_port()}"
        self.http = f"127.0.0.1:{free_port()}"
        self.process = Running(
            "serve",
            *("--storage", f"kafka://{kafka.address}/{topic}?node=1", "--data", folder),
            *("--listen", self.address, "--http", self.http),
            PENSTOCK_STORAGE__COMMIT_SECONDS_MAX=str(commit_seconds_max),
        )

    def __enter__(self) -> Self:
        self.process.__enter__()
        while self.process.line() != "Ready.":
            pass
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.__exit__(kind, error, trace)  # kill -9

    def connect(self) -> SyncClient:
        return connect_sync(self.address, protocol=RHEOS2, timeout=10)

    def readiness(self) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.http}/readyz") as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def history(self, count: int) -> list[bytes]:
        """The first messages of the log."""
        with self.connect() as client:
            stream = client.subscribe(f"{TOPIC}@earliest", timeout=20)
            return [next(stream).value for _ in range(count)]


def test_a_process_that_is_killed_or_replaced_loses_nothing_it_acknowledged(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    values = [b"%d" % number for number in range(40)]
    with Node(kafka, tmp_path / "a", topic=NODES) as first, first.connect() as client:
        ids = [client.publish(TOPIC, value) for value in values[:20]]
        assert len(set(ids)) == 20
    with Node(kafka, tmp_path / "b", topic=NODES) as second, second.connect() as client:
        assert second.history(20) == values[:20]
        ids += [client.publish(TOPIC, value) for value in values[20:30]]
        second.process.popen.send_signal(signal.SIGSTOP)  # it does not see what happens
        with Node(kafka, tmp_path / "c", topic=NODES) as third:
            second.process.popen.send_signal(signal.SIGCONT)
            with pytest.raises((Refused, ConnectionLost, TimedOut)):
                client.publish(TOPIC, b"for the one that was replaced")
            code, output = second.process.wait()
            assert code == 2
            last = output.rstrip("\n").split("\n")[-1]
            assert last.startswith("penstock: another process, on ")
            assert f"taken over node 1 of topic {NODES!r}" in last
            with third.connect() as after:
                ids += [after.publish(TOPIC, value) for value in values[30:]]
            assert third.history(40) == values
    assert len(set(ids)) == 40


def test_without_an_answer_from_kafka_messages_are_refused_until_it_answers(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    outage = Node(kafka, tmp_path, topic=OUTAGE, commit_seconds_max=3)
    with outage as node, node.connect() as client:
        client.publish(TOPIC, b"before")
        assert node.readiness()[0] == 200
        kafka.freeze(frozen=True)
        try:
            with pytest.raises(Refused):
                client.publish(TOPIC, b"lost")
            status, reason = node.readiness()
            assert status == 503
            assert f"partition 1 of topic {OUTAGE}: Kafka: no answer for 3 seconds" in reason
            with pytest.raises(Refused):
                client.publish(TOPIC, b"refused at once")
        finally:
            kafka.freeze(frozen=False)
        until(lambda: node.readiness()[0] == 200, "ready again", seconds_max=SECONDS_MAX)
        client.publish(TOPIC, b"after")
        assert node.history(2) == [b"before", b"after"]
        assert node.process.end()[0] == 0
