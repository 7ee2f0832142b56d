"""Merged row groups have the messages of the small ones, and readers notice nothing."""

import contextlib
import errno
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.errors import LogDamaged, LogError, TierUnavailable
from penstock.limits import (
    INDEX_TOPICS_MAX,
    MERGE_BYTES_MAX,
    MERGE_GROUP_BYTES,
    MERGE_GROUPS_MIN,
    MERGE_SECONDS_MAX,
)
from penstock.ports import Fetched
from penstock.ports.selection import Selection
from penstock.storage.arrow.format.damage import Damage, Fault, save_damage
from penstock.storage.arrow.format.file_names import (
    index_path,
    partition_folder,
    rows_path,
    segment_path,
    tiered_path,
)
from penstock.storage.arrow.format.index import Entry, Index
from penstock.storage.arrow.format.index_file import load_index
from penstock.storage.arrow.format.log_state import LogState, save_state
from penstock.storage.arrow.format.segment import (
    Columns,
    chained,
    check_row_group,
    head,
    parse_head,
    parse_row_group,
)
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.catalog import Catalog
from penstock.storage.arrow.read.follow import LogFollower
from penstock.storage.arrow.read.pieces import cut, plan, read_pieces
from penstock.storage.arrow.read.reader import RowGroupReader
from penstock.storage.arrow.read.records import record_batches
from penstock.storage.arrow.recover.recovery import Segment, recover
from penstock.storage.arrow.recover.verify import Verified, verify
from penstock.storage.arrow.write import merging
from penstock.storage.arrow.write.merged_rows import columns_of
from penstock.storage.arrow.write.merging import SegmentMerging, runs_of
from penstock.storage.arrow.write.removal_record import RemovalRecord
from penstock.storage.arrow.write.row_indexing import RowIndexing
from penstock.storage.arrow.write.segment_writer import SegmentWriter
from penstock.storage.arrow.write.tiering import Tiering
from penstock.storage.arrow.write.topic_retention import TopicExpiry
from penstock.storage.files import Files
from penstock.storage.kafka.moving import _row_groups as moved_row_groups
from penstock.storage.options import TierOptions, TopicRetention
from penstock.storage.schema import SCHEMA
from tests.support.log_rows import LOG_ID, START_US, columns, text_of
from tests.support.power_cut import cuts
from tests.support.recorded_files import RecordedFiles
from tests.support.written_log import WrittenLog, flip
from tests.unit.storage.test_row_index import any_message

TOPICS = ("a", "b/1", "quiet")


def write(
    files: Files,
    folder: Path,
    *,
    base: int = 0,
    count: int = 300,
    previous: tuple[int, int] = (0, 0),
    rows: Callable[[int], int] = lambda number: 1 + number % 3,
    topic: Callable[[int], str] = lambda offset: "quiet" if offset == 7 else TOPICS[offset % 2],
) -> SegmentWriter:
    """A closed segment of `count` small row groups."""
    writer = SegmentWriter(
        files, folder, log_id=LOG_ID, partition=0, base_offset=base,
        previous_end=previous[0] or base, previous_crc=previous[1],
    )  # fmt: skip
    offset = base
    for number in range(count):
        size = rows(number)
        names = [topic(each) for each in range(offset, offset + size)]
        values = [text_of(each) for each in range(offset, offset + size)]
        group = columns(offset, values, topics=names, first_us=START_US + 1000 * offset)
        writer.append(group, synced=offset)
        offset += size
    writer.seal()
    return writer


def two_segments(files: Files, data: Path, *, count: int = 300) -> Catalog:
    folder = partition_folder(data, 0)
    files.make_folder(folder)
    first = write(files, folder, count=count)
    end = first.end_offset
    write(files, folder, base=end, count=3, previous=(end, first.last_crc))
    save_state(files, folder, LogState(LOG_ID, 0))
    return opened(files, folder)


def opened(files: Files, folder: Path) -> Catalog:
    found = recover(files, folder, partition=0)
    return Catalog(files, folder, found.segments, found.damage, horizon=found.horizon)


def merge(files: Files, catalog: Catalog) -> Segment:
    segment = catalog.segments()[0]
    assert isinstance(segment, Segment)
    return SegmentMerging(files, catalog, share=1.0).merge(segment)


def rows_of(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def planned(catalog: Catalog, folder: Path, columns: list[str]) -> Callable[[], list[Any]]:
    """A read that was planned now, and is done later, as in a task of Spark."""
    end = catalog.segments()[-1].end_offset
    pieces = [each for task in cut(plan(catalog, 0, end, Selection()), 7) for each in task]
    return lambda: rows_of(read_pieces(folder, pieces, first=3, last=end - 2, columns=columns))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture
def catalog(files: Files, tmp_path: Path) -> Catalog:
    return two_segments(files, tmp_path)


def good(folder: Path) -> Verified:
    *findings, totals = verify(Files(), folder)
    assert not findings
    assert isinstance(totals, Verified)
    return totals


def test_merged_row_groups_have_the_same_messages(catalog: Catalog, tmp_path: Path) -> None:
    before = rows_of(record_batches(LogView(tmp_path)))
    old = catalog.segments()[0]
    new = merge(Files(), catalog)
    assert new.size < old.size / 5
    assert new._replace(size=0) == old._replace(size=0)  # type: ignore[union-attr]
    assert catalog.segments()[0] is new
    assert len(catalog.index(new)) == 1
    assert rows_of(record_batches(LogView(tmp_path))) == before
    totals = good(catalog.folder)
    assert (totals.messages, totals.row_groups) == (len(before), 4)


def test_messages_of_every_kind_are_as_they_were(tmp_path: Path) -> None:
    chance = random.Random(5)
    with WrittenLog(tmp_path) as log:
        for number in range(300):
            first, second = (any_message(chance, f"t/{chance.randrange(9)}") for _ in range(2))
            taken = START_US + 1000 * number
            log.put(first._replace(timestamp_us=taken), second._replace(timestamp_us=taken))
    before = rows_of(record_batches(LogView(tmp_path)))
    new = merge(Files(), opened(Files(), partition_folder(tmp_path, 0)))
    assert new.size < 300_000
    assert rows_of(record_batches(LogView(tmp_path))) == before
    good(partition_folder(tmp_path, 0))


def test_a_log_goes_on_behind_a_merged_segment(tmp_path: Path) -> None:
    folder = partition_folder(tmp_path, 0)
    with WrittenLog(tmp_path) as log:
        log.put_many(300, rows=1)
    merge(Files(), opened(Files(), folder))
    for rebuilt in (False, True):
        if rebuilt:
            index_path(folder, 0).unlink()
        with WrittenLog(tmp_path) as log:
            log.put_many(1)
        good(folder)


def test_other_arrow_readers_read_a_merged_segment(catalog: Catalog) -> None:
    merge(Files(), catalog)
    path = segment_path(catalog.folder, 0)
    with pa.ipc.open_stream(path.read_bytes()) as reader:
        found = reader.read_all()
    assert found.schema.equals(SCHEMA)
    assert found.column("offset").to_pylist() == list(range(600))


# --- Readers that looked up row groups before ------------------------------------------------------


@pytest.mark.parametrize("names", [["offset", "value", "topic"], SCHEMA.names])
def test_a_planned_read_gives_the_same_rows(catalog: Catalog, names: list[str]) -> None:
    read = planned(catalog, catalog.folder, names)
    before = read()
    merge(Files(), catalog)
    assert read() == before
    index_path(catalog.folder, 0).unlink()  # a moment before it is written
    assert read() == before


def test_a_planned_read_of_a_topic_gives_the_same_rows(catalog: Catalog) -> None:
    spans = plan(catalog, 0, 600, Selection(topics=frozenset(["quiet"])))
    pieces = [each.part(each.first, each.last) for each in spans]

    def read() -> list[Any]:
        found = read_pieces(catalog.folder, pieces, first=0, last=600, columns=["offset", "topic"])
        return rows_of(found)

    before = read()
    merge(Files(), catalog)
    assert read() == before


@pytest.mark.parametrize("wanted", [None, "a".__eq__])
def test_commands_that_read_meanwhile(
    catalog: Catalog, tmp_path: Path, wanted: Callable[[str], bool] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("penstock.storage.arrow.read.records.RECORDS_READ_BYTES", 100_000)
    before = rows_of(record_batches(LogView(tmp_path), wanted=wanted))
    reading = record_batches(LogView(tmp_path), wanted=wanted)
    found = next(reading).to_pylist()
    merge(Files(), catalog)
    assert found + rows_of(reading) == before


@pytest.mark.parametrize("passed", [0, 1, 40])
def test_a_copy_for_kafka_has_all_messages(catalog: Catalog, tmp_path: Path, passed: int) -> None:
    view = LogView(tmp_path)
    view.catalog.index(view.segments[0])
    told: list[LogDamaged] = []
    copied = moved_row_groups(view, told.append)
    found = [next(copied)[0] for _ in range(passed)]
    merge(Files(), catalog)
    found += [each for each, _ in copied]
    assert told == []
    end = 0
    for each in found:
        assert each.base_offset == end
        end += each.count
    assert end == view.end


def test_a_time_is_found_by_a_view_of_before(catalog: Catalog, tmp_path: Path) -> None:
    view = LogView(tmp_path)
    view.catalog.index(view.segments[0])
    merge(Files(), catalog)
    for offset in (0, 1, 250, 599):
        assert view.find_time(START_US + 1000 * offset) == offset


def test_a_follower_sees_the_merged_segment(catalog: Catalog, tmp_path: Path) -> None:
    follower = LogFollower(tmp_path)
    assert len(follower.catalog.index(follower.catalog.segments()[0])) == 300
    merge(Files(), catalog)
    follower.refresh()
    assert len(follower.catalog.index(follower.catalog.segments()[0])) == 1
    assert follower.damage == []


def test_a_follower_forgets_the_scan_of_a_segment_whose_index_was_late(
    catalog: Catalog, tmp_path: Path
) -> None:
    def row_groups() -> int:
        follower.refresh()
        return len(follower.catalog.index(follower.catalog.segments()[0]))

    old, new = tmp_path / "old", tmp_path / "new"
    index = index_path(catalog.folder, 0)
    index.rename(old)
    follower = LogFollower(tmp_path)
    assert (row_groups(), follower._left.keys()) == (300, {0})  # not closed yet
    old.rename(index)
    assert (row_groups(), follower._left) == (300, {})
    shutil.copy(index, old)
    merge(Files(), catalog)
    index.rename(new)
    old.rename(index)  # the segment is replaced, its index is not
    assert (row_groups(), follower._left.keys()) == (1, {0})
    new.rename(index)
    assert (row_groups(), follower._left) == (1, {})
    assert follower.damage == []


def test_replay_goes_on_while_row_groups_are_merged(catalog: Catalog) -> None:
    class MergingFiles(Files):
        """Merges between the look-up of row groups and the read of them."""

        merged = False

        def read(self, path: Path, position: int, size: int) -> bytes:
            if not self.merged and position:
                self.merged = True
                merge(Files(), catalog)
            return super().read(path, position, size)

    files = MergingFiles()
    reader = RowGroupReader(files, catalog, lambda call: call())
    found: list[Fetched | LogError] = []
    answered = threading.Event()

    def then(result: Fetched | LogError) -> None:
        found.append(result)
        answered.set()

    reader.fetch(5, 600, then)
    assert answered.wait(10)
    reader.close()
    assert files.merged
    (fetched,) = found
    assert isinstance(fetched, Fetched)
    batch = Batch()
    fetched.groups[0].load(batch, TopicTable())
    assert (fetched.groups[0].base_offset, len(batch)) == (0, 600)


def test_verify_checks_a_segment_again_that_was_replaced(catalog: Catalog) -> None:
    class MergingFiles(Files):
        merged = False

        def size(self, path: Path) -> int:
            if not self.merged and path.name.endswith(".arrows"):
                self.merged = True
                merge(Files(), catalog)
            return super().size(path)

    *findings, totals = verify(MergingFiles(), catalog.folder)
    assert not findings
    assert isinstance(totals, Verified)
    assert (totals.segments, totals.row_groups) == (2, 4)


def test_verify_waits_for_the_index_of_a_segment_that_was_replaced(
    catalog: Catalog, tmp_path: Path
) -> None:
    class LateFiles(Files):
        """The index is replaced a moment after the segment."""

        def size(self, path: Path) -> int:
            if path.name.endswith(".arrows") and new.exists():
                found = super().size(path)
                new.replace(index_path(catalog.folder, 0))
                return found
            return super().size(path)

    old, new = tmp_path / "old", tmp_path / "new"
    shutil.copy(index_path(catalog.folder, 0), old)
    merge(Files(), catalog)
    index_path(catalog.folder, 0).replace(new)
    old.replace(index_path(catalog.folder, 0))
    *findings, totals = verify(LateFiles(), catalog.folder)
    assert not findings
    assert isinstance(totals, Verified)
    assert (totals.segments, totals.row_groups) == (2, 4)


def test_damage_in_a_merged_segment_is_reported(catalog: Catalog, tmp_path: Path) -> None:
    read = planned(catalog, catalog.folder, ["offset", "value"])
    merge(Files(), catalog)
    flip(segment_path(catalog.folder, 0), 20_000)
    with pytest.raises(LogDamaged):
        read()
    with pytest.raises(LogDamaged):
        rows_of(record_batches(LogView(tmp_path)))
    assert any(isinstance(each, Damage) for each in verify(Files(), catalog.folder))


@pytest.mark.parametrize("names", [["offset", "value"], SCHEMA.names])
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_damage_in_a_merged_segment_without_an_index_is_reported(
    catalog: Catalog, tmp_path: Path, names: list[str], place: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("penstock.storage.arrow.write.merging.MERGE_READ_BYTES_MAX", 100_000)
    monkeypatch.setattr("penstock.storage.arrow.read.records.RECORDS_READ_BYTES", 100_000)
    end = catalog.segments()[-1].end_offset
    spans = plan(catalog, 0, end, Selection())
    pieces = [each.part(each.first, each.last) for each in spans]
    view = LogView(tmp_path)
    assert len(view.catalog.index(view.segments[0])) == 300
    merge(Files(), catalog)
    index = catalog.index(catalog.segments()[0])
    number = {"first": 0, "middle": len(index) // 2, "last": len(index) - 1}[place]
    entry = index.entry(number)
    flip(segment_path(catalog.folder, 0), entry.position + entry.size - 20)
    index_path(catalog.folder, 0).unlink()
    lost = set(range(entry.base_offset, entry.base_offset + entry.count))

    def check(read: Callable[[Callable[[LogDamaged], None] | None], list[Any]]) -> None:
        told: set[int] = set()
        found = read(lambda error: told.update(range(error.offset, error.resumes_at)))
        assert [row["offset"] for row in found] == [n for n in range(end) if n not in lost]
        assert told == lost
        with pytest.raises(LogDamaged):
            read(None)

    check(
        lambda damaged: rows_of(
            read_pieces(catalog.folder, pieces, first=0, last=end, columns=names, damaged=damaged)
        )
    )
    check(lambda damaged: rows_of(record_batches(view, damaged=damaged)))


# --- When, and when not -----------------------------------------------------------------------------


def is_left_alone(catalog: Catalog) -> bool:
    path = segment_path(catalog.folder, 0)
    before = path.read_bytes()
    old = catalog.segments()[0]
    new = merge(Files(), catalog)
    return new is old and path.read_bytes() == before and not list(catalog.folder.glob("*.new"))


def test_a_segment_with_few_row_groups_is_left_alone(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        log.put_many(20)
    assert is_left_alone(opened(Files(), partition_folder(tmp_path, 0)))


@pytest.mark.parametrize("fewer", [0, 1])
def test_the_least_number_of_row_groups_is_merged(files: Files, tmp_path: Path, fewer: int) -> None:
    catalog = two_segments(files, tmp_path, count=MERGE_GROUPS_MIN - fewer)
    assert is_left_alone(catalog) == bool(fewer)


def test_large_row_groups_are_left_alone(files: Files, tmp_path: Path) -> None:
    folder = partition_folder(tmp_path, 0)
    files.make_folder(folder)
    write(files, folder, rows=lambda _: 100)
    assert is_left_alone(opened(files, folder))


@pytest.mark.parametrize("more", [0, 1])
def test_a_merge_saves_at_least_a_part_of_the_segment(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    segment = catalog.segments()[0]
    index = load_index(Files(), catalog.folder, 0)[0]
    saved = (len(index) - len(list(runs_of(index)))) * MERGE_GROUP_BYTES
    part = Fraction(saved + more, segment.size)
    monkeypatch.setattr(merging, "MERGE_SAVED_PART_MIN", part)
    assert is_left_alone(catalog) == bool(more)


def test_a_damaged_segment_is_left_alone(catalog: Catalog) -> None:
    flip(segment_path(catalog.folder, 0), 300_000)
    assert is_left_alone(catalog)


def test_a_segment_with_known_damage_is_left_alone(catalog: Catalog) -> None:
    fault = Damage(Fault.HOLE, 0, 9000, 0, 3, 3, "no message is missing")
    save_damage(Files(), catalog.folder, 0, [fault])
    assert is_left_alone(opened(Files(), catalog.folder))


def test_a_row_group_that_was_exchanged_for_another_is_left_there(catalog: Catalog) -> None:
    entry = catalog.index(catalog.segments()[0]).entry(40)
    path = segment_path(catalog.folder, 0)
    data = path.read_bytes()
    end = entry.position + entry.size
    taken = data[entry.position : end]
    other = chained(taken, parse_row_group(taken), 0xABCDEF)
    path.write_bytes(data[: entry.position] + other + data[end:])
    findings = list(verify(Files(), catalog.folder))
    assert any(isinstance(each, Damage) and each.fault is Fault.HOLE for each in findings)
    assert is_left_alone(catalog)
    assert list(verify(Files(), catalog.folder)) == findings


@pytest.mark.parametrize("changes", [{"log_id": 1}, {"base_offset": 1}, {"previous_crc": 5}])
def test_a_segment_with_the_head_of_another_is_left_alone(
    catalog: Catalog, changes: dict[str, int]
) -> None:
    path = segment_path(catalog.folder, 0)
    data = path.read_bytes()
    known = {"log_id": LOG_ID, "base_offset": 0, "previous_crc": 0, **changes}
    other = head(partition=0, previous_end=0, **known)  # type: ignore[arg-type]
    path.write_bytes(other + data[len(other) :])
    findings = list(verify(Files(), catalog.folder))
    assert is_left_alone(catalog)
    assert list(verify(Files(), catalog.folder)) == findings


def test_a_segment_in_an_object_store_is_left_alone(catalog: Catalog) -> None:
    tiered_path(catalog.folder, 0).write_bytes(b"{}")
    assert is_left_alone(catalog)


def test_the_index_of_a_segment_that_is_only_in_an_object_store_is_not_read(
    catalog: Catalog,
) -> None:
    tiered_path(catalog.folder, 0).write_bytes(b"{}")
    segment_path(catalog.folder, 0).unlink()
    index_path(catalog.folder, 0).unlink()

    class FarFiles(Files):
        """The store does not answer."""

        def size(self, path: Path) -> int:
            if path == index_path(catalog.folder, 0):
                raise TierUnavailable(0)
            return super().size(path)

    old = catalog.segments()[0]
    assert merge(FarFiles(), catalog) is old


def test_a_large_row_group_is_copied_as_it_is(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = 40 * MERGE_BYTES_MAX // 100
    monkeypatch.setattr("penstock.storage.arrow.write.merging.MERGE_BYTES_MAX", large // 2)
    folder = partition_folder(tmp_path, 0)
    files.make_folder(folder)
    writer = SegmentWriter(
        files, folder, log_id=LOG_ID, partition=0, base_offset=0, previous_end=0, previous_crc=0
    )
    for offset in range(600):
        value = text_of(offset, large if offset in {0, 300, 301, 599} else 12)
        group = columns(offset, [value], first_us=START_US + 1000 * offset)
        writer.append(group, synced=offset // 2)
    writer.seal()
    save_state(files, folder, LogState(LOG_ID, 0))
    catalog = opened(files, folder)
    before = rows_of(record_batches(LogView(tmp_path)))
    sizes: list[int] = []
    encoded = columns_of

    def noted(rows: pa.RecordBatch, base_offset: int) -> Columns:
        sizes.append(rows.nbytes)
        return encoded(rows, base_offset)

    monkeypatch.setattr("penstock.storage.arrow.write.merging.columns_of", noted)
    merge(files, catalog)
    assert max(sizes) < large
    assert rows_of(record_batches(LogView(tmp_path))) == before
    good(folder)


def test_a_segment_that_is_being_uploaded_is_left_alone(catalog: Catalog) -> None:
    with catalog.claimed(0) as is_free:
        assert is_free
        assert is_left_alone(catalog)
    assert not is_left_alone(catalog)


def test_a_stop_leaves_the_segment_alone(catalog: Catalog) -> None:
    stopped = SegmentMerging(Files(), catalog)
    stopped.stop()
    old = catalog.segments()[0]
    assert isinstance(old, Segment)
    assert stopped.merge(old) is old
    assert not list(catalog.folder.glob("*.new"))


def test_a_segment_that_retention_removes_meanwhile_stays_removed(catalog: Catalog) -> None:
    class RemovingFiles(Files):
        def sync(self, handle: int) -> None:
            super().sync(handle)
            catalog.forget([0], 600)
            segment_path(catalog.folder, 0).unlink(missing_ok=True)

    old = catalog.segments()[0]
    assert isinstance(old, Segment)
    assert SegmentMerging(RemovingFiles(), catalog, share=1.0).merge(old) is old
    assert not list(catalog.folder.glob("00000000000000000000.arrows*"))


def test_a_merged_segment_is_not_merged_again(catalog: Catalog) -> None:
    merge(Files(), catalog)
    assert is_left_alone(catalog)


def index_of(times: list[int], topics: Callable[[int], list[str] | None]) -> Index:
    index = Index(0)
    for number, time_us in enumerate(times):
        entry = Entry(number, 1, 4096 * number, 2100, time_us, time_us)
        names = topics(number)
        index.add(entry, names, None if names is None else [1] * len(names))
    return index


def test_a_merged_row_group_is_bounded_in_time_and_topics() -> None:
    minute = int(MERGE_SECONDS_MAX * 1_000_000)
    times = [0, minute, minute + 1, minute + 2, 5 * minute]
    runs = list(runs_of(index_of(times, lambda _: ["a"])))
    assert [tuple(each) for each in runs] == [(0, 2), (2, 4), (4, 5)]
    many = index_of([0] * (INDEX_TOPICS_MAX + 5), lambda number: [str(number)])
    assert [tuple(each) for each in runs_of(many)] == [
        (0, INDEX_TOPICS_MAX), (INDEX_TOPICS_MAX, INDEX_TOPICS_MAX + 5),
    ]  # fmt: skip
    unlisted = index_of([0] * 5, lambda number: None if number == 2 else ["a"])
    assert [tuple(each) for each in runs_of(unlisted)] == [(0, 2), (2, 3), (3, 5)]
    assert list(runs_of(Index(0))) == []


def test_a_clock_that_is_set_back_hides_no_message(files: Files, tmp_path: Path) -> None:
    second = 1_000_000
    early = START_US + 20 * second
    folder = partition_folder(tmp_path, 0)
    files.make_folder(folder)
    writer = SegmentWriter(
        files, folder, log_id=LOG_ID, partition=0, base_offset=0, previous_end=0, previous_crc=0
    )
    for offset in range(600):  # the clock is set back every 200 messages
        taken = early + 150_000 * (offset % 200) - second * (offset // 200)
        writer.append(columns(offset, [text_of(offset)], first_us=taken), synced=offset)
    writer.seal()
    save_state(files, folder, LogState(LOG_ID, 0))
    catalog = opened(files, folder)

    def found() -> list[object]:
        latest = early + 150_000 * 199
        answers: list[object] = [catalog.segments()[0].last_us]
        for since in (early, early + 10 * second, latest - second, latest):
            answers.append(LogView(tmp_path).find_time(since))
            for selection in (Selection(since_us=since), Selection(until_us=since)):
                spans = plan(catalog, 0, 600, selection)
                read = read_pieces(
                    folder,
                    [each.part(each.first, each.last) for each in spans],
                    first=0,
                    last=600,
                    columns=["offset", "timestamp"],
                )
                answers.append(rows_of(selection.of(each) for each in read))
        return answers

    before = found()
    assert merge(files, catalog).size < 300_000
    assert found() == before


def test_a_broker_merges_a_closed_segment_and_indexes_it(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        log.put_many(300, rows=1)
    folder = partition_folder(tmp_path, 0)
    size = segment_path(folder, 0).stat().st_size
    catalog = opened(Files(), folder)
    done = threading.Event()

    class Noted(SegmentMerging):
        def merge(self, segment: Segment) -> Segment:
            found = super().merge(segment)
            done.set()
            return found

    indexing = RowIndexing(Files(), catalog, merging=Noted(Files(), catalog))
    indexing.start()
    assert done.wait(20)
    indexing.stop()
    assert segment_path(folder, 0).stat().st_size < size / 4
    good(folder)


def tiering_of(indexing: RowIndexing, catalog: Catalog, data: Path) -> Tiering:
    return Tiering(
        Files(), catalog.folder, catalog, TierOptions(f"file://{data}/store"),
        log_id=LOG_ID, partition=0, horizon=lambda: 0, is_ready=indexing.has_seen,
    )  # fmt: skip


def test_a_segment_is_not_uploaded_just_before_its_merge(catalog: Catalog, tmp_path: Path) -> None:
    class Uploading(SegmentMerging):
        """The other thread looks for segments to upload between the look at one and its claim."""

        def merge(self, segment: Segment) -> Segment:
            if not segment.base_offset:
                tiering.step()
                uploads.append(tiering.status().uploads)
            found.append(super().merge(segment))
            return found[-1]

    uploads: list[int] = []
    found: list[Segment] = []
    first = catalog.segments()[0]
    indexing = RowIndexing(
        Files(), catalog, share=1.0, merging=Uploading(Files(), catalog, share=1.0)
    )
    tiering = tiering_of(indexing, catalog, tmp_path)
    indexing.start()
    wait_until(lambda: indexing.has_seen(0))
    indexing.stop()
    assert uploads == [1]  # the newer segment, which was left alone before
    assert found[-1].size < first.size / 5
    tiering.step()
    assert tiering.status().segments == 2
    assert tiering.status().size == sum(each.size for each in catalog.segments())


def test_a_segment_whose_merge_was_stopped_is_not_uploaded(
    catalog: Catalog, tmp_path: Path
) -> None:
    class Stopped(SegmentMerging):
        def merge(self, segment: Segment) -> Segment:
            if not segment.base_offset:
                begun.set()
                wait_until(self._stopping.is_set)
            return super().merge(segment)

    begun = threading.Event()
    before = catalog.segments()[0]
    indexing = RowIndexing(
        Files(), catalog, share=1.0, merging=Stopped(Files(), catalog, share=1.0)
    )
    indexing.start()
    assert begun.wait(20)
    indexing.stop()
    assert catalog.segments()[0] is before
    tiering = tiering_of(indexing, catalog, tmp_path)
    tiering.step()
    assert not tiered_path(catalog.folder, 0).exists()
    assert tiering.status().segments == 1


def test_a_rule_of_bytes_counts_a_merged_segment_again(files: Files, catalog: Catalog) -> None:
    def kept() -> int:
        expiry.apply(0)
        return expiry._kept[0]

    rule = TopicRetention(("a",), bytes_max=10_000_000)
    expiry = TopicExpiry(files, catalog, [rule], later=lambda _: None, segment_bytes_max=1)
    before = kept()
    merge(files, catalog)
    assert kept() < before / 5
    assert kept() == kept()


def test_the_index_is_on_disk_before_the_segment_is_replaced(files: Files, tmp_path: Path) -> None:
    class Watched(Files):
        def rename(self, path: Path, new: Path) -> None:
            steps.append(new.suffix)
            super().rename(path, new)

        def sync(self, handle: int) -> None:
            steps.append("sync")
            super().sync(handle)

        def sync_folder(self, folder: Path) -> None:
            steps.append("sync folder")
            super().sync_folder(folder)

    catalog = two_segments(files, tmp_path)
    steps: list[str] = []
    merge(Watched(), catalog)
    assert steps == ["sync", "sync", ".arrows", ".index", "sync folder"]


def test_a_merged_segment_is_synced_piece_by_piece(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Watched(Files):
        waiting = most = 0

        def write(self, handle: int, buffers: list[memoryview]) -> int:
            written = super().write(handle, buffers)
            self.waiting += written
            self.most = max(self.most, self.waiting)
            return written

        def sync(self, handle: int) -> None:
            super().sync(handle)
            self.waiting = 0

    monkeypatch.setattr("penstock.storage.arrow.write.merging.MERGE_READ_BYTES_MAX", 20_000)
    monkeypatch.setattr("penstock.storage.arrow.write.merging.MERGE_SYNC_BYTES", 20_000)
    catalog = two_segments(files, tmp_path)
    watched = Watched()
    assert merge(watched, catalog).size > 100_000
    assert watched.most < 30_000


def test_an_old_row_index_is_removed(catalog: Catalog) -> None:
    rows_path(catalog.folder, 0).write_bytes(b"of the old segment")
    merge(Files(), catalog)
    assert not rows_path(catalog.folder, 0).exists()


def test_the_record_of_removed_topics_is_as_exact_as_before(
    catalog: Catalog, tmp_path: Path
) -> None:
    end = catalog.segments()[1].base_offset
    copy = tmp_path / "copy"
    shutil.copytree(catalog.folder, copy / "0")
    small = RemovalRecord(Files(), copy / "0", horizon=0).save([0], end, [])
    merge(Files(), catalog)
    merged = RemovalRecord(Files(), catalog.folder, horizon=0).save([0], end, [])
    assert small.ends.keys() == merged.ends.keys()
    assert all(merged.ends[name] <= small.ends[name] for name in small.ends)
    assert merged.ends["quiet"] == 8


def test_the_head_says_what_the_next_one_expects(catalog: Catalog) -> None:
    merge(Files(), catalog)
    first, second = (
        parse_head(segment_path(catalog.folder, each.base_offset).read_bytes()[:8192])
        for each in catalog.segments()
    )
    assert first.last_crc == second.previous_crc
    assert second.last_crc is None


def test_row_groups_behind_merged_ones_are_chained_in_a_copy(catalog: Catalog) -> None:
    data = segment_path(catalog.folder, 600).read_bytes()
    start = parse_head(data).size
    row_group = parse_row_group(data, start)
    taken = data[start : start + row_group.size]
    row_group = parse_row_group(taken)
    assert chained(taken, row_group, row_group.previous) == taken
    changed = chained(taken, row_group, 0xABCDEF)
    found = parse_row_group(changed)
    assert (found.previous, found.base_offset) == (0xABCDEF, 600)
    assert check_row_group(changed, found)
    assert len(changed) == len(taken)


# --- Power cuts -------------------------------------------------------------------------------------


def test_the_power_may_fail_at_any_point_of_a_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.storage.arrow.write.merging.MERGE_GROUPS_MIN", 8)
    monkeypatch.setattr("penstock.storage.arrow.write.merging.MERGE_READ_BYTES_MAX", 20_000)
    data = Path("/data")
    files = RecordedFiles()
    catalog = two_segments(files, data, count=12)
    files.sync_folder(catalog.folder)
    begun = len(files.operations)
    assert merge(files, catalog).size < 20_000
    chance = random.Random(1)
    seen = set()
    for _, disk in cuts(files, start=begun):
        _, states = disk.states(chance, 12)
        for state in states:
            left = RecordedFiles(state)
            found = recover(left, catalog.folder, partition=0)
            assert found.damage == []
            assert found.cuts == []
            assert found.next_offset == catalog.segments()[-1].end_offset
            *findings, totals = verify(left, catalog.folder)
            assert findings == []
            assert isinstance(totals, Verified)
            assert totals.messages == found.next_offset
            seen.add(totals.row_groups)
            assert not [name for name in left.names(catalog.folder) if name.endswith(".new")]
    assert seen == {15, 5}


def test_the_disk_may_fail_at_any_point_of_a_merge(files: Files, tmp_path: Path) -> None:
    class FailingFiles(Files):
        left = 0

        def _count(self) -> None:
            self.left -= 1
            if not self.left:
                raise OSError(errno.ENOSPC, "no space left on device")

        def create(self, path: Path) -> int:
            self._count()
            return super().create(path)

        def write(self, handle: int, buffers: list[memoryview]) -> int:
            self._count()
            return super().write(handle, buffers)

        def sync(self, handle: int) -> None:
            self._count()
            super().sync(handle)

        def rename(self, path: Path, new: Path) -> None:
            self._count()
            super().rename(path, new)

        def sync_folder(self, folder: Path) -> None:
            self._count()
            super().sync_folder(folder)

        def remove(self, path: Path) -> None:
            super().remove(path)
            self._count()

    catalog = two_segments(files, tmp_path / "data")
    before = rows_of(record_batches(LogView(tmp_path / "data")))
    failing = FailingFiles()
    step = 0
    while failing.left <= 0:
        step += 1
        failing.left = step
        data = tmp_path / str(step)
        shutil.copytree(tmp_path / "data", data)
        catalog = opened(failing, partition_folder(data, 0))
        failing.left = step
        with contextlib.suppress(OSError):
            merge(failing, catalog)
        spans = plan(catalog, 0, 606, Selection())
        pieces = [each.part(each.first, each.last) for each in spans]
        found = read_pieces(catalog.folder, pieces, first=0, last=606, columns=SCHEMA.names)
        assert rows_of(found) == before
        recover(Files(), catalog.folder)
        good(catalog.folder)
        assert not list(catalog.folder.glob("*.new"))
    assert step > 10
