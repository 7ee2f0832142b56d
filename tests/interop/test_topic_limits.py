"""Limits of topics: each protocol refuses a new topic in its own words, and old topics go on."""

import hashlib
import socket
from collections.abc import Iterator

import pytest

from penstock.core.access import Principal
from penstock.core.broker import BrokerSettings
from penstock.core.sessions import topic_owner
from penstock.errors import HookRefused
from penstock.gateway.lamamq import _text
from penstock.gateway.options import GatewayOptions
from penstock.server.config import Config, PrincipalConfig
from penstock.server.credentials import Authenticator
from tests.conformance.fleximq.client import Client as FleximqPeer
from tests.support import fleximq_bytes as fx
from tests.support import lamamq_bytes as lm
from tests.support.http_live import HttpBroker
from tests.support.live import LiveBroker
from tests.support.rheos_bytes import CREATE, FAILED, PUBLISH, RHEOS1, RHEOS2, Rheos
from tests.support.rheos_bytes import Client as RheosPeer

CHANNELS = 256
SERVER_EXCEPTION = 1
BAD_REQUEST = 2
UNAVAILABLE = 503
LIMITS = {
    "topics_max": CHANNELS + 1,
    "topic_names_bytes_max": sum(len(f"channel/{n}") for n in range(CHANNELS)) + len("old"),
    "topics_per_principal_max": 1,
    "topic_names_bytes_per_principal_max": len("old"),
}


@pytest.fixture(scope="module", params=LIMITS)
def full(request: pytest.FixtureRequest) -> Iterator[tuple[HttpBroker, str]]:
    """A broker that takes no topic beside `old`, and the limit that it has reached."""
    limit = request.param
    with HttpBroker(settings=BrokerSettings(**{limit: LIMITS[limit]})) as broker:
        with lm.client(broker) as sender:
            sender.request(lm.push(0, b"old", b"x"))
        yield broker, f"broker.{limit} of {LIMITS[limit]}"


def known(broker: LiveBroker) -> int:
    return broker.call(lambda: broker.server.broker.topics.live)  # type: ignore[no-any-return]


def test_lamamq_answers_1_server_exception(full: tuple[HttpBroker, str]) -> None:
    broker, limit = full
    with lm.client(broker) as sender:
        text = sender.request(lm.push(0, b"new", b"x"), error=SERVER_EXCEPTION)
        assert limit in text.decode()
        sender.request(lm.push(0, b"old", b"x"))
    assert known(broker) == CHANNELS + 1


def test_fleximq_answers_503(full: tuple[HttpBroker, str]) -> None:
    broker, limit = full
    with FleximqPeer(broker.address) as client:
        client.say(fx.PUB, fx.topic("new"), payload=fx.pack(b"x"))
        assert limit in client.expect_notice(UNAVAILABLE)
        client.say(fx.PUB, fx.topic("new"), fx.routing((client.number, "/")), payload=fx.pack(b"x"))
        assert limit in client.expect_notice(UNAVAILABLE)
        client.say(fx.PUB, fx.topic("old"), payload=fx.pack(b"x"))
        client.settle()


@pytest.mark.parametrize("rheos", [RHEOS1, RHEOS2], ids=["v1", "v2"])
def test_rheos_answers_failed(full: tuple[HttpBroker, str], rheos: Rheos) -> None:
    broker, _ = full
    with RheosPeer(broker, rheos) as client:
        assert client.ask(CREATE, b"new") == FAILED
        assert client.ask(PUBLISH, b"new", b"x") == FAILED
        client.must(PUBLISH, b"old", b"x")


def test_http_answers_503(full: tuple[HttpBroker, str]) -> None:
    broker, limit = full
    status, code, text = broker.publish(topic="new", text="x").error()
    assert (status, code) == (503, "topic-table-full")
    assert limit in text
    assert broker.publish(topic="old", text="x").status == 200


def test_another_address_has_a_share_of_its_own() -> None:
    with LiveBroker(settings=BrokerSettings(topics_per_principal_max=1)) as broker:
        share_of = broker.server.broker.topics.share_of
        with lm.client(broker) as sender:
            sender.request(lm.push(0, b"mine", b"x"))
            sender.request(lm.push(0, b"more", b"x"), error=SERVER_EXCEPTION)
        assert share_of("anyone@127.0.0.1") == (1, 4)
        with lm.LamaPeer(broker) as other:
            other.socket.close()
            other.socket = socket.create_connection(
                broker.address, timeout=5, source_address=("127.0.0.2", 0)
            )
            other.join().request(lm.push(0, b"theirs", b"x"))
        assert share_of("anyone@127.0.0.2") == (1, 6)


def test_a_principal_has_one_share_for_all_its_clients() -> None:
    config = Config(
        principal=(
            PrincipalConfig(
                name="panel",
                api_key_sha256=hashlib.sha256(b"secret").hexdigest(),
                token="token",  # noqa: S106
            ),
        )
    )
    options = GatewayOptions(authenticator=Authenticator(config), anonymous=None)
    settings = BrokerSettings(topics_per_principal_max=1)
    with LiveBroker(settings=settings, options=options) as broker:
        for auth in ({"type": "api_key", "api_key": "secret"}, {"type": "token", "token": "token"}):
            with FleximqPeer(broker.address, join=False) as client:
                client.send(fx.frame(fx.JOIN, 0, {"auth": auth}))
                client.number = client.frame().client_id
                client.say(fx.PUB, fx.topic("mine"), payload=fx.pack(b"x"))
                client.say(fx.PUB, fx.topic("more"), payload=fx.pack(b"x"))
                assert "topics_per_principal_max" in client.expect_notice(UNAVAILABLE)
        assert broker.server.broker.topics.share_of("panel") == (1, 4)


@pytest.mark.parametrize(
    ("peer", "owner"),
    [
        ("192.0.2.7:5000", "a@192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6:5000", "a@2001:db8:1:2::/64"),
        ("fe80::1%eth0:5000", "a@fe80::/64"),
        ("stdio:ls[7]", "a@stdio"),
        ("/run/p.sock", "a@/run/p.sock"),
        ("", "a@"),
    ],
)
def test_anonymous_clients_are_told_apart_by_address(peer: str, owner: str) -> None:
    assert topic_owner(Principal("a", is_anonymous=True), peer) == owner
    assert topic_owner(Principal("a"), peer) == "a"


@pytest.mark.parametrize(("letter", "lost"), [("t", 0), ("é", 1)], ids=["ascii", "two bytes"])
def test_a_text_of_lamamq_is_cut_to_what_an_answer_holds(letter: str, lost: int) -> None:
    """No error has a text that long today. It would be cut at a whole character."""
    refusal = letter * 70_000
    text = _text(HookRefused("h", refusal)).encode()
    whole = refusal.encode()
    assert whole.startswith(text)
    assert text.decode()
    assert 65_536 - len(text) in {0, lost}
