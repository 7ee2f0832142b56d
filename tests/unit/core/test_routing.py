"""Routing, compared with a plain search over all subscriptions."""

import random
from array import array
from collections.abc import Iterator, Sequence

import pytest

from penstock._kernels import rheos1 as rheos1_kernel
from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.core import audiences as audiences_module
from penstock.core import routing, topic_index
from penstock.core.access import ANYONE
from penstock.core.audiences import (
    Audience,
    Audiences,
    Encoding,
    PatternsOf,
    RouteMark,
    SubscribedPattern,
    Subscriber,
)
from penstock.core.routing import Router
from penstock.core.sessions import Session
from penstock.core.slices import Slices
from penstock.core.timers import Timers
from penstock.patterns import canonical_pattern, compile_pattern
from penstock.protocols import PROTOCOLS
from tests.support.agreement import SENDER
from tests.support.fakes import FakeClock, RecordingLink
from tests.support.publishes import publish

HERALD = Encoding(PROTOCOLS["herald"], "little")
RHEOS = Encoding(PROTOCOLS["rheos1"], "little")


def new_session(number: int, encoding: Encoding = HERALD) -> Session:
    return Session(
        number, encoding=encoding, link=RecordingLink(), name=str(number), principal=ANYONE
    )


def new_router(topics: TopicTable) -> Router:
    clock = FakeClock()
    return Router(topics, Slices(Timers(clock), clock))


def batch_of(topics: TopicTable, names: list[str]) -> Batch:
    batch = Batch()
    data = b"".join(publish(PROTOCOLS["rheos1"], "little", topic=name) for name in names)
    assert rheos1_kernel.scan(data, 0, batch, topics, SENDER) == len(data)
    return batch


def audiences_of(
    audiences: Audiences, routes: Sequence[int], patterns_of: PatternsOf
) -> list[Audience]:
    """The audiences of a batch with a message on each of these routes."""
    batch = Batch()
    rows = [(route, 0, 1) for route in routes]
    protocol = PROTOCOLS["rheos1"].number
    batch.fill(b"v", rows, protocol=protocol, order="little", sender=SENDER)
    count = max(routes) + 1
    return audiences.of_batch(batch, array("I", range(count)), patterns_of, route_count=count)


def rows_of(router: Router, batch: Batch) -> dict[int, list[int]]:
    """The rows that each session gets, by its number."""
    found: dict[int, list[int]] = {}
    for audience in router.audiences(batch):
        rows = list(range(len(batch)))
        if audience.wanted is not None:
            rows = list(
                batch.select(
                    router.route_of_topic, audience.wanted, kind_of_route=audience.kind_of_route
                )
            )
        for session in audience.sessions:
            assert session.number not in found, "a session is in one audience only"
            assert session.encoding == audience.encoding
            found[session.number] = rows
    return found


def test_one_topic_one_audience_for_each_encoding() -> None:
    topics = TopicTable()
    router = new_router(topics)
    one, two, three = new_session(1), new_session(2), new_session(3, RHEOS)
    for session in (one, two, three):
        assert router.subscribe(session, "a")
    batch = batch_of(topics, ["a", "a"])
    audiences = router.audiences(batch)
    assert [(a.encoding, a.wanted, a.sessions) for a in audiences] == [
        (HERALD, None, [one, two]),
        (RHEOS, None, [three]),
    ]


def test_routes_of_the_same_sessions_are_one_audience() -> None:
    topics = TopicTable()
    router = new_router(topics)
    one, two = new_session(1), new_session(2)
    names = [f"t/{number}" for number in range(20)]
    for name in names:
        router.subscribe(one, name)
    for name in names[:10]:
        router.subscribe(two, name)
    whole, half = batch_of(topics, names), batch_of(topics, names[:10])
    assert rows_of(router, whole) == {1: list(range(20)), 2: list(range(10))}
    (audience,) = router.audiences(half)
    assert audience.wanted is None
    assert audience.sessions == [one, two]
    router.unsubscribe(two, "t/0")
    assert rows_of(router, half) == {1: list(range(10)), 2: list(range(1, 10))}


def test_many_patterns_of_a_session_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = TopicTable()
    router = new_router(topics)
    session = new_session(1)
    names = [f"t/{number}" for number in range(20)]
    for name in names:
        router.subscribe(session, name)
    router.audiences(batch_of(topics, names))

    def fail(_: Batch, numbers: tuple[int, ...]) -> None:
        raise AssertionError(f"routes {numbers} are known")

    monkeypatch.setattr(router, "_patterns_of", fail)
    (audience,) = router.audiences(batch_of(topics, names[3:17]))
    assert audience.wanted is None
    assert audience.sessions == [session]


def test_routes_in_any_order_have_one_plan_for_each_set_of_subscribers() -> None:
    topics = TopicTable()
    router = new_router(topics)
    one, two = new_session(1), new_session(2)
    names = [f"t/{number}" for number in range(60)]
    for number, name in enumerate(names):
        router.subscribe(one if number % 3 else two, name)
    randomness = random.Random(1)
    for _ in range(100):
        chosen = randomness.choices(names, k=20)
        found = rows_of(router, batch_of(topics, chosen))
        assert found[1] == [row for row, name in enumerate(chosen) if names.index(name) % 3]
        assert found[2] == [row for row, name in enumerate(chosen) if not names.index(name) % 3]
    assert len(router._audiences._plans) == 1


def test_a_number_of_a_route_that_is_used_again_does_not_keep_its_kind() -> None:
    topics, slices = TopicTable(), SteppedSlices()
    router = Router(topics, slices)
    old, new = new_session(1), new_session(2)
    router.subscribe(old, "a")
    batch = batch_of(topics, ["a"])
    assert rows_of(router, batch) == {1: [0]}
    number = router.route_of_topic[0]
    topics.intern("b")
    router.subscribe(new, "b")
    assert rows_of(router, batch_of(topics, ["b"])) == {2: [0]}
    router.remove_topic(0)  # the route of "a" has no topic left
    topics.remove(0)
    router.learn_topics()
    router.subscribe(new, "c")
    router.subscribe(new, "d")
    found = rows_of(router, batch_of(topics, ["c", "d"]))
    assert number in list(router.route_of_topic)[1:], "the number was used again"
    assert found == {2: [0, 1]}


def test_an_audience_keeps_its_meaning_while_subscriptions_change() -> None:
    topics = TopicTable()
    router = new_router(topics)
    one, two = new_session(1), new_session(2)
    router.subscribe(one, "a")
    router.subscribe(two, "b")
    batch = batch_of(topics, ["a", "b", "b"])
    found = router.audiences(batch)
    router.subscribe(two, "x")
    assert rows_of(router, batch_of(topics, ["x", "b"])) == {2: [0, 1]}  # kinds from the start
    assert rows_of(router, batch_of(topics, ["a"])) == {1: [0]}
    rows = {
        each.sessions[0].number: list(
            batch.select(router.route_of_topic, each.wanted, kind_of_route=each.kind_of_route)
        )
        for each in found
    }
    assert rows == {1: [0], 2: [1, 2]}
    assert [router.wants(each, 0) for each in found] == [True, False]


def test_a_pattern_of_consumer_groups_only_is_looked_at_once() -> None:
    class Counting(dict[Subscriber, tuple[str, ...]]):
        looks = 0

        def __iter__(self) -> Iterator[Subscriber]:
            self.looks += 1
            return super().__iter__()

    pattern = SubscribedPattern(canonical_pattern("#"))
    pattern.sessions = counting = Counting({RouteMark(): ("#",)})
    audiences = Audiences()
    assert audiences_of(audiences, (1, 2, 3), lambda of: dict.fromkeys(of, (pattern,))) == []
    assert counting.looks == 1
    audiences.clear()
    counting[new_session(1)] = ("#",)
    (found,) = audiences_of(audiences, (1,), lambda of: dict.fromkeys(of, (pattern,)))
    assert [each.number for each in found.sessions] == [1]


def test_what_is_kept_of_routes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audiences_module, "ROUTE_PATTERNS_MAX", 100)
    patterns = [SubscribedPattern(canonical_pattern(f"p{number}")) for number in range(20)]
    for number, pattern in enumerate(patterns):
        pattern.sessions[new_session(number)] = (pattern.canonical.text,)
    audiences = Audiences()
    for number in range(1, 50):
        own = patterns[number % 20 :] + patterns[: number % 20]  # each route is of its own kind

        def patterns_of(numbers: Sequence[int]) -> dict[int, tuple[SubscribedPattern, ...]]:
            return dict.fromkeys(numbers, tuple(own))  # noqa: B023

        (found,) = audiences_of(audiences, (number,), patterns_of)
        assert {each.number for each in found.sessions} == set(range(20))
        assert sum(map(len, audiences._sets_of_kind)) <= 100 + 20


def test_topics_that_come_after_the_subscription_are_routed_too() -> None:
    topics = TopicTable()
    router = new_router(topics)
    router.subscribe(new_session(1), "s/+")
    router.subscribe(new_session(2), "s/1")
    router.subscribe(new_session(3), "#")
    batch = batch_of(topics, ["s/1", "x", "s/2"])
    assert rows_of(router, batch) == {1: [0, 2], 2: [0], 3: [0, 1, 2]}


def test_a_session_with_overlapping_patterns_gets_one_copy() -> None:
    topics = TopicTable()
    router = new_router(topics)
    session = new_session(1)
    for pattern in ("a/+", "a/b", "#", "a/#"):
        router.subscribe(session, pattern)
    batch = batch_of(topics, ["a/b", "c"])
    assert rows_of(router, batch) == {1: [0, 1]}
    router.unsubscribe(session, "#")
    assert rows_of(router, batch) == {1: [0]}
    for pattern in ("a/+", "a/b"):
        router.unsubscribe(session, pattern)
    assert rows_of(router, batch) == {1: [0]}
    router.unsubscribe(session, "a/#")
    assert rows_of(router, batch) == {}


def test_subscribing_twice_and_unsubscribing_what_is_not_there_say_so() -> None:
    router = new_router(TopicTable())
    session = new_session(1)
    assert router.subscribe(session, "a")
    assert not router.subscribe(session, "a")
    assert router.unsubscribe(session, "a")
    assert not router.unsubscribe(session, "a")


def test_thousands_of_topics_of_one_wildcard_share_one_route() -> None:
    topics = TopicTable()
    router = new_router(topics)
    names = [f"t/{n}" for n in range(3000)]
    for name in names[:1500]:
        topics.intern(name)
    router.subscribe(new_session(1), "t/#")
    router._slices.run()
    for name in names[1500:]:
        topics.intern(name)
    batch = batch_of(topics, names)
    [audience] = router.audiences(batch)
    assert audience.wanted is None
    assert len(set(router.route_of_topic)) == 1


def test_any_mix_of_changes_agrees_with_a_plain_search() -> None:
    for seed in range(40):
        randomness = random.Random(seed)
        topics = TopicTable()
        router = new_router(topics)
        names = [f"{a}/{b}" for a in "xyz" for b in "123"] + ["x", "y.1.z"]
        patterns = [*names[:5], "x/+", "+/1", "#", "y/#", "+", "z/2"]
        sessions = [new_session(n, randomness.choice([HERALD, RHEOS])) for n in range(5)]
        held: set[tuple[int, str]] = set()
        for _ in range(60):
            session, pattern = randomness.choice(sessions), randomness.choice(patterns)
            key = (session.number, pattern)
            if randomness.random() < 0.55:
                assert router.subscribe(session, pattern) is (key not in held)
                held.add(key)
            else:
                assert router.unsubscribe(session, pattern) is (key in held)
                held.discard(key)
            chosen = randomness.choices(names, k=randomness.randrange(1, 6))
            expected: dict[int, list[int]] = {}
            for row, name in enumerate(chosen):
                for number in {
                    number for number, pattern in held if pattern_matches(pattern, name)
                }:
                    expected.setdefault(number, []).append(row)
            assert rows_of(router, batch_of(topics, chosen)) == expected
            for name in set(chosen):
                found = {session.number for session in router.subscribers(name)}
                assert found == {n for n, p in held if pattern_matches(p, name)}
            kept = router._route_patterns.values()
            assert router._route_patterns_count == sum(map(len, kept))


def pattern_matches(pattern: str, name: str) -> bool:
    expression = compile_pattern(pattern)
    return name == pattern if expression is None else bool(expression.fullmatch(name))


def test_numbers_of_routes_are_used_again_after_clients_leave() -> None:
    topics = TopicTable()
    slices = SteppedSlices()
    router = Router(topics, slices)
    for number in range(20):
        topics.intern(f"t/{number}")
    counts = []
    for visit in range(20):
        sessions = [new_session(100 * visit + each) for each in range(5)]
        for place, session in enumerate(sessions):
            router.subscribe(session, f"t/{place}")
            router.subscribe(session, f"t/{place + 1}")
        router.learn_topics()
        slices.finish()
        counts.append(len(router._routes))
        for session in sessions:
            router.leave(session)
        slices.finish()
        router._clear_audiences()
    assert max(counts[2:]) == counts[1], counts


# --- Slices ---------------------------------------------------------------------------------------


class SteppedSlices(Slices):
    """Work that goes on only when the test says so."""

    def __init__(self) -> None:
        clock = FakeClock()
        super().__init__(Timers(clock), clock, first_steps=0)

    def step(self) -> None:
        if self._work:
            work = self._work.popleft()
            if self._step(work):
                self._work.append(work)

    def finish(self) -> None:
        while self._work:
            self.step()


LEVELS = ["x", "y", "z", ""]
WILD = [*LEVELS, "+", "*"]


def random_name(randomness: random.Random) -> str:
    while True:
        name = randomness.choice(LEVELS)
        for _ in range(randomness.randrange(4)):
            name += randomness.choice("/.") + randomness.choice(LEVELS)
        if name:
            return name


def random_pattern(randomness: random.Random) -> str:
    if randomness.random() < 0.3:
        return random_name(randomness)
    pattern = randomness.choice(WILD)
    for _ in range(randomness.randrange(4)):
        pattern += randomness.choice("/.") + randomness.choice(WILD)
    if randomness.random() < 0.4:
        pattern += randomness.choice("/.") + randomness.choice("#>")
    return pattern or randomness.choice("#>")


class RoutingOracle:
    """A router whose work is done in single steps, beside a plain list of its subscriptions."""

    def __init__(self, seed: int) -> None:
        self.randomness = random.Random(seed)
        self.topics = TopicTable()
        self.slices = SteppedSlices()
        self.router = Router(self.topics, self.slices)
        self.sessions = [new_session(n, self.randomness.choice([HERALD, RHEOS])) for n in range(6)]
        self.held: dict[tuple[int, str], bool] = {}  # and whether it is in effect
        for _ in range(self.randomness.randrange(60)):
            self.topics.intern(random_name(self.randomness))

    def subscribe(self) -> None:
        session, text = self.randomness.choice(self.sessions), random_pattern(self.randomness)
        key = (session.number, text)
        is_new = key not in self.held

        def takes_effect() -> None:
            if key in self.held:
                self.held[key] = True

        self.held.setdefault(key, False)
        assert self.router.subscribe(session, text, takes_effect) is is_new

    def unsubscribe(self) -> None:
        if self.held:
            number, text = self.randomness.choice(list(self.held))
            del self.held[number, text]
            assert self.router.unsubscribe(self.sessions[number], text)

    def leave(self) -> None:
        session = self.randomness.choice(self.sessions)
        self.held = {key: value for key, value in self.held.items() if key[0] != session.number}
        self.router.leave(session)

    def remove_topic(self) -> None:
        live = [each for each in range(len(self.topics)) if self.topics.is_live(each)]
        if live:
            identifier = self.randomness.choice(live)
            self.router.remove_topic(identifier)
            self.topics.remove(identifier)

    def step(self) -> None:
        for _ in range(self.randomness.randrange(8)):
            self.slices.step()

    def publish(self) -> None:
        names = [random_name(self.randomness) for _ in range(self.randomness.randrange(1, 6))]
        expected: dict[int, list[int]] = {}
        for row, name in enumerate(names):
            for number in self.subscribers(name):
                expected.setdefault(number, []).append(row)
        batch = batch_of(self.topics, names)
        assert rows_of(self.router, batch) == expected
        session = self.randomness.choice(self.sessions)
        chosen = {text for n, text in self.held if n == session.number and "x" in text}
        marks = self.router.wanted(batch, session, chosen.__contains__)
        rows = list(batch.select(self.router.route_of_topic, marks)) if marks else []
        assert rows == [
            row
            for row, name in enumerate(names)
            if any(
                self.held[session.number, text] and pattern_matches(text, name) for text in chosen
            )
        ]
        for name in names:
            found = {session.number for session in self.router.subscribers(name)}
            assert found == self.subscribers(name)

    def subscribers(self, name: str) -> set[int]:
        return {
            number
            for (number, text), in_effect in self.held.items()
            if in_effect and pattern_matches(text, name)
        }


def test_changes_in_any_order_while_slices_are_pending_agree_with_a_plain_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routing, "ROUTING_STEPS", 3)
    monkeypatch.setattr(routing, "ROUTES_SWEPT_MAX", 4)
    monkeypatch.setattr(topic_index, "BUCKET_MAX", 2)
    for seed in range(60):
        oracle = RoutingOracle(seed)
        acts = [
            oracle.subscribe,
            oracle.unsubscribe,
            oracle.leave,
            oracle.remove_topic,
            oracle.step,
            oracle.publish,
        ]
        for act in oracle.randomness.choices(acts, weights=[8, 4, 1, 2, 6, 6], k=120):
            act()
        oracle.slices.finish()
        assert all(oracle.held.values()), "every subscription takes effect in the end"
        oracle.publish()
        for session in oracle.sessions:
            oracle.router.leave(session)
        oracle.slices.finish()
        router = oracle.router
        assert not any(router.route_of_topic), "no topic has a subscriber left"
        assert not router._patterns
        assert not router._wildcards
        assert not router._shapes
        assert not router._tree_shapes
        assert [route for route in router._routes if route is not None] == [router._routes[0]]


def test_patterns_of_the_same_meaning_are_one_entry() -> None:
    router = new_router(TopicTable())
    session = new_session(1)
    for text in ("a/+", "a.+", "a/*", "a.*"):
        assert router.subscribe(session, text)
    assert len(router._patterns) == 1
    for text in ("a/+", "a.+", "a/*"):
        assert router.unsubscribe(session, text)
    assert not router.unsubscribe(session, "a/+")
    topics = router._topics
    assert rows_of(router, batch_of(topics, ["a/b"])) == {1: [0]}
    assert router.unsubscribe(session, "a.*")
    assert rows_of(router, batch_of(topics, ["a/b"])) == {}


def test_a_session_that_leaves_is_not_delivered_to_while_its_routes_are_swept() -> None:
    topics, slices = TopicTable(), SteppedSlices()
    router = Router(topics, slices)
    for number in range(2000):
        topics.intern(f"t/{number}")
    staying, leaving = new_session(1), new_session(2)
    router.subscribe(staying, "#")
    router.subscribe(leaving, "t/+")
    slices.finish()
    batch = batch_of(topics, ["t/5", "t/1999"])
    assert rows_of(router, batch) == {1: [0, 1], 2: [0, 1]}
    router.leave(leaving)
    while slices:
        assert rows_of(router, batch) == {1: [0, 1]}
        slices.step()
    assert len(set(router.route_of_topic)) == 1


def test_names_with_more_levels_than_patterns_may_have_are_matched() -> None:
    topics = TopicTable()
    deep = "/".join(["a"] * 300)
    for name in (deep, f"{deep}/b", f"{'a' * 100}/b", *(f"{deep}/{n}" for n in range(40))):
        topics.intern(name)
    router = new_router(topics)
    router.subscribe(new_session(1), "/".join(["+"] * 127 + ["#"]))
    router.subscribe(new_session(2), "/".join(["+"] * 128))
    router.subscribe(new_session(3), f"{'a' * 100}/+")
    for identifier in range(len(topics)):
        name = topics.name(identifier)
        expected = {3} if name.startswith("aa") else {1}
        assert {each.number for each in router.subscribers(name)} == expected
        assert set(rows_of(router, batch_of(topics, [name]))) == expected
