"""Delay of small batches of a stream: `minOffsetsPerTrigger` and `maxTriggerDelay`."""

import time
from collections.abc import Callable

from penstock.spark.stream_offsets import JsonOffsets

__all__ = ["TriggerDelay"]


class TriggerDelay:
    """Tells whether a batch waits for more rows: for `rows_min`, at most `seconds_max`.

    The first batch of a query is not delayed, nor one without rows.
    """

    def __init__(
        self,
        rows_min: int,
        seconds_max: float,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rows_min = rows_min
        self._seconds_max = seconds_max
        self._clock = clock
        self._start: JsonOffsets = {}
        self._time: float | None = None

    def is_delayed(self, start: JsonOffsets, count: Callable[[], int]) -> bool:
        """Return whether the batch from `start` waits; `count` returns the number of its rows.

        A batch that was not delayed before is not delayed when it is asked for again.
        """
        now = self._clock()
        is_due = self._time is None or now - self._time >= self._seconds_max
        if not is_due and start != self._start and 0 < count() < self._rows_min:
            return True
        if start != self._start:
            self._start, self._time = start, now
        return False
