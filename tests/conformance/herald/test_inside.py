"""herald sessions that resume, which needs to know when the broker has seen the end of one."""

import time

from tests.support.herald_bytes import (
    DISCONNECT,
    HeraldPeer,
    handshake_sub,
    publish,
    publisher,
    subscriber,
)
from tests.support.live import LiveBroker


def test_a_message_carries_the_brokers_time_in_microseconds(broker: LiveBroker) -> None:
    with subscriber(broker) as peer, publisher(broker) as sender:
        before = time.time_ns() // 1000
        sender.send(publish(7, b"now"))
        _, timestamp, _ = peer.message()
        assert before - 1 <= timestamp <= time.time_ns() // 1000


def test_a_client_that_was_cut_off_resumes_its_subscriptions(broker: LiveBroker) -> None:
    with HeraldPeer(broker) as peer:
        peer.join(handshake_sub(b"\x32\x33", b"wanderer"))
    wait_until_gone(broker, "wanderer")
    with HeraldPeer(broker) as peer, publisher(broker) as sender:
        peer.join(handshake_sub(b"\x34", b"wanderer")).settle()
        sender.send(publish(50, b"a") + publish(51, b"b") + publish(52, b"c"))
        assert [peer.message()[::2] for _ in range(3)] == [(50, b"a"), (51, b"b"), (52, b"c")]


def test_a_client_that_disconnected_does_not_resume(broker: LiveBroker) -> None:
    with HeraldPeer(broker) as peer:
        peer.join(handshake_sub(b"\x32", b"leaver"))
        peer.send(DISCONNECT)
        peer.expect_close()
    wait_until_gone(broker, "leaver")
    with HeraldPeer(broker) as peer, publisher(broker) as sender:
        peer.join(handshake_sub(b"\x35", b"leaver")).settle()
        sender.send(publish(50, b"not this") + publish(53, b"this"))
        assert peer.message()[::2] == (53, b"this")


def wait_until_gone(broker: LiveBroker, name: str) -> None:
    deadline = time.monotonic() + 5
    while broker.call(lambda: any(s.name == name for s in broker.server.broker.sessions)):
        assert time.monotonic() < deadline
        time.sleep(0.005)
