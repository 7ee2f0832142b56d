"""Row indexes for the Arrow fuzzer: of damaged row groups, and damaged ones of whole row groups.

An input is a row group, or a row index behind the mark of one.
"""

import random
import struct
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from penstock._kernels import stored
from penstock._kernels.batch import Batch
from penstock._kernels.crc32c import crc32c
from penstock.protocols import FLIGHT
from penstock.storage.arrow.format.file_names import rows_path
from penstock.storage.arrow.format.index_file import Summary
from penstock.storage.arrow.format.row_index_file import (
    RowIndexWriter,
    StaleRowIndex,
    encode_section,
    load_row_index,
    topic_hash,
)
from penstock.storage.arrow.format.row_record import (
    BadRecord,
    RecordReader,
    record_parts,
    row_group_of,
)
from penstock.storage.arrow.format.segment import (
    RowGroup,
    encode_row_group,
    parse_row_group,
)
from penstock.storage.arrow.write.prepared import prepare
from penstock.storage.files import Files
from penstock.storage.schema import ROWS_SCHEMA
from tests.fuzz.arrow_mutate import set_number
from tests.fuzz.arrow_row_groups import TOPICS, WORDS, Surface, damaged_alone, delivered, folder

_MARK = b"row index"
_RARE = "rare"
_SUMMARY = Summary(0, 128, 9, 7, 7, 0)


def _row_group() -> bytes:
    """A row group with two rare topics, one of whose messages has headers and a key."""
    often = {"topic": "often", "value": b"v" * 9, "key": None, "headers": []}
    rare = {
        "topic": _RARE,
        "value": b"seldom",
        "key": b"k",
        "headers": [{"key": "a", "value": b"1"}, {"key": "", "value": b""}],
    }
    other = {**rare, "topic": "other", "headers": []}
    rows = pa.RecordBatch.from_pylist([often] * 60 + [rare, other] + [often] * 66, ROWS_SCHEMA)
    (group,) = prepare(rows, sender="w", client=7, correlation="c", source=FLIGHT)
    columns = group.finish(0, log_id=1, partition=0)
    return b"".join(encode_row_group(columns, previous=0, synced=0).buffers)


_WHOLE = _row_group()
_GROUP = parse_row_group(_WHOLE)


def _seeds() -> Sequence[bytes]:
    writer = RowIndexWriter(Files(), _place(), _SUMMARY)
    section = encode_section(_WHOLE, _GROUP)
    assert section is not None
    writer.add(section)
    writer.finish()
    index = rows_path(_place(), 0).read_bytes()
    return [_WHOLE, _MARK + index, _MARK + index]


def _place() -> Path:
    place = folder() / "row-index"
    place.mkdir(exist_ok=True)
    return place


def _damage(seed: bytes, choose: random.Random) -> bytes:
    if not seed.startswith(_MARK):
        return damaged_alone(seed, choose)
    data = bytearray(seed[len(_MARK) :])
    for _ in range(choose.randrange(1, 4)):
        set_number(data, choose)
    if choose.random() < 0.1:
        del data[choose.randrange(len(data)) :]
    return _MARK + (_resealed(data) if choose.random() < 0.8 else bytes(data))


def _resealed(data: bytearray) -> bytes:
    """Give an index checksums that are right: of its one section, of the table, and of the bucket."""
    section = encode_section(_WHOLE, _GROUP)
    assert section is not None
    first, (bucket,) = len(section.first), map(len, section.buckets)
    table = first + bucket
    for start, end, place in (
        (first, table - 4, table - 4),
        (0, first, table + 20),
        (table, len(data) - 4, len(data) - 4),
    ):
        if place + 4 <= len(data):
            data[place : place + 4] = struct.pack("<I", crc32c([bytes(data[start:end])]))
    return bytes(data)


def _check(data: bytes) -> bool:
    if data.startswith(_MARK):
        return _check_index(data[len(_MARK) :])
    try:
        group = parse_row_group(data)
    except ValueError:
        return False
    section = encode_section(data, group)
    return section is not None and _read_rows(data, group, record_parts(group), range(group.count))


def _check_index(data: bytes) -> bool:
    rows_path(_place(), 0).write_bytes(data)
    try:
        index = load_row_index(Files(), _place(), _SUMMARY)
        list(index.check())
        found = index.find(0, [topic_hash(_RARE), topic_hash("other")])
    except StaleRowIndex:
        return False
    if found is None:
        return False
    parts, topics = found
    return _read_rows(_WHOLE, _GROUP, parts, [each.row for rows in topics for each in rows])


def _read_rows(data: bytes, group: RowGroup, parts: tuple[int, ...], rows: Sequence[int]) -> bool:
    """Read messages as replay does, but also those whose checksums are not those of the index."""
    reader = RecordReader(lambda start, size: data[start : start + size], parts, size=len(data))
    accepted = False
    for row in rows:
        try:
            record, _ = reader.record(row, group.base_offset + row)
            one = row_group_of(record)

            def load(batch: Batch, record: bytes = record, one: RowGroup = one) -> None:
                places = (one.layout, one.topic_layout, one.sender_layout)
                stored.load(batch, TOPICS, record, *places, WORDS, count=1)

            delivered(load, Batch())
            accepted = True
        except (BadRecord, ValueError, struct.error):
            continue
    return accepted


ROW_INDEX = Surface(_seeds, _damage, _check)
