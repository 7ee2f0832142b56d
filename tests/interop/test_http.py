"""The HTTP port of a live broker: health, the JSON API, and what its document says of it."""

import asyncio
import contextlib
import http.client
import json
import shlex
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

import penstock
from penstock import limits
from penstock.errors import ConfigError
from penstock.limits import HTTP_BODY_BYTES_MAX, HTTP_HEAD_BYTES_MAX
from penstock.ports import GroupProgress, Subscription
from penstock.server.banner import banner
from penstock.server.config_loading import load
from penstock.server.credentials import Authenticator
from penstock.server.run import Running
from penstock.server.server import Server
from penstock.storage.arrow.log import ArrowLog
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.records import plain_records, record_batches
from penstock.storage.group_offsets import GroupOffsets
from tests.support import herald_bytes, lamamq_bytes
from tests.support.http_live import JSON, HttpBroker
from tests.support.lamamq_bytes import PUSHED, WAIT_OR_REFUSE

TLS = Path(__file__).parents[1] / "support" / "tls"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[HttpBroker]:
    with HttpBroker(data=tmp_path) as live:
        yield live


def test_headers_that_only_the_broker_sets_are_refused(broker: HttpBroker) -> None:
    answer = broker.publish(topic="a", text="v", headers={"penstock-hook": "h"})
    status, code, message = answer.error()
    assert (status, code) == (400, "reserved-header")
    assert "penstock-hook" in message


# --- Health ---------------------------------------------------------------------------------------


def test_a_broker_that_lives_says_so(broker: HttpBroker) -> None:
    for path in ("/healthz", "/readyz"):
        answer = broker.get(path, Host="anything.example")
        assert (answer.status, answer.body) == (200, b"ok\n")


def test_it_is_not_ready_while_the_log_fails_it_starts_or_stops(broker: HttpBroker) -> None:
    context = broker.server.http
    for field, value, reason in (
        ("starting", True, b"not all listeners take clients yet\n"),
        ("stopping", True, b"the broker is stopping\n"),
    ):
        broker.call(lambda field=field, value=value: setattr(context, field, value))
        assert broker.get("/readyz")[::2] == (503, reason)
        assert broker.get("/healthz").status == 200
        broker.call(lambda field=field: setattr(context, field, False))
    assert isinstance(context.storage, ArrowLog)
    context.storage._appends.unavailable = OSError(28, "No space left on device")
    answer = broker.get("/readyz")
    assert answer[::2] == (503, b"messages cannot be kept: No space left on device\n")
    refused = broker.publish(topic="a", text="x").error()
    assert refused[:2] == (503, "log-unavailable")
    context.storage._appends.unavailable = None
    assert broker.get("/readyz").status == 200


# --- The port -------------------------------------------------------------------------------------


def test_websocket_and_http_share_the_port(broker: HttpBroker) -> None:
    with connect(f"ws://127.0.0.1:{broker.web.port}/ws") as peer:
        assert broker.get("/healthz").status == 200
        assert peer.ping()
    assert broker.get("/ws").status == 426


def test_a_connection_is_used_again_and_requests_may_come_at_once(broker: HttpBroker) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", broker.web.port, timeout=5)
    for _ in range(3):
        connection.request("GET", "/api/")
        assert connection.getresponse().read()
    connection.close()
    with socket.create_connection(("127.0.0.1", broker.web.port), 5) as peer:
        request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n%s\r\n"
        peer.sendall(request % b"" + request % b"Connection: close\r\n")
        data = b""
        while more := peer.recv(4096):
            data += more
    assert data.count(b"HTTP/1.1 200 OK") == 2


def test_a_request_may_come_byte_by_byte_and_end_there(broker: HttpBroker) -> None:
    with socket.create_connection(("127.0.0.1", broker.web.port), 5) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n":
            peer.sendall(bytes([byte]))
        peer.shutdown(socket.SHUT_WR)
        data = b""
        while more := peer.recv(4096):
            data += more
    assert data.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nserver:" not in data.lower()


def test_what_is_no_http_is_answered_with_400_and_closed(broker: HttpBroker) -> None:
    for garbage in (b"\xfe\xca\x01\0\0\0\0\r\n\r\n", b"HELLO\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", broker.web.port), 5) as peer:
            peer.sendall(garbage)
            data = b""
            while more := peer.recv(4096):
                data += more
        assert data.startswith(b"HTTP/1.1 400 ")
    assert broker.get("/healthz").status == 200


def test_a_head_beyond_the_limit_is_not_waited_for(broker: HttpBroker) -> None:
    with socket.create_connection(("127.0.0.1", broker.web.port), 5) as peer:
        peer.sendall(b"GET /healthz HTTP/1.1\r\n")
        try:
            peer.sendall(b"X: y\r\n" * (HTTP_HEAD_BYTES_MAX // 6 + 100))
            data = peer.recv(4096)
        except ConnectionError:
            data = b"HTTP/1.1 400 "
    assert data.startswith(b"HTTP/1.1 400 ")


def test_a_head_that_does_not_come_to_its_end_is_not_waited_for(
    broker: HttpBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert broker.get("/healthz").status == 200  # from now on all is loaded
    monkeypatch.setattr("penstock.server.http.protocol.HANDSHAKE_SECONDS_MAX", 0.2)
    with socket.create_connection(("127.0.0.1", broker.web.port), 5) as peer:
        peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert peer.recv(4096) == b""
    broker.until(lambda: broker.server.http.connections() == 0)


def test_http_connections_count_and_are_let_go(broker: HttpBroker) -> None:
    context = broker.server.http
    connection = http.client.HTTPConnection("127.0.0.1", broker.web.port, timeout=5)
    connection.request("GET", "/healthz")
    connection.getresponse().read()
    assert broker.call(context.connections) == 1
    connection.close()
    broker.until(lambda: context.connections() == 0)


def test_beyond_the_limit_only_health_is_answered(tmp_path: Path) -> None:
    with HttpBroker(data=tmp_path, connections_max=1) as broker:
        first = herald_bytes.subscriber(broker)  # has a session, so it does not give way
        assert broker.get("/healthz").status == 200
        assert broker.get("/readyz").status == 200
        assert broker.get("/api/").status == 503
        broker.server.http.stopping = True
        assert broker.get("/readyz").status == 503
        assert broker.get("/healthz").status == 200
        first.socket.close()
        broker.until(lambda: broker.server.http.connections() == 0)
        assert broker.get("/healthz").status == 200


def test_it_speaks_tls(tmp_path: Path) -> None:
    with HttpBroker(data=tmp_path) as broker:
        place = broker.listen(
            f"wss://127.0.0.1:0/ws?certificate={TLS / 'localhost.pem'}&key={TLS / 'localhost.key'}"
        )
        trusting = ssl.create_default_context(cafile=str(TLS / "localhost.pem"))
        connection = http.client.HTTPSConnection(
            "localhost", place.port, timeout=5, context=trusting
        )
        for _ in range(2):
            connection.request("GET", "/api/")
            assert json.loads(connection.getresponse().read())["name"] == "penstock"
        connection.close()


def test_a_stop_lets_answers_that_are_under_way_be_sent(tmp_path: Path) -> None:
    with HttpBroker(data=tmp_path) as broker:
        assert broker.get("/healthz").status == 200
        connection = http.client.HTTPConnection("127.0.0.1", broker.web.port, timeout=5)
        connection.request("GET", "/api/rates?seconds=0.3")
        (service,) = [each._http for each in broker.server._listeners if hasattr(each, "_http")]
        broker.until(lambda: any(not each.idle for each in service._connections))
        broker._loop.call_soon_threadsafe(broker._done.set)
        answer = connection.getresponse()
        assert answer.status == 200
        assert json.loads(answer.read())["seconds"] >= 0.29
        connection.close()


# --- Topics, clients, subscriptions ---------------------------------------------------------------


def test_topics_show_what_came_for_them(broker: HttpBroker) -> None:
    with (
        lamamq_bytes.client(broker, b"sender") as sender,
        lamamq_bytes.subscriber(broker, b"plant/+"),
    ):
        for _ in range(3):
            sender.request(lamamq_bytes.push(0, b"plant/a", b"12345"))
        sender.request(lamamq_bytes.push(0, b"else/b", b"1"))
        answer = broker.get("/api/topics").json()
    by_name = {topic["name"]: topic for topic in answer["topics"]}
    assert sorted(by_name) == ["else/b", "plant/a"]
    plant = by_name["plant/a"]
    assert (plant["messages"], plant["bytes"], plant["last_offset"]) == (3, 15, 2)
    assert plant["subscribers"] == 1
    assert by_name["else/b"]["subscribers"] == 0
    assert answer["total"] == 2, "without channels of herald that are not used"
    assert answer["next"] is None


def test_herald_channels_show_once_they_are_used(broker: HttpBroker) -> None:
    assert broker.get("/api/topics").json()["topics"] == []
    with herald_bytes.publisher(broker, 7) as sender:
        sender.send(herald_bytes.publish(7, b"abc"))
        sender.settle()
    (topic,) = broker.get("/api/topics").json()["topics"]
    assert (topic["name"], topic["messages"], topic["bytes"]) == ("channel/7", 1, 3)


def test_topics_come_in_pages_and_by_prefix(broker: HttpBroker) -> None:
    with lamamq_bytes.client(broker) as sender:
        for number in range(25):
            sender.request(lamamq_bytes.push(0, b"a/%d" % number, b"x"))
        sender.request(lamamq_bytes.push(0, b"b/1", b"x"))
    names: list[str] = []
    after = 0
    pages = 0
    while after is not None:
        page = broker.get(f"/api/topics?prefix=a/&limit=10&after={after}").json()
        names += [topic["name"] for topic in page["topics"]]
        after = page["next"]
        pages += 1
    assert names == [f"a/{number}" for number in range(25)]
    assert pages == 3


def test_topics_come_in_the_order_of_their_names_with_their_number(broker: HttpBroker) -> None:
    with lamamq_bytes.client(broker) as sender:
        for name in (b"a/c", b"a/a", b"b", b"a/d", b"a/b"):
            sender.request(lamamq_bytes.push(0, name, b"x"))
    first = broker.get("/api/topics?prefix=a/&order=name&limit=3").json()
    assert [topic["name"] for topic in first["topics"]] == ["a/a", "a/b", "a/c"]
    assert (first["found"], first["next"]) == (4, 3)
    rest = broker.get("/api/topics?prefix=a/&order=name&limit=3&after=3").json()
    assert [topic["name"] for topic in rest["topics"]] == ["a/d"]
    assert (rest["found"], rest["next"]) == (4, None)
    assert broker.get("/api/topics?prefix=a/").json()["found"] is None
    assert broker.get("/api/topics?order=name&after=9").json()["topics"] == []


def test_a_client_shows_what_it_sent_and_got(broker: HttpBroker) -> None:
    with (
        lamamq_bytes.subscriber(broker, b"t/#", b"u") as subscriber,
        lamamq_bytes.client(broker, b"sender") as sender,
    ):
        data = lamamq_bytes.push(1, b"t/1", b"x" * 100)
        sender.request(data)
        frame = subscriber.forwarded()
        assert frame
        clients = broker.get("/api/clients").json()
        found = {each["name"]: each for each in clients["clients"]}
        assert clients["total"] == 2
        one, other = found["sender"], found["subscriber"]
        assert (one["received_messages"], one["sent_messages"]) == (1, 0)
        assert one["received_bytes"] >= len(data)
        assert (other["received_messages"], other["sent_messages"]) == (0, 1)
        assert other["sent_bytes"] > 100
        assert other["subscriptions"] == 2
        assert other["address"] == "{}:{}".format(*subscriber.socket.getsockname())
        assert one["connection"] != other["connection"]
        assert not other["slow"]
        subscriptions = broker.get("/api/subscriptions").json()["subscriptions"]
        assert [each["pattern"] for each in subscriptions] == ["t/#", "u"]
        assert {each["connection"] for each in subscriptions} == {other["connection"]}
        page = broker.get("/api/subscriptions?limit=1").json()
        rest = broker.get(f"/api/subscriptions?limit=1&after={page['next']}").json()
        assert [page["subscriptions"][0]["pattern"], rest["subscriptions"][0]["pattern"]] == [
            "t/#",
            "u",
        ]
        nobody = f"/api/subscriptions?connection={one['connection']}"
        assert broker.get(nobody).json()["subscriptions"] == []
        assert broker.get("/api/clients?protocol=herald").json()["clients"] == []
        named = broker.get("/api/clients?contains=ENDER").json()["clients"]
        assert [each["name"] for each in named] == ["sender"]
        assert broker.get("/api/clients?contains=nobody").json()["clients"] == []
        page = broker.get("/api/clients?limit=1").json()
        rest = broker.get(f"/api/clients?limit=1&after={page['next']}").json()
        assert rest["clients"][0]["id"] == page["next"] != page["clients"][0]["id"]


def test_a_client_that_does_not_read_is_slow_and_behind(broker: HttpBroker) -> None:
    with (
        lamamq_bytes.subscriber(broker, b"big") as lazy,
        lamamq_bytes.client(broker, b"sender") as sender,
    ):
        lazy.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        value = bytes(1_000_000)
        deadline = time.monotonic() + 10
        while not (slow := broker.get("/api/clients?slow=true").json()["clients"]):
            sender.request(lamamq_bytes.push(0, b"big", value))
            assert time.monotonic() < deadline
        sender.request(lamamq_bytes.push(0, b"big", b"behind"))
        (found,) = slow
        assert found["name"] == "subscriber"
        assert found["waiting_bytes"] > 1_000_000
        rates = broker.get("/api/rates?seconds=0.1").json()
        assert (rates["slow_count"], rates["slow"][0]["name"]) == (1, "subscriber")
        assert rates["slow"][0]["behind"] >= 1
        assert b'penstock_fell_behind_total{protocol="lamamq"} 1.0' in broker.get("/metrics").body


# --- The log, groups, rates -----------------------------------------------------------------------


def test_the_log_says_what_is_on_disk(broker: HttpBroker) -> None:
    with lamamq_bytes.client(broker) as sender:
        for _ in range(5):
            sender.request(lamamq_bytes.push(0, b"t", b"x"))
    found = broker.get("/api/log").json()
    assert found["kept"] is True
    assert found["durability"] == "fsync"
    assert (found["horizon"], found["end"], found["durable"], found["next_offset"]) == (0, 5, 5, 5)
    assert found["syncs"] == found["commits"] >= 1
    assert found["segment_count"] == len(found["segments"]) == 1
    assert found["segments"][0]["end_offset"] == 5
    assert found["bytes"] == found["segments"][0]["bytes"] > 0
    assert found["problem"] is None


def test_a_broker_without_a_log_says_so() -> None:
    with HttpBroker() as broker:
        found = broker.get("/api/log").json()
        assert (found["kept"], found["durability"], found["segments"]) == (False, "memory", [])
        assert broker.get("/api/groups").json() == {"groups": []}
        published = broker.publish(topic="t", text="x").json()
        assert (published["offset"], published["durable"]) == (0, False)
        assert broker.get("/metrics").status == 200


def test_groups_show_their_lag(broker: HttpBroker, tmp_path: Path) -> None:
    for number in range(5):
        broker.publish(topic="t", json=number)
    GroupOffsets(tmp_path).commit("job", {0: 2}, lost=1)
    (group,) = broker.get("/api/groups").json()["groups"]
    assert (group["name"], group["lag"], group["lost"]) == ("job", 3, 1)
    assert group["consumers"] == "external"
    assert group["offsets"] == [{"partition": 0, "offset": 2, "lag": 3}]
    assert group["topics"] == [{"topic": "t", "lag": 3}]
    for number in range(4):
        broker.publish(topic="u", json=number)
    (group,) = broker.get("/api/groups?topics=1").json()["groups"]
    assert (group["lag"], group["topics"]) == (7, [{"topic": "u", "lag": 4}])
    assert broker.get("/api/groups?topics=1001").status == 400


def test_rates_are_those_of_the_time_that_they_took(broker: HttpBroker) -> None:
    for _ in range(50):
        broker.publish(topic="before", text="x")
    asking = threading.Thread(
        target=lambda: answers.append(broker.get("/api/rates?seconds=0.5&topics=2").json())
    )
    answers: list[dict[str, Any]] = []
    asking.start()
    with lamamq_bytes.client(broker) as sender:
        while asking.is_alive():
            for topic in (b"busy", b"busy", b"busy", b"less"):
                sender.request(lamamq_bytes.push(0, topic, b"12345678"))
    (found,) = answers
    assert found["seconds"] >= 0.49
    busy, less = found["topics"]
    assert (busy["name"], less["name"]) == ("busy", "less")
    counted = {each["name"]: round(each["messages"] * found["seconds"]) for each in (busy, less)}
    assert abs(counted["busy"] - 3 * counted["less"]) <= 3
    assert busy["bytes"] == pytest.approx(8 * busy["messages"])
    protocols = {each["protocol"]: each for each in found["protocols"]}
    assert sorted(protocols) == [
        "fleximq", "flight", "herald", "http", "lamamq", "rheos1", "rheos2",
    ]  # fmt: skip
    assert protocols["lamamq"]["received_messages"] == pytest.approx(
        busy["messages"] + less["messages"]
    )
    assert protocols["lamamq"]["received_bytes"] > 8 * busy["messages"]
    assert protocols["http"]["received_messages"] == 0
    assert found["syncs"] >= 1


# --- Publishing -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ({"text": "grün"}, "grün".encode()),
        ({"text": ""}, b""),
        ({"json": {"a": [1, None]}}, b'{"a": [1, None]}'.replace(b"None", b"null")),
        ({"json": None}, b"null"),
        ({"base64": "/wA="}, b"\xff\0"),
    ],
)
def test_a_message_is_delivered_kept_and_told_its_place(
    broker: HttpBroker, tmp_path: Path, given: dict[str, Any], value: bytes
) -> None:
    with lamamq_bytes.subscriber(broker, b"t/#") as subscriber:
        published = broker.publish(topic="t/1", key="k", headers={"a": "b"}, **given).json()
        frame = subscriber.forwarded()
        assert (frame.topic, frame.payload) == (b"t/1", value)
    identifier = uuid.UUID(published.pop("message_id"))
    assert published == {
        "topic": "t/1",
        "partition": 0,
        "offset": 0,
        "durable": True,
        "duplicate": False,
    }
    assert identifier.version == 8
    assert identifier.int & ((1 << 62) - 1) == 0
    (row,) = _rows(tmp_path)
    assert (row["key"], row["value"], row["topic"]) == (b"k", value, "t/1")
    assert row["headers"] == [{"key": "a", "value": b"b"}]
    assert (row["protocol"], row["sender"], row["correlation"]) == ("http", "anyone", "http")
    assert row["message_id"] == str(identifier)


def _rows(data: Path) -> list[dict[str, Any]]:
    view = LogView(data, partition=0)
    return [row for batch in plain_records(record_batches(view)) for row in batch.to_pylist()]


def test_herald_and_rheos_subscribers_get_it_too(broker: HttpBroker) -> None:
    with herald_bytes.subscriber(broker, b"\x07") as subscriber:
        broker.publish(topic="channel/7", text="alarm")
        assert subscriber.message()[2] == b"alarm"


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ({}, "object missing required field `topic`"),
        ({"topic": "t"}, "expected one of text, json and base64, got 0 of them"),
        ({"topic": "t", "text": "a", "json": 1}, "expected one of text, json and base64, got 2"),
        ({"topic": "t", "text": 1}, "text: expected `str"),
        ({"topic": "t", "base64": "!"}, "base64: invalid base64"),
        ({"topic": "t", "text": "", "color": 1}, "unknown field `color`"),
        ({"topic": "a/+", "text": ""}, "no topic can be named 'a/+'"),
        ({"topic": "a@#7", "text": ""}, "subscriptions would take @#7 for a start position"),
        ({"topic": "a@-15min", "text": ""}, "subscriptions would take @-15min for a start"),
        ({"topic": "t", "text": "", "headers": {"a" * 1_100_000: ""}}, "headers: expected at most"),
    ],
)
def test_a_wrong_message_is_told_what_is_wrong(
    broker: HttpBroker, message: dict[str, Any], problem: str
) -> None:
    status, code, text = broker.publish(**message).error()
    assert status == 400
    assert code in {"bad-request", "invalid-topic-name"}
    assert problem in text
    assert broker.call(lambda: broker.server.broker.log.next_offset) == 0


def test_a_body_must_be_json_that_says_so_and_not_too_large(broker: HttpBroker) -> None:
    asked = broker.ask("POST", "/api/publish", body=b"{}")
    assert asked.error()[:2] == (415, "unsupported-media-type")
    asked = broker.ask("POST", "/api/publish", body=b"{", headers=JSON)
    assert asked.error()[:2] == (400, "bad-request")
    assert "expected JSON" in asked.error()[2]
    asked = broker.ask("POST", "/api/publish", body=b'{"topic": "\xff"}', headers=JSON)
    assert asked.error()[0] == 400
    text = "x" * (HTTP_BODY_BYTES_MAX - 100)
    assert broker.publish(topic="t", text=text).status == 200
    try:
        status, code, message = broker.publish(topic="t", text=text + "x" * 200).error()
    except ConnectionError:
        return  # nobody read the rest
    assert (status, code) == (413, "body-too-large")
    assert str(HTTP_BODY_BYTES_MAX) in message


def test_a_body_of_unknown_length_may_not_be_too_large(broker: HttpBroker) -> None:
    head = (
        b"POST /api/publish HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    body = b'{"topic": "t", "text": "' + b"x" * HTTP_BODY_BYTES_MAX + b'"}'
    with socket.create_connection(("127.0.0.1", broker.web.port), 5) as peer:
        data = b""
        with contextlib.suppress(ConnectionError):  # the rest is not read
            peer.sendall(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        with contextlib.suppress(ConnectionError):
            while more := peer.recv(4096):
                data += more
    assert data.startswith(b"HTTP/1.1 413 ") or not data
    assert broker.call(lambda: broker.server.broker.log.next_offset) == 0


def test_messages_that_come_over_http_have_one_client_number(tmp_path: Path) -> None:
    with HttpBroker(data=tmp_path) as broker:
        for _ in range(2):
            assert broker.publish(topic="t", text="x").status == 200
        with lamamq_bytes.client(broker) as other:
            other.request(lamamq_bytes.push(1, b"x"))
    rows = [row for each in record_batches(LogView(tmp_path)) for row in each.to_pylist()]
    first, second, third = (row["client"] for row in rows)
    assert first == second
    assert 0 < first < third


def test_middleware_judges_what_is_published_over_http(broker: HttpBroker) -> None:
    with lamamq_bytes.client(broker, b"guard") as guard:
        hook = lamamq_bytes.register(0, b"h", PUSHED, strategy=WAIT_OR_REFUSE, timeout_ms=5000)
        guard.request(hook)
        answers: list[tuple[int, str]] = []
        for error in (0, 8):
            asking = threading.Thread(
                target=lambda: answers.append((broker.publish(topic="t", text="x").status, ""))
            )
            asking.start()
            call = guard.forwarded()
            assert (call.kind, call.payload) == (1, b"x"), "text stays text"
            guard.answer(call, error, b"not today" if error else b"")
            asking.join(5)
        assert [status for status, _ in answers] == [200, 403]
    assert broker.call(lambda: broker.server.broker.log.next_offset) == 1


# --- What is not there ----------------------------------------------------------------------------


def test_what_is_not_there_says_where_to_look(broker: HttpBroker) -> None:
    missing = broker.get("/nothing").error()
    assert missing == (404, "not-found", "there is nothing here; GET /api/ lists what there is")
    assert broker.get("/api").error()[0] == 404
    answer = broker.ask("POST", "/api/topics")
    assert answer.error()[:2] == (405, "method-not-allowed")
    assert broker.ask("GET", "/api/publish").headers["Allow"] == "POST"
    with pytest.raises(Exception, match="404"):
        connect(f"ws://127.0.0.1:{broker.web.port}/wrong")


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/api/topics?limit=0", "limit: expected `int` >= 1"),
        ("/api/topics?limit=1001", "limit: expected `int` <= 1000"),
        ("/api/topics?after=-1", "after: expected `int` >= 0"),
        ("/api/topics?x=1", "unknown field `x`; expected prefix, contains, after, limit"),
        ("/api/clients?protocol=kafka", "protocol: invalid enum value 'kafka'"),
        ("/api/subscriptions?after=x", "after: expected what `next` was"),
        ("/api/rates?seconds=11", "seconds: expected `float` <= 10"),
        ("/api/log?x=1", "nothing may stand behind the ?"),
    ],
)
def test_a_wrong_query_is_told_what_is_wrong(broker: HttpBroker, path: str, problem: str) -> None:
    status, code, message = broker.get(path).error()
    assert (status, code) == (400, "bad-request")
    assert problem in message


# --- The document ---------------------------------------------------------------------------------


def test_the_document_has_every_route_and_answers_are_as_it_says(broker: HttpBroker) -> None:
    document = broker.get("/api/openapi.json").json()
    assert document["openapi"].startswith("3.1.")
    routes = broker.get("/api/").json()["routes"]
    described = {
        (method.upper(), path)
        for path, operations in document["paths"].items()
        for method in operations
    }
    assert {(route["method"], route["path"]) for route in routes} == described
    with lamamq_bytes.subscriber(broker, b"t"):
        commit = broker.server.storage.groups.commit
        orders = Subscription(patterns=("orders/#",))
        commit("job", {0: 0})
        asked = {"/api/rates": "/api/rates?seconds=0.1", "/api/groups/{name}": "/api/groups/job"}
        broker.publish(topic="t", text="x")
        for method, path in sorted(described, reverse=True):  # lists clients, then disconnects one
            operation = document["paths"][path][method.lower()]
            if path == "/api/clients/{connection}":
                (client,) = broker.get("/api/clients").json()["clients"]
                answer = broker.ask(method, path.format(connection=client["connection"]))
            elif path == "/api/drain":
                broker.server.http.drain = lambda _: 5.0  # and does nothing
                answer = broker.ask(method, path)
                broker.server.http.draining = False
            elif path == "/api/delete-topics":
                answer = broker.ask(method, path, body=b'{"names": ["none"]}', headers=JSON)
            elif path.startswith("/api/groups/") and method != "GET":
                commit("billing", {0: 0}, subscription=orders, progress=GroupProgress(next=0))
                answer = broker.ask(method, f"{path.format(name='billing')}?to=earliest")
                if not path.endswith("reset"):
                    assert answer.error()[:2] == (400, "bad-request"), "only a reset has a place"
                    answer = broker.ask(method, path.format(name="billing"))
            elif method == "DELETE":
                broker.publish(topic="t/x", text="x")
                answer = broker.ask(method, path.format(name="t/x"))
            elif method == "POST":
                answer = broker.publish(topic="t", text="x")
            else:
                answer = broker.get(asked.get(path, path))
            assert answer.status == 200, path
            ((kind, content),) = operation["responses"]["200"]["content"].items()
            assert answer.headers["Content-Type"].startswith(kind)
            if kind == "application/json":
                _validate(answer.json(), content["schema"], document)
        for answer in (broker.publish(topic="+", text=""), broker.get("/api/topics?limit=0")):
            _validate(answer.json(), {"$ref": "#/components/schemas/Failure"}, document)


def test_the_document_says_what_must_be_given_and_what_may_go_wrong(broker: HttpBroker) -> None:
    paths = broker.get("/api/openapi.json").json()["paths"]
    assert list(paths["/healthz"]["get"]["responses"]) == ["200"]
    assert sorted(paths["/readyz"]["get"]["responses"]) == ["200", "503"]
    required = {
        (path, each["name"], each["in"]): each["required"]
        for path, operations in paths.items()
        for operation in operations.values()
        for each in operation["parameters"]
    }
    assert required["/api/topics/{name}", "name", "path"]
    assert not required["/api/topics", "limit", "query"]
    assert all(needed == (place == "path") for (_, _, place), needed in required.items())


def test_the_document_refuses_what_the_broker_never_says(broker: HttpBroker) -> None:
    document = broker.get("/api/openapi.json").json()
    topics = document["paths"]["/api/topics"]["get"]["responses"]["200"]["content"]
    from jsonschema import ValidationError  # noqa: PLC0415  (takes seconds, in each worker)

    with pytest.raises(ValidationError):
        _validate({"topics": [{}]}, topics["application/json"]["schema"], document)


def _validate(found: Any, schema: dict[str, Any], document: dict[str, Any]) -> None:
    import jsonschema  # noqa: PLC0415  (takes seconds, in each worker)

    whole = {**schema, "components": document["components"]}
    jsonschema.Draft202012Validator.check_schema(whole)
    jsonschema.Draft202012Validator(whole).validate(found)


def test_about_names_the_version(broker: HttpBroker) -> None:
    found = broker.get("/api/").json()
    assert (found["name"], found["version"], found["ready"]) == (
        "penstock",
        penstock.__version__,
        True,
    )


# --- The page -------------------------------------------------------------------------------------


def test_the_commands_of_the_page_work(broker: HttpBroker) -> None:
    page = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("curl ")]
    assert len(lines) >= 4
    for line in lines:
        _, _, url, *rest = shlex.split(line)
        path = url.removeprefix("http://127.0.0.1:7080")
        if not rest:
            assert broker.get(path).status == 200, line
            continue
        assert (rest[0], rest[2]) == ("-H", "-d")
        name, _, value = rest[1].partition(": ")
        answer = broker.ask("POST", path, body=rest[3].encode(), headers={name: value})
        assert answer.status == 200, line


def test_the_page_has_every_route_and_limit(broker: HttpBroker) -> None:
    page = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
    for route in broker.get("/api/").json()["routes"]:
        assert f"| `{route['method']} {route['path']}` |" in page
    for name in (
        "HTTP_BODY_BYTES_MAX",
        "HTTP_HEAD_BYTES_MAX",
        "HTTP_CONNECTIONS_MAX",
        "HTTP_REQUEST_SECONDS_MAX",
        "HTTP_IDLE_SECONDS_MAX",
        "HTTP_RATES_MAX",
        "HTTP_SEGMENTS_MAX",
    ):
        assert f"| `{name}` | {getattr(limits, name):,.0f} |" in page


# --- An address of its own ------------------------------------------------------------------------


def test_http_may_have_a_port_of_its_own() -> None:
    async def check() -> None:
        config = load(listen=["tcp://127.0.0.1:0"], http="127.0.0.1:0", durability="memory")
        running = Running(config, Server(), Authenticator(config))
        await running.start()
        try:
            assert running.http is not None
            lines = banner(config, running.addresses, version="1", http=running.http).splitlines()
            url = f"http://127.0.0.1:{running.http.port}"
            assert f"  http    {url}" in lines
            reader, writer = await asyncio.open_connection("127.0.0.1", running.http.port)
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            async with asyncio.timeout(5):
                assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
            writer.close()
        finally:
            await running.stop()

    asyncio.run(check())


def test_beside_a_websocket_it_needs_none() -> None:
    async def check() -> None:
        config = load(listen=["ws://127.0.0.1:0/ws"], http="127.0.0.1:0", durability="memory")
        running = Running(config, Server(), Authenticator(config))
        await running.start()
        assert running.http is None
        await running.stop()

    asyncio.run(check())


def test_other_machines_reach_http_only_where_somebody_has_credentials(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"http.address: 0.0.0.0:1 can be reached from other"):
        load(listen=["tcp://127.0.0.1:1"], http="0.0.0.0:1", durability="memory")
    file = tmp_path / "penstock.toml"
    text = '[[principal]]\nname = "a"\ntoken = "b"\n'
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"--http: http.address: credentials sent to 0.0.0.0:1"):
        load(file, listen=["tcp://127.0.0.1:1"], http="0.0.0.0:1", durability="memory")
    file.write_text(text + "[http]\ncleartext_credentials = true\n")
    config = load(file, listen=["tcp://127.0.0.1:1"], http="0.0.0.0:1", durability="memory")
    assert config.http.address == "0.0.0.0:1"
