"""The broker delivers, refuses, bounds and acknowledges as it promises."""

import pytest

from penstock._kernels import herald as herald_kernel
from penstock._kernels import rheos2 as rheos2_kernel
from penstock.core.access import ANYONE, Action, Principal, Rule
from penstock.core.audiences import Encoding
from penstock.core.broker import Broker, BrokerSettings
from penstock.core.sessions import Session
from penstock.errors import (
    BrokerFull,
    InvalidTopicName,
    NoSuchTopic,
    NotAllowed,
    TooManySubscriptions,
    TopicHasChannel,
)
from penstock.protocols import PROTOCOLS
from penstock.storage.memory import MemoryLog
from penstock.wire import herald
from tests.support.fakes import FakeClock, RecordingLink
from tests.support.publishes import publish

HERALD = Encoding(PROTOCOLS["herald"], "little")


def new_broker(**settings: object) -> Broker:
    broker = Broker(log=MemoryLog(), clock=FakeClock(), settings=BrokerSettings(**settings))  # type: ignore[arg-type]
    for channel in range(256):
        broker.topics.bind_channel(channel, f"channel/{channel}")
    return broker


def join(
    broker: Broker, *patterns: str, principal: Principal = ANYONE, echo: bool = True
) -> Session:
    session = broker.open(HERALD, RecordingLink(), principal=principal, echo=echo)
    for pattern in patterns:
        broker.subscribe(session, pattern)
    return session


def send(broker: Broker, session: Session, *messages: tuple[int, bytes]) -> int:
    data = b"".join(publish(PROTOCOLS["herald"], "little", channel=c, value=v) for c, v in messages)
    end = herald_kernel.scan(
        data, 0, broker.batch, broker.topics, session.sender, order="little",
        permits=broker.permits(session),
    )  # fmt: skip
    assert end == len(data)
    receipt = broker.publish_batch(session, broker.batch)
    broker.batch.clear()
    return receipt.first_offset


def messages(session: Session) -> list[tuple[int, bytes]]:
    decoder = herald.Decoder()
    decoder.feed(session.link.read())  # type: ignore[attr-defined]
    return [(p.channel, p.message) for p in decoder if isinstance(p, herald.Message)]


def test_a_batch_reaches_its_subscribers_in_order() -> None:
    broker = new_broker()
    publisher, one, all_ = join(broker), join(broker, "channel/1"), join(broker, "#")
    assert send(broker, publisher, (1, b"a"), (2, b"b"), (1, b"c")) == 0
    assert send(broker, publisher, (2, b"d")) == 3
    assert messages(one) == [(1, b"a"), (1, b"c")]
    assert messages(all_) == [(1, b"a"), (2, b"b"), (1, b"c"), (2, b"d")]
    assert broker.counters.messages_received[PROTOCOLS["herald"]] == 4
    assert broker.counters.messages_sent[PROTOCOLS["herald"]] == 6


def test_a_publisher_hears_itself_unless_told_otherwise() -> None:
    broker = new_broker()
    loud, quiet = join(broker, "#"), join(broker, "#", echo=False)
    send(broker, loud, (1, b"a"))
    send(broker, quiet, (1, b"b"))
    assert messages(loud) == [(1, b"a"), (1, b"b")]
    assert messages(quiet) == [(1, b"a")]


def test_unsubscribed_means_not_one_message_more() -> None:
    broker = new_broker()
    publisher, subscriber = join(broker), join(broker, "channel/1", "channel/+")
    assert broker.unsubscribe(subscriber, "channel/+")
    send(broker, publisher, (1, b"a"), (2, b"b"))
    assert messages(subscriber) == [(1, b"a")]
    assert broker.unsubscribe(subscriber, "channel/1")
    assert not broker.unsubscribe(subscriber, "channel/1")
    send(broker, publisher, (1, b"c"))
    assert messages(subscriber) == []


def test_a_session_that_leaves_is_forgotten() -> None:
    broker = new_broker()
    publisher, subscriber = join(broker), join(broker, "#")
    broker.close(subscriber)
    send(broker, publisher, (1, b"a"))
    assert messages(subscriber) == []
    assert len(broker.sessions) == 1
    assert broker.sessions.get(subscriber.number) is None


def test_numbers_are_not_reused_at_once() -> None:
    broker = new_broker()
    first = join(broker)
    broker.close(first)
    assert join(broker).number == first.number + 1
    assert first.number == 1000


def test_a_full_broker_lets_nobody_in() -> None:
    broker = new_broker(sessions_max=2)
    first = join(broker)
    join(broker)
    with pytest.raises(BrokerFull):
        join(broker)
    broker.close(first)
    join(broker)


def test_subscriptions_of_one_client_are_bounded() -> None:
    broker = new_broker(subscriptions_max=2)
    session = join(broker, "a", "b")
    assert not broker.subscribe(session, "a")
    with pytest.raises(TooManySubscriptions):
        broker.subscribe(session, "c")


def test_a_subscriber_that_does_not_read_loses_messages_and_they_are_counted() -> None:
    broker = new_broker(out_buffer_bytes_max=100)
    publisher, slow = join(broker), join(broker, "#")
    slow.link.buffered = 101  # type: ignore[misc]
    send(broker, publisher, (1, b"a"), (1, b"b"))
    assert messages(slow) == []
    assert slow.dropped == broker.counters.messages_dropped[PROTOCOLS["herald"]] == 2
    slow.link.buffered = 100  # type: ignore[misc]
    send(broker, publisher, (1, b"c"))
    assert messages(slow) == [(1, b"c")]


def test_or_is_disconnected_where_that_is_the_setting() -> None:
    broker = new_broker(out_buffer_bytes_max=100, disconnect_slow_consumers=True)
    publisher, slow = join(broker), join(broker, "#")
    slow.link.buffered = 101  # type: ignore[misc]
    send(broker, publisher, (1, b"a"))
    assert slow.link.aborted  # type: ignore[attr-defined]


def test_publishers_wait_for_a_congested_subscriber_until_it_has_drained() -> None:
    broker = new_broker()
    publisher, other, subscriber = join(broker), join(broker), join(broker, "#")
    subscriber.link.congested = True  # type: ignore[misc]
    send(broker, publisher, (1, b"a"))
    send(broker, publisher, (1, b"b"))
    send(broker, other, (1, b"c"))
    assert publisher.link.pauses == other.link.pauses == 1  # type: ignore[attr-defined]
    subscriber.link.congested = False  # type: ignore[misc]
    broker.drained(subscriber)
    assert publisher.link.pauses == other.link.pauses == 0  # type: ignore[attr-defined]
    assert messages(subscriber) == [(1, b"a"), (1, b"b"), (1, b"c")]


def test_but_not_longer_than_the_limit() -> None:
    broker = new_broker(hold_seconds_max=1)
    publisher, subscriber = join(broker), join(broker, "#")
    subscriber.link.congested = True  # type: ignore[misc]
    send(broker, publisher, (1, b"a"))
    broker.clock.seconds += 1  # type: ignore[attr-defined]
    broker.timers.run_due()
    assert not publisher.link.paused  # type: ignore[attr-defined]
    send(broker, publisher, (1, b"b"))
    assert not publisher.link.paused, "it had its time"  # type: ignore[attr-defined]
    broker.drained(subscriber)
    send(broker, publisher, (1, b"c"))
    assert publisher.link.paused  # type: ignore[attr-defined]


def test_each_wait_has_its_full_time() -> None:
    broker = new_broker(hold_seconds_max=1)
    publisher, subscriber = join(broker), join(broker, "#")
    link, clock = publisher.link, broker.clock
    subscriber.link.congested = True  # type: ignore[misc]
    send(broker, publisher, (1, b"a"))
    clock.seconds += 0.1  # type: ignore[attr-defined]
    broker.drained(subscriber)
    clock.seconds += 0.8  # type: ignore[attr-defined]
    send(broker, publisher, (1, b"b"))
    clock.seconds += 0.5  # type: ignore[attr-defined]
    broker.timers.run_due()
    assert link.paused  # type: ignore[attr-defined]
    clock.seconds += 0.5  # type: ignore[attr-defined]
    broker.timers.run_due()
    assert not link.paused  # type: ignore[attr-defined]


def test_nor_for_one_that_has_left() -> None:
    broker = new_broker()
    publisher, subscriber = join(broker), join(broker, "#")
    subscriber.link.congested = True  # type: ignore[misc]
    send(broker, publisher, (1, b"a"))
    broker.close(subscriber)
    assert not publisher.link.paused  # type: ignore[attr-defined]


def settle(broker: Broker) -> None:
    """Do all work that is done in slices."""
    while broker.slices:
        broker.slices.run()


def allow(action: Action, pattern: str) -> Rule:
    return Rule(allow=True, actions=frozenset({action}), pattern=pattern)


def deny(action: Action, pattern: str) -> Rule:
    return Rule(allow=False, actions=frozenset({action}), pattern=pattern)


def test_rules_are_tried_in_order_and_the_first_that_fits_decides() -> None:
    principal = Principal(
        "p",
        [
            deny(Action.PUBLISH, "channel/2"),
            allow(Action.PUBLISH, "channel/+"),
            allow(Action.SUBSCRIBE, "channel/#"),
        ],
        default=False,
    )
    broker = new_broker()
    session = join(broker, principal=principal)
    assert broker.permits(session) == b""
    broker.authorize_publish(session, "channel/1")
    permits = broker.permits(session)
    identifier = broker.topics.find("channel/1")
    assert permits is not None
    assert identifier is not None
    assert permits[identifier] == 1
    for name in ("channel/2", "other"):
        with pytest.raises(NotAllowed):
            broker.authorize_publish(session, name)
    assert broker.topics.find("other") is None, "a refused name is not interned"
    with pytest.raises(InvalidTopicName):
        broker.authorize_publish(session, "channel/+")
    broker.subscribe(session, "channel/+")
    with pytest.raises(NotAllowed):
        broker.subscribe(session, "#")
    assert broker.permits(join(broker)) is None


def test_a_wildcard_subscription_gets_nothing_that_a_rule_denies() -> None:
    allowed = Principal("p", [allow(Action.SUBSCRIBE, "sensors/+")], default=False)
    denied = Principal("q", [deny(Action.SUBSCRIBE, "secret/x")])
    broker = new_broker()
    session, other = join(broker, principal=allowed), join(broker, principal=denied)
    broker.subscribe(session, "sensors/+")
    broker.subscribe(session, "sensors/1")
    for pattern in ("sensors/#", "#", "sensors/+/x", "+/1"):
        with pytest.raises(NotAllowed):
            broker.subscribe(session, pattern)
    for pattern in ("secret/x", "secret/+", "secret/#", "#", "+/x"):
        with pytest.raises(NotAllowed):
            broker.subscribe(other, pattern)
    broker.subscribe(other, "secret/y")
    broker.subscribe(other, "public/#")


def test_values_too_long_for_herald_are_left_out_for_herald_alone() -> None:
    broker = new_broker()
    subscriber = join(broker, "#")
    other = broker.open(Encoding(PROTOCOLS["rheos2"], "little"), RecordingLink(), principal=ANYONE)
    broker.subscribe(other, "#")
    publisher = join(broker)
    data = b"".join(
        publish(PROTOCOLS["rheos2"], "little", channel=1, value=value)
        for value in (b"a", bytes(1_048_568), b"b")
    )
    rheos2_kernel.scan(data, 0, broker.batch, broker.topics, publisher.sender)
    broker.publish_batch(publisher, broker.batch)
    broker.batch.clear()
    assert messages(subscriber) == [(1, b"a"), (1, b"b")]
    assert other.link.read() == data  # type: ignore[attr-defined]
    assert broker.counters.messages_undeliverable[PROTOCOLS["herald"]] == 1


def test_timers_run_in_order_when_they_are_due() -> None:
    clock = FakeClock()
    broker = Broker(log=MemoryLog(), clock=clock)
    seen: list[str] = []
    broker.timers.after(2, lambda: seen.append("b"))
    broker.timers.after(1, lambda: seen.append("a"))
    broker.timers.after(3, lambda: seen.append("never")).cancel()
    assert broker.timers.run_due() == 1
    clock.seconds += 2
    assert broker.timers.run_due() is None
    assert seen == ["a", "b"]


def test_each_broker_shares_one_instance_of_a_kind_among_its_connections() -> None:
    class Shared:
        pass

    broker, other = new_broker(), new_broker()
    assert broker.shared(Shared) is broker.shared(Shared)
    assert broker.shared(Shared) is not other.shared(Shared)


def test_a_subscription_is_resumed_only_if_the_rules_still_allow_it() -> None:
    broker = new_broker()
    principal = Principal("p")
    session = broker.open(HERALD, RecordingLink(), principal=principal)
    principal.set_rules([deny(Action.SUBSCRIBE, "channel/1")], default=True)
    with pytest.raises(NotAllowed):
        broker.resume(session, "channel/1", {})
    assert not session.subscriptions
    assert broker.resume(session, "channel/2", {})


def test_changed_rules_end_only_sessions_with_something_forbidden() -> None:
    broker = new_broker()
    principal = Principal("p")
    links = [RecordingLink() for _ in range(3)]
    sessions = [broker.open(HERALD, link, principal=principal) for link in links]
    broker.subscribe(sessions[0], "channel/1")
    broker.subscribe(sessions[0], "channel/2")
    broker.subscribe(sessions[1], "channel/2")
    principal.set_rules([deny(Action.SUBSCRIBE, "channel/1")], default=True)
    broker.rules_changed()
    settle(broker)
    assert [list(session.subscriptions) for session in sessions] == [
        ["channel/2"],
        ["channel/2"],
        [],
    ]
    assert [link.closed for link in links] == [True, False, False]


def test_a_session_whose_rights_are_the_same_is_not_checked_again() -> None:
    broker = new_broker()
    changed, other = Principal("p"), Principal("q")
    for principal in (changed, other):
        broker.subscribe(broker.open(HERALD, RecordingLink(), principal=principal), "channel/1")
        principal.set_rules([allow(Action.SUBSCRIBE, "#")], default=False)
    broker.rules_changed()
    settle(broker)
    assert other.rights.decisions
    changed.set_rules([allow(Action.SUBSCRIBE, "channel/#")], default=False)
    other.rights.decisions.clear()
    broker.rules_changed()
    settle(broker)
    assert changed.rights.decisions
    assert not other.rights.decisions


def test_rules_that_change_while_they_are_enforced_are_enforced() -> None:
    broker = new_broker()
    principal = Principal("p")
    sessions = [broker.open(HERALD, RecordingLink(), principal=principal) for _ in range(100)]
    for session in sessions:
        for number in range(20):
            broker.subscribe(session, f"channel/{number}")
    principal.set_rules([deny(Action.SUBSCRIBE, "channel/3")], default=True)
    broker.rules_changed()
    principal.set_rules([deny(Action.SUBSCRIBE, "channel/4")], default=True)
    broker.rules_changed()
    broker.close(sessions[50])
    settle(broker)
    assert not any("channel/4" in session.subscriptions for session in sessions)
    assert all(session.link.closed for session in sessions if session is not sessions[50])


def test_a_topic_that_a_channel_stands_for_is_not_deleted() -> None:
    broker = new_broker()
    subscriber = join(broker, "channel/1")
    with pytest.raises(TopicHasChannel):
        broker.delete_topic("channel/1")
    assert broker.topics.find("channel/1") is not None
    assert subscriber in broker.router.subscribers("channel/1")
    with pytest.raises(NoSuchTopic):
        broker.delete_topic("another")
