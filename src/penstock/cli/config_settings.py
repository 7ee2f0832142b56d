"""Every setting with its value and where that came from, fit to be shown."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from penstock.server.config_environment import CONFIG_VARIABLE, variables
from penstock.server.config_loading import load

__all__ = ["HIDDEN", "Setting", "settings", "toml_line"]

HIDDEN: Final = "(hidden)"
_SECRETS: Final = frozenset(
    {"token", "password", "password_hash", "api_key", "api_key_sha256", "key_sha256", "secret"}
)
"""Keys whose values are shown to nobody: secrets, and hashes that can be searched for them."""
_SECRET_TABLES: Final = frozenset({"env"})


class Setting(NamedTuple):
    """One setting. `source` is "default", the file's name, or an environment variable."""

    key: str
    value: Any
    source: str


def settings(file: Path | None, environment: Mapping[str, str]) -> list[Setting]:
    """Return what a broker would go by, in the order of the tables; raise ConfigError."""
    config = msgspec.to_builtins(load(file, environment=environment))
    if file is None and environment.get(CONFIG_VARIABLE):
        file = Path(environment[CONFIG_VARIABLE])
    written = {} if file is None else tomllib.loads(file.read_text(encoding="utf-8"))
    found = []
    for variable, (path, _) in variables().items():
        value = _at(config, path)
        if variable in environment:
            source = variable
        elif _at(written, path) is not None:
            source = str(file)
        else:
            source = "default"
        hidden = _without_secrets(value, path[-1])
        found.append(Setting(".".join(path), hidden, source))
    return found


def _at(values: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401
    for name in path:
        values = values.get(name) if isinstance(values, Mapping) else None
    return values


def _without_secrets(value: Any, name: str) -> Any:  # noqa: ANN401
    """Return a value with all that is secret in it hidden, and without what is not set."""
    if name in _SECRETS and value is not None:
        return HIDDEN
    if isinstance(value, dict):
        if name in _SECRET_TABLES:
            return dict.fromkeys(value, HIDDEN)
        return {
            key: _without_secrets(inner, key) for key, inner in value.items() if inner is not None
        }
    if isinstance(value, list | tuple):
        return [_without_secrets(each, "") for each in value]
    return value


def toml_line(setting: Setting) -> str:
    """Return a setting as TOML with its source as comment; a list of tables has several lines."""
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
            # A JSON string is a basic string of TOML; DEL is the one TOML wants escaped besides.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case bool():
            return str(value).lower()
        case _:
            return str(value)


def _toml_key(key: str) -> str:
    plain = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if plain else _toml(key)
