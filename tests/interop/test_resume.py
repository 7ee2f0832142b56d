"""Deliveries say where they are; subscriptions go on where they were after a broker was killed."""

import asyncio
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

import pytest

import penstock
from penstock.client import (
    Backoff,
    Client,
    ClientClosed,
    Delivery,
    ErrorReported,
    NotResumed,
    State,
)
from penstock.client.options import ProtocolName
from penstock.gateway.options import GatewayOptions
from penstock.server.server import Server
from tests.support.live import LiveBroker
from tests.support.running import PENSTOCK, environment
from tests.support.written_log import WrittenLog, message

LABELS: tuple[ProtocolName, ...] = ("rheos1", "rheos2", "fleximq", "herald", "lamamq")
TOPIC = "channel/7"
QUICK = Backoff(seconds_min=0.02, seconds_max=0.1)
LATE = Backoff(seconds_min=0.05, seconds_max=0.5)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def url_of(broker: LiveBroker) -> str:
    host, port = broker.address
    return f"tcp://{host}:{port}"


class Broker:
    """A broker process on a port that it keeps over restarts."""

    def __init__(self, data: Path) -> None:
        self._port = free_port()
        self.url = f"tcp://127.0.0.1:{self._port}"
        others = ("--http", f"127.0.0.1:{free_port()}", "--flight", f"127.0.0.1:{free_port()}")
        self._arguments = ("serve", "--data", data, "--listen", self.url, *others)
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603
            [*PENSTOCK, *map(str, self._arguments)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(),
        )
        ends = time.monotonic() + 50
        while time.monotonic() < ends and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        self.kill()
        raise AssertionError("the broker did not start")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(50):
        while not condition():
            await asyncio.sleep(0.01)


async def seeded(url: str) -> None:
    """Let the topic exist: Rheos subscribes to existing topics only."""
    async with penstock.connect(url, protocol="lamamq") as client:
        await client.publish(TOPIC, b"seed")


def run(test: Callable[[], Awaitable[Any]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(110):
            await test()

    asyncio.run(bounded())


@pytest.mark.parametrize("label", LABELS)
def test_every_delivery_says_where_it_stands(tmp_path: Path, label: ProtocolName) -> None:
    async def test() -> None:
        await seeded(url_of(broker))
        async with (
            penstock.connect(url_of(broker), protocol="rheos2") as publisher,
            penstock.connect(url_of(broker), protocol=label) as client,
            client.subscribe(7 if label == "herald" else TOPIC) as messages,
        ):
            before = time.time_ns() // 1000
            ids = [await publisher.publish(TOPIC, b"%d" % n) for n in range(3)]
            got = [await messages.get(10) for _ in ids]
            after = time.time_ns() // 1000
        assert [each.message_id for each in got] == ids
        assert [each.offset for each in got] == [1, 2, 3]
        assert {each.partition for each in got} == {0}
        assert all(before <= (each.broker_time_us or 0) <= after for each in got)
        assert all(each.sender is not None for each in got)

    with LiveBroker(data=tmp_path) as broker:
        run(test)


@pytest.mark.parametrize("label", [each for each in LABELS if each != "herald"])
@pytest.mark.parametrize(
    ("start", "offsets"), [("@earliest", [0, 2, 4, 6, 8, 10]), ("@last", [8, 10])]
)
def test_stored_messages_say_where_they_stand(
    tmp_path: Path, label: ProtocolName, start: str, offsets: list[int]
) -> None:
    async def test() -> None:
        async with penstock.connect(url_of(broker), protocol="lamamq") as publisher:
            for n in range(10):
                await publisher.publish("other" if n % 2 else "wanted", b"%d" % n)
            async with (
                penstock.connect(url_of(broker), protocol=label) as client,
                client.subscribe(f"wanted{start}") as messages,
            ):
                got = [await messages.get(10) for _ in offsets[:-1]]
                await publisher.publish("wanted", b"10")
                got.append(await messages.get(10))
        assert [each.offset for each in got] == offsets
        assert [each.value for each in got] == [b"%d" % offset for offset in offsets]
        times = [each.broker_time_us or 0 for each in got]
        assert times == sorted(times)
        assert len(set(times)) > 1

    with LiveBroker(data=tmp_path) as broker:
        run(test)


def test_a_value_that_a_protocol_cannot_carry_does_not_shift_the_others(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            penstock.connect(url_of(broker), protocol="lamamq") as publisher,
            penstock.connect(url_of(broker), protocol="herald") as client,
            client.subscribe(7) as messages,
        ):
            large = b"x" * (2 << 20)
            await publisher.publish_many(TOPIC, [b"a", large, b"b"])
            got = [await messages.get(10) for _ in range(2)]
        assert [(each.offset, each.value) for each in got] == [(0, b"a"), (2, b"b")]

    with LiveBroker(data=tmp_path) as broker:
        run(test)


def test_messages_behind_those_of_a_clock_that_was_ahead_are_not_missed(tmp_path: Path) -> None:
    """The machine's clock was set back by an hour, while the broker did not run."""
    ahead_us = time.time_ns() // 1000 + 3_600_000_000
    with WrittenLog(tmp_path) as log:
        log.put(message(TOPIC, b"a", timestamp_us=ahead_us))
    patient = Backoff(seconds_min=1, jitter=0)

    async def test() -> None:
        async with (
            penstock.connect(url_of(broker), protocol="rheos2", backoff=patient) as client,
            client.subscribe(f"{TOPIC}@earliest") as messages,
            penstock.connect(url_of(broker), protocol="lamamq") as publisher,
        ):
            assert (await messages.get(10)).value == b"a"
            await asyncio.to_thread(broker.call, lose_subscribers)
            await publisher.publish(TOPIC, b"b")
            message = await messages.get(10)
            assert (message.value, message.offset) == (b"b", 1)
            assert (message.broker_time_us or 0) > ahead_us

    def lose_subscribers() -> None:
        for session in broker.server.broker.sessions:
            if session.subscriptions:
                session.link.abort()

    with LiveBroker(data=tmp_path) as broker:
        run(test)


def test_an_overlapping_replay_repeats_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with penstock.connect(url_of(broker), protocol="lamamq") as client:
            await client.publish("a/b", b"0")
            async with client.subscribe("a/+") as live:
                await client.publish("a/b", b"1")
                async with client.subscribe("a/#@earliest") as all_messages:
                    await client.publish("a/b", b"2")
                    got = [(await all_messages.get(10)).value for _ in range(3)]
                    assert got == [b"0", b"1", b"2"]
                    assert [(await live.get(10)).value for _ in range(2)] == [b"1", b"2"]
                    assert not len(live.queue)

    with LiveBroker(data=tmp_path) as broker:
        run(test)


@pytest.mark.parametrize(
    ("label", "replay"), [*((label, "") for label in LABELS), ("herald", "@-1ms")]
)
def test_a_quiet_subscription_moves_on_with_the_log(
    tmp_path: Path, label: ProtocolName, replay: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a reconnect would replay the whole life of the subscription."""
    monkeypatch.setattr("penstock.client.connection.ANCHOR_SECONDS", 0.05)

    async def test() -> None:
        await seeded(url_of(broker))
        async with (
            penstock.connect(url_of(broker), protocol="lamamq") as publisher,
            penstock.connect(url_of(broker), protocol=label) as client,
            client.subscribe(7 if label == "herald" else TOPIC) as messages,
        ):
            (subscription,) = client._inbox._queues.values()
            began_us = subscription.resume_us or 0
            for number in range(100):
                await publisher.publish("another", b"%d" % number)
            places = subscription._positions
            await until(lambda: 0 in places and places[0].next_offset == 101)
            assert (subscription.resume_us or 0) > began_us
            offsets = []
            for number in range(20):
                await publisher.publish(TOPIC, b"%d" % number)
                await asyncio.sleep(0.01)  # anchors come between messages, too
            for number in range(20):
                message = await messages.get(10)
                assert message.value == b"%d" % number
                assert message.topic == TOPIC
                offsets.append(message.offset)
            assert offsets == list(range(101, 121))
            assert not len(messages.queue)
            (session,) = (
                each
                for each in broker.call(lambda: list(broker.server.broker.sessions))
                if each.subscriptions
            )
            assert list(session.subscriptions) == [TOPIC]

    options = GatewayOptions(herald_replay={7: replay} if replay else {})
    with LiveBroker(data=tmp_path, options=options) as broker:
        run(test)


def test_a_subscription_that_ends_is_not_begun_again_by_its_upkeep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.client.connection.ANCHOR_SECONDS", 0.001)

    async def test() -> None:
        async with penstock.connect(url_of(broker), protocol="fleximq") as client:
            for number in range(20):
                stream = await client.subscribe("a")
                await asyncio.sleep(0.003)
                if number % 2:
                    await client.unsubscribe("a")
                else:
                    await stream.close()
                await client.ping()
                sessions = broker.call(lambda: list(broker.server.broker.sessions))
                assert not any(each.subscriptions for each in sessions)

    with LiveBroker(data=tmp_path) as broker:
        run(test)


@pytest.mark.parametrize("label", ["fleximq", "lamamq"])
def test_a_subscription_goes_on_when_another_one_with_its_name_is_closed(
    tmp_path: Path, label: ProtocolName
) -> None:
    async def test() -> None:
        async with penstock.connect(url_of(broker), protocol=label) as client:
            await client.publish("a", b"0")
            await client.ping()
            first = await client.subscribe("a@earliest")
            second = await client.subscribe("a")
            await second.close()
            await client.publish("a", b"1")
            assert [(await first.get(10)).value for _ in range(2)] == [b"0", b"1"]
            await client.unsubscribe("a")
            with pytest.raises(ClientClosed):
                await first.get(10)

    with LiveBroker(data=tmp_path) as broker:
        run(test)


def test_a_killed_broker_leaves_no_gap_and_no_repeat(tmp_path: Path) -> None:
    """Clients of all protocols, and a synchronous one, follow a topic while the broker is killed."""
    broker = Broker(tmp_path)
    got: dict[str, list[Delivery]] = {label: [] for label in (*LABELS, "unresumed")}
    published: list[bytes] = []

    async def follow(label: ProtocolName, client: Client, ready: asyncio.Event) -> None:
        async with client.subscribe(7 if label == "herald" else TOPIC) as messages:
            ready.set()
            async for message in messages:
                got[label].append(message)

    async def follow_live(client: Client, ready: asyncio.Event) -> None:
        async with client.subscribe(TOPIC, resume=False) as messages:
            ready.set()
            async for message in messages:
                got["unresumed"].append(message)

    async def publish(first: int) -> None:
        async with penstock.connect(broker.url, protocol="lamamq") as publisher:
            for number in range(first, first + 20):
                await publisher.publish(TOPIC, b"%d" % number)
                published.append(b"%d" % number)

    async def test() -> None:
        await seeded(broker.url)
        clients = {
            label: penstock.connect(broker.url, protocol=label, backoff=LATE) for label in LABELS
        }
        for client in clients.values():
            await client.open()
        ready = [asyncio.Event() for _ in (*LABELS, "unresumed")]
        tasks = [
            asyncio.create_task(follow(label, clients[label], event))
            for label, event in zip(LABELS, ready, strict=False)
        ]
        tasks.append(asyncio.create_task(follow_live(clients["lamamq"], ready[-1])))
        await asyncio.gather(*(event.wait() for event in ready))
        await publish(0)
        await until(lambda: all(len(got[label]) == 20 for label in LABELS))
        assert [each.value for each in got["unresumed"]] == published
        await asyncio.to_thread(broker.kill)
        await until(lambda: all(each.state is State.RECONNECTING for each in clients.values()))
        await asyncio.to_thread(broker.start)
        await publish(20)  # the clients come back before, after or meanwhile
        await until(lambda: all(len(got[label]) >= 40 for label in LABELS))
        for client in clients.values():
            await client.close()
        await asyncio.gather(*tasks)

    with broker:
        synchronous = penstock.connect_sync(broker.url, protocol="fleximq", backoff=LATE)
        with synchronous, synchronous.subscribe(TOPIC, timeout=60) as messages:
            run(test)
            values = [next(messages) for _ in range(41)]
    for label in LABELS:
        assert [each.value for each in got[label]] == published, label
        assert [each.offset for each in got[label]] == list(range(1, 41)), label
    assert [each.value for each in values] == [b"seed", *published]
    assert [each.offset for each in values] == list(range(41))
    later = [each.value for each in got["unresumed"][20:]]
    assert later == published[len(published) - len(later) :]


def test_without_a_log_a_subscription_goes_on_live_and_says_so() -> None:
    events: list[object] = []
    port = free_port()

    async def test(first: LiveBroker) -> None:
        url = f"tcp://127.0.0.1:{port}"
        async with (
            penstock.connect(
                [url_of(first), url], protocol="lamamq", backoff=QUICK, on_event=events.append
            ) as client,
            client.subscribe("a") as messages,
        ):
            await asyncio.to_thread(first.__exit__, None, None, None)
            await until(lambda: client.state is State.RECONNECTING)
            server = Server()
            await server.start()
            await server.listen_tcp(port=port)
            await client.publish("a", b"1")
            assert (await messages.get(10)).value == b"1"
            await client.close()
            await server.stop()

    first = LiveBroker().__enter__()
    run(lambda: test(first))
    errors = [each.error for each in events if isinstance(each, ErrorReported)]
    assert [type(each) for each in errors] == [NotResumed]
    assert "no log" in str(errors[0])
