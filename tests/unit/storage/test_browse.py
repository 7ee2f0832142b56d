"""A view of a log: what recovery would make of it, and not a byte of it changed."""

import fcntl
import os
import shutil
from pathlib import Path

import pytest

from penstock.errors import CannotRead, LogFormatTooNew, LogInUse
from penstock.storage.arrow.format.damage import Fault
from penstock.storage.arrow.format.index import Index
from penstock.storage.arrow.log import ArrowLog
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.records import record_batches
from penstock.storage.arrow.recover.overlay import Overlay
from penstock.storage.arrow.recover.recovery import Segment
from tests.support.written_log import START_US, WrittenLog, contents, flip


def offsets(view: LogView) -> list[int]:
    return [
        offset for batch in record_batches(view) for offset in batch.column("offset").to_pylist()
    ]


def test_a_log_that_is_being_written_is_seen_up_to_its_last_group(tmp_path: Path) -> None:
    with WrittenLog(tmp_path, segment_bytes_max=1) as log:
        log.put_many(3)
        before = contents(tmp_path)
        view = LogView(tmp_path)
        assert (view.horizon, view.end, view.log_id) == (0, 9, log.log.log_id)
        assert offsets(view) == list(range(9))
        described = [view.describe(segment) for segment in view.segments]
        assert [each.sealed for each in described] == [True, True, False]
        assert [(each.base_offset, each.end_offset) for each in described] == [
            (0, 3), (3, 6), (6, 9)
        ]  # fmt: skip
        assert [(each.messages, each.row_groups) for each in described] == [(3, 1)] * 3
        assert described[0].first_us == START_US
        assert described[2].last_us == START_US + 8000
        assert contents(tmp_path) == before
        log.put_many(1)
        assert view.end == 9
        assert LogView(tmp_path).end == 12


def test_looking_does_not_keep_a_broker_out_nor_wait_for_one(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        log.put_many(1)
        with pytest.raises(LogInUse):
            ArrowLog(tmp_path)
        view = LogView(tmp_path)
    with WrittenLog(tmp_path) as log:
        assert view.end == log.log.next_offset


def test_a_log_without_a_message_is_empty(tmp_path: Path) -> None:
    WrittenLog(tmp_path).close()
    view = LogView(tmp_path)
    assert (view.horizon, view.end, view.segments, offsets(view)) == (0, 0, [], [])


@pytest.mark.parametrize("cut", [1, 100, 500])
def test_a_torn_tail_is_left_out_and_left_alone(tmp_path: Path, cut: int) -> None:
    with WrittenLog(tmp_path / "live") as log:
        log.put_many(3)
        (path,) = log.segments()
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "live", copy)
    path = copy / "log" / "0" / path.name
    os.truncate(path, path.stat().st_size - cut)
    before = contents(copy)
    view = LogView(copy)
    assert offsets(view) == list(range(6))
    assert (view.end, view.damage) == (6, [])
    assert contents(copy) == before


def test_damage_is_told_and_what_is_behind_it_is_there(tmp_path: Path) -> None:
    with WrittenLog(tmp_path, segment_bytes_max=1) as log:
        log.put_many(3)
        middle = log.segments()[1]
        log.close()
        middle.unlink()
    view = LogView(tmp_path)
    (damage,) = view.damage
    assert (damage.fault, damage.first_offset, damage.resumes_at) == (Fault.MISSING_SEGMENT, 3, 6)
    assert [segment.base_offset for segment in view.segments] == [0, 6]


@pytest.mark.parametrize("harm", ["missing", "stale"])
def test_an_index_that_is_no_good_is_made_in_memory(tmp_path: Path, harm: str) -> None:
    with WrittenLog(tmp_path, segment_bytes_max=1) as log:
        log.put_many(2)
    index = log.segments()[0].with_suffix(".index")
    if harm == "missing":
        index.unlink()
    else:
        flip(index, index.stat().st_size // 2)
    before = contents(tmp_path)
    view = LogView(tmp_path)
    assert offsets(view) == list(range(6))
    assert [view.describe(segment).messages for segment in view.segments] == [3, 3]
    assert contents(tmp_path) == before


def test_a_time_is_found_by_the_index(tmp_path: Path) -> None:
    with WrittenLog(tmp_path, segment_bytes_max=1) as log:
        log.put_many(3)
        view = LogView(tmp_path)
    assert view.find_time(0) == 0
    assert view.find_time(START_US + 4000) == 4
    assert view.find_time(START_US + 4001) == 5
    assert view.find_time(START_US + 8001) == view.end == 9


def test_a_folder_without_a_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotRead, match="there is no such folder"):
        LogView(tmp_path / "nowhere")
    with pytest.raises(CannotRead, match="it has no log/0"):
        LogView(tmp_path)
    (tmp_path / "log" / "0").mkdir(parents=True)
    with pytest.raises(CannotRead, match="nothing in log/0"):
        LogView(tmp_path)
    with pytest.raises(CannotRead, match="it has no log/7"):
        LogView(tmp_path, partition=7)


def test_data_of_a_later_format_is_refused(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        log.put_many(1)
    state = log.folder / "log.json"
    state.write_text(state.read_text().replace('"format":1', '"format":2'))
    with pytest.raises(LogFormatTooNew):
        LogView(tmp_path)


def test_no_lock_is_held_while_a_view_is_open(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        log.put_many(1)
    view = LogView(tmp_path)
    handle = os.open(log.folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(handle)
    assert view.end == 3


def test_a_read_that_the_system_cuts_short_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(100)))
    whole = os.preadv

    def short(handle: int, buffers: list[memoryview], position: int) -> int:
        return whole(handle, [buffers[0][:7]], position)

    monkeypatch.setattr(os, "preadv", short)
    buffer = bytearray(60)
    Overlay().read_into(path, [(10, memoryview(buffer)[:50]), (95, memoryview(buffer)[50:])])
    assert buffer == bytes([*range(10, 60), *range(95, 100)]) + bytes(5)


def test_a_time_is_looked_up_in_one_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with WrittenLog(tmp_path, segment_bytes_max=1) as log:
        log.put_many(3)
    catalog = LogView(tmp_path).catalog
    read: list[int] = []
    index = catalog.index

    def noted(segment: Segment) -> Index:
        read.append(segment.base_offset)
        return index(segment)

    monkeypatch.setattr(catalog, "index", noted)
    found = catalog.place_of_time(START_US + 4000)
    assert found is not None
    assert found.entry.base_offset == 3
    assert catalog.place_of_time(START_US + 9000) is None
    assert read == [3]
