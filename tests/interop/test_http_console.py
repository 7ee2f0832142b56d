"""The part of the HTTP API that the console is made of: messages, acts, refusals, limits."""

import base64
import json
import time
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.core.access import Action, Principal, Rule
from penstock.gateway.options import GatewayOptions
from penstock.memory import MemoryBudget, Purpose
from penstock.middleware import TopicIs
from penstock.ports import AuditEvent, PartitionRange
from penstock.ports.selection import Selection
from penstock.server.config import Config
from penstock.server.http.log_reads import LogRead
from penstock.storage.arrow.log import ArrowLog
from penstock.storage.options import LogOptions, Retention
from tests.support import lamamq_bytes
from tests.support.http_live import JSON, Answer, HttpBroker

READER = Principal(
    "reader",
    [Rule(allow=True, actions=frozenset({Action.SUBSCRIBE}), pattern="open/#")],
    default=False,
)
OPERATOR = Principal("operator", administers=True)


class Recorded:
    """An audit log in memory."""

    def __init__(self) -> None:
        self.events: list[tuple[AuditEvent, dict[str, Any]]] = []

    def record(self, event: AuditEvent, /, **fields: Any) -> None:
        self.events.append((event, fields))


@pytest.fixture(scope="module")
def audit() -> Recorded:
    return Recorded()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, audit: Recorded) -> Iterator[HttpBroker]:
    with HttpBroker(
        data=tmp_path_factory.mktemp("data"),
        audit=audit,
        web_options=GatewayOptions(anonymous=OPERATOR),
    ) as live:
        yield live


@pytest.fixture(scope="module")
def reader(broker: HttpBroker) -> "Other":
    return Other(broker, GatewayOptions(anonymous=READER))


class Other:
    """Another listener of the same broker, whose callers are another principal."""

    def __init__(self, broker: HttpBroker, options: GatewayOptions) -> None:
        self._broker = broker
        self._address = broker.listen("ws://127.0.0.1:0/ws", options)

    def ask(self, method: str, path: str, **body: Any) -> Answer:
        usual, self._broker.web = self._broker.web, self._address
        try:
            data = json.dumps(body).encode() if body else None
            return self._broker.ask(method, path, body=data, headers=JSON if body else {})
        finally:
            self._broker.web = usual


def values(answer: Answer) -> list[bytes]:
    return [base64.b64decode(each["value"]) for each in answer.json()["messages"]]


def post(broker: HttpBroker, path: str, **body: Any) -> Answer:
    return broker.ask("POST", path, body=json.dumps(body).encode(), headers=JSON)


# --- Messages -------------------------------------------------------------------------------------


def test_the_last_messages_of_a_topic_and_those_before_them(broker: HttpBroker) -> None:
    for number in range(12):
        broker.publish(topic="last/a", text=f"a{number}", key="k", headers={"x": "y"})
        broker.publish(topic="last/b", text=f"b{number}")
    last = broker.get("/api/messages?topic=last/a&limit=5")
    assert values(last) == [b"a7", b"a8", b"a9", b"a10", b"a11"]
    found = last.json()["messages"][-1]
    assert (found["topic"], found["protocol"], found["kind"]) == ("last/a", "http", "publish")
    assert base64.b64decode(found["key"]) == b"k"
    assert found["headers"] == [{"name": "x", "value": base64.b64encode(b"y").decode()}]
    before = last.json()["previous"]
    older = broker.get(f"/api/messages?topic=last/a&limit=5&before={before}")
    assert values(older) == [b"a2", b"a3", b"a4", b"a5", b"a6"]
    both = broker.get("/api/messages?topic=last/%2B&limit=3")
    assert values(both) == [b"b10", b"a11", b"b11"]


def test_a_topic_that_was_quiet_for_long_is_found(broker: HttpBroker) -> None:
    broker.publish(topic="quiet", text="once")
    for number in range(30):
        broker.publish(topic="noise", text=str(number))
    assert values(broker.get("/api/messages?topic=quiet&limit=2")) == [b"once"]
    assert values(broker.get("/api/messages?topic=no/such/topic")) == []


def test_values_are_read_only_where_a_pattern_has_messages(
    broker: HttpBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("rare/1", *["busy"] * 60, "rare/2", *["busy"] * 40, "rare/3"):
        broker.publish(topic=topic, text=topic)
    spans: list[PartitionRange] = []
    scan = ArrowLog.scan

    def recording(self: ArrowLog, span: PartitionRange, *others: Any, **named: Any) -> Any:
        spans.append(span)
        return scan(self, span, *others, **named)

    monkeypatch.setattr(ArrowLog, "scan", recording)
    answer = broker.get("/api/messages?topic=rare/%23&limit=3")
    assert values(answer) == [b"rare/1", b"rare/2", b"rare/3"]
    assert [each["topic"] for each in answer.json()["messages"]] == ["rare/1", "rare/2", "rare/3"]
    windows = [span.end - span.start for span in spans]
    assert len(windows) == 3
    assert windows[:2] == [6, 24]  # those of 12 and 48 offsets have only other topics
    first = answer.json()["messages"][0]["offset"]
    older = broker.get(f"/api/messages?topic=rare/%23&limit=3&before={first}")
    assert values(older) == []


def test_messages_from_an_offset_and_from_a_time(broker: HttpBroker) -> None:
    offsets = [broker.publish(topic="on", text=str(n)).json()["offset"] for n in range(4)]
    found = broker.get(f"/api/messages?topic=on&start={offsets[1]}&limit=2")
    assert values(found) == [b"1", b"2"]
    rest = broker.get(f"/api/messages?topic=on&start={found.json()['next']}")
    assert values(rest) == [b"3"]
    time_of_2 = found.json()["messages"][1]["time"].replace("+", "%2B")
    assert values(broker.get(f"/api/messages?topic=on&time={time_of_2}")) == [b"2", b"3"]


def test_a_value_is_cut_and_its_size_told(broker: HttpBroker) -> None:
    broker.publish(topic="long", text="x" * 5000)
    (found,) = broker.get("/api/messages?topic=long&value_bytes=10").json()["messages"]
    assert (base64.b64decode(found["value"]), found["bytes"]) == (b"x" * 10, 5000)


def test_a_request_waits_for_the_next_message(broker: HttpBroker) -> None:
    end = broker.get("/api/messages?topic=tail").json()["end"]
    with lamamq_bytes.subscriber(broker, b"tail"):
        began = time.monotonic()
        assert values(broker.get(f"/api/messages?topic=tail&start={end}&wait=0.3")) == []
        assert time.monotonic() - began >= 0.3
    broker.run(lambda: _later(broker, "tail"))
    assert values(broker.get(f"/api/messages?topic=tail&start={end}&wait=4")) == [b"now"]


def test_a_live_view_gets_the_newest_messages_and_none_twice(broker: HttpBroker) -> None:
    for number in range(9):
        broker.publish(topic="live/a", text=str(number))
        broker.publish(topic="other", text="x")
    end = broker.get("/api/messages?topic=live/a").json()["end"]
    first = end - 18
    newest = broker.get(f"/api/messages?topic=live/%2B&start={first}&newest=true&limit=3")
    assert values(newest) == [b"6", b"7", b"8"]
    assert newest.json()["next"] == end
    assert newest.json()["previous"] > first  # others were left out
    all_of_them = broker.get(f"/api/messages?topic=live/a&start={first}&newest=true")
    assert values(all_of_them) == [b"%d" % number for number in range(9)]
    assert values(broker.get(f"/api/messages?topic=live/a&start={end}&newest=true&wait=0.2")) == []
    broker.publish(topic="live/a", text="9")
    assert values(broker.get(f"/api/messages?topic=live/a&start={end}&newest=true")) == [b"9"]


async def _later(broker: HttpBroker, topic: str) -> None:
    """Publish in the broker's loop, shortly."""
    from penstock.server.http.publishing import publish  # noqa: PLC0415
    from penstock.server.http.schemas import Message  # noqa: PLC0415

    loop = broker._loop
    loop.call_later(
        0.3,
        lambda: broker.__dict__.setdefault("tasks", []).append(
            loop.create_task(
                publish(broker.server.http, OPERATOR, Message(topic=topic, text="now"))
            )
        ),
    )


def test_messages_need_the_right_to_subscribe(broker: HttpBroker, reader: Other) -> None:
    for topic in ("open/x", "secret/x"):
        broker.publish(topic=topic, text=topic)
    assert values(reader.ask("GET", "/api/messages?topic=open/x")) == [b"open/x"]
    for topic in ("secret/x", "%23", "%2B/x"):
        assert reader.ask("GET", f"/api/messages?topic={topic}").status == 403, topic


@pytest.mark.parametrize("query", ["start=1&before=2", "limit=0", "wait=21", "value_bytes=-1"])
def test_a_wrong_query_for_messages_is_refused(broker: HttpBroker, query: str) -> None:
    assert broker.get(f"/api/messages?{query}").error()[:2] == (400, "bad-request")


def test_without_a_log_there_are_no_messages() -> None:
    with HttpBroker() as live:
        live.publish(topic="t", text="x")
        found = live.get("/api/messages?topic=t").json()
        assert (found["kept"], found["messages"]) == (False, [])


# --- Topics ---------------------------------------------------------------------------------------


def test_topics_are_read_level_by_level(broker: HttpBroker, reader: Other) -> None:
    for topic in ("tree/a", "tree/a/x", "tree/a/y", "tree/b", "open/tree"):
        broker.publish(topic=topic, text="1")
    found = broker.get("/api/topic-levels?prefix=tree/").json()
    assert found["levels"] == [
        {"name": "a", "topics": 3, "messages": 3, "is_topic": True},
        {"name": "b", "topics": 1, "messages": 1, "is_topic": True},
    ]
    first = broker.get("/api/topic-levels?prefix=tree/&limit=1").json()
    assert (first["next"], first["total"]) == ("a", 2)
    rest = broker.get("/api/topic-levels?prefix=tree/&limit=1&after=a").json()
    assert ([each["name"] for each in rest["levels"]], rest["next"]) == (["b"], None)
    seen = reader.ask("GET", "/api/topic-levels").json()
    assert [each["name"] for each in seen["levels"]] == ["open"]


def test_topics_are_searched_by_any_part_of_their_name(broker: HttpBroker) -> None:
    broker.publish(topic="search/the-needle/x", text="1")
    found = broker.get("/api/topics?contains=needle").json()["topics"]
    assert [each["name"] for each in found] == ["search/the-needle/x"]


# --- Acts -----------------------------------------------------------------------------------------


def test_a_client_is_disconnected_and_that_is_audited(
    broker: HttpBroker, reader: Other, audit: Recorded
) -> None:
    with lamamq_bytes.subscriber(broker, b"t") as peer:
        (client,) = broker.get("/api/clients").json()["clients"]
        path = f"/api/clients/{client['connection']}"
        assert reader.ask("DELETE", path).status == 403
        found = broker.ask("DELETE", path).json()
        assert found["connection"] == client["connection"]
        peer.expect_close()
    broker.until(lambda: not len(broker.server.broker.sessions))
    assert broker.ask("DELETE", path).error()[:2] == (404, "no-such-client")
    acts = [fields for event, fields in audit.events if event is AuditEvent.ADMINISTERED]
    assert (acts[-1]["act"], acts[-1]["name"]) == ("disconnectClient", str(client["connection"]))


def test_a_drain_needs_its_right_and_is_audited(
    broker: HttpBroker, reader: Other, audit: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float | None] = []

    def drain(seconds: float | None) -> float:
        asked.append(seconds)
        return 5.0

    context = broker.server.http
    monkeypatch.setattr(context, "drain", drain)
    assert reader.ask("POST", "/api/drain").status == 403
    for wrong in ("0", "-1", "3601", "nan", "soon"):
        assert broker.ask("POST", f"/api/drain?seconds={wrong}").status == 400, wrong
    assert broker.get("/readyz").status == 200
    try:
        found = broker.ask("POST", "/api/drain?seconds=5").json()
        assert found == {"clients": 0, "seconds_max": 5.0}
        assert broker.get("/readyz")[::2] == (503, b"the broker is draining\n")
        assert broker.ask("POST", "/api/drain").error()[:2] == (409, "stopping")
    finally:
        context.draining = False
    assert asked == [5.0]
    acts = [fields for event, fields in audit.events if event is AuditEvent.ADMINISTERED]
    assert (acts[-1]["act"], acts[-1]["principal"]) == ("drain", "operator")


def test_the_group_of_a_reader_is_set_to_an_offset_or_a_time(
    broker: HttpBroker, reader: Other, audit: Recorded
) -> None:
    broker.server.storage.groups.commit("job", {0: 1})
    first = broker.publish(topic="g", text="x").json()["offset"]
    path = "/api/groups/job/reset"
    done = broker.ask("POST", f"{path}?to={first}").json()
    assert (done["name"], done["offset"]) == ("job", first)
    assert broker.server.storage.groups.load("job").offsets == {0: first}
    early = broker.ask("POST", f"{path}?to=2000-01-01T00:00:00Z").json()
    assert early["offset"] == 0
    far = broker.ask("POST", f"{path}?to={10**9}").json()
    assert far["offset"] == broker.server.storage.bounds()[0].end
    assert reader.ask("POST", f"{path}?to=0").status == 403
    assert broker.ask("POST", "/api/groups/none/reset?to=0").status == 404
    assert broker.ask("POST", f"{path}?to=yesterday").status == 400
    events = [fields for event, fields in audit.events if event is AuditEvent.ADMINISTERED]
    assert (events[-1]["act"], events[-1]["name"]) == ("resetGroup", "job")


# --- Standing -------------------------------------------------------------------------------------


def test_a_caller_is_told_its_rights(broker: HttpBroker, reader: Other) -> None:
    mine = broker.get("/api/me?topic=open/x").json()
    assert mine["name"] == "operator"
    assert {"clients", "clients/disconnect", "drain", "log", "rates"} <= set(mine["administers"])
    found = reader.ask("GET", "/api/me?topic=open/x").json()
    assert found == {
        "name": "reader",
        "anonymous": False,
        "administers": [],
        "publish": False,
        "subscribe": True,
        "groups": "none",
        "log": "arrow",
    }
    assert mine["groups"] == "all"
    assert not reader.ask("GET", "/api/me").json()["subscribe"]


def test_refusals_are_counted_and_the_newest_is_first(broker: HttpBroker, reader: Other) -> None:
    for _ in range(3):
        reader.ask("GET", "/api/messages?topic=refused/one")
    reader.ask("GET", "/api/messages?topic=refused/two")
    two, one, *_ = broker.get("/api/refusals").json()["refusals"]
    assert (two["name"], two["count"]) == ("refused/two", 1)
    assert (one["name"], one["count"], one["action"]) == ("refused/one", 3, "subscribe")
    assert (one["principal"], one["address"], one["protocol"]) == ("reader", "127.0.0.1", "http")
    assert one["rule"] == ""
    assert reader.ask("GET", "/api/refusals").status == 403


def test_a_refusal_names_the_rule_that_denies_it_to_operators_only(broker: HttpBroker) -> None:
    denies = Rule(allow=False, actions=frozenset({Action.SUBSCRIBE}), pattern="denied/#")
    panel = Other(broker, GatewayOptions(anonymous=Principal("panel", [denies])))
    answer = panel.ask("GET", "/api/messages?topic=denied/one")
    assert answer.error() == (403, "not-allowed", "panel may not subscribe to 'denied/one'")
    newest = broker.get("/api/refusals").json()["refusals"][0]
    assert (newest["name"], newest["rule"]) == ("denied/one", "deny subscribe on denied/#")


def test_hooks_and_requests_have_their_times(broker: HttpBroker, reader: Other) -> None:
    url = "tcp://{}:{}".format(*broker.address)
    with (
        penstock.connect_sync(url, protocol="lamamq", name="guard") as guard,
        penstock.connect_sync(url, protocol="fleximq") as server,
        penstock.connect_sync(url, protocol="fleximq") as asker,
    ):
        watched = (TopicIs("judged"),)
        guard.middleware("no-x", lambda call: "x" if call.value == b"x" else None,
                         timeout_ms=30_000, conditions=watched)  # fmt: skip
        assert broker.publish(topic="judged", text="y").status == 200
        assert broker.publish(topic="judged", text="x").status == 403
        server.serve("/time", lambda _: 12)
        assert server.identity is not None
        assert asker.request(server.identity, "/time").payload == 12
        found = broker.get("/api/hooks").json()
    (hook,) = found["hooks"]
    assert (hook["name"], hook["event"], hook["topics"]) == ("no-x", "push", ["judged"])
    assert (hook["client"], hook["connected"], hook["waiting"]) == ("guard", True, 0)
    assert (hook["calls"], hook["refusals"], hook["unanswered"]) == (2, 1, 0)
    for times, count in ((hook["answers"], 2), (found["request_answers"], 1)):
        assert times["count"] == count
        assert 0 < times["mean_seconds"] <= times["max_seconds"] < 30
        assert 0 < times["p50_seconds"] <= times["p99_seconds"] <= times["max_seconds"]
    assert (found["requests_pending"], found["requests_timed_out"]) == (0, 0)
    assert reader.ask("GET", "/api/hooks").status == 403


def test_a_log_that_one_broker_writes_has_no_nodes(broker: HttpBroker, reader: Other) -> None:
    found = broker.get("/api/cluster").json()
    assert (found["log"], found["node"], found["nodes"]) == ("arrow", 0, [])
    assert reader.ask("GET", "/api/cluster").status == 403


def test_the_bounds_of_retention_are_told(broker: HttpBroker, tmp_path: Path) -> None:
    none = {"age_seconds_max": None, "bytes_max": None, "topics": []}
    assert broker.get("/api/log").json()["retention"] == none
    options = LogOptions(retention=Retention(age_seconds_max=3600, bytes_max=1 << 30))
    log = ArrowLog(tmp_path, options)
    status = log.status()
    log.close()
    assert (status.age_seconds_max, status.bytes_max) == (3600, 1 << 30)


def test_limits_show_what_is_used_of_them(broker: HttpBroker, reader: Other) -> None:
    found = {each["name"]: each for each in broker.get("/api/limits").json()["limits"]}
    assert set(found) == {"topics", "bytes of topic names", "connections"}
    assert found["topics"]["used"] == broker.server.broker.topics.live
    assert 0 < found["connections"]["used"] < found["connections"]["maximum"]
    assert found["connections"]["lowered_by"] == ""
    assert reader.ask("GET", "/api/limits").status == 403


def test_limits_have_the_names_of_their_settings_and_say_what_lowered_them() -> None:
    few = {"connections_max": 4000, "descriptors_max": 4000}
    with HttpBroker(memory=MemoryBudget(64 << 20), **few) as live:
        found = {each["name"]: each for each in live.get("/api/limits").json()["limits"]}
    assert set(found) == {"topics", "bytes of topic names", "memory", "connections"}
    for each in found.values():
        assert attrgetter(each["setting"])(Config()) >= 0
    assert {each["name"]: each["lowered_by"] for each in found.values() if each["lowered_by"]} == {
        "connections": "open files"
    }


# --- Verification ---------------------------------------------------------------------------------


def test_a_log_is_verified_and_damage_is_found(tmp_path: Path) -> None:
    with HttpBroker(data=tmp_path) as live:
        for number in range(5):
            live.publish(topic="v", text=f"marker-{number}")
        found = live.get("/api/log/verify").json()
        assert (found["start"], found["end"], found["next"]) == (0, 5, None)
        assert (found["messages"], found["damage"]) == (5, [])
        (segment,) = [each for each in tmp_path.rglob("*") if _has(each, b"marker-3")]
        data = bytearray(segment.read_bytes())
        data[data.index(b"marker-3")] ^= 1
        segment.write_bytes(data)
        damaged = live.get("/api/log/verify").json()
        assert [each["first"] for each in damaged["damage"]] == [3]
        assert damaged["next"] is None


def _has(path: Path, text: bytes) -> bool:
    return path.is_file() and text in path.read_bytes()


# --- Last values ----------------------------------------------------------------------------------


def test_a_list_of_topics_has_the_last_value_of_each(broker: HttpBroker, reader: Other) -> None:
    broker.publish(topic="open/values/old", text="before")
    host, port = broker.address
    with penstock.connect_sync(f"tcp://{host}:{port}", protocol="lamamq", timeout=30) as client:
        client.publish_many("open/values/many", [b"%04d" % number for number in range(3000)])
    broker.publish(topic="open/values/new", text="after")
    broker.publish(topic="closed/values/new", text="secret")

    def values(ask: Any, query: str) -> dict[str, bytes | None]:
        topics = ask("GET", f"/api/topics?contains=/values/{query}").json()["topics"]
        return {each["name"]: each["value"] and base64.b64decode(each["value"]) for each in topics}

    assert values(reader.ask, "&value_bytes=5") == {
        "open/values/old": b"befor",
        "open/values/many": b"2999",
        "open/values/new": b"after",
    }
    assert values(broker.ask, "&value_bytes=100")["closed/values/new"] == b"secret"
    assert set(values(reader.ask, "").values()) == {None}
    assert broker.get("/api/topics?value_bytes=1025").error()[1] == "bad-request"


def test_where_the_last_message_is_not_written_yet_the_one_before_it_is_found(
    broker: HttpBroker,
) -> None:
    for text in ("first", "second"):
        broker.publish(topic="open/written", text=text)
    storage = broker.server.storage
    bounds = storage.bounds()[storage.partition]
    with broker.server.broker.memory.draw(Purpose.HTTP, principal="x") as draw:
        read = LogRead(storage, Selection(), draw, limit=1, value_bytes=100)
        last = {"open/written": bounds.end + 5, "open/unknown": bounds.end + 6}
        found = read.last_values(last, horizon=bounds.horizon, end=bounds.end)
    assert found == {"open/written": b"second"}
