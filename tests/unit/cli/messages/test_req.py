"""`penstock req`: what is asked, what is printed, and who cannot be asked."""

import json
from collections.abc import Iterator

import pytest

import penstock
from penstock.client import Request, RequestFailed, SyncClient
from tests.support.commands import Commands
from tests.support.fleximq_bytes import frame
from tests.support.live import LiveBroker, Peer
from tests.support.running import run


@pytest.fixture(scope="module")
def broker() -> Iterator[LiveBroker]:
    with LiveBroker() as live:
        yield live


@pytest.fixture(scope="module")
def server(broker: LiveBroker) -> Iterator[SyncClient]:
    """A client that answers with what it got, in several ways."""

    def kind(request: Request) -> object:
        return f"{type(request.payload).__name__} {request.payload!r}"

    def fail(_: Request) -> object:
        raise RequestFailed(418, "not\nnow")

    with penstock.connect_sync(at(broker), protocol="fleximq") as client:
        client.serve("/kind", kind)
        client.serve("/echo", lambda request: request.payload)
        client.serve("/map", lambda _: {"mean": 20.0, "of": [18.5, 21.5]})
        client.serve("/bytes", lambda _: b"\x00\xff\x1b")
        client.serve("/fail", fail)
        yield client


def at(broker: LiveBroker) -> str:
    host, port = broker.address
    return f"tcp://{host}:{port}"


def test_the_broker_is_asked_unless_another_is_named(
    commands: Commands, broker: LiveBroker
) -> None:
    done = commands.run("req", "/topics", "--url", at(broker))
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["topics"][7] == "channel/7"
    assert done.out.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["21.5"], "bytes b'21.5'"),
        (["21.5", "--as", "text"], "str '21.5'"),
        (["21.5", "--as", "json"], "float 21.5"),
        (['{"a": [1, null]}', "--as", "json"], "dict {'a': [1, None]}"),
        ([], "NoneType None"),
    ],
)
def test_a_value_is_sent_as_asked(
    commands: Commands, broker: LiveBroker, server: SyncClient, arguments: list[str], answer: str
) -> None:
    done = commands.run("req", "/kind", *arguments, "--to", server.identity, "--url", at(broker))
    assert done == (0, answer + "\n", "")


def test_an_answer_is_printed_by_its_kind(
    commands: Commands, broker: LiveBroker, server: SyncClient
) -> None:
    where = ("--to", server.identity, "--url", at(broker))
    assert commands.run("req", "/map", *where).out == '{"mean":20.0,"of":[18.5,21.5]}\n'
    assert commands.run("req", "/bytes", *where).out == r"\x00\xff\x1b" + "\n"


@pytest.mark.parametrize("value", [b"\x00\xff\n", b"\x1b", b""])
def test_raw_is_the_answer_byte_for_byte(
    broker: LiveBroker, server: SyncClient, value: bytes
) -> None:
    where = ("--to", server.identity, "--url", at(broker))
    raw = run("req", "/echo", "-", "--raw", *where, data=value)
    assert (raw.code, raw.out) == (0, value)


def test_raw_adds_no_newline_to_json_either(
    commands: Commands, broker: LiveBroker, server: SyncClient
) -> None:
    where = ("--to", server.identity, "--url", at(broker))
    assert commands.run("req", "/map", "--raw", *where).out == '{"mean":20.0,"of":[18.5,21.5]}'


def test_json_has_status_and_time(
    commands: Commands, broker: LiveBroker, server: SyncClient
) -> None:
    where = ("--to", server.identity, "--url", at(broker), "--json")
    found = json.loads(commands.run("req", "/bytes", *where).out)
    assert 0 < found.pop("ms") < 5000
    assert found == {
        "path": "/bytes", "client_id": server.identity, "status": 200,
        "value": "AP8b", "encoding": "base64",
    }  # fmt: skip
    found = json.loads(commands.run("req", "/map", *where).out)
    assert found["payload"] == {"mean": 20.0, "of": [18.5, 21.5]}
    assert "value" not in found


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["/nix"], "status 503: no client serves /nix; start one: penstock reply /nix"),
        (["/nix", "--to", "99999"], "status 600: no client 99999; `penstock req /clients` lists"),
        (["/nix", "x", "--as", "json"], "the value is not JSON; give --as bytes"),
        (["/nix", "--protocol", "herald"], "herald has no request; fleximq has: give --protocol"),
        (["/nix", "--protocol", "rheos2"], "rheos2 has no request"),
        (["/nix", "--to", "0"], "--to"),
        (["/nix", "--raw", "--json"], "--raw"),
    ],
)
def test_what_cannot_be_is_one_line(
    commands: Commands, broker: LiveBroker, arguments: list[str], said: str
) -> None:
    assert said in commands.run("req", *arguments, "--url", at(broker)).error_line()


def test_an_answer_that_is_no_success_is_one_line(
    commands: Commands, broker: LiveBroker, server: SyncClient
) -> None:
    where = ("--to", server.identity, "--url", at(broker))
    assert "answered with status 418: not now" in commands.run("req", "/fail", *where).error_line()


def test_no_answer_in_time_is_one_line(commands: Commands, broker: LiveBroker) -> None:
    # A client of another kind, which reads nothing, never answers.
    with Peer(broker.address) as silent:
        silent.send(frame(0, 0, {}))
        number = int.from_bytes(silent.receive(6)[2:6], "big")
        where = ("--to", number, "--timeout", 0.3, "--url", at(broker))
        line = commands.run("req", "/x", *where).error_line()
    assert line == ("request got no answer within 0.3 s; it may come later: increase --timeout")
