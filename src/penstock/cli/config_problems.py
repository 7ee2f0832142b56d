"""All that is wrong with a configuration, not only the first of it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_args, get_origin

import msgspec
from msgspec.structs import replace

from penstock.errors import ConfigError
from penstock.server.config import (
    Config,
    FlightConfig,
    HttpConfig,
    ListenerConfig,
    PrincipalConfig,
    RuleConfig,
    TopicDurabilityConfig,
)
from penstock.server.config_checks import check
from penstock.server.config_environment import CONFIG_VARIABLE, read_environment, variables
from penstock.server.config_loading import load, read_file
from penstock.server.config_reading import (
    Sources,
    describe,
    is_table,
    read_table,
    read_value,
    without_none,
)

__all__ = ["problems"]

_PROBLEMS_MAX: Final = 1000
_RULE: Final = RuleConfig(topics=("x",), deny=("publish",))
_DURABILITY: Final = TopicDurabilityConfig(topics=("x",), durability="os")


def problems(file: Path | None, environment: Mapping[str, str]) -> list[ConfigError]:
    """Return every problem of file and environment; of values first, then of their meaning.

    What settings mean together is looked at when each of them can be read.
    """
    option = "--file"
    if file is None and environment.get(CONFIG_VARIABLE):
        file, option = Path(environment[CONFIG_VARIABLE]), CONFIG_VARIABLE
    sources = Sources("default" if file is None else str(file))
    try:
        values = {} if file is None else read_file(file, option)
    except ConfigError as error:
        return [error]
    found = list(_of_table(values, Config, "", sources))
    found += _of_environment(environment, values, sources)
    return found or _of_whole(values, sources)


def _of_table(values: object, kind: Any, key: str, sources: Sources) -> Iterator[ConfigError]:  # noqa: ANN401
    """Give what is wrong with each value by itself."""
    if not isinstance(values, Mapping):
        yield from _raised(values, kind, key, sources)
        return
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for name in values.keys() - fields.keys():
        yield from _raised({name: None}, kind, key, sources)
    for name, field in fields.items():
        below = f"{key}.{name}" if key else name
        inner = without_none(field.type)
        if name not in values:
            if field.required:
                yield sources.error(below, f"missing; expected {describe(field.type)}")
        elif is_table(inner):
            yield from _of_table(values[name], inner, below, sources)
        elif (
            get_origin(inner) is tuple
            and is_table(get_args(inner)[0])
            and isinstance(values[name], list)
        ):
            for index, each in enumerate(values[name]):
                yield from _of_table(each, get_args(inner)[0], f"{below}[{index}]", sources)
        else:
            try:
                read_value(values[name], field.type, below, sources)
            except ConfigError as error:
                yield error


def _raised(values: object, kind: Any, key: str, sources: Sources) -> Iterator[ConfigError]:  # noqa: ANN401
    try:
        read_table(values, kind, key, sources)
    except ConfigError as error:
        yield error


def _of_environment(
    environment: Mapping[str, str], values: dict[str, Any], sources: Sources
) -> list[ConfigError]:
    """Put what the environment says over `values`; return what is wrong with it."""
    found: list[ConfigError] = []
    known = variables()
    for name in sorted(environment):
        alone: dict[str, Any] = {}
        said = Sources(name)
        try:
            read_environment({name: environment[name]}, alone, said)
        except ConfigError as error:
            found.append(error)
            continue
        if name not in known:
            continue
        wrong = list(_of_table(alone, Config, "", said))
        found += wrong
        if not wrong:
            path = known[name][0]
            _lay_over(alone, values, path)
            sources.came_from(".".join(path), name)
    return found


def _lay_over(alone: dict[str, Any], values: dict[str, Any], path: tuple[str, ...]) -> None:
    """Take the one setting of `alone` over into `values`."""
    for part in path[:-1]:
        alone = alone[part]
        if not isinstance(values.get(part), dict):
            values[part] = {}
        values = values[part]
    values[path[-1]] = alone[path[-1]]


def _of_whole(values: dict[str, Any], sources: Sources) -> list[ConfigError]:
    """Return what does not fit together. Each thing found is put aside to find the next."""
    config = read_table(values, Config, "", sources)
    if not config.listener:
        config = _with_default_places(config, values)
        sources.came_from("listener", sources.of("http.address"))
    found: list[ConfigError] = []
    keys: set[str] = set()
    while len(found) < _PROBLEMS_MAX:
        try:
            check(config, sources)
        except ConfigError as error:
            found.append(error)
            if error.key in keys:
                break
            keys.add(error.key)
            config = _without(config, error.key)
        else:
            break
    return found


def _with_default_places(config: Config, values: dict[str, Any]) -> Config:
    """Return the configuration with the places where a broker listens that is told of none."""
    try:
        default = load(http=config.http.address, durability=config.broker.durability)
    except ConfigError:  # of the HTTP address, which is told of by itself
        default = load()
    if "address" not in values.get("flight", {}):
        config = replace(config, flight=replace(config.flight, address=default.flight.address))
    if config.http.address is None:
        config = replace(config, http=default.http)
    return replace(config, listener=default.listener)


def _without(config: Config, key: str) -> Config:
    """Return the configuration with something harmless in place of what a key names.

    Lists keep their length, so that what else is wrong with them is still counted right.
    """
    table = key.partition(".")[0].partition("[")[0]
    match table:
        case "herald":
            _, name, channel = key.split(".", 2)
            left = dict(getattr(config.herald, name))
            left.pop(channel, None)
            return replace(config, herald=replace(config.herald, **{name: left}))
        case "listener":
            other = ListenerConfig(url=f"ipc://penstock-{_index(key)}.sock")
            return replace(config, listener=_put(config.listener, _index(key), other))
        case "principal":
            index = _index(key)
            somebody = _harmless_principal(config.principal[index], index, key)
            return replace(config, principal=_put(config.principal, index, somebody))
        case "anonymous":
            rules = _put(config.anonymous.rule, _index(key), _RULE)
            return replace(config, anonymous=replace(config.anonymous, rule=rules))
        case "log":
            durability: tuple[TopicDurabilityConfig, ...] = ()
            if key.endswith(".topics"):
                durability = _put(config.log.durability, _index(key), _DURABILITY)
            return replace(config, log=replace(config.log, durability=durability))
        case "http":
            return replace(config, http=HttpConfig())
        case _:
            return replace(config, flight=FlightConfig())


def _harmless_principal(principal: PrincipalConfig, index: int, key: str) -> PrincipalConfig:
    if ".rule[" in key:
        below = key.partition(".rule")[2]
        return replace(principal, rule=_put(principal.rule, _index(below), _RULE))
    return replace(
        principal,
        name=f"\0{index}" if key.endswith(".name") else principal.name,
        token=f"\0{index}",
        basic=None,
        api_key_sha256=None,
        lamamq=None,
    )


def _index(key: str) -> int:
    """Return the first index that a key names."""
    return int(key.partition("[")[2].partition("]")[0])


def _put(items: tuple[Any, ...], index: int, item: object) -> tuple[Any, ...]:
    return (*items[:index], item, *items[index + 1 :])
