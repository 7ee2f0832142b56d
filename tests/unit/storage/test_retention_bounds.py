"""Bounds of retention hold for the newest messages too, while the log is written."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import OffsetBelowHorizon
from penstock.ports import PartitionRange
from penstock.ports.selection import Selection
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.options import Retention
from tests.support.written_log import WrittenLog, message

VALUE = bytes(50_000)


def written(data: Path, **bounds: float) -> WrittenLog:
    return WrittenLog(data, retention=Retention(**bounds))  # type: ignore[arg-type]


def until(log: WrittenLog, condition: Callable[[], bool]) -> None:
    """Let the log work until a condition is true."""

    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0.01)

    log._loop.run_until_complete(asyncio.wait_for(wait(), 10))


def now(topic: str = "a", value: bytes = b"1") -> object:
    return message(topic, value, timestamp_us=time.time_ns() // 1000)


def test_a_bound_of_bytes_holds_while_much_is_written(tmp_path: Path) -> None:
    bound = 1_000_000
    sizes = []
    with written(tmp_path, bytes_max=bound) as log:
        for _ in range(100):
            log.put(message("a", VALUE))
            sizes.append(sum(path.stat().st_size for path in log.segments()))
        until(log, lambda: log.log.status().excess_bytes == 0)
        status = log.log.status()
    assert max(sizes) < 1.25 * bound
    assert status.horizon > 0
    assert status.segments_removed > 0
    view = LogView(tmp_path)
    assert view.end == 100, "nothing is lost at the end"
    assert view.damage == []


def test_messages_of_the_active_segment_expire(tmp_path: Path) -> None:
    with written(tmp_path, age_seconds_max=0.2) as log:
        log.put(now())  # type: ignore[arg-type]
        assert log.log.horizon == 0
        until(log, lambda: log.log.horizon == 1)
        assert log.log.bounds()[0].horizon == log.log.bounds()[0].end == 1
        log.put(now())  # type: ignore[arg-type]
        assert log.log.bounds()[0] == (1, 2)
    assert LogView(tmp_path).end == 2


def test_a_young_message_stays_when_older_ones_of_its_segment_expire(tmp_path: Path) -> None:
    hour = 3600.0
    with written(tmp_path, age_seconds_max=hour) as log:
        log.put(message("a", b"old"))  # from a year ago
        log.put(now())  # type: ignore[arg-type]
        log.log._committer.later(log.log._retain)
        until(log, lambda: log.log.horizon == 1)
        assert log.log.end == 2
    assert LogView(tmp_path).end == 2


def test_one_message_that_has_expired_is_missed_by_those_who_select_it(tmp_path: Path) -> None:
    with written(tmp_path, age_seconds_max=3600.0) as log:
        log.put(message("a", b"old"))  # from a year ago; the segment stays
        log.put(now("b"))  # type: ignore[arg-type]
        log.log._committer.later(log.log._retain)
        until(log, lambda: log.log.horizon == 1)
        everything = PartitionRange(0, 0, 2)

        def offsets(topic: str) -> list[int]:
            batches = log.log.scan(everything, Selection(topics=frozenset({topic})))
            return [row["offset"] for batch in batches for row in batch.to_pylist()]

        with pytest.raises(OffsetBelowHorizon):
            offsets("a")
        assert offsets("b") == [1]


def test_a_bound_that_cannot_be_held_is_told(tmp_path: Path) -> None:
    with written(tmp_path, bytes_max=10_000) as log:
        for _ in range(3):
            log.put(message("a", VALUE * 2))
        until(log, lambda: log.log.status().excess_bytes > 0)
