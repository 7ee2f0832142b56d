"""What a newcomer runs into: no broker, wrong ports, no Java, typing errors, pipes that close."""

import re
import signal
import subprocess
from pathlib import Path

import pytest

from penstock.cli.main import command_line
from tests.support.commands import Commands
from tests.support.http_live import HttpBroker
from tests.support.live import LiveBroker
from tests.support.running import PENSTOCK, SECONDS_MAX, Running, environment, run
from tests.support.served import free_port, until
from tests.support.written_log import WrittenLog

COMMANDS = [
    [name, *inner]
    for name, command in command_line().commands.items()
    for inner in ([[each] for each in getattr(command, "commands", {})] or [[]])
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: "-".join(map(str, each)))
def test_help_has_examples_and_lists_no_cut_sentence(
    commands: Commands, command: list[str]
) -> None:
    done = commands.run(*command, "-h")
    assert done.code == 0
    assert f"penstock {' '.join(command)}" in done.out.partition("Examples:")[2]
    assert "..." not in commands.run(*command[:-1], "--help").out.partition("Commands:")[2]


@pytest.mark.parametrize(
    "group",
    [
        [],
        *(
            [name]
            for name, *inner in COMMANDS
            if inner and name not in ("topics", "clients", "groups")
        ),
    ],
    ids=str,
)
def test_without_a_command_the_help_is_shown(commands: Commands, group: list[str]) -> None:
    done = commands.run(*group)
    assert (done.code, done.out) == (2, "")
    assert done.err == commands.run(*group, "--help").out


def test_a_wrong_option_names_the_help_of_its_command(commands: Commands) -> None:
    line = commands.run("log", "ls", "--nothing").error_line()
    assert line == "No such option: --nothing. See: penstock log ls --help"


def test_without_a_broker_the_reason_is_in_words(commands: Commands) -> None:
    url = f"tcp://127.0.0.1:{free_port()}"
    line = commands.run("pub", "a", "1", "--url", url).error_line()
    assert line.startswith(f"no connection to {url}: connection refused; start a broker with ")


def test_a_port_that_speaks_no_http_is_told(commands: Commands) -> None:
    with LiveBroker() as broker:
        url = "http://{}:{}".format(*broker.address)
        line = commands.run("topics", "--url", url).error_line()
    assert line.startswith(f"the server at {url} is not a broker's HTTP API; give --url ")


def test_a_subscriber_ends_when_its_reader_has_enough_though_nothing_comes() -> None:
    with HttpBroker() as broker:
        url = "tcp://{}:{}".format(*broker.address)
        with Running("sub", "quiet", "--url", url) as subscriber:
            until(
                lambda: broker.get("/api/subscriptions").json()["subscriptions"], "a subscription"
            )
            subscriber.stdout.close()
            assert subscriber.wait() == (0, "")


def test_output_that_finds_no_room_is_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(  # noqa: S603
            [*PENSTOCK, "config", "show"], stdout=full, stderr=subprocess.PIPE, text=True,
            timeout=SECONDS_MAX, check=False, env=environment(),
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == (
        "penstock: cannot write the output: no space left on device; free some space\n"
    )


@pytest.mark.parametrize("home", ["", "/nowhere"])
def test_without_java_one_line_says_what_to_install(tmp_path: Path, home: str) -> None:
    (tmp_path / "pipeline.toml").write_text("")
    with WrittenLog(tmp_path / "penstock-data") as log:
        log.put_many(1)
    for command in (
        ["sql", "select 1"],
        ["pipeline", "run", "--config", str(tmp_path / "pipeline.toml")],
    ):
        done = run(*command, PATH=str(tmp_path), JAVA_HOME=home)
        place = f"JAVA_HOME, which is {home}" if home else "PATH"
        assert (done.code, done.out) == (2, b"")
        assert done.err == (
            f"penstock: Spark needs Java, and there is none in {place}; install Java 17\n"
        )


@pytest.mark.usefixtures("spark")
def test_what_spark_does_not_take_is_one_line(commands: Commands, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    try:
        line = commands.run("sql", "selec 1").error_line()
        assert re.match(r"sql: \[PARSE_SYNTAX_ERROR\] .*'selec'", line)
        line = commands.run("sql", "select * from nothing").error_line()
        assert line.endswith("; write topics in `backquotes`, and give --config for tables")
        line = commands.run("sql", "select * from `#`", "--data", tmp_path / "none").error_line()
        assert line.startswith(f"cannot read a log in {tmp_path / 'none'}: there is no such folder")
    finally:
        signal.signal(signal.SIGINT, before)
