"""Routing of topics to subscribers, updated per topic and subscription, never per message.

Topics that the same patterns match share a *route*; subscribers that get the same routes of a batch
share one encoded buffer.

Patterns of the same meaning are one entry. A route is identified by the XOR of the random tokens of
its patterns, so that a topic moves from one route to another in constant time. A new pattern is
applied to its topics in slices, and takes effect when all of them have it. Subscriptions that end
take effect at once; patterns that are no longer used leave the routes in slices, many together.
"""

import secrets
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.core.audiences import (
    Audience,
    Audiences,
    RouteMark,
    SubscribedPattern,
    Subscriber,
    marks_of,
)
from penstock.core.interest import Interest
from penstock.core.slices import Slices
from penstock.core.topic_index import TopicIndex
from penstock.errors import TooManyPatternShapes
from penstock.limits import (
    BATCH_ROWS_MAX,
    PATTERN_SHAPES_MAX,
    PLANS_MAX,
    ROUTE_PATTERNS_MAX,
    ROUTED_ROWS_MAX,
    ROUTED_ROWS_MIN,
    ROUTES_SWEPT_MAX,
    ROUTING_STEPS,
)
from penstock.patterns import CanonicalPattern, PatternTree, canonical_pattern

if TYPE_CHECKING:
    from penstock.core.sessions import Session

__all__ = ["Router"]


class _Pattern(SubscribedPattern):
    """A pattern in the router.

    `waiting` are subscriptions that take effect when the pattern is `applied` to all topics.
    """

    __slots__ = ("applied", "removed", "token", "waiting")

    def __init__(self, canonical: CanonicalPattern) -> None:
        super().__init__(canonical)
        self.token = secrets.randbits(128) | 1
        self.applied = False
        self.removed = False
        self.waiting: dict[tuple[Subscriber, str], Callable[[], None]] = {}

    @property
    def unused(self) -> bool:
        return self.applied and not self.sessions and not self.waiting


class _Route:
    """A set of patterns, known by its key, and the number of topics that exactly these match."""

    __slots__ = ("key", "number", "topic_count")

    def __init__(self, number: int, key: int) -> None:
        self.number = number
        self.key = key
        self.topic_count = 0


class Router:
    """Maps topics to their subscribers."""

    def __init__(
        self, topics: TopicTable, slices: Slices, *, shapes_max: int = PATTERN_SHAPES_MAX
    ) -> None:
        self._topics = topics
        self._slices = slices
        self._shapes_max = shapes_max
        self._index = TopicIndex(self._name)
        self._patterns: dict[str, _Pattern] = {}  # by canonical text
        self.interest = Interest(slices, self._patterns)
        """Which patterns of topics have subscriptions."""
        self._wildcards: PatternTree[_Pattern] = PatternTree()
        self._held: dict[Subscriber, dict[str, _Pattern]] = {}  # by the session's own text
        self._shapes: dict[Subscriber, Counter[tuple[int, ...]]] = {}
        self._tree_shapes: Counter[tuple[int, ...]] = Counter()
        self._unused: dict[_Pattern, None] = {}
        self._sweeping = False
        unrouted = _Route(0, 0)
        self._routes: list[_Route | None] = [unrouted]
        self._route_of_key: dict[int, _Route] = {0: unrouted}
        self._free_numbers: list[int] = []
        self._retired_numbers: list[int] = []  # free once no audience has them
        self._route_patterns: dict[int, tuple[_Pattern, ...]] = {}  # by number, those asked for
        self._route_patterns_count = 0
        self._audiences = Audiences()
        self.route_of_topic = array("I")
        self.changes = 0
        """Number of changes of subscriptions."""
        self._watch: Callable[[str, int], None] = _ignore
        self.rows_max = 0
        """Rows of a batch whose audiences can be found in a few milliseconds."""
        self._limit_rows()

    # --- Subscriptions ----------------------------------------------------------------------------

    def subscribe(
        self, session: Subscriber, text: str, then: Callable[[], None] | None = None
    ) -> bool:
        """Add a subscription; return False if the session has this text already.

        `then` is called when it takes effect: before this returns, or later if the pattern is new
        and has wildcards that many topics may match. Raise InvalidPattern or TooManyPatternShapes.
        """
        held = self._held.get(session, {})
        if text in held:
            return False
        canonical = canonical_pattern(text)
        if canonical.levels is not None:
            self._count_shape(session, canonical)
        pattern = self._patterns.get(canonical.text)
        is_new = pattern is None
        if pattern is None:
            self.learn_topics()  # without this pattern
            pattern = self._patterns[canonical.text] = _Pattern(canonical)
            self.interest.added(canonical.text)
        self._held.setdefault(session, held)[text] = pattern
        self._note(text, 1)
        self._unused.pop(pattern, None)
        if pattern.applied:
            self._activate(pattern, session, text)
            if then is not None:
                then()
            return True
        pattern.waiting[session, text] = then or _do_nothing
        if is_new:
            self._start(pattern)
        return True

    def unsubscribe(self, session: Subscriber, text: str) -> bool:
        """Remove a subscription; return False if the session did not have it."""
        held = self._held.get(session)
        pattern = held.pop(text, None) if held is not None else None
        if held is None or pattern is None:
            return False
        self._note(text, -1)
        if not held:
            del self._held[session]
        if pattern.canonical.levels is not None:
            self._discount_shape(session, pattern.canonical)
        then = pattern.waiting.pop((session, text), None)
        if then is None:
            rest = tuple(each for each in pattern.sessions[session] if each != text)
            if rest:
                pattern.sessions[session] = rest
            else:
                del pattern.sessions[session]
            self._clear_audiences()
        self._release(pattern)
        if then is not None:
            then()
        return True

    def leave(self, session: Subscriber) -> None:
        """Remove all subscriptions of a session; those that wait never take effect."""
        self._shapes.pop(session, None)
        held = self._held.pop(session, None)
        if not held:
            return
        for text, pattern in held.items():
            self._note(text, -1)
            pattern.waiting.pop((session, text), None)
            pattern.sessions.pop(session, None)
            self._release(pattern)
        self._clear_audiences()

    def all_sessions(self) -> "set[Session]":
        """Return all sessions with subscriptions."""
        return {
            each
            for pattern in self._patterns.values()
            for each in pattern.sessions
            if not isinstance(each, RouteMark)
        }

    def interested(self, watched: str) -> "set[Session]":
        """Return the sessions with subscriptions to the same topics as a watched pattern."""
        found: set[Session] = set()
        for text in self.interest.subscribed(watched):
            sessions = self._patterns[text].sessions
            found.update(each for each in sessions if not isinstance(each, RouteMark))
        return found

    def watch(self, changed: Callable[[str, int], None]) -> None:
        """Call `changed` with the text of each later subscription: 1 if it begins, -1 if it ends.

        There is one watcher at a time.
        """
        self._watch = changed

    def _note(self, text: str, change: int) -> None:
        self.changes += 1
        self._watch(text, change)

    def _activate(self, pattern: _Pattern, session: Subscriber, text: str) -> None:
        pattern.sessions[session] = (*pattern.sessions.get(session, ()), text)
        self._clear_audiences()

    def _count_shape(self, session: Subscriber, canonical: CanonicalPattern) -> None:
        shapes = self._shapes.get(session)
        shape = canonical.shape
        if shapes is None:
            shapes = self._shapes[session] = Counter()
        elif len(shapes) >= self._shapes_max and shape not in shapes:
            raise TooManyPatternShapes(self._shapes_max)
        shapes[shape] += 1

    def _discount_shape(self, session: Subscriber, canonical: CanonicalPattern) -> None:
        shapes = self._shapes[session]
        _decrement(shapes, canonical.shape)
        if not shapes:
            del self._shapes[session]

    # --- Patterns and their topics ----------------------------------------------------------------

    def _start(self, pattern: _Pattern) -> None:
        """Apply a new pattern to the topics it matches."""
        if pattern.canonical.levels is None:
            identifier = self._topics.find(pattern.canonical.text)
            if identifier is not None:
                self._move(identifier, pattern.token)
            self._applied(pattern)
            return
        self._wildcards.add(pattern.canonical, pattern)
        self._tree_shapes[pattern.canonical.shape] += 1
        self._limit_rows()
        self._slices.start(self._apply(pattern, len(self.route_of_topic)))

    def _apply(self, pattern: _Pattern, known: int) -> Iterator[None]:
        """Apply a pattern to the topics below `known`; later ones get it when they are learned."""
        tree: PatternTree[int] = PatternTree()
        tree.add(pattern.canonical, pattern.token)
        yield from self._move_all(tree, known)
        self._applied(pattern)

    def _applied(self, pattern: _Pattern) -> None:
        pattern.applied = True
        waiting, pattern.waiting = pattern.waiting, {}
        for session, text in waiting:
            self._activate(pattern, session, text)
        self._release(pattern)
        for then in waiting.values():
            then()

    def _release(self, pattern: _Pattern) -> None:
        """Have a pattern removed if it is not used."""
        if pattern.unused:
            self._unused[pattern] = None
            if not self._sweeping:
                self._sweeping = True
                self._slices.add(self._sweep())

    def _sweep(self) -> Iterator[None]:
        """Remove unused patterns, many with one walk over the topics."""
        while self._unused:
            swept = list(islice(self._unused, ROUTES_SWEPT_MAX))
            for pattern in swept:
                del self._unused[pattern]
                del self._patterns[pattern.canonical.text]
                self.interest.removed(pattern.canonical.text)
                pattern.removed = True  # topics that are learned from now on do not get it
            known = len(self.route_of_topic)
            yield
            tree: PatternTree[int] = PatternTree()
            for done, pattern in enumerate(swept, 1):
                if pattern.canonical.levels is not None:
                    self._wildcards.remove(pattern.canonical, pattern)
                    _decrement(self._tree_shapes, pattern.canonical.shape)
                    tree.add(pattern.canonical, pattern.token)
                else:
                    identifier = self._topics.find(pattern.canonical.text)
                    if identifier is not None and identifier < known:
                        self._move(identifier, pattern.token)
                if not done % ROUTING_STEPS:
                    yield
            self._limit_rows()
            if tree:
                yield from self._move_all(tree, known)
        self._sweeping = False

    def _move_all(self, tree: PatternTree[int], known: int) -> Iterator[None]:
        """Add the patterns of a tree to the routes of their topics, or remove them."""
        steps = 0
        while self._index.count < known:
            self._index.add_next()
            steps += 1
            if not steps % ROUTING_STEPS:
                yield
        for identifier, token in self._index.walk(tree, below=known):
            if token:
                self._move(identifier, token)
            steps += 1
            if not steps % ROUTING_STEPS:
                yield

    def learn_topics(self) -> None:
        """Assign routes to the topics interned since the last call."""
        routes = self.route_of_topic
        if not self._patterns:
            self._routes[0].topic_count += len(self._topics) - len(routes)  # type: ignore[union-attr]
            routes.frombytes(bytes(routes.itemsize * (len(self._topics) - len(routes))))
            return
        for identifier in range(len(routes), len(self._topics)):
            found = self._find(self._name(identifier)) if self._topics.is_live(identifier) else ()
            route = self._route(_key(found))
            route.topic_count += 1
            routes.append(route.number)

    def _name(self, identifier: int) -> str:
        """Return the name of a topic, empty if it was removed: then it is on no route."""
        return self._topics.name(identifier) if self._topics.is_live(identifier) else ""

    def _find(self, name: str) -> list[_Pattern]:
        """Return the patterns that match a topic."""
        found = [each for each in self._wildcards.find(name) if not each.removed]
        exact = self._patterns.get(name)
        if exact is not None:
            found.append(exact)
        return found

    def _move(self, identifier: int, token: int) -> None:
        """Move a topic to the route with a pattern more, or less; not one that was removed."""
        if self._topics.removals and not self._topics.is_live(identifier):
            return
        self._reroute(identifier, token)

    def _reroute(self, identifier: int, token: int) -> None:
        old = self._routes[self.route_of_topic[identifier]]
        if old is None:
            raise AssertionError(f"topic {identifier} is on a route that was removed")
        new = self._route(old.key ^ token)
        new.topic_count += 1
        self.route_of_topic[identifier] = new.number
        old.topic_count -= 1
        if not old.topic_count and old.number:
            self._remove_route(old)

    def _route(self, key: int) -> _Route:
        route = self._route_of_key.get(key)
        if route is None:
            number = self._free_numbers.pop() if self._free_numbers else len(self._routes)
            route = _Route(number, key)
            if number == len(self._routes):
                self._routes.append(route)
            else:
                self._routes[number] = route
            self._route_of_key[key] = route
        return route

    def _remove_route(self, route: _Route) -> None:
        self._routes[route.number] = None
        del self._route_of_key[route.key]
        self._route_patterns_count -= len(self._route_patterns.pop(route.number, ()))
        self._retired_numbers.append(route.number)
        if len(self._retired_numbers) > PLANS_MAX:
            self._clear_audiences()

    def _limit_rows(self) -> None:
        """Set `rows_max`: of each shape, one pattern may match a topic."""
        rows = ROUTED_ROWS_MAX // (1 + len(self._tree_shapes))
        self.rows_max = min(max(rows, ROUTED_ROWS_MIN), BATCH_ROWS_MAX)

    # --- Delivery ---------------------------------------------------------------------------------

    def remove_topic(self, identifier: int) -> None:
        """Take a topic that is about to be removed off its route; patterns stay."""
        self.learn_topics()
        route = self._routes[self.route_of_topic[identifier]]
        if route is not None:
            self._reroute(identifier, route.key)
        self._clear_audiences()

    def wants(self, audience: Audience, topic: int) -> bool:
        """Return whether an audience gets messages of a topic, given by its id."""
        if audience.wanted is None:
            return True
        route = self.route_of_topic[topic] if topic < len(self.route_of_topic) else 0
        kinds = audience.kind_of_route
        kind = kinds[route] if route < len(kinds) else 0
        return kind < len(audience.wanted) and bool(audience.wanted[kind])

    def audiences(self, batch: Batch) -> list[Audience]:
        """Return the audiences of `batch`; each subscriber is in one of them."""
        if len(self._topics) != len(self.route_of_topic):
            self.learn_topics()
        return self._audiences.of_batch(
            batch,
            self.route_of_topic,
            partial(self._patterns_of, batch),
            route_count=len(self._routes),
        )

    def wanted(self, batch: Batch, session: Subscriber, chosen: Callable[[str], bool]) -> bytes:
        """Mark the routes of `batch` that have a chosen pattern of a session; empty if none has."""
        found = []
        verdicts: dict[_Pattern, bool] = {}  # a session may have many texts of one meaning
        for number, patterns in self._patterns_of(batch, self._numbers(batch)).items():
            for pattern in patterns:
                wanted = verdicts.get(pattern)
                if wanted is None:
                    texts = pattern.sessions.get(session, ())
                    wanted = verdicts[pattern] = any(map(chosen, texts))
                if wanted:
                    found.append(number)
                    break
        return marks_of(found) if found else b""

    def subscribers(self, name: str) -> list["Session"]:
        """Return all subscribers of topic `name`, each once."""
        patterns = self._find(name) if self._topics.find(name) is not None else ()
        return list(
            dict.fromkeys(
                each
                for pattern in patterns
                for each in pattern.sessions
                if not isinstance(each, RouteMark)
            )
        )

    def texts_of(self, session: Subscriber, name: str) -> Iterator[Sequence[str]]:
        """Yield the subscriptions of a session that match a topic; those of one meaning together.

        Subscriptions that have not taken effect yet are left out.
        """
        for pattern in self._find(name):
            texts = pattern.sessions.get(session)
            if texts:
                yield texts

    def is_subscribed(self, name: str, *, where: Callable[[str], object]) -> bool:
        """Return whether a subscription whose text passes `where` matches a topic.

        The topic need not exist. Subscriptions of consumer groups count.
        """
        return any(
            where(text)
            for pattern in self._find(name)
            for texts in pattern.sessions.values()
            for text in texts
        )

    def topics_of(self, text: str) -> Iterator[int | None]:
        """Yield the topics that a valid pattern matches; None is a step that found none.

        The caller may interrupt it at each value. Topics that are added meanwhile are left out.
        """
        canonical = canonical_pattern(text)
        if canonical.levels is None:
            yield self._topics.find(canonical.text)
            return
        known = len(self._topics)
        while self._index.count < known:
            self._index.add_next()
            yield None
        tree: PatternTree[int] = PatternTree()
        tree.add(canonical, 1)
        for identifier, found in self._index.walk(tree, below=known):
            yield identifier if found else None

    def subscriber_count(self, identifier: int) -> int:
        """Return the number of subscribers of a topic."""
        return len(self.subscribers(self._topics.name(identifier)))

    def _numbers(self, batch: Batch) -> tuple[int, ...]:
        """Return the distinct routes of a batch."""
        if len(self._topics) != len(self.route_of_topic):
            self.learn_topics()
        return batch.routes(self.route_of_topic, route_count=len(self._routes))

    def _patterns_of(self, batch: Batch, numbers: Iterable[int]) -> dict[int, Iterable[_Pattern]]:
        """Return the patterns of the routes of a batch.

        They are found by a topic of the route, which the batch has. While a pattern is being
        applied or removed, the result may have it or not: it has no sessions then.
        """
        found: dict[int, Iterable[_Pattern]] = {}
        unknown: set[int] = set()
        for number in numbers:
            patterns = self._route_patterns.get(number)
            if patterns is not None:
                found[number] = patterns
            elif number:
                found[number] = ()  # keeps the order of the routes
                unknown.add(number)
        row = 0
        while unknown:
            identifier = batch.topic_id(row)
            row += 1
            if identifier >= len(self.route_of_topic):
                continue
            number = self.route_of_topic[identifier]
            if number in unknown:
                unknown.discard(number)
                patterns = tuple(self._find(self._topics.name(identifier)))
                found[number] = patterns
                route = self._routes[number]
                if route is not None and _key(patterns) == route.key:
                    self._keep_patterns(number, patterns)
        return found

    def _keep_patterns(self, number: int, patterns: tuple[_Pattern, ...]) -> None:
        if self._route_patterns_count > ROUTE_PATTERNS_MAX:
            self._route_patterns.clear()
            self._route_patterns_count = 0
        self._route_patterns[number] = patterns
        self._route_patterns_count += len(patterns)

    def _clear_audiences(self) -> None:
        self._audiences.clear()
        if self._retired_numbers:
            self._free_numbers += self._retired_numbers
            self._retired_numbers.clear()


def _key(patterns: Iterable[_Pattern]) -> int:
    key = 0
    for pattern in patterns:
        key ^= pattern.token
    return key


def _decrement(counts: Counter[tuple[int, ...]], shape: tuple[int, ...]) -> None:
    counts[shape] -= 1
    if not counts[shape]:
        del counts[shape]


def _do_nothing() -> None:
    pass


def _ignore(text: str, change: int) -> None:
    pass
