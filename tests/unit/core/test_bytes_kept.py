"""What the broker keeps of the input of clients is bounded in bytes, not only in number."""

import re
from typing import Any

import pytest

from penstock._kernels import lamamq as kernel
from penstock.core import audiences
from penstock.core.audiences import Audiences, Encoding, SubscribedPattern
from penstock.core.hooks import EventKind, Hook, Hooks
from penstock.core.timers import Timers
from penstock.errors import InvalidHook, InvalidPattern, TooManySubscriptions
from penstock.middleware import HookStrategy
from penstock.patterns import canonical_pattern, compile_pattern
from penstock.protocols import PROTOCOLS
from tests.support.fakes import FakeClock, RecordingLink
from tests.support.publishes import publish
from tests.unit.core.test_broker import join, new_broker
from tests.unit.core.test_routing import audiences_of, new_session

LAMAMQ = PROTOCOLS["lamamq"]


# --- Subscriptions --------------------------------------------------------------------------------


def test_the_patterns_of_a_client_are_bounded_in_bytes() -> None:
    broker = new_broker(subscription_bytes_max=100)
    session = join(broker, "é" * 20, "b" * 40)
    with pytest.raises(TooManySubscriptions, match="100 bytes of subscriptions"):
        broker.subscribe(session, "é" * 11)
    assert broker.subscribe(session, "c" * 20)
    assert not broker.subscribe(session, "c" * 20)
    broker.unsubscribe(session, "b" * 40)
    assert session.subscription_bytes == 60
    assert broker.subscribe(session, "d" * 40)
    join(broker, "e" * 100)


def test_a_pattern_that_is_refused_counts_no_bytes() -> None:
    broker = new_broker()
    session = join(broker, "abc")
    with pytest.raises(InvalidPattern):
        broker.subscribe(session, "a/#/b")
    assert list(session.subscriptions) == ["abc"]
    assert session.subscription_bytes == 3


# --- Plans of the router --------------------------------------------------------------------------


def test_cached_plans_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audiences, "PLANS_BYTES_MAX", 20_000)
    broker = new_broker()
    router = broker.router
    encoding = Encoding(LAMAMQ, "big")
    for number in range(64):
        session = broker.open(encoding, RecordingLink(), principal=join(broker).principal)
        broker.subscribe(session, f"t/{number}")
        broker.topics.intern(f"t/{number}")
    router.learn_topics()  # a new route clears all plans
    sender = join(broker).sender
    seen = 0
    for number in range(1, 64):
        frames = b"".join(
            publish(LAMAMQ, "big", topic=f"t/{each}", value=b"v") for each in range(number)
        )
        kernel.scan(frames, 0, broker.batch, broker.topics, sender, order="big")
        found = router.audiences(broker.batch)
        assert sum(len(audience.sessions) for audience in found) == number
        assert router.audiences(broker.batch) == found
        broker.batch.clear()
        assert router._audiences._plans_bytes <= 20_000
        seen = max(seen, len(router._audiences._plans))
    assert 1 < seen < 63


@pytest.mark.parametrize(("limit", "most"), [("PLANS_MAX", 3), ("PLANS_BYTES_MAX", 1_200)])
def test_three_plans_are_cached_if_that_is_the_limit(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    monkeypatch.setattr(audiences, limit, most)
    found = Audiences()
    patterns = [SubscribedPattern(canonical_pattern(str(number))) for number in range(4)]
    for number, pattern in enumerate(patterns):
        pattern.sessions[new_session(number)] = (str(number),)
    kept = []
    for number in range(4):
        audiences_of(found, [number], lambda numbers: {each: [patterns[each]] for each in numbers})
        kept.append(len(found._plans))
    assert kept == [1, 2, 3, 1]


# --- Hooks ----------------------------------------------------------------------------------------


def test_names_and_conditions_of_hooks_are_bounded_in_bytes() -> None:
    broker = new_broker()
    middleware: Any = type("M", (), {"session": join(broker)})()

    def hook(name: str, *headers: tuple[str, bytes | None]) -> Hook:
        return Hook(
            name, middleware, kind=EventKind.PUSH, strategy=HookStrategy.TELL, headers=headers
        )

    clock = FakeClock()
    hooks = Hooks(Timers(clock), clock, lambda: 1, bytes_max=100)
    hooks.register(hook("a", ("x" * 20, bytes(39))))
    with pytest.raises(InvalidHook, match="100 bytes"):
        hooks.register(hook("b", ("x" * 20, bytes(20))))
    hooks.register(hook("b", ("x" * 39, None)))
    hooks.unregister(middleware.session, "a")
    hooks.register(hook("c", ("x" * 20, bytes(39))))


# --- Python's cache of regular expressions --------------------------------------------------------


def test_expressions_of_long_patterns_are_not_cached() -> None:
    re.purge()
    cache = re._cache  # type: ignore[attr-defined]
    assert compile_pattern("a/+/b") is not None
    assert len(cache) == 1
    for number in range(5):
        assert compile_pattern(f"{number}/+/" + "x" * 4_000) is not None
        assert sum(len(key[1]) for key in cache) < 2_000
