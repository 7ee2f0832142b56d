"""Reads of some columns: the same rows as a whole read, and only their bytes read and checked."""

import contextlib
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import LogDamaged
from penstock.ports.selection import Selection
from penstock.storage.arrow.format.file_names import segment_path
from penstock.storage.arrow.format.segment import check_row_group, parse_row_group
from penstock.storage.arrow.read import columns as some_columns
from penstock.storage.arrow.read import pieces
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.pieces import cut, plan, read_pieces
from penstock.storage.arrow.read.records import record_batches
from penstock.storage.schema import SCHEMA
from tests.support.written_log import WrittenLog, flip, message

GOLDEN = Path(__file__).parents[2] / "golden"
NAMES = [
    ["topic"],
    ["offset", "value"],
    ["value", "key", "headers"],
    ["sender", "kind", "protocol"],
    ["created", "correlation", "status", "timestamp"],
    ["message_id", "client", "form"],
]


@pytest.fixture
def every_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read columns of small row groups too."""
    monkeypatch.setattr(pieces, "COLUMN_GROUP_BYTES_MIN", 0)


def read(view: LogView, columns: list[str], read_bytes: list[int] | None = None) -> pa.Table:
    (found,) = cut(plan(view.catalog, 0, view.end, Selection()), 1)
    reading = None if read_bytes is None else read_bytes.append
    batches = read_pieces(
        view.folder, found, first=0, last=view.end, columns=columns, reading=reading
    )
    return pa.Table.from_batches([plain(batch) for batch in batches])


def plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(batch.columns, names=batch.schema.names)


def whole(view: LogView, columns: list[str]) -> pa.Table:
    ordered = [name for name in SCHEMA.names if name in columns]
    return pa.Table.from_batches([plain(each.select(ordered)) for each in record_batches(view)])


def filled(data: Path, *, rows: int, topics: int = 3) -> LogView:
    """A log with a row group of `rows` messages."""
    with WrittenLog(data) as log:
        log.put(
            *(message(f"t/{row % topics}", b"%0100d" % row, row) for row in range(rows)),
        )
    return LogView(data)


@pytest.mark.usefixtures("every_group")
@pytest.mark.parametrize("columns", [*NAMES, *([name] for name in SCHEMA.names)], ids="-".join)
def test_columns_have_the_values_of_a_whole_read(columns: list[str]) -> None:
    view = LogView(GOLDEN / "0.3.0")
    found = read(view, columns)
    found.validate(full=True)
    assert found.equals(whole(view, columns))
    found.validate(full=True)


@pytest.mark.usefixtures("every_group")
def test_a_log_of_both_formats_is_read_as_one(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "0.2.0" / "log", tmp_path / "log")
    with WrittenLog(tmp_path) as log:
        log.put_many(2)
        formats = [
            pa.ipc.open_stream(path).schema.metadata[b"penstock.format"] for path in log.segments()
        ]
    assert formats == [b"1", b"2"]
    view = LogView(tmp_path)
    for columns in NAMES:
        assert read(view, columns).to_pylist() == whole(view, columns).to_pylist()


def test_only_the_bytes_of_the_columns_are_read(tmp_path: Path) -> None:
    view = filled(tmp_path, rows=20_000)
    sizes: list[int] = []
    assert read(view, ["topic"], sizes).num_rows == 20_000
    assert sum(sizes) <= 2 * 20_000 + some_columns.ROW_GROUP_HEAD_BYTES + 8
    sizes.clear()
    read(view, list(SCHEMA.names), sizes)
    assert sum(sizes) > 100 * 20_000


def test_messages_are_counted_without_a_column(tmp_path: Path) -> None:
    view = filled(tmp_path, rows=20_000)
    sizes: list[int] = []
    assert read(view, [], sizes).num_rows == 20_000
    assert sum(sizes) <= some_columns.ROW_GROUP_HEAD_BYTES


def test_zeros_that_columns_share_are_not_read(tmp_path: Path) -> None:
    view = filled(tmp_path, rows=20_000)
    sizes: list[int] = []
    found = read(view, ["partition", "created", "status"], sizes)
    assert found.equals(whole(view, ["partition", "created", "status"]))
    assert sum(sizes) <= some_columns.ROW_GROUP_HEAD_BYTES


def test_small_row_groups_are_read_with_all_columns_between_large_ones(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        for rows in (1_000, 1, 2, 1_000, 3, 2_000):
            first = log.log.next_offset
            log.put(*(message("t", b"%0100d" % row, row) for row in range(first, first + rows)))
    view = LogView(tmp_path)
    found = read(view, ["offset", "value"])
    assert found.equals(whole(view, ["offset", "value"]))
    assert found["offset"].to_pylist() == list(range(4_006))


def test_dictionaries_that_are_larger_than_the_first_read(tmp_path: Path) -> None:
    view = filled(tmp_path, rows=6_000, topics=5_000)
    assert read(view, ["topic"]).equals(whole(view, ["topic"]))


def test_damage_to_one_column_concerns_reads_of_this_column(tmp_path: Path) -> None:
    view = filled(tmp_path, rows=2_000)
    place = view.catalog.place(0, view.end)
    data = place.path.read_bytes()[place.entry.position :]
    flip(place.path, place.entry.position + data.index(b"%0100d" % 1_000))
    assert read(view, ["topic", "offset"]).num_rows == 2_000
    for columns in (["value"], list(SCHEMA.names)):
        with pytest.raises(LogDamaged) as caught:
            read(view, columns)
        assert (caught.value.offset, caught.value.resumes_at) == (0, 2_000)


@pytest.mark.usefixtures("every_group")
def test_every_flipped_byte_is_found_or_is_in_another_column(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        log.put(message("a", b"one", 0, headers=[("h", b"1")]), message("b", b"two", 1))
    view = LogView(tmp_path)
    entry = view.catalog.place(0, view.end).entry
    path = segment_path(view.folder, 0)
    data = bytearray(path.read_bytes())
    group = bytes(data[entry.position : entry.position + entry.size])
    expected = {tuple(columns): read(view, columns) for columns in NAMES}
    told = 0
    for position in range(entry.size):
        changed = bytearray(group)
        changed[position] ^= 0x40
        with contextlib.suppress(ValueError):
            assert not check_row_group(changed, parse_row_group(changed)), position
        if position % 7:
            continue
        data[entry.position + position] ^= 0x40
        path.write_bytes(data)
        for columns in NAMES:
            try:
                assert read(view, columns).equals(expected[tuple(columns)]), (columns, position)
            except LogDamaged:
                told += 1
        data[entry.position + position] ^= 0x40
    assert told > entry.size // 14
