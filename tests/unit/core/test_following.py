"""Messages of other nodes: live, from the log, and where a client resumes."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.core.broker import Broker
from penstock.core.early_offsets import EarlyOffsets
from penstock.core.following import Following
from penstock.errors import InvalidPattern, MemoryExhausted, TooManySubscriptions
from penstock.limits import EARLY_OFFSET_BYTES, EARLY_PATTERN_BYTES
from penstock.memory import MemoryBudget, Purpose
from penstock.ports import KeptSession, KnownTopic
from tests.support.kept_log import KeptRows
from tests.unit.core.test_catch_up import Client, Desk, words

NODE = 1


class NoSessions:
    """A `ports.SessionStore` that has no clients."""

    node = 0

    def find(self, _key: str, then: Callable[[KeptSession | None], None]) -> None:
        then(None)

    def put(self, key: str, session: KeptSession | None) -> None:
        pass


def several_nodes() -> Desk:
    """A broker that other nodes may join."""
    desk = Desk()
    desk.broker.roam(NoSessions())
    return desk


class Pair:
    """A broker, and the log of another one, which it follows."""

    def __init__(self, **settings: object) -> None:
        self.desk = Desk(**settings)
        self.other = Desk()
        self.passed = 0
        self.following.partition_found(NODE, self.other.log, 0)

    @property
    def broker(self) -> Broker:
        return self.desk.broker

    @property
    def following(self) -> Following:
        assert self.broker.following is not None
        return self.broker.following

    def send(self, text: str, *, channel: int = 1) -> None:
        """Publish on the other node."""
        self.other.send(text, channel=channel)
        self.other.log.commit()

    def follow(self) -> None:
        """Read what the other node has written."""
        kept = self.other.log.kept
        for rows in kept[self.passed :]:
            self.following.messages_read(NODE, rows)
        self.passed = len(kept)

    def answer_all(self) -> None:
        while self.desk.log.reads or self.other.log.reads:
            self.desk.log.answer_all()
            self.other.log.answer_all()

    def take(self, text: str) -> None:
        self.send(text)
        self.follow()


def of(client: Client, prefix: str) -> list[bytes]:
    return [value for value in client.read() if value.startswith(prefix.encode())]


def test_messages_of_another_node_are_delivered_when_they_are_read() -> None:
    pair = Pair()
    wide, narrow, none = pair.desk.join("#"), pair.desk.join("channel/2"), pair.desk.join()
    pair.send("a b")
    assert wide.read() == []
    pair.follow()
    pair.send("c", channel=2)
    pair.follow()
    assert (wide.read(), narrow.read(), none.read()) == (words("a b c"), words("c"), [])
    pair.following.messages_read(NODE, pair.other.log.kept[0])
    assert wide.read() == [], "they were read before"
    assert not pair.broker.counters.messages_received


def test_a_session_may_be_behind_in_one_partition_and_live_in_another() -> None:
    pair = Pair()
    slow = pair.desk.join("#")
    slow.congest()
    pair.take("x1 x2")
    assert list(slow.session.feeds) == [NODE]
    slow.drain()
    pair.desk.send("a1")
    assert slow.read() == words("a1"), "it is not congested any more"
    pair.take("x3")
    pair.answer_all()
    assert slow.read() == words("x1 x2 x3")
    assert slow.live
    pair.take("x4")
    assert slow.read() == words("x4")


def test_history_has_all_partitions_each_in_its_order() -> None:
    pair = Pair()
    for number in range(3):
        pair.desk.send(f"a{number}")
        pair.take(f"x{number}")
    pair.desk.log.commit()
    client = pair.desk.join("#@earliest")
    pair.answer_all()
    got = client.read()
    for sender in (b"a", b"x"):
        assert [each for each in got if each.startswith(sender)] == [
            sender + b"%d" % number for number in range(3)
        ]
    assert len(got) == 6
    assert client.live
    later = pair.desk.join("#@#0:2,1:1")
    pair.answer_all()
    assert sorted(later.read()) == words("a2 x1 x2")
    own = pair.desk.join("#@#1")
    pair.answer_all()
    assert own.read() == words("a1 a2"), "an offset without a partition is one of this node"


def test_a_position_is_an_offset_of_each_partition() -> None:
    pair = Pair()
    client = pair.desk.join("#", name="c")
    pair.desk.send("a0")
    pair.take("x0 x1")
    assert pair.broker.positions(client.session) == {"#": {0: 1, NODE: 2}}
    client.congest()
    pair.take("x2")
    assert pair.broker.positions(client.session) == {"#": {0: 1, NODE: 2}}
    pair.broker.keep_for_resume(client.session)
    pair.broker.close(client.session)
    pair.desk.send("a1")
    pair.take("x3")
    pair.desk.log.commit()
    back = pair.desk.join(name="c")
    for pattern, position in pair.broker.resumption.take(back.session).items():
        assert pair.broker.resume(back.session, pattern, position)
    pair.answer_all()
    assert sorted(back.read()) == words("a1 x2 x3")


def test_a_partition_that_a_position_lacks_is_read_from_its_first_message() -> None:
    pair = Pair()
    pair.take("x0")
    client = pair.desk.join()
    assert pair.broker.resume(client.session, "#", {0: 0})
    pair.answer_all()
    assert client.read() == words("x0")


def test_own_messages_may_wait_for_their_commit() -> None:
    pair = Pair(deliver_committed=True)
    client = pair.desk.join("#")
    silent = pair.desk.join("#", echo=False)
    pair.desk.send("a", by=silent)
    pair.desk.send("b")
    assert client.read() == []
    pair.desk.log.commit()
    for rows in pair.desk.log.kept:
        pair.following.messages_read(0, rows)
    assert client.read() == words("a b")
    assert silent.read() == words("b"), "it has no echo of its own"
    client.congest()
    pair.desk.send("c")
    pair.desk.log.commit()
    pair.following.messages_read(0, pair.desk.log.kept[-1])
    client.drain()
    pair.answer_all()
    assert client.read() == words("c")
    assert client.live


def test_topics_of_other_nodes_come_and_go() -> None:
    pair = Pair()
    topics = pair.broker.topics
    pair.following.topic_created(KnownTopic("a/b", bytes(range(16)), "owner"))
    identifier = topics.find("a/b")
    assert identifier is not None
    assert topics.parent(identifier) == bytes(range(16))
    assert topics.owner_of("a/b") == "owner"
    pair.following.topic_created(KnownTopic("a/b", b""))
    assert topics.find("a/b") == identifier
    pair.following.topic_deleted("a/b")
    pair.following.topic_deleted("a/b")
    pair.following.topic_deleted("channel/1")
    assert topics.find("a/b") is None
    assert topics.find("channel/1") is not None, "channels stay"


def test_a_client_that_comes_from_a_faster_node_gets_nothing_twice() -> None:
    pair = Pair()
    pair.take("x0")
    pair.send("x1 x2")  # the node before has delivered these, and this one has not read them
    client = pair.desk.join("channel/2")
    assert pair.broker.resume(client.session, "channel/1", {0: 0, NODE: 2})
    pair.answer_all()
    pair.follow()
    pair.answer_all()
    assert client.read() == words("x2")
    pair.send("y", channel=2)
    pair.follow()
    pair.take("x3")
    pair.answer_all()
    assert client.read() == words("y x3")
    assert client.live
    ahead = pair.desk.join()
    assert pair.broker.resume(ahead.session, "channel/1", {0: 0, NODE: 6})
    pair.take("x4")
    pair.answer_all()
    assert ahead.read() == []
    pair.take("x5 x6")
    pair.answer_all()
    assert ahead.read() == words("x5 x6")
    assert ahead.live


def test_a_client_gets_nothing_twice_of_a_partition_that_this_node_finds_later() -> None:
    pair = Pair.__new__(Pair)
    pair.desk, pair.other, pair.passed = several_nodes(), Desk(), 0
    client, gone, other = pair.desk.join(), pair.desk.join(), pair.desk.join("channel/1")
    for each in (client, gone):
        assert pair.broker.resume(each.session, "channel/1", {0: 0, NODE: 2})
    assert pair.broker.resume(client.session, "channel/2", {0: 0, NODE: 3})
    assert pair.broker.positions(client.session) == {
        "channel/1": {0: 0, NODE: 2},
        "channel/2": {0: 0, NODE: 3},
    }, "it may move on before the partition is found"
    pair.broker.unsubscribe(client.session, "channel/2")
    pair.broker.close(gone.session)
    pair.send("x0 x1")
    pair.following.partition_found(NODE, pair.other.log, 0)
    pair.follow()
    pair.answer_all()
    pair.take("x2")
    pair.answer_all()
    assert client.read() == words("x2")
    assert client.live
    assert other.read() == words("x0 x1 x2")
    assert pair.broker.positions(client.session) == {"channel/1": {0: 0, NODE: 3}}


def test_a_position_in_a_partition_that_is_found_later_may_be_in_its_history() -> None:
    pair = Pair.__new__(Pair)
    pair.desk, pair.other, pair.passed = several_nodes(), Desk(), 0
    client = pair.desk.join()
    pair.send("x0 x1 x2")
    assert pair.broker.resume(client.session, "channel/1", {0: 0, NODE: 1})
    pair.following.partition_found(NODE, pair.other.log, 3)
    pair.passed = 1
    pair.answer_all()
    assert client.read() == words("x1 x2")
    pair.take("x3")
    assert client.read() == words("x3")


def test_messages_whose_delivery_fails_are_read_from_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Pair()
    clients = [pair.desk.join("#"), pair.desk.join("channel/1")]
    audience = pair.following._deliver
    fails = [True]

    def deliver(*arguments: Any, **more: Any) -> int:
        if fails:
            fails.pop()
            raise IndexError("a bug")
        return audience(*arguments, **more)

    monkeypatch.setattr(pair.following, "_deliver", deliver)
    pair.take("x0 x1")
    pair.broker.timers.run_due()
    pair.answer_all()
    pair.take("x2")
    pair.answer_all()
    for each in clients:
        assert each.read() == words("x0 x1 x2")
        assert each.live


def test_messages_that_could_not_be_handed_over_are_read_from_the_log() -> None:
    pair = Pair()
    client, slow = pair.desk.join("#"), pair.desk.join("#")
    pair.take("x0")
    slow.congest()
    pair.send("x1 x2")
    pair.passed = len(pair.other.log.kept)  # they are never read
    pair.following.messages_failed(NODE, 3)
    pair.following.messages_failed(NODE, 3)
    pair.broker.timers.run_due()
    pair.answer_all()
    pair.take("x3")
    slow.drain()
    pair.answer_all()
    assert client.read() == words("x0 x1 x2 x3")
    assert slow.read() == words("x0 x1 x2 x3")
    assert client.live


def test_a_row_group_that_cannot_be_loaded_is_counted_for_each_subscriber(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Pair()
    client = pair.desk.join("#")
    pair.take("x0")
    pair.send("bad bad")
    load = KeptRows.load

    def failing(self: KeptRows, batch: Batch, topics: TopicTable) -> None:
        if self.base_offset == 1:
            raise ValueError("a column is damaged")
        load(self, batch, topics)

    monkeypatch.setattr(KeptRows, "load", failing)
    pair.follow()
    pair.broker.timers.run_due()
    pair.answer_all()
    pair.take("x1")
    assert client.read() == words("x0 x1")
    assert client.live
    assert sum(pair.broker.counters.messages_unreadable.values()) == 2


# --- Offsets of partitions that are not found -----------------------------------------------------


def pairs(numbers: range) -> str:
    return ",".join(f"{number}:0" for number in numbers)


def early_of(desk: Desk) -> EarlyOffsets:
    assert desk.broker.catch_up is not None
    return desk.broker.catch_up.early


def test_a_node_that_writes_alone_stores_no_offsets_of_other_partitions() -> None:
    desk = Desk()
    client = desk.join(f"x@#{pairs(range(1000, 4000))}")
    assert not early_of(desk).of(client.session)
    assert desk.broker.positions(client.session) == {"x": {0: 0}}


def test_only_offsets_of_partitions_that_nodes_may_have_are_stored() -> None:
    desk = several_nodes()
    client = desk.join(f"x@#0:0,{NODE}:7,4095:8,4096:9,9999:10")
    assert early_of(desk).of(client.session) == {"x": {NODE: 7, 4095: 8}}


def test_offsets_of_partitions_that_are_not_found_are_bounded_in_number_for_each_client() -> None:
    desk = several_nodes()
    client, other = desk.join(), desk.join()
    for number in range(4):
        client.subscribe(f"{number}@#{pairs(range(4095))}")
    client.subscribe(f"4@#{pairs(range(1, 5))}", f"5@#{pairs(range(1, 5))}")
    with pytest.raises(TooManySubscriptions, match="16384 offsets of partitions"):
        desk.broker.subscribe(client.session, "6@#1:0")
    assert "6" not in client.session.subscriptions
    client.subscribe("6@#0:0")
    other.subscribe("6@#1:0")
    desk.broker.unsubscribe(client.session, "5")
    client.subscribe("7@#1:0")


def test_offsets_of_partitions_that_are_not_found_are_held_in_the_account_of_their_client() -> None:
    desk = several_nodes()
    client, other = desk.join(), desk.join("y@#1:0")
    client.subscribe("x@#1:0,2:0,3:0")
    account = client.link.account
    one = EARLY_PATTERN_BYTES + EARLY_OFFSET_BYTES
    assert account.size(Purpose.SUBSCRIPTIONS) == one + 2 * EARLY_OFFSET_BYTES
    desk.broker.unsubscribe(client.session, "x")
    assert account.size(Purpose.SUBSCRIPTIONS) == 0
    client.subscribe("x@#1:0")
    desk.broker.close(client.session)
    assert account.size(Purpose.SUBSCRIPTIONS) == 0
    assert other.link.account.size(Purpose.SUBSCRIPTIONS) == one
    assert desk.broker.following is not None
    desk.broker.following.partition_found(1, Desk().log, 0)
    assert other.link.account.size(Purpose.SUBSCRIPTIONS) == 0


def test_a_client_without_memory_for_offsets_is_refused() -> None:
    desk = several_nodes()
    client = desk.join()
    client.link.account = MemoryBudget(1 << 20).open("a")
    with pytest.raises(MemoryExhausted):
        desk.broker.subscribe(client.session, f"x@#{pairs(range(1, 4000))}")
    assert not client.session.subscriptions
    assert not early_of(desk).of(client.session)


def test_a_refused_subscription_leaves_no_offsets() -> None:
    desk = several_nodes()
    client = desk.join()
    with pytest.raises(InvalidPattern):
        desk.broker.subscribe(client.session, "a/#/b@#1:0")
    assert not early_of(desk).of(client.session)
    assert client.link.account.size(Purpose.SUBSCRIPTIONS) == 0
