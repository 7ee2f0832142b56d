"""Pieces of a log: planned from the index, read and checked; what is cut off or missing is told."""

import os
from pathlib import Path

import pytest

from penstock.errors import LogDamaged, OffsetPastEnd
from penstock.ports import PartitionRange
from penstock.ports.selection import Selection
from penstock.storage.arrow.format.damage import Fault
from penstock.storage.arrow.format.file_names import partition_folder
from penstock.storage.arrow.format.log_state import LogState
from penstock.storage.arrow.format.segment import BadRowGroup, parse_row_group
from penstock.storage.arrow.read.browse import LogView, find_log
from penstock.storage.arrow.read.follow import LogFollower
from penstock.storage.arrow.read.pieces import cut, plan, read_pieces
from penstock.storage.arrow.read.records import record_batches
from tests.support.written_log import WrittenLog, flip

COLUMNS = ("offset", "value")


def offsets(view: LogView, *, damaged: list[LogDamaged] | None = None) -> list[int]:
    """The offsets that are read of a whole log."""
    (pieces,) = cut(plan(view.catalog, 0, view.end, Selection()), 1)
    tell = None if damaged is None else damaged.append
    batches = read_pieces(
        view.folder, pieces, first=0, last=view.end, columns=COLUMNS, damaged=tell
    )
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_a_segment_that_was_cut_since_it_was_planned_is_damage(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        log.put_many(4, rows=2)
    view = LogView(tmp_path)
    assert offsets(view) == list(range(8))
    place = view.catalog.place(4, view.end)
    os.truncate(place.path, place.entry.position + 8)
    with pytest.raises(LogDamaged) as caught:
        offsets(view)
    assert (caught.value.offset, caught.value.resumes_at) == (4, 8)
    told: list[LogDamaged] = []
    assert offsets(view, damaged=told) == [0, 1, 2, 3]
    assert [(each.offset, each.resumes_at) for each in told] == [(4, 8)]


def test_a_damaged_row_group_is_not_read_where_it_is_the_first(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        log.put_many(3, rows=2)
    view = LogView(tmp_path)
    place = view.catalog.place(0, view.end)
    flip(place.path, place.entry.position + place.entry.size - 8)
    with pytest.raises(LogDamaged):
        offsets(view)
    told: list[LogDamaged] = []
    assert offsets(view, damaged=told) == [2, 3, 4, 5]
    assert [(each.offset, each.resumes_at) for each in told] == [(0, 2)]


def test_good_row_groups_are_read_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with WrittenLog(tmp_path) as log:
        log.put_many(3, rows=2)
    view = LogView(tmp_path)
    monkeypatch.delattr("penstock.storage.arrow.read.pieces.walk")
    assert offsets(view) == list(range(6)), "without the slow path for damage"


def test_a_piece_ends_at_its_end_behind_damage_too(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        log.put_many(4, rows=2)
    view = LogView(tmp_path)
    place = view.catalog.place(0, view.end)
    flip(place.path, place.entry.position + place.entry.size - 8)
    ((piece,),) = cut(plan(view.catalog, 0, view.end, Selection()), 1)
    batches = read_pieces(
        view.folder,
        [piece._replace(end_offset=4)],
        first=0,
        last=view.end,
        columns=COLUMNS,
        damaged=lambda _: None,
    )
    assert [batch.column("offset").to_pylist() for batch in batches] == [[2, 3]]


def test_an_offset_at_the_end_has_no_place(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        log.put_many(2, rows=2)
    catalog = LogView(tmp_path).catalog
    assert catalog.place(1, 2).entry.base_offset == 0
    for end in (1, 2):  # inside a row group, and between two
        with pytest.raises(OffsetPastEnd):
            catalog.place(end, end)


@pytest.mark.parametrize("position", [0, 3, 4])
def test_a_row_group_without_its_prefix_is_none(tmp_path: Path, position: int) -> None:
    with WrittenLog(tmp_path) as log:
        log.put_many(1, rows=2)
    place = LogView(tmp_path).catalog.place(0, 2)
    data = bytearray(place.path.read_bytes())
    start = place.entry.position
    assert parse_row_group(memoryview(data), start).count == 2
    data[start + position] ^= 1
    with pytest.raises(BadRowGroup):
        parse_row_group(memoryview(data), start)


def test_row_groups_on_both_sides_of_damage_are_two_spans(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        log.put_many(6, rows=2)
    place = LogView(tmp_path).catalog.place(4, 12)
    place.path.with_suffix(".index").unlink()
    flip(place.path, place.entry.position + place.entry.size - 8)
    view = LogView(tmp_path)
    spans = plan(view.catalog, 0, view.end, Selection())
    assert [(span.first, span.last) for span in spans] == [(0, 2), (2, 5)], (
        "row groups stay together"
    )
    assert offsets(view, damaged=[]) == [0, 1, 2, 3, *range(6, 12)]


def test_a_missing_segment_has_no_bytes(tmp_path: Path) -> None:
    with WrittenLog(tmp_path, segment_bytes_max=1) as log:
        log.put_many(3, rows=2)
    log.segments()[1].unlink()
    (damage,) = LogView(tmp_path).damage
    assert damage.fault is Fault.MISSING_SEGMENT
    assert (damage.position, damage.length) == (0, 0)
    assert (damage.first_offset, damage.resumes_at) == (2, 4)


def test_a_log_is_found_in_its_first_partition(tmp_path: Path) -> None:
    with WrittenLog(tmp_path):
        pass
    assert find_log(tmp_path) == partition_folder(tmp_path, 0)
    assert LogView(tmp_path).partition == 0


def test_a_new_log_has_no_offsets() -> None:
    state = LogState(7, 0)
    assert (state.next_offset, state.end, state.horizon) == (0, 0, 0)


def test_progress_counts_damaged_messages_too(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        log.put_many(3, rows=2)
    view = LogView(tmp_path)
    for offset in (2, 4):
        place = view.catalog.place(offset, view.end)
        flip(place.path, place.entry.position + place.entry.size - 8)
    counts: list[int] = []
    told: list[LogDamaged] = []
    batches = record_batches(view, damaged=told.append, progress=counts.append)
    assert [len(batch) for batch in batches] == [2]
    assert [(each.offset, each.resumes_at) for each in told] == [(2, 4), (4, 6)]
    assert sum(counts) == 6


def test_a_follower_keeps_the_damage_of_closed_segments(tmp_path: Path) -> None:
    with WrittenLog(tmp_path, segment_bytes_max=1) as log:
        log.put_many(2, rows=2)
    first = log.segments()[0]
    flip(first, first.stat().st_size - 100)
    first.with_suffix(".index").unlink()
    with WrittenLog(tmp_path) as log:
        assert [each.first_offset for each in log.log.damage(PartitionRange(0, 0, 4))] == [0]
        log.put_many(3, rows=2)
        follower = LogFollower(tmp_path)
        assert [each.first_offset for each in follower.damage] == [0]
        active = log.segments()[-1]
        whole = active.read_bytes()
        place = LogView(tmp_path).catalog.place(6, 10)
        flip(active, place.entry.position + place.entry.size - 8)
        log.put_many(1, rows=2)
        damaged = active.read_bytes()
        again = LogFollower(tmp_path)
        assert [each.first_offset for each in again.damage] == [0, 6]
        active.write_bytes(whole + damaged[len(whole) :])


def test_a_log_that_is_closed_leaves_no_file_open(tmp_path: Path) -> None:
    def opened() -> list[str]:
        places = (os.path.realpath(each) for each in Path("/proc/self/fd").iterdir())
        return sorted(place for place in places if place.startswith(str(tmp_path)))

    for _ in range(2):
        with WrittenLog(tmp_path) as log:
            log.log.add_topic("named", bytes(16))
            log.put_many(2)
            assert any(place.endswith("topics.journal") for place in opened())
        assert opened() == []


def test_a_log_whose_segments_are_gone_ends_at_its_next_offset(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        log.put_many(3, rows=2)
    for path in log.folder.glob("0*"):
        path.unlink()
    follower = LogFollower(tmp_path)
    assert follower.end == 6
    assert follower.bounds().horizon == 6
