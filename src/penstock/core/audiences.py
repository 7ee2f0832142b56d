"""Which subscribers get which rows of a batch, by the kinds of routes that the batch has.

A batch may have thousands of routes, each for a pattern of its own, and still few distinct sets of
subscribers. So patterns with the same sessions are treated as one, and routes whose patterns have
the same sets of sessions are of one *kind*. Kinds have numbers, which the kernel looks up for each
message.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from sys import getsizeof
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from penstock._kernels.batch import Batch
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
    "marks_of",
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

    `wanted` marks the kinds of routes whose rows they get, and `kind_of_route` has the kind of each
    route; None stands for all rows.
    """

    encoding: Encoding
    wanted: bytes | None
    kind_of_route: "array[int]"
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


_UNKNOWN: Final = 0
"""The kind of routes whose kind was not found yet."""
_NUMBER_BYTES: Final = 28
"""Memory of a number in the key of a plan."""

PatternsOf: TypeAlias = Callable[[Sequence[int]], Mapping[int, Iterable[SubscribedPattern]]]
"""Returns the patterns of routes, given by number. A route without patterns may be absent."""


class Audiences:
    """Finds the audiences of a batch, and caches them by the kinds of its routes.

    The cache is cleared when subscriptions change. Audiences that were returned before stay valid
    for a delivery that is under way: later kinds are in new tables.
    """

    def __init__(self) -> None:
        self._clear_plans()
        self._clear_kinds()

    def clear(self) -> None:
        """Forget all audiences, because subscriptions or the numbers of routes change."""
        self._clear_plans()
        self._clear_kinds()

    def of_batch(
        self,
        batch: Batch,
        route_of_topic: "array[int]",
        patterns_of: PatternsOf,
        *,
        route_count: int,
    ) -> list[Audience]:
        """Return the audiences of a batch; each subscriber is in one of them.

        `route_of_topic` and `route_count` are as in `Batch.routes`.
        """
        count = len(self._sets_of_kind)
        kinds = batch.kinds(route_of_topic, self._kind_of_route, kind_count=count)
        if _UNKNOWN in kinds:
            self._learn(batch.routes(route_of_topic, route_count=route_count), patterns_of)
            count = len(self._sets_of_kind)
            kinds = batch.kinds(route_of_topic, self._kind_of_route, kind_count=count)
        plan = self._plans.get(kinds)
        if plan is None:
            plan = self._find(kinds)
            size = getsizeof(kinds) + _NUMBER_BYTES * len(kinds) + getsizeof(plan)
            for each in plan:
                size += getsizeof(each) + getsizeof(each.wanted) + getsizeof(each.sessions)
            if len(self._plans) >= PLANS_MAX or self._plans_bytes + size > PLANS_BYTES_MAX:
                self._clear_plans()
            self._plans[kinds] = plan
            self._plans_bytes += size
        return plan

    def _clear_plans(self) -> None:
        self._plans: dict[tuple[int, ...], list[Audience]] = {}
        self._plans_bytes = 0

    def _clear_kinds(self) -> None:
        self._kind_of_route = array("I")
        self._sets_of_kind: list[tuple[_SessionSet, ...]] = [(), ()]  # unknown; no sessions
        self._kind_of_sets: dict[tuple[_SessionSet, ...], int] = {(): 1}
        self._kinds_sets = 0  # session sets of all kinds together
        self._set_of_pattern: dict[SubscribedPattern, _SessionSet | None] = {}
        self._sets: dict[frozenset[Session], _SessionSet] = {}

    def _find(self, numbers: tuple[int, ...]) -> list[Audience]:
        kinds_of_set: dict[_SessionSet, list[int]] = {}
        for kind in numbers:
            for session_set in self._sets_of_kind[kind]:
                kinds_of_set.setdefault(session_set, []).append(kind)
        sets_of_session: dict[Session, list[_SessionSet]] = {}
        for session_set in kinds_of_set:
            for session in session_set.sessions:
                sets_of_session.setdefault(session, []).append(session_set)
        # Most sessions share their sets with others: find the kinds for each combination once.
        kinds_of_sets: dict[tuple[_SessionSet, ...], frozenset[int]] = {}
        groups: dict[tuple[Encoding, frozenset[int]], list[Session]] = {}
        for session, sets in sets_of_session.items():
            kinds = kinds_of_sets.get(tuple(sets))
            if kinds is None:
                kinds = frozenset(kind for each in sets for kind in kinds_of_set[each])
                kinds_of_sets[tuple(sets)] = kinds
            groups.setdefault((session.encoding, kinds), []).append(session)
        marks = {
            kinds: None if len(kinds) == len(numbers) else marks_of(kinds)
            for kinds in kinds_of_sets.values()
        }
        return [
            Audience(encoding, marks[kinds], self._kind_of_route, sessions)
            for (encoding, kinds), sessions in groups.items()
        ]

    def _learn(self, routes: Sequence[int], patterns_of: PatternsOf) -> None:
        """Find the kinds of the routes that have none yet; there must be at least one."""
        if len(self._sets_of_kind) + self._kinds_sets > ROUTE_PATTERNS_MAX:
            self.clear()
        known = self._kind_of_route
        known.frombytes(bytes(known.itemsize * max(max(routes) + 1 - len(known), 0)))
        unknown = [number for number in routes if not known[number]]
        patterns = patterns_of(unknown)
        for number in unknown:
            known[number] = self._kind(patterns.get(number, ()))

    def _kind(self, patterns: Iterable[SubscribedPattern]) -> int:
        sets = tuple(dict.fromkeys(filter(None, map(self._session_set, patterns))))
        kind = self._kind_of_sets.get(sets)
        if kind is None:
            kind = self._kind_of_sets[sets] = len(self._sets_of_kind)
            self._sets_of_kind.append(sets)
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


def marks_of(numbers: Iterable[int]) -> bytes:
    """Return marks of the routes or kinds with these numbers; there must be at least one."""
    listed = list(numbers)
    marks = bytearray(max(listed) + 1)
    for number in listed:
        marks[number] = 1
    return bytes(marks)
