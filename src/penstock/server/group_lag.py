"""Lag of consumer groups: the messages of their topics that they have not processed yet.

Counts are kept and continued from where they ended, so each message is counted about once.
"""

import heapq
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from penstock.errors import PenstockError
from penstock.limits import (
    GROUP_LAG_GROUPS_MAX,
    GROUP_LAG_NAMES_CHARACTERS_MAX,
    GROUP_LAG_OFFSETS_MAX,
    GROUP_LAG_SECONDS_MAX,
    GROUP_LAG_TOPICS_MAX,
)
from penstock.ports import (
    Bounds,
    GroupSummary,
    PartitionRange,
    Storage,
    Subscription,
    TopicCounts,
)

__all__ = ["GroupLag", "Lag"]


class Lag(NamedTuple):
    """The number of messages that a group has not processed, and the numbers by topic.

    Messages that are not counted yet, that cannot be read, or of more topics than may be kept are
    in `messages` only. The empty name stands for messages without a topic.
    """

    messages: int
    topics: Mapping[str, int]


class _Count(NamedTuple):
    """Messages of a subscription from `start` up to `end`: `rows`, and by topic."""

    subscription: Subscription | None
    start: int
    end: int
    rows: int = 0
    topics: Mapping[str, int] = MappingProxyType({})

    def plus(self, end: int, found: TopicCounts) -> "_Count":
        """Return the count up to `end`, which has the messages that were found there too."""
        topics = Counter(self.topics)
        topics.update(found.topics)
        return self._replace(end=end, rows=self.rows + found.rows, topics=_most(topics))

    def minus(self, start: int, found: TopicCounts) -> "_Count":
        """Return the count from `start`, without the messages that were found before."""
        topics = {
            name: count - found.topics.get(name, 0)
            for name, count in self.topics.items()
            if count > found.topics.get(name, 0)
        }
        return self._replace(start=start, rows=max(self.rows - found.rows, 0), topics=topics)


def _most(topics: Counter[str]) -> Mapping[str, int]:
    """Return the topics with the most messages, as many as may be kept."""
    size = sum(map(len, topics))
    if len(topics) <= GROUP_LAG_TOPICS_MAX and size <= GROUP_LAG_NAMES_CHARACTERS_MAX:
        return topics
    most = topics.most_common(GROUP_LAG_TOPICS_MAX)
    sizes = itertools.accumulate(len(name) for name, _ in most)
    return {
        name: count
        for (name, count), size in zip(most, sizes, strict=True)
        if size <= GROUP_LAG_NAMES_CHARACTERS_MAX
    }


class GroupLag:
    """Counts the lag of groups. Any thread may call; all methods may block."""

    def __init__(self, storage: Storage, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._storage = storage
        self._clock = clock
        self._counts: dict[tuple[str, int], _Count] = {}
        self._lock = threading.Lock()

    def of(
        self, states: Mapping[str, GroupSummary], bounds: Mapping[int, Bounds]
    ) -> dict[str, dict[int, Lag]]:
        """Return the lag of each group, by partition.

        The lag of a group that has not reported its topics is a number of offsets. So are
        messages that could not be counted in GROUP_LAG_SECONDS_MAX; a later call counts them.
        """
        with self._lock:
            until = self._clock() + GROUP_LAG_SECONDS_MAX
            known = {(name, number) for name, state in states.items() for number in state.offsets}
            self._counts = {key: each for key, each in self._counts.items() if key in known}
            detailed = set(
                heapq.nlargest(
                    GROUP_LAG_GROUPS_MAX, states, key=lambda name: states[name].updated_us
                )
            )
            # Those with a subscription first: the lag of others needs no counting.
            ordered = sorted(states, key=lambda name: states[name].subscription is None)
            found = {
                name: {
                    number: self._lag(
                        states[name], number, bounds.get(number), until, by_topic=name in detailed
                    )
                    for number in states[name].offsets
                }
                for name in ordered
            }
            return {name: found[name] for name in states}

    def _lag(
        self,
        state: GroupSummary,
        partition: int,
        bounds: Bounds | None,
        until: float,
        *,
        by_topic: bool,
    ) -> Lag:
        if bounds is None:
            return Lag(0, {})
        offset = state.offsets[partition]
        start = max(offset, bounds.horizon)
        key = state.group, partition
        if start >= bounds.end or (state.subscription is None and not by_topic):
            self._counts.pop(key, None)
            return Lag(max(bounds.end - offset, 0) if state.subscription is None else 0, {})
        count = self._continued(self._counts.get(key), state.subscription, partition, start)
        try:
            while count.end < bounds.end and self._clock() < until:
                end = min(count.end + GROUP_LAG_OFFSETS_MAX, bounds.end)
                count = count.plus(end, self._found(count.subscription, partition, count.end, end))
        except (
            PenstockError,
            OSError,
            ValueError,
        ):  # retention runs meanwhile: the next call counts
            pass
        if not by_topic:
            count = count._replace(topics={})
        self._counts[key] = count
        if state.subscription is None:
            return Lag(max(bounds.end - offset, 0), count.topics)
        return Lag(count.rows + bounds.end - count.end, count.topics)

    def _continued(
        self, count: _Count | None, subscription: Subscription | None, partition: int, start: int
    ) -> _Count:
        """Return a count from `start` on; without the messages that were processed since."""
        if (
            count is None
            or count.subscription != subscription
            or not count.start <= start <= count.end
        ):
            return _Count(subscription, start, start)
        if start == count.start:
            return count
        try:
            processed = self._found(subscription, partition, count.start, start)
        except (PenstockError, OSError, ValueError):
            return _Count(subscription, start, start)
        return count.minus(start, processed)

    def _found(
        self, subscription: Subscription | None, partition: int, start: int, end: int
    ) -> TopicCounts:
        # Only a storage that keeps history has Arrow loaded.
        from penstock.ports.selection import Selection  # noqa: PLC0415

        selection = Selection()
        if subscription is not None:
            selection = Selection(
                topics=None if subscription.topics is None else frozenset(subscription.topics),
                patterns=None if subscription.patterns is None else tuple(subscription.patterns),
                expression=subscription.expression,
            )
        return self._storage.count_topics(PartitionRange(partition, start, end), selection)
