"""Collects messages in blocks and passes them to the writer thread, one commit at a time.

The thread of the event loop owns it. The outcome of a commit comes back to the same thread, which
moves the commit numbers and lets the broker settle.
"""

import asyncio
import errno
from array import array
from collections.abc import Callable
from typing import Final, NamedTuple
from typing import Protocol as Port

import structlog

from penstock._kernels.batch import Batch
from penstock._kernels.block import Block, TopicSlots
from penstock._kernels.topics import TopicTable
from penstock.errors import LogUnavailable, MessageTooLarge
from penstock.limits import (
    BLOCK_BYTES_MAX,
    BLOCK_ROWS_MAX,
    LOG_RETRY_SECONDS,
    SPARE_BLOCK_BYTES_MAX,
    SPARE_BLOCKS_MAX,
)
from penstock.model import Durability
from penstock.ports import Prepared, Receipt, Record
from penstock.storage.arrow.write.prepared import PreparedRowGroup
from penstock.storage.commits import Commit, Outcome, Writes
from penstock.storage.options import LogOptions

__all__ = ["Appends", "BlockLimits", "Runs", "TopicNotes"]

log = structlog.get_logger("penstock.log")

_NO_ROUTES: Final = array("I")
_DURABILITIES: Final = tuple(Durability)  # by number
_SPARE_SECONDS: Final = 10.0
"""How long unused blocks are kept for the next burst, at least; at most twice as long."""


class BlockLimits(NamedTuple):
    """How much a block, a value and a prepared row group may have; `value_limit` says why."""

    rows_max: int = BLOCK_ROWS_MAX
    bytes_max: int = BLOCK_BYTES_MAX
    value_bytes_max: int | None = None
    row_group_bytes_max: int | None = None
    value_limit: str = ""


_LIMITS: Final = BlockLimits()


class TopicNotes(Port):
    """Takes note of topics, which are stored with the next commit."""

    def add(self, name: str, creator: bytes, owner: str) -> None:
        """Note a topic that was created, with the 16 bytes of its creator's id or none."""

    def add_used(self, name: str, owner: str) -> None:
        """Note a topic that exists because it is used."""

    def remove(self, name: str) -> None:
        """Note that a topic was deleted."""


class Runs(Port):
    """Numbers messages so that consecutive messages with the same number get a block of their own.

    A run is such consecutive messages. The number 0 stands for messages that need no own block.
    """

    run_bytes_min: int
    """Bytes of a run from which it gets a block of its own."""

    def of_batch(self, batch: Batch, topics: TopicTable) -> int:
        """Return the number of the messages of a batch."""

    def of_topic(self, name: str) -> int:
        """Return the number of the messages of a topic."""


class Appends:
    """The messages that are not committed yet, and the commit numbers of a log.

    All messages before `durable_end` are known to be safe, those found at opening included.
    `place` are fields for events of the log.
    """

    def __init__(
        self,
        options: LogOptions,
        writer: Writes,
        topics: TopicNotes,
        *,
        next_offset: int,
        place: dict[str, str],
        limits: BlockLimits = _LIMITS,
        runs: Runs | None = None,
    ) -> None:
        self._options = options
        self._writer = writer
        self._topics = topics
        self._place = place
        self.limits = limits
        self._runs = runs
        self._run = 0  # the number of the current run
        self._run_start = 0  # bytes in its block before it
        self.next_offset = next_offset
        self.written_commit = self.durable_commit = self.failed_commit = 0
        self.end = self.durable_end = next_offset
        self.unavailable: OSError | None = None
        """Why appends are refused at the moment."""
        self.failures = 0  # commits that failed
        self.waiting_bytes = 0
        self._slots = TopicSlots()
        self._spare: list[Block] = []
        self._filling: Block | None = None
        self._blocks: list[Block | PreparedRowGroup] = []
        self._offsets: list[int] = []
        self._nodes: dict[int, set[int]] = {}  # nodes that private messages are for, by block
        self._commit_number = 1
        self._durability = Durability.MEMORY
        self._committing = False
        self._called = False
        self._gathered = False  # whether anything waits for the writer
        self._refused = False
        self._topics_known = 0
        self._attempt = 0  # the last one to write again after a failure
        self._attempting = False
        self._table: TopicTable | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._settled: Callable[[], None] = lambda: None
        self._flushed: asyncio.Future[None] | None = None
        self._sparing: asyncio.TimerHandle | None = None
        self._spare_used = False  # whether there was a commit since `_sparing` was set

    # --- Lifecycle --------------------------------------------------------------------------------

    def attach(self, topics: TopicTable, settled: Callable[[], None]) -> None:
        """Start to accept messages; see ports.Storage."""
        self._loop = asyncio.get_running_loop()
        self._table = topics
        self._topics_known = len(topics)
        self._settled = settled

    async def flush(self) -> None:
        """Wait until all appends so far are settled."""
        last = self._commit_number if self._gathered else self._commit_number - 1
        while self._loop is not None and max(self.written_commit, self.failed_commit) < last:
            self._flushed = self._flushed or self._loop.create_future()
            await asyncio.shield(self._flushed)

    def close(self) -> None:
        """Pass everything that waits to the writer; no outcome is reported any more."""
        if self._loop is not None:
            self._committing = False
            self._commit()
            self._loop = None

    def post(self, work: Callable[[], None]) -> None:
        """Run `work` in the thread of the event loop."""
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(work)

    def call_later(self, seconds: float, work: Callable[[], object]) -> None:
        """Run `work` in the thread of the event loop, unless the log is closed by then."""
        if self._loop is not None:
            self._loop.call_later(seconds, lambda: self._loop is not None and work())

    def refuse(self, error: Exception) -> None:
        """Refuse all appends from now on."""
        self._refused = True
        self.unavailable = OSError(errno.EIO, str(error))

    # --- Appending --------------------------------------------------------------------------------

    def append(self, batch: Batch, sender_name: str) -> Receipt:
        """See ports.LogWriter."""
        topics = self.open()
        size_max = self.limits.value_bytes_max
        if size_max is not None:
            fitting = batch.select(_NO_ROUTES, None, value_bytes_max=size_max)
            if len(fitting) < len(batch):
                raise self._too_large(size_max)
        rules = self._options.durability
        table = rules.table(topics)
        name = sender_name.encode()
        first = offset = self.next_offset
        end = first + len(batch)
        if self._runs is not None:
            self._enter_run(self._runs.of_batch(batch, topics), self._runs.run_bytes_min)
        durability = 0
        while offset < end:
            block = self._block(offset)
            bytes_before = block.held_bytes
            offset += block.append(
                batch, topics, offset - first, name, table, durability=rules.default
            )
            durability = max(durability, block.durability)
            self.waiting_bytes += block.held_bytes - bytes_before
        self.next_offset = end
        return self._receipt(first, _DURABILITIES[durability])

    def append_record(self, record: Record) -> Receipt:
        """See ports.LogWriter."""
        self.open()
        self._check_size(len(record.value), self.limits.value_bytes_max)
        if self._runs is not None:
            number = 0 if record.nodes else self._runs.of_topic(record.topic)
            self._enter_run(number, self._runs.run_bytes_min)
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
        if record.nodes:
            self._nodes.setdefault(len(self._blocks) - 1, set()).update(record.nodes)
        self.waiting_bytes += block.held_bytes - bytes_before
        self.next_offset = offset + 1
        return self._receipt(offset, self._options.durability.of(record.topic))

    def append_prepared(self, rows: Prepared) -> Receipt:
        """See ports.LogWriter."""
        if not isinstance(rows, PreparedRowGroup):
            raise TypeError("the rows were prepared for another storage")
        self.open()
        self._check_size(rows.held_bytes, self.limits.row_group_bytes_max)
        offset = self.next_offset
        self._filling = None  # later messages go behind these rows
        self._blocks.append(rows)
        self._offsets.append(offset)
        self.waiting_bytes += rows.held_bytes
        self.next_offset = offset + len(rows)
        return self._receipt(offset, Durability.FSYNC)

    def add_topic(self, name: str, creator: bytes) -> Receipt:
        """See ports.LogWriter."""
        topics = self.open(besides=name)
        self._topics.add(name, creator, topics.owner_of(name))
        return self._receipt(self.next_offset, self._options.durability.of(name))

    def remove_topic(self, name: str) -> Receipt:
        """See ports.LogWriter."""
        self.open()
        self._topics.remove(name)
        return self._receipt(self.next_offset, Durability.FSYNC)

    def open(self, besides: str = "") -> TopicTable:
        """Check that appends are possible and note new topics; return the topic table."""
        if self.unavailable is not None:
            raise LogUnavailable(self.unavailable.strerror or str(self.unavailable))
        topics = self._table
        if topics is None:
            raise AssertionError("the log is not attached")
        for number in range(self._topics_known, len(topics)):
            name = topics.name(number)  # a topic is removed after it was noted
            if name != besides:
                self._topics.add_used(name, topics.owner_of(name))
        self._topics_known = len(topics)
        return topics

    def _check_size(self, size: int, size_max: int | None) -> None:
        if size_max is not None and size > size_max:
            raise self._too_large(size_max)

    def _too_large(self, size_max: int) -> MessageTooLarge:
        return MessageTooLarge(f"it has more than {size_max} bytes, {self.limits.value_limit}")

    def _enter_run(self, number: int, bytes_min: int) -> None:
        """Note the number of the next messages; end the block if its run is long enough.

        The block ends when the number changes, or when other messages are before the run in its
        block.
        """
        block = self._filling
        if block is None or block.full:
            self._run, self._run_start = number, 0
            return
        held = block.held_bytes
        many = held - self._run_start >= bytes_min
        if number != self._run:
            self._run, self._run_start = number, held
        elif not number or not self._run_start:
            return
        if many:
            self._filling = None

    def _block(self, offset: int) -> Block:
        """Return a block with room; a new block starts at `offset`."""
        block = self._filling
        if block is None or block.full:
            if self._spare:
                block = self._spare.pop()
            else:
                limits = self.limits
                block = Block(self._slots, rows_max=limits.rows_max, bytes_max=limits.bytes_max)
            block.clear()
            self._run_start = 0
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

    # --- Commits ----------------------------------------------------------------------------------

    def _commit(self) -> None:
        """Pass everything collected to the writer thread."""
        self._called = False
        if self._committing or not self._gathered:
            return
        self._committing = True
        self._gathered = False
        commit = Commit(
            self._commit_number, self._blocks, self._offsets, self._durability, self._nodes
        )
        self._commit_number += 1
        self._blocks, self._offsets, self._filling, self._nodes = [], [], None, {}
        self._durability = Durability.MEMORY
        self._writer.submit(commit)

    def done(self, outcome: Outcome) -> None:
        """Receive the outcome of a commit, in the writer thread."""
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._settle, outcome)

    def _settle(self, outcome: Outcome) -> None:
        """Take the outcome of a commit, and start the next."""
        if self._loop is None:
            return
        self._committing = False
        commit = outcome.commit
        for block in commit.blocks:
            self.waiting_bytes -= block.held_bytes
        if outcome.error is None:
            self.end = outcome.end
            self.written_commit = commit.number
            if outcome.durable:
                self.durable_commit = commit.number
                self.durable_end = outcome.end
        else:
            self._fail(outcome)
        if self._gathered:
            self._commit()  # first: the disk works while clients are answered
        self._settled()
        self._keep_spare(commit.blocks)
        if self._flushed is not None:
            self._flushed.set_result(None)
            self._flushed = None

    def _keep_spare(self, blocks: list[Block | PreparedRowGroup]) -> None:
        """Reuse blocks, whose memory is warm; free them when a burst is over.

        Blocks with large messages are freed at once: a block keeps the memory of its columns.
        """
        self._spare += [
            block
            for block in blocks
            if isinstance(block, Block) and block.held_bytes <= SPARE_BLOCK_BYTES_MAX
        ]
        # Smaller blocks have the same memory together.
        del self._spare[SPARE_BLOCKS_MAX * max(BLOCK_BYTES_MAX // self.limits.bytes_max, 1) :]
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

    # --- Failures ---------------------------------------------------------------------------------

    def _fail(self, outcome: Outcome) -> None:
        """Fail everything that waits. Its offsets are not used again."""
        log.error(
            "append failed",
            error=str(outcome.error),
            offsets_lost=self.next_offset - outcome.end,
            **self._place,
        )
        self.failures += 1
        if not self._refused:
            self.unavailable = outcome.error
        self._gathered = False
        self.failed_commit = self._commit_number
        self._commit_number += 1
        self.waiting_bytes = 0
        self._blocks, self._offsets, self._filling, self._nodes = [], [], None, {}
        self._durability = Durability.MEMORY
        self._running_loop.call_later(LOG_RETRY_SECONDS, self._try_again)

    def _try_again(self) -> None:
        if self._loop is None:
            return
        offset = self.next_offset
        self._attempt += 1
        self._attempting = True
        number = self._attempt

        def attempt() -> None:
            works = False
            try:
                works = self._writer.revive(offset)
            finally:
                self.post(lambda: self._tried(number, works=works))

        self._writer.later(attempt)

    def end_attempt(self) -> None:
        """Give up an attempt to write again, if there is one; the next is later.

        The writer's thread hangs in it, and was replaced.
        """
        self._tried(self._attempt, works=False)

    def _tried(self, number: int, *, works: bool) -> None:
        if self._loop is None or self._refused:
            return
        if not self._attempting or number != self._attempt:
            return  # it was given up
        self._attempting = False
        if works:
            log.info("log available again", **self._place)
            self.unavailable = None
            self._settled()
        else:
            self.unavailable = self._writer.problem or self.unavailable
            self._loop.call_later(LOG_RETRY_SECONDS, self._try_again)
