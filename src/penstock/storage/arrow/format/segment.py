"""The bytes of a segment: an Arrow IPC stream of a head and row groups. See docs/log-format.md.

    segment   ┌──────┬───────────┬───────────┬─────┬───────────────┐
              │ head │ row group │ row group │  …  │ end of stream │
              └──────┴───────────┴───────────┴─────┴───────────────┘
    head      schema message, dictionary of protocol, dictionary of kind
    row group dictionary of topic, dictionary of sender, record batch
    message   0          4        8          8+M
              ┌──────────┬────────┬──────────┬──────┐
              │ FFFFFFFF │ M, i32 │ metadata │ body │
              └──────────┴────────┴──────────┴──────┘

Each row group has its own dictionaries, so it can be read with the head alone. pyarrow encodes one
of each message when this module is imported; a row group is this template with its numbers set.

In format 1 a row group has one checksum, of all its bytes. In format 2 its metadata have a checksum
for each dictionary and each buffer, and one of themselves. Format 2 is written; both are read.
"""

import dataclasses
import itertools
import struct
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock._kernels.crc32c import check_buffers, crc32c
from penstock._kernels.row_group import MessageLayout, RowGroupEncoder
from penstock.errors import LogFormatTooNew
from penstock.storage.flatbuffer import Table, root
from penstock.storage.schema import KINDS, PROTOCOLS, SCHEMA

__all__ = [
    "BUFFERS",
    "COLUMN_FORMAT",
    "END_OF_STREAM",
    "FORMAT",
    "HEAD_BYTES_MAX",
    "TIMESTAMPS",
    "TOPIC_INDICES",
    "BadHead",
    "BadRowGroup",
    "Columns",
    "EncodedRowGroup",
    "Head",
    "RowGroup",
    "Truncated",
    "buffer_regions",
    "chained",
    "check_metadata",
    "check_row_group",
    "count_topics",
    "encode_row_group",
    "head",
    "head_words",
    "parse_head",
    "parse_row_group",
    "row_group_times",
    "row_group_topic_counts",
    "row_group_topics",
    "text_array",
]

FORMAT: Final = 2
"""Version of the format that is written; a later one is refused."""
COLUMN_FORMAT: Final = 2
"""The first version with a checksum for each buffer."""
END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"
HEAD_BYTES_MAX: Final = 8192
"""Greatest size of a head."""
BUFFERS: Final = 45
"""Buffers of a record batch, in Arrow's flattened order."""

_PREFIX: Final = struct.Struct("<Ii")
_I64: Final = struct.Struct("<q")
_CONTINUATION: Final = 0xFFFFFFFF
_DICTIONARY_BATCH: Final = 2
_RECORD_BATCH: Final = 3
_NO_CRC: Final = b"00000000"
_CRC_MARK: Final = b"crc32c="
"""Precedes the checksum of a head."""
_CHECKSUMS: Final = struct.Struct(f">{2 + BUFFERS}I")
"""Checksums of a row group: of the dictionaries of topic and sender, and of all buffers."""
# Numbers of the flattened buffers with topics and timestamps, which are read without Arrow.
TOPIC_INDICES: Final = 7
TIMESTAMPS: Final = 13
_FEW_ROWS: Final = 512
"""Rows that are counted faster without Arrow."""


class BadHead(ValueError):
    """A file that does not start with the head of a segment."""


class BadRowGroup(ValueError):
    """Bytes that are not a row group."""


class Truncated(BadRowGroup):
    """Bytes that end inside a row group."""


@dataclasses.dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a row group, in memory.

    `buffers` are Arrow's flattened buffers; a number stands for so many zero bytes. `null_counts`
    are those of key, created, correlation and status. Topics and senders are the dictionaries.
    """

    base_offset: int
    count: int
    header_count: int
    null_counts: tuple[int, int, int, int]
    buffers: Sequence[memoryview | bytes | int]
    topics: Collection[bytes]
    senders: Collection[bytes]


class EncodedRowGroup(NamedTuple):
    """The bytes of a row group: consecutive buffers, `size` bytes in total."""

    buffers: list[memoryview | bytes]
    size: int
    crc32c: int


class Head(NamedTuple):
    """The head of a segment; `size` is its length in bytes.

    `previous_end` is the end of the segment before, and `previous_crc` the checksum of its last row
    group; the first segment of a log has its own base offset and 0 there. `last_crc` is the
    checksum of the last row group before row groups were merged, which is `previous_crc` of the
    next segment; None if none were merged.
    """

    format: int
    log_id: int
    partition: int
    base_offset: int
    previous_end: int
    previous_crc: int
    protocols: tuple[str, ...]
    """The dictionary of `protocol` that indices in this segment refer to."""
    kinds: tuple[str, ...]
    size: int
    last_crc: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class RowGroup:
    """A parsed row group: its place in the buffer, and its metadata.

    `layout` holds start and length of each flattened buffer, one after the other; the dictionaries
    likewise those of their offsets and data. All are positions in the buffer that was parsed.
    `checksums` are those of both dictionaries and of each buffer, empty in format 1. The first
    `zeros` bytes of the body are zero bytes that several buffers share.
    """

    start: int
    size: int
    base_offset: int
    count: int
    synced: int
    previous: int
    crc32c: int
    crc_position: int
    layout: tuple[int, ...]
    topic_count: int
    topic_layout: tuple[int, int, int, int]
    sender_count: int
    sender_layout: tuple[int, int, int, int]
    sender_start: int
    record_start: int
    body_start: int
    zeros: int
    checksums: tuple[int, ...]


# --- Messages -------------------------------------------------------------------------------------


class _Message(NamedTuple):
    """An IPC message: its metadata starts at `start`, its body at `body`, it ends at `end`."""

    table: Table
    start: int
    body: int
    end: int


def _message(data: memoryview, start: int, kind: int) -> _Message:
    """Parse one message of a kind; raise Truncated or BadRowGroup."""
    if len(data) - start < _PREFIX.size:
        raise Truncated(f"{len(data) - start} bytes of a message")
    mark, length = _PREFIX.unpack_from(data, start)
    if mark != _CONTINUATION or length <= 0 or length % 8:
        raise BadRowGroup(f"no message starts at {start}")
    metadata = start + _PREFIX.size
    if len(data) - metadata < length:
        raise Truncated(f"{len(data) - metadata} of {length} bytes of metadata")
    table = root(data[metadata : metadata + length])
    if table.uint8(1) != kind:
        raise BadRowGroup(f"message of kind {table.uint8(1)} at {start}, expected {kind}")
    body = metadata + length
    body_length = table.int64(3)
    if body_length < 0:
        raise BadRowGroup(f"a body of {body_length} bytes")
    if len(data) - body < body_length:
        raise Truncated(f"{len(data) - body} of {body_length} bytes of a body")
    return _Message(table, metadata, body, body + body_length)


class _Template:
    """Metadata of a message, with the places that differ between messages."""

    def __init__(self, message: bytes, *, dictionary: bool) -> None:
        view = memoryview(message)
        _, length = _PREFIX.unpack_from(message)
        table = root(view[_PREFIX.size : _PREFIX.size + length])
        batch = table.table(2).table(1) if dictionary else table.table(2)
        self.metadata = message[: _PREFIX.size + length]
        self.body_length = _PREFIX.size + table.slot(3)
        self.length = _PREFIX.size + batch.slot(0)
        nodes, node_count = batch.vector(1, 16)
        buffers, buffer_count = batch.vector(2, 16)
        self.nodes = struct.Struct(f"<{2 * node_count}q"), _PREFIX.size + nodes
        self.buffers = struct.Struct(f"<{2 * buffer_count}q"), _PREFIX.size + buffers
        self.texts: dict[str, tuple[int, int]] = {}
        for pair in [] if dictionary else table.tables(4):
            start, length = pair.string(0)
            key = bytes(view[_PREFIX.size + start : _PREFIX.size + start + length]).decode()
            start, length = pair.string(1)
            self.texts[key] = _PREFIX.size + start, _PREFIX.size + start + length
        self._same = self._between(
            [
                (self.body_length, self.body_length + 8),
                (self.length, self.length + 8),
                *((start, start + layout.size) for layout, start in (self.nodes, self.buffers)),
                *self.texts.values(),
            ]
        )

    def _between(self, changing: list[tuple[int, int]]) -> list[tuple[int, int, bytes]]:
        """Return the bytes between the places that differ."""
        found = []
        position = 0
        for start, end in [*sorted(changing), (len(self.metadata), 0)]:
            if start > position:
                found.append((position, start, self.metadata[position:start]))
            position = end
        return found

    def fits(self, metadata: bytes) -> bool:
        """Return whether metadata differ from this template only where allowed."""
        return len(metadata) == len(self.metadata) and all(
            metadata[start:end] == same for start, end, same in self._same
        )

    def layout(self, texts: Collection[str] = ()) -> MessageLayout:
        """Return the places for the encoder; those of the texts in this order."""
        return MessageLayout(
            self.metadata,
            body_length=self.body_length,
            length=self.length,
            nodes=self.nodes[1],
            buffers=self.buffers[1],
            texts=tuple(self.texts[key] for key in texts),
        )


def text_array(kind: pa.DataType, texts: Sequence[str]) -> pa.Array:
    """Return a column of texts. `pa.array` would do, but imports pandas where that is installed."""
    ends = itertools.accumulate(map(len, texts), initial=0)
    offsets = struct.pack(f"<{len(texts) + 1}i", *ends)
    data = "".join(texts).encode("ascii")
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(texts), buffers)


def _one(kind: pa.DataType) -> pa.Array:
    """Return a column of one number; see `text_array`."""
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bytes(8))])


_TEXTS_1: Final = {
    "penstock.base_offset": 20,
    "penstock.count": 10,
    "penstock.synced": 20,
    "penstock.previous": 8,
    "penstock.crc32c": 8,
}
"""Custom metadata of a record batch in format 1, with their lengths."""
_TEXTS: Final = {
    "penstock.base_offset": 20,
    "penstock.count": 10,
    "penstock.synced": 20,
    "penstock.previous": 8,
    "penstock.zeros": 10,
    "penstock.checksums": 2 * _CHECKSUMS.size,
    "penstock.crc32c": 8,
}


def _sample(texts: Mapping[str, int]) -> list[bytes]:
    """Return the four dictionaries and the record batch that pyarrow writes for a row."""
    words = {"protocol": PROTOCOLS, "kind": KINDS, "topic": ("topic",), "sender": ("sender",)}
    columns = []
    for field in SCHEMA:
        if field.name in words:
            indices = _one(field.type.index_type)
            values = text_array(pa.utf8(), words[field.name])
            columns.append(pa.DictionaryArray.from_arrays(indices, values))
        elif field.name == "headers":
            pair = field.type.value_type
            parts = [text_array(pair.field(number).type, ("header",)) for number in range(2)]
            values = pa.StructArray.from_arrays(parts, fields=list(pair))
            bounds = pa.py_buffer(struct.pack("<ii", 0, 1))
            columns.append(pa.Array.from_buffers(field.type, 1, [None, bounds], children=[values]))
        elif pa.types.is_binary(field.type) or pa.types.is_string(field.type):
            columns.append(text_array(field.type, ("text",)))
        else:
            columns.append(_one(field.type))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_batch(
            pa.RecordBatch.from_arrays(columns, schema=SCHEMA),
            custom_metadata={key: "0" * length for key, length in texts.items()},
        )
    stream = sink.getvalue().to_pybytes()
    messages = []
    position = 0
    while stream[position:] != END_OF_STREAM:
        _, length = _PREFIX.unpack_from(stream, position)
        metadata = root(memoryview(stream)[position + 8 : position + 8 + length])
        body_length = metadata.int64(3) if metadata.uint8(1) != 1 else 0
        messages.append(stream[position : position + 8 + length + body_length])
        position += 8 + length + body_length
    return messages[1:]


(_topic_message, _protocol_message, _kind_message, _sender_message, _batch_message) = _sample(
    _TEXTS
)
_TOPICS: Final = _Template(_topic_message, dictionary=True)
_SENDERS: Final = _Template(_sender_message, dictionary=True)
_BATCH: Final = _Template(_batch_message, dictionary=False)
_ENCODER: Final = RowGroupEncoder(_TOPICS.layout(), _SENDERS.layout(), _BATCH.layout(_TEXTS))
_BATCH_1: Final = _Template(_sample(_TEXTS_1)[-1], dictionary=False)
_WORDS: Final = _protocol_message + _kind_message


# --- The head -------------------------------------------------------------------------------------


def head(
    log_id: int,
    *,
    partition: int,
    base_offset: int,
    previous_end: int,
    previous_crc: int,
    last_crc: int | None = None,
    words: bytes | None = None,
) -> bytes:
    """Return the first bytes of a segment; `last_crc` is set if its row groups were merged.

    `words` are the dictionaries of another head, for row groups that were written with it.
    """
    metadata = {
        "penstock.format": str(FORMAT),
        "penstock.log_id": f"{log_id:012x}",
        "penstock.partition": str(partition),
        "penstock.base_offset": str(base_offset),
        "penstock.previous_end": str(previous_end),
        "penstock.previous_crc": f"{previous_crc:08x}",
    }
    if last_crc is not None:
        metadata["penstock.last_crc"] = f"{last_crc:08x}"
    metadata["penstock.crc32c"] = (_CRC_MARK + _NO_CRC).decode()
    schema = SCHEMA.with_metadata(metadata)
    data = bytearray(schema.serialize().to_pybytes() + (_WORDS if words is None else words))
    position = data.index(_CRC_MARK) + len(_CRC_MARK)
    data[position : position + len(_NO_CRC)] = b"%08x" % crc32c([data])
    return bytes(data)


def head_words(data: bytes) -> bytes:
    """Return the dictionaries of a head, as bytes; raise BadHead."""
    found = parse_head(data)
    _, length = _PREFIX.unpack_from(data)
    return data[_PREFIX.size + length : found.size]


def parse_head(data: bytes | memoryview, *, path: str = "") -> Head:
    """Parse the first bytes of a segment, HEAD_BYTES_MAX are enough.

    Raise BadHead, or LogFormatTooNew for data of a later Penstock.
    """
    view = memoryview(data)
    try:
        _, length = _PREFIX.unpack_from(view)
        schema = pa.ipc.read_schema(pa.py_buffer(view[: _PREFIX.size + length]))
        metadata = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
        found = int(metadata["penstock.format"])
        if found > FORMAT:
            raise LogFormatTooNew(path, found, FORMAT)
        if not schema.equals(SCHEMA):
            raise BadHead("its columns are not those of the log")
        protocols = _message(view, _PREFIX.size + length, _DICTIONARY_BATCH)
        kinds = _message(view, protocols.end, _DICTIONARY_BATCH)
        size = kinds.end
        text = bytes(view[:size])
        position = text.index(_CRC_MARK) + len(_CRC_MARK)
        rest = [text[:position], _NO_CRC, text[position + len(_NO_CRC) :]]
        if text[position : position + len(_NO_CRC)] != b"%08x" % crc32c(rest):
            raise BadHead("its checksum is wrong")
        last_crc = metadata.get("penstock.last_crc")
        return Head(
            format=found,
            log_id=int(metadata["penstock.log_id"], 16),
            partition=int(metadata["penstock.partition"]),
            base_offset=int(metadata["penstock.base_offset"]),
            previous_end=int(metadata["penstock.previous_end"]),
            previous_crc=int(metadata["penstock.previous_crc"], 16),
            protocols=_words(view, protocols),
            kinds=_words(view, kinds),
            size=size,
            last_crc=None if last_crc is None else int(last_crc, 16),
        )
    except (KeyError, ValueError, OSError, struct.error, pa.ArrowException) as error:
        if isinstance(error, BadHead):
            raise
        raise BadHead(str(error)) from error


def _words(view: memoryview, message: _Message) -> tuple[str, ...]:
    """Return the entries of a dictionary of texts."""
    batch = message.table.table(2).table(1)
    start, _ = batch.vector(2, 16)
    start += message.start
    _, _, ends_at, ends_size, data_at, data_size = struct.unpack_from("<6q", view, start)
    ends = struct.unpack_from(f"<{ends_size // 4}i", view, message.body + ends_at)
    data = bytes(view[message.body + data_at : message.body + data_at + data_size])
    return tuple(data[first:last].decode() for first, last in itertools.pairwise(ends))


# --- Row groups -----------------------------------------------------------------------------------


def encode_row_group(columns: Columns, *, previous: int, synced: int) -> EncodedRowGroup:
    """Encode a row group; `previous` is the checksum of the row group before it."""
    return EncodedRowGroup(
        *_ENCODER.encode(
            columns.topics,
            columns.senders,
            columns.buffers,
            base_offset=columns.base_offset,
            count=columns.count,
            header_count=columns.header_count,
            null_counts=columns.null_counts,
            previous=previous,
            synced=synced,
        )
    )


def parse_row_group(
    data: bytes | bytearray | memoryview, start: int = 0, *, size: int | None = None
) -> RowGroup:
    """Parse the row group at `start`, without its columns and without checking it.

    With `size`, the row group may have so many bytes, and `data` may end inside its columns: they
    are elsewhere. Raise Truncated if the bytes end inside it, BadRowGroup if it is none.
    """
    view = memoryview(data)
    end = len(view) if size is None else start + size
    try:
        row_group = _parse_like_ours(view, start, end) or _parse(view, start)
    except BadRowGroup:
        raise
    except (KeyError, ValueError, struct.error) as error:
        raise BadRowGroup(str(error)) from error
    return row_group


def _parse_like_ours(view: memoryview, start: int, end: int) -> RowGroup | None:
    """Parse a row group that has the layout of our templates; None if it has another."""
    topics = _read(view, start, _TOPICS, len(view))
    senders = topics and _read(view, topics.end, _SENDERS, len(view))
    if not topics or not senders:
        return None
    template = _BATCH
    record = _read(view, senders.end, template, end)
    if record is None:
        template = _BATCH_1
        record = _read(view, senders.end, template, end)
    if record is None:
        return None
    metadata = record.metadata
    texts = {key: metadata[first:last] for key, (first, last) in template.texts.items()}
    crc_position = record.start + template.texts["penstock.crc32c"][0]
    return _row_group(topics, senders, record, texts, crc_position)


class _Read(NamedTuple):
    """A message that fits its template; `layout` has its buffers."""

    start: int
    body: int
    end: int
    rows: int
    metadata: bytes
    layout: tuple[int, ...]


def _read(view: memoryview, start: int, template: _Template, end: int) -> _Read | None:
    """Read a message that fits its template, and ends at `end` at most; None if it does not fit."""
    body = start + len(template.metadata)
    metadata = bytes(view[start:body])
    if not template.fits(metadata):
        return None
    (body_length,) = _I64.unpack_from(metadata, template.body_length)
    (rows,) = _I64.unpack_from(metadata, template.length)
    if not 0 <= body_length <= end - body:
        if body_length < 0:
            return None
        raise Truncated(f"{end - body} of {body_length} bytes of a body")
    numbers, position = template.buffers
    layout = _placed(numbers.unpack_from(metadata, position), body, body_length)
    return _Read(start, body, body + body_length, rows, metadata, layout)


def _parse(view: memoryview, start: int) -> RowGroup:
    """Parse a row group that another version of Arrow may have laid out."""
    found: list[_Read] = []
    position = start
    for kind, buffers in ((_DICTIONARY_BATCH, 3), (_DICTIONARY_BATCH, 3), (_RECORD_BATCH, BUFFERS)):
        message = _message(view, position, kind)
        batch = message.table.table(2)
        batch = batch.table(1) if kind == _DICTIONARY_BATCH else batch
        layout = _layout(view, message, batch, buffers)
        found.append(_Read(position, message.body, message.end, batch.int64(0), b"", layout))
        position = message.end
    topics, senders, record = found
    texts: dict[str, bytes] = {}
    crc_position = 0
    for pair in message.table.tables(4):
        first, length = pair.string(0)
        key = bytes(view[message.start + first :][:length]).decode()
        first, length = pair.string(1)
        texts[key] = bytes(view[message.start + first :][:length])
        if key == "penstock.crc32c":
            crc_position = message.start + first
    return _row_group(topics, senders, record, texts, crc_position)


def _row_group(
    topics: _Read, senders: _Read, record: _Read, texts: Mapping[str, bytes], crc_position: int
) -> RowGroup:
    count = int(texts["penstock.count"])
    if record.rows != count or count <= 0:
        raise BadRowGroup(f"{record.rows} rows, of {count}")
    checksums = texts.get("penstock.checksums")
    return RowGroup(
        start=topics.start,
        size=record.end - topics.start,
        base_offset=int(texts["penstock.base_offset"]),
        count=count,
        synced=int(texts["penstock.synced"]),
        previous=int(texts["penstock.previous"], 16),
        crc32c=int(texts["penstock.crc32c"], 16),
        crc_position=crc_position,
        layout=record.layout,
        topic_count=topics.rows,
        topic_layout=_dictionary(topics),
        sender_count=senders.rows,
        sender_layout=_dictionary(senders),
        sender_start=senders.start,
        record_start=record.start,
        body_start=record.body,
        zeros=int(texts["penstock.zeros"]) if checksums is not None else 0,
        checksums=()
        if checksums is None
        else _CHECKSUMS.unpack(bytes.fromhex(checksums.decode("ascii"))),
    )


def _dictionary(read: _Read) -> tuple[int, int, int, int]:
    _, _, offsets_start, offsets_length, data_start, data_length = read.layout
    if read.rows < 0 or offsets_length < 4 * (read.rows + 1):
        raise BadRowGroup(f"{offsets_length} bytes of offsets for {read.rows} names")
    return offsets_start, offsets_length, data_start, data_length


def _layout(view: memoryview, message: _Message, batch: Table, expected: int) -> tuple[int, ...]:
    """Return start and length of each buffer in `view`."""
    position, count = batch.vector(2, 16)
    if count != expected:
        raise BadRowGroup(f"{count} buffers, expected {expected}")
    numbers = struct.unpack_from(f"<{2 * count}q", view, message.start + position)
    return _placed(numbers, message.body, message.end - message.body)


def _placed(numbers: Sequence[int], body: int, size: int) -> tuple[int, ...]:
    """Convert buffers from positions in a body to checked positions in `view`."""
    layout: list[int] = []
    for start, length in zip(numbers[::2], numbers[1::2], strict=True):
        if not 0 <= start <= size or not 0 <= length <= size - start:
            raise BadRowGroup(f"a buffer of {length} bytes at {start} of a body of {size}")
        layout += (body + start, length)
    return tuple(layout)


def check_row_group(data: bytes | bytearray | memoryview, row_group: RowGroup) -> bool:
    """Return whether all checksums of a row group are correct."""
    if not row_group.checksums:
        return _check_own(data, row_group, row_group.start, row_group.start + row_group.size)
    if not check_metadata(data, row_group):
        return False
    return check_buffers(
        memoryview(data).cast("B"),
        (row_group.start, row_group.sender_start, row_group.record_start, row_group.body_start),
        row_group.start + row_group.size,
        row_group.layout,
        row_group.checksums,
        zeros=row_group.zeros,
    )


def check_metadata(data: bytes | bytearray | memoryview, row_group: RowGroup) -> bool:
    """Return whether the metadata of a row group with checksums for its buffers are correct."""
    return _check_own(data, row_group, row_group.record_start, row_group.body_start)


def _check_own(
    data: bytes | bytearray | memoryview, row_group: RowGroup, start: int, end: int
) -> bool:
    """Return whether `penstock.crc32c` is the checksum of the bytes between two positions."""
    view = memoryview(data)
    position = row_group.crc_position
    parts: list[memoryview | bytes] = [
        view[start:position],
        _NO_CRC,
        view[position + len(_NO_CRC) : end],
    ]
    spelled = view[position : position + len(_NO_CRC)]
    return crc32c(parts) == row_group.crc32c and spelled == b"%08x" % row_group.crc32c


def buffer_regions(row_group: RowGroup) -> list[tuple[int, int]]:
    """Return the bytes that the checksum of each buffer covers, as start and end.

    That is its own region with the padding, or the zeros that buffers share; none if it is empty.
    Raise BadRowGroup for a buffer that is in neither.
    """
    zeros_start = row_group.body_start
    zeros_end = zeros_start + row_group.zeros
    group_end = row_group.start + row_group.size
    regions: list[tuple[int, int]] = []
    for start, length in zip(row_group.layout[::2], row_group.layout[1::2], strict=True):
        end = start + length + -length % 8
        if not length:
            regions.append((start, start))
        elif end <= zeros_end:
            regions.append((zeros_start, zeros_end))
        elif start < zeros_end or end > group_end:
            raise BadRowGroup(f"a buffer of {length} bytes at {start} has no checksum")
        else:
            regions.append((start, end))
    return regions


def chained(data: bytes, row_group: RowGroup, previous: int) -> bytes:
    """Return a row group with `previous` as the checksum of the row group before it.

    A copy of a log needs that after merged row groups, whose checksums are not those that the next
    segment names, and for all row groups after one that was changed. Row groups of format 1 are
    returned as they are.
    """
    if previous == row_group.previous or not row_group.checksums:
        return data
    texts = _BATCH.texts
    place = row_group.crc_position - texts["penstock.crc32c"][0] + texts["penstock.previous"][0]
    if data[place : place + 8] != b"%08x" % row_group.previous:
        return data  # another version of Arrow has laid it out
    changed = bytearray(data)
    changed[place : place + 8] = b"%08x" % previous
    position = row_group.crc_position
    changed[position : position + 8] = _NO_CRC
    own = crc32c([memoryview(changed)[row_group.record_start : row_group.body_start]])
    changed[position : position + 8] = b"%08x" % own
    return bytes(changed)


def row_group_topics(data: bytes | bytearray | memoryview, row_group: RowGroup) -> list[str]:
    """Return the topics of a row group, each once."""
    view = memoryview(data)
    offsets_start, _, data_start, data_length = row_group.topic_layout
    ends = struct.unpack_from(f"<{row_group.topic_count + 1}i", view, offsets_start)
    names = bytes(view[data_start : data_start + data_length])
    return [names[start:end].decode() for start, end in itertools.pairwise(ends)]


def row_group_times(data: bytes | bytearray | memoryview, row_group: RowGroup) -> tuple[int, int]:
    """Return the timestamps of the first and the last row of a row group, in microseconds."""
    start = row_group.layout[2 * TIMESTAMPS]
    first: int = struct.unpack_from("<q", data, start)[0]
    last: int = struct.unpack_from("<q", data, start + 8 * (row_group.count - 1))[0]
    return first, last


def row_group_topic_counts(
    data: bytes | bytearray | memoryview, row_group: RowGroup
) -> list[int] | None:
    """Return the number of messages of each of `row_group_topics`; None if an index is wrong."""
    start, length = row_group.layout[2 * TOPIC_INDICES : 2 * TOPIC_INDICES + 2]
    indices = memoryview(data)[start : start + length]
    return count_topics(indices, rows=row_group.count, topics=row_group.topic_count)


def count_topics(indices: memoryview | bytes | int, *, rows: int, topics: int) -> list[int] | None:
    """Return how many of the indices refer to each topic; None if one refers to none.

    `indices` are 16-bit numbers; a number stands for so many zero bytes.
    """
    if topics == 1 or isinstance(indices, int):
        return [rows] + [0] * (topics - 1)
    numbers = memoryview(indices).cast("B")[: 2 * rows]
    if rows <= _FEW_ROWS:
        found = dict(Counter(numbers.cast("H")))
    else:
        column = pa.Array.from_buffers(pa.uint16(), rows, [None, pa.py_buffer(numbers)])
        values, counts = pc.value_counts(column).flatten()
        found = dict(zip(values.to_pylist(), counts.to_pylist(), strict=True))
    if max(found) >= topics:
        return None
    return [found.get(number, 0) for number in range(topics)]
