"""The log on disk: what the broker writes to and reads from.

The event loop's thread owns an ArrowLog. It gathers rows in blocks and hands them to the committer
when the one before is done; outcomes come back to the same thread, which moves the group numbers
and tells the broker to settle.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from penstock._kernels.batch import Batch
from penstock._kernels.block import Block, TopicSlots
from penstock._kernels.topics import TopicTable
from penstock.errors import LogError, LogUnavailable
from penstock.limits import LOG_RETENTION_SECONDS, LOG_RETRY_SECONDS
from penstock.model import Durability
from penstock.ports import Prepared, Receipt, Record
from penstock.storage.arrow.files import Files
from penstock.storage.arrow.format.file_names import partition_folder
from penstock.storage.arrow.format.log_state import LogState, save_state
from penstock.storage.arrow.options import LogOptions
from penstock.storage.arrow.read.catalog import Catalog
from penstock.storage.arrow.read.reader import GroupReader, StoredGroup
from penstock.storage.arrow.recover.recovery import Segment, recover
from penstock.storage.arrow.write.committer import Commit, Committer, Outcome, Tail
from penstock.storage.arrow.write.retention import expired, remove_segments
from penstock.storage.arrow.write.sync_times import SyncTimes
from penstock.storage.arrow.write.topic_journal import TopicJournal
from penstock.storage.arrow.write.watermark import Watermark

__all__ = ["ArrowLog"]

log = structlog.get_logger("penstock.log")

_SPARE_SECONDS: Final = 10.0
"""How long memory is kept for the next rush."""


class ArrowLog:
    """A `ports.LogWriter` and a `ports.LogReader`.

    Opening recovers what an unclean end has left; raise LogInUse, LogFormatTooNew, or OSError.
    Before the first message comes, `attach` must say where outcomes go.
    """

    def __init__(
        self,
        data: Path,
        options: LogOptions | None = None,
        *,
        partition: int = 0,
        files: Files | None = None,
    ) -> None:
        self._options = options or LogOptions()
        self._files = files or Files()
        self._folder = partition_folder(data, partition)
        self._files.make_folder(self._folder)
        self._lock = self._files.lock(self._folder)
        try:
            recovered = recover(self._files, self._folder, partition=partition)
        except BaseException:
            self._files.close(self._lock)
            raise
        self.recovered = recovered
        """What opening found."""
        self._state = recovered.state
        self.log_id = recovered.state.log_id
        self.partition = partition
        self.next_offset = recovered.next_offset
        self.written_group = 0
        self.durable_group = 0
        self.failed_group = 0
        self.unavailable: OSError | None = None
        """Why messages are refused at the moment."""
        self._catalog = Catalog(
            self._files,
            self._folder,
            recovered.segments,
            recovered.damage,
            horizon=recovered.horizon,
        )
        self._journal = TopicJournal(self._files, self._folder)
        self.topics = self._journal.load().names
        """Topics that were known when it was opened, with the ids of their creators."""
        self._end = recovered.next_offset
        self._watermark = Watermark(self._folder, recovered.next_offset)
        self._committer = Committer(
            self._files,
            self._folder,
            log_id=self.log_id,
            partition=partition,
            tail=Tail(recovered.previous_end, recovered.previous_crc),
            keeper=self._catalog,
            journal=self._journal,
            done=self._done,
            segment_bytes_max=self._options.segment_bytes_max,
            cache_bytes_max=self._options.cache_bytes_max,
            watermark=self._watermark,
        )
        self._slots = TopicSlots()
        self._spare: list[Block] = []
        self._filling: Block | None = None
        self._blocks: list[Block | Prepared] = []
        self._offsets: list[int] = []
        self._group = 1
        self._durability = Durability.MEMORY
        self._waiting_bytes = 0
        self._committing = False
        self._called = False
        self._gathered = False  # whether anything waits to be handed to the committer
        self.failures = 0  # commits that failed
        # Up to where all is known to be on disk: what was there at the start counts.
        self.durable_offset = recovered.next_offset
        self.segments_removed = 0
        self._topics_known = 0
        self._table: TopicTable | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._settled: Callable[[], None] = lambda: None
        self._reader: GroupReader | None = None
        self._flushed: asyncio.Future[None] | None = None
        self._sparing: asyncio.TimerHandle | None = None
        self._expired: list[int] = []  # segments that are not kept and may still be there

    # --- Life -------------------------------------------------------------------------------------

    def attach(self, topics: TopicTable, settled: Callable[[], None]) -> None:
        """Start: numbers of topics are those of `topics`, and outcomes are told to `settled`.

        The running event loop's thread is the log's from now on. Topics that `topics` has already
        are known to the log, or need not be.
        """
        self._loop = asyncio.get_running_loop()
        self._table = topics
        self._topics_known = len(topics)
        self._settled = settled
        self._reader = GroupReader(self._files, self._catalog, self._post)
        self._committer.start()
        self._retain_later()

    @property
    def attached(self) -> bool:
        """Whether it takes messages: from `attach` until `close`."""
        return self._loop is not None

    async def flush(self) -> None:
        """Wait until all that was taken so far is settled."""
        group = self._group if self._gathered else self._group - 1
        while max(self.written_group, self.failed_group) < group:
            self._flushed = self._flushed or self._running_loop.create_future()
            await asyncio.shield(self._flushed)

    def close(self) -> None:
        """Write what waits, seal the segment and let the folder go. The caller waits for it.

        Nobody is told of outcomes any more: `flush` comes before it.
        """
        if self._loop is not None:
            self._committing = False
            self._commit()
            self._loop = None
        try:
            if self._reader is not None:
                self._committer.stop()
            self._journal.close()
            self._save_state(next_offset=self.next_offset)
        except OSError as error:  # the next start finds it as after a crash
            log.warning("the log is not closed", error=str(error), folder=str(self._folder))
        finally:
            if self._reader is not None:
                self._reader.close()
            self._watermark.close()
            self._files.close(self._lock)

    def _post(self, work: Callable[[], None]) -> None:
        """Have something done in the loop's thread, from any other."""
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(work)

    # --- Writing ----------------------------------------------------------------------------------

    @property
    def options(self) -> LogOptions:
        """How it is kept."""
        return self._options

    @property
    def waiting_bytes(self) -> int:
        """Values that wait for the disk."""
        return self._waiting_bytes

    @property
    def commits(self) -> int:
        """How many commits went well."""
        return self._committer.commits

    @property
    def sync_times(self) -> SyncTimes:
        """How long the disk took."""
        return self._committer.sync_times

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
            bytes_before = block.value_bytes
            offset += block.append(
                batch, topics, offset - first, name, table, durability=rules.default
            )
            durability = max(durability, block.durability)
            self._waiting_bytes += block.value_bytes - bytes_before
        self.next_offset = end
        return self._receipt(first, Durability(durability))

    def append_record(self, record: Record) -> Receipt:
        """See ports.LogWriter."""
        self._open()
        offset = self.next_offset
        while not self._block(offset).append_record(
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
        ):
            self._filling = None  # the next block has room for any one message
        self._waiting_bytes += len(record.value)
        self.next_offset = offset + 1
        return self._receipt(offset, self._options.durability.of(record.topic))

    def append_group(self, group: Prepared) -> Receipt:
        """See ports.LogWriter."""
        self._open()
        offset = self.next_offset
        self._filling = None  # what comes after it stands behind it
        self._blocks.append(group)
        self._offsets.append(offset)
        self._waiting_bytes += group.value_bytes
        self.next_offset = offset + len(group)
        return self._receipt(offset, Durability.FSYNC)

    def add_topic(self, name: str, creator: bytes) -> Receipt:
        """See ports.LogWriter."""
        self._open(besides=name)
        self._journal.add(name, creator)
        return self._receipt(self.next_offset, self._options.durability.of(name))

    def _open(self, besides: str = "") -> TopicTable:
        """Make sure that messages can be taken, and note topics that are new; return them all."""
        if self.unavailable is not None:
            raise LogUnavailable(self.unavailable.strerror or str(self.unavailable))
        topics = self._table
        if topics is None:
            raise AssertionError("the log is not attached")
        for number in range(self._topics_known, len(topics)):
            name = topics.name(number)
            if name != besides:
                self._journal.add(name, b"")
        self._topics_known = len(topics)
        return topics

    def _block(self, offset: int) -> Block:
        """Return a block with room; if it is new, `offset` is that of its first row."""
        block = self._filling
        if block is None or block.full:
            block = self._spare.pop() if self._spare else Block(self._slots)
            block.clear()
            self._filling = block
            self._blocks.append(block)
            self._offsets.append(offset)
        return block

    def _receipt(self, first_offset: int, durability: Durability) -> Receipt:
        """Say when what was just taken is safe, and have it committed soon."""
        self._durability = max(self._durability, durability)
        self._gathered = True
        if not self._committing and not self._called:
            # Not now: what other clients have sent by this turn of the loop goes with it.
            self._called = True
            self._running_loop.call_soon(self._commit)
        return Receipt(first_offset, self._group, durability)

    @property
    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise AssertionError("the log is not attached")
        return self._loop

    def _commit(self) -> None:
        """Hand all that has gathered to the writer thread."""
        self._called = False
        if self._committing or not self._gathered:
            return
        self._committing = True
        self._gathered = False
        self._committer.submit(Commit(self._group, self._blocks, self._offsets, self._durability))
        self._group += 1
        self._blocks, self._offsets, self._filling = [], [], None
        self._durability = Durability.MEMORY

    def _done(self, outcome: Outcome) -> None:
        """Take an outcome from the writer thread."""
        self._post(lambda: self._settle(outcome))

    def _settle(self, outcome: Outcome) -> None:
        if self._loop is None:
            return
        self._committing = False
        commit = outcome.commit
        for block in commit.blocks:
            self._waiting_bytes -= block.value_bytes
        if outcome.error is None:
            self._end = outcome.end
            self.written_group = commit.group
            if outcome.durable:
                self.durable_group = commit.group
                self.durable_offset = outcome.end
        else:
            self._fail(outcome.error)
        self._keep_spare(commit.blocks)
        self._settled()
        if self._flushed is not None:
            self._flushed.set_result(None)
            self._flushed = None
        if self._gathered:
            self._commit()

    def _keep_spare(self, blocks: list[Block | Prepared]) -> None:
        """Use blocks again: their memory is warm. After a rush they are given back."""
        self._spare += [block for block in blocks if isinstance(block, Block)]
        if self._sparing is not None:
            self._sparing.cancel()
        self._sparing = self._running_loop.call_later(_SPARE_SECONDS, self._spare.clear)

    # --- When the disk fails ----------------------------------------------------------------------

    def _fail(self, error: OSError) -> None:
        """Give up all that waits. Its offsets are not given again."""
        log.error(
            "messages cannot be kept",
            error=str(error),
            offsets_lost=self.next_offset - self._end,
            folder=str(self._folder),
        )
        self.failures += 1
        self.unavailable = error
        self._gathered = False
        self.failed_group = self._group
        self._group += 1
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
            log.info("messages can be kept again", folder=str(self._folder))
            self.unavailable = None
            self._settled()
        else:
            self._running_loop.call_later(LOG_RETRY_SECONDS, self._try_again)

    # --- Reading ----------------------------------------------------------------------------------

    @property
    def horizon(self) -> int:
        """See ports.LogReader."""
        return self._catalog.horizon

    @property
    def end(self) -> int:
        """See ports.LogReader."""
        return self._end

    @property
    def catalog(self) -> Catalog:
        """The segments that there are."""
        return self._catalog

    @property
    def folder(self) -> Path:
        """Where they are."""
        return self._folder

    def fetch(self, offset: int, then: Callable[[StoredGroup | LogError], None]) -> None:
        """See ports.LogReader."""
        self._group_reader.fetch(offset, self._end, then)

    def find_time(self, timestamp_us: int, then: Callable[[int | LogError], None]) -> None:
        """See ports.LogReader."""
        self._group_reader.find_time(timestamp_us, self._end, then)

    @property
    def _group_reader(self) -> GroupReader:
        if self._reader is None:
            raise AssertionError("the log is not attached")
        return self._reader

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
        """Remove what is not to be kept; in the writer thread."""
        retention = self._options.retention
        segments = self._catalog.segments()
        closed = [each for each in segments if isinstance(each, Segment)]
        count = expired(
            closed,
            active_bytes=sum(each.size for each in segments) - sum(each.size for each in closed),
            now_us=time.time_ns() // 1000,
            age_us_max=(
                None
                if retention.age_seconds_max is None
                else int(retention.age_seconds_max * 1_000_000)
            ),
            bytes_max=retention.bytes_max,
        )
        if not count and not self._expired:
            return
        gone = [each.base_offset for each in closed[:count]]
        try:
            if gone:
                horizon = closed[count].base_offset
                self._save_state(horizon=horizon)
                self._catalog.forget(gone, horizon)
                self._expired += gone
            remove_segments(self._files, self._folder, self._expired)
        except OSError as error:
            log.warning("old segments are not removed", error=str(error))
            return
        self.segments_removed += len(self._expired)
        log.info("old segments removed", segments=len(self._expired), horizon=self.horizon)
        self._expired.clear()

    def _retain_later(self) -> None:
        """Look for segments that are too old or too much, now and then."""
        if self._loop is not None and self._options.retention.bounded:
            self._committer.later(self._retain)
            self._loop.call_later(LOG_RETENTION_SECONDS, self._retain_later)
