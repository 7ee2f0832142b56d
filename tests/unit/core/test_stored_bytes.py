"""Bytes of a principal in the log: counted by ranges of offsets, given back by the horizon."""

import random

from penstock.core.stored_bytes import StoredBytes, StoredSpan
from penstock.limits import STORED_SPAN_BYTES, STORED_SPANS_MAX


class Log:
    """The bounds of a log, and the bytes that one principal has in it."""

    def __init__(self) -> None:
        self.horizon = 0
        self.sizes: list[int] = []
        self.counted = StoredBytes(lambda: self.horizon, lambda: len(self.sizes))

    def append(self, *sizes: int) -> None:
        self.counted.add(len(sizes), sum(sizes))
        self.sizes += sizes

    @property
    def exact(self) -> int:
        return sum(self.sizes[self.horizon :])


def test_bytes_are_given_back_when_the_horizon_has_passed_them() -> None:
    log = Log()
    for _ in range(4):
        log.append(STORED_SPAN_BYTES, 0)
    assert log.counted.size == 4 * STORED_SPAN_BYTES
    log.horizon = 3  # a range is whole
    assert log.counted.size == 3 * STORED_SPAN_BYTES
    log.horizon = 8
    assert log.counted.size == 0
    assert log.counted.spans() == []
    log.append(7)
    assert log.counted.size == 7


def test_few_ranges_count_many_messages_nearly_exactly() -> None:
    randomness = random.Random(3)
    log, peak = Log(), 0
    for _ in range(5_000):
        log.append(*(randomness.randrange(20_000) for _ in range(randomness.randrange(1, 4))))
        if randomness.random() < 0.01:
            log.horizon = randomness.randrange(log.horizon, len(log.sizes) + 1)
        peak = max(peak, log.counted.size)
        allowed = STORED_SPAN_BYTES + 60_000 + 4 * (peak // STORED_SPANS_MAX)
        assert 0 <= log.counted.size - log.exact <= allowed
        assert len(log.counted.spans()) <= STORED_SPANS_MAX


def test_a_restart_goes_on_and_forgets_what_a_crash_has_taken() -> None:
    log = Log()
    for _ in range(3):
        log.append(STORED_SPAN_BYTES)
    again = Log()
    again.sizes = [STORED_SPAN_BYTES, STORED_SPAN_BYTES]
    again.counted.restore(log.counted.spans())
    assert again.counted.size == 3 * STORED_SPAN_BYTES
    again.horizon = 2
    assert again.counted.size == 0
    assert again.counted.spans() == []
    again.counted.restore([StoredSpan(1, 5)])
    assert again.counted.size == 0
