"""Clients of several nodes, whose nodes are killed: subscriptions go on at the next one."""

import asyncio
import contextlib
import secrets
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.client import Backoff, Client, ConnectionLost, ErrorReported, State
from penstock.client.options import ClientEvent, ProtocolName
from tests.support.kafka_node import TOPIC, Node
from tests.support.served import free_port
from tools.kafka import KafkaBroker

LABELS: tuple[ProtocolName, ...] = ("rheos1", "rheos2", "fleximq", "herald", "lamamq")
QUICK = Backoff(seconds_min=0.05, seconds_max=0.5)


async def until(condition: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"{what} did not happen") from None


class Followers:
    """Subscribers of all protocols, and what each got."""

    def __init__(self, addresses: list[str], *, keepalive: float = 10.0) -> None:
        self.got: dict[str, list[bytes]] = {label: [] for label in LABELS}
        self.events: list[ClientEvent] = []
        self.clients: dict[str, Client] = {
            label: penstock.connect(
                addresses,
                protocol=label,
                backoff=Backoff(seconds_min=0.5, seconds_max=0.5, jitter=0),
                keepalive=keepalive,
                on_event=self.events.append,
            )
            for label in LABELS
        }
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        for label, client in self.clients.items():
            await client.open()
            ready = asyncio.Event()
            self._tasks.append(asyncio.create_task(self._follow(label, client, ready)))
            await ready.wait()

    async def _follow(self, label: str, client: Client, ready: asyncio.Event) -> None:
        async with client.subscribe(7 if label == "herald" else TOPIC) as messages:
            ready.set()
            async for message in messages:
                self.got[label].append(message.value)

    async def have(self, values: list[bytes]) -> None:
        """Wait until each has got these values."""
        wanted = set(values)
        for label, got in self.got.items():
            await until(lambda got=got: wanted <= set(got), f"{label} gets all")  # type: ignore[misc]

    async def moved(self, at: str) -> None:
        """Wait until each is connected to the node at an address."""

        def is_there(client: Client) -> bool:
            here = client._supervisor._addresses[0]
            return client.state is State.CONNECTED and here.url == at

        await until(lambda: all(map(is_there, self.clients.values())), f"they go to {at}")

    async def close(self) -> None:
        for client in self.clients.values():
            await client.close()
        await asyncio.gather(*self._tasks)
        errors = [each.error for each in self.events if isinstance(each, ErrorReported)]
        assert not errors
        for label, got in self.got.items():
            repeated = [value for value, count in Counter(got).items() if count > 1]
            assert not repeated, label


def assert_in_order(got: list[bytes], acknowledged: list[bytes]) -> None:
    """Messages of one publisher's connection are in its order."""
    wanted = set(acknowledged)
    assert [value for value in got if value in wanted] == acknowledged


async def publish(
    client: Client, name: str, count: int, *, pause: float = 0.0, topic: str = TOPIC
) -> list[bytes]:
    """Publish values; return the acknowledged ones. A lost one may be in the log or not."""
    acknowledged = []
    for number in range(count):
        value = b"%s-%d" % (name.encode(), number)
        try:
            await client.publish(topic, value)
        except ConnectionLost:
            continue
        acknowledged.append(value)
        await asyncio.sleep(pause)
    return acknowledged


async def known(new: Node, *, to: Node) -> None:
    """Wait until a node delivers what another one publishes."""
    async with (
        penstock.connect(to.address, protocol="lamamq") as subscriber,
        subscriber.subscribe("other@earliest") as messages,
        penstock.connect(new.address, protocol="lamamq") as client,
    ):
        await client.publish("other", b"")
        await messages.get(60)


def publisher(*addresses: str) -> Client:
    return penstock.connect(list(addresses), protocol="rheos2", backoff=QUICK)


@pytest.mark.parametrize("anchor_seconds", [60.0, 0.2])
def test_subscriptions_go_on_at_other_nodes_also_at_one_that_joined(
    kafka: KafkaBroker, tmp_path: Path, anchor_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third node joins and publishes nothing; then the first is killed, then the second."""
    monkeypatch.setattr("penstock.client.connection.ANCHOR_SECONDS", anchor_seconds)
    topic = f"failover-{secrets.token_hex(4)}"
    port = free_port()

    def node(number: int, port: int | None = None) -> Node:
        folder = tmp_path / str(number)
        return Node(kafka.address, folder, topic=topic, number=number, port=port)

    async def test(a: Node, b: Node, nodes: contextlib.ExitStack) -> None:
        followers = Followers([a.address, b.address, f"tcp://127.0.0.1:{port}"])
        async with publisher(b.address) as at_b:
            await at_b.publish(TOPIC, b"seed")
            async with publisher(a.address) as at_a:
                await at_a.publish(TOPIC, b"seed")
                await followers.open()
                kept = await publish(at_a, "a", 20)
                kept += await publish(at_b, "b", 20)
                await followers.have(kept)
                c = await asyncio.to_thread(node, 2, port)
                await asyncio.to_thread(nodes.enter_context, c)
                await known(c, to=b)
                async with publisher(a.address, b.address) as roaming:
                    task = asyncio.create_task(publish(roaming, "first", 80, pause=0.02))
                    beside = asyncio.create_task(publish(at_b, "beside", 80, pause=0.02))
                    await asyncio.sleep(0.5)
                    await asyncio.to_thread(a.__exit__, None, None, None)
                    first, second = await task, await beside
            assert 75 <= len(first) <= 80
            assert len(second) == 80
            await followers.moved(b.address)
            await followers.have(kept + first + second)
            async with publisher(c.address) as at_c:
                await asyncio.to_thread(b.__exit__, None, None, None)
                third = await publish(at_c, "c", 100, pause=0.01)
                assert len(third) == 100
                await followers.moved(c.address)
                last = await publish(at_c, "last", 5)
        await followers.have(kept + first + second + third + last)
        await followers.close()
        for got in followers.got.values():
            for run in (second, third + last):
                assert_in_order(got, run)

    with contextlib.ExitStack() as nodes:
        a, b = nodes.enter_context(node(0)), nodes.enter_context(node(1))
        asyncio.run(test(a, b, nodes))


def test_partitions_without_messages_move_on(
    kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a subscription would resume where it began, however long ago that was."""
    monkeypatch.setattr("penstock.client.connection.ANCHOR_SECONDS", 0.2)
    topic = f"quiet-{secrets.token_hex(4)}"

    async def test(a: Node, b: Node) -> None:
        await known(b, to=a)
        followers = Followers([a.address, b.address])
        async with publisher(a.address) as at_a, publisher(b.address) as at_b:
            await at_a.publish(TOPIC, b"seed")
            await followers.open()
            positions = [
                subscription._positions
                for client in followers.clients.values()
                for subscription in client._inbox._queues.values()
            ]
            assert [each.keys() for each in positions] == [{0, 1}] * len(LABELS)
            began = [dict(each) for each in positions]
            kept = await publish(at_a, "a", 10)
            await publish(at_b, "elsewhere", 10, topic="channel/8")
            for before, now in zip(began, positions, strict=True):
                for number in (0, 1):
                    await until(
                        lambda before=before, now=now, number=number: (  # type: ignore[misc]
                            now[number].next_offset == before[number].next_offset + 10
                            and now[number].time_us > before[number].time_us + 1_000_000
                        ),
                        f"partition {number} moves",
                    )
            kept += await publish(at_a, "a2", 10) + await publish(at_b, "b", 10)
            await followers.have(kept)
        await followers.close()

    with (
        Node(kafka.address, tmp_path / "a", topic=topic, number=0) as a,
        Node(kafka.address, tmp_path / "b", topic=topic, number=1) as b,
    ):
        asyncio.run(test(a, b))


def test_clients_leave_a_node_that_is_suspended(kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = f"suspended-{secrets.token_hex(4)}"

    async def test(a: Node, b: Node) -> None:
        followers = Followers([a.address, b.address], keepalive=1.0)
        async with publisher(a.address) as at_a, publisher(b.address) as at_b:
            await at_a.publish(TOPIC, b"seed")
            await followers.open()
            kept = await publish(at_a, "a", 10)
            await followers.have(kept)
            a.process.popen.send_signal(signal.SIGSTOP)
            try:
                kept += await publish(at_b, "b", 20)
                await followers.moved(b.address)
                kept += await publish(at_b, "c", 20)
                await followers.have(kept)
            finally:
                a.process.popen.send_signal(signal.SIGCONT)
            kept += await publish(at_b, "d", 20)
            await followers.have(kept)
        await followers.close()

    with (
        Node(kafka.address, tmp_path / "a", topic=topic, number=0) as a,
        Node(kafka.address, tmp_path / "b", topic=topic, number=1) as b,
    ):
        asyncio.run(test(a, b))
