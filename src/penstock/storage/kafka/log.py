"""The log on Kafka: this process writes one partition of a topic, and reads all of them.

The event loop's thread owns a KafkaLog. Messages are collected as for a log on disk; a commit is a
transaction of Kafka, and a row group is a record. See docs/kafka.md.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import pyarrow as pa
import structlog

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.errors import KafkaNotReached, LogError, NodeTakenOver
from penstock.limits import (
    KAFKA_AGAIN_SECONDS_MAX,
    KAFKA_BLOCK_BYTES_MAX,
    KAFKA_BLOCK_ROWS_MAX,
    KAFKA_NAMES_BYTES,
    KAFKA_READ_SECONDS_MAX,
    KAFKA_ROW_BYTES,
    KAFKA_WATCH_SECONDS,
    MESSAGE_HEADERS_BYTES_MAX,
)
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
    StorageStatus,
    TopicCounts,
    TopicFilter,
)
from penstock.ports.nodes import NodeStatus
from penstock.ports.selection import Selection
from penstock.protocols import Source
from penstock.storage.appends import Appends, BlockLimits
from penstock.storage.arrow.write.prepared import prepare
from penstock.storage.commits import Outcome
from penstock.storage.kafka.client import Connection, Consumers, settings_checked
from penstock.storage.kafka.cluster_topics import prepare_topics
from penstock.storage.kafka.committer import KafkaCommitter
from penstock.storage.kafka.follower import Found, PartitionFollower
from penstock.storage.kafka.housekeeping import Housekeeping
from penstock.storage.kafka.namespace_topics import prepare_namespaces
from penstock.storage.kafka.namespaces import Namespaces
from penstock.storage.kafka.nodes import Nodes
from penstock.storage.kafka.options import KafkaOptions
from penstock.storage.kafka.partition import KafkaPartition, NotAsked
from penstock.storage.kafka.reader import KafkaReader
from penstock.storage.kafka.reader_threads import ReaderThreads
from penstock.storage.kafka.record_cache import RecordCache
from penstock.storage.kafka.records import Heads, RowGroupRecord
from penstock.storage.kafka.scanner import KafkaScanner
from penstock.storage.kafka.services import KafkaServices
from penstock.storage.kafka.sessions import KafkaSessions
from penstock.storage.kafka.sinks import KafkaSinks
from penstock.storage.kafka.state import (
    NAMESPACE,
    NODE,
    TOPIC,
    KafkaGroups,
    KafkaNumbers,
    KafkaStoredCounts,
    NamespaceState,
    NodeState,
    StateTopic,
    TopicState,
)
from penstock.storage.kafka.topic_changes import TopicChanges

__all__ = ["KafkaLog"]

log = structlog.get_logger("penstock.log")


class KafkaLog:
    """A `ports.Storage` on Kafka. Opening takes the partition over from an earlier process.

    `lost` is called in the event loop's thread when another process has taken the partition over:
    nothing can be written any more. Raise KafkaUnusable or NodeTakenOver.
    """

    keeps_history = True
    finds_last = False

    def __init__(
        self, options: KafkaOptions, *, lost: Callable[[NodeTakenOver], None] | None = None
    ) -> None:
        self._options = options
        self._when_lost = lost
        self._connection = Connection(options)
        namespaces = Namespaces(options.namespaces)
        facts = prepare_topics(self._connection)
        facts = prepare_namespaces(self._connection, namespaces.topics, facts)
        self.log_id = facts.log_id
        self.partition = options.node
        with settings_checked(options):  # of a consumer
            self._state = StateTopic(self._connection)
        self._consumers = Consumers(self._connection)
        self._heads = Heads(facts.log_id, options.node, self._state.find_head, passes_newer=True)
        self._cache = RecordCache(options.cache_bytes_max)
        own = self._new_partition(options.node)
        self._own = own
        self._partitions = {options.node: own}
        self._found: dict[int, KafkaPartition] = {}  # whose bounds are not known yet
        self._changes = TopicChanges(self._state, options.node)
        self._committer = KafkaCommitter(
            self._connection,
            self._state,
            own,
            self._heads,
            self._changes,
            log_id=facts.log_id,
            record_bytes_max=facts.record_bytes_max,
            namespaces=namespaces,
            done=self._done,
            written=self._written,
            lost=self._lost,
        )
        try:
            next_offset = self._committer.open()
            self.last_us = own.last_us
        except BaseException:
            self._disconnect()
            raise
        self._state_place = self._state.place  # before its topics: none is missed
        self._topics = self._changes.load()
        self._appends = Appends(
            options.log,
            self._committer,
            self._changes,
            next_offset=next_offset,
            place={"log": options.location},
            limits=_block_limits(facts.record_bytes_max),
            runs=namespaces or None,
        )
        self._scanner = KafkaScanner(self._partitions)
        self.groups = KafkaGroups(self._state, node=options.node, process=self._committer.owner)
        self.numbers = KafkaNumbers(self._state, options.node)
        """The kept session numbers of this node."""
        self.stored_counts = KafkaStoredCounts(self._state, options.node)
        """The kept bytes of principals in the log."""
        self._threads = ReaderThreads(options.location)
        self._reader = self._new_reader(own)
        self.sessions = KafkaSessions(
            self._state, self._threads, self._appends.post, node=options.node
        )
        self.services = KafkaServices(
            self._state, self._appends.post, node=options.node, process=self._committer.owner
        )
        self.services.clear()  # those of the last process of this node
        self.sinks = KafkaSinks(
            self._connection,
            self._state,
            self._appends,
            process=self._committer.owner,
            partition=self._new_partition,
        )
        self._is_lost = False
        self._target: Follower | None = None
        self._follower = PartitionFollower(
            self._connection,
            self._state,
            self._heads,
            discover=self._discover,
            post=self._appends.post,
        )
        self._nodes = Nodes(self._state, self._partitions, self._follower, node=options.node)
        self._housekeeping = Housekeeping(
            self._state,
            self._partitions,
            self._nodes,
            self.sessions,
            self._changes,
            location=options.location,
            owns=self._owns,
        )

    def _new_partition(self, number: int) -> KafkaPartition:
        return KafkaPartition(
            self._consumers,
            self._heads,
            self._cache,
            topic=self._options.topic,
            number=number,
            namespaces=lambda: self._state.namespaces,
            ends=lambda: self._state.ends(number),
        )

    def _new_reader(self, partition: KafkaPartition) -> KafkaReader:
        return KafkaReader(
            partition, self._threads, self._appends.post, location=self._options.location
        )

    def _discover(self, known: Collection[int] = (), *, at_end: bool = False) -> Iterator[Found]:
        """Yield the partitions of other nodes that are new, from their first or last message.

        Each is passed on before Kafka is asked for the next one. Raise OSError; with `at_end`, also
        if Kafka does not answer for one of them. Otherwise that one is found by a later call.
        """
        for number in self._consumers.partitions(self._options.topic):
            if number in known or number == self.partition:
                continue
            partition = self._partitions.get(number) or self._found.get(number)
            if partition is None:
                partition = self._found[number] = self._new_partition(number)
            try:
                if not at_end:
                    partition.end_place(seconds_max=KAFKA_AGAIN_SECONDS_MAX)
                place = partition.load_bounds()
            except OSError as error:
                if at_end:
                    raise
                if not isinstance(error, NotAsked):
                    log.warning(
                        "partition not reached",
                        log=self._options.location,
                        partition=number,
                        error=str(error),
                    )
                continue
            place = place if at_end else partition.first_place
            self._partitions[number] = partition
            self._found.pop(number, None)
            yield Found(partition, self._new_reader(partition), place)

    # --- Topics -----------------------------------------------------------------------------------

    @property
    def known_topics(self) -> Sequence[KnownTopic]:
        """See ports.Storage."""
        return [
            KnownTopic(name, each.creator_id, each.owner)
            for name, each in self._topics.items()
            if not each.deleted
        ]

    @property
    def deleted_topics(self) -> Sequence[str]:
        """See ports.Storage."""
        return [name for name, each in self._topics.items() if each.deleted]

    # --- Lifecycle --------------------------------------------------------------------------------

    def attach(self, topics: TopicTable, settled: Callable[[], None]) -> None:
        """See ports.Storage."""
        self._appends.attach(topics, settled)
        self._committer.start()
        self._housekeeping.start()
        self._watch_later()

    def follow(self, target: Follower) -> None:
        """See ports.Storage: blocks until the ends of all partitions are known.

        Raise KafkaNotReached.
        """
        self._target = target
        topics = (name for name, each in self._topics.items() if not each.deleted)
        try:
            found = list(self._discover(at_end=True))
        except OSError as error:
            reason = error.strerror or str(error)
            remedy = "see why the partition has no leader"
            raise KafkaNotReached(self._options.bootstrap, reason, remedy) from error
        states = self._state.all(NAMESPACE, NamespaceState).values()
        patterns = {pattern for each in states for pattern in each.patterns}
        self._follower.start(
            target, found, topics, state_place=self._state_place, patterns=patterns
        )

    def _watch_later(self) -> None:
        """Look every KAFKA_WATCH_SECONDS whether the threads that use librdkafka go on."""

        def watch() -> None:
            self._watch_later()
            self._follower.watch()
            self._housekeeping.watch()
            if self._committer.watch():
                self._appends.end_attempt()
            self._connection.calls.watch()
            self._threads.replace(self._connection.calls.hanging)
            self._connection.closing.report()

        self._appends.call_later(KAFKA_WATCH_SECONDS, watch)

    async def flush(self) -> None:
        """See ports.Storage."""
        await self._appends.flush()

    def close(self) -> None:
        """See ports.Storage."""
        self._follower.stop()
        self._housekeeping.stop()
        self._appends.close()
        self._committer.stop()
        self._threads.close(KAFKA_READ_SECONDS_MAX)
        if not self._is_lost:
            self.services.clear()
        self._disconnect()

    def _disconnect(self) -> None:
        self._consumers.close()
        self._state.close()
        self._connection.closing.wait()

    def _owns(self) -> bool:
        """Return whether the partition is this process's, as far as the state topic was read.

        The writer thread then asks Kafka itself.
        """
        self._committer.later(self._check_owner)
        node = self._state.load(f"{NODE}{self.partition}", NodeState)
        return node is None or node.owner == self._committer.owner

    def _check_owner(self) -> None:
        """Look in the writer thread whether another process has taken the partition over."""
        try:
            if self._committer.check_owner():
                self._committer.store_ends()
        except OSError as error:
            log.warning("kafka not reached", log=self._options.location, error=str(error))

    def _done(self, outcome: Outcome) -> None:
        """Receive an outcome, in the writer thread."""
        self._appends.done(outcome)

    def _written(self, record: RowGroupRecord) -> None:
        """Receive a record that is committed, in the writer thread."""
        if self._options.deliver_committed and self._target is not None:
            deliver, number, group = self._target.messages_read, self.partition, record.group
            self._appends.post(lambda: deliver(number, group))

    def _lost(self, error: NodeTakenOver) -> None:
        """Receive the end of this node, in the writer thread."""
        self._is_lost = True

        def end() -> None:
            log.error("node taken over", log=self._options.location, error=str(error))
            self._appends.refuse(error)
            if self._when_lost is not None:
                self._when_lost(error)

        self._appends.post(end)

    # --- Status -----------------------------------------------------------------------------------

    @property
    def problem(self) -> str | None:
        """See ports.Storage."""
        error = self._appends.unavailable
        if error is None:
            return None
        place = f"partition {self.partition} of topic {self._options.topic}"
        return f"{place}: {error.strerror or error}"

    @property
    def follow_problem(self) -> str | None:
        """See ports.Storage."""
        return (
            self._follower.status.problem
            or self._connection.closing.problem
            or self._connection.calls.problem
            or self._threads.problem
        )

    def status(self) -> StorageStatus:
        """See ports.Storage: Kafka's files are not visible."""
        bounds = self._own.bounds
        return StorageStatus(
            kind="kafka",
            location=self._options.location,
            log_id=self.log_id,
            partition=self.partition,
            durability=self._options.log.durability.default,
            problem=self.problem,
            horizon=bounds.horizon,
            end=bounds.end,
            durable_end=self._appends.durable_end,
            next_offset=self._appends.next_offset,
            waiting_bytes=self._appends.waiting_bytes,
            commits=self._committer.commits,
            failures=self._appends.failures,
            writers_replaced=self._committer.replaced,
            age_seconds_max=self._options.log.retention.age_seconds_max,
            bytes_max=self._options.log.retention.bytes_max,
            sync_times=self._committer.syncs.times(),
            following=dataclasses.replace(self._follower.status, problem=self.follow_problem),
        )

    def nodes(self) -> Sequence[NodeStatus]:
        """See ports.Storage."""
        return self._nodes.status()

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
        return self._appends.waiting_bytes > self._options.log.waiting_bytes_max

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
        return prepare(
            rows,
            sender=sender,
            client=client,
            source=source,
            correlation=correlation,
            rows_max=self._appends.limits.rows_max,
            bytes_max=self._appends.limits.bytes_max,
        )

    def add_topic(self, name: str, creator: bytes) -> Receipt:
        """See ports.LogWriter."""
        return self._appends.add_topic(name, creator)

    def remove_topic(self, name: str) -> Receipt:
        """See ports.LogWriter."""
        return self._appends.remove_topic(name)

    # --- Reading ----------------------------------------------------------------------------------

    @property
    def horizon(self) -> int:
        """See ports.LogReader."""
        return self._reader.horizon

    def horizon_of(self, pattern: str) -> int:  # noqa: ARG002
        """See ports.LogReader: Kafka has one retention for all messages."""
        return self.horizon

    def expired_below(self, pattern: str) -> int:  # noqa: ARG002
        """See ports.LogReader."""
        return self.horizon

    @property
    def expiry(self) -> object:
        """See ports.LogReader."""
        return None

    @property
    def end(self) -> int:
        """See ports.LogReader."""
        return self._reader.end

    def fetch(
        self,
        offset: int,
        then: Callable[[Fetched | LogError], None],
        topics: TopicFilter | None = None,
    ) -> None:
        """See ports.LogReader."""
        self._reader.fetch(offset, then, topics)

    def find_time(self, timestamp_us: int, then: Callable[[int | LogError], None]) -> None:
        """See ports.LogReader."""
        self._reader.find_time(timestamp_us, then)

    def find_last(
        self, then: Callable[[LastFound | LogError], None], known: LastFound | None = None
    ) -> None:
        """See ports.LogReader."""
        self._reader.find_last(then, known)

    @property
    def partitions(self) -> Sequence[int]:
        """See ports.Storage."""
        return tuple(sorted(self._partitions.copy()))

    def bounds(self) -> Mapping[int, Bounds]:
        """See ports.Storage."""
        return self._scanner.bounds()

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
        """See ports.Storage: all messages of the range are read."""
        return self._scanner.count_topics(span, selection)

    def offset_at(self, partition: int, timestamp_us: int) -> int:
        """See ports.Storage."""
        return self._scanner.offset_at(partition, timestamp_us)

    def damage(self, span: PartitionRange) -> list[DamagedRange]:
        """See ports.Storage: as far as it was read."""
        return self._scanner.damage(span)

    def stored_topics(self) -> frozenset[str]:
        """See ports.Storage: also topics whose messages retention has removed."""
        topics = self._state.all(TOPIC, TopicState)
        return frozenset(name for name, each in topics.items() if each.stored)


def _block_limits(record_bytes_max: int) -> BlockLimits:
    """Return limits with which a block always fits into a record."""
    rows_max = min(KAFKA_BLOCK_ROWS_MAX, record_bytes_max // 4 // KAFKA_ROW_BYTES)
    bytes_max = min(KAFKA_BLOCK_BYTES_MAX, record_bytes_max // 8)
    # The last message of a block may exceed its limit, and has headers.
    taken = bytes_max + rows_max * KAFKA_ROW_BYTES + KAFKA_NAMES_BYTES
    return BlockLimits(
        rows_max,
        bytes_max,
        value_bytes_max=record_bytes_max - taken - MESSAGE_HEADERS_BYTES_MAX,
        row_group_bytes_max=record_bytes_max - KAFKA_NAMES_BYTES,
        value_limit="which do not fit into a record of Kafka (max.message.bytes of the topic)",
    )
