"""Index files: `<base offset>.index`, an Arrow IPC stream with the summary in its metadata.

The metadata hold the checksum of the whole file, as `crc32c=` and eight digits, which are zeros for
the computation. An index that does not fit its segment is rebuilt, so every fault is StaleIndex.
"""

from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from penstock._kernels.crc32c import crc32c
from penstock.storage.arrow.format.file_names import index_path
from penstock.storage.arrow.format.index import SCHEMA, SCHEMA_1, Index
from penstock.storage.files import Files

__all__ = [
    "INDEX_FORMAT",
    "StaleIndex",
    "Summary",
    "index_bytes",
    "load_index",
    "load_summary",
    "save_index",
]

INDEX_FORMAT: Final = 2
"""Format 1 has no numbers of messages by topic; such files are used too."""
_SCHEMAS: Final = {"1": SCHEMA_1, "2": SCHEMA}

_SUMMARY_BYTES: Final = 8192
"""The schema with its metadata is shorter."""
_MARK: Final = b"crc32c="
_ZEROS: Final = b"00000000"


class StaleIndex(ValueError):
    """A file that is not the index of the segment in its current state."""


class Summary(NamedTuple):
    """Summary of a segment: enough to open a log without reading the segment."""

    base_offset: int
    end_offset: int
    segment_size: int
    head_crc: int
    last_crc: int
    last_us: int | None


def save_index(files: Files, folder: Path, index: Index, summary: Summary) -> None:
    """Write the index of a segment."""
    files.replace(index_path(folder, summary.base_offset), index_bytes(index, summary))


def index_bytes(index: Index, summary: Summary) -> bytearray:
    """Return the content of an index file."""
    metadata = {f"penstock.{key}": str(value) for key, value in summary._asdict().items()}
    metadata["penstock.index_format"] = str(INDEX_FORMAT)
    metadata["penstock.crc32c"] = (_MARK + _ZEROS).decode()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA.with_metadata(metadata)) as writer:
        writer.write_batch(index.table())
    data = bytearray(sink.getvalue())
    place = data.index(_MARK) + len(_MARK)
    data[place : place + len(_ZEROS)] = f"{crc32c([data]):08x}".encode()
    return data


def load_summary(files: Files, folder: Path, base_offset: int) -> Summary:
    """Read the summary of a segment, without a checksum; raise StaleIndex."""
    try:
        data = files.read(index_path(folder, base_offset), 0, _SUMMARY_BYTES)
        return _summary(pa.ipc.read_schema(pa.py_buffer(data)), base_offset)
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise StaleIndex(str(error)) from error


def load_index(files: Files, folder: Path, base_offset: int) -> tuple[Index, Summary]:
    """Read and check the index of a segment; raise StaleIndex."""
    path = index_path(folder, base_offset)
    try:
        data = files.read(path, 0, files.size(path))
        place = data.index(_MARK) + len(_MARK)
        found = int(data[place : place + len(_ZEROS)], 16)
        view = memoryview(data)
        if crc32c([view[:place], _ZEROS, view[place + len(_ZEROS) :]]) != found:
            raise StaleIndex(f"{path.name} is damaged")
        with pa.ipc.open_stream(data) as reader:
            summary = _summary(reader.schema, base_offset)
            table = reader.read_next_batch()
        _check(table, summary.segment_size)
        index = Index.from_table(
            table, base_offset=summary.base_offset, end_offset=summary.end_offset
        )
    except (OSError, ValueError, KeyError, StopIteration, pa.ArrowException) as error:
        if isinstance(error, StaleIndex):
            raise
        raise StaleIndex(str(error) or "it has no row groups") from error
    return index, summary


def _check(table: pa.RecordBatch, segment_size: int) -> None:
    """Raise ValueError unless these are row groups of a segment, in order."""
    table.validate(full=True)
    topics = table.column(6)
    values = topics.values
    if any(column.null_count for column in (*table.columns[:6], values, values.dictionary)):
        raise ValueError("a value is missing")
    if table.num_columns > len(SCHEMA_1):
        counts = table.column(len(SCHEMA_1))
        if counts.values.null_count or not counts.offsets.equals(topics.offsets):
            raise ValueError("the numbers of messages are not those of the topics")
    next_offset = end = 0
    for base_offset, count, position, size in zip(
        *(column.to_pylist() for column in table.columns[:4]), strict=True
    ):
        if base_offset < next_offset or count <= 0 or position < end or size <= 0:
            raise ValueError("the row groups are not in order")
        next_offset, end = base_offset + count, position + size
    if next_offset >> 63 or end > segment_size:
        raise ValueError("the row groups are not of this segment")


def _summary(schema: pa.Schema, base_offset: int) -> Summary:
    metadata = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
    expected = _SCHEMAS.get(metadata["penstock.index_format"])
    if expected is None or not schema.equals(expected):
        raise StaleIndex("an index of another format")
    last_us = metadata["penstock.last_us"]
    summary = Summary(
        base_offset=int(metadata["penstock.base_offset"]),
        end_offset=int(metadata["penstock.end_offset"]),
        segment_size=int(metadata["penstock.segment_size"]),
        head_crc=int(metadata["penstock.head_crc"]),
        last_crc=int(metadata["penstock.last_crc"]),
        last_us=None if last_us == "None" else int(last_us),
    )
    if summary.base_offset != base_offset:
        raise StaleIndex(f"an index of segment {summary.base_offset}")
    return summary
