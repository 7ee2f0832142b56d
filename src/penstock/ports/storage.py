"""The whole interface of a storage: `core`'s part, and that of the server, HTTP, Flight and Spark.

A storage has partitions. This process writes one of them, `partition`, and may read all of
`partitions`. Methods that may block name the threads that may call them; all others belong to the
event loop's thread.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from typing import Protocol as Port

import msgspec

from penstock._kernels.topics import TopicTable
from penstock.model import Durability
from penstock.ports.log import Follower, KnownTopic, LogReader, LogWriter, Prepared
from penstock.ports.nodes import NodeStatus
from penstock.ports.services import ServiceStore
from penstock.ports.sessions import SessionStore
from penstock.ports.sinks import SinkStore

if TYPE_CHECKING:
    import pyarrow as pa  # slow to import: only a storage that keeps history needs it

    from penstock.ports.selection import Selection

from penstock.protocols import Source

__all__ = [
    "Bounds",
    "ConsumerGroups",
    "DamagedRange",
    "GroupProgress",
    "GroupState",
    "GroupSummary",
    "Matched",
    "PartitionRange",
    "PendingRun",
    "RetentionRuleStatus",
    "SegmentStatus",
    "Storage",
    "StorageStatus",
    "Subscription",
    "SyncTimes",
    "TierStatus",
    "TopicCounts",
]


class Bounds(NamedTuple):
    """The readable offsets of a partition: from `horizon` up to, not including, `end`."""

    horizon: int
    end: int


class PartitionRange(NamedTuple):
    """Offsets of a partition: from `start` up to, not including, `end`."""

    partition: int
    start: int
    end: int


class Matched(NamedTuple):
    """The selected messages of a range: `rows` of them, all before the offset `end`.

    None of the range is before `first`; a first message may come some offsets later.
    """

    end: int
    rows: int
    first: int = 0


class TopicCounts(NamedTuple):
    """The selected messages of a range: `rows` of them, and their numbers by topic.

    `rows` includes messages that cannot be read, whose topics are not known. The empty name stands
    for messages without a topic.
    """

    rows: int
    topics: Mapping[str, int]


class DamagedRange(NamedTuple):
    """Messages from `first_offset` up to `resumes_at` that cannot be read."""

    first_offset: int
    resumes_at: int
    reason: str


# --- Status -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class SyncTimes:
    """Histogram of sync durations: `buckets` has one entry per bound, and one for longer ones."""

    bounds_seconds: tuple[float, ...] = ()
    buckets: tuple[int, ...] = (0,)
    seconds: float = 0.0
    """Sum of all durations."""

    @property
    def count(self) -> int:
        """Number of syncs."""
        return sum(self.buckets)


@dataclasses.dataclass(frozen=True, slots=True)
class SegmentStatus:
    """A file of the storage, or its like: offsets from `base_offset` up to `end_offset`."""

    base_offset: int
    end_offset: int
    size: int
    last_us: int | None
    """Latest time of a message, in microseconds since the epoch."""


@dataclasses.dataclass(frozen=True, slots=True)
class TierStatus:
    """State of the object store of a log. `waiting` segments are closed and not in it yet."""

    url: str
    segments: int = 0
    size: int = 0
    waiting_segments: int = 0
    waiting_bytes: int = 0
    local_segments: int = 0
    """Closed segments on the local disk, whether they are in the store or not."""
    local_bytes: int = 0
    overdue_segments: int = 0
    """Local segments above the local limits that cannot be deleted: they are not in the store."""
    uploads: int = 0
    failures: int = 0
    """Uploads and deletions that failed."""
    last_upload_us: int | None = None
    """Microseconds since the epoch; None if nothing was uploaded since the start."""
    problem: str | None = None
    """Why the last attempt failed; None if it did not."""


class ReferenceCounts(NamedTuple):
    """Numbers of row groups of namespaces that other processes have written."""

    read: int = 0
    read_bytes: int = 0
    passed: int = 0
    """Row groups that were passed over, because no subscriber of this process needed them."""

    def read_one(self, size: int) -> "ReferenceCounts":
        """Return the counts with one more row group of `size` bytes that was read."""
        return self._replace(read=self.read + 1, read_bytes=self.read_bytes + size)

    def passed_one(self) -> "ReferenceCounts":
        """Return the counts with one more row group that was passed over."""
        return self._replace(passed=self.passed + 1)


@dataclasses.dataclass(frozen=True, slots=True)
class FollowStatus:
    """How a storage reads what other processes write."""

    problem: str | None = None
    """Why it has not been read for a while; None if it is."""
    replaced: int = 0
    """Readers that failed or hung, and were replaced."""
    late: Mapping[int, bool] = dataclasses.field(default_factory=dict)
    """Whether each partition has not been read for a while; -1 stands for the state."""
    references: ReferenceCounts = dataclasses.field(default_factory=ReferenceCounts)
    """Row groups of namespaces that were read and passed over."""


@dataclasses.dataclass(frozen=True, slots=True)
class RetentionRuleStatus:
    """State of a rule of retention for some topics; None is no bound."""

    topics: tuple[str, ...]
    age_seconds_max: float | None
    bytes_max: int | None
    last_only: bool
    horizon: int
    """Messages of these topics below it have expired; with `last_only`, all but the last ones."""
    excess_bytes: int
    """Bytes above `bytes_max`: the newest messages always stay."""
    expired_bytes: int
    """Bytes of expired messages in segments that have others too."""


@dataclasses.dataclass(frozen=True, slots=True)
class StorageStatus:
    """State of a storage at one moment, for metrics and the API. Offsets are of `partition`."""

    kind: str
    location: str
    log_id: int
    partition: int
    durability: Durability
    """Durability of topics that no rule names."""
    problem: str | None
    """Why appends are refused; None if they are not."""
    horizon: int
    end: int
    durable_end: int
    """One past the last offset that is known to be on disk."""
    next_offset: int
    segments: tuple[SegmentStatus, ...] = ()
    waiting_bytes: int = 0
    """Bytes of values that wait for the disk."""
    commits: int = 0
    failures: int = 0
    """Commits that failed."""
    writers_replaced: int = 0
    """Threads that hung while they wrote, and were replaced."""
    segments_removed: int = 0
    """Segments that retention has removed."""
    excess_bytes: int = 0
    """Bytes by which the storage is larger than its retention allows."""
    age_seconds_max: float | None = None
    bytes_max: int | None = None
    """The bounds of retention; None is no bound."""
    retention_rules: tuple[RetentionRuleStatus, ...] = ()
    sync_times: SyncTimes = SyncTimes()
    tier: TierStatus | None = None
    following: FollowStatus | None = None
    """None if no other process can write."""

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)


# --- Consumer groups ----------------------------------------------------------------------------


class Subscription(msgspec.Struct, frozen=True, omit_defaults=True):
    """The topics that a consumer group reads: `topics`, `patterns` or a regular `expression`."""

    topics: tuple[str, ...] | None = None
    patterns: tuple[str, ...] | None = None
    expression: str | None = None


class PendingRun(msgspec.Struct, frozen=True, array_like=True):
    """Contiguous offsets that were delivered and not processed, and the failures of each."""

    first: int
    size: int
    failures: int


class GroupProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of a group whose members are clients of the broker.

    All messages before `next` were processed but those of `pending`. `dead` are the last offsets
    that went to the dead letters. `ordered` keeps a topic's messages with one member. In a log of
    several partitions, `partitions` has the next offset of each in place of `next`, and the others
    are places of `penstock.ports.places`. `used` tells whether the group has members; they
    are at `node`, the process `process`.
    """

    next: int
    pending: tuple[PendingRun, ...] = ()
    dead: tuple[int, ...] = ()
    ordered: bool = False
    partitions: dict[int, int] = {}
    used: bool = False
    node: int = -1
    process: str = ""


class GroupState(msgspec.Struct, frozen=True):
    """The last report of a consumer group: the next offset of each partition, and the time.

    `lost` counts the offsets that were gone before the group could read them. `updated_us` is in
    microseconds since the epoch. `subscription` is None if the group reads all topics, or did not
    report which. `progress` is None if the last report came from a reader outside the broker.
    `owner` is the name to which the group is charged, empty if it is not known.
    """

    group: str
    offsets: dict[int, int]
    lost: int = 0
    updated_us: int = 0
    subscription: Subscription | None = None
    progress: GroupProgress | None = None
    owner: str = ""

    @property
    def summary(self) -> "GroupSummary":
        """The state without its messages."""
        progress = self.progress
        return GroupSummary(
            self.group,
            self.offsets,
            lost=self.lost,
            updated_us=self.updated_us,
            subscription=self.subscription,
            is_shared=progress is not None,
            node=progress.node if progress is not None and progress.used else -1,
            unacknowledged=sum(run.size for run in progress.pending) if progress else 0,
            dead=len(progress.dead) if progress is not None else 0,
        )


class GroupSummary(msgspec.Struct, frozen=True):
    """A GroupState for lists: with counts in place of its messages, which may be many.

    `is_shared` tells whether the members of the group are clients of the broker. `node` is the node
    that reported members; -1 if none did.
    """

    group: str
    offsets: dict[int, int]
    lost: int = 0
    updated_us: int = 0
    subscription: Subscription | None = None
    is_shared: bool = False
    node: int = -1
    unacknowledged: int = 0
    dead: int = 0


class ConsumerGroups(Port):
    """Offsets that consumer groups have reported. Any thread may call; all methods may block."""

    is_shared: bool
    """Whether other nodes see the groups too."""
    owner_groups_max: int
    """Groups of one owner. The server sets it."""

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
        """Store the offsets of a group and its topics; partitions that are not named keep theirs.

        A new group counts towards the limit of `owner`; without an owner, towards none.
        `lost` is added to the group's count. A subscription of more than
        GROUP_SUBSCRIPTION_BYTES_MAX is not stored. A state with `progress` is on disk on return;
        one without is the report of a reader that keeps its place itself. Raise InvalidGroup,
        TooManyGroups, GroupDamaged or OSError, GroupDiffers for such a report if the stored state
        has progress, and GroupElsewhere for a state with progress if another node has members of
        the group.
        """

    def load(self, group: str) -> GroupState | None:
        """Return the state of a group, None if there is none; raise GroupDamaged or OSError."""

    def all(self) -> dict[str, GroupSummary]:
        """Return all groups by name, in order; the states are loaded one after the other.

        Groups whose states are damaged are left out.
        """

    def forget(self, group: str) -> None:
        """Remove a group, if it exists, also if its state is damaged; raise OSError."""


# --- The storage --------------------------------------------------------------------------------


class Storage(LogWriter, LogReader, Port):
    """Keeps messages: the writer and reader of `core`, and everything else that uses messages.

    A factory in the server opens it. `attach` comes before the first append, `flush` and `close`
    come last. A method that takes a partition raises ValueError for one not in `partitions`.
    """

    @property
    def keeps_history(self) -> bool:
        """Whether messages can be read back. Otherwise `horizon` is `end`, and scans are empty."""

    @property
    def sessions(self) -> SessionStore | None:
        """Where nodes keep clients that may resume; None if this process is the only one."""

    @property
    def services(self) -> ServiceStore | None:
        """Where nodes keep the paths that they serve; None if this process is the only one."""

    @property
    def sinks(self) -> SinkStore | None:
        """Where nodes keep the writers of sinks; None if this process is the only one."""

    @property
    def partitions(self) -> Sequence[int]:
        """Partitions that can be read; `partition` is one of them."""

    @property
    def known_topics(self) -> Sequence[KnownTopic]:
        """Topics that were known when the storage was opened."""

    @property
    def deleted_topics(self) -> Sequence[str]:
        """Topics that were deleted before the storage was opened, and not created again."""

    @property
    def last_us(self) -> int | None:
        """The latest time of a message of `partition` when the storage was opened, None if none."""

    @property
    def groups(self) -> ConsumerGroups:
        """Offsets of consumer groups."""

    @property
    def problem(self) -> str | None:
        """Why appends are refused at the moment; None if they are not."""

    @property
    def follow_problem(self) -> str | None:
        """Why messages of other processes have not been read for a while; None if they are."""

    @property
    def waiting_bytes(self) -> int:
        """Bytes of values that wait for the disk."""

    def status(self) -> StorageStatus:
        """Return the state of the storage."""

    # --- Lifecycle

    def attach(self, topics: TopicTable, settled: Callable[[], None]) -> None:
        """Start to accept appends; `settled` is called whenever commit numbers have moved.

        Batches use the topic numbers of `topics`. Topics that it contains already are not stored
        again. The thread of the running event loop owns the storage from now on.
        """

    def follow(self, target: Follower) -> None:
        """Pass what other processes write to `target`, from now on; may block for a moment.

        `attach` comes before it. A storage that no other process writes does nothing.
        """

    async def flush(self) -> None:
        """Wait until all appends so far are settled."""

    def close(self) -> None:
        """Write all waiting messages and release all resources; blocks. No `settled` follows."""

    # --- Rows of tables

    def prepare(
        self,
        rows: "pa.RecordBatch",
        *,
        sender: str,
        client: int,
        source: Source,
        correlation: str,
    ) -> Iterator[Prepared]:
        """Yield rows of ROWS_SCHEMA in portions for `append_prepared`. Any thread may call it.

        All rows get the sender, whose number is `client`, the source and the correlation. Raise
        ValueError, and yield nothing, unless the rows are whole.
        """

    # --- Reading, from any thread; may block

    def nodes(self) -> Sequence[NodeStatus]:
        """Return the nodes that write the partitions; none if no other process can write.

        Raise OSError if it is not known how far this process follows the others.
        """

    def bounds(self) -> Mapping[int, Bounds]:
        """Return the readable offsets of each partition."""

    def scan(
        self,
        span: PartitionRange,
        selection: "Selection",
        *,
        columns: Sequence[str] | None = None,
        reading: Callable[[int], None] | None = None,
    ) -> "Iterator[pa.RecordBatch]":
        """Yield the selected messages of a range, in order, as record batches.

        Batches have `columns`, or all columns of a record, and those that the selection needs.
        Columns of names are dictionaries. Raise OffsetBelowHorizon or OffsetPastEnd at once.
        Messages before damage are yielded, then LogDamaged is raised; OffsetBelowHorizon also where
        retention is faster than the scan. `reading` is called with the size of each buffer before
        it is allocated; the scan ends with an error that it raises.
        """

    def split(
        self, span: PartitionRange, selection: "Selection", *, count: int
    ) -> list[PartitionRange]:
        """Divide a range into at most `count` parts of about the same number of bytes to read.

        Parts meet where reading can start cheaply, and cover the range. Raise what `scan` raises.
        """

    def match(
        self, span: PartitionRange, selection: "Selection", *, rows_max: int | None = None
    ) -> Matched:
        """Find the end of the selected messages of a range, and count them; values are not read.

        No selected message is between `end` and the end of the range; `end` is the start of the
        range if it has none. With `rows_max`, `end` is behind so many of them at most. Messages
        that cannot be read are counted, since they may have been selected. Raise what `scan`
        raises at once.
        """

    def count_topics(self, span: PartitionRange, selection: "Selection") -> TopicCounts:
        """Count the selected messages of a range by topic; values are not read.

        Messages that cannot be read are counted, since they may have been selected. The selection
        is one of topics only. Raise what `scan` raises at once.
        """

    def offset_at(self, partition: int, timestamp_us: int) -> int:
        """Return the first offset taken at or after a time, or the end; raise LogError."""

    def damage(self, span: PartitionRange) -> list[DamagedRange]:
        """Return the known damage that overlaps a range, in order."""

    def stored_topics(self) -> frozenset[str]:
        """Return the topics of all messages that can be read, and maybe some that have expired."""
