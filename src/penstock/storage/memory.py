"""A storage that keeps nothing: it numbers messages and calls them safe at once."""

import secrets
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.errors import LogError, OffsetBelowHorizon, OffsetPastEnd
from penstock.limits import GROUPS_PER_PRINCIPAL_MAX
from penstock.model import Durability
from penstock.ports import (
    Bounds,
    DamagedRange,
    Fetched,
    Follower,
    GroupProgress,
    GroupState,
    GroupSummary,
    KnownTopic,
    LastFound,
    Matched,
    PartitionRange,
    Prepared,
    Receipt,
    Record,
    ServiceStore,
    SessionStore,
    SinkStore,
    StorageStatus,
    Subscription,
    TopicCounts,
    TopicFilter,
)
from penstock.ports.nodes import NodeStatus
from penstock.protocols import Source
from penstock.storage.group_offsets import check_group_count, check_group_name, updated

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.ports.selection import Selection

__all__ = ["MemoryGroups", "MemoryLog"]

_COMMIT = 1
"""The only commit, which is safe."""
_MEMORY: Final = Durability.MEMORY  # a name of the module is found faster than that of an enum


class MemoryGroups:
    """A `ports.ConsumerGroups` that lasts as long as the process."""

    is_shared = False

    def __init__(self) -> None:
        self._states: dict[str, GroupState] = {}
        self.owner_groups_max = GROUPS_PER_PRINCIPAL_MAX

    def commit(
        self,
        group: str,
        offsets: Mapping[int, int],
        *,
        lost: int = 0,
        subscription: Subscription | None = None,
        progress: GroupProgress | None = None,
        owner: str = "",
    ) -> None:
        """See ports.ConsumerGroups."""
        check_group_name(group)
        now_us = time.time_ns() // 1000
        if group not in self._states:
            states = self._states
            check_group_count(
                len(states),
                owner,
                lambda: (each.owner for each in states.values()),
                self.owner_groups_max,
            )
        before = self._states.get(group)
        self._states[group] = updated(
            before,
            group,
            offsets,
            lost=lost,
            now_us=now_us,
            subscription=subscription,
            progress=progress,
            owner=owner,
        )

    def load(self, group: str) -> GroupState | None:
        """See ports.ConsumerGroups."""
        check_group_name(group)
        return self._states.get(group)

    def all(self) -> dict[str, GroupSummary]:
        """See ports.ConsumerGroups."""
        return {name: state.summary for name, state in sorted(self._states.items())}

    def forget(self, group: str) -> None:
        """See ports.ConsumerGroups."""
        check_group_name(group)
        self._states.pop(group, None)


class MemoryLog:
    """A `ports.Storage` for a broker whose messages live until they are delivered."""

    keeps_history = False
    finds_last = False
    sessions: SessionStore | None = None
    services: ServiceStore | None = None
    sinks: SinkStore | None = None
    known_topics: Sequence[KnownTopic] = ()
    deleted_topics: Sequence[str] = ()
    last_us: int | None = None
    problem: str | None = None
    follow_problem: str | None = None
    written_commit = _COMMIT
    durable_commit = _COMMIT
    failed_commit = 0
    crowded = False
    waiting_bytes = 0

    def __init__(self, *, log_id: int | None = None, partition: int = 0) -> None:
        self.log_id = secrets.randbits(48) if log_id is None else log_id
        self.partition = partition
        self.partitions = (partition,)
        self.next_offset = 0
        self.groups = MemoryGroups()

    @property
    def horizon(self) -> int:
        """See ports.LogReader."""
        return self.next_offset

    def horizon_of(self, pattern: str) -> int:  # noqa: ARG002
        """See ports.LogReader."""
        return self.next_offset

    def expired_below(self, pattern: str) -> int:  # noqa: ARG002
        """See ports.LogReader."""
        return self.next_offset

    @property
    def expiry(self) -> object:
        """See ports.LogReader."""
        return None

    @property
    def end(self) -> int:
        """See ports.LogReader."""
        return self.next_offset

    def status(self) -> StorageStatus:
        """See ports.Storage."""
        return StorageStatus(
            kind="memory",
            location="",
            log_id=self.log_id,
            partition=self.partition,
            durability=Durability.MEMORY,
            problem=None,
            horizon=self.next_offset,
            end=self.next_offset,
            durable_end=0,
            next_offset=self.next_offset,
        )

    # --- Lifecycle

    def attach(self, topics: TopicTable, settled: Callable[[], None]) -> None:
        """See ports.Storage: commit numbers never move."""

    def follow(self, target: Follower) -> None:
        """See ports.Storage: this process writes all messages."""

    async def flush(self) -> None:
        """See ports.Storage."""

    def close(self) -> None:
        """See ports.Storage."""

    # --- Writing

    def append(self, batch: Batch, sender_name: str) -> Receipt:  # noqa: ARG002
        """See ports.LogWriter."""
        first = self.next_offset
        self.next_offset = first + len(batch)
        return Receipt(first, _COMMIT, _MEMORY)

    def append_record(self, record: Record) -> Receipt:  # noqa: ARG002
        """See ports.LogWriter."""
        return self._number(1)

    def append_prepared(self, rows: Prepared) -> Receipt:
        """See ports.LogWriter."""
        return self._number(len(rows))

    def add_topic(self, name: str, creator: bytes) -> Receipt:  # noqa: ARG002
        """See ports.LogWriter: the broker's topic table keeps it."""
        return self._number(0)

    def remove_topic(self, name: str) -> Receipt:  # noqa: ARG002
        """See ports.LogWriter."""
        return self._number(0)

    def prepare(
        self,
        rows: "pa.RecordBatch",
        *,
        sender: str,
        client: int,
        source: Source,
        correlation: str,
    ) -> Iterator[Prepared]:
        """See ports.Storage."""
        # Live delivery reads rows from Arrow row groups, and pyarrow is slow to import.
        from penstock.storage.arrow.write.prepared import prepare  # noqa: PLC0415

        yield from prepare(
            rows, sender=sender, client=client, source=source, correlation=correlation
        )

    def _number(self, count: int) -> Receipt:
        first = self.next_offset
        self.next_offset = first + count
        return Receipt(first, _COMMIT, _MEMORY)

    # --- Reading

    def fetch(
        self,
        offset: int,
        then: Callable[[Fetched | LogError], None],
        topics: TopicFilter | None = None,  # noqa: ARG002
    ) -> None:
        """See ports.LogReader."""
        end = self.next_offset
        then(OffsetBelowHorizon(offset, end) if offset < end else OffsetPastEnd(offset, end))

    def find_time(self, timestamp_us: int, then: Callable[[int | LogError], None]) -> None:  # noqa: ARG002
        """See ports.LogReader."""
        then(self.next_offset)

    def find_last(
        self,
        then: Callable[[LastFound | LogError], None],
        known: LastFound | None = None,  # noqa: ARG002
    ) -> None:
        """See ports.LogReader."""
        then(LastFound(array("q"), self.next_offset))

    def bounds(self) -> Mapping[int, Bounds]:
        """See ports.Storage."""
        return {self.partition: Bounds(self.next_offset, self.next_offset)}

    def scan(
        self,
        span: PartitionRange,
        selection: "Selection",  # noqa: ARG002
        *,
        columns: Sequence[str] | None = None,  # noqa: ARG002
        reading: Callable[[int], None] | None = None,  # noqa: ARG002
    ) -> "Iterator[pa.RecordBatch]":
        """See ports.Storage: only the empty range at the end can be read."""
        self._check(span)
        return iter(())

    def split(
        self,
        span: PartitionRange,
        selection: "Selection",  # noqa: ARG002
        *,
        count: int,  # noqa: ARG002
    ) -> list[PartitionRange]:
        """See ports.Storage."""
        self._check(span)
        return []

    def match(
        self,
        span: PartitionRange,
        selection: "Selection",  # noqa: ARG002
        *,
        rows_max: int | None = None,  # noqa: ARG002
    ) -> Matched:
        """See ports.Storage: the range that can be read is empty."""
        self._check(span)
        return Matched(span.start, 0)

    def count_topics(
        self,
        span: PartitionRange,
        selection: "Selection",  # noqa: ARG002
    ) -> TopicCounts:
        """See ports.Storage: the range that can be read is empty."""
        self._check(span)
        return TopicCounts(0, {})

    def offset_at(self, partition: int, timestamp_us: int) -> int:  # noqa: ARG002
        """See ports.Storage."""
        self._check_partition(partition)
        return self.next_offset

    def damage(self, span: PartitionRange) -> list[DamagedRange]:
        """See ports.Storage."""
        self._check_partition(span.partition)
        return []

    def nodes(self) -> Sequence[NodeStatus]:
        """See ports.Storage."""
        return ()

    def stored_topics(self) -> frozenset[str]:
        """See ports.Storage."""
        return frozenset()

    def _check_partition(self, partition: int) -> None:
        if partition != self.partition:
            raise ValueError(f"there is no partition {partition}")

    def _check(self, span: PartitionRange) -> None:
        self._check_partition(span.partition)
        if span.start < self.next_offset:
            raise OffsetBelowHorizon(span.start, self.next_offset)
        if span.end > self.next_offset:
            raise OffsetPastEnd(span.end, self.next_offset)
