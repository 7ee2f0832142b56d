"""A log that is followed shows what is safe, all of it, and the same whenever it is read."""

import struct
import time
from pathlib import Path

import pyarrow as pa
import pytest

from penstock._kernels.crc32c import crc32c
from penstock.errors import CannotRead
from penstock.ports.selection import Selection
from penstock.storage.arrow.format.log_state import LogState, load_state, save_state
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.follow import LogFollower, partitions_of
from penstock.storage.arrow.read.pieces import cut, plan, read_pieces
from penstock.storage.arrow.read.records import record_batches
from penstock.storage.arrow.write.retention import remove_segments
from penstock.storage.arrow.write.watermark import WATERMARK, Watermark, read_watermark
from penstock.storage.files import Files
from tests.support.written_log import START_US, WrittenLog, contents, flip, message


def rows(follower: LogFollower, *, tasks: int = 1, **selection: object) -> list[tuple[int, bytes]]:
    """Offset and value of all that can be read, by way of pieces."""
    wanted = Selection(**selection)  # type: ignore[arg-type]
    spans = plan(follower.catalog, follower.horizon, follower.end, wanted)
    found = []
    for pieces in cut(spans, tasks):
        for batch in read_pieces(
            follower.folder,
            pieces,
            first=follower.horizon,
            last=follower.end,
            columns=["offset", "value", *wanted.columns],
        ):
            batch = wanted.of(batch)  # noqa: PLW2901
            found += zip(
                batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True
            )
    return found


def numbered(first: int, end: int) -> list[tuple[int, bytes]]:
    return [(offset, b"%d" % offset) for offset in range(first, end)]


# --- The watermark


def test_a_watermark_is_what_was_written_last(tmp_path: Path) -> None:
    assert read_watermark(tmp_path) is None
    mark = Watermark(tmp_path, 7)
    assert read_watermark(tmp_path) == 7
    mark.advance(1 << 40)
    mark.close()
    assert read_watermark(tmp_path) == 1 << 40
    data = (tmp_path / WATERMARK).read_bytes()
    number = struct.pack("<q", 1 << 40)
    assert data == number + struct.pack("<I", crc32c([number])) + b"PSW1"


@pytest.mark.parametrize("position", range(16))
def test_a_watermark_that_is_damaged_is_none(tmp_path: Path, position: int) -> None:
    Watermark(tmp_path, 7).close()
    flip(tmp_path / WATERMARK, position)
    assert read_watermark(tmp_path) is None
    (tmp_path / WATERMARK).write_bytes(b"\x07")
    assert read_watermark(tmp_path) is None


def test_a_log_works_where_no_watermark_can_be_written(tmp_path: Path) -> None:
    Watermark(tmp_path / "missing", 7).advance(8)
    with WrittenLog(tmp_path) as written:
        written.put_many(2)
        written.log._watermark._handle = 1 << 20  # no such handle: the next write of it fails
        written.put_many(2)
        assert read_watermark(written.folder) is None
    assert LogFollower(tmp_path).end == 12


# --- What is shown


def test_a_follower_sees_each_commit_through_rolls_and_restarts(tmp_path: Path) -> None:
    with WrittenLog(tmp_path, segment_bytes_max=16_384) as written:
        written.put_many(1)
        follower = LogFollower(tmp_path)
        for _ in range(40):
            written.put_many(1)
            assert follower.bounds() == (0, written.log.end)
        assert len(written.segments()) > 3
        before = contents(tmp_path)
        assert rows(follower) == numbered(0, follower.end)
        assert contents(tmp_path) == before
    assert follower.bounds() == (0, 123)
    with WrittenLog(tmp_path) as written:
        written.put_many(1)
        assert follower.bounds() == (0, 126)
        assert rows(follower, tasks=4) == numbered(0, 126)
        assert not follower.damage


def test_a_follower_shows_nothing_beyond_the_watermark(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as written:
        written.put_many(4)
        mark = Watermark(written.folder, 7)
        follower = LogFollower(tmp_path)
        assert follower.end == 9  # a later row group says that these were on disk
        mark.advance(11)
        assert follower.bounds().end == 11
        mark.advance(12)
        assert follower.bounds().end == 12


def test_without_a_watermark_what_groups_say_is_on_disk_is_shown(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as written:
        written.put_many(4)
        (written.folder / WATERMARK).unlink()
        follower = LogFollower(tmp_path)
        assert follower.end == 9
        assert rows(follower) == numbered(0, 9)
    assert follower.bounds().end == 12


def test_a_torn_tail_is_not_shown_and_damage_is_told(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as written:
        written.put_many(4)
        (segment,) = written.segments()
        view = LogView(tmp_path)
        third = view.catalog.index(view.segments[0]).entry(2).position
        torn = segment.read_bytes()
        segment.write_bytes(torn[:-100])
        assert LogFollower(tmp_path).end == 9
        segment.write_bytes(torn)
        flip(segment, third + 2000)
        follower = LogFollower(tmp_path)
        assert follower.end == 12
        assert [(each.first_offset, each.resumes_at) for each in follower.damage] == [(6, 9)]
        assert rows(follower) == numbered(0, 6) + numbered(9, 12)
        segment.write_bytes(torn)


def test_a_closed_segment_with_damage_is_shown_to_its_end(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as written:
        written.put_many(4)
        view = LogView(tmp_path)
        second = view.catalog.index(view.segments[0]).entry(1).position
    (segment,) = written.segments()
    for index in written.folder.glob("*.index"):
        index.unlink()
    flip(segment, second + 2000)
    Watermark(written.folder, 7).close()
    follower = LogFollower(tmp_path)
    assert follower.end == 12
    assert rows(follower) == numbered(0, 3) + numbered(6, 12)


def test_closed_segments_are_taken_from_their_index_and_not_walked(tmp_path: Path) -> None:
    with WrittenLog(tmp_path, segment_bytes_max=1) as written:
        written.put_many(3)
        first, second, _ = written.segments()
        for segment in (first, second):
            flip(segment, segment.stat().st_size - 100)
        follower = LogFollower(tmp_path)
        assert follower.bounds() == (0, 9)
        assert follower.damage == []


def test_retention_moves_the_horizon(tmp_path: Path) -> None:
    with WrittenLog(tmp_path, segment_bytes_max=16_384) as written:
        written.put_many(40)
        follower = LogFollower(tmp_path)
        bases = [int(path.stem) for path in written.segments()]
        state = load_state(Files(), written.folder)
        assert state is not None
        save_state(
            Files(),
            written.folder,
            LogState(state.log_id, 0, state.next_offset, state.end, bases[2]),
        )
        assert follower.bounds().horizon == bases[2]
        remove_segments(Files(), written.folder, bases[:2])
        assert follower.bounds() == (bases[2], 120)
        assert rows(follower) == numbered(bases[2], 120)


def test_bounds_are_cheap(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as written:
        written.put_many(200)
        follower = LogFollower(tmp_path)
        took = []
        for _ in range(50):
            start = time.thread_time_ns()
            follower.bounds()
            took.append(time.thread_time_ns() - start)
        assert sorted(took)[len(took) // 2] < 1_000_000


def test_a_watermark_that_is_read_leaves_no_file_open(tmp_path: Path) -> None:
    Watermark(tmp_path, 7).close()
    read_watermark(tmp_path)
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    assert read_watermark(tmp_path) == 7
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == before


@pytest.mark.parametrize("watermark", [True, False])
def test_a_log_that_did_not_grow_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, watermark: bool
) -> None:
    with WrittenLog(tmp_path) as written:
        written.put_many(2)
        if not watermark:
            (written.folder / WATERMARK).unlink()
        follower = LogFollower(tmp_path)
        bounds = follower.bounds()
        with monkeypatch.context() as patch:
            patch.delattr("penstock.storage.arrow.read.follow.walk")
            assert follower.bounds() == bounds
        written.put_many(1)
        assert follower.bounds() > bounds


def test_a_folder_without_a_log_is_named(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(CannotRead, match=str(folder)):
            partitions_of(folder)
    with WrittenLog(tmp_path) as written:
        for name in ("lost+found", "²", "7"):  # no partition, no partition, a partition
            (written.folder.parent / name).mkdir()
        assert partitions_of(tmp_path) == [0, 7]


def test_a_time_is_found_among_what_is_shown(tmp_path: Path) -> None:
    with WrittenLog(tmp_path, segment_bytes_max=16_384) as written:
        written.put_many(20)
        follower = LogFollower(tmp_path)
        assert follower.find_time(0) == 0
        assert follower.find_time(START_US + 31_000) == 31
        assert follower.find_time(START_US + 30_500) == 31
        assert follower.find_time(START_US + 60_000) == 60


# --- Pieces


@pytest.mark.parametrize("tasks", [1, 2, 3, 7, 1000])
def test_tasks_have_all_rows_once_and_in_order(tmp_path: Path, tasks: int) -> None:
    with WrittenLog(tmp_path, segment_bytes_max=16_384) as written:
        written.put_many(30)
        follower = LogFollower(tmp_path)
        spans = plan(follower.catalog, 0, follower.end, Selection())
        parts = cut(spans, tasks)
        assert len(parts) == min(tasks, 30)
        assert all(parts)
        assert rows(follower, tasks=tasks) == numbered(0, 90)
        sizes = [sum(piece.size for piece in part) for part in parts]
        assert max(sizes) - min(sizes) <= 2 * max(sizes) // max(1, 30 // len(parts))


def test_pieces_are_pruned_by_topic_and_time(tmp_path: Path) -> None:
    with WrittenLog(tmp_path, segment_bytes_max=16_384) as written:
        written.put_many(20, topics=["a"])
        written.put(message("rare", b"60", 60))
        written.put_many(20, topics=["a"])
        follower = LogFollower(tmp_path)
        whole = sum(
            span.end - span.position
            for span in plan(follower.catalog, 0, follower.end, Selection())
        )
        for wanted, expected in (
            (Selection(topics=frozenset({"rare"})), 1),
            (Selection(expression="r.*"), 1),
            (Selection(patterns=("+",)), 121),
            (Selection(topics=frozenset({"none"})), 0),
            (Selection(since_us=START_US + 118_000), 3),
            (Selection(until_us=START_US + 4_000), 4),
        ):
            spans = plan(follower.catalog, 0, follower.end, wanted)
            size = sum(span.end - span.position for span in spans)
            assert size < whole / 5 or expected > 100
            fields = {
                name: getattr(wanted, name)
                for name in ("topics", "expression", "patterns", "since_us", "until_us")
            }
            assert len(rows(follower, **fields)) == expected


def test_columns_that_nobody_asks_for_are_not_read(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as written:
        written.put_many(2)
        follower = LogFollower(tmp_path)
        (pieces,) = cut(plan(follower.catalog, 0, 6, Selection()), 1)
        batches = list(read_pieces(written.folder, pieces, first=0, last=6, columns=["topic"]))
        assert [batch.schema.names for batch in batches] == [["topic"], ["topic"]]


def test_what_is_damaged_after_planning_is_told_or_raised(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as written:
        written.put_many(5)
        follower = LogFollower(tmp_path)
        (pieces,) = cut(plan(follower.catalog, 0, 15, Selection()), 1)
        (segment,) = written.segments()
        index = follower.catalog.index(follower.catalog.segments()[0])
        whole = segment.read_bytes()
        flip(segment, index.entry(2).position + 2000)
        with pytest.raises(Exception, match="messages 6 to 8 cannot be read"):
            list(read_pieces(written.folder, pieces, first=0, last=15, columns=["offset"]))
        told: list[object] = []
        batches = list(
            read_pieces(
                written.folder, pieces, first=0, last=15, columns=["offset"], damaged=told.append
            )
        )
        offsets = pa.Table.from_batches(batches).column("offset").to_pylist()
        assert offsets == [*range(6), *range(9, 15)]
        assert len(told) == 1
        segment.write_bytes(whole)


def test_pieces_and_records_agree(tmp_path: Path) -> None:
    with WrittenLog(tmp_path, segment_bytes_max=16_384) as written:
        written.put_many(30, rows=5)
        follower = LogFollower(tmp_path)
        spans = plan(follower.catalog, 3, 148, Selection())
        names = follower.catalog and LogView(tmp_path)
        expected = pa.Table.from_batches(record_batches(names, start=3, end=148))
        (pieces,) = cut(spans, 1)
        found = pa.Table.from_batches(
            read_pieces(written.folder, pieces, first=3, last=148, columns=expected.schema.names)
        )
        assert found.to_pylist() == expected.to_pylist()
