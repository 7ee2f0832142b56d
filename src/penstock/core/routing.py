"""Routing of topics to subscribers, updated per topic and subscription, never per message.

Topics that the same patterns match share a *route*. A batch has a few distinct routes at most;
subscribers that get the same routes of it share one encoded buffer.
"""

import re
from array import array
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.limits import PLANS_BYTES_MAX, PLANS_MAX
from penstock.model import ByteOrder
from penstock.patterns import PatternTree, compile_pattern
from penstock.protocols import Protocol

if TYPE_CHECKING:
    from penstock.core.sessions import Session

__all__ = ["Audience", "Encoding", "Router"]


class Encoding(NamedTuple):
    """Protocol and byte order of deliveries; subscribers of one encoding share buffers."""

    protocol: Protocol
    order: ByteOrder


class Audience(NamedTuple):
    """Subscribers that get the same rows of a batch in the same bytes.

    `wanted` marks the routes whose rows they get; None stands for all rows.
    """

    encoding: Encoding
    wanted: bytes | None
    sessions: list["Session"]


class _Pattern:
    """A subscribed pattern: its sessions and the topics it matches."""

    __slots__ = ("expression", "sessions", "text", "topics")

    def __init__(self, text: str, expression: re.Pattern[str] | None) -> None:
        self.text = text
        self.expression = expression
        self.sessions: dict[Session, None] = {}
        self.topics: list[int] = []


class _Route:
    """A set of patterns, and the number of topics that exactly these match."""

    __slots__ = ("number", "patterns", "topic_count")

    def __init__(self, number: int, patterns: frozenset[_Pattern]) -> None:
        self.number = number
        self.patterns = patterns
        self.topic_count = 0

    def sessions(self) -> Iterable["Session"]:
        """Return each subscriber once, however many of its patterns match."""
        return dict.fromkeys(session for pattern in self.patterns for session in pattern.sessions)


class Router:
    """Maps topics to their subscribers."""

    def __init__(self, topics: TopicTable) -> None:
        self._topics = topics
        self._patterns: dict[str, _Pattern] = {}
        self._wildcards: PatternTree[_Pattern] = PatternTree()
        unrouted = _Route(0, frozenset())
        self._routes: list[_Route | None] = [unrouted]
        self._free_numbers: list[int] = []
        self._route_of_patterns: dict[frozenset[_Pattern], _Route] = {frozenset(): unrouted}
        self._plans: dict[tuple[int, ...], list[Audience]] = {}
        self._plans_bytes = 0
        self.route_of_topic = array("I")

    def subscribe(self, session: "Session", text: str) -> bool:
        """Add a subscription; return False if the session has this pattern already.

        Raise InvalidPattern.
        """
        pattern = self._patterns.get(text)
        if pattern is None:
            pattern = self._add_pattern(text)
        elif session in pattern.sessions:
            return False
        pattern.sessions[session] = None
        self._clear_plans()
        return True

    def unsubscribe(self, session: "Session", text: str) -> bool:
        """Remove a subscription; return False if the session did not have it."""
        pattern = self._patterns.get(text)
        if pattern is None or session not in pattern.sessions:
            return False
        del pattern.sessions[session]
        if not pattern.sessions:
            self._remove_pattern(pattern)
        self._clear_plans()
        return True

    def learn_topics(self) -> None:
        """Assign routes to the topics interned since the last call."""
        for identifier in range(len(self.route_of_topic), len(self._topics)):
            patterns: list[_Pattern] = []
            if self._topics.is_live(identifier):
                name = self._topics.name(identifier)
                patterns = self._wildcards.find(name)
                exact = self._patterns.get(name)
                if exact is not None and exact.expression is None:
                    patterns.append(exact)
            for pattern in patterns:
                pattern.topics.append(identifier)
            route = self._route(frozenset(patterns))
            route.topic_count += 1
            self.route_of_topic.append(route.number)

    def remove_topic(self, identifier: int) -> None:
        """Take a topic that is about to be removed off its route; patterns stay."""
        self.learn_topics()
        old = self._routes[self.route_of_topic[identifier]]
        if old is None:
            raise AssertionError(f"topic {identifier} is on a route that was removed")
        for pattern in old.patterns:
            pattern.topics.remove(identifier)
        self._move(identifier, old, frozenset())
        self._clear_plans()

    def audiences(self, batch: Batch) -> list[Audience]:
        """Return the audiences of `batch`; each subscriber is in one of them."""
        numbers = self._numbers(batch)
        plan = self._plans.get(numbers)
        if plan is None:
            plan = self._plan(numbers)
            size = _plan_bytes(numbers, plan)
            if len(self._plans) >= PLANS_MAX or self._plans_bytes + size > PLANS_BYTES_MAX:
                self._clear_plans()
            if size <= PLANS_BYTES_MAX:
                self._plans[numbers] = plan
                self._plans_bytes += size
        return plan

    def wanted(self, batch: Batch, chosen: Callable[[str], bool]) -> bytes:
        """Mark the routes of `batch` that have a chosen pattern; empty if none has."""
        found = []
        for number in self._numbers(batch):
            route = self._routes[number]
            if route is not None and any(chosen(pattern.text) for pattern in route.patterns):
                found.append(number)
        return _marks(found) if found else b""

    def subscribers(self, name: str) -> list["Session"]:
        """Return all subscribers of topic `name`."""
        identifier = self._topics.find(name)
        if len(self._topics) != len(self.route_of_topic):
            self.learn_topics()
        if identifier is None:
            return []
        route = self._routes[self.route_of_topic[identifier]]
        return list(route.sessions()) if route is not None else []

    def subscriber_count(self, route: int) -> int:
        """Return the number of subscribers of a route, a number of `route_of_topic`."""
        found = self._routes[route]
        return sum(1 for _ in found.sessions()) if found is not None else 0

    def _numbers(self, batch: Batch) -> tuple[int, ...]:
        """Return the distinct routes of a batch."""
        if len(self._topics) != len(self.route_of_topic):
            self.learn_topics()
        return tuple(batch.routes(self.route_of_topic, route_count=len(self._routes)))

    def _clear_plans(self) -> None:
        self._plans.clear()
        self._plans_bytes = 0

    def _plan(self, numbers: tuple[int, ...]) -> list[Audience]:
        seen: dict[Session, list[int]] = {}
        for number in numbers:
            route = self._routes[number]
            if route is not None:
                for session in route.sessions():
                    seen.setdefault(session, []).append(number)
        groups: dict[tuple[Encoding, tuple[int, ...]], list[Session]] = {}
        for session, routes in seen.items():
            groups.setdefault((session.encoding, tuple(routes)), []).append(session)
        return [
            Audience(encoding, None if len(routes) == len(numbers) else _marks(routes), sessions)
            for (encoding, routes), sessions in groups.items()
        ]

    def _add_pattern(self, text: str) -> _Pattern:
        pattern = _Pattern(text, compile_pattern(text))
        self.learn_topics()
        if pattern.expression is None:
            identifier = self._topics.find(text)
            if identifier is not None:
                pattern.topics.append(identifier)
        else:
            matches = pattern.expression.fullmatch
            all_live = not self._topics.removals
            pattern.topics.extend(
                identifier
                for identifier in range(len(self.route_of_topic))
                if (all_live or self._topics.is_live(identifier))
                and matches(self._topics.name(identifier))
            )
            self._wildcards.add(text, pattern)
        self._patterns[text] = pattern
        self._reroute(pattern, add=True)
        return pattern

    def _remove_pattern(self, pattern: _Pattern) -> None:
        del self._patterns[pattern.text]
        if pattern.expression is not None:
            self._wildcards.remove(pattern.text)
        self._reroute(pattern, add=False)

    def _reroute(self, pattern: _Pattern, *, add: bool) -> None:
        """Move the topics of `pattern` to routes with it or without it."""
        for identifier in pattern.topics:
            old = self._routes[self.route_of_topic[identifier]]
            if old is None:
                raise AssertionError(f"topic {identifier} is on a route that was removed")
            patterns = old.patterns | {pattern} if add else old.patterns - {pattern}
            self._move(identifier, old, patterns)

    def _move(self, identifier: int, old: _Route, patterns: frozenset[_Pattern]) -> None:
        """Move a topic from its route to that of `patterns`."""
        new = self._route(patterns)
        new.topic_count += 1
        self.route_of_topic[identifier] = new.number
        old.topic_count -= 1
        if not old.topic_count and old.number:
            self._routes[old.number] = None
            self._free_numbers.append(old.number)
            del self._route_of_patterns[old.patterns]

    def _route(self, patterns: frozenset[_Pattern]) -> _Route:
        route = self._route_of_patterns.get(patterns)
        if route is None:
            number = self._free_numbers.pop() if self._free_numbers else len(self._routes)
            route = _Route(number, patterns)
            if number == len(self._routes):
                self._routes.append(route)
            else:
                self._routes[number] = route
            self._route_of_patterns[patterns] = route
            self._clear_plans()
        return route


_WORD = 8


def _plan_bytes(numbers: tuple[int, ...], plan: list[Audience]) -> int:
    """Return the memory of a cached plan, about."""
    size = _WORD * (16 + len(numbers))
    for audience in plan:
        size += _WORD * (32 + len(audience.sessions)) + len(audience.wanted or b"")
    return size


def _marks(numbers: Iterable[int]) -> bytes:
    marks = bytearray(max(numbers) + 1)
    for number in numbers:
        marks[number] = 1
    return bytes(marks)
