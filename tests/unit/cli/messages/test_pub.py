"""`penstock pub`: what is sent, what is printed, and what cannot be."""

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.gateway.options import GatewayOptions
from penstock.server.config import Config, PrincipalConfig
from penstock.server.credentials import Authenticator
from penstock.transport.addresses import parse_address
from tests.support import lamamq_bytes as lama
from tests.support.commands import Commands
from tests.support.live import LiveBroker
from tests.support.running import Running, run
from tests.support.served import until

TLS = Path(__file__).parents[3] / "support" / "tls"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    with LiveBroker(data=tmp_path_factory.mktemp("data")) as live:
        yield live


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("URL", "PROTOCOL", "TOKEN", "KEY"):
        monkeypatch.delenv(f"PENSTOCK_{name}", raising=False)


def at(broker: LiveBroker, scheme: str = "tcp") -> str:
    host, port = broker.address
    return f"{scheme}://{host}:{port}"


def kept(commands: Commands, broker: LiveBroker, topic: str) -> list[dict[str, object]]:
    """The rows of a topic in the broker's log."""
    folder = broker._data
    assert isinstance(folder, Path)
    done = commands.run("log", "read", topic, "--json", "--data", folder)
    return [json.loads(line) for line in done.out.splitlines()]


def test_one_message_is_sent_and_summed_up(commands: Commands, broker: LiveBroker) -> None:
    with lama.subscriber(broker, b"sensors/+") as listener:
        done = commands.run("pub", "sensors/1", "21.5", "--url", at(broker))
        assert done == (0, "sensors/1: 1 message, 4 bytes.\n", "")
        heard = listener.forwarded()
    assert (heard.topic, heard.headers, heard.payload) == (b"sensors/1", [], b"21.5")


@pytest.mark.parametrize("protocol", ["rheos1", "rheos2", "fleximq", "herald", "lamamq"])
def test_a_url_names_any_protocol(commands: Commands, broker: LiveBroker, protocol: str) -> None:
    topic = "channel/9" if protocol == "herald" else f"by/{protocol}"
    create = ["--create"] if protocol.startswith("rheos") else []
    for name in {topic, topic.replace("channel/9", "9")}:
        before = kept(commands, broker, topic)
        done = commands.run("pub", name, "x", "--url", at(broker, protocol), *create, "--json")
        assert (done.code, done.err) == (0, "")
        found = json.loads(done.out)
        message_id = found.pop("message_id", None)
        assert found == {"topic": topic, "messages": 1, "bytes": 1}
        # herald and fleximq do not wait for the disk.
        until(lambda: len(kept(commands, broker, topic)) > len(before), "a row")  # noqa: B023
        row = kept(commands, broker, topic)[-1]
        assert (row["protocol"], row["value"]) == (protocol, "eA==")
        # Only Rheos tells the id, and it is the one that the log has.
        assert message_id == (row["message_id"] if create else None)


def test_headers_are_sent_as_they_are_given(commands: Commands, broker: LiveBroker) -> None:
    with lama.subscriber(broker, b"orders") as listener:
        headers = ["--header", "source=shop", "--header", "note=a=b", "--header", "empty="]
        assert commands.run("pub", "orders", "1", "--url", at(broker), *headers).code == 0
        assert listener.forwarded().headers == [
            (b"source", b"shop"), (b"note", b"a=b"), (b"empty", b""),
        ]  # fmt: skip


def test_a_value_is_sent_as_often_as_asked_at_the_rate(
    commands: Commands, broker: LiveBroker
) -> None:
    started = time.monotonic()
    done = commands.run("pub", "often", "ab", "--count", 20, "--rate", 100, "--url", at(broker))
    assert time.monotonic() - started >= 0.19
    assert done.out == "often: 20 messages, 40 bytes.\n"
    many = commands.run("pub", "often", "ab", "--count", 12_000, "--url", at(broker), "--json")
    assert json.loads(many.out) == {"topic": "often", "messages": 12_000, "bytes": 24_000}
    assert len(kept(commands, broker, "often")) == 12_020


def test_each_line_of_standard_input_is_a_message(broker: LiveBroker) -> None:
    with lama.subscriber(broker, b"lines") as listener:
        done = run("pub", "lines", "--lines", "--url", at(broker), data=b"a\n\n\xff\r\nlast")
        assert (done.code, done.out) == (0, b"lines: 4 messages, 7 bytes.\n"), done
        assert [listener.forwarded().payload for _ in range(4)] == [b"a", b"", b"\xff\r", b"last"]


def test_standard_input_is_one_value_byte_for_byte(broker: LiveBroker) -> None:
    value = bytes(range(256)) + b"\n"
    with lama.subscriber(broker, b"whole") as listener:
        assert run("pub", "whole", "-", "--url", at(broker), data=value).code == 0
        assert run("pub", "whole", data=b"", PENSTOCK_URL=at(broker)).code == 0
        assert [listener.forwarded().payload for _ in range(2)] == [value, b""]


def test_lines_are_sent_as_they_come_and_an_interrupt_sums_up(broker: LiveBroker) -> None:
    with (
        lama.subscriber(broker, b"live") as listener,
        Running("pub", "live", "--lines", "--url", at(broker)) as command,
    ):
        for line in (b"first", b"other"):
            command.stdin.write(line + b"\n")
            command.stdin.flush()
            assert listener.forwarded().payload == line
        command.stdin.write(b"unfinished")
        command.stdin.flush()
        assert command.end(signal.SIGINT) == (130, "")
        # What was acknowledged is counted: the first for sure, or the second was not sent.
        assert command.stdout.read() in {
            b"live: 1 message, 5 bytes.\n", b"live: 2 messages, 10 bytes.\n",
        }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["t", "x", "--protocol", "mqtt"], "'mqtt' is none of rheos1"),
        (["t", "x", "--protocol", "herald"], "'t' is no herald channel"),
        (["256", "x", "--protocol", "herald"], "those are 0 to 255"),
        (
            ["t", "x", "--header", "a=b", "--protocol", "herald"],
            "herald has no headers; give --protocol lamamq",
        ),
        (["t", "x", "--header", "a"], "'a' is not NAME=VALUE"),
        (["t", "x", "--lines"], "leave out VALUE"),
        (["t", "--lines", "--count", "2"], "--lines"),
        (["t", "x", "--count", "0"], "--count"),
        (["t", "x", "--create"], "lamamq has no create_topic; topics need not be created"),
        (["none/such", "x", "--protocol", "rheos2"], "if the topic is new, give --create"),
        (["a/#", "x", "--protocol", "fleximq"], "no topic can be named 'a/#'"),
        (["a/#", "x"], "no topic can be named 'a/#'"),
    ],
)
def test_what_cannot_be_is_one_line(
    commands: Commands, broker: LiveBroker, arguments: list[str], said: str
) -> None:
    assert said in commands.run("pub", *arguments, "--url", at(broker)).error_line()


def test_url_and_protocol_may_not_differ(commands: Commands, broker: LiveBroker) -> None:
    url = at(broker, "herald")
    line = commands.run("pub", "7", "x", "--url", url, "--protocol", "lamamq").error_line()
    assert "is lamamq" in line
    assert "says herald" in line
    assert commands.run("pub", "7", "x", "--url", url, "--protocol", "herald").code == 0


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (
            "tcp://127.0.0.1:1",
            "start a broker with `penstock serve`, or give its address with --url",
        ),
        (
            "127.0.0.1:7000",
            "or one that starts with a protocol: rheos1, rheos2, fleximq, herald, lamamq",
        ),
        ("udp://127.0.0.1:7000", "clients connect by tcp, tls, ipc, ws and wss, not by udp; give"),
        (
            "http://127.0.0.1:7000",
            "clients connect by tcp, tls, ipc, ws and wss, not by http; give",
        ),
        ("tcp://127.0.0.1", "'tcp://127.0.0.1': the port is missing; give --url an address"),
        ("tcp://:7000", "'tcp://:7000': the host is missing; give --url an address"),
    ],
)
def test_a_broker_that_is_not_there_is_one_line(commands: Commands, url: str, said: str) -> None:
    assert said in commands.run("pub", "t", "x", "--url", url).error_line()


def test_a_missing_certificate_is_one_line(commands: Commands, tmp_path: Path) -> None:
    url = ("--url", "tls://127.0.0.1:1", "--ca", tmp_path / "none.pem")
    line = commands.run("pub", "t", "x", *url).error_line()
    assert "none.pem: No such file or directory; give --ca a file of PEM certificates" in line


def test_a_broker_behind_tls_is_trusted_by_the_certificates_given(
    commands: Commands, broker: LiveBroker
) -> None:
    place = f"certificate={TLS / 'localhost.pem'}&key={TLS / 'localhost.key'}"
    listening = broker.server.listen(parse_address(f"tls://127.0.0.1:0?{place}"))
    address = asyncio.run_coroutine_threadsafe(listening, broker._loop).result(10)
    arguments = ("pub", "t", "x", "--url", f"tls://localhost:{address.port}")
    assert commands.run(*arguments, "--ca", TLS / "localhost.pem").code == 0
    line = commands.run(*arguments).error_line()
    assert "TLS failed: the certificate: self" in line
    assert line.endswith("; give --ca the certificates to trust")


def test_secrets_come_from_the_environment(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    authenticator = Authenticator(
        Config(principal=(PrincipalConfig(name="shop", token="open sesame"),))  # noqa: S106
    )
    options = GatewayOptions(anonymous=None, authenticator=authenticator)
    with LiveBroker(options=options) as guarded:
        arguments = ("pub", "t", "x", "--url", at(guarded, "fleximq"))
        assert "refused with fleximq answer 401" in commands.run(*arguments).error_line()
        monkeypatch.setenv("PENSTOCK_TOKEN", "open barley")
        line = commands.run(*arguments).error_line()
        assert "refused with fleximq answer 401" in line
        assert "barley" not in line
        monkeypatch.setenv("PENSTOCK_TOKEN", "open sesame")
        assert commands.run(*arguments).out == "t: 1 message, 1 byte.\n"
        # A secret that the protocol cannot carry is left alone.
        assert "token" not in commands.run("pub", "7", "x", "--url", at(guarded, "herald")).err
    authenticator.close()


def test_what_is_refused_without_an_answer_is_told(commands: Commands) -> None:
    options = GatewayOptions(messages_per_second_max=5)
    with LiveBroker(options=options) as slow:
        arguments = ["pub", "7", "x", "--count", "50", "--url", at(slow, "herald")]
        assert "RATE_LIMIT" in commands.run(*arguments).error_line()
        done = commands.run(*arguments[:3], "--no-wait", "--url", at(slow, "herald"))
        assert done.out == "channel/7: 1 message, 1 byte.\n"


@pytest.mark.parametrize("json_wanted", [False, True])
def test_a_connection_that_is_lost_does_not_lose_the_sum(json_wanted: bool) -> None:  # noqa: FBT001
    arguments = ["pub", "live", "--lines", *(["--json"] if json_wanted else [])]
    with LiveBroker() as broker:
        command = Running(*arguments, "--url", at(broker))
        with lama.subscriber(broker, b"live") as listener:
            command.stdin.write(b"first\n")
            command.stdin.flush()
            assert listener.forwarded().payload == b"first"
    with command:
        command.stdin.write(b"other\n")
        command.stdin.flush()
        code, said = command.wait()
        out = command.stdout.read()
    if json_wanted:
        found = json.loads(out)
        assert found.pop("error").startswith("the connection was lost: ")
        assert found == {"topic": "live", "messages": 1, "bytes": 5}
    else:
        assert out == b"live: 1 message, 5 bytes.\n"
    assert code == 2
    assert said.startswith("penstock: the connection was lost: ")
    assert said.count("\n") == 1
    assert said.endswith(
        "; 1 message acknowledged, whether more arrived is unknown; "
        "send the messages after them again\n"
    )


def test_what_is_not_acknowledged_is_not_said_to_have_arrived() -> None:
    with LiveBroker() as broker:
        command = Running("pub", "7", "--lines", "--url", at(broker, "herald"))
        broker.until(lambda: broker.server.broker.sessions)
    with command:
        command.stdin.write(b"late\n")
        command.stdin.flush()
        code, said = command.wait()
        assert (code, command.stdout.read()) == (2, b"channel/7: 0 messages, 0 bytes.\n")
    assert said.endswith("herald has no acknowledgments: what arrived is unknown\n")


def test_a_message_with_a_key_is_stored_once(commands: Commands, broker: LiveBroker) -> None:
    for value in ("1", "2"):
        done = commands.run("pub", "keyed", value, "--dedupe", "order-1", "--url", at(broker))
        assert done == (0, "keyed: 1 message, 1 byte.\n", "")
    until(lambda: len(kept(commands, broker, "keyed")) == 1, "the message is in the log")
    assert [row["value"] for row in kept(commands, broker, "keyed")] == ["MQ=="], "1"


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (("--count", "2"), "is the key of one message"),
        (("--protocol", "rheos2"), "give --protocol lamamq or fleximq"),
        (("--dedupe", ""), "not a key"),
    ],
)
def test_a_key_that_cannot_be_sent_is_refused(
    commands: Commands, broker: LiveBroker, more: tuple[str, ...], problem: str
) -> None:
    done = commands.run("pub", "keyed", "1", "--dedupe", "k", *more, "--url", at(broker))
    assert done.code == 2
    assert problem in " ".join(done.err.split())
