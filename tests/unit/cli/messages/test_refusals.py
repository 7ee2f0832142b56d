"""What a command says when something answers, but not as it should: who must do what."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from penstock.cli.protocol_help import credential_variable
from penstock.gateway.options import GatewayOptions
from penstock.protocols import PROTOCOLS as REGISTRY
from penstock.server.config import Config, PrincipalConfig
from penstock.server.credentials import Authenticator
from tests.support.commands import Commands
from tests.support.http_live import HttpBroker
from tests.support.live import LiveBroker

PROTOCOLS = ("rheos1", "rheos2", "fleximq", "herald", "lamamq")
VARIABLES = "set PENSTOCK_TOKEN, PENSTOCK_API_KEY, or PENSTOCK_USERNAME and PENSTOCK_PASSWORD"
NONE_CARRIED = (
    "carries no credentials: use fleximq or lamamq, or a listener that accepts anonymous clients"
)
REMEDIES = {
    "rheos1": f"rheos1 {NONE_CARRIED}",
    "rheos2": f"rheos2 {NONE_CARRIED}",
    "herald": f"herald {NONE_CARRIED}",
    "fleximq": VARIABLES,
    "lamamq": "set PENSTOCK_KEY and give --name",
}
# The first frame of a server of HTTP/2, SETTINGS with three of them (RFC 9113, 6.5)
HTTP2 = bytes.fromhex("000012040000000000 00037fffffff 000400100000 000500004000")
HTTP1 = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("URL", "PROTOCOL", "TOKEN", "USERNAME", "PASSWORD", "API_KEY", "KEY"):
        monkeypatch.delenv(f"PENSTOCK_{name}", raising=False)


@pytest.fixture(scope="module")
def guarded() -> Iterator[LiveBroker]:
    authenticator = Authenticator(
        Config(principal=(PrincipalConfig(name="shop", token="open sesame"),))  # noqa: S106
    )
    options = GatewayOptions(anonymous=None, authenticator=authenticator, handshake_seconds_max=1.0)
    with LiveBroker(options=options) as live:
        yield live
    authenticator.close()


@contextlib.contextmanager
def answering(answer: bytes | None) -> Iterator[int]:
    """The port of something that answers the first bytes of each connection so, or closes it."""
    open_ones: list[socket.socket] = []

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:  # it is closed
                return
            peer.settimeout(5)
            peer.recv(4096)
            if answer is None:
                peer.close()
            else:
                peer.sendall(answer)
                open_ones.append(peer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)
            for each in open_ones:
                each.close()


def sent(commands: Commands, protocol: str, port: int, *more: str) -> str:
    """The one line of a publish that fails."""
    topic = "7" if protocol == "herald" else "t"
    url = f"{protocol}://127.0.0.1:{port}"
    return commands.run("pub", topic, "x", "--url", url, *more).error_line()


@pytest.mark.parametrize(
    ("protocol", "told"),
    [
        ("rheos1", "; if the broker requires credentials: "),
        ("rheos2", "; if the broker requires credentials: "),
        ("fleximq", "refused with fleximq answer 401: "),
        ("herald", "refused with herald answer 8: UNAUTHORIZED; "),
        ("lamamq", "refused with lamamq answer 2: "),
    ],
)
def test_without_credentials_it_says_how_to_bring_some(
    commands: Commands, guarded: LiveBroker, protocol: str, told: str
) -> None:
    line = sent(commands, protocol, guarded.address[1])
    assert told in line
    assert line.endswith((f"; {REMEDIES[protocol]}", f": {REMEDIES[protocol]}"))


def test_with_a_key_that_is_wrong_it_says_where_the_right_one_goes(
    commands: Commands, guarded: LiveBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_KEY", "barley")
    line = sent(commands, "lamamq", guarded.address[1], "--name", "shop")
    assert line.endswith("identity refused; set PENSTOCK_KEY and give --name")
    assert "barley" not in line


def test_requests_say_how_to_bring_credentials_too(commands: Commands, guarded: LiveBroker) -> None:
    url = f"tcp://127.0.0.1:{guarded.address[1]}"
    assert commands.run("req", "/stats", "--url", url).error_line().endswith(f"; {VARIABLES}")
    assert commands.run("reply", "/a", "x", "--url", url).error_line().endswith(f"; {VARIABLES}")


def test_the_hints_name_every_variable_that_a_protocol_has() -> None:
    for protocol in PROTOCOLS:
        for option in REGISTRY[protocol].credentials:
            assert credential_variable(option) in REMEDIES[protocol]


def test_a_refusal_that_is_not_about_credentials_has_no_such_hint(commands: Commands) -> None:
    with LiveBroker() as broker:
        for protocol in ("fleximq", "lamamq"):
            url = f"{protocol}://127.0.0.1:{broker.address[1]}"
            line = commands.run("pub", "a/#", "x", "--url", url).error_line()
            assert "PENSTOCK_" not in line


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_closes_the_handshake_is_there_and_nobody_shall_start_it(
    commands: Commands, protocol: str
) -> None:
    with answering(None) as port:
        line = sent(commands, protocol, port)
    assert line == (
        f"no connection to tcp://127.0.0.1:{port}: closed by the other side; a server answers "
        f"there: check port and protocol, and if it requires credentials: {REMEDIES[protocol]}"
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_says_nothing_may_be_another_port_or_want_credentials(
    commands: Commands, protocol: str
) -> None:
    with answering(b"") as port:
        line = sent(commands, protocol, port, "--timeout", "0.3")
    assert line == (
        "connect got no answer within 0.3 s; check port and protocol, and if it requires "
        f"credentials: {REMEDIES[protocol]}; or increase --timeout"
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("answer", [HTTP1, HTTP2], ids=["HTTP/1", "HTTP/2"])
def test_what_speaks_something_else_is_told_from_a_broker(
    commands: Commands, protocol: str, answer: bytes
) -> None:
    with answering(answer) as port:
        line = sent(commands, protocol, port)
    assert line == (
        f"the server at tcp://127.0.0.1:{port} does not speak {protocol}; "
        "give the port that `penstock serve` prints after listen"
    )


@pytest.mark.parametrize(("scheme", "plain"), [("tls", "tcp"), ("wss", "ws")])
@pytest.mark.parametrize("answer", [HTTP1, None], ids=["answers", "closes"])
def test_tls_to_a_plain_port_says_that_tls_failed(
    commands: Commands, scheme: str, plain: str, answer: bytes | None
) -> None:
    with answering(answer) as port:
        url = f"{scheme}://127.0.0.1:{port}"
        line = commands.run("pub", "t", "x", "--url", url).error_line()
    assert line.startswith(f"no connection to {url}: TLS failed: ")
    assert line.endswith(f"; give {plain}:// if the broker does not speak TLS there")


def test_a_web_socket_to_what_has_none_is_not_told_to_be_started(commands: Commands) -> None:
    with answering(None) as port:
        url = f"ws://127.0.0.1:{port}/ws"
        line = commands.run("pub", "t", "x", "--url", url).error_line()
    assert line.startswith(f"no connection to {url}: ")
    assert "a server answers there" in line


def test_by_web_socket_fleximq_is_spoken_unless_another_is_named(commands: Commands) -> None:
    with HttpBroker() as broker:
        url = broker.web.location
        assert commands.run("pub", "t", "x", "--url", url) == (0, "t: 1 message, 1 byte.\n", "")
        found = commands.run("sub", "t", "--url", url, "--count", "1", "--timeout", "0.1")
        assert found.err == "penstock: 0 of 1 message came within 0.1 s\n"
        assert commands.run("pub", "t", "x", "--url", url, "--protocol", "lamamq").code == 2


def test_nothing_there_is_still_to_be_started(commands: Commands) -> None:
    for url in ("tcp://127.0.0.1:1", "tls://127.0.0.1:1", "ws://127.0.0.1:1/ws", "ipc://none.sock"):
        line = commands.run("pub", "t", "x", "--url", url).error_line()
        assert line.endswith(
            "; start a broker with `penstock serve`, or give its address with --url"
        )
