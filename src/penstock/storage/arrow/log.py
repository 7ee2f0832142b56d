"""The Arrow log: messages in segment files on the local disk.

The event loop's thread owns an ArrowLog. It collects rows in blocks and passes them to the
committer when the commit before is done. The outcome comes back to the same thread, which moves the
commit numbers and lets the broker settle.
"""

import asyncio
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import structlog

from penstock._kernels.batch import Batch
from penstock._kernels.block import Block, TopicSlots
from penstock._kernels.topics import TopicTable
from penstock.errors import LogError, LogUnavailable
from penstock.limits import (
    LOG_RETRY_SECONDS,
    SPARE_BLOCK_BYTES_MAX,
    SPARE_BLOCKS_MAX,
)
from penstock.model import Durability
from penstock.ports import (
    Bounds,
    DamagedRange,
    Fetched,
    Follower,
    KnownTopic,
    Matched,
    PartitionRange,
    Prepared,
    Receipt,
    Record,
    SegmentStatus,
    SessionStore,
    StorageStatus,
    TopicCounts,
    TopicFilter,
)
from penstock.ports.nodes import NodeStatus
from penstock.ports.selection import Selection
from penstock.protocols import Source
from penstock.storage.arrow.format.file_names import partition_folder
from penstock.storage.arrow.format.log_state import LogState, save_state
from penstock.storage.arrow.format.topic_horizons import known_horizons
from penstock.storage.arrow.read.catalog import Catalog
from penstock.storage.arrow.read.reader import RowGroupReader
from penstock.storage.arrow.read.scan import LogScanner
from penstock.storage.arrow.read.tiered_files import TieredFiles
from penstock.storage.arrow.recover.recovery import Segment, recover
from penstock.storage.arrow.write.committer import Commit, Committer, Outcome, Tail
from penstock.storage.arrow.write.prepared import PreparedRowGroup, prepare
from penstock.storage.arrow.write.removal_record import RemovalRecord
from penstock.storage.arrow.write.retention import SegmentRetention
from penstock.storage.arrow.write.tiering import Tiering
from penstock.storage.arrow.write.topic_journal import TopicJournal
from penstock.storage.arrow.write.topic_retention import TopicExpiry
from penstock.storage.arrow.write.watermark import Watermark
from penstock.storage.files import Files
from penstock.storage.group_offsets import GroupOffsets
from penstock.storage.options import LogOptions

__all__ = ["ArrowLog"]

log = structlog.get_logger("penstock.log")

_DURABILITIES: Final = tuple(Durability)  # by number
_SPARE_SECONDS: Final = 10.0
"""How long unused blocks are kept for the next burst, at least; at most twice as long."""


class ArrowLog:
    """A `ports.Storage` with one partition, in the folder `data`.

    Opening recovers the log after an unclean stop; raise LogInUse, LogFormatTooNew, or OSError.
    """

    keeps_history = True
    finds_last = True
    sessions: SessionStore | None = None

    def __init__(
        self,
        data: Path,
        options: LogOptions | None = None,
        *,
        partition: int = 0,
        files: Files | None = None,
    ) -> None:
        self._options = options or LogOptions()
        self._files = files or TieredFiles()
        self._folder = partition_folder(data, partition)
        self._files.make_folder(self._folder)
        self._lock = self._files.lock(self._folder)
        try:
            recovered = recover(self._files, self._folder, partition=partition)
        except BaseException:
            self._files.close(self._lock)
            raise
        self.recovered = recovered
        """Result of the recovery at opening."""
        self._state = recovered.state
        self.log_id = recovered.state.log_id
        self.partition, self.partitions = partition, (partition,)
        self.groups = GroupOffsets(data)
        self.next_offset = recovered.next_offset
        self.written_commit = self.durable_commit = self.failed_commit = 0
        self.unavailable: OSError | None = None
        """Why appends are refused at the moment."""
        self._catalog = Catalog(
            self._files,
            self._folder,
            recovered.segments,
            recovered.damage,
            horizon=recovered.horizon,
            horizons=known_horizons(self._files, self._folder),
            index_bytes_max=self._options.index_cache_bytes_max,
        )
        self._journal = TopicJournal(self._files, self._folder)
        self._journaled = self._journal.load()
        self._end = recovered.next_offset
        self._removals = RemovalRecord(self._files, self._folder, horizon=recovered.state.horizon)
        self._scanner = LogScanner(
            self._files,
            self._folder,
            self._catalog,
            partition=partition,
            end=lambda: self._end,
            removed=lambda: self._removals.current,
        )
        self._watermark = Watermark(self._folder, recovered.next_offset)
        self._committer = Committer(
            self._files,
            self._folder,
            log_id=self.log_id,
            partition=partition,
            tail=Tail(recovered.previous_end, recovered.previous_crc),
            observer=self._catalog,
            journal=self._journal,
            done=self._done,
            segment_bytes_max=self._options.retention.segment_bytes(
                self._options.segment_bytes_max
            ),
            rolled=self._retain if self._options.retention.bounded else None,
            cache_bytes_max=self._options.cache_bytes_max,
            watermark=self._watermark,
        )
        self._slots = TopicSlots()
        self._spare: list[Block] = []
        self._filling: Block | None = None
        self._blocks: list[Block | PreparedRowGroup] = []
        self._offsets: list[int] = []
        self._commit_number = 1
        self._durability = Durability.MEMORY
        self._waiting_bytes = 0
        # Whether a commit is written, one is scheduled, and anything waits for the committer.
        self._committing = self._called = self._gathered = False
        self.failures = 0  # commits that failed
        # All messages before it are known to be on disk, those found at opening included.
        self._durable_end = recovered.next_offset
        self._retention = SegmentRetention(
            self._files, self._folder, self._options.retention, self._advance_horizon
        )
        self._topic_expiry = TopicExpiry(
            self._files,
            self._catalog,
            self._options.retention.rules,
            later=self._committer.later,
        )
        self._tiering = self._new_tiering()
        self._topics_known = 0
        self._table: TopicTable | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._settled: Callable[[], None] = lambda: None
        self._reader: RowGroupReader | None = None
        self._flushed: asyncio.Future[None] | None = None
        self._sparing: asyncio.TimerHandle | None = None
        self._spare_used = False  # whether there was a commit since `_sparing` was set

    def _new_tiering(self) -> Tiering | None:
        """Return the thread for the object store, None if there is none."""
        if self._options.tier is None:
            return None
        return Tiering(
            self._files,
            self._folder,
            self._catalog,
            self._options.tier,
            log_id=self.log_id,
            partition=self.partition,
            horizon=lambda: self._state.horizon,
        )

    # --- Topics -----------------------------------------------------------------------------------

    @property
    def known_topics(self) -> Sequence[KnownTopic]:
        """See ports.Storage."""
        found = self._journaled
        return [
            KnownTopic(name, creator, found.owners.get(name, "")) for name, creator in found.names
        ]

    @property
    def deleted_topics(self) -> Sequence[str]:
        """See ports.Storage."""
        return self._journaled.deleted

    # --- Lifecycle --------------------------------------------------------------------------------

    def attach(self, topics: TopicTable, settled: Callable[[], None]) -> None:
        """See ports.Storage."""
        self._loop = asyncio.get_running_loop()
        self._table = topics
        self._topics_known = len(topics)
        self._settled = settled
        self._reader = RowGroupReader(self._files, self._catalog, self._post)
        self._committer.start()
        if self._tiering is not None:
            self._tiering.start()
        self._retain_later()

    def follow(self, target: Follower) -> None:
        """See ports.Storage: this process writes all messages."""

    async def flush(self) -> None:
        """See ports.Storage."""
        last = self._commit_number if self._gathered else self._commit_number - 1
        while self._loop is not None and max(self.written_commit, self.failed_commit) < last:
            self._flushed = self._flushed or self._loop.create_future()
            await asyncio.shield(self._flushed)

    def close(self) -> None:
        """See ports.Storage: also seals the segment and unlocks the folder."""
        if self._loop is not None:
            self._committing = False
            self._commit()
            self._loop = None
        try:
            if self._tiering is not None:
                self._tiering.stop()
            self._topic_expiry.stop()
            if self._reader is not None:
                self._committer.stop()
            self._journal.close()
            self._save_state(next_offset=self.next_offset)
        except OSError as error:  # the next start recovers, as after a crash
            log.warning("log not closed", error=str(error), folder=str(self._folder))
        finally:
            if self._reader is not None:
                self._reader.close()
            self._watermark.close()
            self._files.close(self._lock)

    def _post(self, work: Callable[[], None]) -> None:
        """Run `work` in the thread of the event loop."""
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(work)

    # --- Status -----------------------------------------------------------------------------------

    @property
    def problem(self) -> str | None:
        """See ports.Storage."""
        error = self.unavailable
        return None if error is None else error.strerror or str(error)

    def status(self) -> StorageStatus:
        """See ports.Storage."""
        return StorageStatus(
            kind="arrow",
            location=str(self._folder),
            log_id=self.log_id,
            partition=self.partition,
            durability=self._options.durability.default,
            problem=self.problem,
            horizon=self.horizon,
            end=self._end,
            durable_end=self._durable_end,
            next_offset=self.next_offset,
            segments=tuple(
                SegmentStatus(each.base_offset, each.end_offset, each.size, each.last_us)
                for each in self._catalog.segments()
            ),
            waiting_bytes=self._waiting_bytes,
            commits=self._committer.commits,
            failures=self.failures,
            segments_removed=self._retention.removed,
            excess_bytes=self._retention.excess_bytes,
            age_seconds_max=self._options.retention.age_seconds_max,
            bytes_max=self._options.retention.bytes_max,
            retention_rules=self._topic_expiry.status(),
            sync_times=self._committer.syncs.times(),
            tier=None if self._tiering is None else self._tiering.status(),
        )

    # --- Writing ----------------------------------------------------------------------------------

    @property
    def waiting_bytes(self) -> int:
        """See ports.Storage."""
        return self._waiting_bytes

    @property
    def crowded(self) -> bool:
        """See ports.LogWriter."""
        return self._waiting_bytes > self._options.waiting_bytes_max

    def append(self, batch: Batch, sender_name: str) -> Receipt:
        """See ports.LogWriter."""
        topics = self._open()
        rules = self._options.durability
        table = rules.table(topics)
        name = sender_name.encode()
        first = offset = self.next_offset
        end = first + len(batch)
        durability = 0
        while offset < end:
            block = self._block(offset)
            bytes_before = block.held_bytes
            offset += block.append(
                batch, topics, offset - first, name, table, durability=rules.default
            )
            durability = max(durability, block.durability)
            self._waiting_bytes += block.held_bytes - bytes_before
        self.next_offset = end
        return self._receipt(first, _DURABILITIES[durability])

    def append_record(self, record: Record) -> Receipt:
        """See ports.LogWriter."""
        self._open()
        offset = self.next_offset
        while True:
            block = self._block(offset)
            bytes_before = block.held_bytes
            if block.append_record(
                protocol=record.protocol.number,
                kind=record.kind,
                topic=record.topic.encode(),
                value=record.value,
                sender=record.sender_name.encode(),
                client=record.sender.number,
                timestamp_us=record.timestamp_us,
                form=record.form,
                private=record.private,
                headers=record.headers,
                correlation=None if record.correlation is None else record.correlation.encode(),
                status=record.status,
                created_us=record.created_us,
            ):
                break
            self._filling = None  # the next block has room for any one message
        self._waiting_bytes += block.held_bytes - bytes_before
        self.next_offset = offset + 1
        return self._receipt(offset, self._options.durability.of(record.topic))

    def append_prepared(self, rows: Prepared) -> Receipt:
        """See ports.LogWriter."""
        if not isinstance(rows, PreparedRowGroup):
            raise TypeError("rows that another storage has prepared")
        self._open()
        offset = self.next_offset
        self._filling = None  # later messages go behind these rows
        self._blocks.append(rows)
        self._offsets.append(offset)
        self._waiting_bytes += rows.held_bytes
        self.next_offset = offset + len(rows)
        return self._receipt(offset, Durability.FSYNC)

    def prepare(
        self,
        rows: pa.RecordBatch,
        *,
        sender: str,
        client: int,
        source: Source,
        correlation: str,
    ) -> Iterator[Prepared]:
        """See ports.Storage."""
        return prepare(rows, sender=sender, client=client, source=source, correlation=correlation)

    def add_topic(self, name: str, creator: bytes) -> Receipt:
        """See ports.LogWriter."""
        topics = self._open(besides=name)
        self._journal.add(name, creator, topics.owner_of(name))
        return self._receipt(self.next_offset, self._options.durability.of(name))

    def remove_topic(self, name: str) -> Receipt:
        """See ports.LogWriter."""
        self._open()
        self._journal.remove(name)
        return self._receipt(self.next_offset, Durability.FSYNC)

    def _open(self, besides: str = "") -> TopicTable:
        """Check that appends are possible and journal new topics; return the topic table."""
        if self.unavailable is not None:
            raise LogUnavailable(self.problem or "")
        topics = self._table
        if topics is None:
            raise AssertionError("the log is not attached")
        for number in range(self._topics_known, len(topics)):
            name = topics.name(number)  # a topic is removed after it was journaled
            if name != besides:
                self._journal.add(name, b"", topics.owner_of(name))
        self._topics_known = len(topics)
        return topics

    def _block(self, offset: int) -> Block:
        """Return a block with room; a new block starts at `offset`."""
        block = self._filling
        if block is None or block.full:
            block = self._spare.pop() if self._spare else Block(self._slots)
            block.clear()
            self._filling = block
            self._blocks.append(block)
            self._offsets.append(offset)
        return block

    def _receipt(self, first_offset: int, durability: Durability) -> Receipt:
        """Return the receipt of an append, and schedule its commit."""
        self._durability = max(self._durability, durability)
        self._gathered = True
        if not self._committing and not self._called:
            # Not now: appends of other clients in this turn of the loop join the same commit.
            self._called = True
            self._running_loop.call_soon(self._commit)
        return Receipt(first_offset, self._commit_number, durability)

    @property
    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise AssertionError("the log is not attached")
        return self._loop

    def _commit(self) -> None:
        """Pass everything collected to the writer thread."""
        self._called = False
        if self._committing or not self._gathered:
            return
        self._committing = True
        self._gathered = False
        self._committer.submit(
            Commit(self._commit_number, self._blocks, self._offsets, self._durability)
        )
        self._commit_number += 1
        self._blocks, self._offsets, self._filling = [], [], None
        self._durability = Durability.MEMORY

    def _done(self, outcome: Outcome) -> None:
        """Receive an outcome, in the writer thread."""
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._settle, outcome)

    def _settle(self, outcome: Outcome) -> None:
        if self._loop is None:
            return
        self._committing = False
        commit = outcome.commit
        for block in commit.blocks:
            self._waiting_bytes -= block.held_bytes
        if outcome.error is None:
            self._end = outcome.end
            self.written_commit = commit.number
            if outcome.durable:
                self.durable_commit = commit.number
                self._durable_end = outcome.end
        else:
            self._fail(outcome.error)
        self._keep_spare(commit.blocks)
        self._settled()
        if self._flushed is not None:
            self._flushed.set_result(None)
            self._flushed = None
        if self._gathered:
            self._commit()

    def _keep_spare(self, blocks: list[Block | PreparedRowGroup]) -> None:
        """Reuse blocks, whose memory is warm; free them when a burst is over.

        Blocks with large messages are freed at once: a block keeps the memory of its columns.
        """
        self._spare += [
            block
            for block in blocks
            if isinstance(block, Block) and block.held_bytes <= SPARE_BLOCK_BYTES_MAX
        ]
        del self._spare[SPARE_BLOCKS_MAX:]
        self._spare_used = True
        if self._sparing is None:
            self._sparing = self._running_loop.call_later(_SPARE_SECONDS, self._free_spare)

    def _free_spare(self) -> None:
        """Free the spare blocks if there was no commit for a while, else look again later."""
        self._sparing = None
        if self._loop is not None and self._spare_used:
            self._spare_used = False
            self._sparing = self._loop.call_later(_SPARE_SECONDS, self._free_spare)
        else:
            self._spare.clear()

    # --- Disk failures ----------------------------------------------------------------------------

    def _fail(self, error: OSError) -> None:
        """Fail everything that waits. Its offsets are not used again."""
        log.error(
            "append failed",
            error=str(error),
            offsets_lost=self.next_offset - self._end,
            folder=str(self._folder),
        )
        self.failures += 1
        self.unavailable = error
        self._gathered = False
        self.failed_commit = self._commit_number
        self._commit_number += 1
        self._waiting_bytes = 0
        self._blocks, self._offsets, self._filling = [], [], None
        self._durability = Durability.MEMORY
        self._running_loop.call_later(LOG_RETRY_SECONDS, self._try_again)

    def _try_again(self) -> None:
        if self._loop is None:
            return
        offset = self.next_offset

        def attempt() -> None:
            works = False
            try:
                works = self._committer.revive(offset)
            finally:
                self._post(lambda: self._tried(works=works))

        self._committer.later(attempt)

    def _tried(self, *, works: bool) -> None:
        if works:
            log.info("log available again", folder=str(self._folder))
            self.unavailable = None
            self._settled()
        else:
            self._running_loop.call_later(LOG_RETRY_SECONDS, self._try_again)

    # --- Reading ----------------------------------------------------------------------------------

    @property
    def horizon(self) -> int:
        """See ports.LogReader."""
        return self._catalog.horizon

    def horizon_of(self, pattern: str) -> int:
        """See ports.LogReader."""
        return self._catalog.horizon_of(pattern)

    @property
    def expiry(self) -> object:
        """See ports.LogReader."""
        return self._catalog.horizons

    @property
    def end(self) -> int:
        """See ports.LogReader."""
        return self._end

    def fetch(
        self,
        offset: int,
        then: Callable[[Fetched | LogError], None],
        topics: TopicFilter | None = None,
    ) -> None:
        """See ports.LogReader."""
        self._row_group_reader.fetch(offset, self._end, then, topics)

    def find_time(self, timestamp_us: int, then: Callable[[int | LogError], None]) -> None:
        """See ports.LogReader."""
        self._row_group_reader.find_time(timestamp_us, self._end, then)

    def find_last(self, then: "Callable[[array[int] | LogError], None]") -> None:
        """See ports.LogReader."""
        if self._table is None:
            raise AssertionError("the log is not attached")
        self._row_group_reader.find_last(self._table, self._end, then)

    @property
    def _row_group_reader(self) -> RowGroupReader:
        if self._reader is None:
            raise AssertionError("the log is not attached")
        return self._reader

    def bounds(self) -> Mapping[int, Bounds]:
        """See ports.Storage."""
        return {self.partition: self._scanner.bounds()}

    def scan(
        self,
        span: PartitionRange,
        selection: Selection,
        *,
        columns: Sequence[str] | None = None,
        reading: Callable[[int], None] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """See ports.Storage."""
        return self._scanner.scan(span, selection, columns, reading=reading)

    def split(
        self, span: PartitionRange, selection: Selection, *, count: int
    ) -> list[PartitionRange]:
        """See ports.Storage."""
        return self._scanner.split(span, selection, count)

    def match(
        self, span: PartitionRange, selection: Selection, *, rows_max: int | None = None
    ) -> Matched:
        """See ports.Storage."""
        return self._scanner.match(span, selection, rows_max)

    def count_topics(self, span: PartitionRange, selection: Selection) -> TopicCounts:
        """See ports.Storage."""
        return self._scanner.count_topics(span, selection)

    def offset_at(self, partition: int, timestamp_us: int) -> int:
        """See ports.Storage."""
        return self._scanner.offset_at(partition, timestamp_us)

    def damage(self, span: PartitionRange) -> list[DamagedRange]:
        """See ports.Storage."""
        return self._scanner.damage(span)

    def nodes(self) -> Sequence[NodeStatus]:
        """See ports.Storage."""
        return ()

    def stored_topics(self) -> frozenset[str]:
        """See ports.Storage."""
        return self._scanner.stored_topics()

    def _save_state(self, *, next_offset: int | None = None, horizon: int | None = None) -> None:
        old = self._state
        self._state = LogState(
            log_id=old.log_id,
            partition=old.partition,
            next_offset=old.next_offset if next_offset is None else next_offset,
            end=old.end if next_offset is None else self._end,
            horizon=old.horizon if horizon is None else horizon,
        )
        save_state(self._files, self._folder, self._state)

    # --- Retention --------------------------------------------------------------------------------

    def _retain(self) -> None:
        """Remove expired segments, and hide expired messages of others, in the writer thread."""
        settings = self._options.retention
        now_us = time.time_ns() // 1000
        if settings.segment_us is not None:
            try:
                self._committer.roll_older(now_us - settings.segment_us)
            except OSError as error:
                log.warning("old segments not removed", error=str(error))
        closed = self._closed_segments()
        self._retention.apply(
            closed,
            active_bytes=self._catalog.size - sum(each.size for each in closed),
            gone=self._expire_topics(closed, now_us),
        )
        if settings.age_seconds_max is not None:
            self._hide_older(now_us - int(settings.age_seconds_max * 1_000_000))
        self._retention.check(self._catalog.size)

    def _closed_segments(self) -> list[Segment]:
        return [each for each in self._catalog.segments() if isinstance(each, Segment)]

    def _expire_topics(self, closed: list[Segment], now_us: int) -> int:
        """Apply the rules of topics; return how many of the oldest segments have nothing left."""
        if not self._options.retention.rules:
            return 0
        try:
            self._topic_expiry.apply(now_us)
            return self._topic_expiry.expired_segments(closed)
        except (OSError, LogError) as error:
            log.warning("old segments not removed", error=str(error))
            return 0

    def _hide_older(self, timestamp_us: int) -> None:
        """Move the horizon of readers behind row groups that are older than a time.

        The newest segments cannot be removed, and a segment goes as a whole. The horizon that is
        stored is that of removed segments: recovery removes all segments before it.
        """
        try:
            place = self._catalog.place_of_time(timestamp_us)
        except OSError as error:
            log.warning("old segments not removed", error=str(error))
            return
        segments = self._catalog.segments()
        end = segments[-1].end_offset if segments else self._catalog.horizon
        self._catalog.forget([], end if place is None else place.entry.base_offset)

    def _advance_horizon(self, gone: list[int], horizon: int) -> None:
        removed = self._removals.save(gone, horizon, self._catalog.damage)
        self._save_state(horizon=horizon)
        self._removals.current = removed
        self._catalog.forget(gone, horizon)

    def _retain_later(self) -> None:
        """Apply retention now and again after an interval."""
        if self._loop is not None and self._options.retention.bounded:
            self._committer.later(self._retain)
            self._loop.call_later(self._options.retention.interval_seconds, self._retain_later)
