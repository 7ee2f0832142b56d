"""`penstock config`: every setting with its source, every problem with its key."""

import json
import tomllib
from pathlib import Path

import msgspec
import pytest

from penstock.errors import InvalidConfig
from penstock.server.config_environment import variables
from penstock.server.config_loading import load
from tests.support.commands import Commands, Done

EXAMPLE = Path(__file__).parents[4] / "examples" / "penstock.toml"
HASH = "$argon2id$v=19$m=65536,t=3,p=4$c2FsdHNhbHQ$RdescudvJCsgt3ub+b7dWRWJTmaaJObG"
WRONG = """
[broker]
session_max = 3
durability = "disk"
[log]
bytes_max = "x"
[[listener]]
url = "tcp://127.0.0.1:7000"
echo = "yes"
[[listener]]
protocol = "herald"
[[principal]]
name = "a"
token = 4711
"""
UNFIT = """
[herald]
channels = { 300 = "x", 7 = "a/#", 8 = "b", 9 = "b" }
replay = { 3 = "@earliest" }
[http]
address = "nope"
[[log.durability]]
topics = ["a/#/b"]
durability = "os"
[[log.durability]]
topics = ["a"]
durability = "os"
[[log.durability]]
topics = ["#/b"]
durability = "os"
[[listener]]
url = "tcp://127.0.0.1:7000"
[[listener]]
url = "tcp://127.0.0.1:7000"
[[listener]]
url = "tls://127.0.0.1:7001"
[[listener]]
url = "smtp://127.0.0.1:25"
[[anonymous.rule]]
topics = ["a"]
[[principal]]
name = "a"
[[principal]]
name = "b"
basic = { username = "u", password_hash = "open sesame" }
[[principal.rule]]
topics = ["x"]
allow = ["publish"]
deny = ["publish"]
[[principal]]
name = "b"
token = "t"
"""


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_CONFIG", raising=False)
    for name in variables():
        monkeypatch.delenv(name, raising=False)


def write(folder: Path, text: str) -> Path:
    file = folder / "penstock.toml"
    file.write_text(text)
    return file


def settings(done: Done) -> dict[str, dict[str, object]]:
    assert (done.code, done.err) == (0, ""), done
    found: dict[str, dict[str, object]] = json.loads(done.out)["settings"]
    return found


def test_every_setting_is_shown_with_where_it_came_from(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, '[broker]\nsessions_max = 5\ndurability = "os"\n')
    monkeypatch.setenv("PENSTOCK_BROKER__DURABILITY", "memory")
    done = commands.run("config", "show", "--file", file, "--json")
    found = settings(done)
    assert json.loads(done.out)["file"] == str(file)
    assert set(found) == {".".join(path) for path, _ in variables().values()}
    assert found["broker.sessions_max"] == {"value": 5, "source": str(file)}
    assert found["broker.durability"] == {
        "value": "memory", "source": "PENSTOCK_BROKER__DURABILITY",
    }  # fmt: skip
    assert found["broker.subscriptions_max"]["source"] == "default"
    lines = commands.run("config", "show", "--file", file).out.splitlines()
    assert f"broker.sessions_max = 5  # {file}" in lines
    assert 'broker.durability = "memory"  # PENSTOCK_BROKER__DURABILITY' in lines


def test_without_a_file_all_is_default_but_the_listeners_are_there(commands: Commands) -> None:
    found = settings(commands.run("config", "show", "--json"))
    assert {each["source"] for each in found.values()} == {"default"}
    assert found["listener"]["value"][0] == {"url": "tcp://127.0.0.1:7000"}  # type: ignore[index]


def test_the_environment_may_name_the_file(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, "[broker]\nsessions_max = 5\n")
    monkeypatch.setenv("PENSTOCK_CONFIG", str(file))
    assert settings(commands.run("config", "show", "--json"))["broker.sessions_max"] == {
        "value": 5, "source": str(file),
    }  # fmt: skip
    file.write_text("[broker]\nsessions_max = 0\n")
    assert commands.run("config", "check").code == 1


def test_what_is_shown_is_toml_that_means_the_same(commands: Commands, tmp_path: Path) -> None:
    text = EXAMPLE.read_text().partition("[[principal]]")[0]
    file = write(tmp_path, text.replace('"tcp://0.0.0.0:7001"', '"tcp://127.0.0.1:7001"'))
    shown = commands.run("config", "show", "--file", file).out
    assert tomllib.loads(shown)["herald"]["channels"] == {
        "1": "plant/heartbeat",
        "7": "plant/alarms",
    }
    again = tmp_path / "again.toml"
    again.write_text(shown)
    assert msgspec.to_builtins(load(again)) == msgspec.to_builtins(load(file))


def test_secrets_are_hidden(commands: Commands, tmp_path: Path) -> None:
    file = write(
        tmp_path,
        f"""
[[principal]]
name = "panel"
token = "sesame-token"
api_key_sha256 = "{"ab" * 32}"
basic = {{ username = "panel", password_hash = "{HASH}" }}
lamamq = {{ identity = "gateway", key_sha256 = "{"cd" * 32}" }}
[[program]]
command = ["python3", "service.py"]
env = {{ SERVICE_SECRET = "sesame-env" }}
""",
    )
    for arguments in ([], ["--json"]):
        done = commands.run("config", "show", "--file", file, *arguments)
        assert done.code == 0, done
        for secret in ("sesame", "abab", "cdcd", HASH):
            assert secret not in done.out
        for plain in ("panel", "gateway", "service.py", "SERVICE_SECRET", "(hidden)"):
            assert plain in done.out


def test_a_file_that_is_wrong_is_not_shown(commands: Commands, tmp_path: Path) -> None:
    file = write(tmp_path, WRONG)
    problems = commands.run("config", "check", "--file", file).out.splitlines()[:-1]
    for command in (["config", "show"], ["serve"]):
        done = commands.run(*command, "--config", file)
        assert (done.code, done.out) == (2, "")
        assert done.err.splitlines() == [f"penstock: {each}" for each in problems]
    missing = commands.run("config", "show", "--file", tmp_path / "none.toml").error_line()
    assert "none.toml: cannot be read: no such file or directory" in missing


def test_what_is_right_is_right(commands: Commands) -> None:
    for arguments in ([], ["--file", EXAMPLE], ["--config", EXAMPLE]):
        done = commands.run("config", "check", *arguments)
        assert done == (0, "The configuration is valid.\n", "")
    found = json.loads(commands.run("config", "check", "--file", EXAMPLE, "--json").out)
    assert found == {"right": True, "file": str(EXAMPLE), "problems": []}


def test_every_value_that_is_wrong_is_told(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, WRONG)
    monkeypatch.setenv("PENSTOCK_BROKER__SUBSCRIPTIONS_MAX", "0")
    monkeypatch.setenv("PENSTOCK_HTTP__ADRESS", "127.0.0.1:1")
    monkeypatch.setenv("PENSTOCK_SERVICE_HOST", "10.0.0.1")  # an orchestrator's, not a setting
    done = commands.run("config", "check", "--file", file)
    assert (done.code, done.err) == (1, "")
    assert done.out.splitlines() == [
        f'{file}:3: broker.session_max: unknown key; did you mean "sessions_max"?',
        f'{file}:4: broker.durability: expected "fsync", "memory" or "os", got "disk"',
        f'{file}:6: log.bytes_max: expected a whole number of at least 0, got "x"',
        f'{file}:9: listener[0].echo: expected true or false, got "yes"',
        f"{file}:10: listener[1].url: missing; expected a string, not empty",
        f"{file}:14: principal[0].token: expected a string, not empty, got a number",
        (
            "PENSTOCK_BROKER__SUBSCRIPTIONS_MAX: broker.subscriptions_max: "
            "expected a whole number of at least 1, got 0"
        ),
        "PENSTOCK_HTTP__ADRESS: unknown variable; expected PENSTOCK_ and a key, as BROKER__KEY",
        "8 problems.",
    ]


def test_everything_that_does_not_fit_together_is_told(commands: Commands, tmp_path: Path) -> None:
    file = write(tmp_path, UNFIT)
    done = commands.run("config", "check", "--file", file, "--json")
    assert (done.code, done.err) == (1, "")
    assert "sesame" not in done.out
    found = json.loads(done.out)
    assert found["right"] is False
    assert [each["source"] for each in found["problems"]] == [
        f"{file}:{line}" for line in (3, 3, 3, 4, 8, 14, 24, 26, 30, 36, 31, 6, 19, 20, 23)
    ]
    assert [each["key"] for each in found["problems"]] == [
        "herald.channels.300", "herald.channels.7", "herald.channels.9", "herald.replay.3",
        "log.durability[0].topics", "log.durability[2].topics", "anonymous.rule[0]",
        "principal[0]", "principal[1].basic.password_hash", "principal[2].name",
        "principal[1].rule[0]", "http.address", "listener[1].url", "listener[2]", "listener[3].url",
    ]  # fmt: skip


@pytest.mark.parametrize("text", [WRONG, UNFIT, "", "[broker]\ndurability = 'memory'\n", "= 3"])
def test_a_broker_starts_by_what_has_no_problems_and_by_nothing_else(
    commands: Commands, tmp_path: Path, text: str
) -> None:
    file = write(tmp_path, text)
    done = commands.run("config", "check", "--file", file)
    expected: list[str] = []
    try:
        load(file)
    except InvalidConfig as error:
        expected = list(map(str, error.problems))
    assert done.code == (1 if expected else 0)
    assert not expected or done.out.splitlines()[:-1] == expected


def test_a_setting_of_the_environment_is_judged_with_the_file(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, '[herald]\nreplay = { 7 = "@earliest" }\n')
    assert commands.run("config", "check", "--file", file).code == 0
    monkeypatch.setenv("PENSTOCK_BROKER__DURABILITY", "memory")
    assert "there is no history" in commands.run("config", "check", "--file", file).out


def test_problems_of_values_do_not_hide_problems_of_other_tables(
    commands: Commands, tmp_path: Path
) -> None:
    file = write(
        tmp_path,
        '[broker]\nsessions_max = 0\n[herald.channels]\n300 = "x"\n[[listener]]\nurl = "nope"\n',
    )
    found = json.loads(commands.run("config", "check", "--file", file, "--json").out)
    keys = [each["key"] for each in found["problems"]]
    assert keys == ["broker.sessions_max", "herald.channels.300", "listener[0].url"]


def test_a_check_is_skipped_where_a_table_that_it_reads_has_a_problem(
    commands: Commands, tmp_path: Path
) -> None:
    # Whether the listener is safe depends on the principals, and those cannot be read.
    file = write(
        tmp_path, '[[listener]]\nurl = "tcp://0.0.0.0:7000"\n[[principal]]\nname = "a"\ntoken = 1\n'
    )
    found = json.loads(commands.run("config", "check", "--file", file, "--json").out)
    assert [each["key"] for each in found["problems"]] == ["principal[0].token"]
