"""Epochs of writers that may publish through any node: see decision 47.

The last epoch of a writer is in the store that all nodes share. The folder has the staged rows, the
tasks of an epoch that has begun here, and a copy of the shared state.

    begin      store that the epoch has begun here; if two nodes do so, the store selects one
    publish    append the rows that the log lacks; store with the last rows that the epoch is done

If the process that began an epoch has ended or does not report, another process takes the epoch
over when Spark repeats the batch there. The rows were staged again, so they are compared with those
in the log.
"""

import time
import uuid
from collections.abc import Callable, Iterator

import msgspec
import pyarrow as pa
import structlog

from penstock.core.quotas import Quota
from penstock.errors import SinkElsewhere
from penstock.flight.errors import EpochOutOfOrder, NotStaged, StagingFull
from penstock.limits import (
    SINK_COMPARED_ROW_BYTES,
    SINK_FINAL_SECONDS_MAX,
    SINK_WRITERS_MAX,
    SINK_WRITERS_PER_PRINCIPAL_MAX,
)
from penstock.memory import Purpose
from penstock.ports import PartitionRange, Prepared, Storage
from penstock.ports.selection import Selection
from penstock.ports.sinks import SinkEpoch, SinkStore, SinkWriter
from penstock.server.flight.logged_rows import EPOCH_COLUMNS, LoggedRows, of_epoch
from penstock.server.flight.publisher import Publisher
from penstock.server.flight.sink_files import Publishing, SinkFiles, WriterState
from penstock.storage.schema import ROWS_SCHEMA

__all__ = ["SharedEpochs", "skipping"]

log = structlog.get_logger("penstock.flight")

_RowFilter = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Returns the rows of a batch that the log lacks; called with all staged batches, in order."""


class SharedEpochs:
    """The epochs of all writers, for a node. The caller ensures one call per writer at a time."""

    def __init__(
        self, files: SinkFiles, store: SinkStore, storage: Storage, publisher: Publisher
    ) -> None:
        self._files = files
        self._store = store
        self._storage = storage
        self._publisher = publisher

    def synced(self, state: WriterState) -> WriterState:
        """Return the shared state of a writer, whose state in the folder is `state`, and save it.

        An epoch that has begun here is kept, unless another process has taken it over.
        """
        record = self._store.load(state.writer)
        if record is None or record.epoch < state.epoch:  # the folder is of an earlier version
            return state
        publishing = state.publishing
        if publishing is not None and not self._has_begun_here(record, publishing):
            publishing = None
        known = WriterState(
            state.writer,
            record.owner,
            record.epoch,
            record.rows,
            final=record.final,
            publishing=publishing,
        )
        if known != state:
            self._files.save(known)
            tasks = self._files.tasks(state.writer)
            self._files.remove(state.writer, [task for task in tasks if task.epoch <= known.epoch])
        return known

    def _has_begun_here(self, record: SinkWriter, publishing: Publishing) -> bool:
        """Return whether the epoch that has begun is the one that is published from this folder."""
        begun = record.begun
        return (
            begun is not None
            and record.node == self._storage.partition
            and (begun.epoch, begun.source) == (publishing.epoch, publishing.source)
        )

    def register(self, state: WriterState) -> None:
        """Store the state of a writer that an earlier version has kept in the folder only."""
        record = self._store.load(state.writer)
        if state.epoch < 0 or state.final or state.publishing is not None:
            return
        if record is None or (record.begun is None and record.epoch < state.epoch):
            self._store.store(state.writer, _shared(state), after=record)

    # --- Beginning --------------------------------------------------------------------------------

    def begin(self, state: WriterState, publishing: Publishing) -> WriterState:
        """Store that an epoch begins here; raise SinkElsewhere if another node publishes it."""
        writer = state.writer
        record = self._store.load(writer)
        if record is None:
            self._check_room(writer, state.owner)
        elif record.epoch >= publishing.epoch:
            raise SinkElsewhere(writer, record.node)
        else:
            self._store.release(writer, record)
        before = None if record is None else record.begun
        if before is not None and publishing.epoch < before.epoch:
            raise EpochOutOfOrder(writer, publishing.epoch, before.epoch)
        if before is not None and publishing.epoch > before.epoch:
            raise NotStaged(writer, before.epoch, 0)
        if before is not None:  # if it cannot be taken over, the state remains as it is
            self._compared(state, publishing, before)
        own = self._storage.partition
        starts = {} if before is None else dict(before.starts)
        starts[own] = min(publishing.start, starts.get(own, publishing.start))
        epoch = SinkEpoch(
            publishing.epoch,
            starts,
            {} if before is None else before.processes,
            source=uuid.uuid4().hex if before is None else "",
            final=publishing.final,
        )
        self._store.store(writer, _shared(state, epoch), after=record)
        saved = msgspec.structs.replace(publishing, start=starts[own], source=epoch.source)
        begun = msgspec.structs.replace(state, publishing=saved)
        self._files.save(begun)
        if before is not None:
            log.info("epoch taken over", writer=writer, epoch=before.epoch, starts=starts)
        return begun

    def _check_room(self, writer: str, owner: str) -> None:
        """Raise StagingFull if there is no place for a new writer."""
        full = self._full(writer, owner)
        if full is not None:
            self.forget_final()
            full = self._full(writer, owner)
            if full is not None:
                raise full

    def _full(self, writer: str, owner: str) -> StagingFull | None:
        """Return the error if there are too many writers, of all principals or of the owner."""
        states = self._store.all()
        if len(states) >= SINK_WRITERS_MAX:
            return StagingFull(writer, "writers", SINK_WRITERS_MAX)
        count = sum(state.owner == owner for state in states.values())
        if count >= SINK_WRITERS_PER_PRINCIPAL_MAX:
            return StagingFull(writer, "writers of one principal", SINK_WRITERS_PER_PRINCIPAL_MAX)
        return None

    def forget_final(self) -> None:
        """Forget writers whose last epoch was published SINK_FINAL_SECONDS_MAX ago."""
        oldest_us = (time.time() - SINK_FINAL_SECONDS_MAX) * 1e6
        for writer, state in self._store.all().items():
            if state.final and state.begun is None and state.updated_us < oldest_us:
                self._store.forget(writer)

    # --- Publishing -------------------------------------------------------------------------------

    def publish(
        self,
        state: WriterState,
        publishing: Publishing,
        portions: Callable[[_RowFilter], Iterator[Prepared]],
        quota: Quota | None,
    ) -> int:
        """Publish the rows of a begun epoch that the log lacks; return the number in the log.

        `portions` prepares the staged rows that a filter returns. Raise SinkElsewhere if another
        process has taken the epoch over.
        """
        check = self._publisher.call(self._store.guard)  # before the state is read
        writer = state.writer
        record = self._claimed(state, publishing)
        begun = record.begun
        if begun is None or record.epoch >= publishing.epoch:
            return record.rows
        self._store.end_others(record)
        if begun.source:
            logged = self._logged(writer, begun, EPOCH_COLUMNS)
            done = sum(len(rows) for rows in logged)
            rest = skipping(done)
        else:
            done, rest = self._compared(state, publishing, begun)
        added = self._publisher.publish(
            self._with_state(portions(rest), writer, record, done),
            owner=state.owner,
            quota=quota,
            check=check,
        )
        if not added:
            self._store.store(writer, _finished(record, begun, done), after=record)
        return done + added

    def _claimed(self, state: WriterState, publishing: Publishing) -> SinkWriter:
        """Return the shared state, in which the epoch is done or this process has begun it."""
        writer, own = state.writer, self._storage.partition
        record = self._store.load(writer)
        if record is not None:
            if record.epoch >= publishing.epoch:
                return record
            if not self._has_begun_here(record, publishing):
                raise SinkElsewhere(writer, record.node)
            if record.process == self._store.process:
                return record
        # An earlier process has begun it. This one may assign offsets again that were lost.
        before = SinkEpoch(publishing.epoch, {}) if record is None else record.begun
        if before is None:
            raise AssertionError("an epoch that has not begun")
        start = min(publishing.start, self._storage.next_offset)
        starts = {**before.starts, own: min(start, before.starts.get(own, start))}
        epoch = msgspec.structs.replace(
            before, starts=starts, source=publishing.source, final=publishing.final
        )
        return self._store.store(writer, _shared(state, epoch), after=record)

    def _compared(
        self, state: WriterState, publishing: Publishing, begun: SinkEpoch
    ) -> tuple[int, _RowFilter]:
        """Compare staged rows with the log; return how many it has, and a filter for the others.

        Raise EpochDiffers if rows in the log are not staged.
        """
        columns = (*EPOCH_COLUMNS, *ROWS_SCHEMA.names)
        memory = self._publisher.memory
        with memory.draw(
            Purpose.FLIGHT,
            SINK_COMPARED_ROW_BYTES * self._rows_logged(state.writer, begun),
            principal=state.owner,
        ):
            logged = LoggedRows(
                self._logged(state.writer, begun, columns),
                writer=state.writer,
                epoch=publishing.epoch,
            )
            logged.check(
                rows for task in publishing.tasks for rows in self._files.read(state.writer, task)
            )
        return logged.count, logged.without

    def _rows_logged(self, writer: str, begun: SinkEpoch) -> int:
        return sum(len(rows) for rows in self._logged(writer, begun, EPOCH_COLUMNS))

    def _logged(
        self, writer: str, begun: SinkEpoch, columns: tuple[str, ...]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of an epoch that are in the log."""
        for partition, start in begun.starts.items():
            if partition == self._storage.partition:
                end = self._storage.bounds()[partition].end
                if start >= end:
                    continue
                span = PartitionRange(partition, start, end)
                batches = self._storage.scan(span, Selection(), columns=columns)
            else:
                batches = self._store.scan(partition, start, columns=columns)
            yield from of_epoch(batches, writer, begun.epoch)

    def _with_state(
        self, portions: Iterator[Prepared], writer: str, record: SinkWriter, done: int
    ) -> Iterator[Prepared]:
        """Yield portions; the last one carries the state that the epoch is done."""
        begun = record.begun
        last: Prepared | None = None
        for each in portions:
            if last is not None:
                yield last
            last = each
            done += len(each)
        if last is not None and begun is not None:
            state = _finished(record, begun, done)
            self._store.store_with(last, writer, state, after=record)
            yield last


def skipping(count: int) -> _RowFilter:
    """Return a filter that leaves out the first `count` rows of all batches together."""

    def rest(rows: pa.RecordBatch) -> pa.RecordBatch:
        nonlocal count
        left = rows.slice(min(count, len(rows)))
        count -= len(rows) - len(left)
        return left

    return rest


def _shared(state: WriterState, begun: SinkEpoch | None = None) -> SinkWriter:
    return SinkWriter(state.owner, state.epoch, state.rows, final=state.final, begun=begun)


def _finished(record: SinkWriter, begun: SinkEpoch, rows: int) -> SinkWriter:
    return SinkWriter(record.owner, begun.epoch, rows, final=begun.final)
