"""The lag of a group counts the messages of its topics, each about once."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.ports import GroupState, PartitionRange, Subscription, TopicCounts
from penstock.ports.selection import Selection
from penstock.server.group_lag import GroupLag
from penstock.storage.arrow.log import ArrowLog
from penstock.storage.memory import MemoryLog
from tests.support.written_log import WrittenLog, flip

QUIET = Subscription(topics=("quiet",))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WrittenLog]:
    with WrittenLog(tmp_path / "data") as written:
        yield written


def state(offset: int, subscription: Subscription | None = QUIET) -> dict[str, GroupState]:
    return {"g": GroupState("g", {0: offset}, subscription=subscription).summary}


def lag(counted: GroupLag, log: WrittenLog, states: dict[str, GroupState]) -> int:
    return counted.of(states, log.log.bounds())["g"][0].messages


def topics(counted: GroupLag, log: WrittenLog, states: dict[str, GroupState]) -> dict[str, int]:
    return dict(counted.of(states, log.log.bounds())["g"][0].topics)


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
    assert counted.of({"g": GroupState("g", {7: 1}).summary}, log.log.bounds()) == {
        "g": {7: (0, {})}
    }


def test_lag_is_known_by_topic(log: WrittenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.put_many(3, rows=8, topics=("busy", "busy", "other", "quiet"))
    every = Subscription(patterns=("+",))
    counted = GroupLag(log.log)
    for subscription, expected in (
        (every, {"busy": 12, "other": 6, "quiet": 6}),
        (None, {"busy": 12, "other": 6, "quiet": 6}),
        (QUIET, {"quiet": 6}),
        (Subscription(expression="."), {}),
    ):
        assert topics(counted, log, state(0, subscription)) == expected
    for offset in (0, 5, 11, 8, 23, 24):
        left = [("busy", "busy", "other", "quiet")[n % 4] for n in range(offset, 24)]
        assert topics(counted, log, state(offset, every)) == Counter(left)
        assert topics(counted, log, state(offset, None)) == Counter(left)
    assert topics(counted, log, state(0, every)) == {"busy": 12, "other": 6, "quiet": 6}
    log.put_many(1, rows=3, topics=("busy",))
    assert topics(counted, log, state(23, every)) == {"busy": 3, "quiet": 1}
    monkeypatch.setattr("penstock.server.group_lag.GROUP_LAG_TOPICS_MAX", 2)
    limited = GroupLag(log.log)
    assert topics(limited, log, state(0, every)) == {"busy": 15, "other": 6}
    assert lag(limited, log, state(0, every)) == 27
    monkeypatch.setattr("penstock.server.group_lag.GROUP_LAG_NAMES_CHARACTERS_MAX", 8)
    assert topics(GroupLag(log.log), log, state(0, every)) == {"busy": 15}
    monkeypatch.setattr("penstock.server.group_lag.GROUP_LAG_GROUPS_MAX", 0)
    assert topics(limited, log, state(0, every)) == {}
    assert lag(limited, log, state(0, every)) == 27


def test_messages_that_cannot_be_read_are_of_no_topic(tmp_path: Path) -> None:
    with WrittenLog(tmp_path / "data") as log:
        log.put_many(10)
    first = log.segments()[0]
    first.with_suffix(".index").unlink()
    flip(first, first.stat().st_size // 2)
    with WrittenLog(tmp_path / "data") as log:
        found = log.log.count_topics(PartitionRange(0, 0, 30), Selection())
        assert found.rows == 30
        assert 0 < sum(found.topics.values()) < 30


def test_messages_are_counted_once(log: WrittenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    class Counting:
        def count_topics(self, span: PartitionRange, selection: Selection) -> TopicCounts:
            asked.append(span[1:])
            return log.log.count_topics(span, selection)

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
    assert GroupLag(storage).of(state(0), storage.bounds()) == {"g": {0: (0, {})}}


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
