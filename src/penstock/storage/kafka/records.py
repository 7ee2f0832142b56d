"""Records of Kafka as row groups: the value of a record is a row group as a segment file has it.

The head of a segment, which a reader needs too, is stored once in the state topic. A header of each
record names it by its checksum.

    Kafka record   headers    penstock.head: 8 hexadecimal digits
                              penstock.nodes: nodes that private messages are for, -1 for all
                   timestamp  time of the latest message, in milliseconds
                   value      dictionary of topic, dictionary of sender, record batch

A row group of a namespace is such a record in the Kafka topic of the namespace. In the first topic,
which has the order of all row groups of a partition, a *reference* is in its place:

    Kafka record   headers    penstock.reference: version of the format, 1
                   timestamp  as that of the row group
                   value      JSON of a Reference

The record of the row group has one header more:

                   headers    penstock.previous: the offset after the last message of the record
                              before it, of the same partition; 0 if that is not known
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message

from penstock._kernels import stored
from penstock._kernels.batch import Sender
from penstock._kernels.crc32c import crc32c
from penstock.errors import LogFormatTooNew
from penstock.model import Form, Kind
from penstock.ports import EVERY_NODE, Record
from penstock.protocols import PROTOCOLS
from penstock.storage.arrow.format.segment import (
    TIMESTAMPS,
    BadRowGroup,
    Columns,
    check_row_group,
    head,
    parse_head,
    parse_row_group,
    row_group_times,
)
from penstock.storage.arrow.read.reader import StoredRowGroup
from penstock.storage.rows import read_whole_batch
from penstock.storage.schema import SCHEMA

__all__ = [
    "HEAD_HEADER",
    "NODES_HEADER",
    "PREVIOUS_HEADER",
    "REFERENCE_FORMAT",
    "REFERENCE_HEADER",
    "BadRecord",
    "Heads",
    "LogRecord",
    "Reference",
    "ReferenceRecord",
    "RowGroupRecord",
    "is_addressed",
    "latest_ms",
    "previous_end",
    "private_records",
]

HEAD_HEADER: Final = "penstock.head"
NODES_HEADER: Final = "penstock.nodes"
PREVIOUS_HEADER: Final = "penstock.previous"
REFERENCE_HEADER: Final = "penstock.reference"
REFERENCE_FORMAT: Final = b"1"
_FORMAT_DIGITS_MAX: Final = 9
_PRIVATE: Final = 0x80
"""The bit of `form` of a private message."""
_PRIVATE_COLUMNS: Final = (
    "client", "correlation", "form", "headers", "kind", "protocol", "sender", "status", "topic",
    "timestamp", "value",
)  # fmt: skip


class BadRecord(ValueError):
    """A record that is neither a row group nor a reference, or that was damaged."""


class RowGroupRecord(NamedTuple):
    """A row group, and the place of its record: the Kafka offset in the first topic."""

    place: int
    group: StoredRowGroup
    head: bytes

    @property
    def base_offset(self) -> int:
        """Offset of the first message."""
        return self.group.base_offset

    @property
    def end_offset(self) -> int:
        """One past the offset of the last message."""
        return self.group.base_offset + self.group.count

    @property
    def latest_us(self) -> int:
        """The later of the times of the first and the last message."""
        return max(row_group_times(self.group.data, self.group.row_group))

    @property
    def crc32c(self) -> int:
        """The checksum of the row group."""
        return self.group.row_group.crc32c

    def batch(self, columns: Sequence[str]) -> pa.RecordBatch:
        """Return the messages with some columns of the log's schema; raise BadRecord."""
        names = set(columns)
        fields = [number for number, field in enumerate(SCHEMA) if field.name in names]
        options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
        try:
            stream = pa.py_buffer(b"".join((self.head, self.group.data)))
            with pa.ipc.open_stream(stream, options=options) as reader:
                batch = read_whole_batch(reader)
        except (pa.ArrowException, OSError, StopIteration) as error:
            raise BadRecord(f"Arrow cannot read its columns: {error}") from error
        if len(batch) != self.group.count:
            raise BadRecord(f"{len(batch)} rows, of {self.group.count}")
        return batch


class Reference(msgspec.Struct, frozen=True):
    """Names a row group: the Kafka topic of its namespace, and the place of its record there.

    All its messages are of topics that match `pattern`. `latest_us` is the later of the times of
    the first and the last message.
    """

    base_offset: int
    count: int
    latest_us: int
    crc32c: int
    pattern: str
    topic: str
    place: int


class ReferenceRecord(NamedTuple):
    """A reference, and the place of its record: the Kafka offset in the first topic."""

    place: int
    reference: Reference

    @property
    def base_offset(self) -> int:
        """Offset of the first message."""
        return self.reference.base_offset

    @property
    def end_offset(self) -> int:
        """One past the offset of the last message."""
        return self.reference.base_offset + self.reference.count

    @property
    def latest_us(self) -> int:
        """The later of the times of the first and the last message."""
        return self.reference.latest_us

    @property
    def crc32c(self) -> int:
        """The checksum of the row group."""
        return self.reference.crc32c


LogRecord: TypeAlias = RowGroupRecord | ReferenceRecord
"""A record of the first topic."""


class Heads:
    """Heads of segments by their checksum. Any thread may use it."""

    def __init__(
        self,
        log_id: int,
        partition: int,
        find: Callable[[str], bytes | None],
        *,
        passes_newer: bool = False,
    ) -> None:
        """`find` looks up the head of another node or version, by its name; it may block.

        With `passes_newer`, records of a later Penstock are bad ones in other partitions than
        `partition`: a node delivers what it can read, but writes nothing behind such a record.
        """
        self._partition = partition
        self._passes_newer = passes_newer
        self.own = head(log_id, partition=partition, base_offset=0, previous_end=0, previous_crc=0)
        self.own_name = f"{crc32c([self.own]):08x}"
        self._find = find
        self._known: dict[str, tuple[bytes, stored.SegmentWords]] = {}
        self.own_words = self._add(self.own_name, self.own)[1]

    def _add(self, name: str, data: bytes) -> tuple[bytes, stored.SegmentWords]:
        found = parse_head(data, path=f"head/{name}")
        self._known[name] = data, stored.SegmentWords(found.protocols, found.kinds)
        return self._known[name]

    def _get(self, name: str) -> tuple[bytes, stored.SegmentWords]:
        known = self._known.get(name)
        if known is None:
            data = self._find(name)
            if data is None or f"{crc32c([data]):08x}" != name:
                raise BadRecord(f"the head {name} of the record is not in the state topic")
            try:
                known = self._add(name, data)
            except ValueError as error:
                raise BadRecord(f"the head {name} of the record: {error}") from error
        return known

    def read(self, message: Message) -> LogRecord:
        """Return the row group or the reference in a record; raise BadRecord or LogFormatTooNew."""
        form = dict(message.headers() or ()).get(REFERENCE_HEADER)
        if form is None:
            return self.parse(message)
        place, value = message.offset(), message.value()
        if form != REFERENCE_FORMAT:
            self._check_reference_format(form, message)
        try:
            found = msgspec.json.decode(value or b"", type=Reference)
        except ValueError as error:
            raise BadRecord(f"a reference: {error}") from error
        if place is None or found.count <= 0:
            raise BadRecord("a reference without messages")
        return ReferenceRecord(place, found)

    def resolve(self, record: ReferenceRecord, message: Message) -> RowGroupRecord:
        """Return the row group of a reference from `message`, the record that it names.

        The result has the place of the reference. Raise BadRecord or LogFormatTooNew.
        """
        found, reference = self.parse(message), record.reference
        if (found.base_offset, found.group.count, found.crc32c) != (
            reference.base_offset, reference.count, reference.crc32c
        ):  # fmt: skip
            raise BadRecord(f"Kafka topic {reference.topic!r} has another row group in its place")
        return found._replace(place=record.place)

    def parse(self, message: Message) -> RowGroupRecord:
        """Return the row group in a record; raise BadRecord or LogFormatTooNew."""
        value = message.value()
        headers = dict(message.headers() or ())
        name = headers.get(HEAD_HEADER)
        place = message.offset()
        if value is None or place is None or not isinstance(name, bytes):
            raise BadRecord("it is not a row group of Penstock")
        try:
            data, words = self._get(name.decode("ascii", "replace"))
        except LogFormatTooNew as error:
            self._pass_newer(message, error)
            raise
        try:
            row_group = parse_row_group(value)
            whole = row_group.size == len(value) and check_row_group(value, row_group)
        except BadRowGroup as error:
            raise BadRecord(str(error)) from error
        if not whole:
            raise BadRecord("its checksum is wrong")
        return RowGroupRecord(place, StoredRowGroup(value, row_group, words), data)

    def _check_reference_format(self, form: object, message: Message) -> None:
        """Raise LogFormatTooNew for a reference of a later Penstock, BadRecord for any other."""
        if not isinstance(form, bytes) or not form.isdigit() or len(form) > _FORMAT_DIGITS_MAX:
            raise BadRecord("a reference of no known format")
        error = LogFormatTooNew("a reference to a namespace", int(form), int(REFERENCE_FORMAT))
        self._pass_newer(message, error)
        raise error

    def _pass_newer(self, message: Message, error: LogFormatTooNew) -> None:
        """Raise BadRecord if records of a later Penstock are passed over in this partition."""
        if self._passes_newer and message.partition() != self._partition:
            raise BadRecord(str(error)) from error


def is_addressed(message: Message, node: int) -> bool:
    """Return whether a record has private messages for clients of a node."""
    nodes = dict(message.headers() or ()).get(NODES_HEADER)
    if not isinstance(nodes, bytes):
        return False
    return not {b"%d" % node, b"%d" % EVERY_NODE}.isdisjoint(nodes.split(b","))


def previous_end(message: Message) -> int:
    """Return the end of the record before a record of a namespace's topic; 0 if unknown."""
    end = dict(message.headers() or ()).get(PREVIOUS_HEADER)
    return int(end) if isinstance(end, bytes) and end.isdigit() else 0


def private_records(record: RowGroupRecord) -> list[Record]:
    """Return the private messages of a row group; raise BadRecord."""
    batch = record.batch(_PRIVATE_COLUMNS)
    private = pc.greater_equal(batch.column("form"), pa.scalar(_PRIVATE, pa.uint8()))
    try:
        return [_record(row) for row in batch.filter(private).to_pylist()]
    except (ValueError, LookupError, OverflowError) as error:
        raise BadRecord(f"a private message: {error}") from error


def _record(row: dict[str, Any]) -> Record:
    return Record(
        protocol=PROTOCOLS[row["protocol"]],
        kind=Kind[row["kind"].upper()],
        topic=row["topic"] or "",
        value=row["value"],
        sender=Sender(bytes(16), row["client"]),
        sender_name=row["sender"] or "",
        timestamp_us=int(row["timestamp"].timestamp() * 1e6),
        form=Form(row["form"] & ~_PRIVATE),
        private=True,
        headers=tuple((each["key"], each["value"]) for each in row["headers"] or ()),
        correlation=row["correlation"],
        status=row["status"],
    )


def latest_ms(columns: Columns) -> int:
    """Return the time of the latest message of a row group, for the timestamp of its record."""
    times = columns.buffers[TIMESTAMPS]
    if isinstance(times, int):
        return 0
    first: int = struct.unpack_from("<q", times)[0]
    last: int = struct.unpack_from("<q", times, 8 * (columns.count - 1))[0]
    return max(first, last, 0) // 1000
