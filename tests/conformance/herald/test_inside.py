"""herald sessions that resume, which needs to know when the broker has seen the end of one."""

import time

from penstock.gateway.options import GatewayOptions
from tests.support import lamamq_bytes as lama
from tests.support.herald_bytes import (
    DISCONNECT,
    HeraldPeer,
    frame,
    handshake_pub,
    handshake_sub,
    publish,
    publisher,
    subscriber,
)
from tests.support.live import LiveBroker, Peer


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
        peer.join(handshake_sub(b"", b"wanderer")).settle()
        sender.send(publish(50, b"a") + publish(51, b"b") + publish(52, b"c"))
        assert [peer.message()[::2] for _ in range(2)] == [(50, b"a"), (51, b"b")]


def test_the_channels_of_a_handshake_are_the_channels(broker: LiveBroker) -> None:
    with HeraldPeer(broker) as peer:
        peer.join(handshake_sub(b"\x32\x33", b"chooser"))
    wait_until_gone(broker, "chooser")
    with HeraldPeer(broker) as peer, publisher(broker) as sender:
        peer.join(handshake_sub(b"\x33\x34", b"chooser")).settle()
        sender.send(publish(50, b"a") + publish(51, b"b") + publish(52, b"c"))
        assert [peer.message()[::2] for _ in range(2)] == [(51, b"b"), (52, b"c")]
        peer.settle()


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


def test_a_broker_that_stops_sends_disconnect() -> None:
    with LiveBroker() as live:
        peers: list[Peer] = [publisher(live), subscriber(live), subscriber(live, order=">")]
        with HeraldPeer(live) as leaver:
            leaver.join(handshake_sub(b"\x07", b"")).send(DISCONNECT)
            leaver.expect_close()
    for peer in peers:
        order = peer.order  # type: ignore[attr-defined]
        peer.expect(frame(0x04, order=order))
        peer.expect_close()
        peer.socket.close()


def test_a_client_whose_session_the_broker_ends_gets_disconnect(broker: LiveBroker) -> None:
    with subscriber(broker) as peer:
        number = peer.session_id
        session = broker.call(lambda: broker.server.broker.sessions.get(number))
        broker.call(session.end)
        peer.expect(DISCONNECT)
        peer.expect_close()


def test_a_connect_hook_slower_than_the_handshake_deadline_ends_in_unauthorized() -> None:
    options = GatewayOptions(handshake_seconds_max=0.3)
    with LiveBroker(options=options) as live, lama.client(live, b"guard") as guard:
        hook = lama.register(1, b"h", lama.CONNECT, strategy=lama.WAIT_OR_REFUSE, timeout_ms=5000)
        guard.request(hook)
        for handshake in (handshake_pub(7, b"late"), handshake_sub(b"\x07", b"late")):
            with HeraldPeer(live) as peer:
                peer.send(handshake)
                guard.called(b"h", b"connect")
                peer.expect(frame(0x03, bytes([8]) + bytes(8)))
                peer.expect_close()
