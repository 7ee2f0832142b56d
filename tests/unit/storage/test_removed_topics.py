"""The record of removed topics: exact as far as it is known, bounded, and never ahead of log.json."""

from pathlib import Path
from typing import Any

import pytest

from penstock.limits import INDEX_TOPICS_MAX, REMOVED_ROW_GROUPS_READ_MAX
from penstock.ports.selection import Selection
from penstock.storage.arrow.format.file_names import removed_path
from penstock.storage.arrow.format.log_state import LogState, load_state, save_state
from penstock.storage.arrow.format.removed_topics import (
    RemovedTopics,
    load_removed,
    save_removed,
)
from penstock.storage.arrow.read.follow import LogFollower
from penstock.storage.arrow.read.pieces import read_pieces
from penstock.storage.arrow.write.removal_record import RemovalRecord
from penstock.storage.files import Files
from penstock.storage.options import Retention
from tests.support.written_log import WrittenLog, flip, message

RECORD = RemovedTopics(100, 20, {"a": 40, "b/1": 70, "": 90})


def of(*topics: str) -> Selection:
    return Selection(topics=frozenset(topics))


@pytest.mark.parametrize(
    ("selection", "start", "end", "until"),
    [
        (of("a"), 30, 200, 40),
        (of("a"), 39, 200, 40),
        (of("a"), 40, 200, 40),
        (of("c"), 30, 200, 30),
        (of("a", "b/1"), 30, 200, 70),
        (of("a", "b/1"), 50, 200, 70),
        (of("b/1"), 30, 50, 50),  # it may have been there
        (of("c"), 10, 200, 20),  # any topic
        (of("c"), 10, 15, 15),
        (of("a"), 10, 200, 40),
        (Selection(patterns=("b/+",)), 30, 200, 70),
        (Selection(patterns=("c/+",)), 30, 200, 30),
        (Selection(expression="a|c"), 30, 200, 40),
        (Selection(), 30, 200, 100),
        (Selection(patterns=("#",)), 30, 200, 100),
        (Selection(), 100, 200, 100),
        (of("a"), 150, 200, 150),
    ],
)
def test_what_was_removed_of_a_range(
    selection: Selection, start: int, end: int, until: int
) -> None:
    assert RECORD.until(selection, start=start, end=end) == until


def test_the_record_is_bounded_by_topics_and_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    assert RECORD.bounded() == RECORD
    monkeypatch.setattr("penstock.storage.arrow.format.removed_topics.REMOVED_TOPICS_MAX", 2)
    found = RECORD.bounded()
    assert found == RemovedTopics(100, 40, {"b/1": 70, "": 90})
    assert found.until(of("c"), start=30, end=200) == 40, "it does not claim what it forgot"
    same = RemovedTopics(100, 0, {"a": 40, "b": 40, "c": 40})
    assert same.bounded() == RemovedTopics(100, 40, {})
    monkeypatch.setattr("penstock.storage.arrow.format.removed_topics.REMOVED_TOPICS_MAX", 9)
    monkeypatch.setattr(
        "penstock.storage.arrow.format.removed_topics.REMOVED_TOPICS_CHARACTERS_MAX", 3
    )
    assert RECORD.bounded() == RemovedTopics(100, 40, {"b/1": 70, "": 90})


def test_a_record_that_was_changed_is_not_used(tmp_path: Path) -> None:
    save_removed(Files(), tmp_path, RECORD, before=0)
    assert load_removed(Files(), tmp_path, 100) == RECORD
    assert load_removed(Files(), tmp_path, 99) is None
    path = removed_path(tmp_path, 100)
    good = path.read_bytes()
    for position in range(len(good) - 1):
        flip(path, position)
        assert load_removed(Files(), tmp_path, 100) is None
        path.write_bytes(good)
    path.rename(removed_path(tmp_path, 101))
    assert load_removed(Files(), tmp_path, 101) is None


def test_the_record_counts_when_the_state_has_its_horizon(tmp_path: Path) -> None:
    """A broker may be killed between the two; a retention that fails is done again."""
    with WrittenLog(tmp_path, segment_bytes_max=1) as log:
        log.put_many(4, topics=("a",))
        log.put_many(2, topics=("b",))
        files, folder = Files(), log.folder
        state = load_state(files, folder)
        assert state is not None

        def retain(gone: list[int], horizon: int, *, killed: bool = False) -> None:
            record = RemovalRecord(files, folder, horizon=old)
            record.save(gone, horizon)
            if not killed:
                save_state(files, folder, LogState(state.log_id, 0, horizon=horizon))

        def known() -> list[int]:
            return sorted(int(path.name[:20]) for path in folder.glob("*.removed.json"))

        old = 0
        retain([0], 3)
        old = 3
        retain([3, 6], 9, killed=True)
        assert known() == [3, 9]
        follower = LogFollower(tmp_path)
        assert follower.horizon == 3
        assert follower.removed_until(of("a"), start=0, end=18) == 3
        retain([3], 6)
        assert known() == [3, 6], "a record that was never used goes"
        assert load_removed(files, folder, 6) == RemovedTopics(6, 0, {"a": 6})
        follower = LogFollower(tmp_path)
        old = 6
        retain([6, 9, 12], 15)
        old = 15
        retain([], 15)
        assert known() == [15]
        assert follower.horizon == 6
        assert follower.removed_until(of("b"), start=0, end=18) == 15, "that of the new horizon"
        assert follower.removed_until(of("c"), start=0, end=18) == 0


def test_row_groups_with_more_topics_than_the_index_lists_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [f"t/{number}" for number in range(INDEX_TOPICS_MAX + 1)]
    with WrittenLog(tmp_path, segment_bytes_max=1) as log:
        log.put(*(message(topic, b"") for topic in many))
        log.put_many(2, topics=("b",))
        horizon = len(many)
        record = RemovalRecord(Files(), log.folder, horizon=0)
        found = record.save([0], horizon)
        assert found == RemovedTopics(horizon, 0, dict.fromkeys(many, horizon))
        assert REMOVED_ROW_GROUPS_READ_MAX > 1
        monkeypatch.setattr(
            "penstock.storage.arrow.write.removal_record.REMOVED_ROW_GROUPS_READ_MAX", 0
        )
        assert record.save([0], horizon) == RemovedTopics(horizon, horizon)


def test_a_full_record_ends_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 100,000 topics, commits waited for seconds while each row group was read for its topics."""
    many = [f"t/{number}" for number in range(2 * (INDEX_TOPICS_MAX + 1))]
    half = len(many) // 2
    reads: list[int] = []

    def counting(*arguments: Any, **named: Any) -> Any:
        reads.append(named["first"])
        return read_pieces(*arguments, **named)

    monkeypatch.setattr("penstock.storage.arrow.write.removal_record.read_pieces", counting)
    with WrittenLog(tmp_path, segment_bytes_max=1 << 30) as log:
        for first in (0, half) * 5:
            log.put(*(message(topic, b"") for topic in many[first : first + half]))
    end = 10 * half
    record = RemovalRecord(Files(), log.folder, horizon=0)
    wanted = {name: end - half * (number < half) for number, name in enumerate(many)}
    assert record.save([0], end) == RemovedTopics(end, 0, wanted)
    assert len(reads) == 10
    reads.clear()
    monkeypatch.setattr("penstock.storage.arrow.write.removal_record.REMOVED_TOPICS_MAX", half)
    assert record.save([0], end) == RemovedTopics(end, end - half, dict.fromkeys(many[half:], end))
    assert reads == [end - half, end - 2 * half]


def test_a_segment_whose_topics_are_not_known_may_have_had_any(tmp_path: Path) -> None:
    with WrittenLog(tmp_path, segment_bytes_max=1) as log:
        log.put_many(5, topics=("a",))
    first, second, *_ = log.segments()
    flip(second, second.stat().st_size // 2)
    second.with_suffix(".index").unlink()
    first.with_suffix(".index").write_bytes(b"no index")
    record = RemovalRecord(Files(), log.folder, horizon=0)
    assert record.save([0], 3) == RemovedTopics(3, 3)
    kept = Retention(bytes_max=1)
    with WrittenLog(tmp_path, segment_bytes_max=1, retention=kept) as log:  # finds the damage
        log.put_many(2, topics=("b",))
    found = load_removed(Files(), log.folder, 15)
    assert found == RemovedTopics(15, 6, {"a": 15})
