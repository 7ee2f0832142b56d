"""Moves a log from a folder to Kafka and back: row groups are copied as they are.

Offsets, message ids, times and senders are in the row groups, so they stay the same. The id of the
log is that of Kafka's topic afterwards; message ids keep that of the log in which they were given.
"""

import contextlib
import itertools
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from confluent_kafka import KafkaException, Producer

from penstock._kernels.crc32c import crc32c
from penstock.errors import (
    CannotExport,
    CannotKeep,
    CannotReadKafka,
    LogDamaged,
    OffsetBelowHorizon,
)
from penstock.limits import (
    KAFKA_OFFSETS_RESERVED,
    KAFKA_OPEN_SECONDS_MAX,
    MIB,
    SEGMENT_BYTES_MAX,
)
from penstock.ports import Bounds
from penstock.storage.arrow.format.file_names import partition_folder
from penstock.storage.arrow.format.log_state import LogState, save_state
from penstock.storage.arrow.format.segment import (
    HEAD_BYTES_MAX,
    chained,
    head,
    head_words,
    parse_row_group,
    row_group_times,
    row_group_topics,
)
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.catalog import Place
from penstock.storage.arrow.read.moved_places import moved_places
from penstock.storage.arrow.read.reader import StoredRowGroup, read_row_group
from penstock.storage.arrow.write.segment_writer import SegmentWriter
from penstock.storage.arrow.write.topic_journal import TopicJournal, Topics, read_topics
from penstock.storage.files import Files
from penstock.storage.group_offsets import GroupOffsets
from penstock.storage.kafka.client import Connection, failure
from penstock.storage.kafka.cluster_topics import prepare_topics
from penstock.storage.kafka.log_reader import KafkaLogReader
from penstock.storage.kafka.moved_groups import copy_groups
from penstock.storage.kafka.options import KafkaOptions
from penstock.storage.kafka.partition import KafkaPartition
from penstock.storage.kafka.records import HEAD_HEADER, RowGroupRecord
from penstock.storage.kafka.state import HEAD, NODE, TOPIC, NodeState, TopicState
from penstock.storage.session_numbers import KeptNumbers, SessionNumbers

__all__ = ["Moved", "export_log", "import_log"]

_TRANSACTION_BYTES: Final = 16 * MIB
_WAIT_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 0.02

Damaged = Callable[[LogDamaged], None]
Progress = Callable[[int], None]


class Moved(NamedTuple):
    """Totals of a log that was moved, as they were counted in the new place."""

    messages: int
    row_groups: int
    start: int
    end: int
    topics: int


# --- To Kafka -------------------------------------------------------------------------------------


def export_log(data: Path, options: KafkaOptions, *, damaged: Damaged, progress: Progress) -> Moved:
    """Copy the partition `options.node` of a folder to that of Kafka, which must have no message.

    A process with this node number is fenced. Messages that cannot be read are told to `damaged`.
    Raise CannotExport, CannotRead or KafkaUnusable.
    """
    view = LogView(data, partition=options.node)
    connection = Connection(options)
    facts = prepare_topics(connection)
    try:
        with KafkaLogReader(options) as target:
            _check_empty(target, options)
            writer = _Writer(connection, facts.log_id, facts.record_bytes_max)
            _check_empty(target, options)  # the fenced process may have written until now
            row_groups = messages = 0
            for group, words in _row_groups(view, damaged):
                writer.add(group, words)
                row_groups, messages = row_groups + 1, messages + group.count
                progress(group.count)
            topics = read_topics(view.files, view.folder)
            writer.finish(topics, end=view.end)
            _copy_number(SessionNumbers(view.folder), target.numbers(options.node))
            copy_groups(GroupOffsets(data), target.groups, partition=options.node)
            found = _count(target, options.node, writer.end)
    except OSError as error:
        raise CannotExport(options.location, error.strerror or str(error), "try again") from error
    if (found.row_groups, found.messages) != (row_groups, messages):
        reason = f"Kafka has {found.messages} messages of {messages}"
        raise CannotExport(options.location, reason, "delete the topics, and export again")
    return found._replace(topics=len(topics.names))


def _check_empty(target: KafkaLogReader, options: KafkaOptions) -> None:
    """Raise CannotExport if the partition has messages; raise OSError."""
    if target.refresh()[options.node].end:
        reason = f"partition {options.node} has messages already"
        raise CannotExport(options.location, reason, "give a topic that is new")


def _row_groups(view: LogView, damaged: Damaged) -> Iterator[tuple[StoredRowGroup, bytes]]:
    """Yield the row groups of a folder, each with the dictionaries of its segment."""
    end, crc = -1, 0
    for each in view.damage:
        if each.resumes_at > each.first_offset:
            damaged(LogDamaged(each.first_offset, each.resumes_at, each.reason))
    places = view.catalog.places(view.horizon, view.end)
    for _, of_segment in itertools.groupby(places, key=lambda place: place.path):
        for group, words in _of_segment(view, list(of_segment), damaged):
            found = group
            if group.base_offset == end:  # the checksum before it differs if row groups were merged
                data = chained(group.data, group.row_group, crc)
                found = StoredRowGroup(data, parse_row_group(data))
            end, crc = found.base_offset + found.count, found.row_group.crc32c
            yield found, words


def _of_segment(
    view: LogView, places: Sequence[Place], damaged: Damaged
) -> Iterator[tuple[StoredRowGroup, bytes]]:
    """Yield row groups of a segment with its dictionaries.

    The file is open, so they stay where they are if a broker merges them now.
    """
    handle = view.files.open_to_read(places[0].path)
    try:
        words = head_words(view.files.read_at(handle, 0, HEAD_BYTES_MAX))
        try:
            read_row_group(view.files, places[0], handle=handle)
        except LogDamaged:
            places = _moved(view, places, damaged)
        for place in places:
            try:
                yield read_row_group(view.files, place, handle=handle), words
            except LogDamaged as error:
                damaged(error)
    finally:
        os.close(handle)


def _moved(view: LogView, places: Sequence[Place], damaged: Damaged) -> Sequence[Place]:
    """Return where row groups are, if they were merged since they were looked up."""
    start, last = places[0].entry.base_offset, places[-1].entry
    end = last.base_offset + last.count
    found = moved_places(view.files, places[0], end)
    if not found:
        return places
    for each in found:
        if start < each.entry.base_offset:
            damaged(LogDamaged(start, each.entry.base_offset, "a row group cannot be read"))
        start = each.entry.base_offset + each.entry.count
    if start < end:
        damaged(LogDamaged(start, end, "a row group cannot be read"))
    return found


class _Writer:
    """Writes row groups to a partition, some in each transaction."""

    def __init__(self, connection: Connection, log_id: int, record_bytes_max: int) -> None:
        """Fence other writers of the partition; raise OSError."""
        self._connection = connection
        self._options = connection.options
        self._log_id = log_id
        self._record_bytes_max = record_bytes_max
        self._producer: Producer = connection.transactional(
            record_bytes_max, seconds_max=KAFKA_OPEN_SECONDS_MAX
        )
        self._heads: dict[bytes, str] = {}
        self._stored: set[str] = set()
        self._waiting: list[tuple[bytes, str, int]] = []
        # The first transaction ends the process of the node, if it still runs.
        self._changes = {f"{NODE}{self._options.node}": self._node_state(0)}
        self.end = 0
        """The offset after the last message that was added."""
        self._call(self._producer.init_transactions)

    def add(self, group: StoredRowGroup, words: bytes) -> None:
        """Write a row group, now or with later ones; raise OSError or CannotExport."""
        if len(group.data) + HEAD_BYTES_MAX > self._record_bytes_max:
            reason = f"offset {group.base_offset}: its row group has {len(group.data)} bytes"
            raise CannotExport(
                self._options.location, reason, "raise max.message.bytes of the topic"
            )
        latest = max(row_group_times(group.data, group.row_group))
        self._waiting.append((group.data, self._head(words), max(latest, 0) // 1000))
        self.end = group.base_offset + group.count
        self._stored.update(row_group_topics(group.data, group.row_group))
        if sum(len(each[0]) for each in self._waiting) >= _TRANSACTION_BYTES:
            self._commit()

    def _head(self, words: bytes) -> str:
        """Return the name of the head for some dictionaries."""
        if words not in self._heads:
            made = head(
                self._log_id,
                partition=self._options.node,
                base_offset=0,
                previous_end=0,
                previous_crc=0,
                words=words,
            )
            self._heads[words] = f"{crc32c([made]):08x}"
            self._changes[HEAD + self._heads[words]] = made
        return self._heads[words]

    def finish(self, topics: Topics, *, end: int) -> None:
        """Write the topics, and where the next process of the node goes on; raise OSError."""
        states = {
            name: TopicState(creator.hex(), topics.owners.get(name, ""), name in self._stored)
            for name, creator in topics.names
        }
        states |= {name: TopicState(deleted=True) for name in topics.deleted}
        self._changes |= {TOPIC + name: msgspec.json.encode(each) for name, each in states.items()}
        self._changes[f"{NODE}{self._options.node}"] = self._node_state(end)
        self._commit()

    @staticmethod
    def _node_state(end: int) -> bytes:
        return msgspec.json.encode(
            NodeState(
                owner="export",
                host=socket.gethostname(),
                process=os.getpid(),
                since_us=time.time_ns() // 1000,
                reserved=end + KAFKA_OFFSETS_RESERVED,
            )
        )

    def _commit(self) -> None:
        options, producer = self._options, self._producer
        try:
            producer.begin_transaction()
            for key, content in self._changes.items():
                producer.produce(options.state_topic, content, key.encode(), partition=0)
            for value, name, timestamp_ms in self._waiting:
                producer.produce(
                    options.topic,
                    value,
                    partition=options.node,
                    headers=[(HEAD_HEADER, name.encode())],
                    timestamp=timestamp_ms,
                )
        except (KafkaException, BufferError) as error:
            raise failure(str(error)) from error
        self._call(producer.commit_transaction)
        self._waiting, self._changes = [], {}

    def _call(self, call: Callable[[float], object]) -> None:
        """Call until it succeeds or the time is up; raise OSError."""
        deadline = time.monotonic() + KAFKA_OPEN_SECONDS_MAX
        while True:
            try:
                call(_WAIT_SECONDS)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise failure(error) from error
                if time.monotonic() > deadline:
                    raise self._connection.timed_out(KAFKA_OPEN_SECONDS_MAX) from error
            else:
                return


def _count(log: KafkaLogReader, number: int, end: int) -> Moved:
    """Read a partition, and count what it has; raise OSError or LogDamaged."""
    deadline = time.monotonic() + KAFKA_OPEN_SECONDS_MAX
    bounds = log.refresh()[number]
    while bounds.end < end and time.monotonic() < deadline:
        time.sleep(_RETRY_SECONDS)  # Kafka shows a transaction soon after its commit
        bounds = log.refresh()[number]
    row_groups = messages = 0
    for record in log.scanner.partition(number).walk(bounds.horizon, bounds.end):
        row_groups, messages = row_groups + 1, messages + record.group.count
    return Moved(messages, row_groups, bounds.horizon, bounds.end, 0)


def _copy_number(source: KeptNumbers, target: KeptNumbers) -> None:
    """Copy the session number that the next process starts with; raise OSError."""
    with contextlib.suppress(ValueError):  # a file that cannot be read: the broker ignores it too
        number = source.load()
        if number is not None:
            target.save(number)


# --- To a folder ----------------------------------------------------------------------------------


def _bounds(source: KafkaLogReader, partition: int) -> Bounds:
    """Ask Kafka for the bounds of a partition; raise CannotReadKafka."""
    location = source.options.location
    try:
        bounds = source.refresh().get(partition)
    except OSError as error:
        raise CannotReadKafka(location, error.strerror or str(error)) from error
    if bounds is None:
        raise CannotReadKafka(location, f"it has no partition {partition}")
    return bounds


def import_log(
    options: KafkaOptions,
    data: Path,
    *,
    partition: int,
    damaged: Damaged,
    progress: Progress,
) -> Moved:
    """Copy a partition from Kafka to a folder, which must have no log of that partition.

    Messages that cannot be read are told to `damaged`. Raise CannotReadKafka or CannotKeep.
    """
    folder = partition_folder(data, partition)
    if folder.exists():
        raise CannotKeep(str(data), f"it has log/{partition} already")
    try:
        with KafkaLogReader(options) as source:
            bounds = _bounds(source, partition)
            records = _records(source.scanner.partition(partition), damaged, *bounds)
            topics = source.topics()
            counted = _write_folder(
                folder, partition, source.log_id, records, topics, end=bounds.end, progress=progress
            )
            _copy_number(source.numbers(partition), SessionNumbers(folder))
            copy_groups(source.groups, GroupOffsets(data), partition=partition)
    except OSError as error:
        raise CannotKeep(str(data), error.strerror or str(error)) from error
    view = LogView(data, partition=partition)
    found = sum(view.describe(each).messages for each in view.segments)
    if found != counted.messages:
        reason = f"it has {found} messages of {counted.messages}"
        raise CannotKeep(str(data), f"{reason}; delete log/{partition}, and import again")
    return counted._replace(start=view.horizon, end=view.end)


def _records(
    partition: KafkaPartition, damaged: Damaged, start: int, end: int
) -> Iterator[RowGroupRecord]:
    while start < end:
        try:
            for record in partition.walk(start, end):
                yield record
                start = record.end_offset
        except LogDamaged as error:
            damaged(error)
            start = max(error.resumes_at, start + 1)
        except OffsetBelowHorizon as error:  # of a namespace, or retention was faster
            last = min(max(error.horizon, start + 1), end)
            damaged(LogDamaged(max(error.offset, start), last, "retention has removed them"))
            start = last
        else:
            return


def _write_folder(
    folder: Path,
    partition: int,
    log_id: int,
    records: Iterator[RowGroupRecord],
    topics: dict[str, TopicState],
    *,
    end: int,
    progress: Progress,
) -> Moved:
    """Write segments, topics and the state of a log; raise OSError."""
    files = Files()
    files.make_folder(folder)
    writer: SegmentWriter | None = None
    used = b""
    messages = row_groups = 0
    horizon, position, last_crc = end, 0, 0
    for record in records:
        group, words = record.group, head_words(record.head)
        if not row_groups:
            horizon = position = record.base_offset
            save_state(files, folder, LogState(log_id, partition, end, horizon, horizon))
        follows = position == record.base_offset and last_crc == group.row_group.previous
        if writer is None or not follows or words != used or writer.size > SEGMENT_BYTES_MAX:
            if writer is not None:
                writer.seal()
            writer = SegmentWriter(
                files, folder, log_id=log_id, partition=partition, base_offset=record.base_offset,
                previous_end=position, previous_crc=group.row_group.previous, words=words,
            )  # fmt: skip
            used = words
        writer.append_encoded(group.data, group.row_group)
        position, last_crc = record.end_offset, group.row_group.crc32c
        messages, row_groups = messages + group.count, row_groups + 1
        progress(group.count)
    if writer is not None:
        writer.seal()
    _write_topics(files, folder, topics)
    save_state(files, folder, LogState(log_id, partition, end, position or end, horizon))
    return Moved(messages, row_groups, horizon, end, len(topics))


def _write_topics(files: Files, folder: Path, topics: dict[str, TopicState]) -> None:
    journal = TopicJournal(files, folder)
    for name, each in topics.items():
        if each.deleted:
            journal.remove(name)
            continue
        creator = b""
        with contextlib.suppress(ValueError):
            creator = bytes.fromhex(each.creator)
        journal.add(name, creator, each.owner)
    journal.write(sync=True)
