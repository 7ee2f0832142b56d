"""Settings by environment variable: `PENSTOCK_`, then the key in capitals, `__` for each dot.

`PENSTOCK_BROKER__SESSIONS_MAX=500` sets `broker.sessions_max`. The value of a setting that is a
string stands as it is; of any other it is read as TOML. A variable with `__` that names no setting
is an error. Other variables that happen to start with `PENSTOCK_` (an orchestrator sets some for a
service of that name) are left alone, unless they are a setting's but for an underscore.
"""

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, get_args, get_origin

import msgspec

from penstock.errors import ConfigError
from penstock.server.config import Config
from penstock.server.config_reading import Sources, describe, is_table, without_none

__all__ = ["CONFIG_VARIABLE", "PREFIX", "read_environment", "variables"]

PREFIX: Final = "PENSTOCK_"
CONFIG_VARIABLE: Final = "PENSTOCK_CONFIG"
"""Names the file, where `--config` does not."""


def variables() -> dict[str, tuple[tuple[str, ...], Any]]:
    """Return every variable there is: the path of its key, and the type of its value."""
    return {PREFIX + "__".join(path).upper(): (path, kind) for path, kind in _settings(Config, ())}


def _settings(
    table: type[msgspec.Struct], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for field in msgspec.structs.fields(table):
        below = (*path, field.name)
        if is_table(field.type):
            yield from _settings(field.type, below)
        else:
            yield below, field.type


def read_environment(
    environment: Mapping[str, str], values: dict[str, Any], sources: Sources
) -> None:
    """Put what the environment sets over `values`; raise ConfigError if it names no setting."""
    known = variables()
    one_underscore = {name.replace("__", "_"): name for name in known}
    for name in sorted(environment):
        if not name.startswith(PREFIX) or name == CONFIG_VARIABLE:
            continue
        if name not in known:
            meant = one_underscore.get(name.replace("__", "_"))
            if meant is not None:
                raise ConfigError(name, "", f'unknown variable; did you mean "{meant}"?')
            if "__" in name:
                raise ConfigError(
                    name, "", "unknown variable; expected PENSTOCK_ and a key, as BROKER__KEY"
                )
            continue
        path, kind = known[name]
        table = values
        for part in path[:-1]:
            table = table.setdefault(part, {})
        key = ".".join(path)
        sources.came_from(key, name)
        table[path[-1]] = _parse(environment[name], kind, key, sources)


def _parse(text: str, kind: Any, key: str, sources: Sources) -> object:  # noqa: ANN401
    plain = without_none(kind)
    if get_origin(plain) is not Literal and _base(plain) is not str:
        try:
            (value,) = tomllib.loads(f"value = {text}").values()
        except ValueError:  # not TOML, or more than one value
            raise sources.error(key, f"expected {describe(kind)}, written as in TOML") from None
        return value
    return text


def _base(kind: Any) -> Any:  # noqa: ANN401
    """Return the type that an annotated type is of."""
    return get_args(kind)[0] if hasattr(kind, "__metadata__") else kind
