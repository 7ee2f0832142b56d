"""Which subscribers get which rows of a batch, by the routes that the batch has.

A batch may have thousands of routes, each for a pattern of its own, and still few distinct sets of
subscribers. So patterns that the same sessions have are looked at as one, and so are routes whose
patterns come down to the same sets of sessions.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from penstock.limits import PLANS_BYTES_MAX, PLANS_MAX, ROUTE_PATTERNS_MAX
from penstock.model import ByteOrder
from penstock.patterns import CanonicalPattern
from penstock.protocols import Protocol

if TYPE_CHECKING:
    from penstock.core.sessions import Session

__all__ = [
    "Audience",
    "Audiences",
    "Encoding",
    "RouteMark",
    "SubscribedPattern",
    "Subscriber",
    "mark_routes",
]


class RouteMark:
    """A subscriber that gets no live messages: `Router.wanted` finds its topics in a batch."""

    __slots__ = ()


Subscriber: TypeAlias = "Session | RouteMark"


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


class SubscribedPattern:
    """A subscribed pattern and its subscribers, with the texts by which each has subscribed."""

    __slots__ = ("canonical", "sessions")

    def __init__(self, canonical: CanonicalPattern) -> None:
        self.canonical = canonical
        self.sessions: dict[Subscriber, tuple[str, ...]] = {}


class _SessionSet:
    """The sessions of one or more patterns: each of these patterns has all of them."""

    __slots__ = ("sessions",)

    def __init__(self, sessions: list["Session"]) -> None:
        self.sessions = sessions


class _RouteKind:
    """The session sets of one or more routes: messages on them go to the same sessions."""

    __slots__ = ("sets",)

    def __init__(self, sets: tuple[_SessionSet, ...]) -> None:
        self.sets = sets


_NO_SESSIONS = _RouteKind(())

PatternsOf: TypeAlias = Callable[[Sequence[int]], Mapping[int, Iterable[SubscribedPattern]]]
"""Returns the patterns of routes, given by number. A route without patterns may be absent."""


class Audiences:
    """Finds the audiences of a combination of routes, and keeps them until subscriptions change."""

    def __init__(self) -> None:
        self._plans: dict[tuple[int, ...], list[Audience]] = {}
        self._plans_bytes = 0
        self._kind_of_route: dict[int, _RouteKind] = {}
        self._kinds: dict[tuple[_SessionSet, ...], _RouteKind] = {(): _NO_SESSIONS}
        self._kinds_sets = 0  # session sets of all kinds together
        self._set_of_pattern: dict[SubscribedPattern, _SessionSet | None] = {}
        self._sets: dict[frozenset[Session], _SessionSet] = {}

    def clear(self) -> None:
        """Forget all audiences, because subscriptions or the numbers of routes change."""
        self._clear_plans()
        self._clear_kinds()

    def of_routes(self, numbers: tuple[int, ...], patterns_of: PatternsOf) -> list[Audience]:
        """Return the audiences of a batch with these routes; each subscriber is in one of them."""
        plan = self._plans.get(numbers)
        if plan is None:
            plan = self._find(numbers, patterns_of)
            size = 8 * len(numbers) + sum(
                len(each.wanted or b"") + 8 * len(each.sessions) for each in plan
            )
            if len(self._plans) >= PLANS_MAX or self._plans_bytes + size > PLANS_BYTES_MAX:
                self._clear_plans()
            self._plans[numbers] = plan
            self._plans_bytes += size
        return plan

    def _clear_plans(self) -> None:
        self._plans.clear()
        self._plans_bytes = 0

    def _clear_kinds(self) -> None:
        self._kind_of_route.clear()
        self._kinds = {(): _NO_SESSIONS}
        self._kinds_sets = 0
        self._set_of_pattern.clear()
        self._sets.clear()

    def _find(self, numbers: tuple[int, ...], patterns_of: PatternsOf) -> list[Audience]:
        routes_of_kind = self._routes_of_kind(numbers, patterns_of)
        kinds_of_set: dict[_SessionSet, list[_RouteKind]] = {}
        for kind in routes_of_kind:
            for session_set in kind.sets:
                kinds_of_set.setdefault(session_set, []).append(kind)
        sets_of_session: dict[Session, list[_SessionSet]] = {}
        for session_set in kinds_of_set:
            for session in session_set.sessions:
                sets_of_session.setdefault(session, []).append(session_set)
        # Most sessions share their sets with others: find the kinds of routes of each once.
        kinds_of_sets: dict[tuple[_SessionSet, ...], frozenset[_RouteKind]] = {}
        groups: dict[tuple[Encoding, frozenset[_RouteKind]], list[Session]] = {}
        for session, sets in sets_of_session.items():
            kinds = kinds_of_sets.get(tuple(sets))
            if kinds is None:
                kinds = frozenset(kind for each in sets for kind in kinds_of_set[each])
                kinds_of_sets[tuple(sets)] = kinds
            groups.setdefault((session.encoding, kinds), []).append(session)
        marks: dict[frozenset[_RouteKind], bytes | None] = {
            kinds: None
            if len(kinds) == len(routes_of_kind)
            else mark_routes(number for kind in kinds for number in routes_of_kind[kind])
            for kinds in kinds_of_sets.values()
        }
        return [
            Audience(encoding, marks[kinds], sessions)
            for (encoding, kinds), sessions in groups.items()
        ]

    def _routes_of_kind(
        self, numbers: tuple[int, ...], patterns_of: PatternsOf
    ) -> dict[_RouteKind, list[int]]:
        """Return the routes of each kind."""
        known = self._kind_of_route
        if len(known) + self._kinds_sets > ROUTE_PATTERNS_MAX:
            self._clear_kinds()
        unknown = [number for number in numbers if number not in known]
        if unknown:
            patterns = patterns_of(unknown)
            for number in unknown:
                known[number] = self._kind(patterns.get(number, ()))
        found: defaultdict[_RouteKind, list[int]] = defaultdict(list)
        for number in numbers:
            found[known[number]].append(number)
        return found

    def _kind(self, patterns: Iterable[SubscribedPattern]) -> _RouteKind:
        sets = tuple(dict.fromkeys(filter(None, map(self._session_set, patterns))))
        kind = self._kinds.get(sets)
        if kind is None:
            kind = self._kinds[sets] = _RouteKind(sets)
            self._kinds_sets += len(sets)
        return kind

    def _session_set(self, pattern: SubscribedPattern) -> _SessionSet | None:
        """Return the session set of a pattern, None if it has no sessions."""
        if pattern in self._set_of_pattern:
            return self._set_of_pattern[pattern]
        found = None
        sessions = [each for each in pattern.sessions if not isinstance(each, RouteMark)]
        if sessions:
            members = frozenset(sessions)
            found = self._sets.get(members)
            if found is None:
                found = self._sets[members] = _SessionSet(sessions)
        self._set_of_pattern[pattern] = found
        return found


def mark_routes(numbers: Iterable[int]) -> bytes:
    """Return marks of the routes with these numbers, which are not empty."""
    listed = list(numbers)
    marks = bytearray(max(listed) + 1)
    for number in listed:
        marks[number] = 1
    return bytes(marks)
