"""`penstock sub`: lines, JSON, raw values, history, and how it ends."""

import base64
import json
import signal
import time
import uuid
from collections.abc import Iterator
from datetime import datetime

import pytest

from tests.support import herald_bytes as herald
from tests.support import lamamq_bytes as lama
from tests.support.commands import Commands
from tests.support.live import LiveBroker, Peer
from tests.support.running import Running, run

PLACE = ("partition", "offset", "message_id", "broker_time")
VALUES = [b"21.5", b"a\tb\x1b[2J\xff", "ü☂".encode(), b""]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    """Four messages of LamaMQ, the first with headers, and one of herald."""
    with LiveBroker(data=tmp_path_factory.mktemp("data")) as live:
        with lama.client(live) as sender:
            headers = [(b"source", b"shop"), (b"raw", b"\xff")]
            sender.request(lama.push(0, b"plant/a", VALUES[0], headers=headers))
            for value in VALUES[1:]:
                sender.request(lama.push(0, b"plant/b", value))
        with Peer(live.address) as sensor:
            sensor.send(herald.handshake_pub() + herald.publish(7, b"high") + herald.PING)
            assert herald.PONG in sensor.receive(16 + len(herald.PONG))
        yield live


def at(broker: LiveBroker, scheme: str = "tcp") -> str:
    host, port = broker.address
    return f"{scheme}://{host}:{port}"


def has_subscribers(broker: LiveBroker, count: int = 1) -> None:
    sessions = broker.server.broker.sessions
    broker.until(lambda: sum(bool(each.subscriptions) for each in sessions) == count)


def history(commands: Commands, broker: LiveBroker, *arguments: object) -> list[str]:
    done = commands.run("sub", *arguments, "--timeout", 10, "--url", at(broker))
    assert (done.code, done.err) == (0, ""), done
    return done.out.splitlines()


def test_a_line_is_topic_and_value_and_nothing_steers_the_terminal(
    commands: Commands, broker: LiveBroker
) -> None:
    lines = history(commands, broker, "plant/#", "--replay", "earliest", "--count", 4)
    assert lines == [
        "plant/a\t21.5", r"plant/b" + "\t" + r"a\tb\x1b[2J\xff", "plant/b\tü☂", "plant/b\t",
    ]  # fmt: skip


def test_raw_is_the_value_and_a_newline(broker: LiveBroker) -> None:
    arguments = ("plant/#", "--replay", "earliest", "--count", 4, "--timeout", 10, "--raw")
    done = run("sub", *arguments, "--url", at(broker))
    assert (done.code, done.out) == (0, b"".join(value + b"\n" for value in VALUES))


def test_the_help_says_that_a_newline_stands_behind_each_raw_value(commands: Commands) -> None:
    assert "byte for byte, each with a newline" in " ".join(
        commands.run("sub", "--help").out.split()
    )


def test_json_has_what_the_protocol_says(commands: Commands, broker: LiveBroker) -> None:
    arguments = ("plant/#", "--replay", "earliest", "--count", 2, "--json")
    first, second = map(json.loads, history(commands, broker, *arguments))
    assert first.pop("sender").isdigit()
    assert datetime.fromisoformat(first.pop("broker_time")).tzinfo is not None
    assert uuid.UUID(first.pop("message_id")).version == 8
    assert first == {
        "topic": "plant/a", "value": "21.5", "timestamp": "2023-11-14T22:13:20.000000Z",
        "headers": [
            {"key": "source", "value": "shop"},
            {"key": "raw", "value": "/w==", "encoding": "base64"},
        ],
        "partition": 0, "offset": 0, "protocol": "lamamq",
    }  # fmt: skip
    assert "headers" not in second
    assert second["encoding"] == "base64"
    assert base64.b64decode(second["value"]) == VALUES[1]


@pytest.mark.parametrize("protocol", ["rheos1", "rheos2", "fleximq"])
def test_every_protocol_with_names_has_history(
    commands: Commands, broker: LiveBroker, protocol: str
) -> None:
    arguments = ("channel/7", "--replay", "earliest", "--count", 1, "--json")
    (line,) = history(commands, broker, *arguments, "--protocol", protocol)
    found = json.loads(line)
    assert (found["topic"], found["value"], found["protocol"]) == ("channel/7", "high", protocol)
    assert found.keys() >= {"sender", *PLACE}


@pytest.mark.parametrize("protocol", ["rheos1", "rheos2", "fleximq", "lamamq"])
def test_json_says_where_the_messages_of_a_group_are(
    commands: Commands, broker: LiveBroker, protocol: str
) -> None:
    arguments = ("channel/7", "--group", protocol, "--replay", "earliest", "--count", 1, "--json")
    (line,) = history(commands, broker, *arguments, "--protocol", protocol)
    assert json.loads(line).keys() >= {"sender", *PLACE}


@pytest.mark.parametrize(
    ("replay", "first"),
    [("2", "ü☂"), ("10m", "21.5"), ("-10m", "21.5"), ("2020-01-01", "21.5"), ("1.5h", "21.5")],
)
def test_history_starts_where_asked(
    commands: Commands, broker: LiveBroker, replay: str, first: str
) -> None:
    (line,) = history(commands, broker, "plant/#", f"--replay={replay}", "--count", 1)
    assert line.partition("\t")[2] == first


def test_several_patterns_are_listened_to_at_once(commands: Commands, broker: LiveBroker) -> None:
    lines = history(
        commands, broker, "plant/a", "channel/+", "--replay", "earliest", "--count", 2
    )  # fmt: skip
    assert sorted(lines) == ["channel/7\thigh", "plant/a\t21.5"]


def test_a_count_that_is_not_reached_ends_with_one(commands: Commands, broker: LiveBroker) -> None:
    arguments = ("plant/a", "--replay", "earliest", "--count", 2, "--timeout", 0.5)
    done = commands.run("sub", *arguments, "--url", at(broker))
    assert (done.code, done.out) == (1, "plant/a\t21.5\n")
    assert done.err == "penstock: 1 of 2 messages came within 0.5 s\n"


def test_time_that_runs_out_without_a_count_is_no_fault(
    commands: Commands, broker: LiveBroker
) -> None:
    started = time.monotonic()
    done = commands.run("sub", "never/#", "--timeout", 0.3, "--url", at(broker))
    assert done == (0, "", "")
    assert time.monotonic() - started >= 0.3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_lines_leave_as_they_come_and_an_interrupt_sums_up(
    broker: LiveBroker, number: signal.Signals
) -> None:
    with Running("sub", "7", "--protocol", "herald", "--json", "--url", at(broker)) as command:
        has_subscribers(broker)
        with lama.client(broker) as sender:
            sender.request(lama.push(0, b"channel/7", b"one"))
            found = json.loads(command.line())
            assert datetime.fromisoformat(found.pop("timestamp")).tzinfo is not None
            assert found.pop("sender").isdigit()
            assert {found.pop(name) for name in PLACE} != {None}
            assert found == {"topic": "channel/7", "value": "one", "protocol": "herald"}
            sender.request(lama.push(0, b"channel/7", b"two"))
            assert json.loads(command.line())["value"] == "two"
        assert command.end(number) == (0, "2 messages, 6 bytes.\n")
    has_subscribers(broker, 0)


def test_a_reader_that_has_enough_ends_it_quietly(broker: LiveBroker) -> None:
    with Running("sub", "pipe/#", "--url", at(broker)) as command, lama.client(broker) as sender:
        has_subscribers(broker)
        sender.request(lama.push(0, b"pipe/1", b"one"))
        assert command.stdout.readline() == b"pipe/1\tone\n"
        command.stdout.close()
        sender.request(lama.push(0, b"pipe/1", b"two"))
        assert command.wait() == (0, "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["t", "--replay", "yesterday"], "'yesterday' is no start position. Give earliest"),
        (["t", "--replay", "x@earliest"], "is no start position"),
        (["7", "--replay", "earliest", "--protocol", "herald"], "set herald.replay in the broker"),
        (["t", "--protocol", "herald"], "'t' is no herald channel"),
        (["a/#/b"], "nothing can be subscribed to by 'a/#/b'"),
        (["t", "--raw", "--json"], "--raw"),
        (["t", "--count", "0"], "--count"),
        (["t", "--replay", "999999"], "999999"),
        ([], "PATTERN"),
    ],
)
def test_what_cannot_be_is_one_line(
    commands: Commands, broker: LiveBroker, arguments: list[str], said: str
) -> None:
    line = commands.run("sub", *arguments, "--timeout", 5, "--url", at(broker)).error_line()
    assert said in line


def test_a_broker_without_a_log_has_no_history(commands: Commands) -> None:
    with LiveBroker() as forgetful:
        arguments = ("t", "--replay", "earliest", "--timeout", 5, "--url", at(forgetful))
        assert "keeps no log" in commands.run("sub", *arguments).error_line()


def test_a_broker_that_goes_is_told_of_and_waited_for() -> None:
    with LiveBroker() as broker:
        command = Running("sub", "t", "--url", at(broker))
        with command:
            has_subscribers(broker)
            sessions = broker.server.broker.sessions
            broker.call(lambda: [each.link.close() for each in list(sessions)])
            assert command.popen.stderr is not None
            lost, *again = (command.popen.stderr.readline().decode() for _ in range(3))
            code, said = command.end()
    assert code == 0
    assert lost.startswith("penstock: the connection was lost: ")
    assert sorted(again) == [
        "penstock: 't' goes on, but messages may be missing: the broker keeps no log\n",
        "penstock: connected again\n",
    ]
    assert said == "0 messages, 0 bytes.\n"


def test_members_of_a_group_acknowledge_what_they_print(
    commands: Commands, broker: LiveBroker
) -> None:
    arguments = ("plant/#", "--group", "printers", "--replay", "earliest", "--count")
    first = history(commands, broker, *arguments, 3)
    rest = history(commands, broker, *arguments, 1)
    assert [*first, *rest] == history(
        commands, broker, "plant/#", "--replay", "earliest", "--count", 4
    )
