"""Commits for the writer thread of a log and their outcomes, for the logs on disk and on Kafka.

While one commit is written, messages for the next one are collected: the slower the storage, the
more messages share one commit. The event loop never waits.
"""

import queue
import threading
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple
from typing import Protocol as Port

import structlog

from penstock._kernels.block import Block
from penstock.model import Durability
from penstock.ports import SyncTimes
from penstock.storage.arrow.write.prepared import PreparedRowGroup

__all__ = ["Commit", "Outcome", "SyncHistogram", "WriterThread", "Writes"]

log = structlog.get_logger("penstock.log")

_NO_NODES: Final[Mapping[int, Collection[int]]] = MappingProxyType({})
_SYNC_BOUNDS_SECONDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
)  # fmt: skip


class Commit(NamedTuple):
    """Blocks that are written together: all are safe, or none. `offsets` are their first ones.

    `nodes` are those that private messages are for, by the position of their block.
    """

    number: int
    blocks: list[Block | PreparedRowGroup]
    offsets: list[int]
    durability: Durability
    nodes: Mapping[int, Collection[int]] = _NO_NODES


class Outcome(NamedTuple):
    """The outcome of a commit. `end` is the offset up to which the log can be read."""

    commit: Commit
    end: int
    durable: bool
    error: OSError | None


class Writes(Port):
    """Writes commits in a thread of its own, and reports the outcome of each, in their order."""

    @property
    def problem(self) -> OSError | None:
        """Why nothing is written at the moment."""

    def submit(self, commit: Commit) -> None:
        """Write blocks; they belong to the thread until the outcome is reported."""

    def later(self, work: Callable[[], None]) -> None:
        """Run `work` in the thread, after all commits so far."""

    def revive(self, next_offset: int) -> bool:
        """Try to write again after a failure, in the thread; tell whether the log works again."""


class WriterThread:
    """A thread that does one piece of work after the other."""

    def __init__(self, name: str) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def later(self, work: Callable[[], None]) -> None:
        """Run `work` in the thread, after all work so far."""
        self._work.put(work)

    def finish(self) -> None:
        """Do all work so far, and end the thread, if it was started."""
        if self._thread.is_alive():
            self._work.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except Exception:  # the thread must continue: clients wait for it
                log.exception("log writer failed")


class SyncHistogram:
    """Durations of syncs. The writer thread adds; other threads may miss the last one."""

    def __init__(self) -> None:
        self._buckets = [0] * (len(_SYNC_BOUNDS_SECONDS) + 1)
        self._seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count a sync."""
        self._buckets[bisect_left(_SYNC_BOUNDS_SECONDS, seconds)] += 1
        self._seconds += seconds

    def times(self) -> SyncTimes:
        """Return the histogram so far."""
        return SyncTimes(_SYNC_BOUNDS_SECONDS, tuple(self._buckets), self._seconds)
