"""Topics and partitions to read: `subscribe`, `subscribePattern` and `assign`, parsed."""

import json

from penstock.errors import InvalidPattern
from penstock.patterns import compile_pattern
from penstock.ports.expressions import check_expression
from penstock.ports.selection import Selection
from penstock.spark.errors import InvalidOption

__all__ = ["parse_subscription"]


def parse_subscription(
    subscribe: str | None, expression: str | None, assigned: str | None
) -> tuple[Selection, frozenset[int] | None]:
    """Return the topics to read, and the partitions, None for all; raise InvalidOption.

    At most one of `subscribe`, `expression` (of `subscribePattern`) and `assigned` is given.
    """
    given = {"subscribe": subscribe, "subscribePattern": expression, "assign": assigned}
    named = [name for name, text in given.items() if text is not None]
    if len(named) > 1:
        allowed = "one of subscribe, subscribePattern, assign; all topics without them"
        raise InvalidOption(named[1], f"there is {named[0]} too", allowed)
    if assigned is not None:
        return _assigned(assigned)
    return _selection(subscribe, expression), None


def _assigned(text: str) -> tuple[Selection, frozenset[int]]:
    """Return the topics and partitions of `assign`; raise InvalidOption."""
    allowed = 'JSON of partitions by topic such as {"a": [0], "b": [0]}'
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found:
        raise InvalidOption("assign", f"{text!r} is no JSON of partitions by topic", allowed)
    given: set[frozenset[int]] = set()
    for topic, numbers in found.items():
        if not isinstance(numbers, list) or not numbers:
            raise InvalidOption("assign", f"{topic!r} has {numbers!r}, no partitions", allowed)
        for number in numbers:
            if type(number) is not int or number < 0:
                raise InvalidOption("assign", f"{number!r} is no partition", allowed)
        try:
            is_pattern = compile_pattern(topic) is not None
        except InvalidPattern as error:
            raise InvalidOption("assign", str(error) or "it has an empty name", allowed) from error
        if is_pattern:
            problem = f"{topic!r} is a pattern"
            raise InvalidOption("assign", problem, f"{allowed}; patterns are for subscribe")
        given.add(frozenset(numbers))
    if len(given) > 1:
        same = "the same partitions for each topic, since a partition has all topics"
        raise InvalidOption("assign", "topics have different partitions", same)
    return Selection(topics=frozenset(found)), given.pop()


def _selection(subscribe: str | None, expression: str | None) -> Selection:
    if expression is not None:
        try:
            check_expression(expression)
        except ValueError as error:
            allowed = "a regular expression that is to match whole names of topics"
            raise InvalidOption("subscribePattern", f"{expression!r}: {error}", allowed) from error
        return Selection(expression=expression)
    if subscribe is None:
        return Selection()
    topics: set[str] = set()
    patterns: list[str] = []
    allowed = "names of topics or patterns with + and #, with commas between"
    for each in (name.strip() for name in subscribe.split(",")):
        try:
            wild = compile_pattern(each)
        except InvalidPattern as error:
            raise InvalidOption("subscribe", str(error) or "it is empty", allowed) from error
        if wild is None:
            topics.add(each)
        else:
            patterns.append(each)
    return Selection(topics=frozenset(topics), patterns=tuple(patterns) or None)
