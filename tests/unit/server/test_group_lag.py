"""The lag of a group counts the messages of its topics, each about once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.ports import GroupState, Matched, PartitionRange, Subscription
from penstock.ports.selection import Selection
from penstock.server.group_lag import GroupLag
from penstock.storage.arrow.log import ArrowLog
from penstock.storage.memory import MemoryLog
from tests.support.written_log import WrittenLog

QUIET = Subscription(topics=("quiet",))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WrittenLog]:
    with WrittenLog(tmp_path / "data") as written:
        yield written


def state(offset: int, subscription: Subscription | None = QUIET) -> dict[str, GroupState]:
    return {"g": GroupState("g", {0: offset}, subscription=subscription)}


def lag(counted: GroupLag, log: WrittenLog, states: dict[str, GroupState]) -> int:
    return counted.of(states, log.log.bounds())["g"][0]


def test_only_messages_of_the_topics_of_a_group_count(log: WrittenLog) -> None:
    """Once broken: a group of a quiet topic was behind by the messages of all others."""
    log.put_many(3, rows=8, topics=("busy", "busy", "busy", "quiet"))
    counted = GroupLag(log.log)
    assert lag(counted, log, state(0)) == 6
    assert lag(counted, log, state(5)) == 5
    assert lag(counted, log, state(24)) == 0
    assert lag(counted, log, state(0)) == 6, "a group may go back"
    log.put_many(2, rows=4, topics=("busy",))
    assert lag(counted, log, state(24)) == 0
    assert lag(counted, log, state(0, None)) == 32
    assert lag(counted, log, state(0, Subscription(patterns=("b/#", "bus+")))) == 0
    assert lag(counted, log, state(0, Subscription(expression="b.*"))) == 26
    assert lag(counted, log, state(0, Subscription(expression="("))) == 32, "it is no expression"
    assert counted.of({"g": GroupState("g", {7: 1})}, log.log.bounds()) == {"g": {7: 0}}


def test_messages_are_counted_once(log: WrittenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    class Counting:
        def match(self, span: PartitionRange, selection: Selection) -> Matched:
            asked.append(span[1:])
            return log.log.match(span, selection)

    log.put_many(2, rows=4, topics=("busy", "quiet"))
    now = 0.0
    counted = GroupLag(Counting(), clock=lambda: now)  # type: ignore[arg-type]
    assert [lag(counted, log, state(0)) for _ in range(2)] == [4, 4]
    log.put_many(1, rows=4, topics=("quiet",))
    assert lag(counted, log, state(0)) == 8
    assert lag(counted, log, state(4)) == 6
    assert asked == [(0, 8), (8, 12), (0, 4)]
    monkeypatch.setattr("penstock.server.group_lag.GROUP_LAG_SECONDS_MAX", 0.0)
    log.put_many(1, rows=4, topics=("busy",))
    assert lag(counted, log, state(4)) == 10, "what is not counted yet counts whole"
    assert len(asked) == 3


def test_a_group_of_a_storage_without_history_has_no_lag() -> None:
    storage = MemoryLog()
    assert GroupLag(storage).of(state(0), storage.bounds()) == {"g": {0: 0}}


def test_a_long_subscription_is_not_stored(tmp_path: Path) -> None:
    for storage in (MemoryLog(), ArrowLog(tmp_path)):
        storage.groups.commit("g", {0: 1}, subscription=QUIET)
        kept = storage.groups.load("g")
        assert kept is not None
        assert kept.subscription == QUIET
        long = Subscription(topics=tuple(f"topic/{number}" for number in range(2000)))
        storage.groups.commit("g", {0: 1}, subscription=long)
        kept = storage.groups.load("g")
        assert kept is not None
        assert kept.subscription is None
        storage.close()
