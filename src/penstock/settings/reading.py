"""Read parsed TOML into typed settings, msgspec structs with one class for each table.

Each value is checked against the type of its field. All problems are collected in one pass, each
with its key. Settings are kept by key, such as `broker.sessions_max`; a list of tables, such as
`listener`, is one setting. The constraints of a value are those of its field's `Meta`;
`Meta(extra={"bytes_max": 64})` limits a string in bytes of UTF-8.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import UNSET
from msgspec.structs import FieldInfo

from penstock.settings.description import (
    describe,
    show,
    suggest,
    without_constraints,
    without_none,
)
from penstock.settings.problems import Problems

__all__ = ["build", "read_settings", "read_value", "setting_types"]

Table = TypeVar("Table", bound=msgspec.Struct)


def setting_types(kind: type[msgspec.Struct], key: str = "") -> dict[str, Any]:
    """Return the type of every setting by its key, such as `broker.sessions_max`."""
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        below = _below(key, field.encode_name)
        found |= setting_types(field.type, below) if is_table(field.type) else {below: field.type}
    return found


def read_settings(
    values: Mapping[str, object], kind: type[msgspec.Struct], problems: Problems, *, key: str = ""
) -> dict[str, Any]:
    """Return the valid settings of a parsed file by key; add all others to `problems`."""
    found: dict[str, Any] = {}
    for field, value in _given(values, kind, key, problems):
        below = _below(key, field.encode_name)
        if not is_table(field.type):
            read = read_value(value, field.type, below, problems)
            if read is not UNSET:
                found[below] = read
        elif isinstance(value, Mapping):
            found |= read_settings(value, field.type, problems, key=below)
        else:
            _add_wrong(value, "a table", below, problems)
    return found


def build(kind: type[Table], settings: Mapping[str, Any], *, key: str = "") -> Table:
    """Return the table of settings by key, with defaults for all others."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        below = _below(key, field.encode_name)
        if is_table(field.type):
            values[field.name] = build(field.type, settings, key=below)
        elif below in settings:
            values[field.name] = settings[below]
    return kind(**values)


def read_value(value: object, kind: Any, key: str, problems: Problems) -> Any:  # noqa: ANN401
    """Return `value` as `kind`, a field's type; if it is not, add to `problems`, return UNSET."""
    inner = without_none(kind)
    base = without_constraints(inner)
    if is_table(base):
        return _read_table(value, base, key, problems)
    info = msgspec.inspect.type_info(inner)
    if get_origin(base) is tuple and isinstance(value, list) and _has_length(value, info):
        item = get_args(base)[0]
        items = [
            read_value(each, item, f"{key}[{index}]", problems) for index, each in enumerate(value)
        ]
        return UNSET if UNSET in items else tuple(items)
    if get_origin(base) is dict and isinstance(value, Mapping):
        item = get_args(base)[1]
        values = {
            name: read_value(each, item, _below(key, name), problems)
            for name, each in value.items()
        }
        return UNSET if UNSET in values.values() else values
    try:
        read = msgspec.convert(value, inner)
    except msgspec.ValidationError:
        _add_wrong(value, describe(inner), key, problems)
        return UNSET
    return read if _has_bytes(read, info, key, problems) else UNSET


def _read_table(value: object, kind: Any, key: str, problems: Problems) -> Any:  # noqa: ANN401
    if not isinstance(value, Mapping):
        _add_wrong(value, "a table", key, problems)
        return UNSET
    before = len(problems.found)
    fields = {
        field.name: read_value(each, field.type, _below(key, field.encode_name), problems)
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
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for name in values:
        if name not in fields:
            problems.add(_below(key, name), f"unknown key; {suggest(name, list(fields))}")
    for name, field in fields.items():
        if name in values:
            yield field, values[name]
        elif field.required:
            problems.add(_below(key, name), f"missing; expected {describe(field.type)}")


def _has_length(value: list[object], info: msgspec.inspect.Type) -> bool:
    """Return whether a list has as many items as its type requires."""
    match info:
        case msgspec.inspect.Metadata(type=inner):
            return _has_length(value, inner)
        case msgspec.inspect.VarTupleType(min_length=least, max_length=most):
            return (least or 0) <= len(value) <= (len(value) if most is None else most)
        case _:
            return True


def _has_bytes(value: object, info: msgspec.inspect.Type, key: str, problems: Problems) -> bool:
    """Return whether a string is not too long in bytes; if it is, add to `problems`."""
    match info:
        case msgspec.inspect.Metadata(extra={"bytes_max": most}) if isinstance(value, str):
            size = len(value.encode())
            if size <= most:
                return True
            problems.add(key, f"expected at most {most} bytes, got {size}")
            return False
        case _:
            return True


def _add_wrong(value: object, expected: str, key: str, problems: Problems) -> None:
    shown = show(value, is_secret=key.startswith(problems.secrets))
    problems.add(key, f"expected {expected}, got {shown}")


def is_table(kind: object) -> bool:
    """Return whether a field's type is a table."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _below(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name
