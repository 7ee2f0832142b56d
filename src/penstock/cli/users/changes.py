"""Change and list the users of a users file."""

import os
import secrets
import sys
from pathlib import Path
from typing import Final, Literal

import typer
from msgspec import structs

from penstock.cli.common.columns import print_columns
from penstock.cli.common.failure import CommandFailed
from penstock.cli.common.output import json_line, quiet_pipe, tell
from penstock.cli.common.secret_input import read_secret
from penstock.limits import PASSWORD_BYTES_MAX, PASSWORD_CHARACTERS_MIN
from penstock.server.config_environment import CONFIG_VARIABLE, PREFIX
from penstock.server.config_principals import principal_name_problem
from penstock.server.credentials import hash_key, hash_password
from penstock.server.users_file import UserConfig, changed_users, read_users
from penstock.settings import read_toml

__all__ = ["add", "list_users", "new_secret", "remove", "set_password", "users_file"]

USERS_VARIABLE: Final = f"{PREFIX}AUTH__USERS"
SecretKind = Literal["token_sha256", "api_key_sha256", "identity_key_sha256"]
_KINDS: Final = {
    "password_hash": "password",
    "token_sha256": "token",
    "api_key_sha256": "API key",
    "identity_key_sha256": "identity key",
}


def users_file(config: Path | None, users: Path | None) -> Path:
    """Return the file to change: `--users`, or `auth.users` of the configuration.

    Raise CommandFailed if neither names one, InvalidConfig if the configuration is no TOML.
    """
    if users is not None:
        return users
    if os.environ.get(USERS_VARIABLE):
        return Path(os.environ[USERS_VARIABLE])
    if config is None and os.environ.get(CONFIG_VARIABLE):
        config = Path(os.environ[CONFIG_VARIABLE])
    if config is None:
        raise CommandFailed("no users file is given", "add --config FILE or --users FILE")
    contents = read_toml(config, remedy="give --config the path of a penstock.toml")
    auth = contents.values.get("auth")
    named = auth.get("users") if isinstance(auth, dict) else None
    if not isinstance(named, str) or not named:
        remedy = 'add [auth] with users = "users.toml"'
        raise CommandFailed(f"{config} names no users file", remedy)
    return config.parent / named


def add(file: Path, name: str, *, password: bool, allow_all: bool) -> None:
    """Add a user; raise CommandFailed if there is one of this name."""
    problem = principal_name_problem(name)
    if problem is not None:
        raise CommandFailed(f"{name!r} cannot be the name of a user", problem)
    if file.exists() and name in {each.name for each in read_users(file)}:
        _fail_known(file, name)
    encoded = hash_password(_read_password()) if password else None
    with changed_users(file) as users:
        if name in users:
            _fail_known(file, name)
        default: Literal["allow"] | None = "allow" if allow_all else None
        users[name] = UserConfig(name=name, password_hash=encoded, default=default)
    tell(f"Added {name} to {file}. {_TAKES_EFFECT}")
    if not allow_all:
        tell(f'Its rights are those of the [[principal]] with name = "{name}"; without one, none.')


def set_password(file: Path, name: str) -> None:
    """Change the password of a user; raise CommandFailed if there is none of this name."""
    _check_known(file, name)
    encoded = hash_password(_read_password())
    with changed_users(file) as users:
        users[name] = structs.replace(_user(users, file, name), password_hash=encoded)
    tell(f"Changed the password of {name} in {file}. {_TAKES_EFFECT}")


def new_secret(file: Path, name: str, kind: SecretKind) -> None:
    """Store the hash of a new token or key, and print it on standard output."""
    secret = secrets.token_urlsafe(32)
    _check_known(file, name)
    with changed_users(file) as users:
        changed = structs.replace(_user(users, file, name), **{kind: hash_key(secret.encode())})
        users[name] = changed
    typer.echo(secret)
    tell(f"This is the {_KINDS[kind]} of {name}. It is not shown again. {_TAKES_EFFECT}")


def remove(file: Path, name: str) -> None:
    """Remove a user; raise CommandFailed if there is none of this name."""
    _check_known(file, name)
    with changed_users(file) as users:
        _user(users, file, name)
        del users[name]
    tell(f"Removed {name} from {file}. {_TAKES_EFFECT}")


def list_users(file: Path, *, json: bool) -> None:
    """Print all users with the kinds of their credentials."""
    users = sorted(read_users(file), key=lambda user: user.name)
    kinds = {user.name: _kinds_of(user) for user in users}
    with quiet_pipe():
        if json:
            listed = [
                {
                    "name": user.name,
                    "credentials": kinds[user.name],
                    "allow_all": user.default == "allow",
                }
                for user in users
            ]
            sys.stdout.buffer.write(json_line({"file": str(file), "users": listed}))
        elif users:
            rows = [("NAME", "CREDENTIALS")]
            rows += [(user.name, ", ".join(kinds[user.name]) or "none") for user in users]
            print_columns(rows, left=2)
        else:
            typer.echo(f"{file} has no users.")


def _kinds_of(user: UserConfig) -> list[str]:
    return [name for field, name in _KINDS.items() if getattr(user, field) is not None]


_TAKES_EFFECT: Final = "A running broker reads the file on SIGHUP: kill -HUP PID."


def _check_known(file: Path, name: str) -> None:
    """Raise CommandFailed before a password is asked for in vain."""
    if not file.exists():
        raise CommandFailed(f"{file} does not exist", "add a user first: penstock user add")
    _user({each.name: each for each in read_users(file)}, file, name)


def _user(users: dict[str, UserConfig], file: Path, name: str) -> UserConfig:
    found = users.get(name)
    if found is None:
        raise CommandFailed(f"{file} has no user {name!r}", "penstock user list shows all")
    return found


def _fail_known(file: Path, name: str) -> None:
    remedy = "change it with penstock user passwd, token or key"
    raise CommandFailed(f"{file} has a user {name!r} already", remedy)


def _read_password() -> str:
    """Return a new password; raise CommandFailed if it is too short or too long."""
    password = read_secret("Password")
    if len(password) < PASSWORD_CHARACTERS_MIN:
        raise CommandFailed(
            "the password is too short", f"give one of {PASSWORD_CHARACTERS_MIN} characters or more"
        )
    if len(password.encode()) > PASSWORD_BYTES_MAX:
        raise CommandFailed(
            "the password is too long", f"give one of at most {PASSWORD_BYTES_MAX} bytes"
        )
    return password
