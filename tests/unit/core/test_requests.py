"""Requests that wait: each ends once, in one of four ways."""

import dataclasses

import pytest

from penstock._kernels.gathered import Gathered
from penstock.core.access import ANYONE
from penstock.core.audiences import Encoding
from penstock.core.requests import Failure, Match, Refusal, Requests
from penstock.core.sessions import Session
from penstock.core.slices import Slices
from penstock.core.timers import Timers
from penstock.memory import unlimited_account
from penstock.protocols.fleximq import FLEXIMQ


class FakeClock:
    def __init__(self) -> None:
        self.time = 100.0

    def now_us(self) -> int:
        return int(self.time * 1_000_000)

    def monotonic(self) -> float:
        return self.time


class NoLink:
    connection = 7
    peer = "nobody"
    buffered = 0
    account = unlimited_account()

    def write_gathered(self, frames: Gathered) -> None:
        self.write(frames.copied())

    def write(self, data: bytes) -> None:
        raise AssertionError(f"requests write nothing, not {data!r}")

    def pause(self) -> None: ...

    resume = close = abort = pause


@dataclasses.dataclass
class Told:
    """A requester that notes what it is told."""

    failures: list[tuple[str, Failure]] = dataclasses.field(default_factory=list)

    def request_failed(self, identifier: str, failure: Failure) -> None:
        self.failures.append((identifier, failure))


class World:
    """Two askers and a target around one `Requests`, on a clock of their own."""

    def __init__(self, **limits: int) -> None:
        self.clock = FakeClock()
        self.timers = Timers(self.clock)
        self.requests = Requests(
            self.timers, Slices(self.timers, self.clock), self.clock, seconds_max=30, **limits
        )
        self.asker, self.other, self.target = map(self.session, (1000, 1001, 1002))
        self.told = Told()

    @staticmethod
    def session(number: int) -> Session:
        encoding = Encoding(FLEXIMQ, "big")
        return Session(number, encoding=encoding, link=NoLink(), name="", principal=ANYONE)

    def ask(self, identifier: str, asker: Session | None = None) -> Refusal | None:
        return self.requests.ask(
            identifier, requester=asker or self.asker, target=self.target, callback=self.told
        )

    def answer(self, identifier: str, target: Session | None = None) -> Match:
        return self.requests.answer(
            identifier, requester_number=self.asker.number, target=target or self.target
        )

    def pass_time(self, seconds: float) -> None:
        self.clock.time += seconds
        self.timers.run_due()


def test_an_answer_is_awaited_once() -> None:
    world = World()
    assert world.ask("q") is None
    assert len(world.requests) == 1
    assert world.answer("q") is Match.AWAITED
    assert len(world.requests) == 0
    assert world.answer("q") is Match.UNKNOWN
    world.pass_time(60)
    assert world.told.failures == []


def test_only_the_target_can_answer_and_only_to_the_requester() -> None:
    world = World()
    world.ask("q")
    assert world.answer("q", world.other) is Match.UNKNOWN
    requester = world.other.number
    found = world.requests.answer("q", requester_number=requester, target=world.target)
    assert found is Match.UNKNOWN
    assert world.answer("other") is Match.UNKNOWN
    assert world.answer("q") is Match.AWAITED


def test_an_identifier_is_taken_while_its_own_requester_waits() -> None:
    world = World()
    assert world.ask("q") is None
    assert world.ask("q") is Refusal.DUPLICATE
    assert world.ask("q", world.other) is None
    world.answer("q")
    assert world.ask("q") is None


def test_a_request_times_out_at_its_time_and_not_before() -> None:
    world = World()
    world.ask("first")
    world.pass_time(10)
    world.ask("second")
    world.pass_time(19.9)
    assert world.told.failures == []
    world.pass_time(0.1)
    assert world.told.failures == [("first", Failure.TIMED_OUT)]
    world.pass_time(10)
    assert world.told.failures[1:] == [("second", Failure.TIMED_OUT)]
    assert len(world.requests) == 0


def test_an_answer_after_its_time_is_late_once() -> None:
    world = World()
    world.ask("q")
    world.pass_time(30)
    assert world.answer("q", world.other) is Match.UNKNOWN
    assert world.answer("q") is Match.LATE
    assert world.answer("q") is Match.UNKNOWN


def test_late_requests_are_forgotten_oldest_first_beyond_their_limit() -> None:
    world = World(late_max=2)
    for identifier in "abc":
        world.ask(identifier)
    world.pass_time(30)
    assert [world.answer(identifier) for identifier in "abc"] == [
        Match.UNKNOWN,
        Match.LATE,
        Match.LATE,
    ]


def test_a_target_that_leaves_fails_all_that_wait_for_it_and_nothing_else() -> None:
    world = World()
    world.ask("a")
    world.ask("b", world.other)
    world.requests.ask("c", requester=world.asker, target=world.other, callback=world.told)
    world.requests.leave(world.target)
    assert world.told.failures == [("a", Failure.TARGET_LEFT), ("b", Failure.TARGET_LEFT)]
    assert len(world.requests) == 1
    assert world.answer("c", world.other) is Match.AWAITED


def test_a_requester_that_leaves_is_told_nothing_and_its_answers_are_late() -> None:
    world = World()
    world.ask("q")
    world.requests.leave(world.asker)
    assert len(world.requests) == 0
    assert world.answer("q") is Match.LATE
    world.pass_time(60)
    assert world.told.failures == []


def test_who_asked_itself_and_leaves_is_told_nothing() -> None:
    world = World()
    world.requests.ask("q", requester=world.target, target=world.target, callback=world.told)
    world.requests.leave(world.target)
    assert world.told.failures == []
    assert len(world.requests) == 0


def test_a_client_waits_for_a_limited_number_of_answers() -> None:
    world = World(pending_max=2)
    assert [world.ask(identifier) for identifier in "abc"] == [None, None, Refusal.TOO_MANY]
    assert world.ask("c", world.other) is None
    world.answer("a")
    assert world.ask("c") is None


@pytest.mark.parametrize("count", [1, 1000])
def test_one_timer_serves_all_requests(count: int) -> None:
    world = World()
    for number in range(count):
        world.ask(str(number))
        world.answer(str(number))
    world.ask("last")
    assert len(world.timers._heap) == 1


def test_a_requester_may_ask_again_when_it_is_told() -> None:
    world = World()

    class Stubborn(Told):
        def request_failed(self, identifier: str, failure: Failure) -> None:
            super().request_failed(identifier, failure)
            if len(self.failures) < 3:
                world.ask(identifier)

    world.told = Stubborn()
    world.ask("q")
    for _ in range(5):
        world.pass_time(30)
    assert world.told.failures == [("q", Failure.TIMED_OUT)] * 3


def test_times_of_answers_are_measured_and_failures_are_counted() -> None:
    world = World()
    world.ask("answered")
    world.pass_time(0.25)
    world.answer("answered")
    world.ask("late")
    world.pass_time(30)
    world.answer("late")
    world.ask("left")
    world.requests.leave(world.target)
    times = world.requests.times
    assert (times.count, times.seconds_max) == (1, pytest.approx(0.25))
    assert world.requests.failed == {Failure.TIMED_OUT: 1, Failure.TARGET_LEFT: 1}
