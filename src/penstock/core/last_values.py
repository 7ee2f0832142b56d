"""The last message of each topic, by its offset: for subscriptions that end in `@last`.

The offset of a topic's last message since the start is among the topic's counters. Those of earlier
runs are found in the log when the first such subscription asks for them, in a thread of the log.
"""

import heapq
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence

import structlog

from penstock._kernels.topics import TopicTable
from penstock.core.counters import TopicCounts
from penstock.core.routing import Router
from penstock.core.slices import Slices
from penstock.core.timers import Timers
from penstock.errors import LogError, NoLastValues
from penstock.limits import (
    LAST_COMPARED_TOPICS,
    LAST_RUN_TOPICS,
    LAST_TOPICS_MAX,
    TIER_RETRY_SECONDS,
)
from penstock.ports import LastFound, LogReader, TopicFilter, new_topic_filter

__all__ = ["LastRows", "LastValues", "Sent"]

log = structlog.get_logger("penstock.catch_up")

Sent = Callable[[str, int], bool]
"""Tells whether another subscription of the session gets the message of a topic at an offset."""


class LastRows:
    """The offsets of one subscription that are not sent yet, in order."""

    __slots__ = (
        "_offsets",
        "cancelled",
        "collecting",
        "first",
        "head",
        "head_next",
        "left",
        "memory_bytes",
        "next",
        "number",
        "on_cancel",
        "pattern",
        "ready",
        "topics",
    )

    def __init__(self, pattern: str, number: int) -> None:
        self.pattern = pattern
        self.number = number
        """Numbers ascend with the subscriptions of a session."""
        self.head = 0
        """The number of the subscription whose messages were sent when it was added, 0 if none."""
        self.head_next: int | None = None
        """The next offset of the subscription `head` then; 0 if it was not known."""
        self.topics: TopicFilter | None = new_topic_filter([pattern])
        self.collecting = False
        self.cancelled = False
        """Whether the subscription has ended."""
        self.on_cancel: Callable[[], object] = _do_nothing
        self.ready = False
        """Whether the offsets are known."""
        self.memory_bytes = 0
        """Memory of the offsets."""
        self.first: int | None = None
        """The first offset; None if there is none, or they are not known yet."""
        self.left = 0
        self.next: int | None = None
        """The next offset to send; None if there is none, or they are not known yet."""
        self._offsets: Iterator[int] = iter(())

    def fill(self, runs: Sequence["array[int]"]) -> None:
        """Take the offsets, as sorted runs."""
        self.ready = True
        self.left = sum(map(len, runs))
        self.memory_bytes = self.left * array("q").itemsize
        self._offsets = heapq.merge(*runs)
        self.next = self.first = next(self._offsets, None)

    def release(self) -> None:
        """Free the offsets and the filter, after all messages are sent."""
        self._offsets = iter(())
        self.topics = None

    def cancel(self) -> None:
        """Go to the end: the subscription has ended."""
        self.release()
        self.cancelled = True
        self.on_cancel()
        self.left = 0
        self.next = None

    def is_before(self, offset: int) -> bool:
        """Return whether there is a next offset before `offset`."""
        return self.next is not None and self.next < offset

    def take(self) -> None:
        """Go on to the next offset."""
        self.left -= 1
        self.next = next(self._offsets, None)

    def skip(self, offset: int) -> int:
        """Go on to the first offset that is not before `offset`; return how many were skipped."""
        left = self.left
        while self.next is not None and self.next < offset:
            self.take()
        return left - self.left


class LastValues:
    """Finds the last messages of topics. One thread owns it."""

    def __init__(
        self,
        reader: LogReader,
        *,
        counts: TopicCounts,
        topics: TopicTable,
        router: Router,
        slices: Slices,
        timers: Timers,
        topics_max: int = LAST_TOPICS_MAX,
    ) -> None:
        self._reader = reader
        self._counts = counts
        self._topics = topics
        self._router = router
        self._slices = slices
        self._timers = timers
        self._topics_max = topics_max
        self._stored: LastFound | None = None  # those that the log had when it was read
        self._reading = False
        self._lacks = True  # whether `_stored` may lack the last message of a topic
        self._waiting: dict[LastRows, Callable[[], None]] = {}
        self._failed: list[tuple[int, int]] = []  # ranges of offsets whose commits failed

    def check(self) -> None:
        """Raise NoLastValues if the log cannot find the last messages."""
        if not self._reader.finds_last:
            raise NoLastValues

    def collect(
        self, rows: LastRows, *, below: int, sent: Sent | None, then: Callable[[int], None]
    ) -> None:
        """Fill `rows` with the last offset of each topic below `below`; call `then` afterwards.

        A topic whose last message is at `below` or later is left out: that message is delivered
        anyway. At the limit of topics the messages with the lowest offsets are left out; `then`
        gets their number. Nothing is called if `rows` is cancelled meanwhile.
        """

        def start() -> None:
            self._slices.add(self._collect(rows, below, sent, then))

        rows.collecting = True
        if not self._lacks and not self._reading:
            start()
            return
        rows.on_cancel = lambda: self._waiting.pop(rows, None)
        self._waiting[rows] = start
        if not self._reading:
            self._read()

    def failed(self, *, start: int, end: int) -> None:
        """Note that the commits of some offsets have failed: other messages are the last ones.

        They may have been written since the log was read.
        """
        if start < end:
            if self._failed and self._failed[-1][1] == start:
                start, _ = self._failed.pop()
            self._failed.append((start, end))
            self._lacks = True

    def is_failed(self, offset: int) -> bool:
        """Return whether the commit of an offset has failed."""
        return any(start <= offset < end for start, end in self._failed)

    def _read(self) -> None:
        """Find the last messages that were written since the log was read; then serve all."""
        self._reading, self._lacks = True, False

        def found(result: LastFound | LogError) -> None:
            if isinstance(result, LogError):
                log.warning("last messages not found", error=str(result))
                self._timers.after(TIER_RETRY_SECONDS, self._read)
                return
            self._stored = result
            if self._lacks:  # commits have failed meanwhile
                self._read()
                return
            self._reading = False
            waiting, self._waiting = self._waiting, {}
            for start in waiting.values():
                start()

        self._reader.find_last(found, self._stored)

    def _of(self, identifier: int) -> int:
        """Return the offset of the last message of a topic, -1 if it has none."""
        offset = self._counts.last_offset(identifier)
        if offset >= 0 and not (self._failed and self.is_failed(offset)):
            return offset
        stored = () if self._stored is None else self._stored.offsets
        return stored[identifier] if identifier < len(stored) else -1

    def _collect(
        self, rows: LastRows, below: int, sent: Sent | None, then: Callable[[int], None]
    ) -> Iterator[None]:
        runs: list[array[int]] = []
        run: array[int] = array("q")
        dropped = 0
        horizon = self._reader.horizon
        per_step = LAST_RUN_TOPICS if sent is None else LAST_COMPARED_TOPICS
        for steps, identifier in enumerate(self._router.topics_of(rows.pattern), 1):
            if not steps % per_step:
                yield
            if rows.cancelled:
                return
            if identifier is None or not self._topics.is_live(identifier):
                continue
            offset = self._of(identifier)
            if not horizon <= offset < below:
                continue
            if sent is not None and sent(self._topics.name(identifier), offset):
                continue
            run.append(offset)
            if len(run) == LAST_RUN_TOPICS:
                runs.append(_sorted(run))
                run = array("q")
                if sum(map(len, runs)) >= 2 * self._topics_max:
                    runs, count = _newest(runs, self._topics_max)
                    dropped += count
        runs.append(_sorted(run))
        runs, count = _newest(runs, self._topics_max)
        rows.fill(runs)
        then(dropped + count)


def _do_nothing() -> None:
    pass


def _sorted(values: Iterable[int]) -> "array[int]":
    return array("q", sorted(values))


def _newest(runs: list["array[int]"], count_max: int) -> tuple[list["array[int]"], int]:
    """Return the highest `count_max` offsets, and the number of the others."""
    count = sum(map(len, runs))
    if count <= count_max:
        return runs, 0
    return [array("q", list(heapq.merge(*runs))[-count_max:])], count - count_max
