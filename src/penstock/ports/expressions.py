"""Regular expressions of users, matched by RE2: in linear time, outside the interpreter lock.

Python's `re` backtracks. A short expression such as `(.+)+!` can take it forever, while no other
thread runs. RE2 has no look-around, backreferences, possessive quantifiers or atomic groups.
"""

import re
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.limits import EXPRESSION_BYTES_MAX, EXPRESSION_STATES_MAX
from penstock.ports.text_columns import text_parts

__all__ = ["check_expression", "matches"]

_WITHOUT: Final = "RE2 has no look-around, backreferences, possessive quantifiers or atomic groups"
_PREFIX: Final = "Invalid regular expression: "
_TOKEN: Final = re.compile(
    r"(?P<repeat>\{(\d{1,9})(?:,(\d{0,9}))?\})|(?P<escape>\\.)|(?P<other>.)", re.DOTALL
)
_CLASS_STATES: Final = 8
"""About how many states of RE2 match one character of a class in UTF-8."""


def check_expression(text: str) -> None:
    """Raise ValueError unless RE2 takes an expression, and its size is within the limits."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError("it is not valid Unicode") from None
    if size > EXPRESSION_BYTES_MAX:
        raise ValueError(f"it has {size} bytes, allowed are {EXPRESSION_BYTES_MAX}")
    if "\\Q" in text:
        raise ValueError("\\Q is not supported")
    # Alone first: with an unbalanced parenthesis, it could end the group that `_whole` puts around.
    for each in (text, _whole(text)):
        try:
            pc.match_substring_regex(pa.array([""]), each)
        except pa.ArrowInvalid as error:
            problem = str(error).removeprefix(_PREFIX)[:200]
            raise ValueError(f"{problem} ({_WITHOUT})") from None
    if _states(text) > EXPRESSION_STATES_MAX:
        raise ValueError(f"its repetitions need more than {EXPRESSION_STATES_MAX} states")


def matches(text: str, names: Sequence[str]) -> list[bool]:
    """Tell for each name whether the whole of it matches; raise ValueError as check_expression."""
    check_expression(text)
    found: list[bool] = []
    for part in text_parts(names):
        found += pc.match_substring_regex(part, _whole(text)).to_pylist()
    return found


def _whole(text: str) -> str:
    return rf"\A(?:{text})\z"


def _states(text: str) -> int:
    """Estimate the states of a valid expression: RE2's time for each byte of a name."""
    groups = [0]
    last = place = 0
    while token := _TOKEN.match(text, place):
        place = token.end()
        if token["repeat"]:
            times = max(int(token[2]), int(token[3] or 0), 1)
            groups[-1] += last * (times - 1)
            last *= times
            continue
        match token["other"]:
            case "(":
                groups.append(0)
                continue
            case ")":
                last = groups.pop() + 1
            case "[":
                place = _class_end(text, place)
                last = _CLASS_STATES
            case "." | None:  # an escape may be a class
                last = _CLASS_STATES
            case _:
                last = 1
        groups[-1] += last
    return sum(groups)


def _class_end(text: str, place: int) -> int:
    """Return the place behind a class of characters whose first one is at `place`."""
    place += text.startswith("^", place)
    place += text.startswith("]", place)
    while place < len(text) and text[place] != "]":
        if text.startswith("[:", place) and ":]" in text[place:]:
            place = text.index(":]", place) + 2
        else:
            place += 2 if text[place] == "\\" else 1
    return place + 1
