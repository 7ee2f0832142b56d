"""The Arrow log: messages in segment files on the local disk.

The event loop's thread owns an ArrowLog, and a thread of its own writes the segments.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import structlog

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.errors import LogError
from penstock.limits import ROW_INDEX_ACTIVE_SHARE
from penstock.ports import (
    Bounds,
    DamagedRange,
    Fetched,
    Follower,
    KnownTopic,
    LastFound,
    Matched,
    PartitionRange,
    Prepared,
    Receipt,
    Record,
    SegmentStatus,
    ServiceStore,
    SessionStore,
    SinkStore,
    StorageStatus,
    TopicCounts,
    TopicFilter,
)
from penstock.ports.nodes import NodeStatus
from penstock.ports.selection import Selection
from penstock.protocols import Source
from penstock.storage.appends import Appends
from penstock.storage.arrow.format.file_names import partition_folder
from penstock.storage.arrow.format.log_state import LogState, save_state
from penstock.storage.arrow.format.topic_horizons import known_horizons
from penstock.storage.arrow.read.active_rows import ActiveRows
from penstock.storage.arrow.read.catalog import Catalog
from penstock.storage.arrow.read.reader import RowGroupReader
from penstock.storage.arrow.read.scan import LogScanner
from penstock.storage.arrow.read.tiered_files import TieredFiles
from penstock.storage.arrow.recover.recovery import Segment, recover
from penstock.storage.arrow.write.committer import Committer, Tail
from penstock.storage.arrow.write.last_message_record import LastMessageRecord
from penstock.storage.arrow.write.merging import SegmentMerging
from penstock.storage.arrow.write.prepared import prepare
from penstock.storage.arrow.write.removal_record import RemovalRecord
from penstock.storage.arrow.write.retention import SegmentRetention, tried_again
from penstock.storage.arrow.write.row_indexing import RowIndexing
from penstock.storage.arrow.write.tiering import Tiering
from penstock.storage.arrow.write.topic_journal import TopicJournal
from penstock.storage.arrow.write.topic_retention import TopicExpiry
from penstock.storage.arrow.write.watermark import Watermark
from penstock.storage.commits import Outcome
from penstock.storage.files import Files
from penstock.storage.group_offsets import GroupOffsets
from penstock.storage.options import LogOptions

__all__ = ["ArrowLog"]

log = structlog.get_logger("penstock.log")


class ArrowLog:
    """A `ports.Storage` with one partition, in the folder `data`.

    Opening recovers the log after an unclean stop; raise LogInUse, LogFormatTooNew, or OSError.
    """

    keeps_history = True
    finds_last = True
    sessions: SessionStore | None = None
    services: ServiceStore | None = None
    sinks: SinkStore | None = None
    follow_problem: str | None = None

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
        times = [segment.last_us for segment in recovered.segments if segment.last_us is not None]
        self.last_us = max(times, default=None)
        self.partition, self.partitions = partition, (partition,)
        self.groups = GroupOffsets(data)
        active_rows_bytes = int(self._options.index_cache_bytes_max * ROW_INDEX_ACTIVE_SHARE)
        self._catalog = Catalog(
            self._files,
            self._folder,
            recovered.segments,
            recovered.damage,
            horizon=recovered.horizon,
            index_bytes_max=self._options.index_cache_bytes_max - active_rows_bytes,
            horizons=known_horizons(self._files, self._folder),
        )
        self._journal = TopicJournal(self._files, self._folder)
        self._journaled = self._journal.load()
        self._removals = RemovalRecord(self._files, self._folder, horizon=recovered.state.horizon)
        self._scanner = LogScanner(
            self._files,
            self._folder,
            self._catalog,
            partition=partition,
            end=lambda: self.end,
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
            rolled=self._rolled,
            cache_bytes_max=self._options.cache_bytes_max,
            watermark=self._watermark,
        )
        self._appends = Appends(
            self._options,
            self._committer,
            self._journal,
            next_offset=recovered.next_offset,
            place={"folder": str(self._folder)},
        )
        self._retention = SegmentRetention(
            self._files, self._folder, self._options.retention, self._advance_horizon
        )
        self._topic_expiry = TopicExpiry(
            self._files,
            self._catalog,
            self._options.retention.rules,
            later=self._committer.later,
            segment_bytes_max=self._options.retention.segment_bytes(
                self._options.segment_bytes_max
            ),
        )
        self._active_rows = ActiveRows(bytes_max=active_rows_bytes)
        self._row_indexing = RowIndexing(
            self._files,
            self._catalog,
            active=self._active_rows,
            merging=SegmentMerging(self._files, self._catalog),
            record=LastMessageRecord(self._files, self._catalog),
        )
        self._tiering = self._new_tiering()
        self._table: TopicTable | None = None
        self._reader: RowGroupReader | None = None

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
            is_ready=self._row_indexing.has_seen,
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
        self._table = topics
        self._appends.attach(topics, settled)
        self._reader = RowGroupReader(
            self._files,
            self._catalog,
            self._appends.post,
            stale_rows=self._row_indexing.renew,
            active_rows=self._active_rows,
        )
        self._committer.start()
        self._row_indexing.start()
        if self._tiering is not None:
            self._tiering.start()
        self._retain_later()

    def follow(self, target: Follower) -> None:
        """See ports.Storage: this process writes all messages."""

    async def flush(self) -> None:
        """See ports.Storage."""
        await self._appends.flush()

    def close(self) -> None:
        """See ports.Storage: also seals the segment and unlocks the folder."""
        self._appends.close()
        try:
            self._topic_expiry.stop()
            self._row_indexing.stop()
            if self._tiering is not None:
                self._tiering.stop()
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

    # --- Status -----------------------------------------------------------------------------------

    @property
    def problem(self) -> str | None:
        """See ports.Storage."""
        error = self._appends.unavailable
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
            end=self.end,
            durable_end=self._appends.durable_end,
            next_offset=self.next_offset,
            segments=tuple(
                SegmentStatus(each.base_offset, each.end_offset, each.size, each.last_us)
                for each in self._catalog.segments()
            ),
            waiting_bytes=self._appends.waiting_bytes,
            commits=self._committer.commits,
            failures=self._appends.failures,
            segments_removed=self._retention.removed,
            excess_bytes=self._retention.excess_bytes,
            age_seconds_max=self._options.retention.age_seconds_max,
            bytes_max=self._options.retention.bytes_max,
            sync_times=self._committer.syncs.times(),
            retention_rules=self._topic_expiry.status(),
            tier=None if self._tiering is None else self._tiering.status(),
        )

    # --- Writing ----------------------------------------------------------------------------------

    @property
    def next_offset(self) -> int:
        """See ports.LogWriter."""
        return self._appends.next_offset

    @property
    def written_commit(self) -> int:
        """See ports.LogWriter."""
        return self._appends.written_commit

    @property
    def durable_commit(self) -> int:
        """See ports.LogWriter."""
        return self._appends.durable_commit

    @property
    def failed_commit(self) -> int:
        """See ports.LogWriter."""
        return self._appends.failed_commit

    @property
    def waiting_bytes(self) -> int:
        """See ports.Storage."""
        return self._appends.waiting_bytes

    @property
    def crowded(self) -> bool:
        """See ports.LogWriter."""
        return self._appends.waiting_bytes > self._options.waiting_bytes_max

    def append(self, batch: Batch, sender_name: str) -> Receipt:
        """See ports.LogWriter."""
        return self._appends.append(batch, sender_name)

    def append_record(self, record: Record) -> Receipt:
        """See ports.LogWriter."""
        return self._appends.append_record(record)

    def append_prepared(self, rows: Prepared) -> Receipt:
        """See ports.LogWriter."""
        return self._appends.append_prepared(rows)

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
        return self._appends.add_topic(name, creator)

    def remove_topic(self, name: str) -> Receipt:
        """See ports.LogWriter."""
        return self._appends.remove_topic(name)

    def _done(self, outcome: Outcome) -> None:
        """Receive an outcome, in the writer thread."""
        self._appends.done(outcome)

    # --- Reading ----------------------------------------------------------------------------------

    @property
    def horizon(self) -> int:
        """See ports.LogReader."""
        return self._catalog.horizon

    def horizon_of(self, pattern: str) -> int:
        """See ports.LogReader."""
        return self._catalog.horizon_of(pattern)

    def expired_below(self, pattern: str) -> int:
        """See ports.LogReader."""
        return self._catalog.expired_below(pattern)

    @property
    def expiry(self) -> object:
        """See ports.LogReader."""
        return self._catalog.horizons

    @property
    def end(self) -> int:
        """See ports.LogReader."""
        return self._appends.end

    def fetch(
        self,
        offset: int,
        then: Callable[[Fetched | LogError], None],
        topics: TopicFilter | None = None,
    ) -> None:
        """See ports.LogReader."""
        self._row_group_reader.fetch(offset, self.end, then, topics)

    def find_time(self, timestamp_us: int, then: Callable[[int | LogError], None]) -> None:
        """See ports.LogReader."""
        self._row_group_reader.find_time(timestamp_us, self.end, then)

    def find_last(
        self, then: Callable[[LastFound | LogError], None], known: LastFound | None = None
    ) -> None:
        """See ports.LogReader."""
        if self._table is None:
            raise AssertionError("the log is not attached")
        self._row_group_reader.find_last(self._table, self.end, then, known)

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
            end=old.end if next_offset is None else self.end,
            horizon=old.horizon if horizon is None else horizon,
        )
        save_state(self._files, self._folder, self._state)

    # --- Retention --------------------------------------------------------------------------------

    def _rolled(self) -> None:
        """Note in the writer thread that a segment was sealed."""
        self._row_indexing.wake()
        if self._options.retention.bounded:
            self._retain()

    def _retain(self) -> None:
        """Remove expired segments, and hide expired messages of others, in the writer thread."""
        settings = self._options.retention
        now_us = time.time_ns() // 1000
        if settings.segment_us is not None:
            with tried_again():
                self._committer.roll_older(now_us - settings.segment_us)
                self._row_indexing.wake()
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
        count = 0
        if self._options.retention.rules:
            with tried_again():
                self._topic_expiry.apply(now_us)
                count = self._topic_expiry.expired_segments(closed)
        return count

    def _hide_older(self, timestamp_us: int) -> None:
        """Move the horizon of readers behind row groups that are older than a time.

        The newest segments cannot be removed, and a segment goes as a whole. The horizon that is
        stored is that of removed segments: recovery removes all segments before it.
        """
        with tried_again():
            place = self._catalog.place_of_time(timestamp_us)
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
        if self._options.retention.bounded:
            self._committer.later(self._retain)
            self._appends.call_later(self._options.retention.interval_seconds, self._retain_later)
