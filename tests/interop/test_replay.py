"""History in every protocol, over real sockets and the log on disk."""

import contextlib
import datetime as dt
import itertools
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client import Refused
from penstock.core.broker import BrokerSettings
from penstock.gateway.options import GatewayOptions
from penstock.model import ByteOrder
from penstock.protocols import PROTOCOLS, Protocol
from tests.interop.test_bridges import KINDS, SocketLink, named, receive
from tests.sim.clients import SimulatedClient
from tests.support import fleximq_bytes as fx
from tests.support import herald_bytes as herald
from tests.support import lamamq_bytes as lama
from tests.support.agreement import AUDIENCES, SOURCES
from tests.support.live import LiveBroker, Peer
from tests.support.rheos_bytes import CREATE, PUBLISH, RHEOS2, SUBSCRIBE, Client

VALUES = [b"", b"\x00", bytes(range(256)), b"\xfe\xca\x10\xfa\x02" * 40, bytes(60_000)]
EARLIEST = GatewayOptions(herald_replay=dict.fromkeys(range(256), "@earliest"))
NUMBERS = itertools.count(10_000)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LiveBroker]:
    with LiveBroker(data=tmp_path) as live:
        yield live


@contextlib.contextmanager
def joined(
    broker: LiveBroker, protocol: Protocol, order: ByteOrder, *, suffix: str = ""
) -> Iterator[SimulatedClient]:
    """A client whose subscriptions end in `suffix`; herald's listener knows it by itself."""
    link = SocketLink(broker.address)
    client = KINDS[protocol](link, random.Random(0), next(NUMBERS), order)  # type: ignore[arg-type]
    plain = client.topic
    try:
        client.connect()
        while not client.ready:
            client.read()
        if suffix and protocol is not PROTOCOLS["herald"]:
            client.topic = lambda channel: plain(channel) + suffix  # type: ignore[method-assign]
        yield client
    finally:
        link.socket.close()


def publish(broker: LiveBroker, client: SimulatedClient, messages: list[tuple[int, bytes]]) -> None:
    """Publish, and wait until the broker has taken all of it."""
    before = taken(broker)
    for channel, value in messages:
        client.publish(channel, value)
    broker.until(lambda: broker.server.broker.log.next_offset == before + len(messages))


def taken(broker: LiveBroker) -> int:
    return int(broker.call(lambda: broker.server.broker.log.next_offset))


def kept(broker: LiveBroker) -> None:
    """Wait until all that was taken is on disk, and can be read."""

    def condition() -> bool:
        core = broker.server.broker
        return core.reader is not None and core.reader.end == core.log.next_offset

    broker.until(condition)


# --- History, then live -------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "source_order"), SOURCES, ids=str)
def test_history_of_every_protocol_reaches_every_other_whole_and_in_order(
    tmp_path: Path, source: Protocol, source_order: ByteOrder
) -> None:
    sent = [(n % 3, value) for n, value in enumerate(VALUES * 2)]
    with (
        LiveBroker(data=tmp_path, options=EARLIEST) as broker,
        joined(broker, source, source_order) as publisher,
    ):
        publish(broker, publisher, sent)
        kept(broker)
        for target, target_order in AUDIENCES:
            with joined(broker, target, target_order, suffix="@earliest") as subscriber:
                expected = sent
                if subscriber.wildcards:
                    subscriber.subscribe(None)
                else:
                    subscriber.subscribe(1)
                    expected = [each for each in sent if each[0] == 1]
                assert receive(subscriber, len(expected)) == named(target, expected)


@pytest.mark.parametrize(("target", "target_order"), AUDIENCES, ids=str)
def test_what_comes_while_history_is_read_comes_once_and_in_order(
    tmp_path: Path, target: Protocol, target_order: ByteOrder
) -> None:
    count = 20_000
    with (
        LiveBroker(data=tmp_path, options=EARLIEST) as broker,
        joined(broker, PROTOCOLS["herald"], "little") as publisher,
        joined(broker, target, target_order, suffix="@earliest") as subscriber,
    ):
        sent = [(7, n.to_bytes(4, "big") * 25) for n in range(count)]
        half = count // 2
        publish(broker, publisher, sent[:half])
        subscriber.subscribe(7)
        for channel, value in sent[half:]:
            publisher.publish(channel, value)
        assert receive(subscriber, count) == named(target, sent)


def test_history_outlives_a_restart(tmp_path: Path) -> None:
    sent = [(n % 3, b"%d" % n) for n in range(100)]
    with (
        LiveBroker(data=tmp_path) as broker,
        joined(broker, PROTOCOLS["fleximq"], "big") as publisher,
    ):
        publish(broker, publisher, sent[:50])
        kept(broker)
    with (
        LiveBroker(data=tmp_path) as broker,
        joined(broker, PROTOCOLS["rheos2"], "little", suffix="@earliest") as subscriber,
        joined(broker, PROTOCOLS["lamamq"], "big") as publisher,
    ):
        assert taken(broker) == 50
        subscriber.subscribe(2)
        publish(broker, publisher, sent[50:])
        expected = [each for each in sent if each[0] == 2]
        assert receive(subscriber, len(expected)) == named(PROTOCOLS["rheos2"], expected)


def test_a_topic_that_was_made_outlives_a_restart_without_a_message(tmp_path: Path) -> None:
    with LiveBroker(data=tmp_path) as broker, Client(broker, RHEOS2) as client:
        client.must(CREATE, b"made/once")
    with LiveBroker(data=tmp_path) as broker, Client(broker, RHEOS2) as client:
        client.must(SUBSCRIBE, b"made/once@earliest")
        client.request(CREATE, b"made/once")
        client.expect_failed()


# --- Places -------------------------------------------------------------------------------------


def wait_a_little() -> dt.datetime:
    """A time that no message before it has, and none after it has reached."""
    found = time.time_ns() // 1000 + 1
    while time.time_ns() // 1000 <= found + 2000:
        time.sleep(0.001)
    return dt.datetime.fromtimestamp((found + 1000) / 1e6, tz=dt.UTC)


def test_a_subscription_starts_at_an_offset_or_a_time(broker: LiveBroker) -> None:
    with joined(broker, PROTOCOLS["rheos1"], "little") as publisher:
        publish(broker, publisher, [(1, b"%d" % n) for n in range(5)])
        moment = wait_a_little()
        publish(broker, publisher, [(1, b"%d" % n) for n in range(5, 10)])
        kept(broker)
        seconds = (dt.datetime.now(tz=dt.UTC) - moment).total_seconds()
        for suffix, first in (
            ("@#3", 3),
            ("@#10", 10),
            (f"@{moment.isoformat().replace('+00:00', 'Z')}", 5),
            ("@-1d", 0),
            (f"@-{seconds + 0.0005:.6f}s", None),
            ("@2001-01-01", 0),
            ("@2101-01-01", 10),
        ):
            with joined(broker, PROTOCOLS["lamamq"], "big", suffix=suffix) as subscriber:
                subscriber.subscribe(1)
                while not subscriber.acknowledged:
                    subscriber.read()
                publish(broker, publisher, [(1, b"end")])
                while not subscriber.received or subscriber.received[-1][1] != b"end":
                    subscriber.read()
                found = [value for _, value in subscriber.received if value != b"end"]
            if first is None:  # the clock went on: it starts a little later than that moment
                assert found == [b"%d" % n for n in range(10 - len(found), 10)]
                assert len(found) <= 5
            else:
                assert found == [b"%d" % n for n in range(first, 10)], suffix


def test_a_place_that_is_not_there_is_refused(broker: LiveBroker) -> None:
    with Client(broker, RHEOS2) as client:
        client.must(CREATE, b"a")
        client.must(PUBLISH, b"a")
        client.request(SUBSCRIBE, b"a@#2")
        client.expect_failed()
        client.must(SUBSCRIBE, b"a@#1")
    with lama.client(broker) as other:
        text = other.request(lama.subscribe(0, b"a@#2"), error=lama.BAD_REQUEST)
        assert b"offset 2" in text
    with Peer(broker.address) as third:
        third.send(fx.frame(fx.JOIN, 0))
        joined_as = fx.parse(third.receive(fx.FIXED_BYTES + len(fx.pack(fx.status(200)))))
        third.send(fx.frame(fx.SUB, joined_as.client_id, fx.topic("a@#2")))
        base = third.receive(26)
        rest = third.receive(fx.header_length(base) + 8)
        refusal = fx.parse(base + rest + third.receive(int.from_bytes(rest[-8:], "big")))
        assert refusal.header["status"] == 603
        assert "offset 2" in refusal.value


def test_what_is_not_for_everyone_is_not_replayed(broker: LiveBroker) -> None:
    def client() -> tuple[Peer, int]:
        peer = Peer(broker.address)
        peer.send(fx.frame(fx.JOIN, 0))
        found = fx.parse(peer.receive(fx.FIXED_BYTES + len(fx.pack(fx.status(200)))))
        return peer, found.client_id

    sender, number = client()
    with sender:
        header = fx.topic("a") | fx.routing((number, "/x"))
        sender.send(fx.frame(fx.PUB, number, header, fx.pack("private")))
        sender.send(fx.frame(fx.BCAST, number, {}, fx.pack("broadcast")))
        sender.send(fx.frame(fx.PUB, number, fx.topic("a"), fx.pack("public")))
        broker.until(lambda: broker.server.broker.log.next_offset == 3)
        kept(broker)
        with joined(broker, PROTOCOLS["lamamq"], "big") as subscriber:
            subscriber.topic = lambda _: "#@earliest"  # type: ignore[method-assign]
            subscriber.subscribe(None)
            assert receive(subscriber, 1) == [("a", b"public")]
            sender.send(fx.frame(fx.PUB, number, fx.topic("b"), fx.pack("live")))
            assert receive(subscriber, 2)[1:] == [("b", b"live")]


# --- herald resume ------------------------------------------------------------------------------


def test_a_herald_client_that_comes_back_gets_what_it_missed(broker: LiveBroker) -> None:
    with herald.publisher(broker) as publisher:
        first = herald.HeraldPeer(broker).join(herald.handshake_sub(b"\x07\x09", b"again"))
        publisher.send(herald.publish(7, b"0"))
        assert first.message()[2] == b"0"
        # Cut off without a word.
        first.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        first.socket.close()
        broker.until(lambda: len(broker.server.broker.resumption) == 1)
        for n in range(1, 50):
            publisher.send(herald.publish((7, 8, 9)[n % 3], b"%d" % n))
        broker.until(lambda: broker.server.broker.log.next_offset == 50)
        with herald.HeraldPeer(broker).join(herald.handshake_sub(b"", b"again")) as again:
            missed = [n for n in range(1, 50) if n % 3 != 1]
            got = [int(again.message()[2]) for _ in missed]
            if got[0] == 0:  # the reset came before its acknowledgment was known
                got = [*got[1:], int(again.message()[2])]
            assert got == missed
            publisher.send(herald.publish(9, b"50"))
            assert again.message()[2] == b"50"


# --- Slow consumers -----------------------------------------------------------------------------


def test_a_subscriber_that_does_not_read_holds_up_nobody_and_loses_nothing(tmp_path: Path) -> None:
    settings = BrokerSettings(out_buffer_bytes_max=256 * 1024)
    count, size = 4000, 2000
    with (
        LiveBroker(data=tmp_path, settings=settings) as broker,
        herald.subscriber(broker) as slow,
        herald.publisher(broker) as publisher,
    ):
        started = time.monotonic()
        for n in range(count):
            publisher.send(herald.publish(7, n.to_bytes(4, "big") + bytes(size)))
        publisher.settle()
        assert time.monotonic() - started < 5
        buffered: Callable[[], Any] = lambda: max(  # noqa: E731
            session.link.buffered for session in broker.server.broker.sessions
        )
        assert broker.call(buffered) < 4 * 1024 * 1024
        for n in range(count):
            assert slow.message()[2][:4] == n.to_bytes(4, "big")


@pytest.mark.parametrize("protocol", ["rheos1", "rheos2", "fleximq", "lamamq"])
@pytest.mark.parametrize("start", ["@earliest", "@-1h", "@last"])
def test_a_start_for_a_pattern_that_the_client_has_is_refused(
    broker: LiveBroker, protocol: str, start: str
) -> None:
    host, port = broker.address
    with penstock.connect_sync(f"tcp://{host}:{port}", protocol=protocol) as client:
        topic = f"again/{protocol}"
        if protocol.startswith("rheos"):
            client.create_topic(topic)
        live = client.subscribe(topic)
        with pytest.raises(Refused) as caught:
            client.subscribe(topic + start)
        if not protocol.startswith("rheos"):  # its answers have no text
            assert f"already subscribed to {topic}" in str(caught.value)
        client.publish(topic, b"live")
        assert next(live).value == b"live"


def test_a_channel_with_a_configured_start_may_be_subscribed_twice(tmp_path: Path) -> None:
    with (
        LiveBroker(data=tmp_path, options=EARLIEST) as broker,
        herald.publisher(broker) as publisher,
        herald.subscriber(broker) as peer,
    ):
        publisher.send(herald.publish(7, b"a"))
        assert peer.message()[2] == b"a"
        peer.send(herald.frame(0x11, b"\x07"))
        peer.settle()  # neither an error nor the message again
