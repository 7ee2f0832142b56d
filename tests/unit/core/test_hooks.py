"""Hooks without a protocol: order, timeouts, refusals, and messages that stay on the batch path."""

import contextlib
import dataclasses

import pytest

from penstock.core.access import Action, Principal, Rule
from penstock.core.audiences import Encoding
from penstock.core.broker import Broker
from penstock.core.hooks import Event, EventKind, Hook, HookChain, Hooks
from penstock.core.sessions import Session
from penstock.errors import (
    HookRefused,
    HookTimeout,
    InvalidHook,
    MiddlewareMissing,
    NotAllowed,
    PeerError,
)
from penstock.limits import HOOK_TIMEOUT_MS_DEFAULT
from penstock.middleware import HookStrategy
from penstock.protocols import Protocol
from penstock.protocols.herald import HERALD
from penstock.protocols.lamamq import LAMAMQ
from penstock.storage.memory import MemoryLog
from tests.support.fakes import FakeClock, RecordingLink

WAIT, GO_ON, TELL = HookStrategy.WAIT_OR_REFUSE, HookStrategy.WAIT_OR_GO_ON, HookStrategy.TELL


@dataclasses.dataclass(eq=False)
class FakeMiddleware:
    """Keeps the calls it gets."""

    session: Session
    reads: bool = True
    calls: list[tuple[int, str, Event]] = dataclasses.field(default_factory=list)
    late: list[int] = dataclasses.field(default_factory=list)

    def call(self, identifier: int, hook: str, event: Event) -> bool:
        if self.reads:
            self.calls.append((identifier, hook, event))
        return self.reads

    def given_up(self, identifier: int) -> None:
        self.late.append(identifier)

    @property
    def names(self) -> list[str]:
        return [name for _, name, _ in self.calls]


class Bench:
    """A broker, its clock, one middleware and one client."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.broker = Broker(log=MemoryLog(), clock=self.clock)
        self.hooks: Hooks = self.broker.hooks
        self.middleware = FakeMiddleware(self.open("middleware"))
        self.client = self.open("client")

    def open(
        self,
        name: str,
        *,
        protocol: Protocol = LAMAMQ,
        principal: Principal | None = None,
    ) -> Session:
        return self.broker.open(
            Encoding(protocol, "big"),
            RecordingLink(),
            name=name,
            principal=principal or Principal("anyone"),
        )

    def hook(
        self,
        name: str = "h",
        *,
        strategy: HookStrategy = WAIT,
        kind: EventKind = EventKind.PUSH,
        priority: int = 0,
        timeout_ms: int = 1000,
        topics: frozenset[str] = frozenset(),
        headers: tuple[tuple[str, bytes | None], ...] = (),
        middleware: FakeMiddleware | None = None,
    ) -> Hook:
        return Hook(
            name,
            middleware or self.middleware,
            kind=kind,
            strategy=strategy,
            priority=priority,
            timeout_ms=timeout_ms,
            topics=topics,
            headers=headers,
        )

    def event(self, topic: str = "t", headers: tuple[tuple[str, bytes], ...] = ()) -> Event:
        return Event(EventKind.PUSH, topic, "client", LAMAMQ, self.client, headers=headers)

    def ask(self, event: Event | None = None) -> tuple[HookChain, list[PeerError | None]]:
        """Start an chain; the list gets its verdict."""
        verdicts: list[PeerError | None] = []
        chain = self.hooks.ask(event or self.event())
        if chain.settled:
            verdicts.append(chain.error)
        chain.then = verdicts.append
        return chain, verdicts

    def pass_time(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.broker.timers.run_due()


@pytest.fixture
def bench() -> Bench:
    return Bench()


# --- Inquiries ----------------------------------------------------------------------------------


def test_without_hooks_everything_passes_at_once(bench: Bench) -> None:
    chain, verdicts = bench.ask()
    assert chain.settled
    assert verdicts == [None]


def test_a_hook_has_the_default_timeout(bench: Bench) -> None:
    hook = Hook("h", bench.middleware, kind=EventKind.PUSH, strategy=WAIT)
    assert hook.timeout_seconds == HOOK_TIMEOUT_MS_DEFAULT / 1000


def test_the_time_of_an_answer_is_measured_and_that_of_no_answer_is_not(bench: Bench) -> None:
    bench.hooks.register(bench.hook(timeout_ms=500))
    bench.ask()
    bench.pass_time(0.02)
    bench.hooks.calls.answered(bench.middleware.calls[0][0], "no")
    bench.ask()
    bench.pass_time(0.6)
    times = bench.hooks.calls.times
    assert (times.count, bench.hooks.calls.unanswered) == (1, 1)
    assert times.seconds == pytest.approx(0.02)
    assert times.buckets[times.bounds_seconds.index(0.025)] == 1
    (hook,) = bench.hooks
    figures = hook.figures
    assert (figures.made, figures.refusals, figures.unanswered) == (2, 1, 1)
    assert figures.times.seconds_max == pytest.approx(0.02)


def test_hooks_are_asked_by_priority_then_by_registration(bench: Bench) -> None:
    for name, priority in (("d", 7), ("b", 5), ("c", 5), ("a", 0)):
        bench.hooks.register(bench.hook(name, priority=priority))
    _, verdicts = bench.ask()
    for count in range(1, 5):
        assert bench.middleware.names == ["a", "b", "c", "d"][:count]
        assert verdicts == []
        bench.hooks.calls.answered(bench.middleware.calls[-1][0], None)
    assert verdicts == [None]


def test_a_refusal_ends_the_chain(bench: Bench) -> None:
    bench.hooks.register(bench.hook("first"))
    bench.hooks.register(bench.hook("second"))
    _, verdicts = bench.ask()
    bench.hooks.calls.answered(bench.middleware.calls[0][0], "no")
    (error,) = verdicts
    assert isinstance(error, HookRefused)
    assert (error.hook, str(error)) == ("first", "no")
    assert bench.middleware.names == ["first"]
    calls = bench.hooks.calls
    assert (calls.made, calls.refusals, calls.unanswered, calls.untold) == (1, 1, 0, 0)


@pytest.mark.parametrize(("strategy", "refused"), [(WAIT, True), (GO_ON, False)])
def test_no_answer_in_time_is_what_the_strategy_says(
    bench: Bench, strategy: HookStrategy, *, refused: bool
) -> None:
    bench.hooks.register(bench.hook(strategy=strategy, timeout_ms=500))
    _, verdicts = bench.ask()
    bench.pass_time(0.499)
    assert verdicts == []
    bench.pass_time(0.001)
    assert [type(verdict) for verdict in verdicts] == [HookTimeout if refused else type(None)]
    identifier = bench.middleware.calls[0][0]
    assert bench.middleware.late == [identifier]
    bench.hooks.calls.answered(identifier, "late")
    assert len(verdicts) == 1


@pytest.mark.parametrize(("strategy", "refused"), [(WAIT, True), (GO_ON, False), (TELL, False)])
def test_a_middleware_that_cannot_be_called_gives_no_answer(
    bench: Bench, strategy: HookStrategy, *, refused: bool
) -> None:
    bench.hooks.register(bench.hook(strategy=strategy))
    bench.middleware.reads = False
    _, verdicts = bench.ask()
    assert [type(verdict) for verdict in verdicts] == [HookTimeout if refused else type(None)]
    assert bench.middleware.late == []


def test_each_call_has_its_own_deadline(bench: Bench) -> None:
    bench.hooks.register(bench.hook(timeout_ms=1000))
    found = []
    for _ in range(3):
        found.append(bench.ask()[1])
        bench.pass_time(0.4)
    assert [len(verdicts) for verdicts in found] == [1, 0, 0]
    bench.hooks.calls.answered(bench.middleware.calls[1][0], None)
    bench.pass_time(0.59)
    assert [len(verdicts) for verdicts in found] == [1, 1, 0]
    bench.pass_time(0.02)
    assert [len(verdicts) for verdicts in found] == [1, 1, 1]


def test_calls_that_are_answered_leave_no_timers_behind(bench: Bench) -> None:
    bench.hooks.register(bench.hook(timeout_ms=60_000))
    for _ in range(1000):
        bench.ask()
        bench.hooks.calls.answered(bench.middleware.calls[-1][0], None)
    assert len(bench.broker.timers._heap) == 1


def test_a_cancelled_chain_asks_nobody_else_and_says_nothing(bench: Bench) -> None:
    bench.hooks.register(bench.hook("first", timeout_ms=100))
    bench.hooks.register(bench.hook("second"))
    chain, verdicts = bench.ask()
    chain.cancel()
    identifier = bench.middleware.calls[0][0]
    assert bench.middleware.late == [identifier]
    bench.hooks.calls.answered(identifier, None)
    bench.pass_time(1)
    assert verdicts == []
    assert bench.middleware.names == ["first"]


def test_what_cannot_be_refused_is_told_without_waiting(bench: Bench) -> None:
    for kind in (EventKind.DISCONNECT, EventKind.UNSUBSCRIBE, EventKind.UNREGISTER):
        bench.hooks.register(bench.hook(kind, kind=kind))
        bench.hooks.tell(kind, "subject", bench.client)
    assert bench.middleware.names == ["disconnect", "unsubscribe", "unregister"]
    assert len(bench.middleware.late) == 3
    assert len(bench.broker.timers._heap) == 0


def test_a_middleware_is_not_asked_about_itself_but_others_are(bench: Bench) -> None:
    other = FakeMiddleware(bench.open("other"))
    bench.hooks.register(bench.hook("own"))
    bench.hooks.register(bench.hook("others", middleware=other))
    event = dataclasses.replace(bench.event(), session=bench.middleware.session)
    bench.ask(event)
    assert (bench.middleware.names, other.names) == ([], ["others"])


@pytest.mark.parametrize(
    ("headers", "seen"),
    [
        ((), False),
        ((("k", b"w"),), False),
        ((("k", b"v"),), False),
        ((("x", b""),), False),
        ((("k", b"v"), ("x", b"any")), True),
        ((("k", b"w"), ("x", b""), ("k", b"v")), True),
        ((("K", b"v"), ("X", b"")), False),
    ],
)
def test_all_header_conditions_must_hold(
    bench: Bench, headers: tuple[tuple[str, bytes], ...], *, seen: bool
) -> None:
    bench.hooks.register(bench.hook(headers=(("k", b"v"), ("x", None))))
    chain, _ = bench.ask(bench.event(headers=headers))
    assert chain.settled is not seen


# --- Coming and going ---------------------------------------------------------------------------


def test_names_are_unique_and_may_be_used_again(bench: Bench) -> None:
    bench.hooks.register(bench.hook())
    with pytest.raises(InvalidHook, match="taken"):
        bench.hooks.register(bench.hook(kind=EventKind.CONNECT))
    with pytest.raises(InvalidHook, match="not registered by this client"):
        bench.hooks.unregister(bench.client, "h")
    bench.hooks.unregister(bench.middleware.session, "h")
    bench.hooks.register(bench.hook())


def test_hooks_and_their_timeouts_are_bounded(bench: Bench) -> None:
    hooks = Hooks(bench.broker.timers, bench.clock, lambda: 0, hooks_max=2, timeout_ms_max=100)
    with pytest.raises(InvalidHook, match="above 100 ms"):
        hooks.register(bench.hook("long", timeout_ms=101))
    hooks.register(bench.hook("1", timeout_ms=100))
    hooks.register(bench.hook("2", timeout_ms=100))
    with pytest.raises(InvalidHook, match="limit of 2"):
        hooks.register(bench.hook("3", timeout_ms=100))
    assert len(hooks) == 2


def test_a_hook_sees_no_more_than_its_middleware_may_subscribe_to(bench: Bench) -> None:
    hidden = Rule(allow=False, actions=frozenset({Action.SUBSCRIBE}), pattern="hidden/#")
    guest = FakeMiddleware(bench.open("guest", principal=Principal("guest", [hidden])))
    with pytest.raises(NotAllowed):
        bench.hooks.register(bench.hook(middleware=guest))
    with pytest.raises(NotAllowed):
        bench.hooks.register(bench.hook(middleware=guest, topics=frozenset({"t", "hidden/x"})))
    bench.hooks.register(bench.hook("ok", middleware=guest, topics=frozenset({"t"})))
    everything = Rule(allow=True, actions=frozenset(Action), pattern="#")
    admin = Principal("admin", [everything], default=False)
    bench.hooks.register(bench.hook(middleware=FakeMiddleware(bench.open("a", principal=admin))))


@pytest.mark.parametrize("leaves", [True, False])
def test_a_hook_that_goes_gives_no_answer_to_any_of_its_calls(
    bench: Bench, *, leaves: bool
) -> None:
    bench.hooks.register(bench.hook("go", strategy=GO_ON))
    found = [bench.ask()[1] for _ in range(3)]
    if leaves:
        bench.broker.close(bench.middleware.session)
    else:
        bench.hooks.unregister(bench.middleware.session, "go")
    assert found == [[None]] * 3
    assert len(bench.hooks) == 0
    bench.pass_time(100)
    assert found == [[None]] * 3


def test_a_hook_that_went_during_an_chain_is_not_asked(bench: Bench) -> None:
    other = FakeMiddleware(bench.open("other"))
    bench.hooks.register(bench.hook("first"))
    bench.hooks.register(bench.hook("second", middleware=other))
    _, verdicts = bench.ask()
    bench.hooks.unregister(other.session, "second")
    bench.hooks.calls.answered(bench.middleware.calls[0][0], None)
    assert verdicts == [None]
    assert other.calls == []


def test_leaving_and_unsubscribing_are_told_by_the_broker_itself(bench: Bench) -> None:
    bench.hooks.register(bench.hook("u", kind=EventKind.UNSUBSCRIBE))
    bench.hooks.register(bench.hook("d", kind=EventKind.DISCONNECT))
    bench.broker.subscribe(bench.client, "a/+")
    bench.broker.subscribe(bench.client, "b")
    bench.broker.unsubscribe(bench.client, "a/+")
    assert not bench.broker.unsubscribe(bench.client, "a/+")
    bench.broker.close(bench.client)
    told = [(event.kind, event.subject, event.client) for _, _, event in bench.middleware.calls]
    assert told == [("unsubscribe", "a/+", "client"), ("disconnect", "client", "client")]


# --- The batch path -----------------------------------------------------------------------------


def test_without_message_hooks_there_is_no_table(bench: Bench) -> None:
    bench.hooks.register(bench.hook(kind=EventKind.CONNECT))
    assert bench.broker.permits(bench.client) is None
    bench.hooks.register(bench.hook("p"))
    assert bench.broker.permits(bench.client) == b""
    bench.hooks.unregister(bench.middleware.session, "p")
    assert bench.broker.permits(bench.client) is None


def test_only_topics_that_a_hook_watches_stay_unmarked(bench: Bench) -> None:
    bench.hooks.register(bench.hook(topics=frozenset({"hooked"})))
    for name in ("a", "hooked", "b"):
        bench.broker.authorize_publish(bench.client, name)
    marked = bench.broker.permits(bench.client)
    assert marked is not None
    topics = bench.broker.topics
    assert [topics.name(number) for number, mark in enumerate(marked) if mark] == ["a", "b"]
    bench.hooks.register(bench.hook("another", topics=frozenset({"a"})))
    assert not any(bench.broker.permits(bench.client) or b"")
    assert bench.hooks.watch(LAMAMQ, "a")
    assert not bench.hooks.watch(LAMAMQ, "b")


def test_hooks_on_headers_watch_only_protocols_that_have_them(bench: Bench) -> None:
    bench.hooks.register(bench.hook(headers=(("k", None),)))
    herald = bench.open("herald", protocol=HERALD)
    assert bench.broker.permits(herald) is None
    assert bench.broker.permits(bench.client) == b""
    bench.hooks.register(bench.hook("t", topics=frozenset({"t"})))
    for session in (herald, bench.client):
        for name in ("t", "u"):
            bench.broker.authorize_publish(session, name)
    assert not bench.hooks.watch(HERALD, "u")
    assert any(bench.broker.permits(herald) or b"")
    assert not any(bench.broker.permits(bench.client) or b"")


def test_a_principals_own_table_outlives_the_hooks(bench: Bench) -> None:
    secret = Rule(allow=False, actions=frozenset({Action.PUBLISH}), pattern="secret")
    guest = bench.open("guest", principal=Principal("guest", [secret]))
    bench.broker.authorize_publish(guest, "a")
    before = bytes(bench.broker.permits(guest) or b"")
    bench.hooks.register(bench.hook())
    assert not any(bench.broker.permits(guest) or b"")
    with pytest.raises(NotAllowed):
        bench.broker.authorize_publish(guest, "secret")
    bench.hooks.unregister(bench.middleware.session, "h")
    assert bench.broker.permits(guest) == before


def test_rules_that_change_while_hooks_watch_hold_at_once() -> None:
    """A table that the scan reads must not outlive the rules it was made of."""
    broker = Broker(log=MemoryLog(), clock=FakeClock())
    hooks = broker.hooks
    hooks.watched = frozenset({HERALD})
    hooks.rules_changed()
    session = broker.open(Encoding(HERALD, "little"), RecordingLink(), principal=Principal("p"))
    broker.authorize_publish(session, "a")
    table = broker.permits(session)
    assert table is not None
    assert any(table)
    hooks.rules_changed()
    table = broker.permits(session)
    assert table is not None
    assert not any(table)


def test_clients_that_go_on_while_forbidden_hooks_are_removed_may_unregister_others(
    bench: Bench,
) -> None:
    """Once broken: the reload ended with a KeyError, and revoked nothing else."""
    principal = Principal("guard")
    guard = FakeMiddleware(bench.open("guard", principal=principal))
    bench.hooks.register(bench.hook("first", strategy=GO_ON, middleware=guard))
    second = bench.hook("second", kind=EventKind.SUBSCRIBE, middleware=guard)
    bench.hooks.register(second)
    chain, _ = bench.ask()
    verdicts: list[PeerError | None] = []

    def unregister(verdict: PeerError | None) -> None:  # as a packet that was sent meanwhile does
        verdicts.append(verdict)
        with contextlib.suppress(InvalidHook):
            bench.hooks.unregister(guard.session, "second")

    chain.then = unregister
    principal.set_rules([], default=False)
    assert bench.hooks.remove_forbidden() == {guard.session}
    assert verdicts == [None]
    assert len(bench.hooks) == 0
    assert not bench.hooks.watched


# --- Hooks that outlive their connection ----------------------------------------------------------


def test_a_hook_that_must_consent_refuses_after_its_connection_until_its_grace_is_over(
    bench: Bench,
) -> None:
    """Once broken: with the connection of a guard went its hooks, and everything passed."""
    bench.hooks.register(bench.hook("guard"))
    bench.hooks.register(bench.hook("ear", strategy=GO_ON))
    bench.broker.close(bench.middleware.session)
    _, verdicts = bench.ask()
    assert repr(verdicts) == repr([HookTimeout("guard")])
    assert len(bench.hooks) == 1
    bench.pass_time(59)
    assert repr(bench.ask()[1]) == repr([HookTimeout("guard")])
    bench.pass_time(2)
    assert bench.ask()[1] == [None]
    assert not len(bench.hooks)


def test_only_the_principal_of_a_hook_takes_it_over(bench: Bench) -> None:
    bench.hooks.register(bench.hook("guard"))
    bench.broker.close(bench.middleware.session)
    stranger = FakeMiddleware(bench.open("middleware", principal=Principal("stranger")))
    with pytest.raises(InvalidHook, match="taken"):
        bench.hooks.register(bench.hook("guard", middleware=stranger))
    with pytest.raises(InvalidHook, match="not registered by this client"):
        bench.hooks.unregister(stranger.session, "guard")
    again = FakeMiddleware(bench.open("another connection"))
    bench.hooks.register(bench.hook("guard", middleware=again))
    _, verdicts = bench.ask()
    bench.hooks.calls.answered(again.calls[0][0], None)
    assert verdicts == [None]
    bench.pass_time(120)
    assert len(bench.hooks) == 1


def test_without_grace_hooks_end_with_their_connection(bench: Bench) -> None:
    bench.hooks.grace_seconds = 0
    bench.hooks.register(bench.hook("guard"))
    bench.broker.close(bench.middleware.session)
    assert bench.ask()[1] == [None]


# --- Topics that need consent ---------------------------------------------------------------------


def test_a_required_topic_needs_the_consent_of_some_hook(bench: Bench) -> None:
    bench.hooks.require(["orders/#"])
    assert bench.hooks.watch(LAMAMQ, "orders/1")
    assert bench.hooks.watch(HERALD, "orders/1")
    assert not bench.hooks.watch(HERALD, "other")
    assert bench.ask(bench.event("other"))[1] == [None]
    assert repr(bench.ask(bench.event("orders/1"))[1]) == repr([MiddlewareMissing("orders/1")])
    bench.hooks.register(bench.hook("ear", strategy=TELL))
    assert repr(bench.ask(bench.event("orders/1"))[1]) == repr([MiddlewareMissing("orders/1")])
    bench.hooks.register(bench.hook("guard", strategy=GO_ON, priority=1))
    _, verdicts = bench.ask(bench.event("orders/1"))
    assert verdicts == []
    bench.hooks.calls.answered(bench.middleware.calls[-1][0], None)
    assert verdicts == [None]
    _, verdicts = bench.ask(bench.event("orders/1"))
    bench.pass_time(1.1)
    assert repr(verdicts) == repr([MiddlewareMissing("orders/1")])
    bench.hooks.require([])
    assert bench.ask(bench.event("orders/1"))[1] == []


# --- Open calls -----------------------------------------------------------------------------------


def few_calls(bench: Bench, count: int) -> Hooks:
    numbers = iter(range(1000))
    clock, timers = bench.clock, bench.broker.timers
    bench.hooks = Hooks(timers, clock, lambda: next(numbers), calls_open_max=count)
    return bench.hooks


def test_events_wait_while_a_middleware_has_too_many_open_calls(bench: Bench) -> None:
    hooks = few_calls(bench, 2)
    hooks.register(bench.hook("guard"))
    hooks.register(bench.hook("ear", strategy=TELL, priority=-1))
    asked = [bench.ask(bench.event(str(number))) for number in range(5)]
    guards = [event.subject for _, name, event in bench.middleware.calls if name == "guard"]
    assert guards == ["0", "1"]
    assert hooks.calls.untold == 3
    asked[2][0].cancel()
    calls = {event.subject: number for number, name, event in bench.middleware.calls}
    hooks.calls.answered(calls["0"], None)
    assert asked[0][1] == [None]
    guards = [event.subject for _, name, event in bench.middleware.calls if name == "guard"]
    assert guards == ["0", "1", "3"]
    bench.pass_time(1.1)
    assert repr(asked[1][1]) == repr(asked[3][1]) == repr([HookTimeout("guard")])
    guards = [event.subject for _, name, event in bench.middleware.calls if name == "guard"]
    assert guards == ["0", "1", "3", "4"]
    hooks.closed(bench.middleware.session)
    assert repr(asked[4][1]) == repr([HookTimeout("guard")])
    assert asked[2][1] == []
    assert not len(hooks.calls)


def test_events_that_wait_for_a_call_end_with_the_middleware(bench: Bench) -> None:
    hooks = few_calls(bench, 1)
    for name in ("one", "two"):
        hooks.register(bench.hook(name, strategy=GO_ON))
    asked = [bench.ask(bench.event(str(number)))[1] for number in range(4)]
    hooks.closed(bench.middleware.session)
    assert asked == [[None]] * 4
    assert not len(hooks.calls)
    assert (hooks.calls.made, hooks.calls.unanswered) == (1, 4)
