"""Changes of consumer groups over HTTP, the rights that they need, and what the audit log has."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from penstock.core.access import Action, Principal, Rule
from penstock.core.broker import BrokerSettings
from penstock.core.groups import GroupSettings
from penstock.errors import GroupDiffers
from penstock.flight.client import FlightClient
from penstock.gateway.options import GatewayOptions
from penstock.ports import AuditEvent, Subscription
from penstock.storage.group_offsets import GroupOffsets
from penstock.wire.lamamq import ErrorCode
from tests.support import lamamq_bytes as lm
from tests.support.flight import serve_tables
from tests.support.http_live import JSON, HttpBroker

SECONDS_MAX = 60.0
GROUP = b"orders/#@group=billing"


class Events:
    """See ports.Audit; it keeps what it gets."""

    def __init__(self) -> None:
        self.acts: list[tuple[object, ...]] = []

    def record(self, event: AuditEvent, /, **fields: object) -> None:
        if event is AuditEvent.ADMINISTERED:
            outcome = fields["reason"] or fields["outcome"]
            self.acts.append((fields["act"], fields.get("name", fields.get("names")), outcome))


def administrator() -> GatewayOptions:
    """Options of a listener whose anonymous clients may administer."""
    return GatewayOptions(anonymous=Principal("anonymous", administers=True, is_anonymous=True))


def test_changes_are_in_the_audit_log_and_members_are_disconnected(tmp_path: Path) -> None:
    audit = Events()
    with HttpBroker(data=tmp_path, audit=audit, web_options=administrator()) as broker:
        with lm.subscriber(broker, GROUP) as member:
            assert broker.publish(topic="orders/1", text="a").status == 200
            assert member.forwarded().payload == b"a"
            answer = broker.ask("POST", "/api/groups/billing/reset?to=earliest")
            assert (answer.status, answer.json()["offset"]) == (200, 0)
            assert member.forwarded().payload == b"a"
            (shown,) = broker.get("/api/groups").json()["groups"]
            assert (shown["members"], shown["unacknowledged"]) == (1, 1)
            assert shown["consumers"] == "members"
            assert shown["pattern"] == "orders/#"
            (listed,) = broker.get("/api/subscriptions").json()["subscriptions"]
            assert listed["pattern"] == GROUP.decode()
            metrics = broker.get("/metrics").body.decode()
            assert 'penstock_group_members{group="billing"} 1.0' in metrics
            assert 'penstock_group_unacknowledged{group="billing"} 1.0' in metrics
            assert broker.ask("POST", "/api/groups/billing/redrive").json()["messages"] == 0
            assert broker.ask("DELETE", "/api/groups/billing").status == 200
            member.expect_close()
        assert broker.get("/api/groups").json() == {"groups": []}
    assert audit.acts == [
        ("resetGroup", "billing", "done"),
        ("redriveGroup", "billing", "done"),
        ("removeGroup", "billing", "done"),
    ]


def test_an_act_that_takes_effect_and_fails_is_in_the_audit_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = Events()
    with (
        HttpBroker(data=tmp_path, audit=audit, web_options=administrator()) as broker,
        lm.subscriber(broker, GROUP) as member,
    ):
        groups = broker.server.broker.groups
        assert groups is not None
        reset = groups.reset

        def unstored(
            name: str, offsets: dict[int, int], then: Callable[..., None]
        ) -> dict[int, int]:
            return reset(name, offsets, lambda _: then(OSError("disk full")))

        def unanswered(
            name: str, offsets: dict[int, int], _: Callable[..., None]
        ) -> dict[int, int]:
            return reset(name, offsets, lambda _: None)

        broker.publish(topic="orders/1", text="a")
        assert member.forwarded().payload == b"a"
        monkeypatch.setattr(groups, "reset", unstored)
        path = "/api/groups/billing/reset?to=earliest"
        assert broker.ask("POST", path).error()[:2] == (503, "log-unavailable")
        assert member.forwarded().payload == b"a"  # it has taken effect
        monkeypatch.setattr(groups, "reset", unanswered)
        monkeypatch.setattr("penstock.server.http.application.HTTP_REQUEST_SECONDS_MAX", 0.3)
        assert broker.ask("POST", path).error()[:2] == (503, "timed-out")
    assert audit.acts == [
        ("resetGroup", "billing", "log-unavailable"),
        ("resetGroup", "billing", "timed-out"),
    ]


def test_deleted_topics_are_named_also_if_a_later_one_cannot_be_deleted() -> None:
    audit = Events()
    with (
        capture_logs() as logged,
        HttpBroker(audit=audit, web_options=administrator()) as broker,
    ):
        names = [f"old/{number}" for number in range(300)]
        create = broker.server.broker.topics.intern
        broker.call(lambda: [create(name) for name in [*names, "a", "b"]])
        body = json.dumps({"names": [*names, "missing"]}).encode()
        answer = broker.ask("POST", "/api/delete-topics", body=body, headers=JSON)
        assert answer.json() == {"topics": 300}
        body = json.dumps({"names": ["a", "channel/7", "b"]}).encode()
        answer = broker.ask("POST", "/api/delete-topics", body=body, headers=JSON)
        assert answer.error()[:2] == (409, "topic-has-channel")
    assert audit.acts == [
        ("deleteTopics", names[:256], "done"),
        ("deleteTopics", names[256:], "done"),
        ("deleteTopics", ["a"], "topic-has-channel"),
    ]
    first, second = [each for each in logged if each["event"] == "topics deleted"]
    assert (first["topics"], first["names"]) == (300, names[:16])
    assert (second["topics"], second["names"]) == (1, ["a"])


@pytest.mark.parametrize(
    ("place", "offset"), [("1", 1), ("%231", 1), ("latest", 2), ("-1h", 0), ("2999-01-01", 2)]
)
def test_a_group_without_members_is_reset_and_goes_on_there(
    tmp_path: Path, place: str, offset: int
) -> None:
    with HttpBroker(data=tmp_path, web_options=administrator()) as broker:
        with lm.subscriber(broker, GROUP):
            pass
        for value in "ab":
            broker.publish(topic="orders/1", text=value)
        assert broker.get("/api/groups/billing").json()["consumers"] == "none"
        answer = broker.ask("POST", f"/api/groups/billing/reset?to={place}")
        assert (answer.status, answer.json()["offset"]) == (200, offset)
        broker.publish(topic="orders/1", text="c")
        with lm.subscriber(broker, GROUP) as member:
            values = [b"a", b"b", b"c"][offset:]
            assert [member.forwarded().payload for _ in values] == values


def test_wrong_changes_are_refused(tmp_path: Path) -> None:
    with HttpBroker(data=tmp_path, web_options=administrator()) as broker:
        reset = "/api/groups/{}/reset?to={}"
        answer = broker.ask("POST", reset.format("none", "earliest"))
        assert answer.error()[:2] == (404, "no-such-group")
        answer = broker.ask("POST", reset.format("a%20b", "earliest"))
        assert answer.error()[:2] == (404, "no-such-group")
        assert broker.get("/api/groups/none").error()[:2] == (404, "no-such-group")
        GroupOffsets(tmp_path).commit("spark", {0: 0}, subscription=Subscription(patterns=("#",)))
        answer = broker.ask("POST", "/api/groups/spark/redrive")
        assert answer.error()[:2] == (409, "group-differs")
        with lm.subscriber(broker, GROUP):
            answer = broker.ask("POST", reset.format("billing", "yesterday"))
            assert answer.error()[:2] == (400, "bad-request")


def test_changes_need_the_right_to_administer_and_a_look_that_to_the_group(tmp_path: Path) -> None:
    rules = (Rule(allow=False, actions=frozenset({Action.GROUP}), pattern="billing"),)
    options = GatewayOptions(anonymous=Principal("anonymous", rules, is_anonymous=True))
    with HttpBroker(data=tmp_path, web_options=options) as broker:
        with lm.subscriber(broker, GROUP):
            assert broker.get("/api/groups/billing").error()[:2] == (403, "not-allowed")
        for method, path in (
            ("POST", "/api/groups/billing/reset?to=earliest"),
            ("POST", "/api/groups/billing/redrive"),
            ("DELETE", "/api/groups/billing"),
        ):
            assert broker.ask(method, path).error()[:2] == (403, "not-allowed")


def test_a_look_shows_members_only_to_those_who_may_see_clients(tmp_path: Path) -> None:
    with HttpBroker(data=tmp_path, web_options=administrator()) as broker:
        plain = broker.listen(
            "ws://127.0.0.1:0/ws",
            GatewayOptions(anonymous=Principal("anonymous", is_anonymous=True)),
        )
        with lm.subscriber(broker, GROUP):
            (member,) = broker.get("/api/groups/billing").json()["members"]
            assert (member["name"], member["protocol"]) == ("subscriber", "lamamq")
            broker.web = plain
            assert broker.get("/api/groups/billing").json()["members"] == []


def test_a_group_of_a_reader_of_tables_becomes_one_of_members_until_it_is_removed(
    tmp_path: Path,
) -> None:
    with (
        HttpBroker(data=tmp_path) as broker,
        FlightClient(serve_tables(broker, tmp_path)) as reader,
    ):
        for value in "abc":
            broker.publish(topic="orders/1", text=value)
        orders = Subscription(patterns=("orders/#",))
        reader.commit_group("billing", {0: 1}, subscription=orders)
        with lm.subscriber(broker, GROUP) as member:
            first, _ = (member.forwarded() for _ in "bc")
            assert first.payload == b"b"
            member.answer(first)
            with pytest.raises(GroupDiffers, match="has members"):
                reader.commit_group("billing", {0: 3}, subscription=orders)
        groups = broker.server.broker.groups
        assert groups is not None
        broker.until(lambda: "billing" not in groups)
        with pytest.raises(GroupDiffers, match="has clients of the broker as members"):
            reader.commit_group("billing", {0: 3}, subscription=orders)
        assert reader.groups()["billing"][0].offset == 2
        with lm.subscriber(broker, GROUP) as member:
            assert member.forwarded().payload == b"c", "it was not acknowledged"
        assert broker.ask("DELETE", "/api/groups/billing").status == 200
        reader.commit_group("billing", {0: 0}, subscription=orders)
        with lm.subscriber(broker, GROUP) as member:
            assert [member.forwarded().payload for _ in "abc"] == [b"a", b"b", b"c"]


def until(condition: Callable[[], bool]) -> None:
    """Wait for what requests of this thread see."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_redrive_keeps_the_dead_letters_of_a_topic_that_was_deleted(tmp_path: Path) -> None:
    settings = BrokerSettings(groups=GroupSettings(deliveries_max=1))
    with HttpBroker(data=tmp_path, settings=settings, web_options=administrator()) as broker:

        def redrive() -> tuple[int, int]:
            done = broker.ask("POST", "/api/groups/billing/redrive").json()
            return done["messages"], done["gone"]

        def dead() -> int:
            (group,) = broker.get("/api/groups").json()["groups"]
            return int(group["dead"])

        with lm.subscriber(broker, GROUP) as member:
            for number in (1, 2):
                broker.publish(topic=f"orders/{number}", text=str(number))
                member.answer(member.forwarded(), 1, b"no")
            until(lambda: dead() == 2)
            assert broker.ask("DELETE", "/api/topics/orders%2F1").status == 200
            assert redrive() == (1, 1)
            message = member.forwarded()
            assert message.payload == b"2"
            member.answer(message)
            until(lambda: dead() == 1)
            assert redrive() == (0, 1)
        with lm.subscriber(broker, b"dead/billing@earliest") as reader:
            assert [reader.forwarded().payload for _ in range(2)] == [b"1", b"2"]


def test_a_group_whose_state_is_damaged_takes_no_members_until_it_is_removed(
    tmp_path: Path,
) -> None:
    with (
        capture_logs() as logged,
        HttpBroker(data=tmp_path, web_options=administrator()) as broker,
    ):
        with lm.subscriber(broker, GROUP):
            pass
        groups = broker.server.broker.groups
        assert groups is not None
        broker.until(lambda: "billing" not in groups)
        path = tmp_path / "groups" / "billing.json"
        damaged = path.read_bytes()[:-9]
        path.write_bytes(damaged)
        broker.publish(topic="orders/1", text="a")
        with lm.subscriber(broker) as client:
            text = client.request(lm.subscribe(0, GROUP), error=ErrorCode.SERVER_EXCEPTION)
            assert b"the stored state of group billing is damaged" in text
        for change in ("reset?to=earliest", "redrive"):
            answer = broker.ask("POST", f"/api/groups/billing/{change}")
            assert answer.error()[:2] == (500, "group-damaged")
        assert path.read_bytes() == damaged
        (event,) = [each for each in logged if each["event"] == "group damaged"]
        assert event["group"] == "billing"
        assert broker.ask("DELETE", "/api/groups/billing").status == 200
        with lm.subscriber(broker, GROUP + b",earliest") as member:
            assert member.forwarded().payload == b"a"


def test_a_message_of_a_deleted_topic_has_no_dead_letter_and_others_follow(tmp_path: Path) -> None:
    settings = BrokerSettings(groups=GroupSettings(deliveries_max=1))
    with (
        capture_logs() as logged,
        HttpBroker(data=tmp_path, settings=settings, web_options=administrator()) as broker,
    ):
        with lm.subscriber(broker, GROUP) as member:
            for number in (1, 2):
                broker.publish(topic=f"orders/{number}", text=str(number))
            first, second = (member.forwarded() for _ in range(2))
            assert broker.ask("DELETE", "/api/topics/orders%2F1").status == 200
            member.answer(first, 1, b"no")
            member.answer(second, 1, b"no")

            def group() -> dict[str, int]:
                (found,) = broker.get("/api/groups").json()["groups"]
                return dict(found)

            until(lambda: group()["dead"] == 1)
            until(lambda: group()["unacknowledged"] == 0)
            assert group()["lost"] == 0, "an operator deleted it"
        with lm.subscriber(broker, b"dead/billing@earliest") as reader:
            assert reader.forwarded().payload == b"2"
    (event,) = [each for each in logged if each["event"] == "dead letter lost"]
    assert (event["group"], event["offset"]) == ("billing", 0)


def test_dead_letters_and_late_members_do_not_fill_the_log(tmp_path: Path) -> None:
    settings = BrokerSettings(groups=GroupSettings(ack_wait_seconds=0.3, deliveries_max=2))
    with (
        capture_logs() as logged,
        HttpBroker(data=tmp_path, settings=settings) as broker,
        lm.subscriber(broker, GROUP),
    ):
        for number in range(4):
            broker.publish(topic="orders/1", json=number)
        until(lambda: broker.get("/api/groups/billing").json()["dead"] == 4)
    for name in ("group member late", "message dead"):
        first, rest = [each for each in logged if each["event"] == name]
        assert "repeated" not in first
        assert rest["repeated"] > 0
    assert rest["repeated"] == 3
