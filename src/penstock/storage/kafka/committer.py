"""The writer thread: each commit is a transaction of Kafka.

Kafka fences an earlier process of the same node when this one initializes its transactions. A
producer that failed is never used again: its records may be committed or not. A new producer
continues after the last message that is in Kafka. Before that, the state topic must still name this
process as the owner of the partition; otherwise a newer process has taken over, and this one ends.
This is checked again after the new producer is initialized: a newer process may have taken over
meanwhile, and its records are in Kafka by then.

A thread that hangs in a call of librdkafka is replaced. Its commit counts as failed, and the next
producer reads from Kafka whether it was committed.

A row group of a namespace is sent to the Kafka topic of the namespace. Kafka's answer has the place
of its record there. Then a reference with this place is sent to the first topic, in the same
transaction.
"""

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
import structlog
from confluent_kafka import KafkaError, KafkaException, Producer

from penstock.errors import (
    KafkaNotReached,
    KafkaUnusable,
    LogDamaged,
    NodeTakenOver,
    OffsetBelowHorizon,
)
from penstock.limits import (
    KAFKA_CLOSE_SECONDS_MAX,
    KAFKA_OFFSETS_RESERVED,
    KAFKA_OPEN_SECONDS_MAX,
)
from penstock.model import Durability
from penstock.storage.arrow.format.segment import Columns, encode_row_group, parse_row_group
from penstock.storage.arrow.read.reader import StoredRowGroup
from penstock.storage.arrow.write.prepared import PreparedRowGroup
from penstock.storage.commits import Commit, Outcome, SyncHistogram
from penstock.storage.kafka.client import (
    Connection,
    NoAnswer,
    RecordReader,
    failure,
    settings_checked,
)
from penstock.storage.kafka.namespace_topics import check_namespace_log
from penstock.storage.kafka.namespaces import Namespaces
from penstock.storage.kafka.partition import KafkaPartition
from penstock.storage.kafka.reading_thread import Replaced
from penstock.storage.kafka.records import Heads, RowGroupRecord, latest_ms
from penstock.storage.kafka.state import (
    ENDS,
    HEAD,
    NAMESPACE,
    NODE,
    SINK,
    NamespaceEnd,
    NamespaceEnds,
    NamespaceState,
    NodeState,
    StateTopic,
    decode_node,
)
from penstock.storage.kafka.topic_changes import TopicChanges
from penstock.storage.kafka.transaction import SentRowGroup, Transaction
from penstock.storage.kafka.writing_thread import WritingThread

__all__ = ["KafkaCommitter"]

log = structlog.get_logger("penstock.log")

_WAIT_SECONDS: Final = 0.5
"""Longest time in a call of librdkafka."""


class KafkaCommitter:
    """Owns the producer of a node, and the thread that uses it.

    It calls in that thread: `written` with each record of a commit, then `done` with the outcome of
    the commit, in the order of the commits; `lost` if another process has taken over. When a commit
    fails, all waiting commits fail: nothing is written until `revive` has made a new producer.
    """

    def __init__(
        self,
        connection: Connection,
        state: StateTopic,
        partition: KafkaPartition,
        heads: Heads,
        changes: TopicChanges,
        *,
        log_id: int,
        record_bytes_max: int,
        namespaces: Namespaces,
        done: Callable[[Outcome], None],
        written: Callable[[RowGroupRecord], None],
        lost: Callable[[NodeTakenOver], None],
    ) -> None:
        self._connection = connection
        self._options = connection.options
        self._state = state
        self._partition = partition
        self._heads = heads
        self._changes = changes
        self._log_id = log_id
        self._record_bytes_max = record_bytes_max
        self._namespaces = namespaces
        self._ends: dict[str, NamespaceEnd] = {}  # by the Kafka topic of each namespace
        self._done = done
        self._written = written
        self._lost = lost
        self._key = f"{NODE}{self._options.node}"
        self.owner = secrets.token_hex(8)
        """Names this process in the state of the log."""
        self._since_us = time.time_ns() // 1000
        self._reserved = 0
        self._sent_end = 0  # the end of the log after all commits that this process has sent
        self._told = 0  # `written` was called with all messages below this offset
        self._producer: Producer | None = None
        self._broken: OSError | None = None
        self._ended = False
        self._seconds_max = self._options.commit_seconds_max
        self.syncs = SyncHistogram()
        self.commits = 0
        self._thread = WritingThread(self._options.location)
        self._writing: Commit | None = None  # the commit that the thread writes
        self._sending: dict[str, bytes | None] = {}  # the state changes in its transaction

    # --- In any thread ----------------------------------------------------------------------------

    def open(self) -> int:
        """Take the partition over; return the next offset. Raise OperatorError."""
        options = self._options
        try:
            self._state.refresh()
            self._check_namespaces()
            with settings_checked(options):
                self._producer = self._connection.transactional(self._record_bytes_max)
            self._initialize(self._producer, KAFKA_OPEN_SECONDS_MAX)
            self._state.refresh()  # the earlier process may have reserved more until now
            before = self._state.load(self._key, NodeState)
            self._partition.load_bounds(end_min=before.reserved if before else 0)
            self._load_ends()
            next_offset = self._told = self._sent_end = self._partition.bounds.end
            self._reserved = before.reserved if before else 0
            self._claim(next_offset)
        except NodeTakenOver:
            raise
        except OSError as error:
            reason = error.strerror or str(error)
            remedy = "see Kafka's own log, and its access rules for the topic and transactions"
            kind = KafkaNotReached if isinstance(error, NoAnswer) else KafkaUnusable
            raise kind(options.bootstrap, reason, remedy) from error
        return next_offset

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, commit: Commit) -> None:
        """See storage.commits."""
        self._thread.later(lambda: self.commit(commit))

    def later(self, work: Callable[[], None]) -> None:
        """See storage.commits."""
        self._thread.later(work)

    def watch(self) -> bool:
        """Replace the thread if it hangs; return whether. Called every KAFKA_WATCH_SECONDS.

        The commit of a hanging thread fails. Its records may be in Kafka: `revive` finds out.
        """
        reason = self._thread.hangs()
        if reason is None:
            return False
        self._broken = failure(reason)
        producer, self._producer = self._producer, None
        if producer is not None:
            producers = [producer]
            del producer
            self._connection.closing.close("writer", lambda: _purge(producers))
        self._give_back()
        commit, self._writing = self._writing, None
        if self._thread.replaceable:
            self._thread.start(self.revive if commit is None else None)
        if commit is not None:
            end = self._partition.bounds.end
            self._done(Outcome(commit, end, durable=False, error=self._broken))
        return True

    @property
    def replaced(self) -> int:
        """Number of threads that hung since the start."""
        return self._thread.replaced

    def stop(self) -> None:
        """Finish all work and end the thread; Kafka has KAFKA_CLOSE_SECONDS_MAX to answer."""
        self._seconds_max = min(self._seconds_max, KAFKA_CLOSE_SECONDS_MAX)
        self._thread.finish()
        self._discard()

    # --- In the thread ----------------------------------------------------------------------------

    def step(self) -> None:
        """Note that a call of librdkafka has returned; raise Replaced in a replaced thread."""
        self._thread.step()

    def commit(self, commit: Commit) -> None:
        """Write a commit and report its outcome; raise Replaced."""
        error = self._broken
        if error is None:
            self._writing = commit
            started = time.perf_counter()
            try:
                self._write(commit)
            except Replaced:
                raise
            except OSError as failed:
                error = self._broken = _without_frames(failed)
            except Exception as failed:  # clients must not wait forever
                log.exception("log writer failed")
                error = self._broken = failure(repr(failed))
            if error is None:
                self.commits += 1
                self.syncs.add(time.perf_counter() - started)
            else:
                self._discard()
                self.step()
            self._writing = None
        durable = error is None and commit.durability is Durability.FSYNC
        self._done(Outcome(commit, self._partition.bounds.end, durable, error))

    def _write(self, commit: Commit) -> None:
        """Write the blocks and the changes of topics in one transaction; raise OSError."""
        changes = {} if commit.blocks else self._changes.take(())
        if not commit.blocks and not changes:
            return
        self._sending = changes
        try:
            sent, ends = self._transact(self._row_groups(commit), self._sending)
        except Replaced:
            raise
        except BaseException:
            self._give_back()
            raise
        changes, self._sending = self._sending, {}
        self._state.apply(changes)
        self._ends = ends
        for (value, _, _, _), place in sent:
            group = StoredRowGroup(value, parse_row_group(value), self._heads.own_words)
            record = RowGroupRecord(place, group, self._heads.own)
            self._partition.add(record)
            self._written(record)
            self._told = record.end_offset

    def _give_back(self) -> None:
        """Keep changes that were not written for the next commit, but not those of failed rows."""
        changes, self._sending = self._sending, {}
        self._changes.give_back({k: v for k, v in changes.items() if not k.startswith(SINK)})

    def _row_groups(self, commit: Commit) -> Iterator[SentRowGroup]:
        """Yield the blocks of a commit as row groups; then add their state changes to `_sending`.

        A block is encoded while librdkafka sends the one before.
        """
        topics: list[bytes] = []
        states: dict[str, bytes] = {}
        crc, end = self._partition.last_crc, self._partition.bounds.end
        for position, block in enumerate(commit.blocks):
            offset = commit.offsets[position]
            columns = block.finish(offset, log_id=self._log_id, partition=self._options.node)
            if isinstance(columns, tuple):  # the kernel's Block does not know the class
                columns = Columns(*columns)
            encoded = encode_row_group(columns, previous=crc, synced=end)
            crc = encoded.crc32c
            topics += columns.topics
            if isinstance(block, PreparedRowGroup):
                states |= block.state
            end = columns.base_offset + columns.count
            self._sent_end = max(self._sent_end, end)
            value = b"".join(encoded.buffers)
            nodes = commit.nodes.get(position, ())
            namespace = None
            if (
                self._namespaces
                and not nodes
                and block.held_bytes >= self._namespaces.run_bytes_min
            ):
                namespace = self._namespaces.common(columns.topics)
            yield SentRowGroup(value, latest_ms(columns), nodes, namespace)
        if topics:
            self._sending.update(self._changes.take(topics))
        self._sending.update(states)
        if end > self._reserved:
            self._sending[self._key] = self._node_state(end)

    def _node_state(self, end: int) -> bytes:
        self._reserved = end + KAFKA_OFFSETS_RESERVED
        return msgspec.json.encode(
            NodeState(
                owner=self.owner,
                host=socket.gethostname(),
                process=os.getpid(),
                since_us=self._since_us,
                reserved=self._reserved,
            )
        )

    def _claim(self, next_offset: int) -> None:
        """Write this process as the owner of the partition, and its head; raise OSError."""
        changes: dict[str, bytes | None] = {self._key: self._node_state(next_offset)}
        if self._state.get(HEAD + self._heads.own_name) is None:
            changes[HEAD + self._heads.own_name] = self._heads.own
        changes |= self._namespace_states() | self._new_ends()
        try:
            self._transact(iter(()), changes)
        except _Fenced as error:
            raise NodeTakenOver(self._options.node, self._options.topic) from error
        self._state.apply(changes)

    def _check_namespaces(self) -> None:
        """Raise KafkaUnusable if a namespace has the Kafka topic of another log; raise OSError."""
        if not self._namespaces:
            return
        with contextlib.closing(RecordReader(self._connection)) as reader:
            for topic in self._namespaces.topics:
                check_namespace_log(
                    reader,
                    self._options,
                    topic,
                    log_id=self._log_id,
                    find_head=lambda name: self._state.get(HEAD + name),
                )

    def _namespace_states(self) -> dict[str, bytes | None]:
        """Return the state changes that add the configured namespaces to the known ones."""
        changes: dict[str, bytes | None] = {}
        for topic in self._namespaces.topics:
            key = NAMESPACE + topic
            known = self._state.load(key, NamespaceState) or NamespaceState([])
            own = [each.pattern for each in self._namespaces.all if each.topic == topic]
            if not set(own) <= set(known.patterns):
                patterns = list(dict.fromkeys([*known.patterns, *own]))
                changes[key] = msgspec.json.encode(NamespaceState(patterns))
        return changes

    def _load_ends(self, *, partly: bool = False) -> None:
        """Find the last row group of each namespace; raise OSError.

        The state of the log has those that retention has removed. With `partly`, ends that are
        known remain if Kafka does not answer for a namespace: an earlier end is not wrong, since
        readers then find out themselves what retention has removed.
        """
        node = self._options.node
        self._ends = self._state.ends(node) | self._ends
        for topic in self._namespaces.topics:
            try:
                found = self._partition.last_of(topic)
            except OSError as error:
                if not partly:
                    raise
                reason = str(error)
                log.warning("namespace not reached", topic=topic, partition=node, error=reason)
                return
            self.step()
            if found is not None:
                self._ends[topic] = found

    def _new_ends(self) -> dict[str, bytes | None]:
        """Return the change of the state that has the ends of namespaces; empty if none is new."""
        if self._ends == self._state.ends(self._options.node):
            return {}
        content = msgspec.json.encode(NamespaceEnds(self._ends))
        return {f"{ENDS}{self._options.node}": content}

    def store_ends(self) -> None:
        """Write the ends of namespaces to the state of the log, if they are new; raise OSError."""
        for key, content in self._new_ends().items():
            self._state.put(key, content)
            self.step()

    def _transact(
        self, groups: Iterator[SentRowGroup], changes: dict[str, bytes | None]
    ) -> tuple[list[tuple[SentRowGroup, int]], dict[str, NamespaceEnd]]:
        """Commit row groups and state changes.

        Return the row groups with their places, and the ends of namespaces. `groups` may add to
        `changes` until it is exhausted. Raise OSError or Replaced.
        """
        producer = self._producer
        if producer is None:
            raise self._connection.timed_out(self._seconds_max)
        try:
            return self._send(producer, groups, changes)
        except KafkaException as error:
            reason = error.args[0]
        except SystemError as error:  # a callback was called while a fatal error was raised
            reason = str(error)
        except BufferError as error:
            raise failure(str(error)) from error
        finally:
            self.step()  # before anything is changed: another thread may have gone on
        # Not in the handlers: confluent-kafka would keep the first error, and so the producer.
        raise _failed(_fatal_error(producer) or reason)

    def _send(
        self, producer: Producer, groups: Iterator[SentRowGroup], changes: dict[str, bytes | None]
    ) -> tuple[list[tuple[SentRowGroup, int]], dict[str, NamespaceEnd]]:
        """Send records and commit them; return what `_transact` returns.

        Raise OSError, KafkaException or BufferError.
        """
        deadline = time.monotonic() + self._seconds_max
        transaction = Transaction(producer, self._options, self._heads, self._ends)
        producer.begin_transaction()
        for group in groups:
            transaction.add(group)
            self.step()
        if transaction.waits:
            self._flush(producer, deadline)
            transaction.send_waiting()
        transaction.change(changes)
        self._flush(producer, deadline)
        while True:
            try:
                producer.commit_transaction(_WAIT_SECONDS)
            except KafkaException as error:
                self.step()
                if not error.args[0].retriable():
                    raise
                if time.monotonic() > deadline:
                    raise self._connection.timed_out(self._seconds_max) from error
            else:
                break
        return transaction.places(), transaction.ends

    def _flush(self, producer: Producer, deadline: float) -> None:
        """Wait for the answers to all records; raise OSError."""
        while producer.flush(_WAIT_SECONDS):
            self.step()
            if time.monotonic() > deadline:
                raise self._connection.timed_out(self._seconds_max)
        self.step()

    # --- Failures ---------------------------------------------------------------------------------

    def _initialize(self, producer: Producer, seconds_max: float) -> None:
        """Fence earlier producers of the node, and end their transactions; raise OSError."""
        deadline = time.monotonic() + seconds_max
        while True:
            try:
                producer.init_transactions(_WAIT_SECONDS)
            except KafkaException as error:
                self.step()
                if not error.args[0].retriable():
                    raise failure(error) from error
                if time.monotonic() > deadline:
                    raise self._connection.timed_out(seconds_max) from error
            else:
                self.step()
                return

    def _discard(self) -> None:
        """Drop the producer; records that it has not sent are never sent."""
        producers, self._producer = [self._producer], None  # the list has the only reference
        if producers[0] is not None:
            with contextlib.suppress(KafkaException):
                producers[0].purge()
            self._connection.closing.drop("writer", producers)

    def revive(self, _next_offset: int = 0) -> bool:
        """See storage.commits: make a new producer; raise Replaced."""
        if self._broken is None or self._ended:
            return not self._ended
        try:
            if not self.check_owner():
                return False
            producer = self._connection.transactional(self._record_bytes_max)
            self.step()
            self._producer = producer
            del producer
            self._initialize(self._producer, self._options.commit_seconds_max)
            if not self.check_owner():  # a newer process may have started since the first check
                return False
            self._partition.load_bounds()  # a commit without an answer may have succeeded
            self.step()
            if self._partition.bounds.end > self._sent_end:
                self._end_as_replaced()
                return False
            self._load_ends(partly=True)
            self.step()
            self._tell_written()
        except (OSError, KafkaException) as error:
            self.step()
            failed = failure(error) if isinstance(error, KafkaException) else error
            self._broken = _without_frames(failed)
            self._discard()
            return False
        self._broken = None
        return True

    def _tell_written(self) -> None:
        """Call `written` with the records of commits that got no answer; raise OSError.

        After an error, the next call continues behind the last record.
        """
        end = self._partition.bounds.end
        while self._told < end:
            try:
                for record in self._partition.walk(self._told, end):
                    self.step()
                    self._written(record)
                    self._told = record.end_offset
                self._told = end
            except LogDamaged as error:
                self._told = error.resumes_at
            except OffsetBelowHorizon as error:
                self._told = error.horizon

    def check_owner(self) -> bool:
        """Return whether the partition is still this process's; raise OSError or Replaced."""
        self._state.refresh()
        self.step()
        node = self._state.load(self._key, NodeState)
        if node is None or node.owner == self.owner:
            self._check_unsettled()
            return True
        self._end_as_replaced(node.host)
        return False

    def _check_unsettled(self) -> None:
        """Raise OSError while it is not known whether another process owns the partition.

        A claim is written, but an open transaction hides whether it was committed.
        """
        claim = decode_node(self._state.unsettled().get(self._key))
        self.step()
        if claim is not None and claim.owner != self.owner:
            raise failure("it is not known yet whether another process writes this partition")

    def _end_as_replaced(self, host: str = "") -> None:
        """Write nothing more: another process, on a host, writes the partition."""
        if not self._ended:
            self._ended = True
            self._broken = self._broken or failure("another process writes this partition")
            self._discard()
            self._lost(NodeTakenOver(self._options.node, self._options.topic, host))

    @property
    def problem(self) -> OSError | None:
        """Why nothing can be written at the moment."""
        return self._broken


def _without_frames(error: OSError) -> OSError:
    """Return an error that can be kept: its traceback would keep the producer that failed."""
    return OSError(error.errno, error.strerror)


def _purge(producers: list[Producer]) -> None:
    """Free a producer; records that it has not sent are never sent. This may block forever."""
    try:
        producers[0].purge()
    finally:
        producers.clear()


class _Fenced(OSError):
    """Kafka has fenced the producer: another one exists, or a transaction took too long."""


def _fatal_error(producer: Producer) -> KafkaError | None:
    """Return why a producer can never be used again, such as fencing; None if it can."""
    try:
        producer.begin_transaction()  # it does nothing after a fatal error
    except KafkaException as error:
        found: KafkaError = error.args[0]
        return found if found.fatal() else None
    return None


def _failed(error: KafkaError | str) -> OSError:
    reason = failure(error)
    if isinstance(error, KafkaError) and error.code() in _FENCED:
        return _Fenced(reason.errno, reason.strerror)
    return reason


_FENCED: Final = frozenset(
    {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH}  # noqa: SLF001
)
