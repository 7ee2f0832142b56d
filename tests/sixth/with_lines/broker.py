"""Lines in a live broker: bridges to and from the five, limits, hooks, metrics."""

import asyncio
import itertools
import urllib.request
from pathlib import Path

import pytest

import penstock
from penstock.errors import InvalidTopicName
from penstock.gateway.options import GatewayOptions
from penstock.protocols import PROTOCOLS, Protocol
from tests.sixth.protocol import LINES
from tests.support.http_live import HttpBroker
from tests.support.live import LiveBroker, Peer

VALUES = [b"", b"plain", bytes(range(256)), b"line\nfeed and blank", bytes(5000)]


def url(broker: LiveBroker) -> str:
    return f"tcp://{broker.address[0]}:{broker.address[1]}"


def test_lines_is_registered() -> None:
    assert PROTOCOLS["lines"] is LINES
    assert [each.number for each in PROTOCOLS] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("source", "target"),
    [pair for pair in itertools.product(PROTOCOLS, repeat=2) if LINES in pair],
    ids=str,
)
def test_every_bridge(source: Protocol, target: Protocol) -> None:
    async def bridge() -> None:
        with LiveBroker() as broker:
            async with (
                penstock.connect(url(broker), protocol=source) as publisher,
                penstock.connect(url(broker), protocol=target) as subscriber,
            ):
                if source.carries.topics_created or target.carries.topics_created:
                    assert broker.call(lambda: broker.server.broker.topics.intern("channel/7")) >= 0
                async with await subscriber.subscribe("channel/7") as messages:
                    await publisher.publish_many("channel/7", VALUES)
                    async with asyncio.timeout(10):
                        received = [(await anext(messages)).value for _ in VALUES]
        assert received == VALUES

    asyncio.run(bridge())


def test_bytes_of_the_protocol() -> None:
    with LiveBroker() as broker, Peer(broker.address) as peer, Peer(broker.address) as other:
        peer.send(b"hello one\nsub a/+\n")
        assert peer.receive(6) == b"ok\nok\n"
        other.send(b"hello two\npub a/b 3\n1 2\npub a/c 1\nx\nnonsense\n")
        assert other.receive(9) == b"ok\nok\nok\n"
        assert peer.receive(19) == b"msg a/b 1001 3\n1 2\n"
        assert other.receive(4) == b"err "


def test_its_limit_is_a_setting() -> None:
    options = GatewayOptions(frame_limits={"lines_line_bytes_max": 100})
    with LiveBroker(options=options) as broker, Peer(broker.address) as peer:
        peer.send(b"hello x\npub a 200\n")
        assert peer.receive(7) == b"ok\nerr "


def test_a_pinned_listener_takes_it_alone() -> None:
    options = GatewayOptions(protocol=LINES)
    with LiveBroker(options=options) as broker, Peer(broker.address) as peer:
        peer.send(b"hello x\n")
        assert peer.receive(3) == b"ok\n"


def test_middleware_of_another_protocol_judges_it() -> None:
    async def judge() -> None:
        with LiveBroker() as broker:
            async with (
                penstock.connect(url(broker), protocol="lamamq") as guard,
                penstock.connect(url(broker), protocol="lines", name="writer") as writer,
            ):
                seen = []

                async def decide(call: penstock.client.HookCall) -> str | None:
                    seen.append((call.protocol, call.client, call.topic, call.value))
                    return "no" if call.value == b"bad" else None

                async with await guard.middleware("judge", decide):
                    await writer.publish("a", b"good")
                    with pytest.raises(penstock.client.Refused):
                        await writer.publish("a", b"bad")
                assert seen == [
                    ("lines", "writer", "a", b"good"),
                    ("lines", "writer", "a", b"bad"),
                ]

    asyncio.run(judge())


def test_a_wildcard_is_no_topic_of_a_message() -> None:
    async def publish() -> None:
        with LiveBroker() as broker:
            async with penstock.connect(url(broker), protocol="lines") as client:
                with pytest.raises(InvalidTopicName):
                    await client.publish("a/#", b"x")

    asyncio.run(publish())


def test_metrics_and_clients_show_it(tmp_path: Path) -> None:
    with HttpBroker(data=tmp_path) as broker:
        with Peer(broker.address) as peer:
            peer.send(b"hello shown\npub a 1\nb\n")
            assert peer.receive(6) == b"ok\nok\n"
            clients = broker.get("/api/clients?protocol=lines").json()["clients"]
            assert [each["name"] for each in clients] == ["shown"]
        with urllib.request.urlopen(f"{broker.url}/metrics") as answer:  # noqa: S310
            text = answer.read().decode()
        assert 'protocol="lines"' in text
