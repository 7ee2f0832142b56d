"""Section 3.7: PING and PONG, both ways."""

import time
from collections.abc import Iterator

import pytest

from penstock.gateway.fleximq import FleximqShared
from tests.conformance.fleximq.client import Client
from tests.support import fleximq_bytes as fx
from tests.support.live import LiveBroker

SECONDS = 0.25


@pytest.fixture(scope="module")
def watchful() -> Iterator[LiveBroker]:
    """A broker that pings clients after a quarter of a second of silence."""
    with LiveBroker() as live:
        live.call(
            lambda: setattr(live.server.broker.shared(FleximqShared), "keepalive_seconds", SECONDS)
        )
        yield live


@pytest.mark.parametrize("timestamp", [0, 127, 1_703_123_456_789, 2**64 - 1])
def test_0701_a_ping_is_answered_by_a_pong_with_its_timestamp_and_no_interval(
    broker: LiveBroker, timestamp: int
) -> None:
    with Client(broker.address) as client:
        for more in ({}, {"interval": 30}):
            client.say(fx.PING, fx.keepalive(timestamp, **more))
            pong = client.frame()
            assert (pong.type, pong.client_id) == (fx.PONG, fx.BROKER)
            assert pong.header == fx.keepalive(timestamp)
            assert pong.payload == b""


def test_0702_a_pong_that_answers_nothing_is_ignored(broker: LiveBroker) -> None:
    with Client(broker.address) as client:
        client.say(fx.PONG, fx.keepalive(5))
        client.settle()


def test_0703_a_silent_client_is_pinged_with_the_time_and_the_interval(
    watchful: LiveBroker,
) -> None:
    with Client(watchful.address) as client:
        before = time.time_ns() // 1_000_000
        ping = client.frame()
        assert (ping.type, ping.client_id, ping.payload) == (fx.PING, fx.BROKER, b"")
        assert ping.header.keys() == {"keepalive"}
        assert ping.header["keepalive"].keys() == {"timestamp", "interval"}
        assert before <= ping.header["keepalive"]["timestamp"] <= time.time_ns() // 1_000_000
        assert ping.header["keepalive"]["interval"] == 1  # whole seconds, rounded up


def test_0704_a_client_that_answers_stays(watchful: LiveBroker) -> None:
    with Client(watchful.address) as client:
        for _ in range(4):
            ping = client.frame()
            assert ping.type == fx.PING
            client.say(fx.PONG, fx.keepalive(ping.header["keepalive"]["timestamp"]))
        client.settle()


def test_0705_a_client_that_is_silent_for_three_intervals_is_closed(
    watchful: LiveBroker,
) -> None:
    started = time.monotonic()
    with Client(watchful.address) as client:
        assert client.frame().type == fx.PING
        assert client.frame().type == fx.PING
        while rest := client.receive(34):
            client.receive(fx.header_length(rest) + 34 - len(rest))
        assert time.monotonic() - started >= 3 * SECONDS


def test_0706_a_client_that_talks_is_not_pinged(watchful: LiveBroker) -> None:
    with Client(watchful.address) as client:
        spoke = started = time.monotonic()
        silence = 0.0  # the longest that this test itself was held up
        pinged = False
        while spoke < started + 3 * SECONDS:
            client.say(fx.PING, fx.keepalive(0))
            while client.frame().type == fx.PING:
                pinged = True
            now = time.monotonic()
            silence = max(silence, now - spoke)
            spoke = now
        assert not pinged or silence > SECONDS / 2


def test_0707_any_byte_is_a_sign_of_life(watchful: LiveBroker) -> None:
    with Client(watchful.address) as client:
        message = fx.frame(fx.PING, client.number, fx.keepalive(1))
        for i in range(4):
            client.send(message[i : i + 1])
            assert client.frame().type == fx.PING
        client.send(message[4:])
        assert client.frame().type == fx.PONG


def test_0708_whoever_waits_for_a_client_that_went_silent_learns_it(
    watchful: LiveBroker,
) -> None:
    with Client(watchful.address) as asker, Client(watchful.address) as silent:
        asker.say(fx.REQ, fx.routing((silent.number, "/")), fx.request("q"))
        while (found := asker.frame()).type == fx.PING:
            asker.say(fx.PONG, fx.keepalive(found.header["keepalive"]["timestamp"]))
        assert found.header["status"] == 600
        assert found.header["reqrep"]["id"] == "q"
