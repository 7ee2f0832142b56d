"""The broker's clock does not go back, whatever happens to the system's clock."""

import pytest
import structlog

from penstock.server import clock as module
from penstock.server.clock import SystemClock

SECOND = 1_000_000
NOW = 1_700_000_000 * SECOND


class System:
    """The clocks of the system, in microseconds."""

    def __init__(self) -> None:
        self.us = NOW
        self.monotonic_us = 5 * SECOND

    def wait(self, us: int) -> None:
        self.us += us
        self.monotonic_us += us


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    found = System()
    monkeypatch.setattr(module, "_system_us", lambda: found.us)
    monkeypatch.setattr(module, "_monotonic_us", lambda: found.monotonic_us)
    return found


def test_it_is_the_clock_of_the_system(system: System) -> None:
    clock = SystemClock(NOW - 1)
    assert clock.now_us() == NOW
    system.wait(7)
    assert clock.now_us() == NOW + 7


def test_it_goes_on_at_half_speed_while_the_system_is_set_back(system: System) -> None:
    clock = SystemClock()
    assert clock.now_us() == NOW
    system.us -= 10 * SECOND
    with structlog.testing.capture_logs() as events:
        assert clock.now_us() == clock.now_us() == NOW
    assert [(each["event"], each["seconds"]) for each in events] == [("clock behind the log", 10.0)]
    found = []
    for _ in range(3):
        system.wait(3)
        found.append(clock.now_us() - NOW)
    assert found == [1, 3, 4], "an odd microsecond is not lost"
    system.wait(20 * SECOND)
    assert clock.now_us() == system.us, "it has caught up"
    system.us -= SECOND
    assert clock.now_us() == system.us + SECOND


def test_it_begins_behind_the_last_message_of_the_log_and_says_so(system: System) -> None:
    with structlog.testing.capture_logs() as events:
        clock = SystemClock(NOW + 60 * SECOND)
    assert events == [{"event": "clock behind the log", "seconds": 60.0, "log_level": "warning"}]
    system.wait(2 * SECOND)
    assert clock.now_us() == NOW + 62 * SECOND, (
        "a second behind it, and one for the two that passed"
    )


def test_a_clock_that_is_a_little_behind_the_log_is_not_worth_an_event(system: System) -> None:
    with structlog.testing.capture_logs() as events:
        clock = SystemClock(NOW + 1000)
    assert events == []
    assert clock.now_us() > NOW + 1000
    assert system.us == NOW
