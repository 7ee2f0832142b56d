"""`[[hooks.required]]` on the nodes of one log: a middleware judges the clients of its node."""

import secrets
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import lamamq_bytes as lama
from tests.support.kafka_node import Node
from tools.kafka import KafkaBroker

SECONDS_MAX = 30.0
GUARDED = b"guarded/a"
OPEN = b"open/a"
CONFIG = '[[hooks.required]]\ntopics = ["guarded/#"]\n'


@pytest.fixture(scope="module")
def nodes(kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    """Two nodes of one log; both require a middleware for the same topics."""
    folder = tmp_path_factory.mktemp("hooks")
    config = folder / "penstock.toml"
    config.write_text(CONFIG)
    topic = f"hooks-{secrets.token_hex(4)}"
    with (
        Node(kafka.address, folder / "0", topic=topic, number=0, config=config) as first,
        Node(kafka.address, folder / "1", topic=topic, number=1, config=config) as second,
    ):
        yield [first, second]


def connect(node: Node, name: bytes) -> lama.LamaPeer:
    place: Any = SimpleNamespace(address=("127.0.0.1", node.port))
    peer = lama.client(place, name)
    peer.socket.settimeout(SECONDS_MAX)
    return peer


def test_each_node_needs_a_middleware_of_its_own(nodes: list[Node]) -> None:
    with (
        connect(nodes[0], b"guard") as guard,
        connect(nodes[1], b"guard") as same_guard,
        connect(nodes[0], b"p") as here,
        connect(nodes[1], b"p") as there,
        connect(nodes[0], b"s") as reader_here,
        connect(nodes[1], b"s") as reader_there,
    ):
        for reader in (reader_here, reader_there):
            reader.request(lama.subscribe(0, GUARDED))
            reader.request(lama.subscribe(0, OPEN))

        def accepted(middleware: lama.LamaPeer, publisher: lama.LamaPeer, payload: bytes) -> None:
            publisher.send(lama.push(1, GUARDED, payload))
            middleware.answer(middleware.called(b"guard", b"push"))
            publisher.expect_answer(1)
            # A message that one node has taken is not judged again by the other.
            assert reader_here.forwarded().payload == payload
            assert reader_there.forwarded().payload == payload

        guard.request(lama.register(1, b"guard", lama.PUSHED))
        accepted(guard, here, b"1")
        there.request(lama.push(1, GUARDED, b"refused"), error=lama.TIMEOUT)
        there.request(lama.push(1, OPEN, b"2"))
        assert reader_here.forwarded().payload == b"2"
        assert reader_there.forwarded().payload == b"2"

        same_guard.request(lama.register(1, b"guard", lama.PUSHED))
        accepted(same_guard, there, b"3")
        accepted(guard, here, b"4")

        guard.request(lama.unregister(1, b"guard"))
        here.request(lama.push(1, GUARDED, b"refused"), error=lama.TIMEOUT)
        accepted(same_guard, there, b"5")
