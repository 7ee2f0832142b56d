"""Describe the values that a field accepts, and a value that it does not."""

import difflib
import types
from collections.abc import Mapping, Sequence
from typing import Any, Union, get_args, get_origin

import msgspec

__all__ = ["describe", "show", "suggest", "without_constraints", "without_none"]

SHOWN_CHARACTERS_MAX = 40


def without_none(kind: Any) -> Any:  # noqa: ANN401
    """Return the type of a field without the None that means "not set"."""
    if get_origin(kind) not in {Union, types.UnionType}:
        return kind
    kinds = [each for each in get_args(kind) if each is not types.NoneType]
    return kinds[0] if len(kinds) == 1 else kind


def without_constraints(kind: Any) -> Any:  # noqa: ANN401
    """Return the type of a field without its constraints, such as a range."""
    return get_args(kind)[0] if hasattr(kind, "__metadata__") else kind


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
                most = "" if high is None else f" and up to {high:.15g}"
                return f"a number above {above:.15g}{most}"
            return "a number" + _range(low, high)
        case msgspec.inspect.StrType(min_length=1, max_length=1):
            return "one character"
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
        case msgspec.inspect.IntType():
            return "whole numbers"
        case _:
            return "strings"


def _range(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low} to {high}"
    if low is not None:
        return f" of at least {low}"
    return "" if high is None else f" of at most {high}"


def suggest(name: str, known: Sequence[str]) -> str:
    """Return the known key that an unknown one is close to, or all of them."""
    close = difflib.get_close_matches(name, known, n=1)
    return f'did you mean "{close[0]}"?' if close else f"expected {_alternatives(sorted(known))}"


def _alternatives(names: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def show(value: object, *, is_secret: bool) -> str:
    """Return a value for an error message: one line, and never a secret."""
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return "a number" if is_secret else str(value)
        case str() if not is_secret and value.isprintable():
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
