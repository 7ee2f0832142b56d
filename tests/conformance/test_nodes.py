"""Conformance cases whose clients are connected to different nodes of one log on Kafka.

The first connection of a case goes to one node, the second to the other, and so on; the next case
begins with the other node. What one node takes, the other knows a moment later: before a client of the other node
sends anything, that moment is waited for.
"""

import contextlib
import itertools
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from penstock.client.address import Address, parse_address
from penstock.conform import Outcome, Setup, run, suite
from penstock.conform.connections import Connection, open_connection
from penstock.conform.context import CaseContext
from penstock.core.broker import BrokerSettings
from penstock.gateway.options import GatewayOptions
from penstock.protocols import PROTOCOLS, Protocol
from penstock.storage.kafka.log import KafkaLog
from penstock.storage.kafka.options import KafkaOptions
from tests.conformance.setups import CHANGES, OPTIONS, PLACES, SERVER
from tests.support.live import LiveBroker
from tools.kafka import KafkaBroker

SECONDS_MAX = 20.0
MARKERS = itertools.count(1)

LOGGED = "another node has what the log has: no unknown header fields, payloads encoded anew"
OWN_CLIENTS = "a node lists the clients of its own"
OWN_OFFSETS = "a node assigns offsets of its own partition"
OWN_MIDDLEWARE = "a middleware judges the clients of its node"
ALONE = "none of its clients gets anything from another"
LONG = "it tests one connection after another, for seconds"
EXCEPT = {
    ("fleximq", "payloads-of-every-format-are-delivered"): LOGGED,
    ("fleximq", "header-fields-are-delivered-unchanged"): LOGGED,
    ("fleximq", "a-request-and-its-response-are-unchanged"): LOGGED,
    ("fleximq", "fields-of-requests-are-unchanged"): LOGGED,
    ("fleximq", "a-broadcast-reaches-every-client"): LOGGED,
    ("fleximq", "the-broker-lists-clients"): OWN_CLIENTS,
    ("fleximq", "without-echo-a-broadcast-does-not-reach-its-sender"): LOGGED,
    ("lamamq", "a-middleware-refuses-a-push"): OWN_MIDDLEWARE,
    ("lamamq", "rules-hold-with-hooks"): OWN_MIDDLEWARE,
    ("lamamq", "another-method-gets-no-offer"): LONG,
    ("rheos1", "a-session-may-be-cut-anywhere"): LONG,
    ("rheos2", "a-session-may-be-cut-anywhere"): LONG,
    ("rheos2", "versions-share-offsets"): OWN_OFFSETS,
}
"""Cases that hold for the clients of one node alone, and why; docs/kafka.md says so."""

OF_THE_NODE = (Setup.CHANNELS, Setup.SUBSCRIPTIONS)
"""Setups with arguments of the node: each runs on nodes of its own."""

LEAST_OF_SETUP = {
    Setup.CHANNELS: 2,
    Setup.HISTORY: 1,
    Setup.NO_ECHO: 5,
    Setup.RATE: 1,
    Setup.REQUEST_TIMEOUT: 3,
    Setup.RULES: 1,
    Setup.SHARED: 14,
    Setup.SUBSCRIPTIONS: 3,
    Setup.WEBSOCKET: 1,
}
"""How many cases of a setup have two or more connections, at least."""

ONE_NODE = {
    Setup.ALLOW_LIST: ALONE,
    Setup.CREDENTIALS: ALONE,
    Setup.HOOKS: OWN_MIDDLEWARE,
    Setup.KEEPALIVE: "its clients must answer sooner than the other node knows what they do",
    Setup.LOG: "it compares message ids of a new log with one partition to the byte",
    Setup.ONE_SESSION: "a node limits the clients of its own",
    Setup.PINNED: ALONE,
    Setup.PROGRAM: "a program is a client of the node that runs it",
    Setup.REQUIRED_HOOKS: OWN_MIDDLEWARE,
    Setup.RESTART: "it restarts the only broker",
    Setup.SHORT_HANDSHAKE: ALONE,
    Setup.SLOW_MIDDLEWARE: OWN_MIDDLEWARE,
    Setup.STRICT: ALONE,
    Setup.UDP: "it sends datagrams to one port",
}
"""Setups whose cases make sense on one node alone, and why."""

LEAST = {"rheos1": 36, "rheos2": 42, "fleximq": 58, "herald": 42, "lamamq": 25}
"""How many cases of a protocol have two or more connections, at least."""


class Nodes:
    """Two nodes of one log. Listeners with the options of a setup are opened once."""

    def __init__(self, stack: contextlib.ExitStack, lives: tuple[LiveBroker, LiveBroker]) -> None:
        self.lives = lives
        self._stack = stack
        self._addresses: dict[Setup | None, tuple[Address, Address]] = {}

    def addresses(self, setup: Setup | None) -> tuple[Address, Address]:
        """Return where both nodes serve clients with a setup."""
        if setup not in self._addresses:
            first, second = (self._listen(live, setup) for live in self.lives)
            self._addresses[setup] = first, second
        return self._addresses[setup]

    def _listen(self, live: LiveBroker, setup: Setup | None) -> Address:
        if setup in PLACES:
            return parse_address(PLACES[setup](live, self._stack))
        port = live.address[1]
        if setup in OPTIONS:
            options = GatewayOptions(**OPTIONS[setup])
            port = live.run(lambda: live.server.listen_tcp(options=options))[1]
        return parse_address(f"tcp://127.0.0.1:{port}")

    @contextlib.contextmanager
    def changed(self, setup: Setup | None) -> Iterator[None]:
        """Change both nodes if the setup says so; restore the time-out of requests."""
        with contextlib.ExitStack() as stack:
            if setup in CHANGES:
                for live in self.lives:
                    requests = live.server.broker.requests
                    stack.callback(setattr, requests, "seconds_max", requests.seconds_max)
                    live.call(lambda live=live: CHANGES[setup](live))
            yield

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

    def __init__(self, nodes: Nodes, addresses: Sequence[Address], first: int) -> None:
        super().__init__(addresses[first], seconds_max=SECONDS_MAX)
        self._addresses = addresses
        self._nodes = nodes
        self._first = first
        self._last_sent: int | None = None
        self.connections = 0

    def connect(self, number: int) -> Connection:
        node = (number + self._first) % 2
        self.connections += 1
        found = open_connection(self._addresses[node], seconds_max=SECONDS_MAX)
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


@contextlib.contextmanager
def two_nodes(kafka: KafkaBroker, **server: Any) -> Iterator[Nodes]:
    topic = f"conformance-{secrets.token_hex(4)}"
    with contextlib.ExitStack() as stack:
        lives = []
        for number in (0, 1):
            options = KafkaOptions(kafka.address, topic, number)
            live = LiveBroker(open_storage=lambda options=options: KafkaLog(options), **server)
            lives.append(stack.enter_context(live))
        first, second = lives
        first.until(lambda: set(first.server.storage.partitions) == {0, 1}, seconds_max=30)
        yield Nodes(stack, (first, second))


@pytest.fixture(scope="module")
def nodes(kafka: KafkaBroker) -> Iterator[Nodes]:
    with two_nodes(kafka, settings=BrokerSettings()) as found:
        yield found


def check(nodes: Nodes, protocol: Protocol, setup: Setup | None) -> int:
    """Run the cases of a setup; return how many have two or more connections."""
    cases = [case for case in suite(protocol.label).cases if case.requires is setup]
    failures = []
    several = 0
    for number, case in enumerate(cases):
        if (protocol.label, case.name) in EXCEPT:
            continue
        for node in (0, 1):  # what the last case published is not for this one
            nodes.pass_on(node)
        addresses = nodes.addresses(setup)
        context = NodesContext(nodes, addresses, number % 2)
        (result,) = run(
            [case],
            addresses[number % 2],
            seconds_max=SECONDS_MAX,
            profile=True,
            setup=setup,
            make_context=lambda context=context: context,
        )
        if result.outcome is not Outcome.PASSED:
            failures.append(
                f"{case.name}: {case.rule}\n  sent {result.sent}\n"
                f"  expected {result.expected}\n  got {result.got}{result.reason}"
            )
        several += context.connections > 1
    assert not failures, "\n".join(failures)
    for live in nodes.lives:
        failed = live.server.broker.counters.connections_failed
        assert live.call(lambda failed=failed: failed["internal error"]) == 0
    return several


@pytest.mark.parametrize("protocol", list(PROTOCOLS), ids=lambda protocol: protocol.label)
def test_cases_hold_for_clients_of_two_nodes(nodes: Nodes, protocol: Protocol) -> None:
    assert check(nodes, protocol, None) >= LEAST[protocol.label]


@pytest.mark.parametrize("setup", [each for each in LEAST_OF_SETUP if each not in OF_THE_NODE])
def test_cases_of_a_setup_hold_for_clients_of_two_nodes(nodes: Nodes, setup: Setup) -> None:
    with nodes.changed(setup):
        several = sum(check(nodes, protocol, setup) for protocol in PROTOCOLS)
    assert several >= LEAST_OF_SETUP[setup]


@pytest.mark.parametrize("setup", OF_THE_NODE)
def test_cases_of_a_setup_of_the_node_hold_for_clients_of_two_nodes(
    kafka: KafkaBroker, setup: Setup
) -> None:
    with two_nodes(kafka, **SERVER[setup]()) as nodes:
        several = sum(check(nodes, protocol, setup) for protocol in PROTOCOLS)
    assert several >= LEAST_OF_SETUP[setup]


def test_every_setup_runs_on_two_nodes_or_makes_sense_on_one_alone() -> None:
    assert set(LEAST_OF_SETUP) ^ set(ONE_NODE) == set(Setup)


def test_every_exception_is_a_case() -> None:
    assert EXCEPT.keys() <= {
        (protocol.label, case.name)
        for protocol in PROTOCOLS
        for case in suite(protocol.label).cases
    }
