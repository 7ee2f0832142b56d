"""Record batches: every message of a range once, in order, checked, and only what is wanted."""

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from penstock.errors import LogDamaged, OffsetBelowHorizon, OffsetPastEnd
from penstock.model import Kind
from penstock.protocols.fleximq import FLEXIMQ
from penstock.server.flight import reader
from penstock.storage.arrow.format.file_names import partition_folder
from penstock.storage.arrow.format.index import Index
from penstock.storage.arrow.format.log_state import load_state, save_state
from penstock.storage.arrow.read import records
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.records import count_topics, plain_records, record_batches
from penstock.storage.arrow.recover.recovery import recover
from penstock.storage.arrow.write.segment_writer import SegmentWriter
from penstock.storage.dictionaries import RECORD_SCHEMA
from penstock.storage.files import Files
from penstock.storage.schema import SCHEMA
from tests.support.log_rows import LOG_ID, columns
from tests.support.written_log import START_US, WrittenLog, flip, message

SEGMENTS, GROUPS, ROWS = 3, 5, 4
END = SEGMENTS * GROUPS * ROWS
TOPICS = ("a", "b/c", "b/d")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three segments of five row groups."""
    folder = tmp_path_factory.mktemp("data")
    for _ in range(SEGMENTS):
        with WrittenLog(folder) as log:
            log.put_many(GROUPS, rows=ROWS, topics=TOPICS)
    return folder


@pytest.fixture(scope="module")
def view(data: Path) -> LogView:
    return LogView(data)


def offsets(batches: list[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def topic_of(offset: int) -> str:
    return TOPICS[offset % len(TOPICS)]


@pytest.mark.parametrize("coalesce", [False, True])
@pytest.mark.parametrize("wanted", [None, {"a"}, {"b/c", "b/d"}, set(TOPICS), {"none"}])
@pytest.mark.parametrize(
    ("start", "end"),
    [(None, None), (0, END), (3, 5), (4, 8), (19, 21), (7, 53), (END - 1, END), (END, END), (9, 9)],
)
def test_a_range_has_its_messages_and_no_other(
    view: LogView, start: int | None, end: int | None, wanted: set[str] | None, *, coalesce: bool
) -> None:
    batches = list(
        record_batches(
            view, start=start, end=end, wanted=wanted and wanted.__contains__, coalesce=coalesce
        )
    )
    expected = [
        offset
        for offset in range(start or 0, END if end is None else end)
        if not wanted or topic_of(offset) in wanted
    ]
    assert offsets(batches) == expected
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(SCHEMA)
        assert len(batch)
        for row in batch.to_pylist():
            assert row["value"] == b"%d" % row["offset"]
            assert row["topic"] == topic_of(row["offset"])


def test_groups_come_as_they_are_without_a_copy(view: LogView) -> None:
    batches = list(record_batches(view))
    assert [len(batch) for batch in batches] == [ROWS] * (SEGMENTS * GROUPS)
    addresses = [batch.column("value").buffers()[2].address for batch in batches[:GROUPS]]
    # In one buffer, one behind the other: what was read, not what was made of it
    assert addresses == sorted(addresses)
    assert addresses[-1] - addresses[0] < 65_536


def test_small_groups_come_together_within_the_bounds(
    view: LogView, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [len(each) for each in record_batches(view, coalesce=True)] == [END]
    monkeypatch.setattr(records, "RECORDS_ROWS_MAX", 2 * ROWS + 1)
    batches = list(record_batches(view, coalesce=True))
    assert max(map(len, batches)) == 2 * ROWS
    assert offsets(batches) == list(range(END))
    monkeypatch.setattr(records, "RECORDS_BYTES_MAX", 1)
    assert max(len(each) for each in record_batches(view, coalesce=True)) <= 2 * ROWS


@pytest.mark.parametrize("read_bytes", [1, 5000])
def test_what_is_read_at_once_does_not_change_what_is_given(
    view: LogView, monkeypatch: pytest.MonkeyPatch, read_bytes: int
) -> None:
    monkeypatch.setattr(records, "RECORDS_READ_BYTES", read_bytes)
    assert offsets(list(record_batches(view))) == list(range(END))
    wanted = [offset for offset in range(END) if topic_of(offset) == "a"]
    assert offsets(list(record_batches(view, wanted="a".__eq__))) == wanted


def test_groups_without_a_wanted_topic_are_not_read(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        for name in "abcbca":
            log.put(message(name, name.encode()))
    view = LogView(tmp_path)
    segment = view.segments[0]
    index = view.catalog.index(segment)
    for number in (1, 2, 3, 4):
        flip(log.segments()[0], index.entry(number).position + index.entry(number).size - 8)
    assert offsets(list(record_batches(view, wanted="a".__eq__))) == [0, 5]
    with pytest.raises(LogDamaged):
        list(record_batches(view, wanted="b".__eq__))


def test_a_topic_is_asked_for_once(view: LogView) -> None:
    asked: list[str] = []

    def wanted(name: str) -> bool:
        asked.append(name)
        return name == "a"

    list(record_batches(view, wanted=wanted))
    assert sorted(asked) == sorted(TOPICS)


def test_a_topic_may_be_named_like_the_checksum(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        for name in ("x", "penstock.crc32c", "penstock.crc32c 00000000", "x"):
            log.put(message(name, b"penstock.crc32c"))
    batches = list(record_batches(LogView(tmp_path)))
    assert offsets(batches) == [0, 1, 2, 3]
    flip(log.segments()[0], log.segments()[0].stat().st_size - 16)
    with pytest.raises(LogDamaged):
        list(record_batches(LogView(tmp_path)))


def test_offsets_outside_are_named_errors_at_once(view: LogView, tmp_path: Path) -> None:
    with pytest.raises(OffsetPastEnd):
        record_batches(view, start=END + 1)
    with pytest.raises(OffsetPastEnd):
        record_batches(view, end=END + 1)
    with WrittenLog(tmp_path, segment_bytes_max=1) as log:
        log.put_many(3)
    for path in log.folder.glob("0" * 20 + ".*"):
        path.unlink()
    late = LogView(tmp_path)
    with pytest.raises(OffsetBelowHorizon):
        record_batches(late, start=0)


@pytest.mark.parametrize("indexed", [False, True])
def test_a_segment_that_retention_took_meanwhile_is_below_the_horizon(
    tmp_path: Path, *, indexed: bool
) -> None:
    with WrittenLog(tmp_path, segment_bytes_max=1) as log:
        log.put_many(3)
    view = LogView(tmp_path)
    if indexed:
        view.catalog.index(view.segments[0])
    first = log.segments()[0]
    first.unlink()
    with pytest.raises(LogDamaged, match="is not there any more"):
        list(record_batches(view))
    files = Files()
    state = load_state(files, log.folder)
    assert state is not None
    save_state(files, log.folder, msgspec.structs.replace(state, horizon=3))
    with pytest.raises(OffsetBelowHorizon) as raised:
        list(record_batches(view))
    assert (raised.value.offset, raised.value.horizon) == (0, 3)
    assert offsets(list(record_batches(view, start=3))) == [3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("coalesce", [False, True])
def test_a_damaged_group_is_told_and_the_others_are_given(
    tmp_path: Path, *, coalesce: bool
) -> None:
    with WrittenLog(tmp_path) as log:
        log.put_many(5)
    view = LogView(tmp_path)
    entry = view.catalog.index(view.segments[0]).entry(2)
    for position in range(entry.position, entry.position + entry.size, 97):
        flip(log.segments()[0], position)
        told: list[LogDamaged] = []
        batches = list(record_batches(view, coalesce=coalesce, damaged=told.append))
        assert offsets(batches) == [0, 1, 2, 3, 4, 5, 9, 10, 11, 12, 13, 14], position
        assert [(each.offset, each.resumes_at) for each in told] == [(6, 9)]
        with pytest.raises(LogDamaged) as raised:
            list(record_batches(view))
        assert raised.value.offset == 6
        flip(log.segments()[0], position)
    assert offsets(list(record_batches(view))) == list(range(15))


def test_what_comes_before_damage_is_given_before_it_is_told(tmp_path: Path) -> None:
    with WrittenLog(tmp_path, segment_bytes_max=1) as log:
        log.put_many(4)
    log.segments()[1].unlink()
    view = LogView(tmp_path)
    for wanted in (None, "a".__eq__):
        seen: list[int] = []
        columns = (batch.column("offset") for batch in record_batches(view, wanted=wanted))
        with pytest.raises(LogDamaged) as raised:
            seen.extend(offset.as_py() for column in columns for offset in column)
        assert (raised.value.offset, raised.value.resumes_at) == (3, 6)
        assert seen == ([0, 1, 2] if wanted is None else [0, 2])
    told: list[LogDamaged] = []
    assert offsets(list(record_batches(view, start=4, end=8, damaged=told.append))) == [6, 7]
    assert [(each.offset, each.resumes_at) for each in told] == [(4, 6)]
    assert offsets(list(record_batches(view, start=6))) == [6, 7, 8, 9, 10, 11]


def test_a_segment_whose_head_is_damaged_is_still_read(tmp_path: Path) -> None:
    with WrittenLog(tmp_path, segment_bytes_max=1) as log:
        log.put_many(2)
    path = log.segments()[0]
    flip(path, 100)
    assert offsets(list(record_batches(LogView(tmp_path)))) == [0, 1, 2, 3, 4, 5]


def test_progress_adds_up_to_the_range(view: LogView) -> None:
    done: list[int] = []
    list(record_batches(view, start=2, end=50, wanted="a".__eq__, progress=done.append))
    assert (sum(done), min(done) > 0) == (48, True)


def test_plain_has_the_columns_of_the_record(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        log.put(
            message(
                "plant/line", b"\x00\xff", 7, protocol=FLEXIMQ, kind=Kind.REPLY,
                private=True, headers=(("path", b"/x"),), correlation="r-1", status=200,
            )
        )  # fmt: skip
    (batch,) = plain_records(record_batches(LogView(tmp_path)))
    assert batch.schema.equals(RECORD_SCHEMA)
    assert batch.schema.names[-1] == "message_id"
    assert not any(pa.types.is_dictionary(field.type) for field in batch.schema)
    (row,) = batch.to_pylist()
    assert row.pop("timestamp").timestamp() == (START_US + 7000) / 1_000_000
    assert row.pop("message_id").startswith(f"{log.log.log_id:012x}"[:8])
    assert row == {
        "key": None, "value": b"\x00\xff", "topic": "plant/line", "partition": 0, "offset": 0,
        "timestampType": 1, "headers": [{"key": "path", "value": b"/x"}], "protocol": "fleximq",
        "kind": "reply", "sender": "somebody", "created": None, "correlation": "r-1", "status": 200,
    }  # fmt: skip


def test_topics_are_counted_in_groups_of_one_and_of_several(tmp_path: Path) -> None:
    with WrittenLog(tmp_path, segment_bytes_max=4000) as log:
        log.put_many(5, rows=3, topics=("x", "y", "y"))
        log.put_many(2, rows=2, topics=("x",))
        log.put_many(1, rows=1, topics=("z",))
    done: list[int] = []
    counts = count_topics(LogView(tmp_path), progress=done.append)
    assert {name: tuple(each) for name, each in counts.items()} == {
        "x": (7, 9), "y": (5, 10), "z": (1, 1)
    }  # fmt: skip
    assert sum(done) == 20


@pytest.mark.parametrize(
    ("rows_max", "bytes_max", "expected"),
    [(4, 1000, [4, 4, 1]), (1000, 40, [4, 4, 1]), (3, 1000, [2, 2, 2, 3]), (1000, 1000, [9])],
)
@pytest.mark.parametrize("module", [records, reader], ids=["log", "flight"])
def test_small_batches_are_joined_up_to_the_limits(
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    rows_max: int,
    bytes_max: int,
    expected: list[int],
) -> None:
    monkeypatch.setattr(module, "RECORDS_ROWS_MAX", rows_max)
    monkeypatch.setattr(module, "RECORDS_BYTES_MAX", bytes_max)
    column = pa.array([b"0123456789"[:6]] * 9, pa.binary(6))  # 6 bytes and 4 of the next column
    whole = pa.RecordBatch.from_arrays([column, pa.array([0] * 9, pa.int32())], names=["a", "b"])
    batches = [whole.slice(start, 2) for start in range(0, 9, 2)]
    assert [each.nbytes for each in batches] == [20, 20, 20, 20, 10]
    given = batches if module is reader else [(each, each.nbytes) for each in batches]
    joined = list(module._coalesced(given))
    assert [len(each) for each in joined] == expected
    assert pa.Table.from_batches(joined) == pa.Table.from_batches(batches)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"count": 2}, "the index is not of this segment"),
        ({"base_offset": 1}, "its checksum is wrong"),
    ],
)
def test_an_index_of_other_row_groups_is_an_error(
    tmp_path: Path, wrong: dict[str, int], reason: str
) -> None:
    with WrittenLog(tmp_path) as log:
        log.put_many(2)
    view = LogView(tmp_path)
    right = view.catalog.index(view.segments[0])
    index = Index(0)
    index.add(right.entry(0), None)
    index.add(dataclasses.replace(right.entry(1), **wrong), None)
    view.catalog._indexes.put(index)
    with pytest.raises(LogDamaged, match=reason):
        list(record_batches(view))


@pytest.mark.parametrize("groups", [2, 3])
def test_a_group_that_arrow_cannot_read_costs_only_its_own_messages(
    tmp_path: Path, groups: int
) -> None:
    folder = partition_folder(tmp_path, 0)
    files = Files()
    recover(files, folder, log_id=LOG_ID)
    writer = SegmentWriter(
        files, folder, log_id=LOG_ID, partition=0, base_offset=0, previous_end=0, previous_crc=0
    )
    for base in range(groups):
        rows = columns(base, [b"x"])
        if base == 1:
            rows.buffers[4] = b"\xff\xff\xff\x7f" * 2  # the offsets of the values
        writer.append(rows, synced=base)
    writer.seal()
    told: list[LogDamaged] = []
    batches = list(record_batches(LogView(tmp_path), damaged=told.append))
    assert offsets(batches) == [0, 2][: groups - 1]
    assert [(each.offset, each.resumes_at) for each in told] == [(1, 2)]
