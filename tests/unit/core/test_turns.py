"""Turns of the event loop, and work in slices."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.core.broker import Broker
from penstock.core.slices import Slices
from penstock.core.timers import Timers
from penstock.core.turns import DeferredInput, LoopTurn, Source
from penstock.gateway.detector import handler_for
from penstock.gateway.options import GatewayOptions
from penstock.limits import (
    BEHIND_TURN_DIVISOR,
    BUSY_SECONDS,
    BUSY_TURN_SECONDS_MAX,
    LOOP_BEHIND_SECONDS,
    PRINCIPAL_TURN_SECONDS_MAX,
    SOURCE_SECONDS,
)
from penstock.storage.memory import MemoryLog
from tests.support import lamamq_bytes as lm
from tests.support.fakes import FakeClock, RecordingLink


def test_a_turn_that_took_too_long_defers_until_the_next_one() -> None:
    ends: list[Callable[[], None]] = []
    turn = LoopTurn(seconds_max=0.1, deferred_bytes_max=100)
    assert not turn.defers(0.0, 10), "without an event loop no turn is over"
    assert not turn.defers(9.0, 10)
    turn.schedule = ends.append
    assert not turn.defers(10.0, 10)
    assert not turn.defers(10.1, 10)
    assert turn.defers(10.2, 10)
    turn.deferred_bytes = 95
    assert not turn.defers(10.2, 10), "memory comes before time"
    turn.deferred_bytes = 0
    [end] = ends
    end()
    assert not turn.defers(10.3, 10)
    assert len(ends) == 2


def test_busy_clients_wait_earlier_than_others() -> None:
    turn = LoopTurn(seconds_max=0.1, busy_seconds_max=0.01)
    turn.schedule = lambda _end: None
    assert not turn.defers(1.0, 10, is_busy=True)
    assert not turn.defers(1.005, 10, is_busy=True)
    assert turn.defers(1.02, 10, is_busy=True)
    assert not turn.defers(1.02, 10)


def test_clients_of_a_heavy_source_wait_earlier_than_others() -> None:
    turn = LoopTurn(seconds_max=0.1, busy_seconds_max=0.01)
    turn.schedule = lambda _end: None
    heavy, light = turn.source("10.0.0.1"), turn.source("10.0.0.2")
    heavy.add(1.0, 0.5)
    light.add(1.0, 0.002)
    assert not turn.defers(1.0, 10, source=heavy)
    assert not turn.defers(1.005, 10, source=heavy)
    assert turn.defers(1.02, 10, source=heavy)
    assert not turn.defers(1.02, 10, source=light)
    assert turn.defers(1.2, 10, source=light)


def test_the_use_of_a_source_is_forgotten_by_and_by() -> None:
    source = Source()
    source.add(1.0, 0.4)
    source.add(1.0 + SOURCE_SECONDS, 0.1)
    assert source.used(1.0 + SOURCE_SECONDS) == pytest.approx(0.3)
    assert source.used(1.0 + 20 * SOURCE_SECONDS) < 1e-6


def test_a_source_that_used_more_than_its_part_is_heavy() -> None:
    turn = LoopTurn()
    heavy, light = turn.source("10.0.0.1"), turn.source("10.0.0.2")
    heavy.add(5.0, 0.6)
    assert not turn.is_heavy(heavy, 5.0), "there is no other that uses the loop"
    light.add(5.2, 0.002)
    assert turn.is_heavy(heavy, 5.2)
    assert not turn.is_heavy(light, 5.2)
    assert turn.source("10.0.0.1") is heavy
    del heavy
    assert turn.source("10.0.0.1").used(5.3) == 0.0, "nothing is kept of those that left"


def test_clients_at_work_do_not_wait_for_a_crowd_that_has_just_come() -> None:
    """Those at work use a tenth of the loop, and used more of it lately than the new ones."""
    turn = LoopTurn()
    at_work = turn.source("10.0.0.1")
    for step in range(100):
        at_work.add(step / 20, 0.005)
    crowd = [turn.source(f"10.0.1.{number}") for number in range(5)]
    for each in crowd:
        each.add(5.0, 0.01)
    assert all(each.used(5.0) < at_work.used(5.0) for each in crowd)
    assert not turn.is_heavy(at_work, 5.0)
    for each in crowd:
        each.add(5.2, 0.19)
    assert turn.is_heavy(crowd[0], 5.2), "soon they have used more than their part"
    assert not turn.is_heavy(at_work, 5.2)


def test_addresses_that_use_next_to_nothing_do_not_share_the_loop() -> None:
    turn = LoopTurn()
    sources = [turn.source(f"10.0.{number // 250}.{number % 250}") for number in range(1000)]
    for each in sources:
        each.add(5.0, 0.0001)
    sources[0].add(5.0, 0.05)
    sources[1].add(5.0, 0.05)
    assert not turn.is_heavy(sources[0], 5.0)


def test_deferred_input_is_taken_from_the_source_that_used_least() -> None:
    busy, quiet = Source(), Source()
    busy.add(1.0, 0.1)
    quiet.add(1.0, 0.01)
    taken: list[str] = []
    deferred = DeferredInput()
    for number in range(3):
        deferred.add(busy, lambda number=number: taken.append(f"busy {number}"), 1.0)
    deferred.add(quiet, lambda: taken.append("quiet"), 1.0)
    assert len(deferred) == 4
    while (take := deferred.next(1.0)) is not None:
        take()
    assert taken == ["quiet", "busy 0", "busy 1", "busy 2"]
    assert len(deferred) == 0


def test_the_loop_is_behind_for_a_while_after_it_deferred_input() -> None:
    turn = LoopTurn(seconds_max=0.1)
    turn.schedule = lambda _end: None
    assert not turn.is_behind(1.0)
    turn.defers(1.0, 10)
    assert turn.defers(1.2, 10)
    assert not turn.is_behind(1.2), "no other client waits"
    turn.deferred_bytes += 10
    assert turn.defers(1.2, 10)
    assert turn.is_behind(1.2)
    assert turn.shortened(0.4, 1.2) == pytest.approx(0.4 / BEHIND_TURN_DIVISOR)
    assert not turn.is_behind(1.2 + 2 * LOOP_BEHIND_SECONDS)


class OfferingLink(RecordingLink):
    """A link that offers the bytes that were not taken again when it is resumed."""

    waiting = b""

    def offer(self, data: bytes) -> int:
        taken = self.handler.received(memoryview(data))
        self.waiting = data[taken:]
        return taken

    def resume(self) -> None:
        super().resume()
        if self.waiting and not self.paused:
            self.offer(self.waiting)


def test_a_busy_client_waits_for_others_and_then_gets_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeClock()
    broker = Broker(log=MemoryLog(), clock=clock)
    broker.turn.schedule = lambda _end: None  # the turn does not end
    link = OfferingLink()
    link.set_handler(handler_for(broker, link, GatewayOptions()))
    hello = lm.authentication(b"c") + lm.CHOICE
    assert link.offer(hello) == len(hello)
    append, seconds = broker.log.append, [0.001]

    def slow_append(*arguments: Any) -> Any:
        clock.seconds += seconds[0]
        return append(*arguments)

    monkeypatch.setattr(broker.log, "append", slow_append)
    push = lm.push(7, b"topic")
    assert link.offer(push) == len(push), "it is not known to be busy yet"
    clock.seconds += BUSY_TURN_SECONDS_MAX
    assert link.offer(push) == 0
    assert link.paused
    seconds[0] = 0.0
    broker.timers.run_due()
    assert not link.paused
    assert link.waiting == b"", "it got its turn, though the turn of the loop goes on"
    assert link.offer(push) == len(push), "it is busy no longer"


def test_a_client_that_was_busy_a_while_ago_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """One slow read, in a moment in which all reads were slow, says nothing about the next."""
    clock = FakeClock()
    broker = Broker(log=MemoryLog(), clock=clock)
    link = OfferingLink()
    link.set_handler(handler_for(broker, link, GatewayOptions()))
    hello = lm.authentication(b"c") + lm.CHOICE
    assert link.offer(hello) == len(hello)
    append = broker.log.append

    def slow_append(*arguments: Any) -> Any:
        clock.seconds += 0.001
        return append(*arguments)

    monkeypatch.setattr(broker.log, "append", slow_append)
    push = lm.push(7, b"topic")
    assert link.offer(push) == len(push)
    clock.seconds += BUSY_SECONDS
    broker.turn.schedule = lambda _end: None
    broker.turn.end()
    assert not broker.turn.defers(clock.seconds, 0), "a turn begins"
    clock.seconds += 2 * BUSY_TURN_SECONDS_MAX
    assert link.offer(push) == len(push)


def test_a_connection_that_is_deferred_loses_nothing() -> None:
    clock = FakeClock()
    broker = Broker(log=MemoryLog(), clock=clock)
    broker.turn.schedule = lambda _end: None
    link = RecordingLink()
    handler = handler_for(broker, link, GatewayOptions())
    link.set_handler(handler)
    broker.turn.defers(clock.monotonic(), 0)
    clock.seconds += 1
    data = lm.authentication(b"c")
    assert link.handler.received(memoryview(data)) == 0
    assert link.paused
    assert broker.turn.deferred_bytes == len(data)
    broker.turn.end()
    broker.timers.run_due()
    assert not link.paused
    assert link.handler.received(memoryview(data)) == len(data)
    assert broker.turn.deferred_bytes == 0
    assert link.read() == lm.OFFER
    rest = lm.CHOICE + lm.push(7, b"topic")
    assert link.handler.received(memoryview(rest)) == len(rest)
    assert link.read() == lm.header(7, 0)


def test_a_deferred_connection_that_is_lost_gives_its_bytes_back() -> None:
    clock = FakeClock()
    broker = Broker(log=MemoryLog(), clock=clock)
    broker.turn.schedule = lambda _end: None
    link = RecordingLink()
    link.set_handler(handler_for(broker, link, GatewayOptions()))
    broker.turn.defers(clock.monotonic(), 0)
    clock.seconds += 1
    link.handler.received(memoryview(lm.authentication(b"c")))
    assert broker.turn.deferred_bytes
    link.handler.lost("gone")
    assert broker.turn.deferred_bytes == 0


class Steps:
    """Work that takes a second of a fake clock for each step."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.timers = Timers(self.clock)
        self.slices = Slices(self.timers, self.clock, seconds_max=2.5, first_steps=2)
        self.done: list[str] = []

    def work(self, name: str, count: int) -> Iterator[None]:
        for _ in range(count):
            self.clock.seconds += 1
            self.done.append(name)
            yield


def test_work_gets_steps_in_turn_and_others_are_served_after_each_slice() -> None:
    steps = Steps()
    runs: list[Callable[[], None]] = []
    steps.slices.schedule = runs.append
    steps.slices.start(steps.work("a", 5))
    assert "".join(steps.done) == "aa"
    steps.slices.add(steps.work("b", 2))
    assert len(runs) == 1, "scheduled once"
    runs.pop()()
    assert "".join(steps.done) == "aaaba"
    runs.pop()()
    assert "".join(steps.done) == "aaababa"
    while runs:
        runs.pop()()
    assert not steps.slices


def test_deferred_input_and_work_are_counted_together_and_input_goes_first() -> None:
    steps = Steps()
    steps.slices.add(steps.work("w", 1))
    for name in ("i", "j"):
        steps.slices.later(lambda name=name: steps.done.append(name), Source())
    assert len(steps.slices) == 3
    while steps.slices:
        steps.timers.run_due()
    assert "".join(steps.done) == "ijw"
    assert len(steps.slices) == 0


def test_input_that_is_deferred_during_a_slice_waits_for_the_next() -> None:
    steps = Steps()
    runs: list[Callable[[], None]] = []
    steps.slices.schedule = runs.append
    source = Source()

    def again() -> None:
        steps.done.append("i")
        steps.slices.later(again, source)

    again()
    steps.slices.add(steps.work("w", 4))
    runs.pop()()
    assert "".join(steps.done) == "iiwww"
    assert len(runs) == 1, "scheduled once"


def test_a_slice_is_over_when_its_time_is() -> None:
    steps = Steps()
    runs: list[Callable[[], None]] = []
    steps.slices.schedule = runs.append

    def take() -> None:
        steps.clock.seconds += 1.25
        steps.done.append("i")

    for _ in range(3):
        steps.slices.later(take, Source())
    runs.pop()()
    assert "".join(steps.done) == "ii"
    runs.pop()()
    assert "".join(steps.done) == "iii"
    assert not runs


def test_a_slice_of_work_is_over_when_its_time_is() -> None:
    steps = Steps()
    runs: list[Callable[[], None]] = []
    steps.slices.schedule = runs.append

    def work() -> Iterator[None]:
        for _ in range(3):
            steps.clock.seconds += 1.25
            steps.done.append("w")
            yield

    steps.slices.add(work())
    runs.pop()()
    assert "".join(steps.done) == "ww"


def test_work_that_ends_with_its_first_steps_is_not_queued() -> None:
    steps = Steps()
    steps.slices.start(steps.work("a", 1))
    assert "".join(steps.done) == "a"
    assert len(steps.slices) == 0


def test_the_first_steps_of_work_take_no_longer_than_a_slice() -> None:
    steps = Steps()
    steps.slices = Slices(steps.timers, steps.clock, seconds_max=2.5, first_steps=5)
    steps.slices.schedule = lambda _run: None
    steps.slices.start(steps.work("a", 5))
    assert "".join(steps.done) == "aaa"
    assert len(steps.slices) == 1


def test_work_that_failed_is_not_tried_again() -> None:
    class Failing:
        tried = 0

        def __iter__(self) -> Iterator[None]:
            return self

        def __next__(self) -> None:
            self.tried += 1
            raise ValueError("broken")

    steps, failing = Steps(), Failing()
    steps.slices.add(failing)
    steps.timers.run_due()
    assert (failing.tried, len(steps.slices)) == (1, 0)


def test_work_that_fails_does_not_stop_other_work() -> None:
    steps = Steps()

    def broken() -> Iterator[None]:
        yield
        raise ValueError("broken")

    steps.slices.add(broken())
    steps.slices.add(steps.work("a", 2))
    while steps.slices:
        steps.timers.run_due()
    assert steps.done == ["a", "a"]


def test_timers_that_are_due_together_are_run_in_several_calls() -> None:
    clock = FakeClock()
    timers = Timers(clock)
    done: list[int] = []

    def run(number: int) -> None:
        done.append(number)
        clock.seconds += 0.01

    for number in range(10):
        timers.after(0.0, lambda number=number: run(number))
    assert timers.run_due(seconds_max=0.025) == 0.0
    assert 2 <= len(done) <= 4
    while timers.run_due(seconds_max=0.025) == 0.0:
        pass
    assert done == list(range(10))


def test_many_addresses_without_credentials_do_not_delay_a_principal() -> None:
    """All clients of a principal have one address, and use a twentieth of the loop."""
    turn = LoopTurn()
    known = turn.source("10.0.0.1", "plant")
    crowd = [turn.source(f"10.0.1.{number}") for number in range(50)]
    for step in range(100):
        known.add(step / 20, 0.0025)
        for each in crowd:
            each.add(step / 20, 0.0009)
    assert known.used(5.0) > crowd[0].used(5.0)
    assert not turn.is_heavy(known, 5.0)
    assert turn.is_heavy(crowd[0], 5.0)

    taken: list[str] = []
    deferred = DeferredInput()
    deferred.add(crowd[0], lambda: taken.append("crowd"), 5.0)
    deferred.add(known, lambda: taken.append("known"), 5.0)
    while (take := deferred.next(5.0)) is not None:
        take()
    assert taken == ["known", "crowd"]


def test_addresses_of_one_principal_have_equal_parts() -> None:
    turn = LoopTurn()
    other = turn.source("10.0.0.9")
    greedy, modest = turn.source("10.0.0.1", "plant"), turn.source("10.0.0.2", "plant")
    greedy.add(5.0, 0.5)
    modest.add(5.0, 0.01)
    other.add(5.0, 0.01)
    assert turn.is_heavy(greedy, 5.0)
    assert not turn.is_heavy(modest, 5.0)
    assert not turn.is_heavy(other, 5.0)


def test_a_burst_of_one_principal_does_not_make_a_turn_long() -> None:
    """Its clients used less than its part of the loop, but all of them are ready in one turn."""
    turn = LoopTurn(seconds_max=0.1)
    ends: list[Callable[[], None]] = []
    turn.schedule = ends.append
    plant, crowd = turn.source("10.0.0.1", "plant"), turn.source("10.0.1.1")
    for step in range(100):
        turn.count(plant, step / 20, 0.0025)  # a twentieth of the loop
        turn.count(crowd, step / 20, 0.02)  # two fifths; its part is half
        turn.end()
    now = 5.0
    assert not turn.is_heavy(crowd, now)

    def taken(source: Source) -> int:
        """How many of 50 reads of a millisecond each do not wait for the next turn."""
        nonlocal now
        count = 0
        for _ in range(50):
            if not turn.defers(now, 10, source=source):
                count += 1
                now += 0.0005
                turn.count(source, now, 0.0005)
        return count

    assert PRINCIPAL_TURN_SECONDS_MAX == 0.001
    assert taken(crowd) <= 6
    assert taken(plant) == 50, "a principal that uses little does not wait"
    ends.pop()()
    assert taken(crowd), "the next turn has time for it"
