"""The users file: credentials that `penstock user` maintains, apart from the configuration.

It is a TOML file with one `[[user]]` for each user. Only hashes are stored. A user's rights are
those of the `[[principal]]` with the same name; without one, `default` decides about everything.
"""

import contextlib
import fcntl
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta, Struct, structs

from penstock.errors import ConfigError, InvalidConfig
from penstock.limits import USERS_FILE_BYTES_MAX, USERS_LOCK_SECONDS_MAX
from penstock.server.config import (
    BasicConfig,
    IdentityConfig,
    PrincipalConfig,
    Sha256,
    Verdict,
)
from penstock.settings import Problems, TomlFile, build, read_settings, read_toml

__all__ = ["UserConfig", "changed_users", "merge_users", "read_users", "read_users_file"]

_HEADER: Final = (
    "# Written by `penstock user`, which removes comments and other changes of format.\n"
)
_MODE: Final = 0o600
_LOCK_RETRY_SECONDS: Final = 0.05
_REMEDY: Final = "make it with `penstock user add`, or remove auth.users"


class UserConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[user]]`: the credentials of a user. Its name is its user name and its LamaMQ identity."""

    name: Annotated[str, Meta(min_length=1)]
    password_hash: Annotated[str, Meta(min_length=1)] | None = None
    token_sha256: Sha256 | None = None
    api_key_sha256: Sha256 | None = None
    identity_key_sha256: Sha256 | None = None
    default: Verdict | None = None


class _Users(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    user: tuple[UserConfig, ...] = ()


def read_users(file: Path) -> tuple[UserConfig, ...]:
    """Return the users of a file; raise InvalidConfig."""
    return read_users_file(file)[0]


def read_users_file(file: Path) -> tuple[tuple[UserConfig, ...], TomlFile]:
    """Return the users of a file, and the file with the lines of its keys; raise InvalidConfig."""
    _check_file(file)
    contents = read_toml(file, remedy=_REMEDY)
    problems = Problems(contents, secrets=("user",))
    users = build(_Users, read_settings(contents.values, _Users, problems)).user
    taken: dict[str, int] = {}
    for index, user in enumerate(users):
        first = taken.setdefault(user.name, index)
        if first != index:
            problems.add(f"user[{index}].name", f"user[{first}] has the same; expected another")
    problems.raise_found()
    return users, contents


def _check_file(file: Path) -> None:
    """Raise InvalidConfig if others may change a file, or if it is too large."""
    try:
        status = file.stat()
    except OSError:
        return  # reported when it is read
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        problem = "other users may change it; expected permissions 0600"
        raise InvalidConfig.of(ConfigError(str(file), "", problem))
    if status.st_size > USERS_FILE_BYTES_MAX:
        problem = f"expected at most {USERS_FILE_BYTES_MAX} bytes"
        raise InvalidConfig.of(ConfigError(str(file), "", problem))


def merge_users(
    principals: Sequence[PrincipalConfig], file: Path, problems: Problems
) -> tuple[PrincipalConfig, ...]:
    """Return the principals with the credentials of a users file; add its problems.

    A user without a principal of the same name becomes one, which is denied everything unless its
    `default` is "allow".
    """
    try:
        users, contents = read_users_file(file)
    except InvalidConfig as error:
        problems.found.extend(error.problems)
        return tuple(principals)
    merged = list(principals)
    places = {each.name: index for index, each in enumerate(merged)}
    for number, user in enumerate(users):
        line = contents.lines.get(f"user[{number}]")
        source = contents.name if line is None else f"{contents.name}:{line}"
        index = places.get(user.name)
        if index is None:
            index = len(merged)
            merged.append(PrincipalConfig(name=user.name, default=user.default or "deny"))
            problems.set_source(f"principal[{index}]", source)
        given = _credentials(user)
        for name in given:
            key = f"principal[{index}].{_ENCODED.get(name, name)}"
            problems.set_source(key, source)
            if getattr(merged[index], name) is not None:
                problems.add(key, "the configuration has one, too; remove one of them")
        merged[index] = structs.replace(merged[index], **given)
    if users and "principal" not in problems.sources:
        problems.set_source("principal", contents.name)
    return tuple(merged)


_ENCODED: Final = {field.name: field.encode_name for field in structs.fields(PrincipalConfig)}


def _credentials(user: UserConfig) -> dict[str, object]:
    """Return the credentials of a user as fields of a principal."""
    found: dict[str, object] = {}
    if user.password_hash is not None:
        found["basic"] = BasicConfig(username=user.name, password_hash=user.password_hash)
    if user.token_sha256 is not None:
        found["token_sha256"] = user.token_sha256
    if user.api_key_sha256 is not None:
        found["api_key_sha256"] = user.api_key_sha256
    if user.identity_key_sha256 is not None:
        found["identity_key"] = IdentityConfig(
            identity=user.name, key_sha256=user.identity_key_sha256
        )
    return found


# --- Writing ------------------------------------------------------------------------------------


@contextlib.contextmanager
def changed_users(file: Path) -> Iterator[dict[str, UserConfig]]:
    """Yield the users of a file by name, and write them back if the block changed them.

    A file that does not exist has no users. Another process that changes the same file waits. The
    file is replaced as a whole, so a reader sees the old or the new one. Raise ConfigError.
    """
    file = file.resolve()
    try:
        with _locked(file):
            users = {each.name: each for each in read_users(file)} if file.exists() else {}
            before = dict(users)
            yield users
            if users != before or not file.exists():
                _write(file, _HEADER + "".join(map(_toml, users.values())))
    except BlockingIOError:
        problem = "another process is changing it; try again"
        raise ConfigError(str(file), "", problem) from None
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        problem = f"cannot be written: {reason}; give another file with --users"
        raise ConfigError(str(file), "", problem) from None


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold the lock of a users file; raise OSError if another process holds it for too long."""
    place = file.with_name(f".{file.name}.lock")
    descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)
    try:
        deadline = time.monotonic() + USERS_LOCK_SECONDS_MAX
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_LOCK_RETRY_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _toml(user: UserConfig) -> str:
    # A JSON string is a basic string of TOML, except that TOML escapes DEL, too.
    lines = [
        f"{name} = {json.dumps(value, ensure_ascii=False)}\n".replace("\x7f", "\\u007f")
        for name, value in structs.asdict(user).items()
        if value is not None
    ]
    return "\n[[user]]\n" + "".join(lines)


def _write(file: Path, text: str) -> None:
    """Replace a file; only its owner can read it, the same as before or that of the folder."""
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as written:
            os.fchmod(written.fileno(), _MODE)
            if os.geteuid() == 0:  # the broker may run as another user
                owner = (file if file.exists() else file.parent).stat()
                os.fchown(written.fileno(), owner.st_uid, owner.st_gid)
            written.write(text)
            written.flush()
            os.fsync(written.fileno())
        temporary.replace(file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
