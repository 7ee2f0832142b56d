"""Processes with a log on Kafka: killed, replaced, and without an answer from Kafka."""

import secrets
import signal
from pathlib import Path

import pytest

from penstock.client.errors import ConnectionLost, Refused, TimedOut
from tests.support.kafka_node import TOPIC, Node
from tests.support.served import until
from tools.kafka import KafkaBroker

SECONDS_MAX = 60.0
NODES = f"nodes-{secrets.token_hex(4)}"
OUTAGE = f"outage-{secrets.token_hex(4)}"


def test_a_process_that_is_killed_or_replaced_loses_nothing_it_acknowledged(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    values = [b"%d" % number for number in range(40)]
    with Node(kafka.address, tmp_path / "a", topic=NODES) as first, first.connect() as client:
        ids = [client.publish(TOPIC, value) for value in values[:20]]
        assert len(set(ids)) == 20
    with Node(kafka.address, tmp_path / "b", topic=NODES) as second, second.connect() as client:
        assert second.history(20) == values[:20]
        ids += [client.publish(TOPIC, value) for value in values[20:30]]
        second.process.popen.send_signal(signal.SIGSTOP)  # it does not see what happens
        with Node(kafka.address, tmp_path / "c", topic=NODES) as third:
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
    outage = Node(kafka.address, tmp_path, topic=OUTAGE, commit_seconds_max=3)
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
