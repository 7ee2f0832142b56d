"""Clients without credentials of their own are known by certificate or address, on all listeners."""

import http.client
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.flight as pf
import pytest

import penstock
from penstock.client.errors import Refused
from penstock.conform.herald.encoding import frame, handshake_pub, handshake_sub
from penstock.errors import PeerError
from penstock.flight.client import FlightClient
from penstock.server.config import (
    BrokerConfig,
    CertificateConfig,
    Config,
    DataConfig,
    FlightConfig,
    HttpConfig,
    ListenerConfig,
    PrincipalConfig,
    RuleConfig,
)
from tests.support.configured import ConfiguredBroker

TLS = Path(__file__).parents[1] / "support" / "tls"
SERVER = {"certificate": f"{TLS}/localhost.pem", "key": f"{TLS}/localhost.key"}
MEMORY = BrokerConfig(durability="memory")
ONLY_PRESSES = (RuleConfig(allow=("publish", "subscribe"), topics=("channel/7",)),)
ALL = (RuleConfig(allow=("publish", "subscribe", "administer"), topics=("#",)),)
PRINCIPALS = (
    PrincipalConfig(
        name="press",
        certificate=CertificateConfig(san="DNS:press-4.plant.example"),
        rule=ONLY_PRESSES,
    ),
    PrincipalConfig(
        name="oven", certificate=CertificateConfig(subject="CN=oven-1,O=Plant"), rule=ALL
    ),
    PrincipalConfig(name="panel", token="open sesame", rule=ALL),  # noqa: S106
)


def client_context(name: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(TLS / "localhost.pem"))
    if name is not None:
        context.load_cert_chain(TLS / f"{name}.pem", TLS / f"{name}.key")
    return context


def listener(scheme: str, wanted: str) -> ListenerConfig:
    path = "/ws" if scheme == "wss" else ""
    return ListenerConfig(
        url=f"{scheme}://127.0.0.1:0{path}",
        anonymous=False,
        client_ca=f"{TLS}/client-ca.pem",
        client_certificate=wanted,  # type: ignore[arg-type]
        **SERVER,
    )


@pytest.fixture(scope="module")
def broker() -> Iterator[ConfiguredBroker]:
    listeners = (
        listener("tls", "required"),
        listener("tls", "optional"),
        listener("wss", "optional"),
    )
    config = Config(broker=MEMORY, principal=PRINCIPALS, listener=listeners)
    with ConfiguredBroker(config) as made:
        yield made


@pytest.mark.parametrize("protocol", ["rheos1", "rheos2", "herald", "fleximq", "lamamq"])
@pytest.mark.parametrize("certificate", ["press", "oven"])
def test_a_certificate_gives_its_principal_in_every_protocol(
    broker: ConfiguredBroker, protocol: Any, certificate: str
) -> None:
    tls = client_context(certificate)
    with penstock.connect_sync(broker.url(0), protocol=protocol, tls=tls, name=None) as client:
        client.publish("channel/7", b"x")
        broker.until(lambda: broker.principals() == [certificate])
    broker.until(lambda: broker.principals() == [])


@pytest.mark.parametrize("certificate", ["forged", None])
def test_no_other_certificate_opens_a_connection_that_requires_one(
    broker: ConfiguredBroker, certificate: str | None
) -> None:
    with (
        pytest.raises(PeerError),
        penstock.connect_sync(
            broker.url(0),
            protocol="herald",
            tls=client_context(certificate),
            reconnect=False,
            timeout=5,
        ) as client,
    ):
        client.publish("channel/7", b"x")
    assert broker.principals() == []


def test_where_it_is_optional_credentials_count_first(broker: ConfiguredBroker) -> None:
    for index in (1, 2):
        for certificate in ("press", None):
            tls = client_context(certificate)
            with penstock.connect_sync(
                broker.url(index).replace("127.0.0.1", "localhost"),
                protocol="fleximq",
                tls=tls,
                token="open sesame",  # noqa: S106
            ):
                assert broker.principals() == ["panel"]
            broker.until(lambda: broker.principals() == [])
        with penstock.connect_sync(
            broker.url(index), protocol="fleximq", tls=client_context("oven")
        ):
            assert broker.principals() == ["oven"]
        broker.until(lambda: broker.principals() == [])
        with pytest.raises(Refused) as refused:
            penstock.connect_sync(
                broker.url(index), protocol="fleximq", tls=client_context(None)
            ).__enter__()
        assert refused.value.answer == 401
        with pytest.raises(Refused):  # wrong credentials are not made good by a certificate
            penstock.connect_sync(
                broker.url(index),
                protocol="fleximq",
                tls=client_context("oven"),
                token="wrong",  # noqa: S106
            ).__enter__()


def test_rules_go_with_the_certificate(broker: ConfiguredBroker) -> None:
    with (
        penstock.connect_sync(
            broker.url(0), protocol="rheos2", tls=client_context("press")
        ) as client,
        pytest.raises(Refused),
    ):
        client.publish("channel/8", b"x")


def _get(port: int, path: str, *, tls: ssl.SSLContext | None, **headers: str) -> int:
    connection: http.client.HTTPConnection
    if tls is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    else:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=tls)
    connection.request("GET", path, headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_http_goes_by_the_certificate_too(broker: ConfiguredBroker) -> None:
    port = broker.port(2)
    assert _get(port, "/api/clients", tls=client_context("oven")) == 200
    assert _get(port, "/api/clients", tls=client_context("press")) == 403
    assert _get(port, "/api/clients", tls=client_context(None)) == 401
    assert _get(port, "/healthz", tls=client_context(None)) == 200


def test_flight_goes_by_the_certificate_too(tmp_path: Path) -> None:
    config = Config(
        principal=PRINCIPALS,
        data=DataConfig(folder=str(tmp_path)),
        flight=FlightConfig(
            address="127.0.0.1:0", anonymous=False, client_ca=f"{TLS}/client-ca.pem", **SERVER
        ),
    )

    def client(name: str | None) -> pf.FlightClient:
        chain = {}
        if name is not None:
            chain = {
                "cert_chain": (TLS / f"{name}.pem").read_bytes(),
                "private_key": (TLS / f"{name}.key").read_bytes(),
            }
        root = (TLS / "localhost.pem").read_bytes()
        return pf.FlightClient(f"grpc+tls://localhost:{port}", tls_root_certs=root, **chain)

    with ConfiguredBroker(config) as broker:
        assert broker.running.flight is not None
        port = broker.running.flight.port
        for name in ("press", "oven"):
            with client(name) as known:
                assert list(known.list_actions())
        for name in ("forged", None):
            with client(name) as refused, pytest.raises(pf.FlightUnavailableError):
                list(refused.list_actions(pf.FlightCallOptions(timeout=5)))


# --- Networks -------------------------------------------------------------------------------------

LONG_ID = b"a client id that is longer than the answer"
"""Over UDP an answer is not longer than what it answers."""
BY_ADDRESS = (
    PrincipalConfig(name="sensors", networks=("127.0.0.0/8",), rule=ONLY_PRESSES),
    PrincipalConfig(name="press", networks=("127.0.0.4",), rule=ALL),
    PrincipalConfig(name="panel", token="open sesame", only_from=("127.0.0.5",)),  # noqa: S106
)


def connected(port: int, source: str, kind: int = socket.SOCK_STREAM) -> socket.socket:
    """A socket at one of this machine's addresses."""
    made = socket.socket(socket.AF_INET, kind)
    made.settimeout(10)
    made.bind((source, 0))
    made.connect(("127.0.0.1", port))
    return made


def test_an_address_gives_its_principal_on_tcp_udp_http_and_flight(tmp_path: Path) -> None:
    config = Config(
        principal=BY_ADDRESS,
        data=DataConfig(folder=str(tmp_path)),
        listener=(
            ListenerConfig(url="tcp://127.0.0.1:0", anonymous=False),
            ListenerConfig(url="udp://127.0.0.1:0", anonymous=False),
        ),
        http=HttpConfig(address="127.0.0.1:0", anonymous=False),
        flight=FlightConfig(address="127.0.0.1:0", anonymous=False),
    )
    with ConfiguredBroker(config) as broker:
        for index, kind in enumerate((socket.SOCK_STREAM, socket.SOCK_DGRAM)):
            with connected(broker.port(index), "127.0.0.4", kind) as peer:
                peer.send(handshake_pub(8, LONG_ID))
                assert peer.recv(100)[7] == 0
                assert "press" in broker.principals()
            with connected(broker.port(index), "127.0.0.9", kind) as peer:
                peer.send(handshake_pub(8, LONG_ID))
                assert peer.recv(100)[7] == 8, "sensors may not"
        assert broker.running.http is not None
        for source, status in (("127.0.0.4", b"200"), ("127.0.0.1", b"403")):
            with connected(broker.running.http.port, source) as peer:
                peer.send(b"GET /api/clients HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert peer.recv(100)[9:12] == status
        assert broker.running.flight is not None
        with FlightClient(f"127.0.0.1:{broker.running.flight.port}") as client:
            assert client.topics() == []


def test_a_principal_with_only_from_is_refused_elsewhere() -> None:
    listeners = (ListenerConfig(url="tcp://127.0.0.1:0"),)
    config = Config(broker=MEMORY, principal=BY_ADDRESS[2:], listener=listeners)
    join = penstock.connect_sync
    with ConfiguredBroker(config) as broker:
        with pytest.raises(Refused) as refused:
            join(broker.url(0), protocol="fleximq", token="open sesame").__enter__()  # noqa: S106
        assert refused.value.answer == 401
        with join(broker.url(0), protocol="fleximq"):
            assert broker.principals() == ["anonymous"]


def test_cleartext_credentials_are_refused_where_the_listener_says_so() -> None:
    refusing, accepting = (
        ListenerConfig(url="ws://0.0.0.0:0/ws", anonymous=True, cleartext_credentials=accepted)
        for accepted in (False, True)
    )
    config = Config(broker=MEMORY, principal=PRINCIPALS[2:], listener=(refusing, accepting))
    secret = "open sesame"  # noqa: S105
    with ConfiguredBroker(config) as broker:
        here = [f"ws://127.0.0.1:{broker.port(index)}/ws" for index in (0, 1)]
        with penstock.connect_sync(here[0], protocol="fleximq"):
            assert broker.principals() == ["anonymous"]
        with pytest.raises(Refused, match="without encryption refused"):
            penstock.connect_sync(here[0], protocol="fleximq", token=secret).__enter__()
        with penstock.connect_sync(here[1], protocol="fleximq", token=secret):
            assert "panel" in broker.principals()
        statuses = [
            _get(broker.port(index), "/api/clients", tls=None, Authorization=f"Bearer {secret}")
            for index in (0, 1)
        ]
        assert statuses == [401, 200]


def test_an_anonymous_herald_client_resumes_from_its_own_address_only(tmp_path: Path) -> None:
    listeners = (ListenerConfig(url="tcp://127.0.0.1:0"),)
    config = Config(data=DataConfig(folder=str(tmp_path)), listener=listeners)
    with ConfiguredBroker(config) as broker:

        def missed(source: str) -> bytes:
            """Join as `s` without channels of its own; return a message that was waiting."""
            with connected(broker.port(0), source) as peer:
                peer.send(handshake_sub(b""))
                assert peer.recv(16)[7] == 0
                peer.settimeout(0.5 if source == "127.0.0.2" else 10)
                try:
                    return peer.recv(100)
                except TimeoutError:
                    return b""
                finally:
                    peer.send(frame(0x04))

        with connected(broker.port(0), "127.0.0.1") as first:
            first.send(handshake_sub(b"\x07"))
            assert first.recv(16)[7] == 0
        broker.until(lambda: broker.principals() == [])
        with penstock.connect_sync(broker.url(0), protocol="fleximq") as client:
            client.publish("channel/7", b"secret")
            assert b"secret" not in missed("127.0.0.2")
            assert b"secret" in missed("127.0.0.1")
