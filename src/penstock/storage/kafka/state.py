"""The state of a log besides its messages, in a compacted Kafka topic of one partition.

    key              value
    topic/NAME       {"creator", "owner", "stored"} or {"deleted"}
    group/NAME       the last report of a consumer group
    node/N           the process that writes partition N, and the offsets that it has reserved
    followed/N       how far node N has delivered the partitions of other nodes
    numbers/N        the session number with which the next process of node N starts
    head/CRC32C      the head of a segment
    namespace/TOPIC  a Kafka topic with the messages of namespaces, and their patterns
    ends/N           the last row groups of node N in the Kafka topics of namespaces
    stored/N         the bytes of principals in the partition of node N
    service/N/PATH   how many clients of node N serve a path
    session/KEY      a client that may resume: its node, and the positions of its subscriptions
    sink/WRITER/P    the last epoch of a writer of sinks that process P has published or begun

The last value of a key counts. Records of topics and nodes are part of the transactions that write
messages, and so are those of published epochs; all others are written by themselves.
"""

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

import msgspec
import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from penstock.errors import GroupDamaged, GroupElsewhere
from penstock.limits import (
    GROUP_OWNER_SILENT_SECONDS,
    GROUPS_PER_PRINCIPAL_MAX,
    KAFKA_CLOSE_SECONDS_MAX,
    KAFKA_DELETIONS_MAX,
    KAFKA_READ_SECONDS_MAX,
    KAFKA_STATE_SECONDS_MAX,
    KAFKA_TOPICS_FORGOTTEN_MAX,
    SERVICE_NODE_SILENT_SECONDS,
    TOPICS_REMOVED_MAX,
)
from penstock.ports import GroupProgress, GroupState, GroupSummary, Subscription
from penstock.ports.nodes import Followed
from penstock.ports.sinks import SinkWriter
from penstock.storage.group_offsets import (
    check_group_count,
    check_group_name,
    decoded,
    owner_of,
    updated,
)
from penstock.storage.kafka.client import Connection, RecordReader, RecordsRemoved, failure
from penstock.storage.kafka.session_records import SessionRecords
from penstock.storage.kafka.sink_records import SinkRecords

__all__ = [
    "KafkaGroups",
    "KafkaNumbers",
    "KafkaStoredCounts",
    "NamespaceEnd",
    "NamespaceEnds",
    "NamespaceState",
    "NodeReport",
    "NodeState",
    "StateTopic",
    "TopicState",
    "decode_node",
    "decode_topic",
]

log = structlog.get_logger("penstock.log")

ENDS: Final = "ends/"
FOLLOWED: Final = "followed/"
GROUP: Final = "group/"
HEAD: Final = "head/"
NAMESPACE: Final = "namespace/"
NODE: Final = "node/"
NUMBERS: Final = "numbers/"
SERVICE: Final = "service/"
SESSION: Final = "session/"
SINK: Final = "sink/"
STORED: Final = "stored/"
TOPIC: Final = "topic/"
_OUTSIDE_TRANSACTIONS: Final = (FOLLOWED, GROUP, NUMBERS, SERVICE, SESSION, STORED)
"""Prefixes of keys that are never written in a transaction: uncommitted reads are valid."""
CLIENT_ID_BYTES: Final = 16
"""Size of a Rheos client id."""

_State = TypeVar("_State")


class TopicState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A topic: the client id of its creator, in hexadecimal, and its owner.

    `stored` says that it has had a message. `node` is the one that has written this.
    """

    creator: str = ""
    owner: str = ""
    stored: bool = False
    deleted: bool = False
    node: int = -1

    @property
    def creator_id(self) -> bytes:
        """The 16 bytes of the creator's id; none if they cannot be read."""
        try:
            creator = bytes.fromhex(self.creator)
        except ValueError:
            return b""
        return creator if len(creator) == CLIENT_ID_BYTES else b""


def decode_topic(value: bytes | None) -> TopicState | None:
    """Return a topic from its record; None if it cannot be read."""
    return _decode(value, TopicState)


class NodeState(msgspec.Struct, frozen=True):
    """The process that writes a partition; it assigns only offsets below `reserved`."""

    owner: str
    host: str
    process: int
    since_us: int
    reserved: int


def decode_node(value: bytes | None) -> NodeState | None:
    """Return the owner of a partition from its record; None if it cannot be read."""
    return _decode(value, NodeState)


class NamespaceState(msgspec.Struct, frozen=True):
    """The patterns whose messages were written to a Kafka topic, by any node at any time."""

    patterns: list[str]


class NamespaceEnd(msgspec.Struct, frozen=True):
    """A row group in the Kafka topic of a namespace: its place there, and the offset after it."""

    place: int
    end: int


class NamespaceEnds(msgspec.Struct, frozen=True):
    """The last row groups of a node, by Kafka topic; there may be a few later ones."""

    topics: dict[str, NamespaceEnd]


class NodeReport(msgspec.Struct, frozen=True):
    """How far a node had delivered the partitions of other nodes at the time `at_us`."""

    at_us: int
    followed: dict[int, Followed]


class _Cursor:
    """A reader of the state topic, and the place up to which it has read."""

    def __init__(self, connection: Connection, place: int) -> None:
        self.reading = threading.Lock()  # held while Kafka is asked
        self.reader = RecordReader(connection)
        self.place = place
        self._connection = connection
        self._uncommitted: RecordReader | None = None  # not before it is needed

    @property
    def uncommitted(self) -> RecordReader:
        """A reader that also gets what is behind the start of an open transaction."""
        if self._uncommitted is None:
            try:
                self._uncommitted = RecordReader(self._connection, uncommitted=True)
            except KafkaException as error:
                raise failure(error) from error
        return self._uncommitted

    def close(self) -> None:
        """Disconnect, without waiting for it."""
        self.reader.close()
        if self._uncommitted is not None:
            self._uncommitted.close()


class StateTopic:
    """The state of a log, as far as it was read. Any thread may use it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._topic = connection.options.state_topic
        self._lock = threading.Lock()
        self._cursor = _Cursor(connection, 0)
        self._producer: Producer | None = None  # one that only reads needs none
        self._values: dict[str, bytes] = {}
        self._places: dict[str, int] = {}  # of the values that were read
        self._deleted: dict[str, int] = {}  # the places of deletions that were read, oldest first
        self._sessions = SessionRecords()
        self._removed_topics: dict[str, None] = {}  # keys, oldest first
        self._sinks = SinkRecords()
        self._namespaces: frozenset[str] = frozenset()

    def refresh(self) -> None:
        """Read on to the end of the topic; raise OSError."""
        with self._reading() as cursor:
            first, end = cursor.reader.bounds(self._topic, 0)
            if end <= cursor.place:
                return
            try:
                for record in cursor.reader.records(
                    self._topic, 0, max(first, cursor.place), end=end
                ):
                    key, value, offset = record.key(), record.value(), record.offset()
                    if isinstance(key, bytes) and offset is not None:
                        self.apply({key.decode(errors="replace"): value}, place=offset)
                        cursor.place = offset + 1
            except RecordsRemoved:  # compaction or a truncation meanwhile: the next call reads on
                cursor.place = 0
                with self._lock:
                    self._places.clear()
                    self._deleted.clear()
                    self._sessions.clear()
            else:
                cursor.place = max(cursor.place, end)

    def refresh_all(self) -> None:
        """As `refresh`; also read records outside transactions that an open transaction hides."""
        self.refresh()
        for key, (value, place) in self._hidden().items():
            if key.startswith(_OUTSIDE_TRANSACTIONS):
                self.apply({key: value}, place=place)

    def unsettled(self) -> dict[str, bytes | None]:
        """Return the values behind the place up to which the topic was read; raise OSError.

        While a transaction is open, Kafka does not show what others write after its first record.
        Values of transactions may still be aborted.
        """
        return {key: value for key, (value, _) in self._hidden().items()}

    def _hidden(self) -> dict[str, tuple[bytes | None, int]]:
        """Return the values that `refresh` has not read, with their places; raise OSError."""
        found: dict[str, tuple[bytes | None, int]] = {}
        with self._reading() as cursor:
            reader, first = cursor.uncommitted, cursor.place
            end = reader.bounds(self._topic, 0)[1]
            if end <= first:
                return found
            with contextlib.suppress(RecordsRemoved):  # by compaction: `refresh` reads on
                for record in reader.records(self._topic, 0, first, end=end):
                    key, offset = record.key(), record.offset()
                    if isinstance(key, bytes) and offset is not None:
                        found[key.decode(errors="replace")] = record.value(), offset
        return found

    def find_head(self, name: str) -> bytes | None:
        """Return the head of a segment; None if it is not in the topic. Raise OSError.

        The checksum of a head is its name, so one of an aborted transaction is right too.
        """
        key = HEAD + name
        if self.get(key) is None:
            self.refresh()
        found = self.get(key)
        return self.unsettled().get(key) if found is None else found

    @contextlib.contextmanager
    def _reading(self) -> Iterator[_Cursor]:
        """Lend the cursor to one thread at a time; raise OSError.

        The cursor is replaced if its reader failed, or if another thread does not return it in
        KAFKA_STATE_SECONDS_MAX: commits and deliveries need the state.
        """
        ends = time.monotonic() + KAFKA_STATE_SECONDS_MAX
        while True:
            cursor = self._cursor
            if not cursor.reading.acquire(timeout=max(ends - time.monotonic(), 0)):
                self._replace(cursor)
                raise self._connection.timed_out(KAFKA_STATE_SECONDS_MAX)
            if cursor is self._cursor:
                break
            cursor.reading.release()  # it was replaced meanwhile
        try:
            yield cursor
        except OSError:
            self._replace(cursor)
            raise
        finally:
            cursor.reading.release()
            if cursor is not self._cursor:
                cursor.close()

    def _replace(self, cursor: _Cursor) -> None:
        """Replace a cursor by one with a new reader at the same place; raise OSError."""
        with self._lock:
            if self._cursor is cursor:
                try:
                    self._cursor = _Cursor(self._connection, cursor.place)
                except KafkaException as error:
                    raise failure(error) from error

    @property
    def place(self) -> int:
        """The place up to which the topic was read."""
        return self._cursor.place

    def first_place(self) -> int:
        """Return the first place that Kafka still has; raise OSError."""
        with self._reading() as cursor:
            return cursor.reader.bounds(self._topic, 0)[0]

    def end_place(self) -> int:
        """Return the place behind the last record; raise OSError."""
        with self._reading() as cursor:
            return cursor.reader.bounds(self._topic, 0)[1]

    def apply(self, changes: Mapping[str, bytes | None], *, place: int | None = None) -> None:
        """Note values that were written, or read at a place.

        Several readers follow the topic. A reader that lags must not undo changes that another has
        read, nor restore deleted keys.
        """
        with self._lock:
            for key, value in changes.items():
                if place is not None:
                    if place < max(self._places.get(key, 0), self._deleted.get(key, 0)):
                        continue
                    self._places[key] = place
                counts: bool | None = value is not None
                if key.startswith(SESSION):
                    counts = self._sessions.note(key, value)
                elif key.startswith(SINK):
                    counts = self._sinks.note(key[len(SINK) :], value, place)
                if counts is None:
                    continue
                if key.startswith(TOPIC):
                    self._note_topic(key, value)
                if value is None or not counts:
                    self._values.pop(key, None)
                    self._note_deletion(key, self._places.pop(key, None))
                else:
                    self._values[key] = value
                    if key.startswith(NAMESPACE):
                        self._namespaces |= {key[len(NAMESPACE) :]}

    def _note_topic(self, key: str, value: bytes | None) -> None:
        self._removed_topics.pop(key, None)
        topic = decode_topic(value)
        if topic is not None and topic.deleted:
            self._removed_topics[key] = None

    def forget_topics(self, node: int) -> None:
        """Forget the oldest deleted topics above TOPICS_REMOVED_MAX; raise OSError.

        Each node forgets those that it has deleted, and those of nodes that do not run. A call
        forgets KAFKA_TOPICS_FORGOTTEN_MAX at most.
        """
        with self._lock:
            count = min(len(self._removed_topics) - TOPICS_REMOVED_MAX, KAFKA_TOPICS_FORGOTTEN_MAX)
            oldest = list(itertools.islice(self._removed_topics, max(count, 0)))
        for key in oldest:
            topic = decode_topic(self.get(key))
            if topic is not None and (topic.node == node or not self.is_running(topic.node)):
                self.send(key, None)

    def _note_deletion(self, key: str, place: int | None) -> None:
        self._deleted.pop(key, None)
        if place is not None:
            self._deleted[key] = place + 1
            if len(self._deleted) > KAFKA_DELETIONS_MAX:
                del self._deleted[next(iter(self._deleted))]

    def expired_sessions(self, *, count: int) -> list[tuple[str, int]]:
        """Return the keys and nodes of clients whose time to resume is over."""
        with self._lock:
            return self._sessions.expired(count=count)

    def sink(self, writer: str) -> SinkWriter | None:
        """Return the state of a writer of sinks, as far as the topic was read."""
        with self._lock:
            return self._sinks.find(writer)

    def sinks(self) -> dict[str, SinkWriter]:
        """Return the states of all writers of sinks, as far as the topic was read."""
        with self._lock:
            return self._sinks.all()

    def sink_processes(self, writer: str) -> list[tuple[str, int]]:
        """Return processes with a record of a writer, and their nodes; the last has the state."""
        with self._lock:
            return self._sinks.processes(writer)

    def is_running(self, node: int) -> bool:
        """Return whether a node has started or reported a moment ago, as far as was read."""
        state = self.load(f"{NODE}{node}", NodeState)
        report = self.load(f"{FOLLOWED}{node}", NodeReport)
        seen_us = max(0 if state is None else state.since_us, 0 if report is None else report.at_us)
        return time.time_ns() // 1000 - seen_us < SERVICE_NODE_SILENT_SECONDS * 1_000_000

    @property
    def namespaces(self) -> frozenset[str]:
        """The Kafka topics of namespaces, as far as the topic was read."""
        return self._namespaces

    def ends(self, node: int) -> dict[str, NamespaceEnd]:
        """Return the last row groups of a node in the Kafka topics of namespaces, as it told."""
        found = self.load(f"{ENDS}{node}", NamespaceEnds)
        return {} if found is None else found.topics

    def get(self, key: str) -> bytes | None:
        """Return the value of a key, as far as the topic was read."""
        with self._lock:
            return self._values.get(key)

    def load(self, key: str, kind: type[_State]) -> _State | None:
        """Return the value of a key as an object; None if there is none that can be read."""
        return _decode(self.get(key), kind)

    def values(self, prefix: str) -> dict[str, bytes]:
        """Return all values whose keys begin with a prefix, by the rest of the key."""
        with self._lock:
            return {
                key[len(prefix) :]: value
                for key, value in self._values.items()
                if key.startswith(prefix)
            }

    def all(self, prefix: str, kind: type[_State]) -> dict[str, _State]:
        """Return all objects whose keys begin with a prefix, by the rest of the key."""
        decoded = {name: _decode(value, kind) for name, value in self.values(prefix).items()}
        return {name: each for name, each in decoded.items() if each is not None}

    def put(self, key: str, value: bytes | None) -> int:
        """Write a value outside transactions; it is in Kafka when this returns. Raise OSError.

        Return its place.
        """
        failures: list[OSError] = []
        places: list[int] = []
        done = threading.Event()

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(failure(str(error)))
            else:
                place = message.offset()
                self.apply({key: value}, place=place)
                places.append(-1 if place is None else place)
            done.set()

        producer = self._produce(key, value, delivered)
        try:
            with self._connection.calls.noted():
                producer.flush(KAFKA_READ_SECONDS_MAX)
        except KafkaException as error:
            raise failure(error) from error
        if not done.is_set():
            raise self._connection.timed_out(KAFKA_READ_SECONDS_MAX)
        if failures:
            raise failures[0]
        return places[0]

    def send(
        self, key: str, value: bytes | None, *, failed: Callable[[], None] | None = None
    ) -> None:
        """Write a value by itself, without waiting for Kafka; raise OSError if it has no room.

        `failed` is called in any thread if Kafka does not take it.
        """

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None and failed is not None:
                failed()

        producer = self._produce(key, value, delivered)
        try:
            producer.poll(0)
        except KafkaException as error:
            raise failure(error) from error
        self.apply({key: value})

    def close(self) -> None:
        """Wait a moment for values that were sent, and disconnect, without waiting for it."""
        with self._lock:
            producers, self._producer = [self._producer], None
        if producers[0] is not None:
            producers[0].flush(KAFKA_CLOSE_SECONDS_MAX)
            self._connection.closing.drop("state writer", producers)
        self._cursor.close()

    def _produce(
        self,
        key: str,
        value: bytes | None,
        delivered: Callable[[KafkaError | None, Message], None],
    ) -> Producer:
        """Pass a value to the producer, and return the producer; raise OSError.

        A producer that has failed for good is replaced by a new one.
        """
        while True:
            with self._lock:
                self._producer = self._producer or self._connection.idempotent()
                producer = self._producer
            try:
                producer.produce(
                    self._topic, value, key.encode(), partition=0, on_delivery=delivered
                )
            except (KafkaException, BufferError) as error:
                reason = error.args[0] if error.args else None
                if not isinstance(reason, KafkaError) or not _is_fatal(reason):
                    raise failure(str(error)) from error
                log.warning("state writer replaced", topic=self._topic, error=reason.str())
            else:
                return producer
            with self._lock:
                if self._producer is producer:
                    self._producer = None
            producers = [producer]
            del producer
            self._connection.closing.drop("state writer", producers)


def _is_fatal(error: KafkaError) -> bool:
    """Return whether a producer can never be used again."""
    return error.fatal() or error.code() == KafkaError._FATAL  # noqa: SLF001


def _decode(value: bytes | None, kind: type[_State]) -> _State | None:
    if value is None:
        return None
    try:
        return msgspec.json.decode(value, type=kind)
    except ValueError:
        return None


class KafkaGroups:
    """The consumer groups of a log: a `ports.ConsumerGroups`. All nodes see all groups.

    The state of a group names the node that has its members, its owner, which writes the state
    again every few seconds. The last state counts: if two nodes take a group over at the same time,
    the one that writes last is the owner, and the other one notices with its next write. `node` and
    `process` name this process; a process that only reads has none.
    """

    is_shared = True

    def __init__(self, state: StateTopic, *, node: int = -1, process: str = "") -> None:
        self._state = state
        self._node = node
        self._process = process
        self.owner_groups_max = GROUPS_PER_PRINCIPAL_MAX
        self._lock = threading.Lock()

    def commit(
        self,
        group: str,
        offsets: Mapping[int, int],
        *,
        lost: int = 0,
        subscription: Subscription | None = None,
        progress: GroupProgress | None = None,
        owner: str = "",
    ) -> None:
        """See ports.ConsumerGroups."""
        check_group_name(group)
        with self._lock:
            before = self.load(group)
            if before is None:
                values = self._state.values(GROUP).values()
                check_group_count(
                    len(values), owner, lambda: map(owner_of, values), self.owner_groups_max
                )
            self._check_node(before)
            if progress is not None and progress.used:
                progress = msgspec.structs.replace(progress, node=self._node, process=self._process)
            now_us = time.time_ns() // 1000
            after = updated(
                before,
                group,
                offsets,
                lost=lost,
                now_us=now_us,
                subscription=subscription,
                progress=progress,
                owner=owner,
            )
            self._state.put(GROUP + group, msgspec.json.encode(after))
            if progress is not None and progress.used and not self._is_own(before):
                self._check_node(self.load(group))  # another node may have taken it too

    def _is_own(self, state: GroupState | None) -> bool:
        """Return whether this process has the members of a group."""
        progress = None if state is None else state.progress
        return progress is not None and progress.used and progress.process == self._process

    def _check_node(self, state: GroupState | None) -> None:
        """Raise GroupElsewhere if another node has the members of a group."""
        progress = None if state is None else state.progress
        if state is not None and progress is not None and progress.used and not self._is_own(state):
            raise GroupElsewhere(state.group, progress.node)

    def load(self, group: str) -> GroupState | None:
        """See ports.ConsumerGroups."""
        check_group_name(group)
        self._state.refresh_all()  # what was read before may lack the group, or its last state
        value = self._state.get(GROUP + group)
        return None if value is None else self._seen(decoded(group, value))

    def all(self) -> dict[str, GroupSummary]:
        """See ports.ConsumerGroups."""
        with contextlib.suppress(OSError):  # without Kafka, the last reports that are known
            self._state.refresh_all()
        found = {}
        for name, value in sorted(self._state.values(GROUP).items()):
            state = _decode(value, GroupState)
            if state is not None:
                found[name] = self._seen(state).summary
        return found

    def _seen(self, state: GroupState) -> GroupState:
        """Return a state, without an owner if the process of the owner does not run any more.

        That is so if another process of its node has replaced it, or if it has not written the
        state for GROUP_OWNER_SILENT_SECONDS.
        """
        progress = state.progress
        if progress is None or not progress.used or progress.process == self._process:
            return state
        node = self._state.load(f"{NODE}{progress.node}", NodeState)
        silent_us = time.time_ns() // 1000 - state.updated_us
        is_there = node is None or node.owner == progress.process
        if is_there and silent_us < GROUP_OWNER_SILENT_SECONDS * 1_000_000:
            return state
        return msgspec.structs.replace(
            state, progress=msgspec.structs.replace(progress, used=False, node=-1, process="")
        )

    def forget(self, group: str) -> None:
        """See ports.ConsumerGroups."""
        with contextlib.suppress(GroupDamaged):
            before = self.load(group)
            if before is None:
                return
            self._check_node(before)
        self._state.put(GROUP + group, None)


class KafkaStoredCounts:
    """A `KeptCounts` of a node."""

    def __init__(self, state: StateTopic, node: int) -> None:
        self._state = state
        self._key = f"{STORED}{node}"

    def load(self) -> bytes | None:
        """See KeptCounts."""
        self._state.refresh()
        return self._state.get(self._key)

    def save(self, counts: bytes) -> None:
        """See KeptCounts."""
        self._state.put(self._key, counts)


class KafkaNumbers:
    """The kept session number of a node."""

    def __init__(self, state: StateTopic, node: int) -> None:
        self._state = state
        self._key = f"{NUMBERS}{node}"

    def load(self) -> int | None:
        """Return the first number to assign; None if there is none. Raise OSError, ValueError."""
        self._state.refresh()
        value = self._state.get(self._key)
        return None if value is None else int(value)

    def save(self, number: int) -> None:
        """Keep the number that the next process starts with; raise OSError."""
        self._state.put(self._key, str(number).encode())
