"""Settings from environment variables: `PENSTOCK_`, then the key in capitals, `__` for each dot.

`PENSTOCK_BROKER__SESSIONS_MAX=500` sets `broker.sessions_max`. The value of a string setting is
taken as it is; any other value is parsed as TOML. A variable with `__` that names no setting is an
error. Other variables that start with `PENSTOCK_` are ignored (an orchestrator sets some for a
service of that name), unless they differ from a setting's variable only by an underscore.
"""

import tomllib
from collections.abc import Mapping
from typing import Any, Final, Literal, get_origin

from msgspec import UNSET

from penstock.errors import ConfigError
from penstock.server.config import Config
from penstock.settings import (
    Problems,
    describe,
    read_value,
    setting_types,
    without_constraints,
    without_none,
)

__all__ = ["CONFIG_VARIABLE", "PREFIX", "read_environment", "variables"]

PREFIX: Final = "PENSTOCK_"
CONFIG_VARIABLE: Final = "PENSTOCK_CONFIG"
"""The path of the file, if `--config` is not given."""


def variables() -> dict[str, tuple[tuple[str, ...], Any]]:
    """Return all variables with the path of their key and the type of their value."""
    return {
        PREFIX + key.replace(".", "__").upper(): (tuple(key.split(".")), kind)
        for key, kind in setting_types(Config).items()
    }


def read_environment(environment: Mapping[str, str], problems: Problems) -> dict[str, Any]:
    """Return the valid settings of the environment by key; add all others to `problems`."""
    known = variables()
    one_underscore = {name.replace("__", "_"): name for name in known}
    found: dict[str, Any] = {}
    for name in sorted(environment):
        if not name.startswith(PREFIX) or name == CONFIG_VARIABLE:
            continue
        if name not in known:
            meant = one_underscore.get(name.replace("__", "_"))
            if meant is not None:
                problem = f'unknown variable; did you mean "{meant}"?'
                problems.found.append(ConfigError(name, "", problem))
            elif "__" in name:
                problem = "unknown variable; expected PENSTOCK_ and a key, as BROKER__KEY"
                problems.found.append(ConfigError(name, "", problem))
            continue
        path, kind = known[name]
        key = ".".join(path)
        problems.set_source(key, name)
        value = _parse(environment[name], kind, key, problems)
        if value is not UNSET:
            value = read_value(value, kind, key, problems)
        if value is not UNSET:
            found[key] = value
    return found


def _parse(text: str, kind: Any, key: str, problems: Problems) -> object:  # noqa: ANN401
    plain = without_none(kind)
    if get_origin(plain) is Literal or without_constraints(plain) is str:
        return text
    try:
        (value,) = tomllib.loads(f"value = {text}").values()
    except ValueError:  # not TOML, or more than one value
        problems.add(key, f"expected {describe(kind)}, written as in TOML")
        return UNSET
    return value
