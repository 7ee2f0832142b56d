"""Arrow Flight lets in whom other listeners do, and shows and takes what their rules allow."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pyarrow.flight as pf
import pytest

from penstock.errors import AuthenticationFailed, CannotListen, NotAllowed
from penstock.flight.client import FlightClient
from penstock.flight.errors import FlightFailed
from penstock.flight.protocol import GroupOffset, Match, ReadRange, Splits
from penstock.ports import Subscription
from penstock.server.config import Config, PrincipalConfig, RuleConfig
from penstock.server.credentials import Authenticator, hash_key
from penstock.transport.addresses import Address
from tests.support.flight import rows, serve_tables, table
from tests.support.live import LiveBroker

TLS = Path(__file__).parents[1] / "support" / "tls"
CONFIG = Config(
    principal=(
        PrincipalConfig(name="all", token="open sesame"),  # noqa: S106
        PrincipalConfig(name="key", api_key_sha256=hash_key(b"k-1")),
        PrincipalConfig(
            name="plant",
            token="plant token",  # noqa: S106
            rule=(
                RuleConfig(deny=("publish",), topics=("plant/closed",)),
                RuleConfig(allow=("publish", "subscribe"), topics=("plant/#",)),
                RuleConfig(allow=("group",), topics=("plant",)),
            ),
        ),
    )
)


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("access")
    authenticator = Authenticator(CONFIG)
    with LiveBroker(data=data) as live:
        found = serve_tables(live, data, anonymous=None, verify=authenticator.verify_bearer)
        with FlightClient(found, token="open sesame") as client:  # noqa: S106
            batch = rows([b"1", b"2", b"3"], topics=["plant/a", "office/a", "plant/b"])
            client.stage([batch], writer="first", epoch=0, partition=0)
            client.publish_epoch("first", 0, [0])
        yield found
    authenticator.close()


@pytest.mark.parametrize("token", ["open sesame", "k-1"])
def test_a_token_or_an_api_key_lets_a_caller_in(endpoint: str, token: str) -> None:
    with FlightClient(endpoint, token=token) as client:
        assert table(client).num_rows == 3
        assert client.topics() == ["office/a", "plant/a", "plant/b"]


@pytest.mark.parametrize("token", [None, "", "open", "anonymous"])
def test_nobody_else_is_let_in_to_anything(endpoint: str, token: str | None) -> None:
    with FlightClient(endpoint, token=token) as client:
        for call in (
            client.bounds,
            client.topics,
            client.groups,
            lambda: list(client.read(ReadRange(0, 1))),
            lambda: client.splits(Splits(0, 1, 1)),
            lambda: client.match(Match(0, 1)),
            lambda: client.commit_group("g", {0: 0}),
            lambda: client.stage([rows([b"x"])], writer="w", epoch=0, partition=0),
            lambda: client.publish_epoch("first", 1, []),
            lambda: client.abort_epoch("first", 1),
        ):
            with pytest.raises(AuthenticationFailed) as refused:
                call()
            assert refused.value.reason == ""  # which part was wrong is not told
    with pf.FlightClient(endpoint) as plain, pytest.raises(pf.FlightUnauthenticatedError):
        list(plain.list_actions())


def test_what_is_read_is_judged_by_topic(endpoint: str) -> None:
    with FlightClient(endpoint, token="plant token") as client:  # noqa: S106
        assert client.topics() == ["plant/a", "plant/b"]
        allowed = ({"topics": ["plant/b"]}, {"patterns": ["plant/+"]}, {"expression": ".*"})
        found = [
            table(client, columns=["offset"], **request).column("offset").to_pylist()
            for request in allowed
        ]
        assert found == [[2], [0, 2], [0, 2]]
        for request in ({}, {"topics": ["plant/a", "office/a"]}, {"patterns": ["#"]}):
            with pytest.raises(NotAllowed, match="plant may not subscribe"):
                table(client, **request)
            with pytest.raises(NotAllowed, match="plant may not subscribe"):
                client.splits(Splits(0, 3, 2, **request))
            with pytest.raises(NotAllowed, match="plant may not subscribe"):
                client.match(Match(0, 3, **request))
        assert [client.match(Match(0, 3, **request)).rows for request in allowed] == [1, 2, 2]


def test_a_group_may_only_name_topics_that_it_may_read(endpoint: str) -> None:
    """Lag counts the messages of these topics."""
    with FlightClient(endpoint, token="open sesame") as client:  # noqa: S106
        client.commit_group("g", {0: 0}, subscription=Subscription(topics=("plant/a",)))
        assert client.groups()["g"][0] == GroupOffset(0, 1)
        client.commit_group("g", {0: 0}, subscription=Subscription(expression="plant/."))
        assert client.groups()["g"][0] == GroupOffset(0, 2)
        client.commit_group("g", {0: 1}, subscription=Subscription(patterns=("office/#",)))
        assert client.groups()["g"][0] == GroupOffset(1, 1)
        client.commit_group("g", {0: 1})
        assert client.groups()["g"][0] == GroupOffset(1, 2)
    with FlightClient(endpoint, token="plant token") as client:  # noqa: S106
        client.commit_group("plant", {0: 0}, subscription=Subscription(patterns=("plant/+",)))
        assert client.groups()["plant"][0] == GroupOffset(0, 2)
        for read in (Subscription(topics=("office/a",)), Subscription(patterns=("#",))):
            with pytest.raises(NotAllowed, match="plant may not subscribe"):
                client.commit_group("plant", {0: 0}, subscription=read)
        client.commit_group("plant", {0: 0}, subscription=Subscription(expression="office/."))
        assert client.groups()["plant"][0] == GroupOffset(0, 3), "as without topics"


def test_what_is_published_is_judged_by_topic(endpoint: str) -> None:
    with FlightClient(endpoint, token="plant token") as client:  # noqa: S106
        for topics in (["office/a"], ["plant/a", "office/a"], ["plant/closed"]):
            batch = rows([b"x"] * len(topics), topics=topics)
            with pytest.raises(NotAllowed, match="plant may not publish"):
                client.stage([batch], writer="plant", epoch=0, partition=0)


def test_strangers_are_let_in_where_they_are_welcome(tmp_path: Path) -> None:
    with LiveBroker(data=tmp_path) as live:
        endpoint = serve_tables(live, tmp_path)
        with FlightClient(endpoint) as client:
            assert client.bounds()[0].end == 0
        nobody = FlightClient(endpoint, token="of nobody")  # noqa: S106
        with nobody, pytest.raises(AuthenticationFailed):
            nobody.bounds()


def test_tls_is_served_with_a_certificate_and_to_nobody_without(tmp_path: Path) -> None:
    address = dataclasses.replace(
        Address("tls", "127.0.0.1", 0),
        certificate=str(TLS / "localhost.pem"),
        key=str(TLS / "localhost.key"),
    )
    with LiveBroker(data=tmp_path) as live:
        endpoint = serve_tables(live, tmp_path, address=address)
        certificate = (TLS / "localhost.pem").read_bytes()
        place = endpoint.replace("grpc://127.0.0.1", "grpc+tls://localhost")
        with FlightClient(place, certificate=certificate) as client:
            assert client.bounds()[0].end == 0
        with FlightClient(endpoint) as client, pytest.raises(FlightFailed):
            client.bounds()
        with FlightClient(place) as client, pytest.raises(FlightFailed):
            client.bounds()


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with LiveBroker(data=tmp_path) as live:
        endpoint = serve_tables(live, tmp_path)
        port = int(endpoint.rpartition(":")[2])
        with pytest.raises(CannotListen, match=f"127.0.0.1:{port}: another process listens there"):
            serve_tables(live, tmp_path, address=Address("tcp", "127.0.0.1", port))
