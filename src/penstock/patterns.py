"""What a subscription names: one topic, or all topics whose levels fit.

Levels split at `/` or `.`, and which of the two does not matter to a pattern. `+` and `*` stand for
one level, `#` and `>` for the rest, which may be nothing: `a/#` matches `a`, `a/b` and `a.b.c`.
"""

import re
from typing import Final

from penstock.errors import InvalidPattern
from penstock.limits import TOPIC_NAME_BYTES_MAX

__all__ = ["compile_pattern", "covers", "overlaps"]

_SEPARATOR: Final = re.compile(r"[/.]")
_ONE_LEVEL: Final = frozenset({"+", "*"})
_THE_REST: Final = frozenset({"#", ">"})


def compile_pattern(text: str) -> re.Pattern[str] | None:
    """Return an expression that matches the topics of a pattern, or None if it is one topic's name.

    Raise InvalidPattern if it is empty or too long, or goes on behind `#` or `>`.
    """
    if not text or len(text.encode()) > TOPIC_NAME_BYTES_MAX:
        raise InvalidPattern(text[:200])
    levels = _SEPARATOR.split(text)
    if not _THE_REST.isdisjoint(levels[:-1]):
        raise InvalidPattern(text[:200])
    if (_ONE_LEVEL | _THE_REST).isdisjoint(levels):
        return None
    last_is_rest = levels[-1] in _THE_REST
    if last_is_rest:
        levels.pop()
        if not levels:
            return re.compile(r".+", re.DOTALL)
    expression = r"[/.]".join(
        r"[^/.]*" if level in _ONE_LEVEL else re.escape(level) for level in levels
    )
    return re.compile(expression + (r"(?:[/.].*)?" if last_is_rest else ""), re.DOTALL)


def covers(pattern: str, other: str) -> bool:
    """Tell whether every topic that `other` matches is matched by `pattern` too."""
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
    """Tell whether some topic may be matched by both patterns."""
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
