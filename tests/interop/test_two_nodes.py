"""Publisher and subscriber on different nodes: every protocol to every other, through Kafka."""

import contextlib
import queue
import random
import secrets
import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest
from confluent_kafka import Producer

from penstock.client.errors import Refused
from penstock.client.sync import SyncClient, connect_sync
from penstock.core.access import ANYONE
from penstock.core.broker import BrokerSettings
from penstock.limits import KAFKA_TOPIC_SECONDS_MAX, SENT_POSITIONS_SECONDS
from penstock.model import ByteOrder
from penstock.ports import KeptSession
from penstock.protocols import Protocol
from penstock.protocols.fleximq import FLEXIMQ
from penstock.protocols.herald import HERALD
from penstock.protocols.lamamq import LAMAMQ
from penstock.protocols.rheos2 import RHEOS2
from penstock.storage.kafka.log import KafkaLog
from penstock.storage.kafka.options import KafkaOptions
from penstock.storage.kafka.state import SESSION
from tests.interop.test_bridges import VALUES, joined, named, receive, settle
from tests.interop.test_herald_takeover import all_acknowledged, connect
from tests.support import herald_bytes as herald
from tests.support.agreement import AUDIENCES, SOURCES
from tests.support.live import LiveBroker
from tests.support.served import until
from tools.kafka import KafkaBroker


def node(kafka: KafkaBroker, topic: str, number: int, *, deliver_committed: bool) -> LiveBroker:
    options = KafkaOptions(kafka.address, topic, number, deliver_committed=deliver_committed)
    return LiveBroker(
        open_storage=lambda: KafkaLog(options),
        settings=BrokerSettings(
            out_buffer_bytes_max=256 * 1024, deliver_committed=deliver_committed
        ),
    )


@pytest.fixture(scope="module")
def nodes(kafka: KafkaBroker) -> Iterator[tuple[LiveBroker, LiveBroker]]:
    """Two nodes; the second one joins when the first one runs."""
    topic = f"bridges-{secrets.token_hex(4)}"
    with (
        node(kafka, topic, 0, deliver_committed=False) as first,
        node(kafka, topic, 1, deliver_committed=True) as second,
    ):
        first.until(lambda: set(first.server.storage.partitions) == {0, 1}, seconds_max=30)
        yield first, second


@pytest.mark.parametrize(("source", "source_order"), SOURCES, ids=str)
@pytest.mark.parametrize(("target", "target_order"), AUDIENCES, ids=str)
def test_values_arrive_whole_and_in_order(
    nodes: tuple[LiveBroker, LiveBroker],
    source: Protocol,
    source_order: ByteOrder,
    target: Protocol,
    target_order: ByteOrder,
) -> None:
    here, there = nodes
    with (
        joined(there, target, target_order) as subscriber,
        joined(here, source, source_order) as publisher,
    ):
        subscriber.subscribe(7)
        settle(there, 1)
        sent = [(7, value) for value in VALUES]
        for channel, value in sent:
            publisher.publish(channel, value)
        assert receive(subscriber, len(sent)) == named(target, sent)
    settle(there, 0)


@pytest.mark.parametrize("publishes_on", [0, 1])
def test_wildcards_and_every_audience_on_both_nodes(
    nodes: tuple[LiveBroker, LiveBroker], publishes_on: int
) -> None:
    """The second node delivers its own messages when they are committed."""
    with contextlib.ExitStack() as stack:
        subscribers = []
        for broker in nodes:
            mine = [stack.enter_context(joined(broker, *audience)) for audience in AUDIENCES]
            for subscriber in mine:
                subscriber.subscribe(None)
                if not subscriber.wildcards:
                    for channel in range(10):
                        subscriber.subscribe(channel)
            wide = sum(subscriber.wildcards for subscriber in mine)
            settle(broker, wide + 10 * (len(mine) - wide))
            subscribers += mine
        publisher = stack.enter_context(joined(nodes[publishes_on], *SOURCES[0]))
        randomness = random.Random(7)
        sent = [(randomness.randrange(10), n.to_bytes(2, "big")) for n in range(500)]
        for channel, value in sent:
            publisher.publish(channel, value)
        for subscriber in subscribers:
            assert receive(subscriber, len(sent)) == named(subscriber.protocol, sent)
    for broker in nodes:
        settle(broker, 0)


def test_a_channel_that_nobody_created_is_waited_for_once(
    nodes: tuple[LiveBroker, LiveBroker],
) -> None:
    """A channel has a name on every node, and no record of its own in the state topic."""
    here, there = nodes
    with joined(there, HERALD, "big") as subscriber, joined(here, HERALD, "big") as publisher:
        subscriber.subscribe(200)
        settle(there, 1)
        publisher.publish(200, b"first")
        receive(subscriber, 1)
        began = time.monotonic()
        for number in range(10):
            publisher.publish(200, b"%d" % number)
            receive(subscriber, 2 + number)
        assert time.monotonic() - began < 5 * KAFKA_TOPIC_SECONDS_MAX
    settle(there, 0)


# --- Replay and positions -------------------------------------------------------------------------


def test_replay_has_the_messages_of_all_partitions(nodes: tuple[LiveBroker, LiveBroker]) -> None:
    name = f"history/{secrets.token_hex(4)}"
    for number, broker in enumerate(nodes):
        with connected(broker) as client:
            if not number:
                client.create_topic(name)
            nodes[1].until(lambda: nodes[1].server.broker.topics.find(name) is not None)
            for each in range(20):
                client.publish(name, b"%d.%d" % (number, each))
    ends = [broker.call(lambda each=broker: each.server.storage.end) for broker in nodes]
    for broker in nodes:
        broker.until(lambda each=broker: next_offsets(each) == ends, seconds_max=20)
    offsets = {number: end - 20 for number, end in enumerate(ends)}
    position = ",".join(f"{number}:{offset}" for number, offset in offsets.items())
    for broker in nodes:
        for start in ("@earliest", "@-1m", f"@#{position}"):
            with connected(broker) as client:
                stream = client.subscribe(name + start, timeout=20)
                got = [next(stream).value for _ in range(40)]
            for number in (0, 1):
                own = [value for value in got if value.startswith(b"%d." % number)]
                assert own == [b"%d.%d" % (number, each) for each in range(20)], start
    own_only = f"@#{offsets[1]}"
    with connected(nodes[1]) as client:
        stream = client.subscribe(name + own_only, timeout=20)
        assert [next(stream).value for _ in range(20)] == [b"1.%d" % each for each in range(20)]


def next_offsets(broker: LiveBroker) -> list[int]:
    """Up to which messages of each partition were delivered."""
    catch_up = broker.server.broker.catch_up
    assert catch_up is not None
    return [each.next_offset for _, each in sorted(catch_up.partitions.items())]


def connected(broker: LiveBroker) -> SyncClient:
    host, port = broker.address
    return connect_sync(f"tcp://{host}:{port}", protocol=RHEOS2, timeout=20)


def test_a_topic_that_another_node_creates_or_deletes_is_known(
    nodes: tuple[LiveBroker, LiveBroker],
) -> None:
    here, there = nodes
    name = f"made/{secrets.token_hex(4)}"
    with connected(here) as client:
        client.create_topic(name)
    there.until(lambda: there.server.broker.topics.find(name) is not None, seconds_max=20)
    there.call(lambda: there.server.broker.delete_topic(name))
    here.until(lambda: here.server.broker.topics.find(name) is None, seconds_max=20)
    with joined(there, LAMAMQ, "big") as subscriber, joined(here, LAMAMQ, "big") as publisher:
        subscriber.topic = lambda _: "made/#"  # type: ignore[method-assign]
        publisher.topic = lambda _: name  # type: ignore[method-assign]
        subscriber.subscribe(None)
        settle(there, 1)
        publisher.publish(0, b"again")  # which creates the topic
        assert receive(subscriber, 1) == [(name, b"again")]
    settle(there, 0)


def test_a_subscriber_that_does_not_read_loses_nothing_of_another_node(
    nodes: tuple[LiveBroker, LiveBroker],
) -> None:
    here, there = nodes
    count, size = 5000, 2000
    with connect(there, b"", b"\x07") as slow, herald.publisher(here) as publisher:
        for number in range(count):
            publisher.send(herald.publish(7, number.to_bytes(4, "big") + bytes(size)))
        there.until(
            lambda: any(each.feeds for each in there.server.broker.sessions), seconds_max=60
        )
        for number in range(count):
            assert slow.message()[2][:4] == number.to_bytes(4, "big")
    settle(there, 0)


# --- Resuming -------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaves", [True, False])
def test_a_client_resumes_on_another_node_where_it_stood(
    nodes: tuple[LiveBroker, LiveBroker], *, leaves: bool
) -> None:
    """Without leaving, its first connection still looks alive, and is closed."""
    here, there = nodes
    client_id = secrets.token_hex(8).encode()
    with herald.publisher(here) as publisher, herald.publisher(there) as other:
        first = herald.HeraldPeer(here).join(herald.handshake_sub(b"\x07", client_id))
        settle(here, 1)
        publisher.send(herald.publish(7, b"a0"))
        assert first.message()[2] == b"a0"
        other.send(herald.publish(7, b"b0"))
        assert first.message()[2] == b"b0"
        here.until(lambda: all_acknowledged(here, first), seconds_max=20)
        if leaves:
            others = here.call(lambda: len(here.server.broker.resumption))
            first.socket.close()
            here.until(lambda: len(here.server.broker.resumption) > others, seconds_max=20)
            for number in range(1, 20):
                publisher.send(herald.publish(7, b"a%d" % number))
                other.send(herald.publish(7, b"b%d" % number))
        with herald.HeraldPeer(there).join(herald.handshake_sub(b"", client_id)) as again:
            settle(there, 1)
            publisher.send(herald.publish(7, b"a20"))
            other.send(herald.publish(7, b"b20"))
            numbers = [*range(1, 20), 20] if leaves else [20]
            got = [again.message()[2] for _ in range(2 * len(numbers))]
            for sender in (b"a", b"b"):
                own = [value for value in got if value.startswith(sender)]
                assert own == [sender + b"%d" % number for number in numbers]
            if not leaves:
                first.expect(herald.DISCONNECT)
        first.socket.close()


def test_a_client_that_comes_while_kafka_does_not_answer_gets_its_subscriptions(
    kafka: KafkaBroker, nodes: tuple[LiveBroker, LiveBroker]
) -> None:
    """The node writes positions of connected clients meanwhile: not those it is looking for."""
    here, there = nodes
    client_id = secrets.token_hex(8).encode()
    with herald.publisher(here) as publisher:
        first = herald.HeraldPeer(here).join(herald.handshake_sub(b"\x07", client_id))
        settle(here, 1)
        first.socket.close()
        settle(here, 0)
        until(lambda: has_left(there, client_id), "a client that has left", look_seconds=0.1)
        publisher.send(herald.publish(7, b"meanwhile"))
        kafka.freeze(frozen=True)
        try:
            again = herald.HeraldPeer(there)
            again.send(herald.handshake_sub(b"", client_id))
            noted = there.server.broker.clock.monotonic() + 1.5 * SENT_POSITIONS_SECONDS[0]
            there.until(lambda: there.server.broker.clock.monotonic() > noted)
        finally:
            kafka.freeze(frozen=False)
        again.socket.settimeout(20)
        again.join(b"")  # acknowledged when its subscriptions are there
        assert again.message()[2] == b"meanwhile"
        again.socket.close()
    settle(there, 0)


def has_left(broker: LiveBroker, client_id: bytes) -> bool:
    """Let a node read the state topic to its end; return whether a client is not connected."""
    key = msgspec.json.encode((ANYONE.name, "127.0.0.1", client_id.decode())).decode()
    found: queue.SimpleQueue[KeptSession | None] = queue.SimpleQueue()
    broker.call(lambda: broker.server.storage.sessions.find(key, found.put))
    session = found.get(timeout=20)
    return session is not None and not session.connected


# --- Requests -------------------------------------------------------------------------------------


def fleximq(broker: LiveBroker) -> SyncClient:
    host, port = broker.address
    return connect_sync(f"tcp://{host}:{port}", protocol=FLEXIMQ, timeout=20)


def test_requests_replies_and_notifications_reach_clients_of_another_node(
    nodes: tuple[LiveBroker, LiveBroker],
) -> None:
    here, there = nodes
    with fleximq(here) as asker, fleximq(there) as target, fleximq(here) as other:
        assert asker.identity is not None
        assert target.identity is not None
        assert other.identity is not None
        assert len({asker.identity, target.identity, other.identity}) == 3
        target.serve("/double", lambda request: 2 * request.payload)
        assert asker.request(target.identity, "/double", 21).payload == 42
        assert other.request(target.identity, "/double", "ab").payload == "abab"
        with pytest.raises(Refused, match="600"):
            asker.request(target.identity + 1, "/double", 1)
        with pytest.raises(Refused, match="600"):  # of a node that there is not
            asker.request(0xFFFFFFFE, "/double", 1)
        heard = target.notifications(timeout=20)
        asker.notify({target.identity: "/note", other.identity: "/note"}, [1, 2])
        asker.broadcast("all")
        notes = [next(heard) for _ in range(2)]
        assert [note.payload for note in notes] == [[1, 2], "all"]
        assert {note.sender for note in notes} == {asker.identity}


class Stalled:
    """A producer of Kafka whose commits wait."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.released = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def commit_transaction(self, seconds: float) -> None:
        self.released.wait(30)
        self._producer.commit_transaction(seconds)


def test_a_client_misses_nothing_of_the_process_that_follows_a_killed_one(
    kafka: KafkaBroker,
) -> None:
    """It had got messages that were never committed; their offsets are assigned again."""
    topic, name = f"killed-{secrets.token_hex(4)}", secrets.token_hex(6)
    with (
        node(kafka, topic, 0, deliver_committed=False) as first,
        node(kafka, topic, 1, deliver_committed=False) as second,
        herald.HeraldPeer(first).join(herald.handshake_sub(b"\x07", name.encode())) as client,
    ):
        log = first.server.storage
        assert isinstance(log, KafkaLog)
        with herald.publisher(first) as publisher:
            publisher.send(herald.publish(7, b"a"))
            assert client.message()[2] == b"a"
            first.until(lambda: log.end == 1)
            committer = log._committer
            stalled = Stalled(cast("Producer", committer._producer))
            committer._producer = cast("Producer", stalled)
            publisher.send(b"".join(herald.publish(7, b"lost") for _ in range(10)))
            assert {client.message()[2] for _ in range(10)} == {b"lost"}
        key = SESSION + msgspec.json.encode((ANYONE.name, "127.0.0.1", name)).decode()
        saved_until = 0

        def saved() -> bool:
            nonlocal saved_until
            kept = log._state.load(key, KeptSession)
            assert kept is not None
            assert kept.positions.get("channel/7", {}).get(0, 0) <= 1
            saved_until = saved_until or kept.until_us
            return kept.until_us > saved_until + 2 * SENT_POSITIONS_SECONDS[0] * 1e6

        until(saved, "the positions are saved again")
        # The process is killed: nothing of it is heard any more.
        first.call(lambda: setattr(log.sessions, "put", lambda *_: None))
        with node(kafka, topic, 0, deliver_committed=False) as successor:
            sent = [b"n%d" % number for number in range(12)]
            host, port = successor.address
            with connect_sync(f"tcp://{host}:{port}", protocol=RHEOS2) as rheos:
                for value in sent:
                    rheos.publish("channel/7", value)
            with herald.HeraldPeer(second) as again:
                again.join(herald.handshake_sub(b"", name.encode()))
                assert [again.message()[2] for _ in sent] == sent
        stalled.released.set()
