"""Rows of small row groups are collected, and their columns encode to the same rows."""

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.storage.arrow.format.file_names import partition_folder
from penstock.storage.arrow.format.segment import END_OF_STREAM, encode_row_group, head
from penstock.storage.arrow.write.merged_rows import MergedRows, columns_of
from penstock.storage.schema import SCHEMA
from tests.support.log_rows import LOG_ID, columns, text_of
from tests.support.written_log import WrittenLog
from tests.unit.storage.test_row_index import any_message

HEAD = head(LOG_ID, partition=0, base_offset=0, previous_end=0, previous_crc=0)


def batch_of(*parts: bytes) -> pa.RecordBatch:
    """A row group, as Arrow alone reads it."""
    with pa.ipc.open_stream(b"".join([HEAD, *parts, END_OF_STREAM])) as reader:
        return reader.read_next_batch()


def small(base_offset: int, topics: Sequence[str]) -> pa.RecordBatch:
    values = [text_of(base_offset + row) for row in range(len(topics))]
    encoded = encode_row_group(columns(base_offset, values, topics=topics), previous=0, synced=0)
    return batch_of(*map(bytes, encoded.buffers))


def encoded(rows: pa.RecordBatch, base_offset: int) -> pa.RecordBatch:
    found = encode_row_group(columns_of(rows, base_offset), previous=0, synced=0)
    return batch_of(*map(bytes, found.buffers))


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    rows = MergedRows()
    for each in batches:
        rows.add(each)
    return rows.joined()


def test_a_name_is_in_a_dictionary_once() -> None:
    found = joined([small(0, ["b", "a", "b"]), small(3, ["a"]), small(4, ["c", "b"])])
    assert found.column("topic").dictionary.to_pylist() == ["b", "a", "c"]
    assert found.column("topic").to_pylist() == ["b", "a", "b", "a", "c", "b"]
    assert found.column("sender").dictionary.to_pylist() == ["sender"]
    assert found.column("offset").to_pylist() == list(range(6))
    assert found.schema.equals(SCHEMA)


@pytest.mark.parametrize("seed", range(5))
def test_columns_of_rows_of_every_kind_encode_to_the_same_rows(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with WrittenLog(tmp_path) as log:
        for _ in range(20):
            count = chance.randrange(1, 9)
            log.put(*(any_message(chance, f"t/{chance.randrange(9)}") for _ in range(count)))
    path = partition_folder(tmp_path, 0) / f"{0:020}.arrows"
    with pa.ipc.open_stream(path.read_bytes()) as reader:
        batches = list(reader)
    rows = joined(batches)
    before = [row for each in batches for row in each.to_pylist()]
    assert rows.to_pylist() == before
    assert encoded(rows, 0).to_pylist() == before
