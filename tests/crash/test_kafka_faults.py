"""Faults of nodes and Kafka brokers, counted: what was acknowledged is in Kafka, once, in order.

A subscriber is connected to other nodes, and resumes on the next one after each fault. It gets what
is in Kafka: nothing is missing, and nothing comes twice. `make crash-kafka FAULTS=200` runs it with
three brokers.
"""

import contextlib
import os
import random
import select
import signal
import struct
import sys
import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from penstock.client.errors import ConnectFailed, ConnectionLost, Refused, TimedOut
from penstock.ports import PartitionRange
from penstock.ports.selection import Selection
from penstock.storage.kafka.log import KafkaLog
from penstock.storage.kafka.options import KafkaOptions
from tests.support import herald_bytes as herald
from tests.support.herald_bytes import HeraldPeer
from tests.support.kafka_node import TOPIC, Node
from tests.support.served import until
from tools.kafka import KafkaBroker, KafkaMissing, free_ports, start_brokers

FAULTS = int(os.environ.get("PENSTOCK_KAFKA_FAULTS", "0"))
SEED = int(os.environ.get("PENSTOCK_KAFKA_SEED", "1"))
KINDS = (
    "node killed", "broker killed", "both killed", "node stopped", "node replaced", "zombie",
)  # fmt: skip
OBSERVERS = (2, 3)
"""Nodes without faults of their own."""
ZOMBIE_SECONDS = 30.0
"""How long a node is stopped while another process has its number."""
SILENT_SECONDS = 1.0
NAME = "faults"
CHANNEL = 7
SECONDS = 2.0
"""How long messages are published after each fault."""
ELECTION_SECONDS = 12.0
"""How much longer after the loss of a broker: Kafka waits nine seconds for it."""
STARTS_MAX = 5

pytestmark = pytest.mark.skipif(not FAULTS, reason="set PENSTOCK_KAFKA_FAULTS, or make crash-kafka")


class Listener:
    """A herald subscriber that resumes on one of several nodes after the other."""

    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes
        self.values: list[bytes] = []
        self._peer = self._join(bytes([CHANNEL]))

    def _join(self, channels: bytes) -> HeraldPeer:
        node = self._nodes[0]
        self._nodes = [*self._nodes[1:], node]
        peer = HeraldPeer(address=("127.0.0.1", node.port))
        peer.socket.settimeout(60)
        return peer.join(herald.handshake_sub(channels, b"listener"))

    def read(self, last: bytes | None) -> None:
        """Read until a value has come, and nothing more comes."""
        ends = time.monotonic() + 120
        silent = False
        while not silent or (last is not None and last not in self.values[-10_000:]):
            assert time.monotonic() < ends, f"{last!r} does not arrive"
            readable, _, _ = select.select([self._peer.socket], [], [], SILENT_SECONDS)
            silent = not readable
            if readable:
                self._take()

    def _take(self) -> None:
        magic, opcode, length = struct.unpack("<HBI", self._peer.receive(7))
        body = self._peer.receive(length)
        assert magic == 0xCAFE
        if opcode == 0x13:
            self.values.append(body[9:])
        else:
            assert opcode == 0x20
            self._peer.send(herald.frame(0x21))

    def close(self) -> None:
        self._peer.socket.close()

    def move(self) -> None:
        """Leave without a word, and resume on the next node."""
        self._peer.socket.close()
        self._peer = self._join(b"")


class Campaign:
    """A node, its publisher, and what became of each message."""

    def __init__(self, brokers: list[KafkaBroker], folder: Path) -> None:
        self.brokers = brokers
        self.bootstrap = ",".join(each.address for each in brokers)
        self.folder = folder
        self.acknowledged: list[tuple[bytes, uuid.UUID]] = []
        self.sent = 0
        self.nodes = 0
        self.node = self.start()
        self.observers = [self.start(number) for number in OBSERVERS]
        self.listener = Listener(self.observers)

    def start(self, number: int = 1) -> Node:
        """Start a node, as a supervisor does: again while Kafka elects its leaders."""
        for left in reversed(range(STARTS_MAX)):
            self.nodes += 1
            folder = self.folder / str(self.nodes)
            node = Node(self.bootstrap, folder, topic=NAME, number=number, commit_seconds_max=20)
            try:
                return node.__enter__()
            except AssertionError:
                self.end(node)
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")

    def until_whole(self) -> None:
        """Wait until all brokers are in sync: another fault would be one too many."""
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

        def whole() -> bool:
            with contextlib.suppress(KafkaException):
                topics = client.list_topics(timeout=5).topics
                return all(
                    len(part.isrs) == len(self.brokers)
                    for topic in topics.values()
                    for part in topic.partitions.values()
                )
            return False

        until(whole, "all brokers in sync", seconds_max=300, look_seconds=0.5)

    def end(self, node: Node) -> None:
        node.__exit__(None, None, None)

    def publish(self, seconds: float) -> None:
        """Publish one message after the other; an error is no acknowledgment."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            try:
                with self.node.connect() as client:
                    while time.monotonic() < ends:
                        self.sent += 1
                        value = b"%d" % self.sent
                        answer = client.publish(TOPIC, value)
                        assert answer is not None
                        self.acknowledged.append((value, answer))
            except (ConnectFailed, ConnectionLost, Refused, TimedOut):
                time.sleep(0.1)

    def observe(self) -> None:
        """Let the subscriber read everything, and resume on another node."""
        self.listener.read(self.acknowledged[-1][0] if self.acknowledged else None)
        self.listener.move()

    def cause(self, kind: str, chance: random.Random) -> None:
        broker = chance.choice(self.brokers)
        if "broker" in kind or "both" in kind:
            broker.kill()
        if kind in ("node killed", "both killed"):
            self.end(self.node)
            self.node = self.start()
        elif kind == "node stopped":
            self.node.process.popen.send_signal(signal.SIGSTOP)
            time.sleep(SECONDS)
            self.node.process.popen.send_signal(signal.SIGCONT)
        elif kind == "node replaced":
            old, self.node = self.node, self.start()
            assert old.process.wait()[0] == 2
            self.end(old)
        elif kind == "zombie":
            self.node.process.popen.send_signal(signal.SIGSTOP)
            old, self.node = self.node, self.start()
            self.publish(ZOMBIE_SECONDS)
            old.process.popen.send_signal(signal.SIGCONT)
            assert old.process.wait()[0] == 2
            self.end(old)
        self.publish(SECONDS)
        if broker.process is None:
            self.publish(ELECTION_SECONDS)
            broker.start()
            self.until_whole()


def test_what_was_acknowledged_is_in_kafka_once_and_in_order(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    try:
        with start_brokers(tmp_path / "kafka", free_ports(3)) as brokers:
            campaign = Campaign(brokers, tmp_path)
            try:
                campaign.publish(SECONDS)
                for number in range(FAULTS):
                    kind = KINDS[number % len(KINDS)]
                    before = len(campaign.acknowledged)
                    campaign.cause(kind, chance)
                    campaign.observe()
                    count = len(campaign.acknowledged) - before
                    sys.stdout.write(f"fault {number + 1}: {kind}; {count} acknowledged\n")
                    sys.stdout.flush()
                before = len(campaign.acknowledged)
                campaign.publish(10 * SECONDS)
                assert len(campaign.acknowledged) > before, "it does not recover by itself"
                campaign.observe()
            finally:
                campaign.listener.close()
                for node in (campaign.node, *campaign.observers):
                    campaign.end(node)
            check(campaign)
    except KafkaMissing as error:
        pytest.skip(f"Apache Kafka: {error}")


def check(campaign: Campaign) -> None:
    log = KafkaLog(KafkaOptions(campaign.bootstrap, NAME, node=1))
    try:
        span = PartitionRange(1, *log.bounds()[1])
        rows = [
            (row["value"], uuid.UUID(row["message_id"]), row["offset"])
            for batch in log.scan(span, Selection(), columns=["value", "message_id", "offset"])
            for row in batch.to_pylist()
        ]
    finally:
        log.close()
    values = [value for value, _, _ in rows]
    assert len(set(values)) == len(values), "a message is there twice"
    assert len({offset for _, _, offset in rows}) == len(rows)
    stored = {(value, message_id) for value, message_id, _ in rows}
    missing = [each for each in campaign.acknowledged if each not in stored]
    assert missing == [], f"{len(missing)} of {len(campaign.acknowledged)} acknowledged are lost"
    numbers = [int(value) for value in values]
    assert numbers == sorted(numbers), "the order of one publisher has changed"
    assert campaign.listener.values == values, "the subscriber has missed or repeated messages"
    count = len(campaign.acknowledged)
    sys.stdout.write(f"{campaign.sent} sent, {count} acknowledged, {len(rows)} stored\n")
