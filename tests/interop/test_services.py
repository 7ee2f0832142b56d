"""Services by name, in fleximq: a REQ to client 1 goes to a client that serves its path."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.conform.fleximq import encoding as fx
from penstock.limits import SERVICE_PATH_BYTES_MAX, SERVICES_PER_CLIENT_MAX
from penstock.server.config import AnonymousConfig, Config, PrincipalConfig, RuleConfig
from tests.support.live import LiveBroker
from tests.support.rights_broker import RightsBroker
from tests.support.settling_peers import FleximqPeer


@pytest.fixture
def broker() -> Iterator[LiveBroker]:
    with LiveBroker() as broker:
        yield broker


def ask(peer: FleximqPeer, path: str, value: object = None, *, identifier: str = "q") -> None:
    peer.say(fx.REQ, fx.routing((1, path)), fx.request(identifier), payload=fx.pack(value))


def register(peer: FleximqPeer, path: str, *, with_path: str = "/serve") -> tuple[int, object]:
    ask(peer, with_path, path)
    peer.settle()
    (answer,) = peer.frames
    return answer.header["status"], answer.value if answer.payload else None


def answer(server: FleximqPeer, request: fx.Frame, value: object) -> None:
    server.say(
        fx.REP,
        fx.routing((request.client_id, "")),
        fx.correlation(request.header["reqrep"]["id"]),
        payload=fx.pack(value),
    )


def requests_of(peer: FleximqPeer) -> list[fx.Frame]:
    peer.settle()
    return [each for each in peer.frames if each.type == fx.REQ]


def replies_of(peer: FleximqPeer) -> list[tuple[int, object]]:
    """The status, or 200, and the value of each answer."""
    peer.settle()
    return [
        (each.header.get("status", 200), each.value) for each in peer.frames if each.type == fx.REP
    ]


def test_a_request_by_path_reaches_a_client_that_serves_it(broker: LiveBroker) -> None:
    with FleximqPeer(broker.address) as server, FleximqPeer(broker.address) as client:
        assert register(server, "/price") == (201, None)
        assert register(server, "/price") == (200, None)
        ask(client, "/price", {"item": 7})
        client.settle()
        (request,) = requests_of(server)
        assert request.client_id == client.number
        assert request.header["routing"] == [{"client_id": server.number, "path": "/price"}]
        assert request.value == {"item": 7}
        answer(server, request, 12.5)
        server.settle()
        assert replies_of(client) == [(200, 12.5)]


def test_a_request_without_a_client_id_goes_to_a_server_of_its_path(broker: LiveBroker) -> None:
    with FleximqPeer(broker.address) as server, FleximqPeer(broker.address) as client:
        register(server, "/price")
        for entry in ({"path": "/price"}, {"client_id": None, "path": "/price"}):
            client.say(fx.REQ, {"routing": [entry]}, fx.request("q"), payload=fx.pack("apples"))
            client.settle()
            (request,) = requests_of(server)
            assert request.header["routing"] == [{"client_id": server.number, "path": "/price"}]
            answer(server, request, 12.5)
            server.settle()
            assert replies_of(client) == [(200, 12.5)]


def test_a_path_without_a_server_gets_503(broker: LiveBroker) -> None:
    with FleximqPeer(broker.address) as server, FleximqPeer(broker.address) as client:
        ask(client, "/price")
        assert replies_of(client) == [(503, "no client serves /price")]
        register(server, "/price")
        assert register(server, "/price", with_path="/unserve") == (200, None)
        assert register(server, "/price", with_path="/unserve")[0] == 404
        ask(client, "/price")
        assert replies_of(client)[0][0] == 503
        assert broker.call(lambda: broker.server.broker.services.unserved) == 2


def test_the_least_busy_server_is_asked(broker: LiveBroker) -> None:
    with (
        FleximqPeer(broker.address) as first,
        FleximqPeer(broker.address) as second,
        FleximqPeer(broker.address) as client,
    ):
        register(first, "/price")
        register(second, "price")
        for number in range(4):
            ask(client, "/price", number, identifier=f"q{number}")
        client.settle()
        asked = [requests_of(each) for each in (first, second)]
        assert [[each.value for each in one] for one in asked] == [[0, 2], [1, 3]]
        assert asked[1][0].header["routing"][0]["path"] == "price"
        for request in asked[1]:
            answer(second, request, "done")
        second.settle()
        for number in range(4, 6):  # the second has none now, the first has two
            ask(client, "/price", number, identifier=f"q{number}")
        client.settle()
        assert [each.value for each in requests_of(second)] == [4, 5]
        assert requests_of(first) == []


def test_requests_of_a_server_that_leaves_are_answered_and_others_take_over(
    broker: LiveBroker,
) -> None:
    with FleximqPeer(broker.address) as other, FleximqPeer(broker.address) as client:
        with FleximqPeer(broker.address) as server:
            register(server, "/price")
            ask(client, "/price")
            client.settle()
            assert len(requests_of(server)) == 1
            register(other, "/price")
        broker.until(lambda: len(broker.server.broker.sessions) == 2)
        assert replies_of(client) == [(600, "the client has left")]
        ask(client, "/price", "again")
        client.settle()
        assert [each.value for each in requests_of(other)] == ["again"]


def test_invalid_registrations_are_refused(broker: LiveBroker) -> None:
    with FleximqPeer(broker.address) as server:
        for wrong in (None, 7, "", "/", ["/price"], "/" + "x" * SERVICE_PATH_BYTES_MAX):
            ask(server, "/serve", wrong)
            assert replies_of(server)[0][0] == 400, wrong
        for own in ("/stats", "topics", "/serve", "/ack", "/positions", "/services"):
            assert register(server, own) == (409, "the broker itself answers this path")
        longest = "/" + "x" * (SERVICE_PATH_BYTES_MAX - 1)
        paths = [longest, *(f"/p/{number}" for number in range(SERVICES_PER_CLIENT_MAX - 1))]
        assert {register(server, path) for path in paths} == {(201, None)}
        status, text = register(server, "/one-more")
        assert (status, text) == (429, "the limit of 64 services of this client is reached")
        assert register(server, longest) == (200, None)
        register(server, longest, with_path="/unserve")
        assert register(server, "/one-more") == (201, None)


def test_services_are_listed(broker: LiveBroker) -> None:
    with FleximqPeer(broker.address) as server, FleximqPeer(broker.address) as client:
        register(server, "/price")
        register(server, "/stock/level")
        ask(client, "/price")
        client.settle()
        ask(client, "/services")
        assert replies_of(client) == [
            (
                200,
                {
                    "count": 2,
                    "services": [
                        {"path": "/price", "servers": 1, "pending": 1},
                        {"path": "/stock/level", "servers": 1, "pending": 1},
                    ],
                },
            )
        ]


def _principal(name: str, *rules: RuleConfig) -> PrincipalConfig:
    return PrincipalConfig(name=name, token=name, rule=rules)


def _config(*served: str) -> Config:
    return Config(
        principal=(
            _principal(
                "server", *(RuleConfig(allow=("serve",), topics=(each,)) for each in served)
            ),
            _principal("client", RuleConfig(allow=("request",), topics=("price/#",))),
        ),
        anonymous=AnonymousConfig(default="deny"),
    )


def test_rights_are_by_path_and_a_reload_takes_them_away(tmp_path: Path) -> None:
    with (
        RightsBroker(_config("price/#", "stock"), tmp_path) as broker,
        broker.fleximq("server") as server,
        broker.fleximq("client") as client,
    ):
        assert register(server, "/price/a")[0] == register(server, "/stock")[0] == 201
        assert register(server, "/other")[0] == 403
        assert register(client, "/price/a")[0] == 403
        ask(client, "/stock")
        assert replies_of(client)[0][0] == 403
        ask(client, "/services")
        (status, found), *_ = replies_of(client)
        assert status == 200
        assert [each["path"] for each in found["services"]] == ["/price/a"]  # type: ignore[index]
        ask(client, "/price/a")
        client.settle()
        assert len(requests_of(server)) == 1
        broker.reload(_config("stock"))
        ask(client, "/price/a", identifier="after")
        assert replies_of(client)[0] == (503, "no client serves /price/a")
