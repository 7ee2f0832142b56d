"""LamaMQ sessions as the broker has them, and messages to and from herald."""

import time

import pytest

from tests.support import herald_bytes
from tests.support.lamamq_bytes import (
    BUFFER,
    EMPTY,
    STRING,
    client,
    push,
    subscriber,
)
from tests.support.live import LiveBroker

BINARY = bytes(range(256))


def test_a_session_goes_by_the_identity_name(broker: LiveBroker) -> None:
    with client(broker, "zähler".encode()) as peer:
        peer.settle()
        names = broker.call(lambda: [session.name for session in broker.server.broker.sessions])
        assert "zähler" in names


def test_a_herald_message_comes_as_a_buffer_without_headers_at_the_brokers_time(
    broker: LiveBroker,
) -> None:
    with subscriber(broker, b"channel/9") as listener, herald_bytes.publisher(broker, 9) as peer:
        peer.send(herald_bytes.publish(9, BINARY) + herald_bytes.publish(9, b""))
        one, two = listener.forwarded(), listener.forwarded()
        assert one[2:] == (b"channel/9", [], BUFFER, BINARY)
        assert two[2:] == (b"channel/9", [], EMPTY, b"")
        assert abs(one.created_at - time.time()) < 60


@pytest.mark.parametrize("kind", [STRING, BUFFER])
def test_a_push_reaches_herald_as_its_bare_payload(broker: LiveBroker, kind: int) -> None:
    with herald_bytes.subscriber(broker, b"\x0a") as listener, client(broker) as peer:
        peer.send(push(1, b"channel/10", BINARY, kind=kind, headers=[(b"k", b"v")]))
        assert listener.message()[::2] == (10, BINARY)
