"""Arguments that no command can do anything with: one line, never a traceback."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import lamamq_bytes as lama
from tests.support.live import LiveBroker
from tests.support.running import PENSTOCK, SECONDS_MAX, environment, run


@pytest.fixture(scope="module")
def broker() -> Iterator[LiveBroker]:
    with LiveBroker() as live:
        yield live


def at(broker: LiveBroker) -> str:
    return "tcp://{}:{}".format(*broker.address)


def ended(*arguments: str | bytes, **more: str) -> tuple[int, str]:
    """The exit code and standard error of a command whose arguments may be any bytes."""
    done = subprocess.run(  # noqa: S603
        [*PENSTOCK, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
        env=environment(**more),
    )
    assert done.stdout == b""
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (["pub", b"a\xff", "b"], "TOPIC"),
        (["pub", "a", "b", "--name", b"a\xff"], "--name"),
        (["pub", "a", "b", "--header", b"a\xff"], "--header"),
        (["pub", "a", "b", "--url", b"a\xff"], "--url"),
        (["sub", "a", b"a\xff"], "PATTERNS"),
        (["req", b"a\xff"], "PATH"),
        (["reply", b"a\xff", "ok"], "PATH"),
        (["topics", "--prefix", b"a\xff"], "--prefix"),
        (["sql", b"a\xff"], "QUERY"),
        (["log", "read", b"a\xff"], "PATTERN"),
    ],
)
def test_text_that_is_not_utf8_is_one_line(arguments: list[str | bytes], place: str) -> None:
    code, said = ended(*arguments)
    told = rf"penstock: Invalid value for {place}: 'a\xff' is not UTF-8; write it in UTF-8. See: "
    assert code == 2
    assert said.startswith(told)
    assert said.count("\n") == 1


def test_a_value_may_be_any_bytes(broker: LiveBroker) -> None:
    with lama.subscriber(broker, b"any") as listener:
        done = subprocess.run(  # noqa: S603
            [*PENSTOCK, "pub", "any", b"a\xff", "--url", at(broker)],
            timeout=SECONDS_MAX, check=True, capture_output=True, env=environment(),
        )  # fmt: skip
        assert done.stderr == b""
        assert listener.forwarded().payload == b"a\xff"


def test_a_path_may_be_any_bytes(tmp_path: Path) -> None:
    code, said = ended("log", "ls", "--data", bytes(tmp_path) + b"/\xff")
    assert code == 2
    assert "there is no such folder" in said


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (["pub", "a", "b", "--rate", "inf"], "--rate"),
        (["pub", "a", "b", "--timeout", "inf"], "--timeout"),
        (["sub", "a", "--timeout", "inf"], "--timeout"),
    ],
)
def test_a_number_without_end_is_one_line(arguments: list[str], place: str) -> None:
    code, said = ended(*arguments)
    assert code == 2
    assert said.startswith(f"penstock: Invalid value for {place}: inf is not finite; give less. ")


@pytest.mark.parametrize("command", ["pub a -", "pub a", "req /a -", "hash-password", "decode -"])
def test_a_closed_standard_input_is_one_line(command: str) -> None:
    done = subprocess.run(  # noqa: S603
        ["/bin/sh", "-c", f'exec "$0" -m penstock.cli {command} <&-', sys.executable],
        capture_output=True, text=True, timeout=SECONDS_MAX, check=False, env=environment(),
    )  # fmt: skip
    line = "penstock: standard input is closed; redirect a file or a pipe to it\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)


def test_lines_of_a_closed_standard_input_are_one_line(broker: LiveBroker) -> None:
    done = subprocess.run(  # noqa: S603
        ["/bin/sh", "-c", f'exec "$0" -m penstock.cli pub a --lines --url {at(broker)} <&-',
         sys.executable],
        capture_output=True, text=True, timeout=SECONDS_MAX, check=False, env=environment(),
    )  # fmt: skip
    line = "penstock: standard input is closed; redirect a file or a pipe to it\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)


@pytest.mark.parametrize("command", ["hash-password", "hash-key"])
def test_a_secret_that_is_not_utf8_is_one_line_without_it(command: str) -> None:
    done = run(command, data=b"secret\xff\n")
    assert (done.code, done.out) == (2, b"")
    assert "on standard input is not UTF-8. See: " in done.err
    assert "secret" not in done.err


def test_a_variable_that_is_not_utf8_is_one_line_without_it() -> None:
    code, said = ended("pub", "a", "b", "--protocol", "fleximq", PENSTOCK_TOKEN="secret\udcff")  # noqa: S106
    line = "penstock: PENSTOCK_TOKEN is not UTF-8; set it to text in UTF-8\n"
    assert (code, said) == (2, line)
