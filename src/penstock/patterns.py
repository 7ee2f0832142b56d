"""Subscription patterns: the name of one topic, or wildcards over its levels.

Levels are separated by `/` or `.`, which a pattern treats alike. `+` and `*` match one level, `#`
and `>` match zero or more levels at the end: `a/#` matches `a`, `a/b` and `a.b.c`.
"""

import re
from typing import Final, Generic, NamedTuple, TypeVar

from penstock.errors import InvalidPattern
from penstock.limits import (
    EXPRESSION_CACHED_CHARACTERS_MAX,
    PATTERN_BYTES_MAX,
    PATTERN_LEVELS_MAX,
    TOPIC_NAME_BYTES_MAX,
)

__all__ = [
    "CanonicalPattern",
    "PatternNode",
    "PatternTree",
    "canonical_pattern",
    "children",
    "compile_pattern",
    "covers",
    "overlaps",
    "pattern_expression",
    "split_levels",
]

_ONE_LEVEL: Final = frozenset({"+", "*"})
_THE_REST: Final = frozenset({"#", ">"})
_WILDCARDS: Final = _ONE_LEVEL | _THE_REST
_ANY: Final = "+"


def compile_pattern(text: str) -> re.Pattern[str] | None:
    """Return a regular expression for the topics of a pattern, None if it has no wildcards.

    Raise InvalidPattern if it is empty or too long, has levels after `#` or `>`, or has wildcards
    and more than PATTERN_LEVELS_MAX levels or PATTERN_BYTES_MAX bytes. Compiling takes about a
    microsecond for each byte: the event loop uses `canonical_pattern`.
    """
    pattern = canonical_pattern(text)
    if pattern.levels is None:
        return None
    expression = pattern_expression(pattern)
    compiled = re.compile(expression, re.DOTALL)
    if len(expression) > EXPRESSION_CACHED_CHARACTERS_MAX:
        re.purge()
    return compiled


def pattern_expression(pattern: "CanonicalPattern") -> str:
    """Return a regular expression that a topic matches as a whole; its `.` takes line ends too."""
    levels = pattern.levels
    if levels is None:
        return re.escape(pattern.text)
    if pattern.takes_rest and not levels:
        return r".+"
    expression = r"[/.]".join(r"[^/.]*" if level == _ANY else re.escape(level) for level in levels)
    return expression + (r"(?:[/.].*)?" if pattern.takes_rest else "")


def covers(pattern: str, other: str) -> bool:
    """Return whether `pattern` matches every topic that `other` matches."""
    mine = split_levels(pattern)
    if not _has_wildcard(pattern, mine):
        return pattern == other
    theirs = split_levels(other)
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
    mine, theirs = split_levels(pattern), split_levels(other)
    if not _has_wildcard(pattern, mine) and not _has_wildcard(other, theirs):
        return pattern == other
    for level, their_level in zip(mine, theirs, strict=False):
        if level in _THE_REST or their_level in _THE_REST:
            return True
        if level != their_level and not ({level, their_level} & _ONE_LEVEL):
            return False
    longer = mine[len(theirs) :] or theirs[len(mine) :]
    return not longer or (len(longer) == 1 and longer[0] in _THE_REST)


class CanonicalPattern(NamedTuple):
    """A pattern in the one form that all patterns of the same meaning have.

    `levels` are the levels before `#`, with `+` for any level; None if there are no wildcards.
    `shape` says which levels are wildcards: of one shape, at most one pattern matches a topic.
    """

    text: str
    levels: tuple[str, ...] | None
    takes_rest: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of levels, whether it takes the rest, and the places of `+`."""
        levels = self.levels or ()
        places = (place for place, level in enumerate(levels) if level == _ANY)
        return (len(levels), int(self.takes_rest), *places)


def canonical_pattern(text: str) -> CanonicalPattern:
    """Return the canonical form of a pattern; raise InvalidPattern, see `compile_pattern`."""
    if not text or len(text.encode()) > TOPIC_NAME_BYTES_MAX:
        raise InvalidPattern(text[:200])
    levels = split_levels(text)
    if not _has_wildcard(text, levels):
        return CanonicalPattern(text, None, takes_rest=False)
    if (
        not _THE_REST.isdisjoint(levels[:-1])
        or len(levels) > PATTERN_LEVELS_MAX
        or len(text.encode()) > PATTERN_BYTES_MAX
    ):
        raise InvalidPattern(text[:200])
    levels = [_ANY if level in _ONE_LEVEL else level for level in levels]
    takes_rest = levels[-1] in _THE_REST
    if takes_rest:
        levels.pop()
        if levels == [_ANY]:  # every topic has a level
            levels.clear()
    return CanonicalPattern(
        "/".join([*levels, "#"] if takes_rest else levels), tuple(levels), takes_rest
    )


def split_levels(name: str) -> list[str]:
    """Return the levels of a topic; one entry has all levels beyond PATTERN_LEVELS_MAX."""
    return name.replace(".", "/").split("/", PATTERN_LEVELS_MAX)


def _has_wildcard(text: str, levels: list[str]) -> bool:
    """Return whether any level of a pattern is a wildcard; `levels` are its first ones."""
    if not _WILDCARDS.isdisjoint(levels):
        return True
    if len(levels) <= PATTERN_LEVELS_MAX or not any(each in text for each in _WILDCARDS):
        return False
    return not _WILDCARDS.isdisjoint(text.replace(".", "/").split("/"))


Value = TypeVar("Value")


class PatternNode(Generic[Value]):
    """A level: values of patterns that end here, of those that match the rest, and child levels."""

    __slots__ = ("below", "here", "rest")

    def __init__(self) -> None:
        self.below: dict[str, PatternNode[Value]] = {}
        self.here: Value | None = None
        self.rest: Value | None = None

    def __bool__(self) -> bool:
        return bool(self.below) or self.here is not None or self.rest is not None


class PatternTree(Generic[Value]):
    """Values by canonical pattern with wildcards; a search walks the levels of a topic.

    The cost of a search depends on the levels of the topic and the shapes of the patterns, not on
    the number of patterns.
    """

    def __init__(self) -> None:
        self.root: PatternNode[Value] = PatternNode()

    def __bool__(self) -> bool:
        return bool(self.root)

    def add(self, pattern: CanonicalPattern, value: Value) -> None:
        """Set the value of a pattern."""
        node = self.root
        for level in pattern.levels or ():
            found = node.below.get(level)
            if found is None:
                found = node.below[level] = PatternNode()
            node = found
        if pattern.takes_rest:
            node.rest = value
        else:
            node.here = value

    def remove(self, pattern: CanonicalPattern, value: Value) -> None:
        """Remove a pattern, if it has this value, and the levels that become empty."""
        path = [self.root]
        levels = list(pattern.levels or ())
        for level in levels:
            path.append(path[-1].below[level])
        last = path[-1]
        if pattern.takes_rest and last.rest is value:
            last.rest = None
        elif not pattern.takes_rest and last.here is value:
            last.here = None
        while levels and not path.pop():
            del path[-1].below[levels.pop()]

    def find(self, topic: str) -> list[Value]:
        """Return the values of all patterns that match a topic."""
        found: list[Value] = []
        nodes = [self.root]
        for level in split_levels(topic):
            if not nodes:
                break
            found += [node.rest for node in nodes if node.rest is not None]
            nodes = children(nodes, level)
        for node in nodes:
            if node.rest is not None:
                found.append(node.rest)
            if node.here is not None:
                found.append(node.here)
        return found


def children(nodes: list[PatternNode[Value]], level: str) -> list[PatternNode[Value]]:
    """Return the nodes one level below `nodes` that match a level of a topic."""
    found = []
    for node in nodes:
        below = node.below
        if level in below:
            found.append(below[level])
        if _ANY in below:
            found.append(below[_ANY])
    return found
