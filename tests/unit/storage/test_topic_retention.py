"""Rules of retention for some topics: expired messages are hidden from every reader of the log."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.ports import Fetched, PartitionRange, Record
from penstock.ports.selection import Selection
from penstock.storage.arrow.format.file_names import HORIZONS
from penstock.storage.arrow.format.topic_horizons import (
    BadHorizons,
    RuleHorizon,
    TopicHorizons,
    load_horizons,
    save_horizons,
)
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.follow import LogFollower
from penstock.storage.arrow.read.records import count_topics, record_batches
from penstock.storage.arrow.write import topic_retention
from penstock.storage.files import Files
from penstock.storage.options import Retention, TopicRetention
from tests.support.written_log import WrittenLog, message

HOUR = 3600.0
OLD_US = time.time_ns() // 1000 - 7_200_000_000
OF_A = TopicRetention(("a/#",), age_seconds_max=HOUR)


def written(data: Path, *rules: TopicRetention, **more: object) -> WrittenLog:
    return WrittenLog(data, retention=Retention(rules=rules), **more)  # type: ignore[arg-type]


def old(topic: str, value: bytes = b"old") -> Record:
    return message(topic, value, timestamp_us=OLD_US)


def young(topic: str, value: bytes = b"young") -> Record:
    return message(topic, value, timestamp_us=time.time_ns() // 1000)


def until(log: WrittenLog, condition: Callable[[], bool]) -> None:
    """Let the log work until a condition is true."""

    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0.01)

    log._loop.run_until_complete(asyncio.wait_for(wait(), 20))


def expire(log: WrittenLog, horizon: int, rule: int = 0) -> None:
    """Apply retention until the horizon of a rule is there: it searches a share of the time."""

    def is_there() -> bool:
        log.log._committer.later(log.log._retain)
        return log.log.status().retention_rules[rule].horizon == horizon

    until(log, is_there)


def scanned(log: WrittenLog, selection: Selection | None = None) -> list[tuple[int, str]]:
    bounds = log.log.bounds()[0]
    found = []
    span = PartitionRange(0, bounds.horizon, bounds.end)
    for batch in log.log.scan(span, selection or Selection(), columns=["topic", "offset"]):
        found += zip(
            batch.column("offset").to_pylist(), batch.column("topic").to_pylist(), strict=True
        )
    return found


def delivered(log: WrittenLog, offset: int = 0) -> list[tuple[int, str]]:
    """Return what replay would send from an offset on."""
    results: list[Fetched] = []
    topics = TopicTable()
    batch = Batch()
    found: list[tuple[int, str]] = []
    while offset < log.log.end:
        log.log.fetch(offset, results.append)  # type: ignore[arg-type]
        until(log, lambda: bool(results))
        fetched = results.pop()
        assert isinstance(fetched, Fetched)
        for stored in fetched.groups:
            stored.load(batch, topics)
            found += [
                (stored.base_offset + row, topics.name(batch.topic_id(row)))
                for row in range(stored.count)
                if not batch.hidden(row)
            ]
            batch.clear()
        offset = fetched.end
    return found


def test_every_reader_leaves_out_what_a_rule_has_expired(tmp_path: Path) -> None:
    with written(tmp_path, OF_A) as log:
        log.put(old("a/1"), old("b"), old("a/2"))
        log.put(young("a/1"), young("b"))
        expire(log, 3)
        kept = [(1, "b"), (3, "a/1"), (4, "b")]
        assert scanned(log) == kept
        assert delivered(log) == kept
        assert scanned(log, Selection(topics=frozenset({"a/1"}))) == [(3, "a/1")]
        span = PartitionRange(0, 0, 5)
        assert log.log.match(span, Selection()).rows == 3
        assert log.log.match(span, Selection(patterns=("a/#",)), rows_max=1) == (5, 1, 3)
        assert log.log.count_topics(span, Selection()).topics == {"a/1": 1, "b": 2}
        assert log.log.stored_topics() >= {"a/1", "b"}
        assert log.log.horizon == 0
        assert log.log.horizon_of("a/1") == log.log.horizon_of("a/+") == 3
        assert log.log.horizon_of("#") == log.log.horizon_of("b") == 0
        found: list[object] = []
        log.log.find_last(found.append)  # type: ignore[arg-type]
        until(log, lambda: bool(found))
        follower = LogFollower(tmp_path)
        assert follower.catalog.horizons.of("a/2") == 3
    view = LogView(tmp_path)
    rows = [
        (offset, topic)
        for batch in record_batches(view)
        for offset, topic in zip(
            batch.column("offset").to_pylist(), batch.column("topic").to_pylist(), strict=True
        )
    ]
    assert rows == kept, "commands read what the broker reads, after a restart too"
    assert {name: each.messages for name, each in count_topics(view).items()} == {"a/1": 1, "b": 2}


def test_what_has_expired_stays_so_without_the_rule(tmp_path: Path) -> None:
    with written(tmp_path, OF_A) as log:
        log.put(old("a/1"), old("b"))
        expire(log, 2)
    with written(tmp_path) as log:
        assert scanned(log) == [(1, "b")]


def test_the_first_rule_that_matches_applies(tmp_path: Path) -> None:
    kept = TopicRetention(("a/keep",), age_seconds_max=1000 * HOUR)
    with written(tmp_path, kept, OF_A) as log:
        log.put(old("a/keep"), old("a/1"))
        log.put(young("b"))
        expire(log, 2, rule=1)
        assert [name for _, name in scanned(log)] == ["a/keep", "b"]
        assert log.log.horizon_of("a/#") == 0, "the pattern has topics of another rule"


def test_only_the_last_message_of_each_topic_is_kept(tmp_path: Path) -> None:
    with written(tmp_path, TopicRetention(("state/#",), last_only=True)) as log:
        log.put(young("state/1"), young("state/2"), young("other"), young("state/1"))
        log.put(young("other"), young("state/2"), young("state/2"))
        expire(log, 7)
        kept = [(2, "other"), (3, "state/1"), (4, "other"), (6, "state/2")]
        assert scanned(log) == delivered(log) == kept
        log.put(young("state/1"))
        expire(log, 8)
        kept = [(2, "other"), (4, "other"), (6, "state/2"), (7, "state/1")]
        assert scanned(log) == delivered(log) == kept
    with written(tmp_path, TopicRetention(("state/#",), last_only=True)) as log:
        assert scanned(log) == kept
        assert LogView(tmp_path).catalog.horizons.of("state/1") == 7


def test_a_bound_of_bytes_is_for_the_topics_of_the_rule_together(tmp_path: Path) -> None:
    bound = 300_000
    with written(tmp_path, TopicRetention(("a/+",), bytes_max=bound)) as log:
        for number in range(20):
            log.put(young(f"a/{number % 2}", bytes(50_000)))
            log.put(young("b", bytes(50_000)))
        log.log._committer.later(log.log._retain)
        until(log, lambda: log.log.status().retention_rules[0].horizon > 0)
        kept = [topic for _, topic in scanned(log)]
    assert kept.count("b") == 20
    assert 4 <= len(kept) - 20 <= 5, "a row group is a little larger than its values"


def test_a_bound_of_bytes_that_is_too_small_is_told_and_keeps_the_newest(tmp_path: Path) -> None:
    with written(tmp_path, TopicRetention(("a",), bytes_max=1000)) as log:
        log.put(young("a", bytes(50_000)))
        log.put(young("a", bytes(50_000)))
        expire(log, 1)
        assert scanned(log) == [(1, "a")]
        assert log.log.status().retention_rules[0].excess_bytes > 40_000


def test_expired_messages_that_a_kept_one_holds_on_the_disk_are_measured_and_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_retention, "RETENTION_SEARCH_SHARE", 1.0)
    last = TopicRetention(("state/#",), last_only=True)
    with written(tmp_path, OF_A, last, segment_bytes_max=100_000) as log:

        def expired() -> tuple[int, ...]:
            log.log._committer.later(log.log._retain)
            return tuple(each.expired_bytes for each in log.log.status().retention_rules)

        log.put(old("state/quiet"))
        for _ in range(10):
            log.put(old("a/1", bytes(50_000)), old("state/busy", bytes(50_000)))
        log.put(young("a/1"), young("b"))
        until(log, lambda: 500_000 < expired()[0] < 550_000)
        until(log, lambda: 400_000 < expired()[1] < 500_000)
        assert log.log.status().segments_removed == 0
        output = capsys.readouterr().out
        assert output.count("expired messages take space") == 1
        assert "['state/quiet']" in output
        log.put(young("state/quiet"))
        until(log, lambda: sum(expired()) < 150_000)
        assert log.log.status().segments_removed > 8
        assert log.log.status().size < 250_000


def test_a_log_can_be_closed_whenever_retention_starts_a_search(tmp_path: Path) -> None:
    last = TopicRetention(("state/#",), last_only=True)
    for number in range(20):
        with written(tmp_path, OF_A, last) as log:
            log.put(young(f"state/{number}"))
            log.log._committer.later(log.log._retain)
    assert LogView(tmp_path).damage == []


def test_the_oldest_segments_go_when_all_their_messages_have_expired(tmp_path: Path) -> None:
    with written(tmp_path, OF_A, segment_bytes_max=1_000) as log:
        for _ in range(5):
            log.put(old("a/1"))
        log.put(old("b"))
        log.put(young("a/1"), young("a/2"))
        log.log._committer.later(log.log._retain)
        until(log, lambda: log.log.status().segments_removed == 5)
        assert log.log.horizon == 5
        assert scanned(log) == [(5, "b"), (6, "a/1"), (7, "a/2")]
    assert LogView(tmp_path).damage == []


def test_a_reader_that_was_behind_learns_how_much_has_expired(tmp_path: Path) -> None:
    with written(tmp_path, OF_A) as log:
        before = log.log.expiry
        log.put(old("a/1"), old("b"), old("a/2"), old("a/1"))
        log.put(young("a/1"))
        expire(log, 4)
        results: list[Fetched] = []
        log.log.fetch(0, results.append)  # type: ignore[arg-type]
        until(log, lambda: bool(results))
        stored = results[0].groups[0]
        everything: Callable[[str], bool] = lambda _: True  # noqa: E731
        assert stored.expired(before, everything, first=0, last=4) == 3
        assert stored.expired(before, "a/2".__eq__, first=0, last=4) == 1
        assert stored.expired(before, everything, first=1, last=3) == 1
        assert stored.expired(log.log.expiry, everything, first=0, last=4) == 0
        assert stored.expired(None, everything, first=0, last=4) == 3


def test_horizons_survive_their_file(tmp_path: Path) -> None:
    horizons = TopicHorizons(
        [
            RuleHorizon(("a/#", "b"), ("a/x",), 7),
            RuleHorizon(("s/+",), (), 9, {"s/1": 3, "s/ü": 8}),
        ]
    )
    save_horizons(Files(), tmp_path, horizons)
    found = load_horizons(Files(), tmp_path)
    assert found.rules == horizons.rules
    assert [found.of(name) for name in ("a/1", "a/x", "b", "s/1", "s/ü", "s/3", "c")] == [
        7, 0, 7, 3, 8, 0, 0,
    ]  # fmt: skip
    path = tmp_path / HORIZONS
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    with pytest.raises(BadHorizons):
        load_horizons(Files(), tmp_path)
