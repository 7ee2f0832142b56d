"""Clients prove who they are, and may do what their rules say, through a broker that checks."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs
from websockets.sync.client import connect

import penstock
from penstock.client.errors import ConnectionLost, Refused, TimedOut
from penstock.gateway.options import GatewayOptions
from penstock.server.config import (
    BasicConfig,
    Config,
    IdentityConfig,
    PrincipalConfig,
    RuleConfig,
)
from penstock.server.credentials import Authenticator, hash_key, hash_password
from penstock.server.verified_passwords import VerifiedPasswords
from tests.support import fleximq_bytes as fleximq
from tests.support.http_live import HttpBroker
from tests.support.live import LiveBroker

CONFIG = Config(
    principal=(
        PrincipalConfig(name="token", token="open sesame"),  # noqa: S106
        PrincipalConfig(
            name="basic",
            basic=BasicConfig(username="ann", password_hash=hash_password("right")),
        ),
        PrincipalConfig(name="key", api_key_sha256=hash_key(b"k-1")),
        PrincipalConfig(
            name="device",
            identity_key=IdentityConfig(identity="meter-3", key_sha256=hash_key(b"k-2")),
            rule=(RuleConfig(allow=("publish",), topics=("meters/#",)),),
        ),
    )
)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    authenticator = Authenticator(CONFIG)
    options = GatewayOptions(anonymous=None, authenticator=authenticator)
    with LiveBroker(options=options) as broker:
        yield "tcp://{}:{}".format(*broker.address)
    authenticator.close()


@pytest.mark.parametrize(
    ("protocol", "credentials"),
    [
        ("fleximq", {"token": "open sesame"}),
        ("fleximq", {"username": "ann", "password": "right"}),
        ("fleximq", {"api_key": "k-1"}),
        ("lamamq", {"name": "meter-3", "key": b"k-2"}),
    ],
)
def test_the_right_credentials_let_a_client_in(
    address: str, protocol: Any, credentials: dict[str, Any]
) -> None:
    with penstock.connect_sync(address, protocol=protocol, **credentials) as client:
        client.publish("meters/1", b"x")


@pytest.mark.parametrize(
    ("protocol", "credentials", "answer"),
    [
        ("fleximq", {}, 401),
        ("fleximq", {"token": "close sesame"}, 401),
        ("fleximq", {"username": "ann", "password": "wrong"}, 401),
        ("fleximq", {"username": "bob", "password": "right"}, 401),
        ("fleximq", {"api_key": "k-2"}, 401),
        ("lamamq", {"name": "meter-3", "key": b"k-1"}, 2),
        ("lamamq", {"name": "meter-4", "key": b"k-2"}, 2),
        ("herald", {}, 8),
    ],
)
def test_no_others_do(
    address: str, protocol: Any, credentials: dict[str, Any], answer: int
) -> None:
    with pytest.raises(Refused) as refused:
        penstock.connect_sync(address, protocol=protocol, **credentials).__enter__()
    assert refused.value.answer == answer


@pytest.mark.parametrize("protocol", ["rheos1", "rheos2"])
def test_rheos_brings_no_credentials_and_gets_nowhere(address: str, protocol: Any) -> None:
    with (
        pytest.raises((Refused, ConnectionLost, TimedOut)),
        penstock.connect_sync(address, protocol=protocol, reconnect=False) as client,
    ):
        client.publish("channel/7", b"x")


def test_rules_go_with_the_principal(address: str) -> None:
    with penstock.connect_sync(address, protocol="lamamq", name="meter-3", key=b"k-2") as device:
        device.publish("meters/7", b"allowed")
        with pytest.raises(Refused, match="may not publish"):
            device.publish("orders", b"not allowed")
        device.publish("meters/8", b"goes on")


@pytest.mark.parametrize(
    ("protocol", "credentials", "reason"),
    [
        ("rheos1", {}, "no credentials"),
        ("rheos2", {}, "no credentials"),
        ("herald", {}, "no credentials"),
        ("fleximq", {}, "no credentials"),
        ("fleximq", {"username": "ann", "password": "wrong"}, "wrong password"),
        ("lamamq", {"name": "meter-3", "key": b"k-1"}, "wrong key"),
    ],
)
def test_who_is_refused_is_counted_and_named_in_the_log(
    protocol: Any, credentials: dict[str, Any], reason: str
) -> None:
    authenticator = Authenticator(CONFIG)
    options = GatewayOptions(anonymous=None, authenticator=authenticator)
    with capture_logs() as events, LiveBroker(options=options) as broker:
        url = "tcp://{}:{}".format(*broker.address)
        with (
            pytest.raises((Refused, ConnectionLost, TimedOut)),
            penstock.connect_sync(url, protocol=protocol, reconnect=False, **credentials) as client,
        ):
            client.publish("channel/7", b"x")
        failed = broker.call(lambda: dict(broker.server.broker.counters.connections_failed))
    authenticator.close()
    assert failed == {"credentials refused": 1}
    (event,) = (each for each in events if each["event"] == "client refused")
    assert (event["protocol"], event["reason"]) == (protocol, reason)
    assert event["peer"].startswith("127.0.0.1:")


def test_a_lamamq_client_that_sends_no_key_is_told_when_its_time_is_up() -> None:
    authenticator = Authenticator(CONFIG)
    options = GatewayOptions(anonymous=None, authenticator=authenticator, handshake_seconds_max=0.2)
    with capture_logs() as events, LiveBroker(options=options) as broker:
        url = "tcp://{}:{}".format(*broker.address)
        with pytest.raises(Refused, match="the handshake did not end in time"):
            penstock.connect_sync(url, protocol="lamamq", name="meter-3").__enter__()
    authenticator.close()
    (event,) = (each for each in events if each["event"] == "connection refused")
    assert event["reason"] == "no handshake in time"


@pytest.mark.parametrize("scheme", ["tcp", "ws"])
def test_a_client_that_leaves_while_its_password_is_verified_gets_no_session(scheme: str) -> None:
    authenticator = Authenticator(CONFIG)
    options = GatewayOptions(anonymous=None, authenticator=authenticator)
    auth = {"type": "basic", "username": "ann", "password": "right"}
    join = fleximq.frame(fleximq.JOIN, 0, {"auth": auth})
    with HttpBroker(options=options, web_options=options) as broker:
        sessions = broker.server.broker.sessions
        for _ in range(5):
            authenticator._verified = VerifiedPasswords()  # it is verified again each time
            if scheme == "tcp":
                leaving: Any = socket.create_connection(broker.address, 5)
                leaving.sendall(join)
            else:
                url = f"ws://127.0.0.1:{broker.web.port}/ws"
                leaving = connect(url, compression=None).__enter__()
                leaving.send(join)
                leaving = leaving.socket
            broker.until(lambda: authenticator._checks)
            leaving.shutdown(socket.SHUT_RDWR)
            leaving.close()
            broker.until(lambda: not authenticator._checks)
            broker.until(lambda: broker.server.http.connections() == 0)
            assert broker.call(lambda: len(sessions)) == 0
    authenticator.close()
