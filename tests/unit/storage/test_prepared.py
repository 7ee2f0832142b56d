"""Rows of a table become row groups of the log that are what other row groups are."""

from typing import Any

import pyarrow as pa
import pytest

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.model import message_id
from penstock.protocols import FLIGHT
from penstock.storage.arrow.format.segment import encode_row_group, head
from penstock.storage.arrow.write.prepared import PreparedRowGroup, prepare
from penstock.storage.memory import MemoryLog
from penstock.storage.schema import ROWS_SCHEMA, SCHEMA

HEADERS = [[], [("a", b"1"), ("", b"")], [("b", b"\xff")]]


def rows(
    count: int, *, size: int = 10, topics: int = 3, keys: bool = True, headers: bool = True
) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "topic": [f"topic/{number % topics}" for number in range(count)],
            "value": [bytes([number % 256]) * size for number in range(count)],
            "key": [None if number % 2 or not keys else b"k%d" % number for number in range(count)],
            "headers": [
                [{"key": key, "value": value} for key, value in HEADERS[number % 3] if headers]
                for number in range(count)
            ],
        },
        schema=ROWS_SCHEMA,
    )


def data_bytes(row: dict[str, Any]) -> int:
    texts = [
        text for header in row["headers"] for text in (header["key"].encode(), header["value"])
    ]
    return sum(map(len, (row["topic"].encode(), row["value"], row["key"] or b"", *texts)))


def row_groups(batch: pa.RecordBatch, **bounds: int) -> list[PreparedRowGroup]:
    return list(
        prepare(
            batch, sender="writer", client=1234, source=FLIGHT, correlation="writer/7/0", **bounds
        )
    )


def read(row_group: PreparedRowGroup, base_offset: int) -> pa.RecordBatch:
    """What any reader of Arrow makes of a row group."""
    columns = row_group.finish(base_offset, log_id=0xABCDEF, partition=3)
    data = b"".join(encode_row_group(columns, previous=0, synced=0).buffers)
    first = head(0, partition=0, base_offset=0, previous_end=0, previous_crc=0)
    (batch,) = pa.ipc.open_stream(first + data)
    batch.validate(full=True)
    assert batch.schema.equals(SCHEMA)
    return batch


@pytest.mark.parametrize("keys", [True, False])
def test_a_group_says_of_each_row_all_that_the_record_has(*, keys: bool) -> None:
    batch = rows(10, keys=keys)
    (row_group,) = row_groups(batch)
    row_group.stamp(1_700_000_000_000_001)
    found = read(row_group, 500).to_pylist()
    assert len(row_group) == 10
    assert row_group.data_bytes == sum(map(data_bytes, batch.to_pylist()))
    for number, (row, given) in enumerate(zip(found, batch.to_pylist(), strict=True)):
        assert {name: row[name] for name in given} == given
        assert row["timestamp"].timestamp() == pytest.approx(1_700_000_000.000001, abs=1e-6)
        identifier = message_id(0xABCDEF, partition=3, offset=500 + number).hex()
        rest = {name: row[name] for name in row if name not in given and name != "timestamp"}
        assert rest == {
            "partition": 3,
            "offset": 500 + number,
            "timestampType": 1,
            "protocol": "flight",
            "kind": "publish",
            "sender": "writer",
            "created": None,
            "correlation": "writer/7/0",
            "status": None,
            "message_id": "-".join(
                (identifier[:8], identifier[8:12], identifier[12:16], identifier[16:20],
                 identifier[20:])
            ),
            "client": 1234,
            "form": 0,
        }  # fmt: skip


@pytest.mark.parametrize(
    ("bounds", "sizes"),
    [
        ({}, [1000]),
        ({"rows_max": 300}, [300, 300, 300, 100]),
        ({"bytes_max": 250 * 17}, [250, 250, 250, 250]),
        ({"bytes_max": 251 * 17 - 1}, [250, 250, 250, 250]),
        ({"bytes_max": 9 * 17 - 1, "rows_max": 8}, [8] * 125),
        ({"bytes_max": 1}, [1] * 1000),
    ],
)
def test_rows_are_split_where_a_group_would_be_too_large(
    bounds: dict[str, int], sizes: list[int]
) -> None:
    """Each of the rows has 17 bytes: topic and value."""
    batch = rows(1000, keys=False, headers=False)
    found = row_groups(batch, **bounds)
    assert [len(row_group) for row_group in found] == sizes
    offset = 0
    values: list[bytes] = []
    for row_group in found:
        read_back = read(row_group, offset)
        values += read_back.column("value").to_pylist()
        assert set(read_back.column("topic").dictionary.to_pylist()) == set(
            read_back.column("topic").to_pylist()
        )
        offset += len(row_group)
    assert values == batch.column("value").to_pylist()


@pytest.mark.parametrize("column", ["key", "headers", "topic"])
def test_a_group_is_limited_by_the_bytes_of_every_column(column: str) -> None:
    """A few bytes of a dictionary may stand for a megabyte in each row."""
    large = "x" * 1000
    headers = [{"key": "h", "value": large.encode()}]
    given: dict[str, Any] = {
        "topic": large if column == "topic" else "t",
        "value": b"",
        "key": large.encode() if column == "key" else None,
        "headers": headers if column == "headers" else [],
    }
    batch = pa.RecordBatch.from_pylist([given] * 64, schema=ROWS_SCHEMA)
    found = row_groups(batch, bytes_max=10_100)
    assert [len(each) for each in found] == [10] * 6 + [4]
    assert [each.data_bytes for each in found] == [len(each) * data_bytes(given) for each in found]


def test_a_slice_of_rows_is_prepared_like_rows_of_their_own() -> None:
    whole = rows(100)
    (row_group,) = row_groups(whole.slice(37, 20))
    given = whole.slice(37, 20).to_pylist()
    found = read(row_group, 0).to_pylist()
    assert [{name: row[name] for name in given[0]} for row in found] == given


def test_no_rows_are_no_group() -> None:
    assert row_groups(rows(0)) == []


def test_subscribers_are_served_what_the_log_gets() -> None:
    batch, topics = Batch(), TopicTable()
    (row_group,) = row_groups(rows(10))
    row_group.stamp(77)
    row_group.load(batch, topics)
    kept = read(row_group, 0)
    assert len(batch) == 10
    for row in range(10):
        assert batch.value(row) == kept.column("value")[row].as_py()
        assert topics.name(batch.topic_id(row)) == kept.column("topic")[row].as_py()
        assert batch.row_timestamp_us(row) == 77
        assert batch.sender(row).number == 1234
        assert not batch.hidden(row)


def _replaced(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    columns = [column if each == name else batch.column(each) for each in batch.schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _beyond(kind: pa.DataType, count: int) -> pa.Array:
    """A column whose second value would begin far behind its data."""
    ends = pa.array([0, 1 << 20, *[1] * (count - 1)], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(kind, count, [None, ends, pa.py_buffer(b"x")])


@pytest.mark.parametrize("storage", ["arrow", "memory"])
@pytest.mark.parametrize(
    ("name", "column", "problem"),
    [
        ("topic", _beyond(pa.utf8(), 3), "damaged"),
        ("value", _beyond(pa.binary(), 3), "damaged"),
        ("key", _beyond(pa.binary(), 3), "damaged"),
        ("topic", pa.array(["a", None, "b"]), "1 of 3 are null"),
        ("value", pa.array([b"a", None, b"b"]), "1 of 3 are null"),
        ("headers", pa.array([[], None, []], ROWS_SCHEMA.field(3).type), "1 of 3 are null"),
        ("headers", pa.array([[], [None], []], ROWS_SCHEMA.field(3).type), "1 of 1 are null"),
    ],
)
def test_rows_that_are_not_whole_are_refused(
    storage: str, name: str, column: pa.Array, problem: str
) -> None:
    damaged = _replaced(rows(3), name, column)
    given = {"sender": "w", "client": 1, "source": FLIGHT, "correlation": "w/0/0"}
    found = (
        prepare(damaged, **given) if storage == "arrow" else MemoryLog().prepare(damaged, **given)
    )
    with pytest.raises(ValueError, match=problem):
        list(found)


def test_rows_with_other_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="ROWS_SCHEMA"):
        row_groups(rows(3).select(["value", "topic", "key", "headers"]))


def test_slices_and_offsets_that_do_not_start_at_zero_give_only_their_own_bytes() -> None:
    ends = pa.array([5, 8, 8, 11], pa.int32()).buffers()[1]
    value = pa.Array.from_buffers(pa.binary(), 3, [None, ends, pa.py_buffer(b"hiddenotmine")])
    batch = _replaced(rows(3), "value", value).slice(1)
    (row_group,) = row_groups(batch)
    assert row_group.data_bytes == sum(map(data_bytes, batch.to_pylist()))
    columns = row_group.finish(0, log_id=0, partition=0)
    data = b"".join(encode_row_group(columns, previous=0, synced=0).buffers)
    assert read(row_group, 0).column("value").to_pylist() == [b"", b"min"]
    assert b"hidden" not in data
