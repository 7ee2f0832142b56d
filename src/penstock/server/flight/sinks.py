"""Tables that are published: the rows of an epoch are put aside, then go to the log, once.

    stage      rows of a task → a file, on disk                    any number of times
    publish    note the epoch and where the log ends → publish → note that it is done

Whenever the process ends between the notes, the log itself says how much of the epoch it has: its
rows carry `writer/epoch/partition`, and go in one order. The rest follows, of the same files, when
the broker is there again. So an epoch that has begun is published whole, and none twice.
"""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from penstock.core.access import Action, Principal
from penstock.errors import NotAllowed, PenstockError
from penstock.flight.errors import BadRequest, EpochOutOfOrder, NotStaged, StagingFull
from penstock.flight.protocol import AbortEpoch, Published, PublishEpoch, Stage, Staged
from penstock.limits import SINK_FINAL_SECONDS_MAX, SINK_STALE_SECONDS_MAX, SINK_WRITERS_MAX
from penstock.protocols import FLIGHT
from penstock.server.flight.publisher import Publisher
from penstock.server.flight.reading import Reading
from penstock.server.flight.rows import RowCheck, check_columns
from penstock.server.flight.sink_files import Publishing, SinkFiles, Task, WriterState
from penstock.storage.arrow.write.prepared import PreparedGroup, prepare

__all__ = ["Sinks"]

log = structlog.get_logger("penstock.flight")

_WRITER: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_TOKEN: Final = re.compile(r"[A-Za-z0-9]{0,64}")
_NUMBER_MAX: Final = (1 << 62) - 1


class Sinks:
    """All writers. Any thread may call; those of one writer wait for each other."""

    def __init__(self, files: SinkFiles, reading: Reading, publisher: Publisher) -> None:
        self._files = files
        self._reading = reading
        self._publisher = publisher
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._clients: dict[str, int] = {}

    @contextmanager
    def _alone(self, writer: str) -> Iterator[None]:
        with self._lock:
            lock = self._locks.setdefault(writer, threading.Lock())
        with lock:
            yield

    # --- Putting aside ----------------------------------------------------------------------------

    def stage(
        self,
        request: Stage,
        schema: pa.Schema,
        batches: Iterator[pa.RecordBatch],
        principal: Principal,
    ) -> Staged:
        """Put the rows of a task aside, on disk, in place of what it brought before.

        An epoch that is published, or has begun to be, has its rows: then these are only counted.
        """
        _check(request.writer, request.epoch, request.partition)
        _check_tokens([request.token])
        check_columns(schema)
        with self._alone(request.writer):
            state = self._state(request.writer, principal)
        if request.epoch < state.epoch:
            raise EpochOutOfOrder(request.writer, request.epoch, state.epoch)
        check = RowCheck(_judge(principal))
        path, rows = self._files.write(request.writer, (check.rows(each) for each in batches))
        with self._alone(request.writer):
            state = self._state(request.writer, principal)
            begun = state.publishing.epoch if state.publishing else state.epoch
            if request.epoch <= begun:
                self._files.drop(path)
            else:
                task = Task(request.epoch, request.partition, request.token)
                self._files.keep(request.writer, task, path)
        log.debug("rows put aside", rows=rows, **msgspec.structs.asdict(request))
        return Staged(rows)

    def abort(self, request: AbortEpoch, principal: Principal) -> None:
        """Remove what was put aside for an epoch, unless it has begun to be published."""
        _check(request.writer, request.epoch)
        with self._alone(request.writer):
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
        """Return what is remembered of a writer; from now on there is something."""
        state = self._files.load(writer)
        if state is None:
            if len(self._files.writers()) >= SINK_WRITERS_MAX:
                self._forget_final()
                if len(self._files.writers()) >= SINK_WRITERS_MAX:
                    raise StagingFull(writer, "writers", SINK_WRITERS_MAX)
            state = WriterState(writer, principal.name)
            self._files.save(state)
        _check_owner(state, principal)
        return state

    # --- Publishing -------------------------------------------------------------------------------

    def publish(self, request: PublishEpoch, principal: Principal) -> Published:
        """Publish the rows of an epoch, unless they are; they are on disk when this returns."""
        _check(request.writer, request.epoch, *request.partitions)
        _check_tokens(request.tokens)
        if request.tokens and len(request.tokens) != len(request.partitions):
            raise BadRequest("tokens", "expected one for each partition, or none")
        with self._alone(request.writer):
            state = self._state(request.writer, principal)
            if state.publishing is not None:
                state = self._finish(state)
            if request.epoch < state.epoch:
                raise EpochOutOfOrder(request.writer, request.epoch, state.epoch)
            if request.epoch == state.epoch:
                return Published(state.rows, again=True)
            return Published(self._finish(self._begin(request, state)).rows)

    def _begin(self, request: PublishEpoch, state: WriterState) -> WriterState:
        tokens = request.tokens or [""] * len(request.partitions)
        parts = dict(zip(request.partitions, tokens, strict=True))
        publishing = Publishing(
            request.epoch,
            list(parts),
            start=self._reading.next_offset,
            final=request.final,
            tokens=list(parts.values()),
        )
        staged = set(self._files.tasks(request.writer))
        for task in publishing.tasks:
            if task not in staged:
                raise NotStaged(request.writer, request.epoch, task.partition)
        begun = msgspec.structs.replace(state, publishing=publishing)
        self._files.save(begun)
        return begun

    def _finish(self, state: WriterState) -> WriterState:
        """Publish what the log has not of an epoch that has begun."""
        publishing = state.publishing
        if publishing is None:
            return state
        done = self._count(state.writer, publishing)
        rows = done + self._publisher.publish(self._groups(state.writer, publishing, skip=done))
        finished = WriterState(
            state.writer, state.owner, publishing.epoch, rows, final=publishing.final
        )
        self._files.save(finished)
        tasks = self._files.tasks(state.writer)
        self._files.remove(state.writer, [task for task in tasks if task.epoch <= publishing.epoch])
        log.debug("epoch published", writer=state.writer, epoch=publishing.epoch, rows=rows)
        return finished

    def _count(self, writer: str, publishing: Publishing) -> int:
        """Return how many rows of an epoch the log has."""
        end = self._reading.bounds().end
        if publishing.start >= end:
            return 0
        mark = f"{writer}/{publishing.epoch}/"
        count = 0
        for batch in self._reading.batches(publishing.start, end):
            if writer not in batch.column("sender").dictionary.to_pylist():
                continue
            ours = pc.and_kleene(
                pc.starts_with(batch.column("correlation"), mark),
                pc.equal(batch.column("protocol").dictionary_decode(), FLIGHT.label),
            )
            ours = pc.and_kleene(ours, pc.equal(batch.column("sender").dictionary_decode(), writer))
            count += pc.sum(ours).as_py() or 0
        return count

    def _groups(self, writer: str, publishing: Publishing, *, skip: int) -> Iterator[PreparedGroup]:
        client = self._client(writer)
        for task in publishing.tasks:
            correlation = f"{writer}/{task.epoch}/{task.partition}"
            for rows in self._files.read(writer, task):
                left = rows.slice(min(skip, len(rows)))
                skip -= len(rows) - len(left)
                yield from prepare(left, sender=writer, client=client, correlation=correlation)

    def _client(self, writer: str) -> int:
        with self._lock:
            client = self._clients.get(writer)
        if client is None:
            client = self._publisher.new_client()
            with self._lock:
                self._clients[writer] = client
        return client

    # --- After a start ----------------------------------------------------------------------------

    def recover(self) -> None:
        """Finish what was cut short, and remove what nobody will come for."""
        for writer in self._files.writers():
            with self._alone(writer):
                try:
                    self._recover(writer)
                except (OSError, PenstockError) as error:  # it is tried again when the writer comes
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
        """Forget writers that will not come again."""
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


def _judge(principal: Principal) -> Callable[[str], None]:
    def judge(name: str) -> None:
        if not principal.may(Action.PUBLISH, name):
            raise NotAllowed(principal.name, Action.PUBLISH, name)

    return judge
