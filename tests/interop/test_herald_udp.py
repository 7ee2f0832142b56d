"""herald over UDP: clients that start again, repeat themselves, or send what cannot be read."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.gateway.options import GatewayOptions
from penstock.transport.addresses import parse_address
from tests.support import herald_bytes as herald
from tests.support import lamamq_bytes as lama
from tests.support.live import LiveBroker

PING, PONG = herald.frame(0x20), herald.frame(0x21)
MALFORMED, TOO_LARGE = herald.error(7), herald.error(3)


@pytest.fixture(scope="module")
def live() -> Iterator[Any]:
    with LiveBroker() as broker:
        udp = broker.run(lambda: broker.server.listen(parse_address("udp://127.0.0.1:0")))
        broker.udp = (udp.host, udp.port)  # type: ignore[attr-defined]
        yield broker


@contextlib.contextmanager
def caller(live: Any) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.settimeout(5)
        made.connect(live.udp)
        yield made
        made.send(herald.DISCONNECT)


def answer(caller: socket.socket) -> bytes:
    """Return the next datagram that is no PING, and answer those."""
    while True:
        data = caller.recv(65_536)
        if not data.startswith(PING):
            return data
        caller.send(PONG * (len(data) // len(PING)))


def acknowledged(caller: socket.socket) -> bytes:
    """Return the session id of the HANDSHAKE_ACK that comes next."""
    data = answer(caller)
    assert data[:8] == herald.frame(0x03, bytes(9))[:8], data.hex(" ")
    return data[8:16]


def is_proven(live: Any, caller: socket.socket) -> bool:
    name = caller.getsockname()
    listener = live.server._listeners[-1]
    return bool(live.call(lambda: listener.endpoint.is_proven(name)))


def test_another_handshake_from_an_address_replaces_its_session(live: Any) -> None:
    first = herald.handshake_pub(7, b"sensor-before-restart")
    second = herald.handshake_pub(8, b"sensor-after-restart")
    with caller(live) as sensor:
        sensor.send(first)
        before = acknowledged(sensor)
        sensor.send(second)
        after = acknowledged(sensor)
        assert before != after
        sensor.send(second)  # repeated: the acknowledgment may have been lost
        assert acknowledged(sensor) == after
        sensor.send(PING)
        assert answer(sensor) == PONG
        numbers = live.call(lambda: [each.number for each in live.server.broker.sessions])
        assert numbers == [int.from_bytes(after, "little")]


def test_a_client_may_start_again_in_the_other_byte_order(live: Any) -> None:
    with caller(live) as sensor:
        sensor.send(herald.handshake_pub(7, b"sensor-before-restart"))
        acknowledged(sensor)
        sensor.send(herald.handshake_pub(7, b"sensor-after-restart", order=">"))
        assert answer(sensor)[:8] == herald.frame(0x03, bytes(9), order=">")[:8]


def test_a_handshake_of_the_second_role_keeps_the_session(live: Any) -> None:
    with caller(live) as both:
        both.send(herald.handshake_pub(7, b"panel-with-a-long-name"))
        session = acknowledged(both)
        both.send(herald.handshake_sub(b"\x07", b"panel-with-a-long-name"))
        assert acknowledged(both) == session


def test_a_malformed_handshake_replaces_no_session(live: Any) -> None:
    handshake = herald.handshake_pub(7, b"sensor-with-a-long-name")
    with caller(live) as sensor:
        sensor.send(handshake)
        session = acknowledged(sensor)
        sensor.send(herald.frame(0x01, b"\x07\x09short"))
        assert answer(sensor) == herald.error(1)
        sensor.send(handshake)
        assert acknowledged(sensor) == session


def test_an_address_joins_no_group(tmp_path: Path) -> None:
    options = GatewayOptions(herald_replay={7: "@group=billing"})
    with LiveBroker(data=tmp_path, options=options) as broker:
        udp = broker.run(
            lambda: broker.server.listen(parse_address("udp://127.0.0.1:0"), options=options)
        )
        broker.udp = (udp.host, udp.port)  # type: ignore[attr-defined]
        with caller(broker) as panel:
            panel.send(herald.handshake_sub(b"\x07\x08", b"x" * 60))
            acknowledged(panel)
            assert answer(panel) == herald.error(2)
            panel.send(herald.frame(0x11, b"\x07"))
            assert answer(panel) == herald.error(2)
            with herald.publisher(broker) as publisher:
                publisher.send(herald.publish(7, b"a") + herald.publish(8, b"b"))
                assert answer(panel).endswith(b"b")
        groups = broker.server.broker.groups
        assert groups is not None
        assert "billing" not in groups


def test_a_replaced_session_has_to_prove_its_address_again(live: Any) -> None:
    with caller(live) as panel:
        panel.send(herald.handshake_sub(b"\x07", b"x" * 60))
        acknowledged(panel)
        panel.settimeout(0.2)
        while not is_proven(live, panel):
            with contextlib.suppress(TimeoutError):
                answer(panel)
        panel.settimeout(5)
        panel.send(herald.handshake_sub(b"\x08", b"y" * 60))
        acknowledged(panel)
        assert not is_proven(live, panel)


@pytest.mark.parametrize(
    "unreadable",
    [
        b"not herald at all",
        b"\xca\xfe" + PING[2:],
        b"\xfe",
        b"\xfe\xca\x10\x01\x00\x10\x00",  # 1 MiB and one byte
        PING[:5],
    ],
)
def test_a_datagram_that_cannot_be_read_is_malformed_and_the_session_goes_on(
    live: Any, unreadable: bytes
) -> None:
    with caller(live) as sensor:
        sensor.send(herald.handshake_pub(7, b"x" * 60))
        acknowledged(sensor)
        sensor.send(unreadable)
        assert answer(sensor) == MALFORMED
        sensor.send(PING + unreadable)
        assert answer(sensor) == PONG
        assert answer(sensor) == MALFORMED
        sensor.send(PING)
        assert answer(sensor) == PONG


def test_a_handshake_repeated_while_a_hook_decides_gets_one_answer(live: Any) -> None:
    handshake = herald.handshake_pub(7, b"patient-sensor")
    with lama.client(live, b"guard") as guard, caller(live) as sensor:
        guard.request(
            lama.register(1, b"h", lama.CONNECT, strategy=lama.WAIT_OR_REFUSE, timeout_ms=5000)
        )
        sensor.send(handshake)
        call = guard.called(b"h", b"connect")
        for _ in range(3):
            sensor.send(handshake)
        guard.settle()
        guard.answer(call)
        session = acknowledged(sensor)
        sensor.send(PING)
        assert answer(sensor) == PONG  # no ERROR, no second acknowledgment
        sensor.send(handshake)
        assert acknowledged(sensor) == session
        guard.request(lama.unregister(2, b"h"))


def test_unsubscribe_waits_behind_a_subscription_that_a_hook_judges(live: Any) -> None:
    """Once broken: requests that waited for the proof of the address overtook the hook."""
    with lama.client(live, b"guard") as guard, caller(live) as panel:
        guard.request(
            lama.register(1, b"h", lama.SUBSCRIBED, strategy=lama.WAIT_OR_REFUSE, timeout_ms=5000)
        )
        panel.send(herald.handshake_sub(b"\x07\x08", b"x" * 60))
        panel.send(herald.unsubscribe(7) + herald.subscribe(9) + PING)
        pings = 0
        while (data := panel.recv(65_536)) != PONG:
            pings += data.count(PING)
        panel.send(PONG * pings)
        panel.settimeout(0.2)
        while not is_proven(live, panel):
            with contextlib.suppress(TimeoutError):
                answer(panel)
        for channel in (7, 8, 9):
            call = guard.called(b"h", b"subscribe")
            assert call.topic == b"channel/%d" % channel
            guard.answer(call)

        def subscriptions() -> list[str]:
            return [each for s in live.server.broker.sessions for each in s.subscriptions]

        live.until(lambda: subscriptions() == ["channel/8", "channel/9"])
        guard.request(lama.unregister(2, b"h"))


def test_a_publish_whose_message_fits_in_no_datagram_is_too_large(live: Any) -> None:
    counters = live.server.broker.counters
    before = live.call(lambda: sum(counters.messages_received.values()))
    with caller(live) as sensor:
        sensor.send(herald.handshake_pub(7, b"x" * 60))
        acknowledged(sensor)
        sensor.send(herald.publish(7, bytes(65_492)))
        assert answer(sensor) == TOO_LARGE
        sensor.send(herald.publish(7, bytes(65_491)))
        live.until(lambda: sum(counters.messages_received.values()) == before + 1)
