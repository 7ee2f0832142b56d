"""Follows the partitions of other nodes: hands committed records to the event loop in order.

A thread reads with one consumer, which has all partitions of other nodes and the state topic. It
stops reading while KAFKA_FOLLOW_BYTES_MAX wait for the event loop; the records stay in Kafka. The
event loop takes records for a few milliseconds at a time.

The thread passes over references to messages that no subscriber of this node needs, and reports
them to the event loop every KAFKA_PASSED_SECONDS. A subscription may have begun meanwhile. So the
event loop checks again whether a subscriber needs the messages; its session then reads them from
the log.

A consumer that fails is replaced, and so is a thread that hangs in a call of librdkafka: the new
one continues at the same places. A replaced thread hands over nothing.
"""

import contextlib
import errno
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec
import structlog
from confluent_kafka import KafkaError, KafkaException, Message

from penstock.errors import LogError
from penstock.limits import (
    KAFKA_AGAIN_SECONDS_MAX,
    KAFKA_CHECK_SECONDS_MAX,
    KAFKA_FOLLOW_BYTES_MAX,
    KAFKA_FOLLOW_RETRY_SECONDS,
    KAFKA_PARTITIONS_SECONDS,
    KAFKA_PASSED_SECONDS,
    KAFKA_STILL_SECONDS,
    KAFKA_TAKE_ATTEMPTS_MAX,
    KAFKA_TOPIC_SECONDS_MAX,
    TURN_SECONDS_MAX,
)
from penstock.ports import (
    Follower,
    FollowStatus,
    KeptSession,
    KnownTopic,
    LogReader,
    ReferenceCounts,
)
from penstock.storage.arrow.format.segment import row_group_topics
from penstock.storage.kafka.client import Connection, PartitionTail, failure
from penstock.storage.kafka.followed_references import FollowedReferences, PassedReferences
from penstock.storage.kafka.namespace_reader import NamespaceReader
from penstock.storage.kafka.partition import KafkaPartition
from penstock.storage.kafka.pause import NotAsked
from penstock.storage.kafka.reading_thread import ReadingThread, Replaced
from penstock.storage.kafka.records import (
    BadRecord,
    Heads,
    ReferenceRecord,
    RowGroupRecord,
    is_addressed,
    private_records,
)
from penstock.storage.kafka.services import decode_service
from penstock.storage.kafka.state import (
    SERVICE,
    SESSION,
    TOPIC,
    StateTopic,
    TopicState,
    decode_topic,
)

__all__ = ["PartitionFollower"]

log = structlog.get_logger("penstock.log")

_Post = Callable[[Callable[[], None]], None]
_STATE: Final = -1
"""Stands for the state topic among the numbers of partitions."""
_WAIT_SECONDS: Final = 0.5
"""Longest wait for the event loop, after which the thread reports that it does not hang."""


class Found(NamedTuple):
    """A partition to follow, its reader, and the place from which it is followed."""

    partition: KafkaPartition
    reader: LogReader
    place: int


class PartitionFollower:
    """Reads partitions in a thread of its own, and calls a `ports.Follower` in the event loop.

    `discover` takes the numbers of known partitions, and yields the other partitions of other
    nodes; it may block, and raise OSError. `post` runs work in the event loop's thread.
    """

    def __init__(
        self,
        connection: Connection,
        state: StateTopic,
        heads: Heads,
        *,
        discover: Callable[[Collection[int]], Iterable[Found]],
        post: _Post,
    ) -> None:
        self._connection = connection
        self._options = connection.options
        self._state = state
        self._heads = heads
        self._discover = discover
        self._post = post
        self._partitions: dict[int, KafkaPartition] = {}
        self._places: dict[int, int] = {}  # the next place to read, by partition
        self._delivered: dict[int, int] = {}  # the next offset of each partition
        self._behind: dict[int, int] = {}  # partitions with unread records at the last check
        self._topics: set[str] = set()
        self._target: Follower | None = None
        self._thread = ReadingThread(self._run, self._options.location)
        self._failed: tuple[tuple[int, int], int] | None = None  # a record, and its attempts
        # Partitions whose last record was not handed over: the next one tells where it ended.
        self._skipped: set[int] = set()
        self._room = threading.Condition()
        self._queue: deque[tuple[Callable[[], None], int]] = deque()
        self._waiting_bytes = 0
        self._draining = False
        self._stopping = False
        self._told_at = 0.0  # when passed references were last reported to the event loop
        self._reading = FollowedReferences(heads, self._options.location, self._thread.step)
        self._references = ReferenceCounts()
        self._patterns: set[str] = set()  # those that the target knows

    # --- In the event loop's thread ---------------------------------------------------------------

    def start(
        self,
        target: Follower,
        found: Iterable[Found],
        topics: Iterable[str],
        *,
        state_place: int,
        patterns: Iterable[str] = (),
    ) -> None:
        """Start to follow for `target`, which knows `topics`.

        The state topic is read from `state_place` on. `patterns` are the known ones of namespaces.
        """
        self._target = target
        for pattern in patterns:
            self._patterns.add(pattern)
            target.pattern_found(pattern)
        self._topics = set(topics)
        self._places[_STATE] = state_place
        for each in found:
            self._add(each)
            number, end = each.partition.number, each.partition.bounds.end
            self._delivered[number] = end
            target.partition_found(number, each.reader, end)
        self._thread.add(self._places)
        self._thread.start()

    def watch(self) -> None:
        """Replace the thread if it hangs; called every KAFKA_WATCH_SECONDS."""
        self._thread.watch()

    @property
    def status(self) -> FollowStatus:
        """Whether messages of other nodes are read, and how often a reader was replaced."""
        thread = self._thread
        return FollowStatus(thread.problem, thread.replaced, thread.late(), self._references)

    def progress(self) -> dict[int, tuple[int, int]]:
        """Return the next offset to deliver of each partition, and the next place to read.

        Any thread may call it.
        """
        return {
            number: (offset, self._places[number])
            for number, offset in self._delivered.copy().items()
        }

    def stop(self) -> None:
        """End the thread, and wait for it for a while; nothing is handed over any more."""
        with self._room:
            self._stopping = True
            self._room.notify_all()
        self._thread.stop()

    def _drain(self) -> None:
        """Do the queued work for a few milliseconds, and the rest in the next turn."""
        ends = time.monotonic() + TURN_SECONDS_MAX
        while not self._stopping:
            with self._room:
                if not self._queue:
                    self._draining = False
                    return
                work, size = self._queue.popleft()
                self._waiting_bytes -= size
                self._room.notify_all()
            try:
                work()
            except Exception:  # one group must not end the delivery of all others
                log.exception("followed messages failed")
            if time.monotonic() > ends:
                self._post(self._drain)
                return

    # --- In the thread ----------------------------------------------------------------------------

    def _hand_over(self, work: Callable[[], None], size: int = 0) -> None:
        """Queue work for the event loop; wait while too much waits. Raise Replaced."""
        while not self._has_room(size):
            self._thread.wait()
        self._thread.step()
        with self._room:
            self._queue.append((work, size))
            self._waiting_bytes += size
            starts, self._draining = not self._draining, True
        if starts:
            self._post(self._drain)

    def _has_room(self, size: int) -> bool:
        """Wait a moment for room in the queue; return whether there is some."""
        with self._room:
            return self._room.wait_for(
                lambda: self._stopping or not size or self._waiting_bytes < KAFKA_FOLLOW_BYTES_MAX,
                _WAIT_SECONDS,
            )

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._follow()
            except (OSError, LogError) as error:
                self._thread.fail(getattr(error, "strerror", None) or str(error))
                log.warning("kafka not followed", log=self._options.location, error=str(error))
            except Replaced:
                raise
            except Exception as error:  # other nodes' messages must come again
                self._thread.fail(repr(error))
                log.exception("kafka not followed")
            with self._room:
                self._room.wait_for(lambda: self._stopping, KAFKA_FOLLOW_RETRY_SECONDS)

    def _follow(self) -> None:
        """Read until the log is closed; raise OSError where Kafka refuses."""
        self._behind = {}
        data = NamespaceReader(self._connection, waits_ms=500)
        with self._connection.tail() as tail, contextlib.closing(data):
            self._thread.step()
            self._assign(tail)
            looks_at = time.monotonic() + KAFKA_PARTITIONS_SECONDS
            checks_at = time.monotonic() + KAFKA_STILL_SECONDS
            while not self._stopping:
                try:
                    messages = tail.next()
                except KafkaException as error:
                    raise failure(error) from error
                self._thread.step()
                # State first: the topics of a transaction are needed for its messages.
                for message in sorted(messages, key=self._is_message):
                    self._take_or_pass_over(tail, data, message)
                self._drain_passed()
                if time.monotonic() > looks_at:
                    self._look(tail)
                    looks_at = time.monotonic() + KAFKA_PARTITIONS_SECONDS
                if time.monotonic() > checks_at:
                    self._check_progress()
                    checks_at = time.monotonic() + KAFKA_STILL_SECONDS

    def _is_message(self, message: Message) -> bool:
        return message.topic() != self._options.state_topic

    def _assign(self, tail: PartitionTail) -> None:
        topic, state = self._options.topic, self._options.state_topic
        tail.assign(
            (state, 0, place) if number == _STATE else (topic, number, place)
            for number, place in self._places.items()
        )

    def _add(self, found: Found) -> None:
        self._partitions[found.partition.number] = found.partition
        self._places[found.partition.number] = found.place
        self._thread.add([found.partition.number])

    def _look(self, tail: PartitionTail) -> None:
        """Look for new partitions, and follow them from their first message."""
        known = len(self._partitions)
        for each in self._discover(self._partitions.keys()):
            self._thread.step()
            self._add(each)
            log.info("partition found", log=self._options.location, partition=each.partition.number)
            self._hand_over_partition(each)
        self._thread.step()
        if len(self._partitions) > known:
            self._assign(tail)

    def _hand_over_partition(self, found: Found) -> None:
        number, first = found.partition.number, found.partition.bounds.horizon
        self._delivered[number] = first
        self._hand_over(lambda: self._follower.partition_found(number, found.reader, first))

    @property
    def _follower(self) -> Follower:
        if self._target is None:
            raise AssertionError("the log is not followed")
        return self._target

    def _take_or_pass_over(
        self, tail: PartitionTail, data: NamespaceReader, message: Message
    ) -> None:
        """Take a record; pass over one that fails KAFKA_TAKE_ATTEMPTS_MAX times."""
        try:
            self._take(tail, data, message)
        except (OSError, LogError, Replaced):
            raise
        except Exception:
            number, place = message.partition(), message.offset()
            if message.error() is not None or number is None or place is None:
                raise
            key = number if self._is_message(message) else _STATE
            before = self._failed
            attempts = before[1] + 1 if before is not None and before[0] == (key, place) else 1
            self._failed = (key, place), attempts
            if attempts < KAFKA_TAKE_ATTEMPTS_MAX:
                raise
            log.exception("followed messages failed", partition=key, kafka_offset=place)
            self._places[key] = place + 1
            if key in self._partitions:
                self._skipped.add(key)
                self._hand_over_failed(key, self._partitions[key].bounds.end)

    def _take(self, tail: PartitionTail, data: NamespaceReader, message: Message) -> None:
        """Process a record or an error of the consumer; raise OSError, LogError or Replaced."""
        self._thread.step()
        error, number, place = message.error(), message.partition(), message.offset()
        is_state = not self._is_message(message)
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                self._reached_end(_STATE if is_state else number, place)
                return
            if tail.is_removed(error) and number is not None:
                self._overtaken(_STATE if is_state else number)
                self._assign(tail)
            elif tail.is_final(error):
                raise failure(error)
            return
        if number is None or place is None:
            return
        key = _STATE if is_state else number
        if place < self._places.get(key, 0):
            return  # it was read before the partitions were assigned again
        if is_state:
            self._take_state(message)
        elif number in self._partitions:
            self._take_row_group(self._partitions[number], data, message)
        self._thread.step(key)
        self._places[key] = place + 1

    def _reached_end(self, number: int | None, place: int | None) -> None:
        """Go on to the end of a partition: transaction markers may follow its last record."""
        if number is not None and place is not None and number in self._places:
            self._places[number] = max(self._places[number], place)

    def _check_progress(self) -> None:
        """Raise OSError if Kafka has records that the consumer does not get.

        A consumer may stop fetching a partition whose leader moved; a new consumer fetches it. A
        partition that has no leader is left out: a new consumer would not get its records either.
        """
        behind, failed = {}, []
        deadline = time.monotonic() + KAFKA_CHECK_SECONDS_MAX
        for number, place in list(self._places.items()):
            if time.monotonic() > deadline:
                break  # the records of the other partitions wait
            try:
                end = self._end_place(number)
            except NotAsked:
                failed.append(number)
                continue
            except OSError as error:
                failed.append(number)
                self._thread.note(error.strerror or str(error))
                log.warning(
                    "partition not reached",
                    log=self._options.location,
                    partition=number,
                    error=str(error),
                )
                continue
            if end > place:
                behind[number] = place
                self._thread.step()
            else:
                self._thread.step(number)
        self._thread.leaderless = self._leaderless(failed)
        still = [number for number, place in behind.items() if self._behind.get(number) == place]
        self._behind = {} if still else behind
        if still:
            raise OSError(errno.EIO, f"Kafka: no records of partitions {still}, though it has some")

    def _leaderless(self, numbers: Iterable[int]) -> list[int]:
        """Return those partitions that have no leader, none if Kafka does not answer."""
        found = []
        try:
            for number in numbers:
                partition = self._partitions.get(number)
                if partition is not None and not partition.has_leader():
                    found.append(number)
                self._thread.step()
        except OSError:
            return []
        return found

    def _end_place(self, number: int) -> int:
        """Ask Kafka for the place after the last record of a partition; raise OSError."""
        partition = self._partitions.get(number)
        if partition is None:
            return self._state.end_place()
        return partition.end_place(seconds_max=KAFKA_AGAIN_SECONDS_MAX)

    def _overtaken(self, number: int) -> None:
        """Continue with the first record that Kafka still has: retention removed earlier ones."""
        log.warning("partition overtaken", log=self._options.location, partition=number)
        if number == _STATE:
            place = self._state.first_place()
        else:
            place = self._partitions[number].load_horizon()
            self._skipped.add(number)
        self._thread.step()
        self._places[number] = place

    # --- Messages ---------------------------------------------------------------------------------

    def _take_row_group(
        self, partition: KafkaPartition, data: NamespaceReader, message: Message
    ) -> None:
        try:
            record = self._heads.read(message)
        except BadRecord as error:
            partition.tell(message.offset(), error)
            self._skipped.add(partition.number)
            return
        self._thread.step()
        if record.end_offset > partition.bounds.end:
            partition.add(record)
        if partition.number in self._skipped:
            self._skipped.discard(partition.number)
            self._hand_over_failed(partition.number, record.base_offset)
        if isinstance(record, ReferenceRecord):
            self._take_reference(partition, data, record)
            return
        self._hand_over_row_group(partition.number, record)
        if is_addressed(message, self._options.node):
            try:
                records = private_records(record)
            except BadRecord as error:
                partition.tell(message.offset(), error)
            else:
                self._hand_over(lambda: self._follower.records_read(records))

    def _hand_over_row_group(self, number: int, record: RowGroupRecord) -> None:
        self._learn(record)
        self._hand_over(lambda: self._deliver(number, record), len(record.group.data))

    def _take_reference(
        self, partition: KafkaPartition, data: NamespaceReader, record: ReferenceRecord
    ) -> None:
        """Read the row group of a reference if a subscriber may need it; else pass over it."""
        number, reference = partition.number, record.reference
        key, pattern = (reference.topic, number), reference.pattern
        if pattern not in self._patterns:
            self._patterns.add(pattern)
            self._hand_over(lambda: self._follower.pattern_found(pattern))
        if not self._follower.wants(reference.pattern):
            data.leave(*key)
            self._references = self._references.passed_one()
            self._pass_over(number, record)
            return
        group = self._reading.read(partition, data, record)
        if group is None:  # sessions that need it read it from the log
            self._pass_over(number, record)
        else:
            self._references = self._references.read_one(len(group.group.data))
            self._hand_over_row_group(number, group)

    def _hand_over_failed(self, number: int, end: int) -> None:
        """Let sessions read messages up to `end` from the log: they could not be handed over."""

        def failed() -> None:
            self._follower.messages_failed(number, end)
            self._delivered[number] = max(self._delivered[number], end)

        self._hand_over(failed)

    def _pass_over(self, number: int, record: ReferenceRecord) -> None:
        """Queue a passed reference for a later report to the event loop; raise Replaced."""
        self._thread.step()
        with self._room:
            work = self._queue[-1][0] if self._queue else None
            if not isinstance(work, PassedReferences):
                work = PassedReferences(self._report_passed)
                self._queue.append((work, 0))
            work.add(number, record)

    def _drain_passed(self) -> None:
        """Report passed references to the event loop, every KAFKA_PASSED_SECONDS."""
        now = time.monotonic()
        with self._room:
            if self._draining or not self._queue or now - self._told_at < KAFKA_PASSED_SECONDS:
                return
            self._told_at = now
            self._draining = True
        self._post(self._drain)

    def _report_passed(self, number: int, first: int, end: int, patterns: Collection[str]) -> None:
        """Report passed references to the target, in the event loop's thread."""
        self._follower.messages_passed_over(number, first, end, patterns)
        self._delivered[number] = max(self._delivered[number], end)

    def _deliver(self, number: int, record: RowGroupRecord) -> None:
        """Hand a row group to the target, in the event loop's thread."""
        try:
            self._follower.messages_read(number, record.group)
        except Exception:
            log.exception("followed messages failed", partition=number)
            self._follower.messages_failed(number, record.end_offset)
        self._delivered[number] = record.end_offset

    def _learn(self, record: RowGroupRecord) -> None:
        """Hand over the new topics of messages, before the messages.

        Their records in the state topic belong to the same transaction, but may come a little
        later. Topics of herald channels may have no such record: each name is waited for once.
        """
        names = row_group_topics(record.group.data, record.group.row_group)
        missing = [name for name in names if name and name not in self._topics]
        ends = time.monotonic() + KAFKA_TOPIC_SECONDS_MAX
        while missing and not self._stopping:
            self._state.refresh()
            self._thread.step()
            missing = self._create_known(missing, self._state.get)
            if missing:  # a transaction of another node may hide their records
                missing = self._create_known(missing, self._state.unsettled().get)
                self._thread.step()
            if time.monotonic() > ends:
                self._topics.update(missing)  # the messages themselves create them
                return
            if missing:
                time.sleep(0.005)

    def _create_known(self, names: Iterable[str], get: Callable[[str], bytes | None]) -> list[str]:
        """Hand over the topics that the state has; return the names of the others."""
        missing = []
        for name in names:
            topic = decode_topic(get(TOPIC + name))
            if topic is None or topic.deleted:
                missing.append(name)
            else:
                self._create(name, topic)
        return missing

    # --- State ------------------------------------------------------------------------------------

    def _take_state(self, message: Message) -> None:
        key, value = message.key(), message.value()
        if not isinstance(key, bytes):
            return
        name = key.decode(errors="replace")
        changes: Mapping[str, bytes | None] = {name: value}
        self._state.apply(changes, place=message.offset())
        if name.startswith(SESSION) and value is not None:
            self._take_session(name[len(SESSION) :], value)
        if name.startswith(SERVICE):
            service = decode_service(name[len(SERVICE) :], value)
            if service is not None and service.node != self._options.node:
                self._hand_over(lambda: self._follower.service_changed(service))
        if not name.startswith(TOPIC):
            return
        name, topic = name[len(TOPIC) :], decode_topic(value)
        if topic is None or topic.node == self._options.node:
            if topic is not None and not topic.deleted:
                self._topics.add(name)
            return
        if topic.deleted:
            self._topics.discard(name)
            self._hand_over(lambda: self._follower.topic_deleted(name))
        else:
            self._create(name, topic)

    def _take_session(self, key: str, value: bytes) -> None:
        try:
            session = msgspec.json.decode(value, type=KeptSession)
        except ValueError:
            return
        if session.writer != self._options.node:
            self._hand_over(lambda: self._follower.session_changed(key, session))

    def _create(self, name: str, topic: TopicState) -> None:
        self._topics.add(name)
        known = KnownTopic(name, topic.creator_id, topic.owner)
        self._hand_over(lambda: self._follower.topic_created(known))
