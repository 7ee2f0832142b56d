"""Who may ask what over HTTP: credentials, rules, web pages from elsewhere; and what is logged."""

import ast
import base64
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeGuard

import pytest
from structlog.testing import capture_logs

from penstock.core.access import ANYONE
from penstock.gateway.options import GatewayOptions
from penstock.server.config import BasicConfig, Config, PrincipalConfig, RuleConfig
from penstock.server.credentials import Authenticator, hash_key, hash_password
from penstock.server.http import queries
from tests.support.http_live import JSON, Answer, HttpBroker

CONFIG = Config(
    principal=(
        PrincipalConfig(
            name="all",
            token="open sesame",  # noqa: S106
            default="allow",
            rule=(RuleConfig(allow=("administer",), topics=("#",)),),
        ),
        PrincipalConfig(
            name="ann", basic=BasicConfig(username="ann", password_hash=hash_password("right"))
        ),
        PrincipalConfig(
            name="plant",
            api_key_sha256=hash_key(b"k-1"),
            rule=(
                RuleConfig(allow=("publish", "subscribe"), topics=("plant/#",)),
                RuleConfig(allow=("group",), topics=("mixed",)),
            ),
        ),
    )
)
SOURCE = Path(__file__).parents[2] / "src" / "penstock"
ALL = {"Authorization": "Bearer open sesame"}
PLANT = {"Authorization": "Bearer k-1"}
ADMINISTRATIVE = ("/api/clients", "/api/subscriptions", "/api/log", "/api/rates")


def basic(name: str, password: str) -> dict[str, str]:
    pair = base64.b64encode(f"{name}:{password}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpBroker]:
    """Its HTTP port lets nobody in without credentials."""
    authenticator = Authenticator(CONFIG)
    options = GatewayOptions(anonymous=None, authenticator=authenticator)
    with HttpBroker(data=tmp_path_factory.mktemp("data"), web_options=options) as live:
        yield live
    authenticator.close()


def publish(broker: HttpBroker, topic: str, headers: dict[str, str]) -> Answer:
    body = json.dumps({"topic": topic, "text": "secret"}).encode()
    return broker.ask("POST", "/api/publish", body=body, headers={**JSON, **headers})


@pytest.mark.parametrize("headers", [ALL, PLANT, basic("ann", "right")])
def test_the_right_credentials_let_a_caller_in(broker: HttpBroker, headers: dict[str, str]) -> None:
    for path in ("/api/", "/metrics", "/api/openapi.json", "/api/topics"):
        assert broker.get(path, **headers).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer close sesame"},
        {"Authorization": "Bearer"},
        {"Authorization": "Digest x"},
        {"Authorization": "Basic !"},
        basic("ann", "wrong"),
        basic("bob", "right"),
    ],
)
def test_no_others_do(broker: HttpBroker, headers: dict[str, str]) -> None:
    for path in ("/api/", "/metrics", "/api/topics", *ADMINISTRATIVE, "/api/groups"):
        answer = broker.get(path, **headers)
        status, code, message = answer.error()
        assert (status, code) == (401, "authentication-failed")
        assert "Bearer" in message
        assert "ann" not in message
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert publish(broker, "t", headers).error()[0] == 401


def test_health_needs_no_credentials(broker: HttpBroker) -> None:
    for path in ("/healthz", "/readyz"):
        assert broker.get(path).status == 200


def test_clients_and_the_log_need_the_right_to_administer(broker: HttpBroker) -> None:
    for path in ADMINISTRATIVE:
        query = "?seconds=0.1" if path == "/api/rates" else ""
        assert broker.get(path + query, **ALL).status == 200
        status, code, message = broker.get(path, **PLANT).error()
        assert (status, code) == (403, "not-allowed")
        assert "plant" in message


def test_a_caller_publishes_and_sees_topics_by_its_rules(broker: HttpBroker) -> None:
    assert publish(broker, "plant/1", PLANT).status == 200
    assert publish(broker, "office/1", ALL).status == 200
    status, code, message = publish(broker, "office/1", PLANT).error()
    assert (status, code) == (403, "not-allowed")
    assert "office/1" in message
    seen = [each["name"] for each in broker.get("/api/topics", **PLANT).json()["topics"]]
    assert seen == ["plant/1"]
    seen = [each["name"] for each in broker.get("/api/topics", **ALL).json()["topics"]]
    assert sorted(seen) == ["office/1", "plant/1"]


def test_the_number_of_topics_is_that_of_those_that_the_caller_may_read(
    broker: HttpBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("plant/1", "office/1", "office/2"):
        publish(broker, topic, ALL)
    of_plant, of_all = (
        broker.get("/api/topics?limit=1", **caller).json()["total"] for caller in (PLANT, ALL)
    )
    seen = broker.get("/api/topics?limit=1000", **PLANT).json()["topics"]
    assert of_plant == len(seen) < of_all
    monkeypatch.setattr(queries, "HTTP_TOPICS_COUNTED_MAX", 2)
    assert broker.get("/api/topics", **PLANT).json()["total"] is None
    assert broker.get("/api/topics", **ALL).json()["total"] == of_all


# --- Web pages ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def local() -> Iterator[HttpBroker]:
    """Its HTTP port lets everyone on this machine in."""
    web = "ws://127.0.0.1:0/ws?origins=https://app.example"
    with HttpBroker(web=web, web_options=GatewayOptions(anonymous=ANYONE)) as live:
        yield live


def test_a_page_from_elsewhere_is_refused_unless_listed(local: HttpBroker) -> None:
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
        assert local.get("/api/topics", Origin=origin).error()[:2] == (403, "origin-not-allowed")
        refused = publish(local, "t", {"Origin": origin})
        assert refused.error()[:2] == (403, "origin-not-allowed")
    for origin in ("https://app.example", local.url):
        assert publish(local, "t", {"Origin": origin}).status == 200


def test_a_form_of_a_page_cannot_publish(local: HttpBroker) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = local.ask(
            "POST",
            "/api/publish",
            body=b'{"topic": "t", "text": "x"}',
            headers={"Content-Type": kind},
        )
        assert answer.error()[0] == 415


@pytest.mark.parametrize("host", ["evil.example", "evil.example:7080", "10.0.0.1", "[::2]:1", ""])
def test_a_name_that_was_made_to_lead_here_is_refused(local: HttpBroker, host: str) -> None:
    assert local.get("/api/topics", Host=host).error()[:2] == (403, "host-not-allowed")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.9:80", "[::1]:1"])
def test_names_of_this_machine_are_not(local: HttpBroker, host: str) -> None:
    assert local.get("/api/topics", Host=host).status == 200


def test_with_credentials_any_name_does(broker: HttpBroker) -> None:
    assert broker.get("/api/topics", Host="broker.example", **ALL).status == 200


def test_credentials_that_nobody_has_are_refused_where_none_are_needed(local: HttpBroker) -> None:
    assert local.get("/api/topics", **ALL).error()[0] == 401


# --- What is logged -------------------------------------------------------------------------------


def test_events_name_the_connection_and_never_a_payload_or_a_credential(
    tmp_path: Path,
) -> None:
    authenticator = Authenticator(CONFIG)
    options = GatewayOptions(anonymous=None, authenticator=authenticator)
    with (
        capture_logs() as events,
        HttpBroker(data=tmp_path, web_options=options, connections_max=2) as broker,
    ):
        assert publish(broker, "t", {"Authorization": "Bearer close sesame"}).status == 401
        assert publish(broker, "t", ALL).status == 200
        _use_up(broker)
    authenticator.close()
    told = {event["event"]: event for event in events}
    assert set(told) >= {"request refused", "connection refused"}
    for name in ("request refused", "connection refused"):
        assert isinstance(told[name]["connection"], int)
        assert told[name]["connection"] > 0
        assert told[name]["peer"].startswith("127.0.0.1:")
        assert told[name]["reason"]
    text = repr(events)
    assert "sesame" not in text
    assert "secret" not in text


def _use_up(broker: HttpBroker) -> None:
    """Have one connection too many."""
    broker.until(lambda: broker.server.http.connections() == 0)
    peers: list[Any] = [socket.create_connection(broker.address, 5) for _ in range(3)]
    broker.until(
        lambda: broker.server.broker.counters.connections_failed["too many connections"] == 1
    )
    for peer in peers:
        peer.close()


def test_every_event_of_a_connection_names_it() -> None:
    found = 0
    for package in ("core", "gateway", "transport", "server"):
        for path in sorted((SOURCE / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if not _is_event(node):
                    continue
                names = {keyword.arg for keyword in node.keywords}
                if names & {"peer", "program"}:
                    found += 1
                    assert "connection" in names, f"{path}: line {node.lineno}"
                assert not names & {"value", "payload", "data", "body", "token", "password"}
    assert found >= 8


def _is_event(node: ast.AST) -> TypeGuard[ast.Call]:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in {"log", "logger"}
    )


# --- Rates and hostile bodies ---------------------------------------------------------------------


def test_messages_above_the_rate_are_answered_429(tmp_path: Path) -> None:
    options = GatewayOptions(messages_per_second_max=3)
    with HttpBroker(data=tmp_path, web_options=options) as broker:
        answers = [publish(broker, "t", {}) for _ in range(12)]
        refused = [each for each in answers if each.status == 429]
        assert {each.status for each in answers} == {200, 429}
        assert len(refused) >= 4
        assert refused[0].error()[1] == "too-many-messages"
        assert int(refused[0].headers["Retry-After"]) >= 1
        assert broker.get("/api/").status == 200  # other requests are not counted


def test_requests_without_credentials_have_a_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "penstock.server.http.application.HTTP_ANONYMOUS_REQUESTS_PER_SECOND_MAX", 5
    )
    authenticator = Authenticator(CONFIG)
    options = GatewayOptions(authenticator=authenticator)
    with HttpBroker(data=tmp_path, web_options=options) as broker:
        answers = [broker.get("/api/") for _ in range(20)]
        assert {each.status for each in answers} == {200, 429}
        assert broker.get("/api/", **ALL).status == 200
        assert all(broker.get("/healthz").status == 200 for _ in range(20))
    authenticator.close()


def test_json_that_is_nested_deeply_is_a_bad_request(tmp_path: Path) -> None:
    with HttpBroker(data=tmp_path) as broker:
        for depth in (10_000, 1_000_000):
            for body in (b'{"topic": "t", "json": ' + b"[" * depth, b"[" * depth, b'{"a":' * depth):
                answer = broker.ask("POST", "/api/publish", body=body[:4_000_000], headers=JSON)
                assert answer.error()[:2] == (400, "bad-request")


def test_lag_by_topic_is_shown_of_topics_that_the_caller_may_read(
    broker: HttpBroker,
) -> None:
    for topic in ("plant/lag", "office/lag"):
        assert publish(broker, topic, ALL).status == 200
    end = broker.get("/api/log", **ALL).json()["end"]
    broker.server.http.storage.groups.commit("mixed", {0: end - 2})
    for headers, expected in ((ALL, {"plant/lag", "office/lag"}), (PLANT, {"plant/lag"})):
        (group,) = broker.get("/api/groups", **headers).json()["groups"]
        assert group["lag"] == 2
        assert {each["topic"] for each in group["topics"]} == expected
        text = broker.get("/metrics", **headers).body.decode()
        assert set(re.findall(r'penstock_group_topic_lag{.*topic="(.*?)"', text)) == expected
