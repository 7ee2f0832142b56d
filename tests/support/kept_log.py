"""A log in memory whose commits, failures, reads and damage a test decides.

It keeps the publish frames of each append and scans them again to read them back, so that what is
read needs no code of the real log.
"""

from array import array
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from penstock._kernels import fleximq as fleximq_kernel
from penstock._kernels import herald as herald_kernel
from penstock._kernels import lamamq as lamamq_kernel
from penstock._kernels import rheos1 as rheos1_kernel
from penstock._kernels import rheos2 as rheos2_kernel
from penstock._kernels.batch import Batch, Sender
from penstock._kernels.topics import TopicTable
from penstock.errors import (
    LogDamaged,
    LogError,
    LogUnavailable,
    OffsetBelowHorizon,
    OffsetPastEnd,
)
from penstock.model import ByteOrder, Durability, binary_topic_name
from penstock.ports import Fetched, LastFound, Receipt, Record, TopicFilter
from penstock.protocols import PROTOCOLS, Protocol
from penstock.protocols.herald import HERALD
from penstock.wire import herald, rheos1
from penstock.wire.fleximq.payloads import publication
from penstock.wire.rheos import OpCode


class KeptRows:
    """See ports.Stored: the rows of one append."""

    def __init__(self, batch: Batch, topics: TopicTable, base_offset: int) -> None:
        self.base_offset = base_offset
        self.count = len(batch)
        self.timestamp_us = batch.timestamp_us
        self._protocol = PROTOCOLS.numbered(batch.protocol)
        self._order = batch.order
        self._sender = batch.sender(0)
        self.names = {topics.name(batch.topic_id(row)) for row in range(len(batch))}
        self._frames = b"".join(self._frame(batch, topics, row) for row in range(len(batch)))

    def _frame(self, batch: Batch, topics: TopicTable, row: int) -> bytes:
        frame = batch.frame(row)
        if frame is not None:
            return frame
        name = topics.name(batch.topic_id(row))
        if self._protocol is HERALD:
            channel = int(name.removeprefix("channel/"))
            return herald.encode(herald.Publish(channel, batch.value(row)), order=self._order)
        request = rheos1.Request(
            batch.sender(row).uuid, OpCode.PUBLISH, binary_topic_name(name), batch.value(row)
        )
        return rheos1.encode(request)

    def load(self, batch: Batch, topics: TopicTable) -> None:
        sender = Sender(self._sender.uuid, self._sender.number)
        end = _scan(self._protocol, self._frames, batch, topics, sender=sender, order=self._order)
        assert (end, len(batch)) == (len(self._frames), self.count)
        batch.timestamp_us = self.timestamp_us

    def expired(self, since: object, wants: object, *, first: int, last: int) -> int:  # noqa: ARG002
        return 0


def _scan(
    protocol: Protocol,
    data: bytes,
    batch: Batch,
    topics: TopicTable,
    *,
    sender: Sender,
    order: ByteOrder,
) -> int:
    match protocol.label:
        case "rheos1":
            return rheos1_kernel.scan(data, 0, batch, topics, sender)
        case "rheos2":
            return rheos2_kernel.scan(data, 0, batch, topics, sender)
        case "fleximq":
            headers = fleximq_kernel.HeaderCache(publication, capacity=64)
            return fleximq_kernel.scan(data, 0, batch, topics, sender, headers=headers)
        case "herald":
            return herald_kernel.scan(data, 0, batch, topics, sender, order=order)
        case "lamamq":
            return lamamq_kernel.scan(data, 0, batch, topics, sender, order=order)


class KeptLog:
    """Both `ports.LogWriter` and `ports.LogReader`.

    All that is appended between two commits is one commit. `settle` is called when commit numbers move; a
    test sets it to its broker's. Reads wait until `answer` is called.
    """

    log_id = 7
    partition = 0
    finds_last = True

    def __init__(
        self, topics: TopicTable | None = None, *, durability: Durability = Durability.FSYNC
    ) -> None:
        self.topics = topics  # of the broker, which makes them
        self.durability = durability
        self.settle: Callable[[], None] = lambda: None
        self.available = True
        self.crowded = False
        self.next_offset = 0
        self.written_commit = 0
        self.durable_commit = 0
        self.failed_commit = 0
        self.horizon = 0
        self.end = 0
        self.kept: list[KeptRows] = []
        self.failed: list[tuple[int, int]] = []
        self.damaged: list[tuple[int, int]] = []
        self.reads: deque[Callable[[], None]] = deque()
        self.fetches_most = 0
        self.groups_max = 1
        """Rows of so many appends are read together."""
        self.groups_read = 0
        self.last_reads = 0
        self.last_rows_read = 0
        """How often the last message of each topic was asked for."""
        self._commit_number = 1
        self._pending: list[KeptRows] = []

    expiry: object = None

    def horizon_of(self, pattern: str) -> int:  # noqa: ARG002
        return self.horizon

    def expired_below(self, pattern: str) -> int:  # noqa: ARG002
        return self.horizon

    # --- ports.LogWriter ------------------------------------------------------------------------

    def append(self, batch: Batch, sender_name: str) -> Receipt:
        assert sender_name
        assert self.topics is not None
        if not self.available:
            raise LogUnavailable("no space left on device")
        rows = KeptRows(batch, self.topics, self.next_offset)
        self._pending.append(rows)
        self.next_offset += rows.count
        return Receipt(rows.base_offset, self._commit_number, self.durability)

    def append_record(self, record: Record) -> Receipt:  # noqa: ARG002
        """Give it an offset that nothing can be read at, as if it were private."""
        if not self.available:
            raise LogUnavailable("no space left on device")
        self.next_offset += 1
        return Receipt(self.next_offset - 1, self._commit_number, self.durability)

    def add_topic(self, name: str, creator: bytes) -> Receipt:  # noqa: ARG002
        if not self.available:
            raise LogUnavailable("no space left on device")
        return Receipt(self.next_offset, self._commit_number, self.durability)

    # --- What a test decides ----------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        return bool(self._pending)

    def write(self) -> None:
        """All that was appended can be read, and is not on disk."""
        self._keep()
        self.written_commit = self._commit_number
        self._commit_number += 1
        self.settle()

    def sync(self) -> None:
        """All that was written is on disk; later commits are not."""
        self.durable_commit = self.written_commit
        self.settle()

    def commit(self) -> None:
        """All that was appended is safe."""
        self._keep()
        self.written_commit = self.durable_commit = self._commit_number
        self._commit_number += 1
        self.settle()

    def fail(self) -> None:
        """All that was appended and not written is lost."""
        self.failed += [(rows.base_offset, rows.base_offset + rows.count) for rows in self._pending]
        self._pending.clear()
        self.failed_commit = self._commit_number
        self._commit_number += 1
        self.settle()

    def damage(self, rows: KeptRows) -> None:
        """Some rows that were kept cannot be read any more."""
        self.kept.remove(rows)
        self.damaged.append((rows.base_offset, rows.base_offset + rows.count))

    def forget(self, horizon: int) -> None:
        """Let all before an offset go."""
        self.horizon = horizon
        self.kept = [rows for rows in self.kept if rows.base_offset >= horizon]

    def _keep(self) -> None:
        self.kept += self._pending
        self._pending.clear()
        self.end = self.next_offset

    # --- ports.LogReader ------------------------------------------------------------------------

    def fetch(
        self,
        offset: int,
        then: Callable[[Fetched | LogError], None],
        topics: TopicFilter | None = None,
    ) -> None:
        self.reads.append(lambda: then(self._find(offset, topics)))
        self.fetches_most = max(self.fetches_most, len(self.reads))

    def find_last(
        self, then: Callable[[LastFound | LogError], None], known: LastFound | None = None
    ) -> None:
        end = self.end

        def find() -> LastFound:
            assert self.topics is not None
            found = array("q", [] if known is None else known.offsets)
            found.extend([-1] * (len(self.topics) - len(found)))
            batch = Batch()
            for rows in self.kept:
                if known is not None and rows.base_offset < known.end:
                    continue
                rows.load(batch, self.topics)
                self.last_rows_read += rows.count
                for row in range(rows.count):
                    found[batch.topic_id(row)] = rows.base_offset + row
                batch.clear()
            return LastFound(found, end)

        self.last_reads += 1
        self.reads.append(lambda: then(find()))

    def find_time(self, timestamp_us: int, then: Callable[[int | LogError], None]) -> None:
        self.reads.append(partial(then, self.offset_at(timestamp_us)))

    def offset_at(self, timestamp_us: int) -> int:
        """The first offset that was taken at or after a time."""
        found = (rows.base_offset for rows in self.kept if rows.timestamp_us >= timestamp_us)
        return next(found, self.end)

    def answer(self, reads: int = 1) -> None:
        """Let some reads come to their end, those before the others that asked first."""
        for _ in range(min(reads, len(self.reads))):
            self.reads.popleft()()

    def answer_all(self) -> None:
        """Let all reads come to their end, and those that follow from them."""
        for _ in range(100_000):
            if not self.reads:
                return
            self.answer()
        raise AssertionError("reading does not end")

    def _find(self, offset: int, topics: TopicFilter | None = None) -> Fetched | LogError:
        if offset < self.horizon:
            return OffsetBelowHorizon(offset, self.horizon)
        behind: Iterable[KeptRows] = (
            rows for rows in self.kept if rows.base_offset + rows.count > offset
        )
        rows = next(iter(behind), None)
        limit = self.end if rows is None else rows.base_offset
        damaged = [end for start, end in self.damaged if start <= limit and end > offset]
        if damaged and (rows is None or min(damaged) <= limit):
            return LogDamaged(offset, min(damaged), "its checksum is wrong")
        if rows is None:
            return OffsetPastEnd(offset, self.end)
        return self._fetched(self.kept.index(rows), topics)

    def _fetched(self, first: int, topics: TopicFilter | None) -> Fetched:
        """Some rows from the first ones on, up to damage; those without a wanted topic are out."""
        found: list[KeptRows] = []
        end = self.kept[first].base_offset
        for rows in self.kept[first:]:
            if any(end <= start < rows.base_offset + rows.count for start, _ in self.damaged):
                break
            if topics is None or any(map(topics.wants, rows.names)):
                found.append(rows)
                self.groups_read += 1
            end = rows.base_offset + rows.count
            if len(found) == self.groups_max:
                break
        return Fetched(found, end)
