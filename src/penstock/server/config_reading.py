"""Read parsed TOML into the typed settings of `config`.

Each value is checked against the type of its field. All problems are collected in one pass, each
with its key. Settings are kept by key, such as `broker.sessions_max`; a list of tables, such as
`listener`, is one setting.
"""

import difflib
import types
from collections.abc import Iterator, Mapping
from typing import Any, Union, get_args, get_origin

import msgspec
from msgspec import UNSET
from msgspec.structs import FieldInfo

from penstock.server.config import Config
from penstock.server.config_problems import Problems

__all__ = [
    "build_config",
    "describe",
    "read_settings",
    "read_value",
    "setting_types",
    "without_none",
]

SHOWN_CHARACTERS_MAX = 40
SECRET_TABLES = ("principal", "program")
"""Tables whose values are not repeated in error messages."""


def setting_types() -> dict[str, Any]:
    """Return the type of every setting by its key, such as `broker.sessions_max`."""
    return dict(_setting_types(Config, ""))


def _setting_types(kind: type[msgspec.Struct], key: str) -> Iterator[tuple[str, Any]]:
    for field in msgspec.structs.fields(kind):
        below = _below(key, field.name)
        if is_table(field.type):
            yield from _setting_types(field.type, below)
        else:
            yield below, field.type


def read_settings(
    values: Mapping[str, object],
    problems: Problems,
    *,
    kind: type[msgspec.Struct] = Config,
    key: str = "",
) -> dict[str, Any]:
    """Return the valid settings of a parsed file by key; add all others to `problems`."""
    found: dict[str, Any] = {}
    for field, value in _given(values, kind, key, problems):
        below = _below(key, field.name)
        if not is_table(field.type):
            read = read_value(value, field.type, below, problems)
            if read is not UNSET:
                found[below] = read
        elif isinstance(value, Mapping):
            found |= read_settings(value, problems, kind=field.type, key=below)
        else:
            problems.add(below, f"expected a table, got {_show(value, below)}")
    return found


def build_config(settings: Mapping[str, Any]) -> Config:
    """Return the configuration of settings by key, with defaults for all others."""
    tables: dict[str, Any] = {}
    for field in msgspec.structs.fields(Config):
        if is_table(field.type):
            names = {each.name for each in msgspec.structs.fields(field.type)}
            given = {name: _below(field.name, name) for name in names}
            tables[field.name] = field.type(
                **{name: settings[key] for name, key in given.items() if key in settings}
            )
        elif field.name in settings:
            tables[field.name] = settings[field.name]
    return Config(**tables)


def read_value(value: object, kind: Any, key: str, problems: Problems) -> Any:  # noqa: ANN401
    """Return `value` as `kind`, a field's type; if it is not, add to `problems`, return UNSET."""
    inner = without_none(kind)
    if is_table(inner):
        return _read_table(value, inner, key, problems)
    if get_origin(inner) is tuple and is_table(get_args(inner)[0]):
        if not isinstance(value, list):
            problems.add(key, f"expected a list of tables, got {_show(value, key)}")
            return UNSET
        item = get_args(inner)[0]
        tables = [
            _read_table(each, item, f"{key}[{index}]", problems) for index, each in enumerate(value)
        ]
        return UNSET if UNSET in tables else tuple(tables)
    try:
        return msgspec.convert(value, inner)
    except msgspec.ValidationError:
        problems.add(key, f"expected {describe(inner)}, got {_show(value, key)}")
        return UNSET


def _read_table(value: object, kind: Any, key: str, problems: Problems) -> Any:  # noqa: ANN401
    if not isinstance(value, Mapping):
        problems.add(key, f"expected a table, got {_show(value, key)}")
        return UNSET
    before = len(problems.found)
    fields = {
        field.name: read_value(each, field.type, _below(key, field.name), problems)
        for field, each in _given(value, kind, key, problems)
    }
    return UNSET if len(problems.found) > before else kind(**fields)


def _given(
    values: Mapping[str, object],
    kind: type[msgspec.Struct],
    key: str,
    problems: Problems,
) -> Iterator[tuple[FieldInfo, object]]:
    """Yield the fields of a table that have a value; add unknown and missing keys to `problems`."""
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for name in values:
        if name not in fields:
            problems.add(_below(key, name), f"unknown key; {_expected(name, list(fields))}")
    for name, field in fields.items():
        if name in values:
            yield field, values[name]
        elif field.required:
            problems.add(_below(key, name), f"missing; expected {describe(field.type)}")


def is_table(kind: object) -> bool:
    """Return whether a field's type is a table."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def without_none(kind: Any) -> Any:  # noqa: ANN401
    """Return the type of a field without the None that means "not set"."""
    if get_origin(kind) not in {Union, types.UnionType}:
        return kind
    kinds = [each for each in get_args(kind) if each is not types.NoneType]
    return kinds[0] if len(kinds) == 1 else kind


def describe(kind: Any) -> str:  # noqa: ANN401
    """Return a description of the values that a field accepts."""
    return _describe(msgspec.inspect.type_info(without_none(kind)))


def _describe(info: msgspec.inspect.Type) -> str:
    match info:
        case msgspec.inspect.Metadata(type=inner, extra_json_schema={"title": title}):
            return f"{title}" if title else _describe(inner)
        case msgspec.inspect.Metadata(type=inner):
            return _describe(inner)
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.IntType(ge=low, le=high):
            return "a whole number" + _range(low, high)
        case msgspec.inspect.FloatType(gt=above, ge=low, le=high):
            if above is not None:
                return f"a number above {above:g} and up to {high:g}"
            return "a number" + _range(low, high)
        case msgspec.inspect.StrType(min_length=low):
            return "a string, not empty" if low else "a string"
        case msgspec.inspect.LiteralType(values=values):
            return _alternatives([f'"{value}"' for value in values])
        case msgspec.inspect.VarTupleType(item_type=item, min_length=low):
            return f"a list of {_plural(item)}" + (", not empty" if low else "")
        case msgspec.inspect.DictType():
            return "a table of strings"
        case _:
            return "a table"


def _plural(info: msgspec.inspect.Type) -> str:
    match info:
        case msgspec.inspect.LiteralType():
            return _describe(info)
        case msgspec.inspect.StructType():
            return "tables"
        case _:
            return "strings"


def _range(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low} to {high}"
    if low is not None:
        return f" of at least {low}"
    return "" if high is None else f" of at most {high}"


def _expected(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f'did you mean "{close[0]}"?' if close else f"expected {_alternatives(sorted(known))}"


def _alternatives(names: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _below(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _show(value: object, key: str) -> str:
    """Return a value for an error message: one line, and never a secret."""
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case str() if not key.startswith(SECRET_TABLES) and value.isprintable():
            shown = value[:SHOWN_CHARACTERS_MAX]
            return f'"{shown}{"…" if shown != value else ""}"'
        case str():
            return "a string that does not fit"
        case Mapping():
            return "a table"
        case list():
            return "a list" if value else "an empty list"
        case _:
            return f"a {type(value).__name__}"
