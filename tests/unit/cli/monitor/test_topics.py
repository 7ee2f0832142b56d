"""`penstock topics`, and what all commands that ask over HTTP say when they cannot."""

import io
import json
import socket
import threading
from collections.abc import Iterator
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from penstock.gateway.options import GatewayOptions
from penstock.server.config import BasicConfig, Config, PrincipalConfig
from penstock.server.credentials import Authenticator, hash_password
from tests.support import lamamq_bytes, rheos_bytes
from tests.support.commands import Commands
from tests.support.http_live import HttpBroker

COMMANDS = [("topics",), ("clients",), ("top", "--once")]
PARENT = UUID("00112233-4455-6677-8899-aabbccddeeff")
VARIABLES = ("PENSTOCK_HTTP_URL", "PENSTOCK_TOKEN", "PENSTOCK_API_KEY", "PENSTOCK_USERNAME")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def broker() -> Iterator[HttpBroker]:
    with HttpBroker() as live, lamamq_bytes.subscriber(live, b"plant/#"):
        with rheos_bytes.Client(live, rheos_bytes.RHEOS1, identity=PARENT.bytes) as creator:
            creator.must(rheos_bytes.CREATE, b"plant/a")
        with lamamq_bytes.client(live) as sender:
            for topic, count in ((b"plant/b", 3), (b"plant/a", 1), (b"office/\x1b[31m", 2)):
                for _ in range(count):
                    sender.request(lamamq_bytes.push(0, topic, b"12345"))
        yield live


def test_topics_are_listed_by_name(commands: Commands, broker: HttpBroker) -> None:
    done = commands.run("topics", "--url", broker.url)
    assert (done.code, done.err) == (0, "")
    title, *lines, total = done.out.splitlines()
    assert title.split() == ["MESSAGES", "BYTES", "SUBSCRIBERS", "LAST", "TOPIC"]
    found = [(line.split()[0], line.split()[3], line.split()[-1]) for line in lines]
    assert found == [
        ("2", "0", r"office/\x1b[31m"),  # what a name says cannot steer the terminal
        ("1", "1", "plant/a"),
        ("3", "1", "plant/b"),
    ]
    assert total == "3 topics"


def test_the_busiest_may_come_first(commands: Commands, broker: HttpBroker) -> None:
    done = commands.run("topics", "--url", broker.url, "--sort", "messages", "--prefix", "plant/")
    assert [line.split()[-1] for line in done.out.splitlines()[1:-1]] == ["plant/b", "plant/a"]


def test_json_has_all_that_the_api_says(commands: Commands, broker: HttpBroker) -> None:
    done = commands.run("topics", "--url", broker.url + "/", "--json", "--limit", "2")
    assert (done.code, done.err, done.out.count("\n")) == (0, "", 1)
    topics = json.loads(done.out)["topics"]
    assert [each["name"] for each in topics] == ["plant/a", "plant/b"]
    assert (topics[1]["messages"], topics[1]["bytes"]) == (3, 15)
    assert [each["parent"] for each in topics] == [str(PARENT), None]


def test_none_are_none(commands: Commands, broker: HttpBroker) -> None:
    done = commands.run("topics", "--url", broker.url, "--prefix", "nothing/")
    assert done.out == "0 topics\n"


def test_an_order_that_there_is_not_is_named(commands: Commands, broker: HttpBroker) -> None:
    line = commands.run("topics", "--url", broker.url, "--sort", "age").error_line()
    assert "'age' is none of name, messages, bytes, subscribers" in line


def test_the_environment_may_say_where(
    commands: Commands, broker: HttpBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_HTTP_URL", broker.url)
    assert commands.run("topics").out.endswith("3 topics\n")


# --- What all of them say -------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_where_nothing_listens_the_error_says_what_to_do(
    commands: Commands, command: tuple[str, ...]
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        line = commands.run(*command, "--url", url).error_line()
    assert line == (
        f"no broker answers at {url}: connection refused; "
        "start one with penstock serve, or give --url or PENSTOCK_HTTP_URL"
    )


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("url", ["tcp://127.0.0.1:7000", "127.0.0.1", "", "http://"])
def test_a_url_that_is_not_http_is_named(
    commands: Commands, command: tuple[str, ...], url: str
) -> None:
    line = commands.run(*command, "--url", url).error_line()
    assert line.startswith(f"{url!r} is not an HTTP URL; give --url")


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", b"HTTP/1.1 404 No\r\n\r\n", b"SSH-2.0\r\n"],
)
def test_what_is_no_broker_is_called_that(commands: Commands, answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        line = commands.run("topics", "--url", url).error_line()
        thread.join(5)
    assert url in line
    assert "broker" in line


def test_credentials_come_from_the_environment(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config(
        principal=(
            PrincipalConfig(name="token", token="open sesame"),  # noqa: S106
            PrincipalConfig(
                name="ann", basic=BasicConfig(username="ann", password_hash=hash_password("pw"))
            ),
        )
    )
    authenticator = Authenticator(config)
    options = GatewayOptions(anonymous=None, authenticator=authenticator)
    with capture_logs(), HttpBroker(web_options=options) as live:
        line = commands.run("topics", "--url", live.url).error_line()
        assert line.startswith(f"{live.url} requires valid credentials; ")
        assert line.endswith("set PENSTOCK_TOKEN, or PENSTOCK_USERNAME and PENSTOCK_PASSWORD")
        monkeypatch.setenv("PENSTOCK_USERNAME", "ann")
        monkeypatch.setenv("PENSTOCK_PASSWORD", "pw")
        assert commands.run("topics", "--url", live.url).code == 0
        monkeypatch.setenv("PENSTOCK_TOKEN", "wrong")
        assert "credentials" in commands.run("topics", "--url", live.url).error_line()
        monkeypatch.setenv("PENSTOCK_TOKEN", "open sesame")
        assert commands.run("topics", "--url", live.url).code == 0
    authenticator.close()


# --- Deletion -------------------------------------------------------------------------------------


@pytest.fixture
def junk() -> Iterator[HttpBroker]:
    with HttpBroker() as live, lamamq_bytes.client(live) as sender:
        for name in ("keep", "junk/1", "junk/2", "junk/ä %41"):
            sender.request(lamamq_bytes.push(0, name.encode(), b"x"))
        yield live


def left(broker: HttpBroker) -> list[str]:
    return [topic["name"] for topic in broker.get("/api/topics").json()["topics"]]


def test_topics_are_deleted_by_name(commands: Commands, junk: HttpBroker) -> None:
    done = commands.run("topics", "delete", "--yes", "--url", junk.url, "junk/1", "junk/ä %41")
    assert done == (0, "2 topics deleted\n", "")
    assert left(junk) == ["keep", "junk/2"]
    assert commands.run("topics", "--url", junk.url).out.endswith("2 topics\n")


def test_topics_are_deleted_by_prefix(commands: Commands, junk: HttpBroker) -> None:
    done = commands.run("topics", "delete", "--yes", "--url", junk.url, "--prefix", "junk/")
    assert done == (0, "3 topics deleted\n", "")
    assert left(junk) == ["keep"]


def test_nothing_is_deleted_unless_it_is_confirmed(
    commands: Commands, junk: HttpBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for answer, names in (("n\n", 4), ("", 4), ("y\n", 3)):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        done = commands.run("topics", "delete", "--url", junk.url, "keep")
        assert "Delete keep?" in done.out + done.err
        assert (done.code == 0) == (names == 3)
        assert len(left(junk)) == names


def test_a_name_that_does_not_exist_is_told(commands: Commands, junk: HttpBroker) -> None:
    done = commands.run("topics", "delete", "--yes", "--url", junk.url, "none", "keep")
    assert (done.code, done.out) == (2, "1 topic deleted\n")
    assert done.err == "penstock: 1 name did not exist\n"
    done = commands.run("topics", "delete", "--yes", "--url", junk.url, "channel/7")
    assert "belongs to a herald channel" in done.error_line()


def test_names_or_a_prefix_are_needed(commands: Commands) -> None:
    for arguments in ([], ["a", "--prefix", "b"]):
        done = commands.run("topics", "delete", *arguments)
        assert "give names of topics, or --prefix" in done.error_line()
