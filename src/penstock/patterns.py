"""Subscription patterns: the name of one topic, or wildcards over its levels.

Levels are separated by `/` or `.`, which a pattern treats alike. `+` and `*` match one level, `#`
and `>` match zero or more levels at the end: `a/#` matches `a`, `a/b` and `a.b.c`.
"""

import re
from typing import Final, Generic, TypeVar

from penstock.errors import InvalidPattern
from penstock.limits import (
    EXPRESSION_CACHED_CHARACTERS_MAX,
    PATTERN_LEVELS_MAX,
    TOPIC_NAME_BYTES_MAX,
)

__all__ = ["PatternTree", "compile_pattern", "covers", "overlaps"]

_SEPARATOR: Final = re.compile(r"[/.]")
_ONE_LEVEL: Final = frozenset({"+", "*"})
_THE_REST: Final = frozenset({"#", ">"})


def compile_pattern(text: str) -> re.Pattern[str] | None:
    """Return a regular expression for the topics of a pattern, None if it has no wildcards.

    Raise InvalidPattern if it is empty or too long, has levels after `#` or `>`, or has wildcards
    and more than PATTERN_LEVELS_MAX levels.
    """
    if not text or len(text.encode()) > TOPIC_NAME_BYTES_MAX:
        raise InvalidPattern(text[:200])
    levels = _SEPARATOR.split(text)
    if (_ONE_LEVEL | _THE_REST).isdisjoint(levels):
        return None
    if not _THE_REST.isdisjoint(levels[:-1]) or len(levels) > PATTERN_LEVELS_MAX:
        raise InvalidPattern(text[:200])
    last_is_rest = levels[-1] in _THE_REST
    if last_is_rest:
        levels.pop()
        if not levels:
            return re.compile(r".+", re.DOTALL)
    expression = r"[/.]".join(
        r"[^/.]*" if level in _ONE_LEVEL else re.escape(level) for level in levels
    )
    compiled = re.compile(expression + (r"(?:[/.].*)?" if last_is_rest else ""), re.DOTALL)
    if len(expression) > EXPRESSION_CACHED_CHARACTERS_MAX:
        re.purge()
    return compiled


def covers(pattern: str, other: str) -> bool:
    """Return whether `pattern` matches every topic that `other` matches."""
    if compile_pattern(pattern) is None:
        return pattern == other
    mine, theirs = _SEPARATOR.split(pattern), _SEPARATOR.split(other)
    for level, their_level in zip(mine, theirs, strict=False):
        if level in _THE_REST:
            return True
        if their_level in _THE_REST or (
            level not in _ONE_LEVEL and (their_level in _ONE_LEVEL or level != their_level)
        ):
            return False
    return len(mine) == len(theirs) or (len(mine) == len(theirs) + 1 and mine[-1] in _THE_REST)


def overlaps(pattern: str, other: str) -> bool:
    """Return whether both patterns may match the same topic."""
    if compile_pattern(pattern) is None and compile_pattern(other) is None:
        return pattern == other
    mine, theirs = _SEPARATOR.split(pattern), _SEPARATOR.split(other)
    for level, their_level in zip(mine, theirs, strict=False):
        if level in _THE_REST or their_level in _THE_REST:
            return True
        if level != their_level and not ({level, their_level} & _ONE_LEVEL):
            return False
    longer = mine[len(theirs) :] or theirs[len(mine) :]
    return not longer or (len(longer) == 1 and longer[0] in _THE_REST)


Value = TypeVar("Value")


class _Node(Generic[Value]):
    """A level: values of patterns that end here, of those that match the rest, and child levels."""

    __slots__ = ("below", "here", "rest")

    def __init__(self) -> None:
        self.below: dict[str, _Node[Value]] = {}
        self.here: dict[str, Value] = {}
        self.rest: dict[str, Value] = {}

    def __bool__(self) -> bool:
        return bool(self.below or self.here or self.rest)


class PatternTree(Generic[Value]):
    """Values by wildcard pattern; a search walks the levels of a topic.

    The cost of a search depends on the levels of the topic, not on the number of patterns.
    """

    def __init__(self) -> None:
        self._root: _Node[Value] = _Node()

    def __bool__(self) -> bool:
        return bool(self._root)

    def add(self, pattern: str, value: Value) -> None:
        """Add a pattern with its value."""
        node = self._root
        levels, takes_rest = _levels(pattern)
        for level in levels:
            node = node.below.setdefault(level, _Node())
        (node.rest if takes_rest else node.here)[pattern] = value

    def remove(self, pattern: str) -> None:
        """Remove an added pattern and the levels that become empty."""
        path = [self._root]
        levels, takes_rest = _levels(pattern)
        for level in levels:
            path.append(path[-1].below[level])
        del (path[-1].rest if takes_rest else path[-1].here)[pattern]
        while levels and not path.pop():
            del path[-1].below[levels.pop()]

    def find(self, topic: str) -> list[Value]:
        """Return the values of all patterns that match a topic."""
        found: list[Value] = []
        nodes = [self._root]
        for level in _SEPARATOR.split(topic):
            for node in nodes:
                found += node.rest.values()
            nodes = [
                node.below[name] for node in nodes for name in (level, _ANY) if name in node.below
            ]
        for node in nodes:
            found += node.rest.values()
            found += node.here.values()
        return found


_ANY: Final = "+"


def _levels(pattern: str) -> tuple[list[str], bool]:
    """Return the normalised levels of a pattern, and whether it ends with `#` or `>`."""
    levels = [_ANY if level in _ONE_LEVEL else level for level in _SEPARATOR.split(pattern)]
    if levels[-1] in _THE_REST:
        return levels[:-1], True
    return levels, False
