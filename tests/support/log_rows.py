"""Groups of a log made by hand: pyarrow builds the columns, the log's own code is not asked."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from penstock.storage.arrow.format.file_names import segment_path
from penstock.storage.arrow.format.index_file import load_index
from penstock.storage.arrow.format.segment import Columns, head
from penstock.storage.arrow.recover.recovery import Recovered
from penstock.storage.files import Files
from penstock.storage.schema import KINDS, PROTOCOLS, SCHEMA

LOG_ID = 0x0123456789AB
START_US = 1_700_000_000_000_000


def text_of(offset: int, size: int = 12) -> bytes:
    """The value of the message at an offset: no two are alike."""
    return (b"%d." % offset) * (size // 4 + 1)


def columns(
    base_offset: int,
    values: Sequence[bytes],
    *,
    topics: Sequence[str] = ("topic",),
    first_us: int = START_US,
) -> Columns:
    """The columns of messages; topics take turns, times go up by a millisecond."""
    count = len(values)
    names = list(dict.fromkeys(topics))
    numbers = [names.index(topics[row % len(topics)]) for row in range(count)]
    rows = range(count)
    arrays = {
        "key": pa.nulls(count, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "topic": words(numbers, names, pa.uint16()),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array([base_offset + row for row in rows], pa.int64()),
        "timestamp": pa.array([first_us + 1000 * row for row in rows], SCHEMA.field(5).type),
        "timestampType": pa.array([1] * count, pa.int32()),
        "headers": pa.array([[] for _ in rows], SCHEMA.field(7).type),
        "protocol": words([3] * count, PROTOCOLS, pa.uint8()),
        "kind": words([0] * count, KINDS, pa.uint8()),
        "sender": words([0] * count, ["sender"], pa.uint16()),
        "created": pa.nulls(count, SCHEMA.field(11).type),
        "correlation": pa.nulls(count, pa.utf8()),
        "status": pa.nulls(count, pa.int32()),
        "message_id": pa.array([f"id-{base_offset + row}" for row in rows], pa.utf8()),
        "client": pa.array([1000] * count, pa.uint32()),
        "form": pa.array([0] * count, pa.uint8()),
    }
    buffers: list[memoryview | bytes | int] = []
    for field in SCHEMA:
        buffers += [
            b"" if each is None else memoryview(each) for each in arrays[field.name].buffers()
        ]
    return Columns(
        base_offset=base_offset,
        count=count,
        header_count=0,
        null_counts=(count, count, count, count),
        buffers=buffers,
        topics=[name.encode() for name in names],
        senders=[b"sender"],
    )


def words(numbers: Sequence[int], names: Sequence[str], kind: pa.DataType) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(numbers, kind), pa.array(names, pa.utf8()))


def messages(files: Files, folder: Path, recovered: Recovered) -> list[tuple[int, bytes]]:
    """All messages of a recovered log, read by Arrow alone: (offset, value)."""
    found: list[tuple[int, bytes]] = []
    for segment in recovered.segments:
        path = segment_path(folder, segment.base_offset)
        index, _ = load_index(files, folder, segment.base_offset)
        data = files.read(path, 0, files.size(path))
        first = head(LOG_ID, partition=0, base_offset=0, previous_end=0, previous_crc=0)
        groups = [index.entry(number) for number in range(len(index))]
        parts = [data[each.position : each.position + each.size] for each in groups]
        stream = b"".join([first, *parts, b"\xff\xff\xff\xff\0\0\0\0"])
        for batch in pa.ipc.open_stream(stream):
            found += zip(
                batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True
            )
    return found
