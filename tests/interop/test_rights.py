"""Each right is asked for by everything that needs it, and a reload takes it away at once."""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.conform.fleximq import encoding as fx
from penstock.conform.herald import encoding as herald
from penstock.conform.lamamq import encoding as lama
from penstock.errors import NotAllowed
from penstock.flight.protocol import ReadRange
from penstock.server.config import (
    AnonymousConfig,
    Config,
    IdentityConfig,
    PrincipalConfig,
    RoleConfig,
    RuleConfig,
)
from penstock.server.credentials import hash_key
from tests.support.flight import rows, table
from tests.support.rights_broker import RightsBroker
from tests.support.settling_peers import Closed, FleximqPeer, Got, HeraldPeer, LamamqPeer

HELLO = fx.pack(b"hello")


def allow(*actions: str, on: str) -> RuleConfig:
    return RuleConfig(allow=actions, topics=(on,))


def deny(*actions: str, on: str) -> RuleConfig:
    return RuleConfig(deny=actions, topics=(on,))


def principal(name: str, *rules: RuleConfig, **more: Any) -> PrincipalConfig:
    identity = IdentityConfig(identity=name, key_sha256=hash_key(name.encode()))
    return PrincipalConfig(name=name, token=name, rule=rules, identity_key=identity, **more)


PRINCIPALS = (
    principal("free"),
    principal("nothing", default="deny"),
    principal("lamp", allow("serve", on="lights/#")),
    principal("switch", allow("request", on="lights/#")),
    principal("reader", allow("subscribe", on="plant/#"), allow("group", on="reader.+")),
    principal("writer", allow("publish", on="plant/#")),
    principal("not-secret", deny("subscribe", "hook", on="secret/#")),
    principal("judge", allow("hook", "subscribe", on="plant/a")),
    principal("operator", roles=("operators",)),
)
CONFIG = Config(
    principal=PRINCIPALS,
    anonymous=AnonymousConfig(default="deny"),
    role=(
        RoleConfig(name="operators", rule=(allow("administer", on="#"), allow("group", on="#"))),
    ),
)


def changed(*replaced: PrincipalConfig, **more: Any) -> Config:
    """CONFIG with some principals replaced."""
    names = {each.name for each in replaced}
    kept = [each for each in CONFIG.principal if each.name not in names]
    return Config(
        principal=(*kept, *replaced), anonymous=CONFIG.anonymous, role=CONFIG.role, **more
    )


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RightsBroker]:
    with RightsBroker(CONFIG, tmp_path_factory.mktemp("data")) as broker:
        yield broker


@pytest.fixture
def broker(live: RightsBroker) -> RightsBroker:
    live.reload(CONFIG)
    return live


def end(broker: RightsBroker) -> int:
    offset: int = broker.call(lambda: broker.server.storage.next_offset)
    return offset


# --- Direct messages of fleximq -------------------------------------------------------------------


def test_without_the_right_to_request_nothing_is_sent_or_stored(broker: RightsBroker) -> None:
    with broker.fleximq("nothing") as sender, broker.fleximq("free") as receiver:
        before = end(broker)
        big = fx.pack(bytes(100_000))
        sender.say(fx.NOTIF, fx.routing((receiver.number, "/x")), payload=big)
        sender.say(fx.NOTIF, fx.routing((1, "/x")), payload=big)
        sender.say(fx.BCAST, payload=big)
        for number in (receiver.number, 1):
            sender.say(fx.REQ, fx.routing((number, "/time")), fx.request("q"), payload=big)
        sender.say(fx.REP, fx.routing((receiver.number, "")), fx.correlation("q"), payload=big)
        sender.say(fx.PUB, fx.topic("t"), fx.routing((receiver.number, "/x")), payload=big)
        sender.settle()
        assert sender.statuses == [403, 403, 403, 403, 403, 404, 403]
        assert receiver.settle() == ([], 0)
        assert end(broker) == before


def test_a_path_is_judged_by_its_levels(broker: RightsBroker) -> None:
    with broker.fleximq("switch") as switch, broker.fleximq("lamp") as lamp:
        for path in ("/lights/1", "lights/2"):
            switch.say(fx.NOTIF, fx.routing((lamp.number, path)), payload=HELLO)
        switch.settle()
        assert switch.statuses == []
        assert [got.topic for got in lamp.settle()[0]] == ["/lights/1", "lights/2"]
        for path in ("/door", "", "/", "/#", "/+/1", "//lights/1", "/light"):
            switch.say(fx.NOTIF, fx.routing((lamp.number, path)), payload=HELLO)
            switch.say(fx.REQ, fx.routing((lamp.number, path)), fx.request("q"), payload=HELLO)
        switch.say(fx.NOTIF, fx.routing((lamp.number, "/lights/1"), (lamp.number, "/door")))
        switch.say(fx.BCAST)
        switch.settle()
        assert switch.statuses == [403] * 16
        assert lamp.settle() == ([], 0)


def test_a_request_reaches_only_a_client_that_may_serve_its_path(broker: RightsBroker) -> None:
    with (
        broker.fleximq("free") as sender,
        broker.fleximq("lamp") as lamp,
        broker.fleximq("reader") as reader,
        broker.fleximq("free") as free,
    ):
        before = end(broker)
        sender.say(fx.REQ, fx.routing((reader.number, "/lights/1")), fx.request("a"))
        sender.say(fx.REQ, fx.routing((lamp.number, "/door")), fx.request("b"))
        sender.settle()
        assert sender.statuses == [403, 403]
        assert "principal" not in str(sender.frames)
        assert not any(name in str(sender.frames) for name in ("reader'", "lamp'"))
        assert end(broker) == before
        sender.say(fx.REQ, fx.routing((lamp.number, "/lights/1")), fx.request("c"))
        sender.settle()
        assert lamp.settle()[0] == [Got("REQ", "/lights/1", b"")]
        lamp.say(fx.REP, fx.routing((sender.number, "")), fx.correlation("c"), payload=HELLO)
        lamp.settle()
        assert sender.settle()[0] == [Got("REP", "", b"hello")]
        lamp.say(fx.REP, fx.routing((sender.number, "")), fx.correlation("c"), payload=HELLO)
        lamp.settle()
        assert lamp.statuses == [404]  # it is answered
        targets = [(client.number, "/lights/2") for client in (reader, lamp, free)]
        sender.say(fx.NOTIF, fx.routing(*targets), payload=HELLO)
        sender.settle()
        assert sender.statuses == [403]
        found = [client.settle()[0] for client in (reader, lamp, free)]
        assert found == [
            [],
            [Got("NOTIF", "/lights/2", b"hello")],
            [Got("NOTIF", "/lights/2", b"hello")],
        ]
        sender.say(fx.BCAST, payload=HELLO)
        assert sender.settle()[0] == [Got("BCAST", "", b"hello")]
        assert lamp.settle() == reader.settle() == ([], 0)
        assert free.settle()[0] == [Got("BCAST", "", b"hello")]


def test_a_routed_publish_needs_the_rights_of_both(broker: RightsBroker) -> None:
    with (
        broker.fleximq("writer") as writer,
        broker.fleximq("reader") as reader,
        broker.fleximq("lamp") as lamp,
    ):
        reader.say(fx.SUB, fx.topic("plant/a"))
        lamp.say(fx.SUB, fx.topic("plant/a"))
        reader.settle()
        lamp.settle()
        assert (reader.statuses, lamp.statuses) == ([], [603])
        for name in ("plant/a", "office"):
            targets = fx.routing((reader.number, "/x"), (lamp.number, "/x"))
            writer.say(fx.PUB, fx.topic(name), targets, payload=HELLO)
        writer.settle()
        assert writer.statuses == [403]
        assert [got.topic for got in reader.settle()[0]] == ["plant/a"]
        assert lamp.settle() == ([], 0)


def test_the_lists_of_client_1_need_the_right_to_administer(broker: RightsBroker) -> None:
    expected = {
        "operator": [200, 200, 403, 403, 403],
        "free": [403, 403, 200, 200, 503],
        "writer": [403, 403, 200, 200, 403],
        "nothing": [403] * 5,
    }
    for name, statuses in expected.items():
        with broker.fleximq(name) as client:
            for path in ("/clients", "/stats", "/topics", "/time", "/other"):
                client.say(fx.REQ, fx.routing((1, path)), fx.request(path))
            client.settle()
            assert client.statuses == statuses, name


# --- Middleware -----------------------------------------------------------------------------------


def test_a_right_to_subscribe_is_no_right_to_hook(broker: RightsBroker) -> None:
    def refusals(name: str, *requests: bytes) -> int:
        with LamamqPeer(broker.address, name=name, key=name) as client:
            for request in requests:
                client.ask(request)
            return client.settle()[1]

    everything = [
        lama.register(0, kind.to_bytes(1, "big"), kind, strategy=lama.TELL)
        for kind in (lama.CONNECT, lama.DISCONNECT, lama.PUSHED, lama.SUBSCRIBED, lama.REGISTERED)
    ]
    tell = {"strategy": lama.TELL}  # such a hook ends with its connection
    one = lama.register(0, b"h", lama.PUSHED, lama.topic_is(b"plant/a"), **tell)
    two = lama.register(0, b"h", lama.PUSHED, lama.topic_is(b"plant/b"), **tell)
    some = lama.register(0, b"h", lama.PUSHED, lama.has_header(b"x"), **tell)
    assert refusals("reader", one, two, some, *everything) == 8
    assert refusals("judge", two, some, *everything) == 7
    assert refusals("judge", one) == 0
    assert refusals("not-secret", one, *everything) == 5
    secret = lama.register(0, b"h", lama.PUSHED, lama.topic_is(b"secret/x"))
    assert refusals("not-secret", secret) == 1
    assert refusals("free", *everything) == 0


# --- Flight and HTTP ------------------------------------------------------------------------------


def test_groups_belong_to_those_with_the_right(broker: RightsBroker) -> None:
    with broker.flight("free") as free:
        for group in ("reader.1", "other"):
            free.commit_group(group, {0: 0})
    for name, seen in (
        ("operator", ["other", "reader.1"]),
        ("reader", ["reader.1"]),
        ("writer", []),
    ):
        with broker.flight(name) as client:
            assert sorted(client.groups()) == seen
            for group in ("other", "reader.1"):
                if group in seen:
                    client.commit_group(group, {0: 0})
                    continue
                with pytest.raises(NotAllowed, match=f"{name} may not use group '{group}'"):
                    client.commit_group(group, {0: 7})
        status, answer = broker.http(name, "/api/groups")
        assert (status, [each["name"] for each in answer["groups"]]) == (200, seen)
    with broker.flight("free") as free:
        assert free.groups()["other"][0].offset == 0


def test_a_caller_without_rights_learns_nothing_by_flight(broker: RightsBroker) -> None:
    with broker.flight("nothing") as client:
        assert client.topics() == []
        assert client.groups() == {}
        for call in (client.bounds, lambda: client.offset_at(0)):
            with pytest.raises(NotAllowed):
                call()
    with broker.flight("writer") as client:
        assert client.bounds()


def test_a_deny_rule_also_hides_topics_from_an_expression(broker: RightsBroker) -> None:
    with broker.flight("free") as free:
        topics = ["open/x", "secret/x", "secret"]
        free.stage([rows([b"1", b"2", b"3"], topics=topics)], writer="w", epoch=0, partition=0)
        free.publish_epoch("w", 0, [0])
        assert set(table(free, expression=".*")["topic"].to_pylist()) >= set(topics)
    with broker.flight("not-secret") as client:
        found = set(table(client, expression=".*")["topic"].to_pylist())
        assert "open/x" in found
        assert found.isdisjoint({"secret/x", "secret"})
        assert table(client, expression="secret.*").num_rows == 0
        assert {"secret/x", "secret"}.isdisjoint(client.topics())


@pytest.mark.parametrize("path", ["clients", "subscriptions", "log", "rates?seconds=0.1"])
def test_figures_about_others_need_the_right_to_administer(broker: RightsBroker, path: str) -> None:
    assert broker.http("operator", f"/api/{path}")[0] == 200
    for name in ("free", "reader", "nothing", None):
        assert broker.http(name, f"/api/{path}")[0] == 403


# --- Rules that change ----------------------------------------------------------------------------


def test_a_subscription_that_is_forbidden_ends_with_its_session(broker: RightsBroker) -> None:
    reader, bystander = broker.fleximq("reader"), broker.fleximq("free")
    for client in (reader, bystander):
        client.say(fx.SUB, fx.topic("plant/+"))
        client.say(fx.SUB, fx.topic("plant/a"))
        client.settle()
    broker.reload(changed(principal("reader", allow("subscribe", on="plant/a"))))
    assert broker.http("free", "/api/publish", topic="plant/b", text="x")[0] == 200
    with pytest.raises(Closed):
        reader.settle()
    assert [got.topic for got in bystander.settle()[0]] == ["plant/b"]
    with broker.fleximq("reader") as again:
        for pattern in ("plant/+", "plant/a"):
            again.say(fx.SUB, fx.topic(pattern))
        again.settle()
        assert again.statuses == [603]
    reader.socket.close()
    bystander.socket.close()


def test_a_hook_that_is_forbidden_ends_with_its_session(broker: RightsBroker) -> None:
    judge = LamamqPeer(broker.address, name="judge", key="judge")
    judge.ask(lama.register(0, b"h", lama.PUSHED, lama.topic_is(b"plant/a")))
    assert judge.settle() == ([], 0)
    with broker.fleximq("writer") as writer:
        writer.say(fx.PUB, fx.topic("plant/a"), payload=HELLO)  # waits for the hook
        writer.send(b"")
        broker.until(lambda: broker.server.broker.hooks.messages_judged)
        broker.reload(changed(principal("judge", allow("subscribe", on="plant/a"))))
        writer.settle()
        assert writer.statuses == [504]
        assert broker.call(lambda: len(broker.server.broker.hooks)) == 0
        writer.say(fx.PUB, fx.topic("plant/a"), payload=HELLO)
        writer.settle()
        assert writer.statuses == []
    assert [got.how for got in judge.until_closed()] == ["HOOK"]
    judge.socket.close()


def test_a_message_that_waits_for_a_hook_is_judged_by_the_new_rules(broker: RightsBroker) -> None:
    with (
        LamamqPeer(broker.address, name="judge", key="judge") as judge,
        broker.fleximq("writer") as writer,
        broker.fleximq("free") as free,
    ):
        judge.ask(lama.register(0, b"h", lama.PUSHED, lama.topic_is(b"plant/a")))
        judge.settle()
        free.say(fx.SUB, fx.topic("plant/a"))
        free.settle()
        for fields in ((), (fx.routing((free.number, "/x")),)):
            broker.reload(CONFIG)
            before = broker.call(lambda: broker.server.broker.hooks.messages_judged)
            writer.say(fx.PUB, fx.topic("plant/a"), *fields, payload=HELLO)
            broker.until(lambda: broker.server.broker.hooks.messages_judged > before)  # noqa: B023
            broker.reload(changed(principal("writer", allow("publish", on="plant/b"))))
            identifier = int.from_bytes(judge.take(4), "big")
            judge.take(1)
            judge._forward()
            judge.put(lama.answer(identifier))
            writer.settle()
            assert writer.statuses == [403]
            assert free.settle() == ([], 0)


def test_staged_rows_are_judged_again_when_they_are_published(broker: RightsBroker) -> None:
    with broker.flight("writer") as client:
        for epoch, topic in enumerate(("plant/a", "plant/b")):
            batch = rows([b"1"], topics=[topic])
            client.stage([batch], writer="later", epoch=epoch, partition=0)
        broker.reload(changed(principal("writer", allow("publish", on="plant/a"))))
        assert client.publish_epoch("later", 0, [0]).rows == 1
        before = end(broker)
        with pytest.raises(NotAllowed, match="writer may not publish to 'plant/b'"):
            client.publish_epoch("later", 1, [0])
        assert end(broker) == before


def test_a_read_ends_when_rules_forbid_it(broker: RightsBroker) -> None:
    with broker.flight("free") as free:
        values = [bytes(1_000_000)] * 40
        free.stage([rows(values, topic="plant/long")], writer="long", epoch=0, partition=0)
        free.publish_epoch("long", 0, [0])
        last = free.bounds()[0].end
    with broker.flight("reader") as client:
        found = client.read(ReadRange(last - 40, last, patterns=["plant/#"]))
        next(found)
        broker.reload(changed(principal("reader", allow("subscribe", on="office"))))
        with pytest.raises(NotAllowed):
            list(found)


def test_a_herald_client_resumes_only_what_is_still_allowed(broker: RightsBroker) -> None:
    def anonymous(*topics: str) -> Config:
        rules = tuple(allow("subscribe", on=topic) for topic in topics)
        return Config(principal=PRINCIPALS, role=CONFIG.role, anonymous=AnonymousConfig(rule=rules))

    topics = {1: "channel/1", 2: "channel/2"}
    broker.reload(anonymous("channel/1", "channel/2"))
    handshake = herald.handshake_sub(b"\x01\x02", b"resumes")
    with HeraldPeer(broker.address, handshake, topics) as first:
        assert first.settle() == ([], 0)
    broker.until(lambda: len(broker.server.broker.resumption))
    for topic in topics.values():
        assert broker.http("free", "/api/publish", topic=topic, text=topic)[0] == 200
    broker.reload(anonymous("channel/2"))
    with HeraldPeer(broker.address, herald.handshake_sub(b"", b"resumes"), topics) as again:
        assert again.accepted
        found: list[Got] = []
        refused = 0
        while not found:
            more, refusals = again.settle()
            found += more
            refused += refusals
        assert found == [Got("MESSAGE", "channel/2", b"channel/2")]
        assert refused == 1


def test_nobody_may_do_less_than_before_without_rules(broker: RightsBroker) -> None:
    with FleximqPeer(broker.address, token="free") as one, broker.fleximq("free") as two:  # noqa: S106
        two.say(fx.SUB, fx.topic("#"))
        two.settle()
        one.say(fx.PUB, fx.topic("t"), payload=HELLO)
        one.say(fx.NOTIF, fx.routing((two.number, "/x")), payload=HELLO)
        one.say(fx.BCAST, payload=HELLO)
        one.settle()
        assert one.statuses == []
        assert [got.how for got in two.settle()[0]] == ["PUB", "NOTIF", "BCAST"]


def test_a_list_of_topics_that_was_read_before_is_not_given_again(broker: RightsBroker) -> None:
    """Once broken: for a second a client got the list that its old rules allowed."""

    def listed() -> list[str]:
        with broker.fleximq("free") as free:
            free.say(fx.REQ, fx.routing((1, "/topics")), fx.request("q"))
            free.settle()
            (answer,) = (each for each in free.frames if each.type == fx.REP)
            return list(answer.value["topics"])

    assert broker.http("free", "/api/publish", topic="office/list", text="x")[0] == 200
    assert "office/list" in listed()
    broker.reload(changed(principal("free", allow("request", on="#"))))
    assert "office/list" not in listed()
