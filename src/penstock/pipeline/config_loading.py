"""Load and validate `pipeline.toml`; errors name the key."""

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, get_origin

import msgspec

from penstock.errors import ConfigError, InvalidPattern
from penstock.model import is_publishable
from penstock.patterns import compile_pattern
from penstock.pipeline.config import FieldConfig, PipelineConfig, SilverConfig

__all__ = ["BUILT_IN_GOLD", "FIELD_TYPES", "METADATA_COLUMNS", "TOKEN_VARIABLE", "load"]

TOKEN_VARIABLE: Final = "PENSTOCK_TOKEN"  # noqa: S105  (the name of a variable)
FIELD_TYPES: Final = (
    "string", "boolean", "int", "long", "float", "double", "date", "timestamp", "binary",
)  # fmt: skip
METADATA_COLUMNS: Final = (
    "topic", "partition", "offset", "timestamp", "protocol", "kind", "sender", "message_id",
    "event_time", "day",
)  # fmt: skip
"""Columns of every silver table in addition to its fields."""
BUILT_IN_GOLD: Final = ("traffic", "exchanges", "latency", "sessions")

_DECIMAL: Final = re.compile(r"decimal\((\d{1,2}),\s*(\d{1,2})\)")
_AT: Final = re.compile(r"^(?P<problem>.*?)(?: - at `\$\.?(?P<key>[^`]*)`)?$", re.DOTALL)
_FIELD: Final = re.compile(
    r"Object (?P<what>missing required|contains unknown) field `(?P<name>[^`]+)`"
)


def load(file: Path, *, environment: Mapping[str, str] | None = None) -> PipelineConfig:
    """Return the configuration of a file; raise ConfigError.

    Paths are relative to the file's folder. Without a token in the file, the variable
    PENSTOCK_TOKEN is used.
    """
    values = _read(file)
    _reject_removed_keys(str(file), values)
    try:
        config = msgspec.convert(values, PipelineConfig)
    except msgspec.ValidationError as error:
        raise _translated(str(file), str(error)) from None
    source = config.source
    if not source.path and not source.endpoint:
        source = msgspec.structs.replace(source, path="penstock-data")
    if not source.token:
        token = (os.environ if environment is None else environment).get(TOKEN_VARIABLE, "")
        source = msgspec.structs.replace(source, token=token)
    config = msgspec.structs.replace(
        config,
        source=msgspec.structs.replace(
            source,
            path=_anchored(file, source.path),
            certificate=_anchored(file, source.certificate),
        ),
        warehouse=msgspec.structs.replace(
            config.warehouse, folder=_anchored(file, config.warehouse.folder)
        ),
        gold=msgspec.structs.replace(config.gold, sql=_anchored(file, config.gold.sql)),
    )
    _Check(str(file)).all(config)
    return config


def _read(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        problem = f"cannot be read: {reason}; give --config the path of a pipeline.toml"
        raise ConfigError(str(file), "", problem) from None
    except UnicodeDecodeError:
        raise ConfigError(str(file), "", "expected TOML in UTF-8") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problem = f"expected TOML: {' '.join(str(error).split())}"
        raise ConfigError(str(file), "", problem) from None


def _reject_removed_keys(source: str, values: Mapping[str, Any]) -> None:
    """Raise ConfigError for a key of an earlier version, with the way to replace it."""
    warehouse = values.get("warehouse")
    if not isinstance(warehouse, dict) or "format" not in warehouse:
        return
    problem = "was removed, all tables are Delta tables; delete this key"
    if warehouse["format"] != "delta":
        problem += " and give a new warehouse.folder, since older tables cannot be continued"
    raise ConfigError(source, "warehouse.format", problem)


def _anchored(file: Path, path: str) -> str:
    return str(file.parent / path) if path else ""


def _translated(source: str, text: str) -> ConfigError:
    """Return msgspec's validation error as a ConfigError with the key of the file."""
    match = _AT.match(text)
    problem, key = (match["problem"], match["key"] or "") if match else (text, "")
    if problem.startswith("Invalid enum value "):
        value = problem.removeprefix("Invalid enum value ").replace("'", '"')
        allowed = ", ".join(_type_of(re.sub(r"\[[^]]*\]", "", key)).__args__)
        return ConfigError(source, key, f"{value} is none of {allowed}")
    field = _FIELD.match(problem)
    if field is None:
        return ConfigError(source, key, problem[:1].lower() + problem[1:].replace("`", '"'))
    name = f"{key}.{field['name']}" if key else field["name"]
    if field["what"] == "missing required":
        return ConfigError(source, name, "missing")
    known = _known(re.sub(r"\[[^]]*\]", "", key))
    close = difflib.get_close_matches(field["name"], known, n=1)
    expected = f'did you mean "{close[0]}"?' if close else f"expected {', '.join(known)}"
    return ConfigError(source, name, f"unknown key; {expected}")


def _known(path: str) -> list[str]:
    """Return the keys that a TOML table may have."""
    return sorted(each.name for each in msgspec.structs.fields(_type_of(path)))


def _type_of(path: str) -> Any:  # noqa: ANN401
    """Return the type of a key, of its items if it is a list: a class or a Literal."""
    found: Any = PipelineConfig
    for name in filter(None, path.split(".")):
        found = next(each.type for each in msgspec.structs.fields(found) if each.name == name)
        while not isinstance(found, type) and get_origin(found) is not Literal:
            found = found.__args__[0] if hasattr(found, "__args__") else found.__origin__
    return found


class _Check:
    """Checks that involve more than one key."""

    def __init__(self, source: str) -> None:
        self._source = source

    def all(self, config: PipelineConfig) -> None:
        """Raise ConfigError for the first conflict between keys."""
        if config.source.path and config.source.endpoint:
            raise self._error("source.endpoint", "give source.path or source.endpoint, not both")
        if config.source.certificate and not config.source.endpoint:
            raise self._error("source.certificate", "needs source.endpoint")
        if config.publish and not config.source.endpoint:
            raise self._error("publish", "needs source.endpoint")
        names: set[str] = set()
        for index, silver in enumerate(config.silver):
            key = f"silver[{index}]"
            if silver.name in names:
                raise self._error(f"{key}.name", f'another silver table is named "{silver.name}"')
            if silver.name in {"bronze", "dead_letters", *BUILT_IN_GOLD}:
                raise self._error(
                    f"{key}.name", f'"{silver.name}" is a built-in table of the pipeline'
                )
            names.add(silver.name)
            self._silver(silver, key)
        tables = [publish.table for publish in config.publish]
        for index, publish in enumerate(config.publish):
            if publish.table in tables[:index]:
                raise self._error(
                    f"publish[{index}].table", f'"{publish.table}" is published to another topic'
                )
            if not is_publishable(publish.topic):
                raise self._error(
                    f"publish[{index}].topic", "expected a topic name without wildcards"
                )

    def _silver(self, silver: SilverConfig, key: str) -> None:
        for pattern in silver.topics:
            try:
                compile_pattern(pattern)
            except InvalidPattern:
                raise self._error(
                    f"{key}.topics", f'"{pattern[:40]}" matches no topic; # and > must be last'
                ) from None
        names = [field.name for field in silver.field]
        for index, field in enumerate(silver.field):
            self._field(silver, field, f"{key}.field[{index}]")
            if names.index(field.name) != index:
                raise self._error(
                    f"{key}.field[{index}].name", f'another field is named "{field.name}"'
                )
        if silver.event_time != "timestamp":
            types = {field.name: field.type for field in silver.field if not field.array}
            if types.get(silver.event_time) != "timestamp":
                raise self._error(
                    f"{key}.event_time", 'expected "timestamp" or a field of type "timestamp"'
                )
        for column in silver.dedup:
            if column not in {*names, *METADATA_COLUMNS}:
                raise self._error(f"{key}.dedup", f'there is no column "{column}"')
        if set(silver.dedup) - {"message_id"} and not silver.watermark_seconds:
            problem = "needs watermark_seconds, the time for which rows are compared"
            raise self._error(f"{key}.dedup", problem)
        if silver.format == "text":
            self._text(silver, key)
        elif silver.pattern:
            raise self._error(f"{key}.pattern", 'needs format = "text"')

    def _text(self, silver: SilverConfig, key: str) -> None:
        if not silver.pattern:
            if len(silver.field) != 1:
                problem = "give a pattern with a group for each field, or one field for the text"
                raise self._error(f"{key}.pattern", problem)
            return
        try:
            groups = re.compile(re.sub(r"\(\?<(?![=!])", "(?P<", silver.pattern)).groups
        except re.error as error:
            raise self._error(f"{key}.pattern", f"invalid regular expression: {error}") from None
        if groups != len(silver.field):
            problem = f"has {groups} groups for {len(silver.field)} fields"
            raise self._error(f"{key}.pattern", problem)

    def _field(self, silver: SilverConfig, field: FieldConfig, key: str) -> None:
        decimal = _DECIMAL.fullmatch(field.type)
        if decimal is not None and int(decimal[2]) <= int(decimal[1]) <= 38:
            pass
        elif field.type not in FIELD_TYPES:
            known = ", ".join(FIELD_TYPES)
            raise self._error(f"{key}.type", f"expected {known} or decimal(digits, scale)")
        if field.name in METADATA_COLUMNS:
            problem = f'every silver table has a column "{field.name}"; choose another and set path'
            raise self._error(f"{key}.name", problem)
        if field.formats and field.type not in {"timestamp", "date"}:
            raise self._error(f"{key}.formats", 'needs type = "timestamp" or "date"')
        nested = silver.format in {"json", "messagepack"}
        if field.array and not nested:
            raise self._error(f"{key}.array", f'cannot be used with format = "{silver.format}"')
        if field.path and not nested:
            raise self._error(f"{key}.path", f'cannot be used with format = "{silver.format}"')
        if field.path and not (all(field.path.split(".")) and "'" not in field.path):
            raise self._error(f"{key}.path", "expected names separated by dots, without quotes")

    def _error(self, key: str, problem: str) -> ConfigError:
        return ConfigError(self._source, key, problem)
