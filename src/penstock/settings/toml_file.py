"""A TOML file: its values, and the line of each key."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from penstock.errors import ConfigError, InvalidConfig
from penstock.settings.key_lines import key_lines

__all__ = ["TomlFile", "read_toml"]


class TomlFile(NamedTuple):
    """The contents of a TOML file. `lines` has the line of each key that is known, from 1."""

    name: str
    values: dict[str, Any]
    lines: Mapping[str, int]


def read_toml(file: Path, *, remedy: str) -> TomlFile:
    """Return the contents of a file; raise InvalidConfig.

    `remedy` says what to do if there is no such file.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise _unusable(file, f"cannot be read: {reason}; {remedy}") from None
    except UnicodeDecodeError:
        raise _unusable(file, "expected TOML in UTF-8") from None
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _unusable(file, f"expected TOML: {' '.join(str(error).split())}") from None
    return TomlFile(str(file), values, key_lines(text))


def _unusable(file: Path, problem: str) -> InvalidConfig:
    return InvalidConfig.of(ConfigError(str(file), "", problem))
