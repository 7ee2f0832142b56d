"""Every setting with its value and source, without secrets."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from penstock.server.config import Config
from penstock.server.config_loading import load_sources
from penstock.settings import setting_types

__all__ = ["HIDDEN", "Setting", "settings", "toml_line"]

HIDDEN: Final = "(hidden)"
_SECRETS: Final = frozenset(
    {
        "token",
        "password",
        "password_hash",
        "api_key",
        "api_key_sha256",
        "key_sha256",
        "secret",
        "token_sha256",
    }
)
"""Keys whose values are hidden: secrets, and hashes that can be searched for secrets."""
_SECRET_TABLES: Final = frozenset({"env", "kafka"})


class Setting(NamedTuple):
    """One setting. `source` is "default", the file's name, or an environment variable."""

    key: str
    value: Any
    source: str


def settings(file: Path | None, environment: Mapping[str, str]) -> list[Setting]:
    """Return all settings in the order of the tables; raise InvalidConfig."""
    config, sources = load_sources(file, environment=environment)
    values: dict[str, Any] = msgspec.to_builtins(config)
    found = []
    for key in setting_types(Config):
        value: Any = values
        for name in key.split("."):
            value = value[name]
        hidden = _without_secrets(value, key.rpartition(".")[2])
        found.append(Setting(key, hidden, sources.get(key, "default")))
    return found


def _without_secrets(value: Any, name: str) -> Any:  # noqa: ANN401
    """Return a value without its secrets and without keys that are not set."""
    if name in _SECRETS and value is not None:
        return HIDDEN
    if isinstance(value, dict):
        if name in _SECRET_TABLES:
            return {
                key: inner if isinstance(inner, dict) else HIDDEN for key, inner in value.items()
            }
        return {
            key: _without_secrets(inner, key) for key, inner in value.items() if inner is not None
        }
    if isinstance(value, list | tuple):
        return [_without_secrets(each, "") for each in value]
    return value


def toml_line(setting: Setting) -> str:
    """Return a setting as TOML with its source in a comment; a list of tables has many lines."""
    key, value, source = setting
    if value is None:
        return f"# {key} is not set"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        items = "".join(f"  {_toml(each)},\n" for each in value)
        return f"{key} = [  # {source}\n{items}]"
    return f"{key} = {_toml(value)}  # {source}"


def _toml(value: Any) -> str:  # noqa: ANN401
    match value:
        case dict():
            inner = ", ".join(f"{_toml_key(key)} = {_toml(each)}" for key, each in value.items())
            return f"{{ {inner} }}" if inner else "{}"
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case str():
            # A JSON string is a basic string of TOML, except that TOML escapes DEL, too.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case bool():
            return str(value).lower()
        case _:
            return str(value)


def _toml_key(key: str) -> str:
    plain = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if plain else _toml(key)
