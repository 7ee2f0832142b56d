"""After a reload, clients whose log-in would be another one are disconnected, on all transports."""

import contextlib
import http.client
import shutil
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

import penstock
from penstock.client.errors import Refused
from penstock.conform.herald.encoding import frame, handshake_pub, handshake_sub
from penstock.conform.lamamq.encoding import CHOICE, OFFER, authentication
from penstock.errors import AuthenticationFailed, ConfigError
from penstock.flight.client import FlightClient
from penstock.flight.protocol import ReadRange
from penstock.server.config import (
    BrokerConfig,
    CertificateConfig,
    Config,
    DataConfig,
    FlightConfig,
    IdentityConfig,
    JwtConfig,
    JwtIssuerConfig,
    ListenerConfig,
    PrincipalConfig,
)
from penstock.server.credentials import hash_key
from penstock.server.run import _reread
from penstock.transport.stream import StreamConnection
from tests.support.configured import ConfiguredBroker

TLS = Path(__file__).parents[1] / "support" / "tls"
MEMORY = BrokerConfig(durability="memory")
TOKEN = "open sesame"  # noqa: S105


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Copies of certificate, key and authorities, which a test may replace."""
    for name in ("localhost.pem", "localhost.key", "client-ca.pem"):
        shutil.copy(TLS / name, tmp_path / name)
    return {
        "certificate": f"{tmp_path}/localhost.pem",
        "key": f"{tmp_path}/localhost.key",
        "client_ca": f"{tmp_path}/client-ca.pem",
    }


def client_context(name: str | None = "press") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(TLS / "localhost.pem"))
    if name is not None:
        context.load_cert_chain(TLS / f"{name}.pem", TLS / f"{name}.key")
    return context


def closed(peer: socket.socket) -> bool:
    """Whether the broker closes the connection, within the socket's time."""
    try:
        while peer.recv(4096):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


def principal(name: str, secret: str, **more: Any) -> PrincipalConfig:
    return PrincipalConfig(
        name=name,
        token=secret,
        identity_key=IdentityConfig(identity=f"{name}-id", key_sha256=hash_key(secret.encode())),
        **more,
    )


def all_kinds(files: dict[str, str], goes: PrincipalConfig | None) -> Config:
    listeners = (
        ListenerConfig(url="tcp://127.0.0.1:0"),
        ListenerConfig(url="ws://127.0.0.1:0/ws"),
        ListenerConfig(url="tls://127.0.0.1:0", **files),
        ListenerConfig(url="udp://127.0.0.1:0"),
    )
    kept = (principal("stays", "other"),)
    return Config(
        broker=MEMORY, listener=listeners, principal=kept if goes is None else (*kept, goes)
    )


CHANGES: dict[str, dict[str, Any] | None] = {
    "removed": None,
    "rotated": {"token": "another"},
    "a network added": {"networks": ("127.0.0.9",)},
    "only from": {"only_from": ("127.0.0.0/8",)},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_principal_loses_its_sessions_on_every_transport(
    files: dict[str, str], change: str
) -> None:
    goes = principal(
        "goes",
        TOKEN,
        certificate=CertificateConfig(san="DNS:press-4.plant.example"),
        networks=("127.0.0.4",),
    )
    changes = CHANGES[change]
    after = None if changes is None else replace(goes, **changes)
    options: dict[str, Any] = {"protocol": "fleximq", "reconnect": False}
    with ConfiguredBroker(all_kinds(files, goes)) as broker, contextlib.ExitStack() as stack:

        def connect(index: int, **more: Any) -> Any:
            given = {**options, **more}
            return stack.enter_context(penstock.connect_sync(broker.url(index), **given))

        connect(0, token=TOKEN)
        connect(0, protocol="lamamq", name="goes-id", key=TOKEN)
        connect(1, token=TOKEN)
        connect(2, protocol="herald", tls=client_context())
        stays = connect(1, token="other")  # noqa: S106
        anonymous = connect(0)
        with (
            socket.socket(socket.AF_INET, socket.SOCK_STREAM) as rheos,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as herald,
        ):
            for each, index in ((rheos, 0), (herald, 3)):
                each.settimeout(10)
                each.bind(("127.0.0.4", 0))
                each.connect(("127.0.0.1", broker.port(index)))
                each.send(handshake_pub(7, b"a client id that is longer than the answer"))
                assert each.recv(16)[7] == 0
            assert broker.principals() == ["anonymous", *["goes"] * 6, "stays"]
            broker.reload(all_kinds(files, after))
            assert closed(rheos)
            assert herald.recv(100) == frame(0x04), "DISCONNECT"
        broker.until(lambda: broker.principals() == ["anonymous", "stays"])
        stays.publish("a", b"goes on")
        anonymous.publish("a", b"goes on")


def test_a_client_that_must_go_is_not_waited_for(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    aborted: list[StreamConnection] = []
    abort = StreamConnection.abort

    def noted(link: StreamConnection) -> None:
        aborted.append(link)
        abort(link)

    options: dict[str, Any] = {"protocol": "fleximq", "reconnect": False, "token": TOKEN}
    with (
        ConfiguredBroker(all_kinds(files, principal("goes", TOKEN))) as broker,
        penstock.connect_sync(broker.url(0), **options),
    ):
        (session,) = broker.call(lambda: list(broker.running.server.broker.sessions))
        monkeypatch.setattr(StreamConnection, "abort", noted)
        broker.reload(all_kinds(files, None))
        assert aborted == [session.link], "it may not read what is written to it"


def test_the_same_credentials_keep_their_sessions(files: dict[str, str]) -> None:
    config = all_kinds(files, principal("goes", TOKEN))
    with ConfiguredBroker(config) as broker:
        with penstock.connect_sync(broker.url(0), protocol="fleximq", token=TOKEN) as client:
            broker.reload(replace(config, principal=tuple(reversed(config.principal))))
            client.publish("a", b"x")
        with penstock.connect_sync(
            broker.url(2), protocol="fleximq", token=TOKEN, tls=client_context()
        ):
            assert "goes" in broker.principals()


def test_the_first_principal_takes_effect_at_once() -> None:
    listeners = (ListenerConfig(url="tcp://127.0.0.1:0"), ListenerConfig(url="ws://127.0.0.1:0/ws"))
    config = Config(broker=MEMORY, listener=listeners)
    join = penstock.connect_sync
    with ConfiguredBroker(config) as broker, contextlib.ExitStack() as stack:
        fleximq = stack.enter_context(join(broker.url(0), protocol="fleximq", token="any"))  # noqa: S106
        stack.enter_context(join(broker.url(0), protocol="lamamq", name="goes-id", reconnect=False))
        assert broker.principals() == ["anonymous", "anonymous"], "there are no principals"
        broker.reload(replace(config, principal=(principal("goes", TOKEN),)))
        broker.until(lambda: broker.principals() == ["anonymous"])
        fleximq.publish("a", b"x")
        with pytest.raises(Refused) as refused:
            join(broker.url(0), protocol="fleximq", token="any").__enter__()  # noqa: S106
        assert refused.value.answer == 401
        with pytest.raises(Refused):
            join(broker.url(0), protocol="lamamq", name="goes-id", key="any").__enter__()
        with join(broker.url(0), protocol="fleximq", token=TOKEN):
            assert broker.principals() == ["anonymous", "goes"]
        statuses = []
        for secret in (TOKEN, "any"):
            request = http.client.HTTPConnection("127.0.0.1", broker.port(1), timeout=10)
            request.request("GET", "/api/topics", headers={"Authorization": f"Bearer {secret}"})
            statuses.append(request.getresponse().status)
            request.close()
        assert statuses == [200, 401]


def test_a_handshake_under_way_is_refused() -> None:
    """The client has proved its old key, and has not chosen a version yet."""
    config = Config(
        broker=MEMORY,
        listener=(ListenerConfig(url="tcp://127.0.0.1:0"),),
        principal=(principal("goes", TOKEN),),
    )
    with (
        ConfiguredBroker(config) as broker,
        socket.create_connection(("127.0.0.1", broker.port(0)), timeout=10) as peer,
    ):
        peer.sendall(authentication(b"goes-id", TOKEN.encode()))
        assert peer.recv(100) == OFFER
        broker.reload(replace(config, principal=(principal("goes", "another"),)))
        peer.sendall(CHOICE)
        assert b"credentials refused" in peer.recv(100)
        assert closed(peer)
        assert broker.principals() == []


def test_keep_alive_requests_are_authenticated_each() -> None:
    config = Config(
        broker=MEMORY,
        listener=(ListenerConfig(url="ws://127.0.0.1:0/ws"),),
        principal=(principal("goes", TOKEN),),
    )
    with ConfiguredBroker(config) as broker:
        request = http.client.HTTPConnection("127.0.0.1", broker.port(0), timeout=10)
        for expected in (200, 401):
            request.request("GET", "/api/topics", headers={"Authorization": f"Bearer {TOKEN}"})
            answer = request.getresponse()
            answer.read()
            assert answer.status == expected
            broker.reload(replace(config, principal=(principal("goes", "another"),)))
        request.close()


def test_a_flight_stream_under_way_ends(tmp_path: Path) -> None:
    config = Config(
        data=DataConfig(folder=str(tmp_path)),
        broker=BrokerConfig(durability="os"),
        listener=(ListenerConfig(url="tcp://127.0.0.1:0"),),
        flight=FlightConfig(address="127.0.0.1:0"),
        principal=(principal("goes", TOKEN),),
    )
    with ConfiguredBroker(config) as broker:
        with penstock.connect_sync(broker.url(0), protocol="lamamq") as client:
            for _ in range(60):
                client.publish("a", bytes(1_000_000))
        assert broker.running.flight is not None
        place = f"127.0.0.1:{broker.running.flight.port}"
        with FlightClient(place, token=TOKEN) as reader:
            batches = reader.read(ReadRange(start=0, end=reader.bounds()[0].end))
            next(batches)
            broker.reload(replace(config, principal=(principal("goes", "another"),)))
            with pytest.raises(AuthenticationFailed):
                list(batches)
            with pytest.raises(AuthenticationFailed):
                reader.bounds()


# --- Certificates ---------------------------------------------------------------------------------


def served_certificate(port: int, name: str | None) -> bytes:
    context = client_context(name)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain) as secure,
    ):
        return secure.getpeercert(binary_form=True) or b""


@pytest.mark.parametrize("scheme", ["tls", "wss"])
def test_new_connections_get_the_new_certificate(files: dict[str, str], scheme: str) -> None:
    path = "/ws" if scheme == "wss" else ""
    listeners = (
        ListenerConfig(url=f"{scheme}://127.0.0.1:0{path}", client_certificate="optional", **files),
    )
    config = Config(broker=MEMORY, listener=listeners)
    with ConfiguredBroker(config) as broker:
        port = broker.port(0)
        before = served_certificate(port, None)
        with penstock.connect_sync(
            broker.url(0), protocol="fleximq", tls=client_context(None)
        ) as client:
            for source, name in (("press.pem", "certificate"), ("press.key", "key")):
                shutil.copy(TLS / source, files[name])
            assert served_certificate(port, None) == before, "not before the reload"
            broker.reload(config)
            after = served_certificate(port, None)
            assert after == ssl.PEM_cert_to_DER_cert((TLS / "press.pem").read_text())
            client.publish("a", b"goes on")
        Path(files["key"]).write_text("nonsense")
        with capture_logs() as events:
            broker.reload(config)
        assert served_certificate(port, None) == after
        (event,) = [each for each in events if each["event"] == "certificate not reloaded"]
        assert files["key"] in event["error"]


def test_a_bad_certificate_refuses_the_whole_reload(tmp_path: Path, files: dict[str, str]) -> None:
    config = Config(broker=MEMORY, listener=(ListenerConfig(url="tls://127.0.0.1:0", **files),))

    def reread() -> Config:
        raise ConfigError(f"{tmp_path}/penstock.toml:1", "listener[0]", "holds no certificate")

    with ConfiguredBroker(config) as broker:
        with capture_logs() as events:
            broker.run(_reread(broker.running, reread))
        assert [each["event"] for each in events] == ["not reloaded"]


def test_another_authority_disconnects_clients_with_certificates(files: dict[str, str]) -> None:
    by_name = CertificateConfig(san="DNS:press-4.plant.example")
    config = Config(
        broker=MEMORY,
        listener=(ListenerConfig(url="tls://127.0.0.1:0", **files, anonymous=False),),
        principal=(PrincipalConfig(name="press", certificate=by_name),),
    )
    options: dict[str, Any] = {"protocol": "herald", "reconnect": False, "timeout": 5.0}
    with ConfiguredBroker(config) as broker:
        with penstock.connect_sync(broker.url(0), tls=client_context("press"), **options):
            assert broker.principals() == ["press"]
            shutil.copy(TLS / "forged-ca.pem", files["client_ca"])
            broker.reload(config)
            broker.until(lambda: broker.principals() == [])
        with penstock.connect_sync(broker.url(0), tls=client_context("forged"), **options):
            assert broker.principals() == ["press"], "the authority that is trusted now"
        broker.until(lambda: broker.principals() == [])
        with contextlib.suppress(Exception):
            penstock.connect_sync(broker.url(0), tls=client_context("press"), **options).__enter__()
        assert broker.principals() == []


def test_a_resumed_tls_session_has_no_certificate(files: dict[str, str]) -> None:
    """TLS 1.2 can resume a session by its id, and OpenSSL then verifies no certificate."""
    by_name = CertificateConfig(san="DNS:press-4.plant.example")
    config = Config(
        broker=MEMORY,
        listener=(ListenerConfig(url="tls://127.0.0.1:0", **files, anonymous=False),),
        principal=(PrincipalConfig(name="press", certificate=by_name),),
    )
    context = client_context("press")
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    def answer(session: ssl.SSLSession | None) -> tuple[int, ssl.SSLSession | None, bool]:
        with (
            socket.create_connection(("127.0.0.1", broker.port(0)), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname="localhost", session=session) as secure,
        ):
            secure.sendall(handshake_sub())
            return secure.recv(16)[7], secure.session, bool(secure.session_reused)

    with ConfiguredBroker(config) as broker:
        code, session, reused = answer(None)
        assert (code, reused) == (0, False)
        code, _, reused = answer(session)
        assert code == (8 if reused else 0)


# --- Tokens ---------------------------------------------------------------------------------------


SECRET = b"0123456789abcdef0123456789abcdef"


def issued(folder: Path, **settings: Any) -> Config:
    """Return a configuration whose only principal has tokens of an issuer."""
    (folder / "secret").write_bytes(SECRET)
    issuer = JwtIssuerConfig(
        issuer="id",
        audience="penstock",
        algorithms=("HS256",),
        keys=(str(folder / "secret"),),
        leeway_seconds=0,
    )
    return Config(
        jwt=(issuer,),
        principal=(PrincipalConfig(name="press", jwt=JwtConfig(issuer="id")),),
        **settings,
    )


def token_until(expires: int) -> str:
    claims = {"iss": "id", "aud": "penstock", "sub": "press", "exp": expires}
    return jwt.encode(claims, SECRET, "HS256")


def test_a_session_ends_when_its_token_expires(tmp_path: Path) -> None:
    config = issued(
        tmp_path,
        broker=MEMORY,
        listener=(ListenerConfig(url="tcp://127.0.0.1:0", anonymous=False),),
    )
    expires = int(time.time()) + 2
    token = token_until(expires)
    with ConfiguredBroker(config) as broker:
        with penstock.connect_sync(
            broker.url(0), protocol="fleximq", token=token, reconnect=False
        ) as client:
            client.publish("a", b"x")
            assert broker.principals() == ["press"]
            broker.until(lambda: broker.principals() == [])
            assert time.time() >= expires
            failed = broker.running.server.broker.counters.connections_failed
            assert broker.call(lambda: failed["credentials refused"]) == 1
        with pytest.raises(Refused):
            penstock.connect_sync(broker.url(0), protocol="fleximq", token=token).__enter__()


def test_a_flight_stream_ends_when_its_token_expires(tmp_path: Path) -> None:
    config = issued(
        tmp_path,
        data=DataConfig(folder=str(tmp_path)),
        broker=BrokerConfig(durability="os"),
        listener=(ListenerConfig(url="tcp://127.0.0.1:0"),),
        flight=FlightConfig(address="127.0.0.1:0"),
    )
    with ConfiguredBroker(config) as broker:
        with penstock.connect_sync(broker.url(0), protocol="lamamq") as client:
            for _ in range(60):
                client.publish("a", bytes(1_000_000))
        assert broker.running.flight is not None
        place = f"127.0.0.1:{broker.running.flight.port}"
        expires = int(time.time()) + 4
        with FlightClient(place, token=token_until(expires)) as reader:
            batches = reader.read(ReadRange(start=0, end=reader.bounds()[0].end))
            next(batches)
            time.sleep(max(expires - time.time(), 0))
            with pytest.raises(AuthenticationFailed, match="expired token refused"):
                list(batches)
            with pytest.raises(AuthenticationFailed):
                reader.bounds()
