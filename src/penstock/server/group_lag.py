"""Lag of consumer groups: the messages of their topics that they have not processed yet.

Counts are kept and continued from where they ended, so each message is counted about once.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from penstock.errors import PenstockError
from penstock.limits import GROUP_LAG_OFFSETS_MAX, GROUP_LAG_SECONDS_MAX
from penstock.ports import Bounds, GroupState, PartitionRange, Storage, Subscription

__all__ = ["GroupLag"]


class _Count(NamedTuple):
    """Messages of a subscription from `start` up to `end`: `rows`."""

    subscription: Subscription
    start: int
    end: int
    rows: int


class GroupLag:
    """Counts the lag of groups. Any thread may call; all methods may block."""

    def __init__(self, storage: Storage, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._storage = storage
        self._clock = clock
        self._counts: dict[tuple[str, int], _Count] = {}
        self._lock = threading.Lock()

    def of(
        self, states: Mapping[str, GroupState], bounds: Mapping[int, Bounds]
    ) -> dict[str, dict[int, int]]:
        """Return the lag of each group, by partition.

        The lag of a group that has not reported its topics is a number of offsets. So are
        messages that could not be counted in GROUP_LAG_SECONDS_MAX; a later call counts them.
        """
        with self._lock:
            until = self._clock() + GROUP_LAG_SECONDS_MAX
            known = {(name, number) for name, state in states.items() for number in state.offsets}
            self._counts = {key: each for key, each in self._counts.items() if key in known}
            return {
                name: {
                    number: self._lag(state, number, offset, bounds.get(number), until)
                    for number, offset in state.offsets.items()
                }
                for name, state in states.items()
            }

    def _lag(
        self, state: GroupState, partition: int, offset: int, bounds: Bounds | None, until: float
    ) -> int:
        if bounds is None:
            return 0
        if state.subscription is None:
            return max(bounds.end - offset, 0)
        start = max(offset, bounds.horizon)
        if start >= bounds.end:
            return 0
        key = state.group, partition
        count = self._continued(self._counts.get(key), state.subscription, partition, start)
        try:
            while count.end < bounds.end and self._clock() < until:
                end = min(count.end + GROUP_LAG_OFFSETS_MAX, bounds.end)
                rows = self._rows(count.subscription, partition, count.end, end)
                count = count._replace(end=end, rows=count.rows + rows)
        except (
            PenstockError,
            OSError,
            ValueError,
        ):  # retention runs meanwhile: the next call counts
            pass
        self._counts[key] = count
        return count.rows + bounds.end - count.end

    def _continued(
        self, count: _Count | None, subscription: Subscription, partition: int, start: int
    ) -> _Count:
        """Return a count from `start` on; without the messages that were processed since."""
        if (
            count is None
            or count.subscription != subscription
            or not count.start <= start <= count.end
        ):
            return _Count(subscription, start, start, 0)
        if start == count.start:
            return count
        try:
            processed = self._rows(subscription, partition, count.start, start)
        except (PenstockError, OSError, ValueError):
            return _Count(subscription, start, start, 0)
        return count._replace(start=start, rows=max(count.rows - processed, 0))

    def _rows(self, subscription: Subscription, partition: int, start: int, end: int) -> int:
        # Only a storage that keeps history has Arrow loaded.
        from penstock.ports.selection import Selection  # noqa: PLC0415

        selection = Selection(
            topics=None if subscription.topics is None else frozenset(subscription.topics),
            patterns=None if subscription.patterns is None else tuple(subscription.patterns),
            expression=subscription.expression,
        )
        return self._storage.match(PartitionRange(partition, start, end), selection).rows
