"""Load the configuration from file, environment and command line.

The command line overrides the environment, the environment overrides the file, and the file
overrides the defaults. Tables are merged key by key; a list, such as `listener`, is replaced as a
whole. All problems are reported together.
"""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from msgspec import UNSET

from penstock.errors import BadAddress
from penstock.server.config import Config, Durability, HttpConfig, ListenerConfig
from penstock.server.config_checks import check
from penstock.server.config_environment import CONFIG_VARIABLE, read_environment
from penstock.server.system_memory import default_memory_bytes
from penstock.server.users_file import merge_users
from penstock.settings import (
    Problems,
    TomlFile,
    build,
    read_settings,
    read_toml,
    read_value,
    setting_types,
)

__all__ = [
    "DEFAULT_FLIGHT",
    "DEFAULT_HTTP",
    "Loaded",
    "default_listeners",
    "load",
    "load_sources",
    "storage_options",
]

DEFAULT_HTTP: Final = "127.0.0.1:7080"
"""HTTP address of a broker that has no listeners configured."""
DEFAULT_FLIGHT: Final = "127.0.0.1:7090"
"""Arrow Flight address of a broker that has no listeners configured."""

SECRET_TABLES: Final = ("principal", "program", "storage.kafka")
"""Tables whose values are not repeated in error messages."""


class Loaded(NamedTuple):
    """A checked configuration with the source of each setting.

    A source is the name of the file, of an environment variable or of an option. Settings with
    their default value have none.
    """

    config: Config
    sources: Mapping[str, str]


def load(
    file: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    listen: Sequence[str] = (),
    data: str | None = None,
    http: str | None = None,
    flight: str | None = None,
    durability: Durability | str | None = None,
    storage: str | None = None,
) -> Config:
    """Return the checked configuration of a process; raise InvalidConfig with all its problems.

    `file` is the value of `--config`, or None; then the environment may name one. The other
    arguments are those of the command line, None or empty if not given.
    """
    options = {
        "listener": ("--listen", [{"url": url} for url in listen] or None),
        "data.folder": ("--data", data),
        "http.address": ("--http", http),
        "flight.address": ("--flight", flight),
        "broker.durability": ("--durability", durability),
        **storage_options(storage),
    }
    return load_sources(file, environment=environment, options=options).config


def storage_options(url: str | None) -> dict[str, tuple[str, object]]:
    """Return the settings of `--storage kafka://HOST:PORT/TOPIC?node=N`.

    A URL of another form is returned as the kind of storage, which is refused.
    """
    option = "--storage"
    if url is None:
        return {}
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    node = query.pop("node", None)
    if parts.scheme != "kafka" or not parts.netloc or query or parts.username is not None:
        return {"storage.kind": (option, url)}
    return {
        "storage.kind": (option, parts.scheme),
        "storage.bootstrap": (option, parts.netloc),
        "storage.topic": (option, parts.path.strip("/") or None),
        "storage.node": (option, int(node) if node and node.isdecimal() else node),
    }


def load_sources(
    file: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, tuple[str, object]] | None = None,
) -> Loaded:
    """Return the checked configuration with its sources; raise InvalidConfig with all problems.

    `options` has the name and the value of an option of the command line for the key that it sets;
    None if it is not given.
    """
    environment = environment or {}
    contents = _read_file(file, environment)
    problems = Problems(contents, secrets=SECRET_TABLES)
    settings: dict[str, Any] = {}
    if contents is not None:
        settings = read_settings(contents.values, Config, problems)
        for key in settings:
            problems.set_source(key, contents.name)
    settings |= read_environment(environment, problems)
    settings |= _read_options(options or {}, problems)
    _set_default_addresses(settings, problems)
    if "auth.users" in settings and "principal" not in problems.tables:
        users = Path(settings["auth.users"])
        settings["principal"] = merge_users(settings.get("principal", ()), users, problems)
    if not settings.get("limits.memory_bytes_max"):
        settings["limits.memory_bytes_max"] = default_memory_bytes()
    config = build(Config, settings)
    check(config, problems)
    problems.raise_found()
    return Loaded(config, problems.sources)


def _read_options(
    options: Mapping[str, tuple[str, object]], problems: Problems
) -> dict[str, object]:
    types = setting_types(Config)
    found = {}
    for key, (option, given) in options.items():
        if given is None:
            continue
        problems.set_source(key, option)
        value = read_value(given, types[key], key, problems)
        if value is not UNSET:
            found[key] = value
    return found


def _set_default_addresses(settings: dict[str, Any], problems: Problems) -> None:
    """Set the listeners, HTTP and Flight addresses of a broker that has no listeners configured."""
    if settings.get("listener") or "listener" in problems.tables:
        return
    address = settings.setdefault("http.address", DEFAULT_HTTP)
    settings["listener"] = default_listeners(address, anonymous=settings.get("http.anonymous"))
    if "http.address" in problems.sources:
        problems.set_source("listener", problems.source_of("http.address"))
    if settings.get("broker.durability") != "memory":
        settings.setdefault("flight.address", DEFAULT_FLIGHT)


def default_listeners(
    http_address: str, *, anonymous: bool | None = None
) -> tuple[ListenerConfig, ...]:
    """Return the default listeners. The WebSocket of fleximq shares the address of HTTP.

    `anonymous` is the setting of HTTP.
    """
    try:
        _ = HttpConfig(address=http_address).place
    except BadAddress:  # reported as the problem of http.address
        http_address = DEFAULT_HTTP
    return (
        ListenerConfig(url="tcp://127.0.0.1:7000"),
        ListenerConfig(url="udp://127.0.0.1:7000"),
        ListenerConfig(url=f"ws://{http_address}/ws", anonymous=anonymous),
    )


def _read_file(file: Path | None, environment: Mapping[str, str]) -> TomlFile | None:
    """Return the contents of the file that is named, if one is; raise InvalidConfig."""
    option = "--config"
    if file is None and environment.get(CONFIG_VARIABLE):
        file, option = Path(environment[CONFIG_VARIABLE]), CONFIG_VARIABLE
    if file is None:
        return None
    found = read_toml(file, remedy=f"give {option} the path of a penstock.toml")
    return found._replace(values=_anchored(found.values, file.parent))


def _anchored(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the contents with paths relative to the folder of the file."""
    values = copy.deepcopy(values)
    tables: list[tuple[object, tuple[str, ...]]] = [
        (values.get("data"), ("folder",)),
        (values.get("audit"), ("file",)),
        (values.get("flight"), ("certificate", "key", "client_ca")),
        (values.get("auth"), ("users",)),
    ]
    for key, names in (
        ("listener", ("certificate", "key", "client_ca")),
        ("program", ("folder",)),
    ):
        lists = values.get(key)
        if isinstance(lists, list):
            tables += [(each, names) for each in lists]
    storage = values.get("storage")
    kafka = storage.get("kafka") if isinstance(storage, dict) else None
    if isinstance(kafka, dict):
        tables.append((kafka, tuple(key for key in kafka if key.endswith(".location"))))
    for table, paths in tables:
        for name in paths:
            if isinstance(table, dict) and isinstance(table.get(name), str) and table[name]:
                table[name] = str(folder / table[name])
    issuers = values.get("jwt")
    for issuer in issuers if isinstance(issuers, list) else ():
        keys = issuer.get("keys") if isinstance(issuer, dict) else None
        if isinstance(keys, list):
            issuer["keys"] = [
                str(folder / each) if isinstance(each, str) else each for each in keys
            ]
    return values
