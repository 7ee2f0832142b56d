"""Sinks: tasks stage the rows of an epoch, then the epoch is published exactly once.

    stage      rows of a task → a file, on disk                    any number of times
    publish    save the epoch and the end of the log → publish → save that it is done

If the process ends between the two saves, the log shows how much of the epoch it has: its rows
carry `writer/epoch/partition`, and their order is fixed. The broker publishes the rest from the
same files when it starts again. So an epoch is published whole, and never twice.
"""

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from penstock.core.access import Action, Principal, authorize, authorize_anywhere
from penstock.core.quotas import Quota
from penstock.errors import NotAllowed, PenstockError
from penstock.flight.errors import BadRequest, EpochOutOfOrder, NotStaged, StagingFull
from penstock.flight.protocol import AbortEpoch, Published, PublishEpoch, Stage, Staged
from penstock.limits import (
    SINK_FINAL_SECONDS_MAX,
    SINK_FORGET_SECONDS_MIN,
    SINK_STALE_SECONDS_MAX,
    SINK_WRITERS_MAX,
    SINK_WRITERS_PER_PRINCIPAL_MAX,
)
from penstock.memory import Purpose
from penstock.ports import PartitionRange, Prepared, Storage
from penstock.ports.selection import Selection
from penstock.protocols import FLIGHT
from penstock.server.flight.publisher import Publisher
from penstock.server.flight.rows import RowCheck, check_columns, expanded_bytes
from penstock.server.flight.sink_files import Publishing, SinkFiles, Task, WriterState

__all__ = ["Sinks"]

log = structlog.get_logger("penstock.flight")

_WRITER: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_TOKEN: Final = re.compile(r"[A-Za-z0-9]{0,64}")
_NUMBER_MAX: Final = (1 << 62) - 1
_COUNTED: Final = ("sender", "protocol", "correlation")
"""Columns by which the rows of an epoch are counted."""


class Sinks:
    """The sinks of all writers. Any thread may call; calls for one writer run one after another."""

    def __init__(self, files: SinkFiles, storage: Storage, publisher: Publisher) -> None:
        self._files = files
        self._storage = storage
        self._publisher = publisher
        self._lock = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}  # with the number of their users
        self._clients: OrderedDict[str, int] = OrderedDict()
        self._forgets_at = float("-inf")
        self._checked: dict[str, dict[Task, object]] = {}
        """By writer and task: the rights of its principal when its staged rows were checked."""

    @contextmanager
    def _locked(self, writer: str) -> Iterator[None]:
        with self._lock:
            lock, users = self._locks.get(writer, (None, 0))
            lock = lock or threading.Lock()
            self._locks[writer] = (lock, users + 1)
        try:
            with lock:
                yield
        finally:
            with self._lock:
                _, users = self._locks[writer]
                if users == 1:
                    del self._locks[writer]
                else:
                    self._locks[writer] = (lock, users - 1)

    # --- Staging ----------------------------------------------------------------------------------

    def stage(
        self,
        request: Stage,
        schema: pa.Schema,
        batches: Iterator[pa.RecordBatch],
        principal: Principal,
    ) -> Staged:
        """Stage the rows of a task on disk, replacing those it staged before.

        For an epoch whose publication has begun, the rows are only counted.
        """
        _check(request.writer, request.epoch, request.partition)
        _check_tokens([request.token])
        authorize_anywhere(principal, Action.PUBLISH)
        check_columns(schema)
        with self._locked(request.writer):
            state = self._state(request.writer, principal)
        if request.epoch < state.epoch:
            raise EpochOutOfOrder(request.writer, request.epoch, state.epoch)
        rights = principal.rights
        check = RowCheck(_publish_check(principal))
        drawn = self._drawn(batches, principal)
        path, rows = self._files.write(request.writer, (check.rows(each) for each in drawn))
        with self._locked(request.writer):
            state = self._state(request.writer, principal)
            begun = state.publishing.epoch if state.publishing else state.epoch
            if request.epoch <= begun:
                self._files.drop(path)
            else:
                task = Task(request.epoch, request.partition, request.token)
                self._files.keep(request.writer, task, path)
                self._checked.setdefault(request.writer, {})[task] = rights
        log.debug("rows staged", rows=rows, **msgspec.structs.asdict(request))
        return Staged(rows)

    def _drawn(
        self, batches: Iterator[pa.RecordBatch], principal: Principal
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches; each is drawn from the memory budget until the next is wanted."""
        memory = self._publisher.memory
        for batch in batches:
            with memory.draw(Purpose.FLIGHT, expanded_bytes(batch), principal=principal.name):
                yield batch

    def abort(self, request: AbortEpoch, principal: Principal) -> None:
        """Remove the staged rows of an epoch, unless its publication has begun."""
        _check(request.writer, request.epoch)
        with self._locked(request.writer):
            state = self._files.load(request.writer)
            if state is None:
                return
            _check_owner(state, principal)
            if state.publishing is None or state.publishing.epoch != request.epoch:
                tasks = self._files.tasks(request.writer)
                self._files.remove(
                    request.writer, [task for task in tasks if task.epoch == request.epoch]
                )

    def _state(self, writer: str, principal: Principal) -> WriterState:
        """Return the state of a writer; create it if there is none."""
        state = self._files.load(writer)
        if state is None:
            if self._full(writer, principal.name) is not None:
                self._forget_final()
                full = self._full(writer, principal.name)
                if full is not None:
                    raise full
            state = WriterState(writer, principal.name)
            self._files.save(state)
        _check_owner(state, principal)
        return state

    def _full(self, writer: str, owner: str) -> StagingFull | None:
        """Return the error of a new writer that there is no place for, None if there is one."""
        if self._files.writer_count >= SINK_WRITERS_MAX:
            return StagingFull(writer, "writers", SINK_WRITERS_MAX)
        if self._files.writer_count_of(owner) >= SINK_WRITERS_PER_PRINCIPAL_MAX:
            return StagingFull(writer, "writers of one principal", SINK_WRITERS_PER_PRINCIPAL_MAX)
        return None

    # --- Publishing -------------------------------------------------------------------------------

    def publish(self, request: PublishEpoch, principal: Principal) -> Published:
        """Publish the rows of an epoch unless they are published; return when they are on disk."""
        _check(request.writer, request.epoch, *request.partitions)
        _check_tokens(request.tokens)
        if request.tokens and len(request.tokens) != len(request.partitions):
            raise BadRequest("tokens", "expected one for each partition, or none")
        with self._locked(request.writer):
            state = self._state(request.writer, principal)
            if state.publishing is not None:
                state = self._finish(state, principal.quota)
            if request.epoch < state.epoch:
                raise EpochOutOfOrder(request.writer, request.epoch, state.epoch)
            if request.epoch == state.epoch:
                return Published(state.rows, again=True)
            begun = self._begin(request, state, principal)
            return Published(self._finish(begun, principal.quota).rows)

    def _begin(
        self, request: PublishEpoch, state: WriterState, principal: Principal
    ) -> WriterState:
        tokens = request.tokens or [""] * len(request.partitions)
        parts = dict(zip(request.partitions, tokens, strict=True))
        publishing = Publishing(
            request.epoch,
            list(parts),
            start=self._storage.next_offset,
            final=request.final,
            tokens=list(parts.values()),
        )
        staged = set(self._files.tasks(request.writer))
        for task in publishing.tasks:
            if task not in staged:
                raise NotStaged(request.writer, request.epoch, task.partition)
        self._check_rights(request.writer, publishing.tasks, principal)
        begun = msgspec.structs.replace(state, publishing=publishing)
        self._files.save(begun)
        return begun

    def _check_rights(self, writer: str, tasks: Sequence[Task], principal: Principal) -> None:
        """Raise NotAllowed if rules changed after rows were staged, and now forbid some."""
        checked = self._checked.get(writer, {})
        for task in tasks:
            if checked.get(task) is principal.rights:
                continue
            for rows in self._files.read(writer, task):
                for name in pc.unique(rows.column("topic")).to_pylist():
                    authorize(principal, Action.PUBLISH, name)

    def _finish(self, state: WriterState, quota: Quota | None = None) -> WriterState:
        """Publish the rows of a begun epoch that the log does not have yet."""
        publishing = state.publishing
        if publishing is None:
            return state
        done = self._count(state.writer, publishing)
        portions = self._portions(state.writer, publishing, skip=done)
        rows = done + self._publisher.publish(portions, owner=state.owner, quota=quota)
        finished = WriterState(
            state.writer, state.owner, publishing.epoch, rows, final=publishing.final
        )
        self._files.save(finished)
        tasks = self._files.tasks(state.writer)
        self._files.remove(state.writer, [task for task in tasks if task.epoch <= publishing.epoch])
        checked = self._checked.pop(state.writer, {})
        later = {task: found for task, found in checked.items() if task.epoch > publishing.epoch}
        if later:
            self._checked[state.writer] = later
        log.debug("epoch published", writer=state.writer, epoch=publishing.epoch, rows=rows)
        return finished

    def _count(self, writer: str, publishing: Publishing) -> int:
        """Return how many rows of an epoch the log has."""
        partition = self._storage.partition
        end = self._storage.bounds()[partition].end
        if publishing.start >= end:
            return 0
        span = PartitionRange(partition, publishing.start, end)
        mark = f"{writer}/{publishing.epoch}/"
        count = 0
        for batch in self._storage.scan(span, Selection(), columns=_COUNTED):
            if writer not in batch.column("sender").dictionary.to_pylist():
                continue
            ours = pc.and_kleene(
                pc.starts_with(batch.column("correlation"), mark),
                pc.equal(batch.column("protocol").dictionary_decode(), FLIGHT.label),
            )
            ours = pc.and_kleene(ours, pc.equal(batch.column("sender").dictionary_decode(), writer))
            count += pc.sum(ours).as_py() or 0
        return count

    def _portions(self, writer: str, publishing: Publishing, *, skip: int) -> Iterator[Prepared]:
        client = self._client(writer)
        for task in publishing.tasks:
            correlation = f"{writer}/{task.epoch}/{task.partition}"
            for rows in self._files.read(writer, task):
                left = rows.slice(min(skip, len(rows)))
                skip -= len(rows) - len(left)
                with self._publisher.memory.draw(Purpose.FLIGHT, rows.nbytes):
                    yield from self._storage.prepare(
                        left, sender=writer, client=client, source=FLIGHT, correlation=correlation
                    )

    def _client(self, writer: str) -> int:
        with self._lock:
            client = self._clients.get(writer)
        if client is None:
            client = self._publisher.new_client()
            with self._lock:
                if len(self._clients) >= SINK_WRITERS_MAX:
                    self._clients.popitem(last=False)
                self._clients[writer] = client
        return client

    # --- After a start ----------------------------------------------------------------------------

    def recover(self) -> None:
        """Finish interrupted publications, and remove stale rows."""
        for writer in self._files.writers():
            with self._locked(writer):
                try:
                    self._recover(writer)
                except (OSError, PenstockError) as error:  # the next call of the writer tries again
                    log.warning("sink not recovered", writer=writer, error=str(error))
        self._forget_final()

    def _recover(self, writer: str) -> None:
        state = self._files.load(writer)
        if state is not None and state.publishing is not None:
            state = self._finish(state)
        self._files.tidy(writer, seconds_max=SINK_STALE_SECONDS_MAX)
        if state is None:
            self._files.forget(writer)
        else:
            tasks = self._files.tasks(writer)
            self._files.remove(writer, [task for task in tasks if task.epoch <= state.epoch])

    def _forget_final(self) -> None:
        """Forget writers that will not come again, unless they were looked at a short time ago."""
        now = time.monotonic()
        if now < self._forgets_at:
            return
        self._forgets_at = now + SINK_FORGET_SECONDS_MIN
        for writer in self._files.writers():
            try:
                state = self._files.load(writer)
                if (
                    state is not None
                    and state.final
                    and state.publishing is None
                    and self._files.age_seconds(writer) > SINK_FINAL_SECONDS_MAX
                    and not self._files.tasks(writer)
                ):
                    self._files.forget(writer)
            except (OSError, PenstockError) as error:
                log.warning("sink not forgotten", writer=writer, error=str(error))


def _check(writer: str, *numbers: int) -> None:
    if not _WRITER.fullmatch(writer):
        problem = "expected up to 128 letters, digits, dots, underscores and hyphens"
        raise BadRequest(f"writer {writer[:200]!r}", problem)
    for number in numbers:
        if not 0 <= number <= _NUMBER_MAX:
            raise BadRequest(f"epoch or partition {number}", f"expected 0 to {_NUMBER_MAX}")


def _check_tokens(tokens: Sequence[str]) -> None:
    for token in tokens:
        if not _TOKEN.fullmatch(token):
            raise BadRequest(f"token {token[:200]!r}", "expected up to 64 letters and digits")


def _check_owner(state: WriterState, principal: Principal) -> None:
    if state.owner != principal.name:
        raise NotAllowed(principal.name, "publish as a writer of another", state.writer)


def _publish_check(principal: Principal) -> Callable[[str], None]:
    def check(name: str) -> None:
        authorize(principal, Action.PUBLISH, name)

    return check
