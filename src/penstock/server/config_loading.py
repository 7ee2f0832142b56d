"""From file, environment and command line to one checked `Config`.

The command line goes over the environment, the environment over the file, the file over the
defaults. Tables are merged key by key; a list, such as that of the listeners, is replaced as a
whole.
"""

import copy
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from penstock.errors import ConfigError
from penstock.server.config import Config, Durability
from penstock.server.config_checks import check
from penstock.server.config_environment import CONFIG_VARIABLE, read_environment
from penstock.server.config_reading import Sources, read_table

__all__ = ["DEFAULT_FLIGHT", "DEFAULT_HTTP", "default_listeners", "load", "read_file"]

DEFAULT_HTTP: Final = "127.0.0.1:7080"
"""Where HTTP is answered by a broker that is told of no listeners."""
DEFAULT_FLIGHT: Final = "127.0.0.1:7090"
"""Where tables are served by a broker that is told of no listeners."""


def load(
    file: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    listen: Sequence[str] = (),
    data: str | None = None,
    http: str | None = None,
    flight: str | None = None,
    durability: Durability | str | None = None,
) -> Config:
    """Return the configuration of a process, checked as a whole; raise ConfigError.

    `file` is what `--config` names, or None; then the environment may name one. The other
    arguments are those of the command line, None or empty if not given.
    """
    environment = environment or {}
    option = "--config"
    if file is None and environment.get(CONFIG_VARIABLE):
        file = Path(environment[CONFIG_VARIABLE])
        option = CONFIG_VARIABLE
    sources = Sources("defaults" if file is None else str(file))
    values = {} if file is None else read_file(file, option)
    # What the file says must be right even where something else goes over it.
    read_table(values, Config, "", sources)
    read_environment(environment, values, sources)
    for key, option, value in (
        ("listener", "--listen", [{"url": url} for url in listen] or None),
        ("data.folder", "--data", data),
        ("http.address", "--http", http),
        ("flight.address", "--flight", flight),
        ("broker.durability", "--durability", durability),
    ):
        if value is not None:
            _put(values, key, value)
            sources.came_from(key, option)
    if not values.get("listener"):
        address = values.setdefault("http", {}).setdefault("address", DEFAULT_HTTP)
        values["listener"] = default_listeners(address)
        sources.came_from("listener", sources.of("http.address"))
        if values.get("broker", {}).get("durability") != "memory":
            values.setdefault("flight", {}).setdefault("address", DEFAULT_FLIGHT)
    config = read_table(values, Config, "", sources)
    check(config, sources)
    return config


def default_listeners(http_address: str | None) -> list[dict[str, Any]]:
    """Return the listeners of a broker that is told of none: fleximq's WebSocket beside HTTP."""
    return [
        {"url": "tcp://127.0.0.1:7000"},
        {"url": "udp://127.0.0.1:7000"},
        {"url": f"ws://{http_address or DEFAULT_HTTP}/ws"},
    ]


def read_file(file: Path, option: str) -> dict[str, Any]:
    """Return what a file says; raise ConfigError."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        problem = f"cannot be read: {reason}; give {option} the path of a penstock.toml"
        raise ConfigError(str(file), "", problem) from None
    except UnicodeDecodeError:
        raise ConfigError(str(file), "", "expected TOML in UTF-8") from None
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(str(file), "", f"expected TOML: {reason}") from None
    return _anchored(values, file.parent)


def _anchored(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the file's values with paths relative to its folder, not to the working directory."""
    values = copy.deepcopy(values)
    tables: list[tuple[object, tuple[str, ...]]] = [
        (values.get("data"), ("folder",)),
        (values.get("flight"), ("certificate", "key")),
    ]
    for key, names in (("listener", ("certificate", "key")), ("program", ("folder",))):
        lists = values.get(key)
        if isinstance(lists, list):
            tables += [(each, names) for each in lists]
    for table, paths in tables:
        for name in paths:
            if isinstance(table, dict) and isinstance(table.get(name), str) and table[name]:
                table[name] = str(folder / table[name])
    return values


def _put(values: dict[str, Any], key: str, value: object) -> None:
    *tables, name = key.split(".")
    for part in tables:
        values = values.setdefault(part, {})
    values[name] = value
