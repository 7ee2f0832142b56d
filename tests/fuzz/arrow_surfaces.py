"""Everything of Penstock that takes Arrow, as functions of bytes for the Arrow fuzzer.

A check raises AssertionError, or any error that is not a refusal, if the bytes do harm. A crash of
the process is noticed by `tests.fuzz.arrow`.
"""

import contextlib
import functools
import random
import shutil
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec
import pyarrow as pa

from penstock._kernels.batch import Batch
from penstock._kernels.crc32c import crc32c
from penstock.errors import InvalidTopicName, LogError, OperatorError
from penstock.flight.errors import BadRequest, BadRows, StagedRowsDamaged
from penstock.flight.protocol import Staged
from penstock.limits import FLIGHT_MESSAGE_BYTES_MAX, FLIGHT_STREAMS_MAX
from penstock.ports.selection import Selection
from penstock.protocols import FLIGHT
from penstock.server.flight.calls import WorkLimit
from penstock.server.flight.http2 import PREFACE, NotHttp2, RequestGate, TooLarge
from penstock.server.flight.rows import RowCheck, check_columns, whole
from penstock.server.flight.sink_files import SinkFiles, Task
from penstock.storage.arrow.format.file_names import index_path, segment_path
from penstock.storage.arrow.format.index_file import StaleIndex, load_index, load_summary
from penstock.storage.arrow.format.segment import (
    END_OF_STREAM,
    HEAD_BYTES_MAX,
    BadHead,
    BadRowGroup,
    check_row_group,
    encode_row_group,
    parse_head,
    parse_row_group,
)
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.catalog import Catalog
from penstock.storage.arrow.read.columns import ColumnReader
from penstock.storage.arrow.read.pieces import plan, read_pieces
from penstock.storage.arrow.read.records import count_topics, plain_records, record_batches
from penstock.storage.arrow.recover.verify import verify
from penstock.storage.arrow.write.merged_rows import MergedRows, columns_of
from penstock.storage.arrow.write.prepared import prepare
from penstock.storage.files import Files
from penstock.storage.group_offsets import GroupOffsets
from penstock.storage.kafka.records import (
    HEAD_HEADER,
    REFERENCE_FORMAT,
    REFERENCE_HEADER,
    BadRecord,
    Heads,
    Reference,
    RowGroupRecord,
    private_records,
)
from penstock.storage.rows import read_whole_batch
from penstock.storage.schema import SCHEMA
from tests.fuzz.arrow_mutate import damaged, messages, set_number
from tests.fuzz.arrow_row_groups import (
    GOLDEN,
    TOPICS,
    Surface,
    check_group,
    damaged_alone,
    damaged_group,
    delivered,
    folder,
    resealed,
    row_groups,
    segments,
)
from tests.fuzz.arrow_row_index import ROW_INDEX
from tests.fuzz.test_flight_rows import seeds as row_seeds

if TYPE_CHECKING:
    from confluent_kafka import Message

OPTIONS = pa.ipc.IpcReadOptions(use_threads=False)


class _Chunk(NamedTuple):
    data: pa.RecordBatch | None
    app_metadata: pa.Buffer | None


def stream_of(
    batches: Sequence[pa.RecordBatch], compression: str | None = None, schema: pa.Schema = None
) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, schema or batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


# --- Rows by DoPut --------------------------------------------------------------------------------


def _row_streams() -> Sequence[bytes]:
    batches = row_seeds()
    wide = pa.record_batch(
        {
            "topic": pa.array(["a", "b", "c"], pa.large_string()),
            "value": pa.array([b"1", b"22", None], pa.large_binary()),
            "headers": pa.array([[("k", b"v")], None, []], pa.map_(pa.string(), pa.binary())).cast(
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
            ),
        }
    )
    return [
        *(stream_of([each]) for each in (*batches, wide)),
        *(stream_of([batches[0], batches[0]], kind) for kind in ("lz4", "zstd")),
        stream_of([batches[3], batches[3]]),
        stream_of([batches[0].replace_schema_metadata({"k": "v" * 40})]),
    ]


def _check_stream(data: bytes) -> bool:
    try:
        reader = pa.ipc.open_stream(data, options=OPTIONS)
        schema = reader.schema
        check_columns(schema)
        check = RowCheck(lambda _: None)
        accepted = [check.rows(each) for each in whole(_chunks(reader), WorkLimit(1))]
    except (BadRows, BadRequest, InvalidTopicName, pa.ArrowException, OSError):
        return False
    batch = Batch()
    for rows in accepted:
        for group in prepare(rows, sender="w", client=7, correlation="w/1/0", source=FLIGHT):
            group.stamp(1_763_200_000_000_000)
            delivered(lambda into, group=group: group.load(into, TOPICS), batch)
    return True


def _chunks(reader: pa.ipc.RecordBatchStreamReader) -> Iterator[_Chunk]:
    rows = 0
    for each in reader:
        rows += len(each)
        yield _Chunk(each, None)
    yield _Chunk(None, pa.py_buffer(msgspec.json.encode(Staged(rows))))


# --- Staged files ---------------------------------------------------------------------------------


_TASK = Task(1, 0)


def _staged_seeds() -> Sequence[bytes]:
    files = SinkFiles(folder() / "seeds")
    check = RowCheck(lambda _: None)
    found = []
    for number, each in enumerate(row_seeds()):
        writer = f"w{number}"
        (folder() / "seeds" / "sinks" / writer).mkdir(parents=True, exist_ok=True)
        path, _ = files.write(writer, [check.rows(each)])
        found.append(path.read_bytes())
        path.unlink()
    return found


def _damaged_staged(seed: bytes, choose: random.Random) -> bytes:
    data = damaged(seed[:-8], choose)
    if choose.random() < 0.1:
        return data + seed[-8:]
    return data + struct.pack("<I4s", zlib.crc32(data), b"PSS1")


def _check_staged(data: bytes) -> bool:
    place = folder() / "sinks" / "w"
    place.mkdir(parents=True, exist_ok=True)
    (place / "1-0.arrows").write_bytes(data)
    try:
        for rows in SinkFiles(folder()).read("w", _TASK):
            list(prepare(rows, sender="w", client=7, correlation="w/1/0", source=FLIGHT))
    except StagedRowsDamaged:
        return False
    return True


# --- Row groups that are merged, and those in Kafka -----------------------------------------------

HEADS = Heads(7, 0, lambda _: None)


class _Message:
    """See confluent_kafka.Message: a record with a value."""

    def __init__(self, value: bytes, name: str, header: bytes) -> None:
        self._value = value
        self._headers = [(name, header)]

    def headers(self) -> list[tuple[str, bytes]]:
        return self._headers

    def offset(self) -> int:
        return 7

    def value(self) -> bytes:
        return self._value


def _check_merged(data: bytes) -> bool:
    """Merge a row group with itself, and with a whole one, as row groups of a segment are merged."""
    return any([_merges(data, data), _merges(data, _row_groups()[-1])])


@functools.cache
def _row_groups() -> Sequence[bytes]:
    return row_groups()


def _merges(*groups: bytes) -> bool:
    """Merge row groups; return whether the result is whole and has the same rows."""
    try:
        if not all(check_row_group(each, parse_row_group(each)) for each in groups):
            return False
        rows = MergedRows()
        with pa.ipc.open_stream(b"".join([HEADS.own, *groups, END_OF_STREAM])) as reader:
            for _ in groups:
                rows.add(read_whole_batch(reader))
        found = rows.joined()
        found.validate(full=True)
        encoded = encode_row_group(columns_of(found, 0), previous=0, synced=0)
        made = b"".join(encoded.buffers)
        assert check_row_group(made, parse_row_group(made))
        with pa.ipc.open_stream(b"".join([HEADS.own, made, END_OF_STREAM])) as reader:
            equal = read_whole_batch(reader).equals(found)
    except (BadRowGroup, pa.ArrowException, OSError, StopIteration):
        return False
    return equal  # otherwise the broker leaves the segment as it is


def _kafka_records() -> Sequence[bytes]:
    reference = Reference(0, 3, 1_700_000_000_000_000, 12, "a/#", "penstock-a", 5)
    return [*row_groups(), msgspec.json.encode(reference)]


def _damaged_record(seed: bytes, choose: random.Random) -> bytes:
    if seed.startswith(b"{"):
        return _damaged_request(seed, choose)
    return damaged_alone(seed, choose)


def _check_record(data: bytes) -> bool:
    header = HEAD_HEADER, HEADS.own_name.encode()
    if data.startswith(b"{"):
        header = REFERENCE_HEADER, REFERENCE_FORMAT
    try:
        record = HEADS.read(cast("Message", _Message(data, *header)))
        assert record.base_offset <= record.end_offset or not data.startswith(b"{")
        if not isinstance(record, RowGroupRecord):
            return True
        assert record.latest_us is not None
        private_records(record)
        _touch(record.batch(SCHEMA.names))
    except BadRecord:
        return False
    return check_group(data)


# --- Segments and indexes of a folder -------------------------------------------------------------


def _damaged_segment(seed: bytes, choose: random.Random) -> bytes:
    size = parse_head(seed).size
    if choose.random() < 0.2:
        return damaged(seed[:size], choose)[:-8] + seed[size:]
    data = seed[:size] + damaged(seed[size:], choose)
    return resealed(data, size) if choose.random() < 0.7 else data


def _fresh(version: str = "0.3.0") -> Path:
    data = folder() / "data"
    partition = data / "log" / "0"
    if not partition.is_dir():
        shutil.copytree(GOLDEN / version / "log", data / "log")
    return data


def _touch(batch: pa.RecordBatch) -> None:
    """Read every value. Arrow has times that Python has not."""
    with contextlib.suppress(OverflowError):
        batch.to_pylist()


def _read_folder(data: Path) -> None:
    """Read a log as `penstock log verify`, `log read`, `log ls`, Flight and Spark do."""
    list(verify(Files(), data / "log" / "0"))
    view = LogView(data)
    with contextlib.suppress(LogError):
        for batch in plain_records(record_batches(view, damaged=lambda _: None)):
            _touch(batch)
    with contextlib.suppress(LogError):
        count_topics(view, damaged=lambda _: None)
    catalog: Catalog = view.catalog
    pieces = [
        each.part(each.first, each.last)
        for each in plan(catalog, view.horizon, view.end, Selection())
    ]
    for batch in read_pieces(
        view.folder, pieces, first=view.horizon, last=view.end, columns=SCHEMA.names,
        damaged=lambda _: None,
    ):  # fmt: skip
        Selection(topics=frozenset({"sensors"})).of(batch)
        _touch(batch)
    _read_columns(view)


def _read_columns(view: LogView) -> None:
    """Read some columns of every row group, of small ones too."""
    path = segment_path(view.folder, 0)
    with path.open("rb") as file, contextlib.suppress(BadHead, LogError):
        head = parse_head(file.read(HEAD_BYTES_MAX))
        for columns in (["topic", "headers"], ["sender", "kind", "key", "created"]):
            reader = ColumnReader(file.fileno(), head, columns, size_min=0)
            for place in view.catalog.places(view.horizon, view.end):
                entry = place.entry
                with contextlib.suppress(BadRowGroup):
                    _, batch = reader.read(
                        entry.position, entry.position + entry.size, base_offset=entry.base_offset
                    )
                    _touch(batch)


def _check_segment(data: bytes) -> bool:
    place = _fresh()
    segment = segment_path(place / "log" / "0", 0)
    whole_bytes = _whole(segment)
    segment.write_bytes(data)
    try:
        with contextlib.suppress(LogError, OperatorError):
            _read_folder(place)
        with contextlib.suppress(BadHead, LogError, OperatorError):
            parse_head(data)
    finally:
        segment.write_bytes(whole_bytes)
    return False


def _check_open_segment(data: bytes) -> bool:
    """Recovery of a segment without an index: it is walked."""
    place = _fresh()
    partition = place / "log" / "0"
    index = index_path(partition, 0)
    whole_index = _whole(index)
    index.unlink()
    try:
        _check_segment(data)
    finally:
        index.write_bytes(whole_index)
    return False


_kept: dict[Path, bytes] = {}


def _whole(path: Path) -> bytes:
    if path not in _kept:
        _kept[path] = path.read_bytes()
    return _kept[path]


def _indexes() -> Sequence[bytes]:
    return [_whole(index_path(_fresh() / "log" / "0", 0))]


def _damaged_index(seed: bytes, choose: random.Random) -> bytes:
    data = bytearray(damaged(seed, choose))
    mark = b"crc32c="
    place = data.find(mark) + len(mark)
    if choose.random() < 0.8 and place >= len(mark):
        data[place : place + 8] = b"00000000"
        data[place : place + 8] = b"%08x" % crc32c([bytes(data)])
    return bytes(data)


def _check_index(data: bytes) -> bool:
    place = _fresh()
    partition = place / "log" / "0"
    index = index_path(partition, 0)
    whole_bytes = _whole(index)
    index.write_bytes(data)
    try:
        with contextlib.suppress(StaleIndex):
            load_summary(Files(), partition, 0)
        try:
            found, _ = load_index(Files(), partition, 0)
        except StaleIndex:
            return False
        found.with_topics(lambda name: len(name) % 2 == 0)
        found.table().to_pylist()
        found.at_offset(3), found.at_time(0), found.memory_bytes
        with contextlib.suppress(LogError, OperatorError):
            _read_folder(place)
    finally:
        index.write_bytes(whole_bytes)
    return True


# --- Files beside the log -------------------------------------------------------------------------


def _beside() -> Sequence[bytes]:
    names = ("log.json", "topics.journal", "committed")
    found = [
        b"%d" % number + _whole(_fresh() / "log" / "0" / name) for number, name in enumerate(names)
    ]
    group = b'3{"group":"g","offsets":{"0":17},"lost":0,"updated_us":1763200000000000}\n'
    return [*found, group]


def _damaged_file(seed: bytes, choose: random.Random) -> bytes:
    data = bytearray(seed[1:])
    for _ in range(choose.randrange(1, 4)):
        set_number(data, choose)
        if data and choose.random() < 0.3:
            start = choose.randrange(len(data))
            del data[start : start + choose.randrange(1, 9)]
    return seed[:1] + bytes(data)


def _check_file(data: bytes) -> bool:
    place = _fresh()
    partition = place / "log" / "0"
    if data[:1] == b"3":
        groups = place / "groups"
        groups.mkdir(exist_ok=True)
        (groups / "g.json").write_bytes(data[1:])
        GroupOffsets(place).all()
        GroupOffsets(place).load("g")
        return True
    path = partition / ("log.json", "topics.journal", "committed")[int(data[:1])]
    whole_bytes = _whole(path)
    path.write_bytes(data[1:])
    try:
        with contextlib.suppress(LogError, OperatorError):
            _read_folder(place)
    finally:
        path.write_bytes(whole_bytes)
    return True


# --- The front of Flight --------------------------------------------------------------------------


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def _flight_data(metadata: bytes, body: bytes) -> bytes:
    fields = b"\x12" + _varint(len(metadata)) + metadata
    if body:
        fields += b"\xc2\x3e" + _varint(len(body)) + body
    return struct.pack(">BI", 0, len(fields)) + fields


def _frames(kind: int, payload: bytes, *, stream: int = 1, flags: int = 0) -> bytes:
    found = bytearray()
    for start in range(0, len(payload) or 1, 16_384):
        part = payload[start : start + 16_384]
        found += len(part).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big")
        found += part
    return bytes(found)


def _requests() -> Sequence[bytes]:
    """Bytes of clients that call DoPut, with and without compression, and an action."""
    found = []
    for stream in _row_streams():
        parts = b"".join(_flight_data(*each) for each in messages(stream))
        found.append(PREFACE + _frames(4, b"") + _frames(1, b"\x88", flags=4) + _frames(0, parts))
    action = b"\x0a\x06bounds\x12\x02{}"
    call = struct.pack(">BI", 0, len(action)) + action
    found.append(PREFACE + _frames(1, b"\x88", flags=4) + _frames(0, call, flags=1))
    return found


def _damaged_request(seed: bytes, choose: random.Random) -> bytes:
    data = bytearray(seed)
    for _ in range(choose.randrange(1, 5)):
        start = choose.randrange(len(data))
        size = choose.choice((1, 1, 2, 4, 9))
        if choose.random() < 0.7:
            data[start : start + size] = choose.randbytes(min(size, len(data) - start))
        elif choose.random() < 0.5:
            del data[start : start + size]
        else:
            data[start:start] = data[start : start + choose.randrange(1, 60)]
        if not data:
            break
    return bytes(data)


def _fed(data: bytes, cuts: Sequence[int]) -> tuple[int, str, int]:
    """Give bytes to a gate in pieces; return how many passed, the refusal, and what is to come."""
    gate = RequestGate()
    gate.trusted = True
    passed = 0
    try:
        for end in (*cuts, len(data)):
            if end <= passed:
                continue
            passed += gate.feed(memoryview(data)[passed:end], FLIGHT_MESSAGE_BYTES_MAX)
    except (NotHttp2, TooLarge) as error:
        return -1, f"{type(error).__name__}: {error}", 0
    assert 0 <= gate.unfinished <= FLIGHT_MESSAGE_BYTES_MAX * FLIGHT_STREAMS_MAX
    return passed, "", gate.unfinished


def _check_request(data: bytes) -> bool:
    whole_result = _fed(data, ())
    cut = len(data) // 2
    assert _fed(data, (1, 9, cut, cut + 1, cut + 5, len(data) - 3)) == whole_result
    return not whole_result[1]


SURFACES: dict[str, Surface] = {
    "request": Surface(_requests, _damaged_request, _check_request),
    "rows": Surface(_row_streams, damaged, _check_stream),
    "staged": Surface(_staged_seeds, _damaged_staged, _check_staged),
    "row-group": Surface(row_groups, damaged_group, check_group),
    "merged": Surface(row_groups, damaged_alone, _check_merged),
    "kafka-record": Surface(_kafka_records, _damaged_record, _check_record),
    "row-index": ROW_INDEX,
    "index": Surface(_indexes, _damaged_index, _check_index),
    "segment": Surface(segments, _damaged_segment, _check_segment),
    "open-segment": Surface(segments, _damaged_segment, _check_open_segment),
    "files": Surface(_beside, _damaged_file, _check_file),
}
SHARES = {
    "request": 250, "rows": 350, "staged": 150, "row-group": 140, "merged": 50,
    "kafka-record": 50, "row-index": 50, "index": 8, "segment": 1,
    "open-segment": 1, "files": 1,
}  # fmt: skip
"""How often each surface is tried: those that read a folder take longer."""
