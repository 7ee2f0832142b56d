"""`penstock user` keeps hashes, shows secrets once, and a running broker takes them on SIGHUP."""

import hashlib
import io
import json
import signal
import stat
import sys
import tomllib
from pathlib import Path

import argon2
import pytest

import penstock
from penstock.client.errors import Refused
from tests.support.commands import Commands, Done
from tests.support.running import Running


@pytest.fixture
def commands(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Commands:
    for name in ("PENSTOCK_CONFIG", "PENSTOCK_AUTH__USERS"):
        monkeypatch.delenv(name, raising=False)
    return Commands(capfd, monkeypatch)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "penstock.toml"
    file.write_text('# mine\n[auth]\nusers = "users.toml"\n')
    return file


def users(config: Path) -> dict[str, dict[str, str]]:
    found = tomllib.loads((config.parent / "users.toml").read_text())["user"]
    return {each["name"]: each for each in found}


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_a_user_from_first_to_last(
    commands: Commands, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*arguments: str) -> Done:
        done = commands.run("user", *arguments, "--config", config)
        assert done.code == 0, done
        return done

    typed(monkeypatch, "correct horse\n")
    done = run("add", "ada")
    assert (done.out, "SIGHUP" in done.err) == ("", True)
    assert "[[principal]]" in done.err
    first = users(config)["ada"]["password_hash"]
    assert argon2.PasswordHasher().verify(first, "correct horse")
    assert stat.S_IMODE((config.parent / "users.toml").stat().st_mode) == 0o600

    typed(monkeypatch, "battery staple\n")
    run("passwd", "ada")
    assert argon2.PasswordHasher().verify(users(config)["ada"]["password_hash"], "battery staple")

    for key, arguments in (
        ("token_sha256", ("token", "ada")),
        ("api_key_sha256", ("key", "ada")),
        ("identity_key_sha256", ("key", "ada", "--identity")),
    ):
        secret = run(*arguments).out.strip()
        assert len(secret) >= 40
        assert users(config)["ada"][key] == hashlib.sha256(secret.encode()).hexdigest()
        assert secret not in (config.parent / "users.toml").read_text()
        assert run(*arguments).out.strip() != secret

    run("add", "press", "--no-password", "--allow-all")
    assert users(config)["press"] == {"name": "press", "default": "allow"}
    listed = run("list").out.splitlines()
    assert listed == [
        "NAME   CREDENTIALS",
        "ada    password, token, API key, identity key",
        "press  none",
    ]
    found = json.loads(run("list", "--json").out)["users"]
    assert [each["name"] for each in found] == ["ada", "press"]
    run("remove", "ada")
    assert list(users(config)) == ["press"]
    assert config.read_text().startswith("# mine\n"), "the configuration is not changed"


@pytest.mark.parametrize(
    ("arguments", "text", "problem"),
    [
        (("add", "ada"), "short\n", "the password is too short; give one of 8 characters"),
        (("add", "ada"), "x" * 1025, "the password is too long"),
        (("add", "ada"), "", "Expected the password on standard input"),
        (("add", "anonymous"), "correct horse", "cannot be the name of a user"),
        (("add", "a\nb"), "correct horse", "cannot be the name of a user"),
        (("add", "known"), "correct horse", "has a user 'known' already"),
        (("passwd", "ada"), "correct horse", "has no user 'ada'"),
        (("token", "ada"), "", "has no user 'ada'"),
        (("remove", "ada"), "", "has no user 'ada'"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    commands: Commands,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    arguments: tuple[str, ...],
    text: str,
    problem: str,
) -> None:
    users_file = config.parent / "users.toml"
    users_file.write_text('[[user]]\nname = "known"\n')
    users_file.chmod(0o600)
    typed(monkeypatch, text)
    assert problem in commands.run("user", *arguments, "--config", config).error_line()
    assert list(users(config)) == ["known"]


def test_the_file_must_be_named(commands: Commands, tmp_path: Path) -> None:
    assert "add --config FILE or --users FILE" in commands.run("user", "list").error_line()
    file = tmp_path / "penstock.toml"
    file.write_text("")
    assert "names no users file" in commands.run("user", "list", "--config", file).error_line()
    done = commands.run("user", "token", "ada", "--users", tmp_path / "none.toml")
    assert "none.toml does not exist" in done.error_line()


def test_a_password_is_no_argument(commands: Commands, config: Path) -> None:
    done = commands.run("user", "add", "ada", "correct horse", "--config", config)
    assert done.code == 2


def test_a_running_broker_takes_users_on_sighup(commands: Commands, config: Path) -> None:
    config.write_text(
        config.read_text()
        + '[broker]\ndurability = "memory"\n[[listener]]\nurl = "tcp://127.0.0.1:0"\n'
        + 'anonymous = false\n[[principal]]\nname = "x"\ntoken = "x"\n'
    )
    commands.run("user", "add", "ada", "--no-password", "--allow-all", "--config", config)
    with Running("serve", "--config", config) as broker:
        line = broker.line()
        while "tcp://" not in line:
            line = broker.line()
        url = next(word for word in line.split() if word.startswith("tcp://"))
        while "Ready" not in line:
            line = broker.line()
        first = commands.run("user", "token", "ada", "--config", config).out.strip()
        with pytest.raises(Refused):
            penstock.connect_sync(url, protocol="fleximq", token=first).__enter__()
        broker.popen.send_signal(signal.SIGHUP)
        assert broker.popen.stderr is not None
        while b"reloaded" not in broker.popen.stderr.readline():
            pass
        with penstock.connect_sync(url, protocol="fleximq", token=first) as client:
            client.publish("a", b"x")
