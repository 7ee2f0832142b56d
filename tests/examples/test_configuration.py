"""What docs/configuration.md shows is so: its commands run, its variables and errors are real."""

import re
import shlex
from pathlib import Path

import pytest

from penstock.cli.main import command_line
from penstock.core.access import Action
from penstock.server.config import Config
from penstock.server.config_loading import load
from penstock.server.credentials import Authenticator
from tests.support.running import run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "configuration.md").read_text()
COMMANDS, VARIABLES, ERRORS = re.findall(r"^```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "penstock.toml").write_text("[broker]\nsessions_max = 5\n")
    return tmp_path / "penstock.toml"


def test_the_options_of_serve_are_those_shown(file: Path) -> None:
    usage = COMMANDS.partition("penstock config")[0]
    shown = set(re.findall(r"--\w+", usage))
    told = run("serve", "--help").out.decode()
    assert shown == set(re.findall(r"^  (--\w+)", told, re.MULTILINE))
    given = [
        *("--config", file, "--listen", "tcp://127.0.0.1:0", "--data", file.parent / "data"),
        *("--http", "127.0.0.1:0", "--flight", "127.0.0.1:0", "--durability", "os"),
        *("--console", "--check"),
    ]
    assert {each for each in given if str(each).startswith("--")} == shown - {"--storage"}
    for options in (given, ["--storage", "kafka://127.0.0.1:9092/penstock?node=3", "--check"]):
        done = run("serve", *options)
        assert (done.code, done.err) == (0, "")


def test_the_other_commands_run() -> None:
    lines = COMMANDS.splitlines()[2:]
    assert len(lines) == 5
    for line in lines:
        name, *arguments = shlex.split(line, comments=True)
        assert name == "penstock"
        plain = [each for each in arguments if not each.startswith("[")]
        more = [each.strip("[]") for each in arguments if each.startswith("[")]
        for given in [plain, [*plain, *more]][: 1 + bool(more)]:
            done = run(*given, data=b"a secret\n")
            assert (done.code, done.err) == (0, ""), line
            assert done.out, line


def test_every_variable_sets_what_it_says() -> None:
    environment = dict(each.split("=", 1) for each in shlex.split(VARIABLES))
    found = load(environment=environment)
    assert found.broker.sessions_max == 500 != Config().broker.sessions_max
    assert found.broker.durability == "memory"
    assert found.channels == {7: "alarms"}
    (listener,) = found.listener
    assert (listener.address.location, listener.protocol) == ("tcp://127.0.0.1:7001", "herald")


WRONG = (
    ("[broker]\nsession_max = 3\n", {}),
    ('[[listener]]\nurl = "tcp://127.0.0.1:0"\n' * 2 + 'echo = "yes"\n', {}),
    ("", {"PENSTOCK_BROKER__SESSIONS_MAX": "0"}),
)


@pytest.mark.parametrize(
    ("shown", "wrong"), list(zip(ERRORS.splitlines(), WRONG, strict=True)), ids=range(len(WRONG))
)
def test_an_error_is_the_line_shown(
    file: Path, shown: str, wrong: tuple[str, dict[str, str]]
) -> None:
    text, variables = wrong
    file.write_text(text)
    done = run("serve", "--check", "--config", file, **variables)
    assert done.code == 2
    assert done.err.replace(f"{file.parent}/", "") == f"{shown}\n"


def test_every_command_that_is_shown_exists() -> None:
    names = set(command_line().commands)
    assert set(re.findall(r"`penstock (\w[\w-]*)", PAGE)) <= names


def test_the_role_gives_its_rights(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "penstock.toml").write_text(text)
    authenticator = Authenticator(load(tmp_path / "penstock.toml", environment={}))
    ann = authenticator.principals["ann"]
    assert ann.may(Action.ADMINISTER, "clients")
    assert not ann.may(Action.PUBLISH, "a")
    authenticator.close()
