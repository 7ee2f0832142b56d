"""`penstock reply`: values, echoes and commands that answer, and the bounds that they have."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.client import Refused, SyncClient
from tests.support.commands import Commands
from tests.support.live import LiveBroker
from tests.support.running import Running


@pytest.fixture(scope="module")
def broker() -> Iterator[LiveBroker]:
    with LiveBroker() as live:
        yield live


@pytest.fixture(scope="module")
def client(broker: LiveBroker) -> Iterator[SyncClient]:
    with penstock.connect_sync(at(broker), protocol="fleximq") as asker:
        yield asker


def at(broker: LiveBroker) -> str:
    host, port = broker.address
    return f"tcp://{host}:{port}"


def identity(command: Running, path: str) -> int:
    """The id that a command says it is reached by."""
    word, number, *rest = command.line().split()
    assert (word, *rest) == ("client", "answers", path)
    return int(number)


def test_a_value_answers_every_request(broker: LiveBroker, client: SyncClient) -> None:
    with Running("reply", "/health", "ok", "--url", at(broker)) as command:
        number = identity(command, "/health")
        assert client.request(number, "/health").payload == b"ok"
        assert client.request(number, "/health", "a\tb").payload == b"ok"
        assert client.request(number, "/health", {"a": 1}).payload == b"ok"
        with pytest.raises(Refused, match="no such path"):
            client.request(number, "/other")
        assert [command.line() for _ in range(3)] == [
            f"{client.identity}\t200\t", f"{client.identity}\t200\ta\\tb",
            f'{client.identity}\t200\t{{"a":1}}',
        ]  # fmt: skip
        assert command.end(signal.SIGINT) == (0, "3 requests answered.\n")


def test_the_path_is_served_by_name(broker: LiveBroker, client: SyncClient) -> None:
    with Running("reply", "/by-name", "ok", "--url", at(broker)) as command:
        identity(command, "/by-name")
        assert client.request_service("/by-name").payload == b"ok"
        assert command.end(signal.SIGINT) == (0, "1 request answered.\n")
    broker.until(lambda: "by-name" not in broker.server.broker.services)
    with pytest.raises(Refused, match="no client serves /by-name"):
        client.request_service("/by-name")


def test_an_echo_is_the_request_and_json_tells_of_it(
    broker: LiveBroker, client: SyncClient
) -> None:
    arguments = ("--echo", "--json", "--count", 2, "--url", at(broker))
    with Running("reply", "/echo", *arguments) as command:
        ready = json.loads(command.line())
        assert ready.pop("path") == "/echo"
        number = ready.pop("client_id")
        assert ready == {}
        assert client.request(number, "/echo", {"a": [1]}).payload == {"a": [1]}
        assert client.request(number, "/echo", b"\xff").payload == b"\xff"
        first, second = (json.loads(command.line()) for _ in range(2))
        assert first.pop("ms") >= 0
        assert first == {
            "path": "/echo", "sender": client.identity, "payload": {"a": [1]}, "status": 200,
        }  # fmt: skip
        assert (second["value"], second["encoding"]) == ("/w==", "base64")
        assert command.wait() == (0, "")


def test_a_command_gets_the_request_and_its_output_is_the_answer(
    broker: LiveBroker, client: SyncClient
) -> None:
    with Running("reply", "/upper", "--exec", "tr a-z A-Z", "--url", at(broker)) as command:
        number = identity(command, "/upper")
        assert client.request(number, "/upper", b"a $HOME").payload == b"A $HOME"
        assert client.request(number, "/upper", {"a": "b"}).payload == b'{"A":"B"}\n'
        large = b"x" * 1_000_000
        assert client.request(number, "/upper", large).payload == large.upper()


def test_no_shell_reads_a_command_unless_asked_for(broker: LiveBroker, client: SyncClient) -> None:
    text = "echo $PENSTOCK_REQUEST_SENDER; exit 0"
    with Running("reply", "/a", "--exec", text, "--url", at(broker)) as command:
        number = identity(command, "/a")
        plain = b"$PENSTOCK_REQUEST_SENDER; exit 0\n"
        assert client.request(number, "/a").payload == plain
    with Running("reply", "/a", "--exec", text, "--shell", "--url", at(broker)) as command:
        number = identity(command, "/a")
        assert client.request(number, "/a").payload == b"%d\n" % (client.identity or 0)


def test_json_of_a_command_becomes_a_value(broker: LiveBroker, client: SyncClient) -> None:
    arguments = ("--exec", "cat", "--as", "json", "--url", at(broker))
    with Running("reply", "/value", *arguments) as command:
        number = identity(command, "/value")
        assert client.request(number, "/value", b'{"a": 1}').payload == {"a": 1}
        with pytest.raises(Refused, match="the value is not JSON"):
            client.request(number, "/value", b"{")


def test_a_command_that_fails_answers_with_500_and_why(
    broker: LiveBroker, client: SyncClient
) -> None:
    failing = "echo first >&2; echo why >&2; exit 3"
    with Running("reply", "/x", "--exec", failing, "--shell", "--url", at(broker)) as command:
        number = identity(command, "/x")
        with pytest.raises(Refused) as refused:
            client.request(number, "/x", b"q")
        assert (refused.value.answer, refused.value.text) == (500, "ended with 3: why")
        assert command.line() == f"{client.identity}\t500\tq\tended with 3: why"
        assert command.end() == (0, "1 request answered, 1 of them failed.\n")
    with (
        Running("reply", "/x", "--exec", "/no/such/program", "--url", at(broker)) as command,
        pytest.raises(Refused, match="/no/such/program: No such file"),
    ):
        client.request(identity(command, "/x"), "/x")


def test_a_command_that_takes_too_long_is_killed_with_all_it_started(
    broker: LiveBroker, client: SyncClient, tmp_path: Path
) -> None:
    slow = f"sleep 60 & echo $! > {tmp_path / 'pid'}; wait"
    arguments = ("--exec", slow, "--shell", "--timeout", 0.5, "--url", at(broker))
    with Running("reply", "/slow", *arguments) as command:
        with pytest.raises(Refused) as refused:
            client.request(identity(command, "/slow"), "/slow")
        assert (refused.value.answer, refused.value.text) == (504, "no answer within 0.5 s")
        number = int((tmp_path / "pid").read_text())
        deadline = time.monotonic() + 5
        while is_running(number):
            assert time.monotonic() < deadline, "what the command started goes on"
            time.sleep(0.01)


def is_running(number: int) -> bool:
    try:
        os.kill(number, 0)
        return ") Z " not in Path(f"/proc/{number}/stat").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


@pytest.mark.parametrize("parallel", [1, 4])
def test_no_more_commands_run_at_a_time_than_asked(
    broker: LiveBroker, client: SyncClient, tmp_path: Path, parallel: int
) -> None:
    lock = tmp_path / "lock"
    text = f"mkdir {lock} || exit 9; sleep 0.3; rmdir {lock}"
    arguments = ("--exec", text, "--shell", "--parallel", parallel, "--url", at(broker))
    answers: list[int] = []

    def ask(number: int) -> None:
        try:
            answers.append(client.request(number, "/x").status or 0)
        except Refused as refused:
            answers.append(refused.answer)

    with Running("reply", "/x", *arguments) as command:
        number = identity(command, "/x")
        threads = [threading.Thread(target=ask, args=(number,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert len(answers) == 3
    assert (answers.count(200) == 3) is (parallel == 1)


def test_a_new_connection_has_a_new_id_and_it_is_told(
    broker: LiveBroker, client: SyncClient
) -> None:
    with Running("reply", "/x", "--echo", "--url", at(broker)) as command:
        number = identity(command, "/x")
        session = broker.server.broker.sessions.get(number)
        assert session is not None
        broker.call(session.link.close)
        other = identity(command, "/x")
        assert other != number
        assert client.request(other, "/x", b"y").payload == b"y"
        code, said = command.end()
    assert code == 0
    assert said.startswith("penstock: the connection was lost: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["/x"], "give one of VALUE, --echo and --exec"),
        (["/x", "v", "--echo"], "give one of VALUE, --echo and --exec"),
        (["/x", "v", "--shell"], "is for --exec"),
        (["/x", "--exec", "'"], "No closing quotation"),
        (["/x", "--exec", ""], "is empty"),
        (["/x", "v", "--as", "json"], "the value is not JSON"),
        (["/x", "v", "--protocol", "lamamq"], "lamamq has no reply; fleximq has"),
        (["/x", "--echo", "--parallel", "0"], "--parallel"),
    ],
)
def test_what_cannot_be_is_one_line(
    commands: Commands, broker: LiveBroker, arguments: list[str], said: str
) -> None:
    assert said in commands.run("reply", *arguments, "--url", at(broker)).error_line()


def test_a_broker_that_is_not_there_is_one_line(commands: Commands) -> None:
    line = commands.run("reply", "/x", "v", "--url", "tcp://127.0.0.1:1").error_line()
    assert "start a broker with `penstock serve`" in line
