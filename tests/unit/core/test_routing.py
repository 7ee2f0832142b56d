"""Routing, compared with a plain search over all subscriptions."""

import random

from penstock._kernels import rheos1 as rheos1_kernel
from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.core.access import ANYONE
from penstock.core.routing import Encoding, Router
from penstock.core.sessions import Session
from penstock.patterns import compile_pattern
from penstock.protocols import PROTOCOLS
from tests.support.agreement import SENDER
from tests.support.fakes import RecordingLink
from tests.support.publishes import publish

HERALD = Encoding(PROTOCOLS["herald"], "little")
RHEOS = Encoding(PROTOCOLS["rheos1"], "little")


def new_session(number: int, encoding: Encoding = HERALD) -> Session:
    return Session(
        number, encoding=encoding, link=RecordingLink(), name=str(number), principal=ANYONE
    )


def batch_of(topics: TopicTable, names: list[str]) -> Batch:
    batch = Batch()
    data = b"".join(publish(PROTOCOLS["rheos1"], "little", topic=name) for name in names)
    assert rheos1_kernel.scan(data, 0, batch, topics, SENDER) == len(data)
    return batch


def rows_of(router: Router, batch: Batch) -> dict[int, list[int]]:
    """The rows that each session gets, by its number."""
    found: dict[int, list[int]] = {}
    for audience in router.audiences(batch):
        rows = list(range(len(batch)))
        if audience.wanted is not None:
            rows = list(batch.select(router.route_of_topic, audience.wanted))
        for session in audience.sessions:
            assert session.number not in found, "a session is in one audience only"
            assert session.encoding == audience.encoding
            found[session.number] = rows
    return found


def test_one_topic_one_audience_for_each_encoding() -> None:
    topics = TopicTable()
    router = Router(topics)
    one, two, three = new_session(1), new_session(2), new_session(3, RHEOS)
    for session in (one, two, three):
        assert router.subscribe(session, "a")
    batch = batch_of(topics, ["a", "a"])
    audiences = router.audiences(batch)
    assert [(a.encoding, a.wanted, a.sessions) for a in audiences] == [
        (HERALD, None, [one, two]),
        (RHEOS, None, [three]),
    ]


def test_topics_that_come_after_the_subscription_are_routed_too() -> None:
    topics = TopicTable()
    router = Router(topics)
    router.subscribe(new_session(1), "s/+")
    router.subscribe(new_session(2), "s/1")
    router.subscribe(new_session(3), "#")
    batch = batch_of(topics, ["s/1", "x", "s/2"])
    assert rows_of(router, batch) == {1: [0, 2], 2: [0], 3: [0, 1, 2]}


def test_a_session_with_overlapping_patterns_gets_one_copy() -> None:
    topics = TopicTable()
    router = Router(topics)
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
    router = Router(TopicTable())
    session = new_session(1)
    assert router.subscribe(session, "a")
    assert not router.subscribe(session, "a")
    assert router.unsubscribe(session, "a")
    assert not router.unsubscribe(session, "a")


def test_thousands_of_topics_of_one_wildcard_share_one_route() -> None:
    topics = TopicTable()
    router = Router(topics)
    names = [f"t/{n}" for n in range(3000)]
    for name in names[:1500]:
        topics.intern(name)
    router.subscribe(new_session(1), "t/#")
    batch = batch_of(topics, names)
    [audience] = router.audiences(batch)
    assert audience.wanted is None
    assert len(set(router.route_of_topic)) == 1


def test_any_mix_of_changes_agrees_with_a_plain_search() -> None:
    for seed in range(40):
        randomness = random.Random(seed)
        topics = TopicTable()
        router = Router(topics)
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


def pattern_matches(pattern: str, name: str) -> bool:
    expression = compile_pattern(pattern)
    return name == pattern if expression is None else bool(expression.fullmatch(name))


def test_numbers_of_routes_are_used_again_after_clients_leave() -> None:
    topics = TopicTable()
    router = Router(topics)
    for number in range(20):
        topics.intern(f"t/{number}")
    counts = set()
    for visit in range(50):
        sessions = [new_session(100 * visit + each) for each in range(5)]
        for place, session in enumerate(sessions):
            router.subscribe(session, f"t/{place}")
            router.subscribe(session, f"t/{place + 1}")
        router.learn_topics()
        counts.add(len(router._routes))
        for place, session in enumerate(sessions):
            router.unsubscribe(session, f"t/{place}")
            router.unsubscribe(session, f"t/{place + 1}")
    assert len(counts) == 1, sorted(counts)
    assert len(router._free_numbers) == len(router._routes) - 1
