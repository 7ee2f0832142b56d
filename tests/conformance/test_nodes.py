"""Conformance cases whose clients are connected to different nodes of one log on Kafka.

The first connection of a case goes to one node, the second to the other, and so on; the next case
begins with the other node. What one node takes, the other knows a moment later: before a client of the other node
sends anything, that moment is waited for.
"""

import contextlib
import itertools
import secrets
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from penstock.client.address import Address, parse_address
from penstock.conform import Outcome, run, suite
from penstock.conform.connections import Connection, open_connection
from penstock.conform.context import CaseContext
from penstock.core.broker import BrokerSettings
from penstock.protocols import PROTOCOLS, Protocol
from penstock.storage.kafka.log import KafkaLog
from penstock.storage.kafka.options import KafkaOptions
from tests.support.live import LiveBroker
from tools.kafka import KafkaBroker

SECONDS_MAX = 20.0
MARKERS = itertools.count(1)

LOGGED = "another node has what the log has: no unknown header fields, payloads encoded anew"
OWN_CLIENTS = "a node lists the clients of its own"
OWN_MIDDLEWARE = "a middleware judges the clients of its node"
LONG = "it tests one connection after another, for seconds"
EXCEPT = {
    ("fleximq", "payloads-of-every-format-are-delivered"): LOGGED,
    ("fleximq", "header-fields-are-delivered-unchanged"): LOGGED,
    ("fleximq", "a-request-and-its-response-are-unchanged"): LOGGED,
    ("fleximq", "fields-of-requests-are-unchanged"): LOGGED,
    ("fleximq", "a-broadcast-reaches-every-client"): LOGGED,
    ("fleximq", "the-broker-lists-clients"): OWN_CLIENTS,
    ("lamamq", "a-middleware-refuses-a-push"): OWN_MIDDLEWARE,
    ("lamamq", "another-method-gets-no-offer"): LONG,
    ("rheos1", "a-session-may-be-cut-anywhere"): LONG,
    ("rheos2", "a-session-may-be-cut-anywhere"): LONG,
}
"""Cases that hold for the clients of one node alone, and why; docs/kafka.md says so."""

LEAST = {"rheos1": 36, "rheos2": 42, "fleximq": 58, "herald": 42, "lamamq": 25}
"""How many cases of a protocol have two or more connections, at least."""


class Nodes(NamedTuple):
    """Two nodes of one log."""

    lives: tuple[LiveBroker, LiveBroker]

    def address(self, node: int) -> Address:
        return parse_address(f"tcp://127.0.0.1:{self.lives[node].address[1]}")

    def pass_on(self, source: int) -> None:
        """Wait until the other node has everything that this one has taken so far."""
        here, there = self.lives[source], self.lives[1 - source]
        marker = f"marker/{next(MARKERS)}"

        def mark() -> int:
            broker = here.server.broker
            state = here.server.storage.sessions._state
            if state._producer is not None:
                state._producer.flush(SECONDS_MAX)
            broker.log.add_topic(marker, b"")
            return broker.catch_up.own.next_offset

        end = here.call(mark)

        def has_all() -> bool:
            broker = there.server.broker
            return (
                broker.topics.find(marker) is not None
                and broker.catch_up.partitions[source].next_offset >= end
            )

        there.until(has_all, seconds_max=SECONDS_MAX)


class NodesContext(CaseContext):
    """Connects the clients of a case to both nodes in turn, `first` before the other."""

    def __init__(self, nodes: Nodes, first: int) -> None:
        super().__init__(nodes.address(first), seconds_max=SECONDS_MAX)
        self._nodes = nodes
        self._first = first
        self._last_sent: int | None = None
        self.connections = 0

    def connect(self, number: int) -> Connection:
        node = (number + self._first) % 2
        self.connections += 1
        found = open_connection(self._nodes.address(node), seconds_max=SECONDS_MAX)
        return _NodeConnection(found, self, node)

    def before_send(self, node: int) -> None:
        last, self._last_sent = self._last_sent, node
        if last not in {None, node}:
            self._nodes.pass_on(1 - node)


class _NodeConnection:
    def __init__(self, connection: Connection, context: NodesContext, node: int) -> None:
        self._connection = connection
        self._context = context
        self._node = node

    def send(self, data: bytes) -> None:
        self._context.before_send(self._node)
        self._connection.send(data)

    def receive(self, seconds_max: float) -> bytes:
        return self._connection.receive(seconds_max)

    def half_close(self) -> None:
        self._connection.half_close()

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def nodes(kafka: KafkaBroker) -> Iterator[Nodes]:
    topic = f"conformance-{secrets.token_hex(4)}"
    with contextlib.ExitStack() as stack:
        lives = []
        for number in (0, 1):
            options = KafkaOptions(kafka.address, topic, number)
            live = LiveBroker(
                open_storage=lambda options=options: KafkaLog(options), settings=BrokerSettings()
            )
            lives.append(stack.enter_context(live))
        first, second = lives
        first.until(lambda: set(first.server.storage.partitions) == {0, 1}, seconds_max=30)
        yield Nodes((first, second))


@pytest.mark.parametrize("protocol", list(PROTOCOLS), ids=lambda protocol: protocol.label)
def test_cases_hold_for_clients_of_two_nodes(nodes: Nodes, protocol: Protocol) -> None:
    cases = [case for case in suite(protocol.label).cases if case.requires is None]
    failures = []
    several = 0
    for number, case in enumerate(cases):
        if (protocol.label, case.name) in EXCEPT:
            continue
        for node in (0, 1):  # what the last case published is not for this one
            nodes.pass_on(node)
        context = NodesContext(nodes, number % 2)
        (result,) = run(
            [case],
            nodes.address(number % 2),
            seconds_max=SECONDS_MAX,
            profile=True,
            make_context=lambda context=context: context,
        )
        if context.connections < 2:
            continue
        several += 1
        if result.outcome is not Outcome.PASSED:
            failures.append(
                f"{case.name}: {case.rule}\n  sent {result.sent}\n"
                f"  expected {result.expected}\n  got {result.got}{result.reason}"
            )
    assert not failures, "\n".join(failures)
    assert several >= LEAST[protocol.label]
    for live in nodes.lives:
        failed = live.server.broker.counters.connections_failed
        assert live.call(lambda failed=failed: failed["internal error"]) == 0


def test_every_exception_is_a_case() -> None:
    assert EXCEPT.keys() <= {
        (protocol.label, case.name)
        for protocol in PROTOCOLS
        for case in suite(protocol.label).cases
    }
