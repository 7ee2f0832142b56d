"""The users file: hashes alone, replaced as a whole, and merged with the configuration."""

import os
import stat
import threading
from pathlib import Path

import pytest

from penstock.errors import ConfigError, InvalidConfig
from penstock.server import users_file
from penstock.server.config import Config
from penstock.server.config_loading import load
from penstock.server.credentials import Authenticator, hash_key
from penstock.server.users_file import UserConfig, changed_users, read_users

SHA = hash_key(b"secret")
CONFIG = '[auth]\nusers = "users.toml"\n'


def written(folder: Path, text: str) -> Path:
    file = folder / "users.toml"
    file.write_text(text)
    file.chmod(0o600)
    return file


def loaded(folder: Path, text: str = CONFIG) -> Config:
    (folder / "penstock.toml").write_text(text)
    return load(folder / "penstock.toml")


def test_users_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "users.toml"
    users = [
        UserConfig(name="ada", password_hash="$argon2id$", default="allow"),  # noqa: S106
        UserConfig(name='"quoted" \\ and ünïcode', token_sha256=SHA),
        UserConfig(name="press", api_key_sha256=SHA, identity_key_sha256=SHA),
    ]
    for user in users:
        with changed_users(file) as known:
            known[user.name] = user
    assert read_users(file) == tuple(users)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {each.name for each in tmp_path.iterdir()} == {"users.toml", ".users.toml.lock"}


def test_a_block_that_fails_changes_nothing(tmp_path: Path) -> None:
    file = written(tmp_path, '[[user]]\nname = "ada"\n')
    before = file.read_bytes()

    def fail() -> None:
        with changed_users(file) as users:
            users.clear()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert file.read_bytes() == before


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "users.toml"

    def add(start: int) -> None:
        for number in range(start, start + 4):
            with changed_users(file) as users:
                users[f"user-{number}"] = UserConfig(name=f"user-{number}")

    threads = [threading.Thread(target=add, args=(start,)) for start in (0, 4, 8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(read_users(file)) == 12


def test_a_writer_that_waits_too_long_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users_file, "USERS_LOCK_SECONDS_MAX", 0.05)
    file = tmp_path / "users.toml"
    with changed_users(file), pytest.raises(ConfigError, match="another process is changing it"):
        changed_users(file).__enter__()


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "users.toml"
    link.symlink_to(tmp_path / "real" / "users.toml")
    with changed_users(link) as users:
        users["ada"] = UserConfig(name="ada")
    assert link.is_symlink()
    assert read_users(link) == (UserConfig(name="ada"),)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[[user]]\nname = "a"\n[[user]]\nname = "a"\n', r":4: user\[1\].name: user\[0\] has"),
        (
            '[[user]]\nname = "a"\ntoken_sha256 = "secret"\n',
            r":3: user\[0\].token_sha256: expected 64",
        ),
        ('[[user]]\nnam = "a"\n', "unknown key"),
        ("= 3", "expected TOML"),
    ],
)
def test_problems_name_file_and_line_and_no_secret(tmp_path: Path, text: str, problem: str) -> None:
    written(tmp_path, text)
    with pytest.raises(InvalidConfig, match=problem) as caught:
        loaded(tmp_path)
    assert "secret" not in str(caught.value)


def test_a_missing_file_and_one_that_others_may_change_are_problems(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="make it with `penstock user add`"):
        loaded(tmp_path)
    written(tmp_path, "").chmod(0o620)
    with pytest.raises(InvalidConfig, match="expected permissions 0600"):
        loaded(tmp_path)
    os.chmod(tmp_path / "users.toml", 0o640)  # noqa: PTH101
    loaded(tmp_path)


def test_a_user_has_the_rights_of_its_principal_and_else_none(tmp_path: Path) -> None:
    written(
        tmp_path,
        f'[[user]]\nname = "ada"\ntoken_sha256 = "{hash_key(b"1")}"\n'
        f'[[user]]\nname = "bob"\ntoken_sha256 = "{hash_key(b"2")}"\n'
        f'[[user]]\nname = "eve"\ntoken_sha256 = "{hash_key(b"3")}"\ndefault = "allow"\n',
    )
    config = loaded(tmp_path, CONFIG + '[[principal]]\nname = "ada"\n')
    assert [each.name for each in config.principal] == ["ada", "bob", "eve"]
    authenticator = Authenticator(config)
    found = [authenticator.verify_token(token) for token in "123"]
    assert [each.default for each in found] == [True, False, True]
    authenticator.close()


def test_a_credential_in_both_files_is_a_problem_of_the_users_file(tmp_path: Path) -> None:
    written(tmp_path, f'\n\n[[user]]\nname = "ada"\ntoken_sha256 = "{SHA}"\n')
    text = CONFIG + f'[[principal]]\nname = "ada"\ntoken_sha256 = "{SHA}"\n'
    with pytest.raises(InvalidConfig, match=r"users.toml:3: principal\[0\].token_sha256: the conf"):
        loaded(tmp_path, text)
    weak = "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$MTIzNDU2Nzg5MDEyMzQ1Ng"
    written(tmp_path, f'[[user]]\nname = "ada"\npassword_hash = "{weak}"\n')
    with pytest.raises(InvalidConfig, match=r"users.toml:1: principal\[0\].basic.*too weak"):
        loaded(tmp_path)
