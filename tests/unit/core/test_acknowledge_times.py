"""Times from arrival to acknowledgment: per batch, for messages whose commit succeeded."""

from collections import Counter

import pytest

from penstock.core.acknowledge_times import SHARED_US, AcknowledgeTimes
from penstock.model import Durability
from penstock.ports import Receipt
from penstock.protocols import Protocol
from penstock.protocols.herald import HERALD
from penstock.protocols.lamamq import LAMAMQ
from tests.support.kept_log import KeptLog

START_US = 1_700_000_000_000_000
FSYNC, OS, MEMORY = Durability.FSYNC, Durability.OS, Durability.MEMORY


def shown(times: AcknowledgeTimes) -> dict[float, int]:
    """The buckets that have messages, by their upper bound."""
    found = times.histogram
    bounds = (*found.bounds_seconds, float("inf"))
    return {bound: count for bound, count in zip(bounds, found.buckets, strict=True) if count}


def test_messages_are_counted_when_they_have_their_durability() -> None:
    log, times = KeptLog(), AcknowledgeTimes(Counter())
    times.appended(Receipt(0, 1, FSYNC), START_US, 100, HERALD)
    times.appended(Receipt(100, 1, OS), START_US, 10, HERALD)
    times.appended(Receipt(110, 1, MEMORY), START_US, 1, HERALD)
    times.settled(log, START_US + 1)
    assert shown(times) == {0.0005: 1}
    log.written_commit = 1
    times.settled(log, START_US + 4_000)
    assert shown(times) == {0.0005: 1, 0.005: 10}
    log.durable_commit = 1
    times.settled(log, START_US + 20_000)
    assert shown(times) == {0.0005: 1, 0.005: 10, 0.025: 100}
    assert times.histogram.seconds == pytest.approx(10 * 0.004 + 100 * 0.02)


def test_messages_of_a_failed_commit_count_as_refused() -> None:
    refused: Counter[Protocol] = Counter()
    log, times = KeptLog(), AcknowledgeTimes(refused)
    times.appended(Receipt(0, 1, FSYNC), START_US, 2, LAMAMQ)
    times.appended(Receipt(0, 1, FSYNC), START_US, 9, None)
    times.appended(Receipt(0, 1, OS), START_US, 3, LAMAMQ)
    times.appended(Receipt(0, 1, MEMORY), START_US, 1, LAMAMQ)
    times.appended(Receipt(0, 1, FSYNC), START_US, 5, HERALD)
    times.appended(Receipt(5, 2, FSYNC), START_US, 7, HERALD)
    log.failed_commit = 1
    times.settled(log, START_US + 20_000_000)
    assert shown(times) == {0.0005: 1}, "what needs no commit"
    assert refused == {HERALD: 5, LAMAMQ: 5}
    log.durable_commit = 2
    times.settled(log, START_US + 20_000_000)
    assert shown(times) == {0.0005: 1, float("inf"): 7}
    assert refused == {HERALD: 5, LAMAMQ: 5}


def test_batches_of_a_commit_share_an_entry_only_if_they_arrive_together() -> None:
    log, times = KeptLog(), AcknowledgeTimes(Counter())
    for late in (0, SHARED_US, 1_000_000):
        times.appended(Receipt(0, 1, FSYNC), START_US + late, 1, HERALD)
    times.appended(Receipt(0, 2, FSYNC), START_US + 1_000_000, 1, HERALD)
    log.durable_commit = 1
    times.settled(log, START_US + 1_001_000)
    assert shown(times) == {0.001: 1, 2.5: 2}
    log.durable_commit = 2
    times.settled(log, START_US)  # the clock was set back
    assert shown(times) == {0.0005: 1, 0.001: 1, 2.5: 2}
