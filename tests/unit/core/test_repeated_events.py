"""Log events of groups that come many times: the first, then their number."""

import structlog

from penstock.core.groups.repeated_events import RepeatedEvents
from penstock.core.timers import Timers
from penstock.limits import GROUP_LOG_SECONDS
from tests.support.fakes import FakeClock


def test_the_first_event_of_a_group_is_logged_then_a_count_at_an_interval() -> None:
    clock = FakeClock()
    timers = Timers(clock)
    late = RepeatedEvents("late", timers)
    with structlog.testing.capture_logs() as logged:
        for number in range(300):
            late.warn("busy", members=number)
        late.warn("other", members=7)
        timers.run_due()
        assert [(each["group"], each["members"], each.get("repeated")) for each in logged] == [
            ("busy", 0, None),
            ("other", 7, None),
        ]
        clock.seconds += GROUP_LOG_SECONDS
        timers.run_due()
        late.warn("busy", members=1)
        assert logged[2:] == [
            {
                "event": "late", "log_level": "warning", "group": "busy", "members": 299,
                "repeated": 299,
            },
        ]  # fmt: skip
        clock.seconds += GROUP_LOG_SECONDS
        timers.run_due()
        assert logged[3]["repeated"] == 1
        clock.seconds += GROUP_LOG_SECONDS  # a quiet minute: the next event is a first one
        timers.run_due()
        late.warn("busy", members=2)
        assert "repeated" not in logged[4]
        assert len(logged) == 5


def test_counts_are_logged_when_the_broker_stops() -> None:
    timers = Timers(FakeClock())
    dead = RepeatedEvents("dead", timers)
    with structlog.testing.capture_logs() as logged:
        for offset in range(3):
            dead.warn("g", offset=offset)
        dead.flush()
        dead.flush()
    assert [each.get("repeated") for each in logged] == [None, 2]
