"""Filters that Spark pushes down, translated to a selection and a range of offsets."""

import dataclasses
import datetime as dt
from collections.abc import Iterable
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from penstock.ports.selection import Selection, TopicTest
from penstock.storage.schema import KINDS, PROTOCOLS

__all__ = ["PushedFilters", "push_filters"]

_NEVER_NULL: Final = frozenset(
    {"value", "topic", "partition", "offset", "timestamp", "timestampType", "protocol", "kind",
     "sender", "message_id"}
)  # fmt: skip
_STRINGS: Final = {StringStartsWith: "starts", StringEndsWith: "ends", StringContains: "contains"}
_ENUM_VALUES: Final[dict[str, tuple[str, ...]]] = {"protocol": PROTOCOLS, "kind": KINDS}
_SELECTION_FIELDS: Final = {"protocol": "protocols", "kind": "kinds"}
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclasses.dataclass(frozen=True)
class PushedFilters:
    """A selection, and offsets from `first` up to, not including, `last`; None is unbounded."""

    selection: Selection
    first: int | None = None
    last: int | None = None
    partitions: frozenset[int] | None = None


def push_filters(
    pushed: PushedFilters, filters: Iterable[Filter]
) -> tuple[PushedFilters, list[Filter]]:
    """Apply filters where possible; return the result and the filters that Spark must apply."""
    left = []
    for each in filters:
        applied = _apply(pushed, each)
        if applied is None:
            left.append(each)
        else:
            pushed = applied
    return pushed, left


def _apply(pushed: PushedFilters, given: Filter) -> PushedFilters | None:
    """Return `pushed` with one more filter, None if Spark must apply the filter."""
    negated = isinstance(given, Not)
    inner = given.child if isinstance(given, Not) else given
    attribute: tuple[str, ...] = getattr(inner, "attribute", ())
    if len(attribute) != 1:
        return None
    column = attribute[0]
    if isinstance(inner, IsNotNull):
        return pushed if column in _NEVER_NULL and not negated else None
    value = getattr(inner, "value", None)
    if value is None:
        return None
    if column == "topic":
        return _topic(pushed, inner, negated=negated)
    if column in _ENUM_VALUES:
        return _enum(pushed, column, inner, negated=negated)
    if negated:
        return None
    if column == "partition" and isinstance(inner, EqualTo | EqualNullSafe | In):
        return _partition(pushed, _values(inner))
    if column == "offset" and type(value) is int:
        return _offset(pushed, inner, value)
    if column == "timestamp" and isinstance(value, dt.datetime) and value.tzinfo is not None:
        return _time(pushed, inner, (value - _EPOCH) // dt.timedelta(microseconds=1))
    return None


def _values(given: EqualTo | EqualNullSafe | In) -> tuple[Any, ...]:
    """Return the values that an equality filter allows."""
    return tuple(given.value) if isinstance(given, In) else (given.value,)


def _topic(pushed: PushedFilters, given: Filter, *, negated: bool) -> PushedFilters | None:
    selection = pushed.selection
    if isinstance(given, EqualTo | EqualNullSafe | In):
        names = frozenset(_values(given))
        if not all(isinstance(name, str) for name in names):
            return None
        if negated:
            tests = tuple(TopicTest("equals", name, negated=True) for name in sorted(names))
            selection = dataclasses.replace(selection, tests=selection.tests + tests)
        else:
            both = names if selection.names is None else names & selection.names
            selection = dataclasses.replace(selection, names=both)
    elif isinstance(given, StringStartsWith | StringEndsWith | StringContains):
        test = TopicTest(_STRINGS[type(given)], given.value, negated=negated)
        selection = dataclasses.replace(selection, tests=(*selection.tests, test))
    else:
        return None
    return dataclasses.replace(pushed, selection=selection)


def _enum(
    pushed: PushedFilters, column: str, given: Filter, *, negated: bool
) -> PushedFilters | None:
    """Apply a filter on a column with a fixed set of values."""
    if not isinstance(given, EqualTo | EqualNullSafe | In):
        return None
    listed = _values(given)
    passing = frozenset(value for value in _ENUM_VALUES[column] if (value in listed) is not negated)
    before: frozenset[str] | None = getattr(pushed.selection, _SELECTION_FIELDS[column])
    both = passing if before is None else passing & before
    changes: dict[str, Any] = {_SELECTION_FIELDS[column]: both}
    return dataclasses.replace(pushed, selection=dataclasses.replace(pushed.selection, **changes))


def _partition(pushed: PushedFilters, numbers: Iterable[Any]) -> PushedFilters | None:
    wanted = frozenset(numbers)
    if not all(type(number) is int for number in wanted):
        return None
    both = wanted if pushed.partitions is None else wanted & pushed.partitions
    return dataclasses.replace(pushed, partitions=both)


def _span(given: Filter, value: int) -> tuple[int | None, int | None] | None:
    """Return the range of integers that match a comparison: first, and end exclusive."""
    match given:
        case EqualTo() | EqualNullSafe():
            return value, value + 1
        case GreaterThan():
            return value + 1, None
        case GreaterThanOrEqual():
            return value, None
        case LessThan():
            return None, value
        case LessThanOrEqual():
            return None, value + 1
    return None


def _higher(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


def _lower(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _offset(pushed: PushedFilters, given: Filter, value: int) -> PushedFilters | None:
    span = _span(given, value)
    if span is None:
        return None
    first, last = _higher(pushed.first, span[0]), _lower(pushed.last, span[1])
    return dataclasses.replace(pushed, first=first, last=last)


def _time(pushed: PushedFilters, given: Filter, value: int) -> PushedFilters | None:
    span = _span(given, value)
    if span is None:
        return None
    selection = dataclasses.replace(
        pushed.selection,
        since_us=_higher(pushed.selection.since_us, span[0]),
        until_us=_lower(pushed.selection.until_us, span[1]),
    )
    return dataclasses.replace(pushed, selection=selection)
