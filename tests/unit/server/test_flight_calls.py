"""Limits of the calls of Flight that run at the same time."""

import threading
import time
from collections.abc import Iterator

import pytest

from penstock.limits import FLIGHT_PAUSE_FACTOR, FLIGHT_PAUSE_SECONDS_MAX
from penstock.server.flight import calls

SECONDS_MAX = 10.0


def test_a_principal_leaves_places_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "FLIGHT_WAIT_SECONDS_MAX", 0.05)
    limit = calls.CallLimit(3, 2)
    with limit.entered("a"), limit.entered("a"):
        with pytest.raises(calls.TooBusy), limit.entered("a"):
            pass
        with limit.entered("b"), pytest.raises(calls.TooBusy), limit.entered("c"):
            pass
        with limit.entered("c"):
            pass
    with limit.entered("a"), limit.entered("a"):
        pass


def test_a_place_goes_to_the_call_that_waits_longest_and_may_have_it() -> None:
    limit = calls.CallLimit(2, 1)
    order: list[str] = []
    inside = [threading.Event() for _ in range(3)]
    leave = [threading.Event() for _ in range(3)]

    def call(number: int, principal: str) -> None:
        with limit.entered(principal):
            order.append(principal)
            inside[number].set()
            assert leave[number].wait(SECONDS_MAX)

    def waiting(count: int) -> None:
        for _ in range(1000):
            if len(limit._queue) == count:
                return
            threading.Event().wait(0.01)
        raise AssertionError(f"{len(limit._queue)} calls wait")

    with limit.entered("a"), limit.entered("b"):
        threads = []
        for number, principal in enumerate("acb"):
            threads.append(threading.Thread(target=call, args=(number, principal)))
            threads[-1].start()
            waiting(number + 1)
    # "b" left first, while "a" had its place still: "c" was the next that might have one.
    assert inside[0].wait(SECONDS_MAX)
    assert inside[1].wait(SECONDS_MAX)
    assert set(order) == {"a", "c"}
    assert not inside[2].is_set(), "two calls at a time"
    leave[1].set()
    assert inside[2].wait(SECONDS_MAX)
    for each in leave:
        each.set()
    for thread in threads:
        thread.join(SECONDS_MAX)
    with limit.entered("a"), limit.entered("b"):
        pass


def test_threads_work_one_after_another_and_use_what_they_made_together() -> None:
    work = calls.WorkLimit(1)
    working = 0
    most = 0
    both = threading.Barrier(2, timeout=SECONDS_MAX)

    def items() -> Iterator[int]:
        nonlocal working, most
        for number in range(20):
            working += 1
            most = max(most, working)
            threading.Event().wait(0.001)
            working -= 1
            yield number

    def use(found: list[int]) -> None:
        for item in work.over(items()):
            both.wait()  # the other thread has made its item, while this one has its own
            found.append(item)

    results: list[list[int]] = [[], []]
    threads = [threading.Thread(target=use, args=(found,)) for found in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS_MAX)
    assert results == [list(range(20))] * 2
    assert most == 1


def test_work_that_fails_gives_its_place_back() -> None:
    work = calls.WorkLimit(1)

    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    found = work.over(broken())
    assert next(found) == 1
    with pytest.raises(ValueError, match="broken"):
        next(found)
    with work:
        pass


def test_a_thread_that_waits_leaves_its_place_to_another() -> None:
    work = calls.WorkLimit(1)
    worked = threading.Event()

    def other() -> None:
        with work:
            worked.set()

    with work:
        thread = threading.Thread(target=other)
        thread.start()
        assert not worked.wait(0.02)
        with work.left():
            assert worked.wait(SECONDS_MAX)
        thread.join(SECONDS_MAX)


def test_work_pauses_while_the_event_loop_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    behind = True
    work = calls.WorkLimit(1, lambda _now: behind)
    pauses: list[float] = []
    here = threading.get_ident()

    def sleep(seconds: float) -> None:
        if threading.get_ident() == here:  # and not a thread that another test has left
            pauses.append(seconds)

    monkeypatch.setattr(time, "sleep", sleep)

    def spend(seconds: float) -> None:
        ends = time.thread_time() + seconds
        while time.thread_time() < ends:
            pass

    with work:
        for seconds in work.paced([0.005, 0.01, 1.5 * FLIGHT_PAUSE_SECONDS_MAX]):
            spend(seconds)
    for pause, worked in zip(pauses, (0.005, 0.01), strict=False):
        assert worked * FLIGHT_PAUSE_FACTOR <= pause <= 2 * worked * FLIGHT_PAUSE_FACTOR
    assert pauses[2] == FLIGHT_PAUSE_SECONDS_MAX, "at most"
    assert pauses[3] < 0.005 * FLIGHT_PAUSE_FACTOR, "of the little work after the last"
    assert len(pauses) == 4
    behind = False
    with work:
        for _ in work.paced(range(2)):
            spend(0.001)
    assert len(pauses) == 4
