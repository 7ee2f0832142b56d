"""Consumer groups over real sockets and the log on disk."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.access import Action, Principal, Rule
from penstock.core.broker import BrokerSettings
from penstock.core.groups import Groups, GroupSettings
from penstock.gateway.options import GatewayOptions
from penstock.limits import GROUP_FETCHES_MAX, GROUP_ROW_GROUPS_MAX
from tests.conformance.fleximq.client import Client as FleximqClient
from tests.support import fleximq_bytes as fx
from tests.support import herald_bytes as herald
from tests.support import lamamq_bytes as lama
from tests.support.lamamq_bytes import LamaPeer
from tests.support.live import LiveBroker
from tests.support.rheos_bytes import FAILED, NO_MESSAGE, RHEOS2, SUBSCRIBE, Client, offset_of

RATE_LIMIT_EXCEEDED = 4  # of herald
GROUP = b"orders/#@group=billing"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LiveBroker]:
    with LiveBroker(data=tmp_path) as live:
        yield live


def settings(**given: float) -> BrokerSettings:
    return BrokerSettings(groups=GroupSettings(**given))  # type: ignore[arg-type]


@contextlib.contextmanager
def member(broker: LiveBroker, text: bytes = GROUP) -> Iterator[LamaPeer]:
    with LamaPeer(broker) as peer:
        peer.join().request(lama.subscribe(0, text))
        yield peer


def push(broker: LiveBroker, *values: bytes, topic: bytes = b"orders/1") -> None:
    with LamaPeer(broker) as peer:
        peer.join()
        for value in values:
            peer.request(lama.push(0, topic, value))


def groups_of(broker: LiveBroker) -> Groups:
    groups = broker.server.broker.groups
    assert groups is not None
    return groups


def wait_for_members(broker: LiveBroker, count: int) -> None:
    groups = groups_of(broker)
    broker.until(lambda: len(groups.members("billing")) == count)


def wait_for_unacknowledged(broker: LiveBroker, count: int) -> None:
    groups = groups_of(broker)
    broker.until(lambda: (figures := groups.figures("billing")) and figures.unacknowledged == count)


def take(peer: LamaPeer, *values: bytes) -> list[lama.Forwarded]:
    found = [peer.forwarded() for _ in values]
    assert [each.payload for each in found] == list(values)
    return found


def test_a_group_goes_on_where_its_members_stopped(broker: LiveBroker) -> None:
    with member(broker) as peer:
        push(broker, b"a", b"b", b"c")
        for message in take(peer, b"a", b"b", b"c")[:2]:
            peer.answer(message)
        peer.settle()
    push(broker, b"d")
    with member(broker) as peer:
        take(peer, b"c", b"d")


def test_members_get_each_message_once_between_them(broker: LiveBroker) -> None:
    with member(broker) as first, member(broker) as second:
        push(broker, *(b"%d" % number for number in range(10)))
        wait_for_unacknowledged(broker, 10)
        found = []
        for peer in (first, second):
            for _ in range(5):
                message = peer.forwarded()
                found.append(message.payload)
                peer.answer(message)
            peer.settle()
        assert sorted(found) == [b"%d" % number for number in range(10)]


def test_a_message_that_fails_comes_again_and_then_goes_to_the_dead_letters(
    tmp_path: Path,
) -> None:
    with (
        LiveBroker(data=tmp_path, settings=settings(deliveries_max=2)) as broker,
        member(broker) as peer,
        member(broker, b"dead/#") as undertaker,
        member(broker, b"dead/+@group=dead") as sharing,
    ):
        push(broker, b"poison", b"fine")
        bad, good = take(peer, b"poison", b"fine")
        peer.answer(good)
        peer.answer(bad, 1, b"no such account")
        (bad,) = take(peer, b"poison")
        peer.answer(bad, 1, b"no such account")
        for reader in (undertaker, sharing):
            letter = reader.forwarded()
            assert letter.topic == b"dead/billing"
            assert letter.payload == b"poison"
            assert dict(letter.headers) == {
                b"penstock-dead-reason": b"no such account",
                b"penstock-dead-deliveries": b"2",
                b"penstock-dead-topic": b"orders/1",
                b"penstock-dead-partition": b"0",
                b"penstock-dead-offset": b"0",
            }
        push(broker, b"next")
        take(peer, b"next")


@pytest.mark.parametrize("count", [GROUP_ROW_GROUPS_MAX + GROUP_FETCHES_MAX + 1, 40])
def test_each_of_many_groups_gets_every_message(broker: LiveBroker, count: int) -> None:
    with contextlib.ExitStack() as stack:
        groups = range(count)
        peers = [stack.enter_context(member(broker, b"orders/#@group=g%d" % n)) for n in groups]
        push(broker, b"a", b"b")
        for peer in peers:
            take(peer, b"a", b"b")


def test_what_a_stalled_member_has_goes_to_another(tmp_path: Path) -> None:
    with (
        LiveBroker(data=tmp_path, settings=settings(ack_wait_seconds=0.3)) as broker,
        member(broker) as stalled,
    ):
        push(broker, b"a", b"b")
        late = take(stalled, b"a", b"b")
        with member(broker) as other:
            for message in take(other, b"a", b"b"):
                other.answer(message)
            push(broker, b"c")
            (message,) = take(other, b"c")
            other.answer(message)
            stalled.answer(late[0])  # it is alive again, and gets messages
            stalled.settle()
            push(broker, b"d", b"e")
            payloads = {stalled.forwarded().payload, other.forwarded().payload}
            assert payloads == {b"d", b"e"}


def test_a_group_outlives_the_broker(tmp_path: Path) -> None:
    with LiveBroker(data=tmp_path) as broker, member(broker) as peer:
        push(broker, b"a", b"b")
        first, _ = take(peer, b"a", b"b")
        peer.answer(first)
        peer.settle()
    with LiveBroker(data=tmp_path) as broker:
        push(broker, b"c")
        with member(broker) as peer:
            take(peer, b"b", b"c")


@pytest.mark.parametrize(
    ("start", "values"),
    [(b"", []), (b",earliest", [b"a", b"b"]), (b",#1", [b"b"]), (b",-1h", [b"a", b"b"])],
)
def test_a_new_group_begins_where_its_first_member_says(
    broker: LiveBroker, start: bytes, values: list[bytes]
) -> None:
    push(broker, b"a", b"b")
    with member(broker, GROUP + start) as peer:
        push(broker, b"c")
        take(peer, *values, b"c")
    with member(broker, GROUP + b",earliest") as peer:  # the group exists: it goes on
        take(peer, *values, b"c")


def test_a_group_has_one_pattern(broker: LiveBroker) -> None:
    with member(broker), LamaPeer(broker) as other:
        other.join()
        refused = other.request(lama.subscribe(0, b"plant/#@group=billing"), error=2)
        assert refused.startswith(b"group billing reads orders/#")
        refused = other.request(lama.subscribe(0, GROUP + b",ordered=topic"), error=2)
        assert b"without ordered=topic" in refused
    broker.until(lambda: groups_of(broker).figures("billing") is None)
    with LamaPeer(broker) as other:
        other.join().request(lama.subscribe(0, b"plant/#@group=billing"), error=2)


def test_a_member_that_unsubscribes_gets_no_more_and_others_get_what_it_had(
    broker: LiveBroker,
) -> None:
    with member(broker) as leaving, member(broker, GROUP) as other:
        push(broker, b"a")
        push(broker, b"b")
        message = leaving.forwarded()
        leaving.request(lama.unsubscribe(0, GROUP))
        assert message.payload in {b"a", b"b"}
        assert {other.forwarded().payload for _ in range(2)} == {b"a", b"b"}
        push(broker, b"c")
        assert other.forwarded().payload == b"c"
        leaving.expect_nothing()


def test_a_topic_stays_with_one_member_of_an_ordered_group(broker: LiveBroker) -> None:
    text = GROUP + b",ordered=topic"
    with member(broker, text) as first, member(broker, text) as second:
        topics = [b"orders/%d" % number for number in range(8)]
        with LamaPeer(broker) as publisher:
            publisher.join()
            for number in range(5):
                for topic in topics:
                    publisher.request(lama.push(0, topic, b"%d" % number))
        seen: dict[bytes, list[tuple[int, bytes]]] = {topic: [] for topic in topics}
        wait_for_unacknowledged(broker, 40)
        counts = [held for _, held in groups_of(broker).members("billing")]
        assert all(counts), "one of 256 chances that one member has all topics"
        for index, peer in enumerate((first, second)):
            for _ in range(counts[index]):
                message = peer.forwarded()
                seen[message.topic].append((index, message.payload))
        for found in seen.values():
            assert len({index for index, _ in found}) == 1
            assert [value for _, value in found] == [b"%d" % number for number in range(5)]


def test_fleximq_members_acknowledge_by_number(broker: LiveBroker) -> None:
    with FleximqClient(broker.address) as peer:
        number = peer.number
        peer.send(fx.frame(fx.SUB, number, fx.topic("orders/#@group=billing")))
        wait_for_members(broker, 1)
        push(broker, *(b"%d" % each for each in range(6)))
        for each in range(6):
            assert peer.frame().value == b"%d" % each

        def ask(path: str, value: object) -> object:
            header = {**fx.routing((1, path)), **fx.request("r")}
            peer.send(fx.frame(fx.REQ, number, header, fx.pack(value)))
            return peer.frame().value

        assert ask("/ack", None) == {"messages": 1}
        assert ask("/ack", [2, 4]) == {"messages": 3}
        assert ask("/ack", 4) == {"messages": 0}
        for wrong in ("x", 0, [2, 1], [1, 1001]):
            assert "`delivery` is nil, a number" in str(ask("/ack", wrong))
        refused = {"group": "billing", "delivery": 5, "reason": "no"}
        found = [ask("/nack", refused), peer.frame().value]
        assert {"messages": 1} in found, "the message may come again before the answer"
        assert b"4" in found
        peer.send(fx.frame(fx.NOTIF, number, fx.routing((1, "/ack")), fx.pack([6, 7])))
        wait_for_unacknowledged(broker, 0)


def test_a_notice_may_acknowledge_and_have_other_receivers(broker: LiveBroker) -> None:
    with FleximqClient(broker.address) as peer, FleximqClient(broker.address) as other:
        peer.send(fx.frame(fx.SUB, peer.number, fx.topic("orders/#@group=billing")))
        wait_for_members(broker, 1)
        push(broker, b"a", b"b")
        assert [peer.frame().value for _ in range(2)] == [b"a", b"b"]

        def notify(*entries: tuple[int, str], value: object) -> None:
            peer.send(fx.frame(fx.NOTIF, peer.number, fx.routing(*entries), fx.pack(value)))

        notify((1, "/ack"), (other.number, "/done"), value=1)
        notice = other.frame()
        assert notice.header["routing"] == [{"client_id": other.number, "path": "/done"}]
        assert notice.value == 1
        wait_for_unacknowledged(broker, 1)
        notify((other.number, "/done"), (1, "/ack"), value="x")
        assert peer.frame().header["status"] == 400
        notify((1, "/ack"), (1, "/ack"), (2, "/done"), value=2)
        assert peer.frame().header["status"] == 600
        notify((other.number, "/done"), value=3)
        assert other.frame().value == 3, "a notice with an invalid acknowledgment has no receivers"
        wait_for_unacknowledged(broker, 0)


def test_clients_without_answers_acknowledge_by_receiving(tmp_path: Path) -> None:
    options = GatewayOptions(herald_replay={7: "@group=billing"})
    with (
        LiveBroker(data=tmp_path, options=options) as broker,
        herald.publisher(broker) as publisher,
    ):
        with herald.subscriber(broker) as peer:
            wait_for_members(broker, 1)
            publisher.send(herald.publish(7, b"a") + herald.publish(7, b"b"))
            assert [peer.message()[2] for _ in range(2)] == [b"a", b"b"]
            wait_for_unacknowledged(broker, 0)
        publisher.send(herald.publish(7, b"c"))
        publisher.settle()
        with Client(broker, RHEOS2) as rheos:
            rheos.must(SUBSCRIBE, b"channel/7@group=billing")
            assert rheos.delivery().payload == b"c"
            wait_for_unacknowledged(broker, 0)


def test_a_herald_client_leaves_the_group_of_a_channel_it_unsubscribes_from(
    tmp_path: Path,
) -> None:
    options = GatewayOptions(herald_replay={7: "@group=billing", 8: "@group=other"})
    with (
        LiveBroker(data=tmp_path, options=options) as broker,
        herald.subscriber(broker, b"\x07\x08") as peer,
    ):
        wait_for_members(broker, 1)
        broker.until(lambda: len(groups_of(broker).members("other")) == 1)
        peer.send(herald.unsubscribe(7))
        wait_for_members(broker, 0)
        assert len(groups_of(broker).members("other")) == 1


def test_a_herald_client_that_was_cut_off_is_in_the_group_of_a_channel_again(
    tmp_path: Path,
) -> None:
    """With a handshake that names the channel, and with one that names none."""
    options = GatewayOptions(herald_replay={7: "@group=billing"})
    with (
        LiveBroker(data=tmp_path, options=options) as broker,
        herald.publisher(broker, 8) as publisher,
    ):
        for channels in (b"\x07\x08", b"", b"\x07", b"", b"\x08\x07"):
            handshake = herald.handshake_sub(channels, b"panel", order="<")
            with herald.HeraldPeer(broker).join(handshake) as peer:
                wait_for_members(broker, 1)
                publisher.send(herald.publish(7, b"a"))
                assert peer.message()[2] == b"a"
                wait_for_unacknowledged(broker, 0)
                subscribed = broker.call(
                    lambda: [list(each.subscriptions) for each in broker.server.broker.sessions]
                )
                assert ["channel/7"] not in subscribed, "a plain subscription"
            wait_for_members(broker, 0)


def test_a_broker_without_a_log_has_no_groups() -> None:
    with LiveBroker() as broker, LamaPeer(broker) as peer:
        assert b"keeps no log" in peer.join().request(lama.subscribe(0, GROUP), error=2)


@pytest.mark.parametrize(("action", "name"), [("group", "other"), ("subscribe", "plant/#")])
def test_a_member_needs_the_rights_to_the_group_and_to_its_topics(
    tmp_path: Path, action: str, name: str
) -> None:
    actions = frozenset({Action(action)})
    rules = (
        Rule(allow=True, actions=actions, pattern=name),
        Rule(allow=False, actions=actions, pattern="#"),
    )
    anonymous = Principal("anonymous", rules, is_anonymous=True)
    options = GatewayOptions(anonymous=anonymous)
    with LiveBroker(data=tmp_path, options=options) as broker, LamaPeer(broker) as peer:
        refused = peer.join().request(lama.subscribe(0, GROUP), error=2)
        assert b"may not" in refused


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_answers_that_come_together_with_pushes_all_count(broker: LiveBroker, order: str) -> None:
    values = [b"%d" % number for number in range(40)]
    with member(broker) as peer:
        push(broker, *values)
        messages = take(peer, *values)
        answers = [lama.answer(message.identifier) for message in messages[:30]]
        if order == "descending":
            answers.reverse()
        pushed = lama.push(5, b"others/1", b"x")
        failed = lama.answer(messages[30].identifier, 1, b"no")
        peer.send(b"".join([*answers[:20], pushed, *answers[20:], failed, answers[3]]))
        wait_for_unacknowledged(broker, 10)
    with member(broker) as peer:
        take(peer, *values[30:])


def test_a_refused_member_is_told_to_no_hook_and_loads_no_group(tmp_path: Path) -> None:
    """Once broken: hooks saw the subscription, and the state of the group was read for it."""
    rules = (Rule(allow=False, actions=frozenset({Action.GROUP}), pattern="billing"),)
    options = GatewayOptions(anonymous=Principal("anonymous", rules, is_anonymous=True))
    with LiveBroker(data=tmp_path, options=options) as live:
        groups = live.server.broker.groups
        assert groups is not None
        with LamaPeer(live) as watcher, LamaPeer(live) as peer:
            peer.join().request(lama.subscribe(0, GROUP), error=lama.BAD_REQUEST)
            kind = lama.SUBSCRIBED
            watcher.join().request(lama.register(0, b"watch", kind, strategy=lama.TELL))
            peer.request(lama.subscribe(1, GROUP), error=lama.BAD_REQUEST)
            peer.request(lama.subscribe(2, b"orders/7"))
            assert watcher.forwarded().topic == b"orders/7"
        assert not live.call(lambda: dict(groups._opened))


@pytest.fixture
def unwritable(tmp_path: Path) -> Iterator[LiveBroker]:
    """A broker that cannot store groups: a file is where their folder would be."""
    options = GatewayOptions(herald_replay={7: "@group=billing"})
    with LiveBroker(data=tmp_path, options=options) as live:
        (tmp_path / "groups").write_text("")
        yield live


def test_a_group_that_cannot_be_stored_is_refused_in_the_words_of_the_protocol(
    unwritable: LiveBroker,
) -> None:
    with LamaPeer(unwritable) as peer:
        text = peer.join().request(lama.subscribe(0, GROUP), error=lama.SERVER_EXCEPTION)
        assert b"the group cannot be stored" in text
    with Client(unwritable, RHEOS2) as client:
        client.request(SUBSCRIBE, GROUP)
        refusal = client.ack()
        assert (refusal.code, offset_of(refusal.identifier)) == (FAILED, NO_MESSAGE - 1)
    with FleximqClient(unwritable.address) as peer:
        peer.send(fx.frame(fx.SUB, peer.number, fx.topic(GROUP.decode())))
        assert "the group cannot be stored" in peer.expect_notice(503)
    with herald.subscriber(unwritable) as peer:
        peer.expect(herald.error(RATE_LIMIT_EXCEEDED))
    assert groups_of(unwritable).figures("billing") is None


def test_one_client_cannot_take_all_groups(tmp_path: Path) -> None:
    principals = BrokerSettings(groups_per_principal_max=2)
    with LiveBroker(data=tmp_path, settings=principals) as broker, LamaPeer(broker) as peer:
        peer.join()
        for name in (b"a", b"b"):
            peer.request(lama.subscribe(0, b"orders/#@group=" + name))
        peer.request(lama.subscribe(0, b"orders/#@group=c"), error=lama.SERVER_EXCEPTION)
        with member(broker, b"orders/#@group=a"):
            assert [len(groups_of(broker).members(each)) for each in "abc"] == [2, 1, 0]


def test_a_group_that_can_be_stored_again_is_joined(unwritable: LiveBroker, tmp_path: Path) -> None:
    with LamaPeer(unwritable) as peer:
        peer.join().request(lama.subscribe(0, GROUP), error=lama.SERVER_EXCEPTION)
        (tmp_path / "groups").unlink()
        peer.request(lama.subscribe(0, GROUP))
        push(unwritable, b"a")
        take(peer, b"a")
