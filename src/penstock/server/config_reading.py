"""Values of any source turned into the typed tables of `config`, or an error that names the key."""

import difflib
import types
from collections.abc import Mapping
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec

from penstock.errors import ConfigError

__all__ = ["Sources", "describe", "is_table", "read_table", "read_value", "without_none"]

SHOWN_CHARACTERS_MAX = 40
SECRET_TABLES = ("principal", "program")
"""Values below these keys are not repeated in an error's text."""

T = TypeVar("T", bound=msgspec.Struct)


class Sources:
    """Knows for each key where its value came from, so that an error can say it."""

    def __init__(self, default: str) -> None:
        self._default = default
        self._by_key: dict[str, str] = {}

    def came_from(self, key: str, source: str) -> None:
        """Note that the value of `key`, with all below it, is from `source`."""
        self._by_key[key] = source

    def of(self, key: str) -> str:
        """Return the source of a key, or that of what it is part of."""
        while key:
            if key in self._by_key:
                return self._by_key[key]
            key = key[: max(key.rfind("."), key.rfind("["), 0)]
        return self._default

    def error(self, key: str, problem: str) -> ConfigError:
        """Return the error of a key."""
        return ConfigError(self.of(key), key, problem)


def read_table(values: object, kind: type[T], key: str, sources: Sources) -> T:
    """Return `values` as a table of `kind`; raise ConfigError at the first that does not fit."""
    if not isinstance(values, Mapping):
        raise sources.error(key, f"expected a table, got {_show(values, key)}")
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for name in values:
        if name not in fields:
            raise sources.error(_below(key, name), f"unknown key; {_expected(name, list(fields))}")
    found = {}
    for name, field in fields.items():
        if name in values:
            found[name] = read_value(values[name], field.type, _below(key, name), sources)
        elif field.required:
            raise sources.error(_below(key, name), f"missing; expected {describe(field.type)}")
    return kind(**found)


def read_value(value: object, kind: Any, key: str, sources: Sources) -> Any:  # noqa: ANN401
    """Return `value` as `kind`, a type of a field of a table; raise ConfigError if it is not."""
    inner = without_none(kind)
    if is_table(inner):
        return read_table(value, inner, key, sources)
    if get_origin(inner) is tuple and is_table(get_args(inner)[0]):
        if not isinstance(value, list):
            raise sources.error(key, f"expected a list of tables, got {_show(value, key)}")
        item = get_args(inner)[0]
        return tuple(
            read_table(each, item, f"{key}[{index}]", sources) for index, each in enumerate(value)
        )
    try:
        return msgspec.convert(value, inner)
    except msgspec.ValidationError:
        problem = f"expected {describe(inner)}, got {_show(value, key)}"
        raise sources.error(key, problem) from None


def is_table(kind: object) -> bool:
    """Tell whether a field's type is a table."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def without_none(kind: Any) -> Any:  # noqa: ANN401
    """Return the type of a field without the None that stands for "not given"."""
    if get_origin(kind) not in {Union, types.UnionType}:
        return kind
    kinds = [each for each in get_args(kind) if each is not types.NoneType]
    return kinds[0] if len(kinds) == 1 else kind


def describe(kind: Any) -> str:  # noqa: ANN401
    """Say in words what a field takes."""
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
    """Say what was found; never a secret, and never more than a line."""
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
