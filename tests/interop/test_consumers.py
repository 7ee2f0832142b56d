"""Consumers of the client library: members of a group, in every protocol that has names."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from penstock.client import (
    Backoff,
    BadOption,
    ClientEvent,
    Delivery,
    ErrorReported,
    InvalidStart,
    Refused,
    SyncClient,
    SyncConsumer,
    SyncStream,
    Unsupported,
    connect,
    connect_sync,
)
from penstock.client.options import ProtocolName
from penstock.core.broker import BrokerSettings
from penstock.core.groups import GroupSettings
from penstock.core.sessions import Session
from penstock.gateway.options import GatewayOptions
from tests.support.live import LiveBroker
from tests.support.served import free_port

ANSWERING = ("fleximq", "lamamq")
SECONDS = 10.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LiveBroker]:
    settings = BrokerSettings(groups=GroupSettings(deliveries_max=2))
    with LiveBroker(data=tmp_path, settings=settings) as live:
        yield live


def url(broker: LiveBroker) -> str:
    host, port = broker.address
    return f"tcp://{host}:{port}"


def publish(broker: LiveBroker, *values: bytes) -> None:
    with connect_sync(url(broker), protocol="lamamq") as client:
        client.publish_many("orders/1", values)


def unacknowledged(broker: LiveBroker) -> int | None:
    groups = broker.server.broker.groups
    assert groups is not None
    figures = groups.figures("billing")
    return None if figures is None else figures.unacknowledged


@pytest.mark.parametrize("protocol", ["rheos1", "rheos2", "fleximq", "lamamq"])
def test_a_consumer_goes_on_where_it_stopped(broker: LiveBroker, protocol: str) -> None:
    async def consume(*values: bytes) -> None:
        async with (
            connect(url(broker), protocol=protocol) as client,  # type: ignore[arg-type]
            client.consume("orders/#", group="billing", start="earliest") as messages,
        ):
            for value in values:
                message = await messages.get(SECONDS)
                assert message.value == value
                assert await message.ack()
            while await asyncio.to_thread(broker.call, lambda: unacknowledged(broker)):
                await asyncio.sleep(0.005)

    publish(broker, b"a", b"b")
    asyncio.run(consume(b"a", b"b"))
    publish(broker, b"c")
    asyncio.run(consume(b"c"))


def test_messages_are_acknowledged_together_without_asyncio(broker: LiveBroker) -> None:
    with (
        connect_sync(url(broker), protocol="lamamq") as client,
        client.consume("orders/#", group="billing") as consumer,
        client.subscribe("dead/billing") as dead,
    ):
        publish(broker, b"a", b"b", b"c")
        found = [consumer.get(SECONDS) for _ in range(3)]
        assert consumer.ack(found[:2])
        broker.until(lambda: unacknowledged(broker) == 1)
        assert consumer.nack(found[2:], "no such account")
        assert consumer.nack([consumer.get(SECONDS)], "no such account")
        assert next(dead).value == b"c"
        broker.until(lambda: unacknowledged(broker) == 0)


@pytest.mark.parametrize("protocol", ["rheos1", "rheos2", "fleximq", "lamamq"])
def test_a_plain_subscription_cannot_name_a_group(broker: LiveBroker, protocol: str) -> None:
    with (
        connect_sync(url(broker), protocol=protocol) as client,  # type: ignore[arg-type]
        pytest.raises(BadOption, match="use consume"),
    ):
        client.subscribe("orders/#@group=billing,earliest")


@pytest.mark.parametrize("protocol", ANSWERING)
def test_what_a_consumer_refuses_comes_again_and_then_to_the_dead_letters(
    broker: LiveBroker, protocol: str
) -> None:
    options = {"protocol": protocol}
    with (
        connect_sync(url(broker), **options) as client,  # type: ignore[arg-type]
        client.subscribe("dead/billing") as dead,
        client.consume("orders/#", group="billing", timeout=SECONDS) as messages,
    ):
        publish(broker, b"a", b"b")
        for message in messages:
            assert message.nack("no such account") if message.value == b"a" else message.ack()
            if message.value == b"b":
                break
        again = messages.get(SECONDS)
        assert again.nack("no such account")
        assert not again.ack(), "the first answer counts"
        assert not again.nack()
        letter = dead.get(SECONDS)
        assert (letter.topic, letter.value) == ("dead/billing", b"a")
        broker.until(lambda: unacknowledged(broker) == 0)


@pytest.mark.parametrize("protocol", ANSWERING)
def test_a_consumer_that_ends_leaves_its_messages_to_others(
    broker: LiveBroker, protocol: str
) -> None:
    with connect_sync(url(broker), protocol=protocol) as client:  # type: ignore[arg-type]
        with client.consume("orders/#", group="billing") as first:
            publish(broker, b"a", b"b")
            assert first.get(SECONDS).ack()
        with client.consume("orders/#", group="billing") as second:
            (message,) = second.take(SECONDS)
            assert message.value == b"b"


def dead_letters(broker: LiveBroker) -> list[bytes]:
    """Return the values of all dead letters."""
    with connect_sync(url(broker), protocol="lamamq") as client:
        client.publish("dead/billing", b"end")
        with client.subscribe("dead/billing@earliest") as letters:
            return list(iter(lambda: letters.get(SECONDS).value, b"end"))


@pytest.mark.parametrize("protocol", ANSWERING)
def test_messages_of_consumers_that_leave_never_die(broker: LiveBroker, protocol: str) -> None:
    values = [b"%d" % number for number in range(100)]
    publish(broker, *values)
    with connect_sync(url(broker), protocol=protocol) as client:  # type: ignore[arg-type]
        for value in values[:6]:  # more than there may be deliveries
            with client.consume("orders/#", group="billing", start="earliest") as messages:
                message = messages.get(SECONDS)
                assert message.value == value
                assert message.ack()
        with client.consume("orders/#", group="billing") as messages:
            found = []
            while len(found) < 94:
                taken = messages.take(SECONDS)
                found += [message.value for message in taken]
                assert all(message.ack() for message in taken)
            assert found == values[6:]
    assert dead_letters(broker) == []


@pytest.mark.parametrize("protocol", ANSWERING)
def test_a_message_that_ends_its_consumers_dies_and_no_other(
    broker: LiveBroker, protocol: str
) -> None:
    publish(broker, b"a", b"poison", b"b", b"c")
    processed: list[bytes] = []

    def work(client: SyncClient) -> None:
        with client.consume("orders/#", group="billing", start="earliest") as messages:
            while len(processed) < 3:
                message = messages.get(SECONDS)
                if message.value == b"poison":
                    raise ValueError(message.value)
                processed.append(message.value)
                assert message.ack()

    with connect_sync(url(broker), protocol=protocol) as client:  # type: ignore[arg-type]
        for _ in range(2):
            with pytest.raises(ValueError, match="poison"):
                work(client)
        work(client)
    assert processed == [b"a", b"b", b"c"]
    broker.until(lambda: not unacknowledged(broker))
    assert dead_letters(broker) == [b"poison"]


@pytest.mark.parametrize("protocol", ANSWERING)
def test_an_acknowledgment_of_a_lost_connection_is_not_taken_for_one_of_the_next(
    broker: LiveBroker, protocol: str
) -> None:
    with (
        connect_sync(url(broker), protocol=protocol) as client,  # type: ignore[arg-type]
        client.consume("orders/#", group="billing") as messages,
    ):
        publish(broker, b"a")
        before = messages.get(SECONDS)
        broker.call(lambda: [session.link.abort() for session in broker.server.broker.sessions])
        again = messages.get(SECONDS)
        assert (before.value, again.value) == (b"a", b"a")
        assert not before.ack()
        assert broker.call(lambda: unacknowledged(broker)) == 1
        assert again.ack()
        broker.until(lambda: unacknowledged(broker) == 0)


def test_an_ordered_consumer_and_a_wrong_one(broker: LiveBroker) -> None:
    with connect_sync(url(broker), protocol="lamamq") as client:
        with client.consume("orders/#", group="billing", is_ordered=True) as messages:
            publish(broker, b"a")
            assert messages.get(SECONDS).ack()
        with pytest.raises(InvalidStart):
            client.consume("orders/#", group="bill ing")
        with pytest.raises(InvalidStart):
            client.consume("orders/#", group="billing", start="yesterday")
    with (
        connect_sync(url(broker), protocol="herald") as client,
        pytest.raises(Unsupported),
    ):
        client.consume(7, group="billing")


# --- Places ---------------------------------------------------------------------------------------

NAMED: tuple[ProtocolName, ...] = ("rheos1", "rheos2", "fleximq", "lamamq")
TOPIC = "channel/7"


@pytest.fixture
def bound(tmp_path: Path) -> Iterator[LiveBroker]:
    """A broker that makes herald's subscribers of channel 7 members of the group."""
    options = GatewayOptions(herald_replay={7: "@group=billing"})
    with LiveBroker(data=tmp_path, options=options) as live:
        yield live


@contextlib.contextmanager
def member(
    broker: LiveBroker, protocol: ProtocolName
) -> Iterator[SyncConsumer | SyncStream[Delivery]]:
    with connect_sync(url(broker), protocol=protocol) as client:
        if protocol == "herald":
            with client.subscribe(7) as stream:
                yield stream
        else:
            with client.consume(TOPIC, group="billing") as consumer:
                yield consumer


@pytest.mark.parametrize("protocol", [*NAMED, "herald"])
def test_every_message_of_a_group_says_where_it_stands(
    bound: LiveBroker, protocol: ProtocolName
) -> None:
    with (
        connect_sync(url(bound), protocol="rheos2") as publisher,
        member(bound, protocol) as messages,
    ):
        before = time.time_ns() // 1000
        publisher.create_topic("other")
        ids = []
        for _ in range(3):
            ids.append(publisher.publish(TOPIC, b"a"))
            publisher.publish("other", b"b")
        got = [messages.get(SECONDS) for _ in ids]
        after = time.time_ns() // 1000
    assert [each.message_id for each in got] == ids
    assert [each.offset for each in got] == [0, 2, 4]
    assert {each.partition for each in got} == {0}
    assert all(before <= (each.broker_time_us or 0) <= after for each in got)
    assert all(each.sender is not None for each in got)


@pytest.mark.parametrize("protocol", ANSWERING)
def test_a_message_that_comes_again_has_its_place(
    broker: LiveBroker, protocol: ProtocolName
) -> None:
    with (
        connect_sync(url(broker), protocol=protocol) as client,
        client.consume("orders/#", group="billing") as messages,
    ):
        publish(broker, b"a")
        first = messages.get(SECONDS)
        assert (first.offset, first.nack()) == (0, True)
        again = messages.get(SECONDS)
        assert (again.offset, again.message_id) == (0, first.message_id)


def test_a_herald_client_takes_the_earlier_messages_of_a_member_that_left(
    bound: LiveBroker,
) -> None:
    with connect_sync(url(bound), protocol="lamamq") as publisher:
        with member(bound, "lamamq") as first:
            publisher.publish(TOPIC, b"a")
            assert first.get(SECONDS).value == b"a"
            stack = contextlib.ExitStack()
            other = stack.enter_context(member(bound, "herald"))
            groups = bound.server.broker.groups
            assert groups is not None
            bound.until(lambda: len(groups.members("billing")) == 2)
            publisher.publish(TOPIC, b"b")
            assert other.get(SECONDS).value == b"b"
        with stack:
            again = other.get(SECONDS)
            assert (again.value, again.offset) == (b"a", 0)


# --- Refusals that pass ---------------------------------------------------------------------------

QUICK = Backoff(seconds_min=0.02, seconds_max=0.1)


class RefusingBroker(LiveBroker):
    """A broker that can store no group: a file is where their folder would be, until `accept`."""

    def __init__(self, folder: Path, options: GatewayOptions | None = None) -> None:
        super().__init__(data=folder, options=options)
        self._blocker = folder / "groups"

    def __enter__(self) -> Self:
        super().__enter__()
        self._blocker.write_text("")
        return self

    def accept(self) -> None:
        self._blocker.unlink()


class Refusals:
    """The retriable refusals that a client reports."""

    def __init__(self) -> None:
        self.came = threading.Event()

    def observe(self, event: ClientEvent) -> None:
        if isinstance(event, ErrorReported) and isinstance(event.error, Refused):
            assert event.error.retriable
            self.came.set()


@pytest.mark.parametrize("protocol", NAMED)
def test_a_consumer_that_is_refused_for_the_moment_after_a_reconnect_joins_later(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    refusals = Refusals()
    with RefusingBroker(tmp_path / "next") as following, contextlib.ExitStack() as closing:
        with LiveBroker(data=tmp_path / "first") as broker:
            client = connect_sync(
                [url(broker), url(following)],
                protocol=protocol,
                backoff=QUICK,
                on_event=refusals.observe,
            )
            closing.enter_context(client)
            messages = closing.enter_context(client.consume("orders/#", group="billing"))
            publish(broker, b"a")
            assert messages.get(SECONDS).value == b"a"
        assert refusals.came.wait(SECONDS)
        following.accept()
        following.until(lambda: following.server.broker.has_group("billing"))
        publish(following, b"b")
        assert messages.get(SECONDS).value == b"b"


def test_a_herald_client_that_is_refused_for_the_moment_after_a_reconnect_goes_on_later(
    tmp_path: Path,
) -> None:
    refusals = Refusals()
    options = GatewayOptions(herald_replay={7: "@group=billing"})
    with RefusingBroker(tmp_path / "next", options) as following, contextlib.ExitStack() as closing:
        with LiveBroker(data=tmp_path / "first", options=options) as broker:
            client = connect_sync(
                [url(broker), url(following)],
                protocol="herald",
                backoff=QUICK,
                on_event=refusals.observe,
            )
            messages = closing.enter_context(client).subscribe(7, timeout=SECONDS)
        assert refusals.came.wait(SECONDS)
        following.accept()
        following.until(lambda: following.server.broker.has_group("billing"))
        with connect_sync(url(following), protocol="lamamq") as publisher:
            publisher.publish(TOPIC, b"a")
        assert next(messages).value == b"a"


@pytest.mark.parametrize("protocol", NAMED)
def test_a_consumer_that_is_refused_for_the_moment_joins_later(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    refusals = Refusals()
    joined: list[bytes] = []

    def consume() -> None:
        with client.consume("orders/#", group="billing", start="earliest") as messages:
            joined.append(messages.get(SECONDS).value)

    with (
        RefusingBroker(tmp_path) as broker,
        connect_sync(
            url(broker), protocol=protocol, backoff=QUICK, on_event=refusals.observe
        ) as client,
    ):
        publish(broker, b"a")
        consuming = threading.Thread(target=consume)
        consuming.start()
        assert refusals.came.wait(SECONDS)
        broker.accept()
        consuming.join(SECONDS)
    assert joined == [b"a"]


@pytest.mark.parametrize("protocol", NAMED)
def test_a_consumer_joins_at_the_address_that_does_not_refuse_it(
    broker: LiveBroker, tmp_path: Path, protocol: ProtocolName
) -> None:
    once = Backoff(attempts_max=0)
    with (
        RefusingBroker(tmp_path / "other") as other,
        connect_sync([url(other), url(broker)], protocol=protocol, backoff=once) as client,
        client.consume("orders/#", group="billing") as messages,
    ):
        publish(broker, b"a")
        assert messages.get(SECONDS).value == b"a"


@pytest.mark.parametrize("protocol", NAMED)
def test_a_consumer_that_no_address_accepts_in_time_ends_with_the_refusal(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    nowhere = f"tcp://127.0.0.1:{free_port()}"
    with (
        RefusingBroker(tmp_path) as broker,
        connect_sync(
            [url(broker), nowhere], protocol=protocol, backoff=QUICK, timeout=0.5
        ) as client,
        pytest.raises(Refused) as refused,
    ):
        client.consume("orders/#", group="billing")
    assert refused.value.retriable


@pytest.mark.parametrize("protocol", NAMED)
def test_a_consumer_that_is_refused_for_good_is_not_retried(
    broker: LiveBroker, protocol: ProtocolName
) -> None:
    reported: list[ClientEvent] = []
    with (
        connect_sync(url(broker), protocol=protocol, on_event=reported.append) as client,
        client.consume("orders/#", group="billing"),
    ):
        with pytest.raises(Refused) as refused:
            client.consume("orders/+", group="billing")
        assert not refused.value.retriable
        assert not [each for each in reported if isinstance(each, ErrorReported)]


@pytest.mark.parametrize("protocol", NAMED)
def test_a_consumer_that_is_refused_for_good_after_a_reconnect_ends(
    broker: LiveBroker, protocol: ProtocolName
) -> None:
    def removed() -> Session:
        """Remove the group; return the session that was its member."""
        groups = broker.server.broker.groups
        assert groups is not None
        (session,) = groups.remove("billing", lambda _: None)
        return session

    with (
        connect_sync(url(broker), protocol=protocol, backoff=QUICK) as client,
        client.consume("orders/#", group="billing", timeout=SECONDS) as messages,
    ):
        session = broker.call(removed)
        with client.consume("orders/+", group="billing"):
            broker.call(session.link.abort)
            with pytest.raises(Refused) as refused:
                next(messages)
    assert not refused.value.retriable
