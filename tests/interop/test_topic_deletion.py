"""Deleted topics: they are gone for every protocol, also after a restart, until they are used again."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.core.access import Action, Principal, Rule
from penstock.core.broker import BrokerSettings
from penstock.gateway.options import GatewayOptions
from tests.conformance.fleximq.client import Client as FleximqPeer
from tests.support import fleximq_bytes as fx
from tests.support import lamamq_bytes as lm
from tests.support.http_live import JSON, HttpBroker
from tests.support.rheos_bytes import CREATE, FAILED, PUBLISH, RHEOS2, SUBSCRIBE
from tests.support.rheos_bytes import Client as RheosPeer

SERVER_EXCEPTION = 1


def push(broker: HttpBroker, topic: bytes, value: bytes) -> None:
    with lm.client(broker) as sender:
        sender.request(lm.push(0, topic, value))


def names(broker: HttpBroker) -> dict[str, Any]:
    return {each["name"]: each for each in broker.get("/api/topics").json()["topics"]}


def delete(broker: HttpBroker, topic: str) -> None:
    answer = broker.ask("DELETE", f"/api/topics/{topic}")
    assert (answer.status, answer.json()) == (200, {"topics": 1})


def test_a_deleted_topic_is_gone_and_the_next_message_creates_it_again() -> None:
    with HttpBroker() as broker:
        push(broker, b"a/b", b"1")
        push(broker, b"a/c", b"1")
        with (
            lm.subscriber(broker, b"a/b") as exact,
            lm.subscriber(broker, b"a/+") as wild,
            RheosPeer(broker, RHEOS2) as rheos,
            FleximqPeer(broker.address) as fleximq,
        ):
            fleximq.say(fx.PUB, fx.topic("a/b"), payload=fx.pack(b"2"))
            rheos.must(PUBLISH, b"a/b", b"3")
            assert [exact.forwarded().payload for _ in "23"] == [b"2", b"3"]
            delete(broker, "a/b")
            assert list(names(broker)) == ["a/c"]
            assert rheos.ask(PUBLISH, b"a/b", b"x") == rheos.ask(SUBSCRIBE, b"a/b") == FAILED
            # The header of this message was cached, and its number with it.
            fleximq.say(fx.PUB, fx.topic("a/b"), payload=fx.pack(b"4"))
            assert exact.forwarded().payload == b"4"
            assert names(broker)["a/b"]["messages"] == 1
            assert names(broker)["a/b"]["subscribers"] == 2
            rheos.must(PUBLISH, b"a/b", b"5")
            push(broker, b"a/c", b"6")
            assert exact.forwarded().payload == b"5"
            assert [wild.forwarded().payload for _ in "23456"] == [b"2", b"3", b"4", b"5", b"6"]
        metrics = broker.get("/metrics").body.decode().splitlines()
        assert "penstock_topics_deleted_total 1.0" in metrics


def test_deletion_gives_back_the_share_of_a_principal() -> None:
    settings = BrokerSettings(topics_per_principal_max=2, topic_names_bytes_per_principal_max=4)
    with HttpBroker(settings=settings) as broker, lm.client(broker) as sender:
        for turn in range(3):
            sender.request(lm.push(0, b"%d1" % turn, b"x"))
            sender.request(lm.push(0, b"%d2" % turn, b"x"))
            sender.request(lm.push(0, b"%d3" % turn, b"x"), error=SERVER_EXCEPTION)
            body = json.dumps({"names": [f"{turn}1", f"{turn}2", "unknown"]}).encode()
            answer = broker.ask("POST", "/api/delete-topics", body=body, headers=JSON)
            assert (answer.status, answer.json()) == (200, {"topics": 2})


def test_deletion_and_shares_survive_a_restart(tmp_path: Path) -> None:
    settings = BrokerSettings(topics_per_principal_max=3)
    with HttpBroker(data=tmp_path, settings=settings) as broker:
        for topic in (b"kept", b"gone", b"again"):
            push(broker, topic, b"old " + topic)
        delete(broker, "gone")
        delete(broker, "again")
        push(broker, b"again", b"new again")
        with lm.subscriber(broker, b"#@earliest") as reader:
            # Of the history, all that is of a topic that exists.
            found = [reader.forwarded().payload for _ in range(3)]
            assert found == [b"old kept", b"old again", b"new again"]
    with HttpBroker(data=tmp_path, settings=settings) as broker:
        topics = broker.server.broker.topics
        assert sorted(names(broker)) == ["again", "kept"]
        assert topics.share_of("anyone@127.0.0.1") == (2, 9)
        with lm.subscriber(broker, b"#@earliest") as reader:
            found = [reader.forwarded().payload for _ in range(3)]
            assert found == [b"old kept", b"old again", b"new again"]
            assert broker.call(lambda: topics.find("gone")) is None
            push(broker, b"gone", b"new gone")
            assert reader.forwarded().payload == b"new gone"
        with lm.subscriber(broker, b"gone@earliest") as reader:
            assert [reader.forwarded().payload for _ in "12"] == [b"old gone", b"new gone"]


def test_a_topic_that_a_hook_holds_up_may_be_deleted_meanwhile() -> None:
    with HttpBroker() as broker, RheosPeer(broker, RHEOS2) as rheos:
        rheos.must(CREATE, b"judged")
        with lm.client(broker, b"middleware") as middleware:
            middleware.request(lm.register(0, b"h", 16, lm.topic_is(b"judged")))
            rheos.request(PUBLISH, b"judged", b"x")
            call = middleware.forwarded()
            delete(broker, "judged")
            middleware.answer(call)
            rheos.expect_failed()
            rheos.must(CREATE, b"judged")


@pytest.mark.parametrize(
    ("topic", "status", "code"),
    [("none", 404, "no-such-topic"), ("channel/7", 409, "topic-has-channel")],
)
def test_what_cannot_be_deleted(topic: str, status: int, code: str) -> None:
    with HttpBroker() as broker:
        assert broker.ask("DELETE", f"/api/topics/{topic}").error()[:2] == (status, code)


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        (Rule(allow=True, actions=frozenset({Action.ADMINISTER}), pattern="topics/#"), True),
        (Rule(allow=True, actions=frozenset({Action.ADMINISTER}), pattern="clients"), False),
        (None, False),
    ],
    ids=["topics", "clients", "none"],
)
def test_deletion_needs_the_right_to_administer(rule: Rule | None, *, allowed: bool) -> None:
    principal = Principal("p", [] if rule is None else [rule])
    options = GatewayOptions(anonymous=principal)
    with HttpBroker(web_options=options) as broker:
        push(broker, b"t/%41/a b", b"x")
        push(broker, b"t", b"x")
        answer = broker.ask("DELETE", "/api/topics/t")
        assert answer.status == (200 if allowed else 403)
        body = b'{"names": ["t/%41/a b"]}'
        many = broker.ask("POST", "/api/delete-topics", body=body, headers=JSON)
        assert many.status == (200 if allowed else 403)
        broker.until(lambda: broker.server.broker.topics.live == (256 if allowed else 258))
