"""The record of last messages: a search for them reads only what is behind it."""

import shutil
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock._kernels.topics import TopicTable
from penstock.errors import LogError
from penstock.model import Kind
from penstock.ports import LastFound
from penstock.storage.arrow.format import last_messages_file
from penstock.storage.arrow.format.file_names import LAST_MESSAGES, partition_folder
from penstock.storage.arrow.format.last_messages_file import load_last_messages
from penstock.storage.arrow.format.topic_horizons import RuleHorizon, TopicHorizons
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.catalog import ActiveSegment, Catalog
from penstock.storage.arrow.read.last_offsets import LastOffsets
from penstock.storage.arrow.read.last_record import fitting_last_messages
from penstock.storage.arrow.recover.recovery import Segment
from penstock.storage.arrow.write.last_message_record import LastMessageRecord
from penstock.storage.arrow.write.row_indexing import RowIndexing
from penstock.storage.files import Files
from tests.crash.faults import FaultyFiles
from tests.support.written_log import WrittenLog, flip, message


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WrittenLog]:
    """A log whose segments have a row group each, and that no thread writes a record of."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RowIndexing, "start", lambda _: None)
        patch.setattr(RowIndexing, "stop", lambda _: None)
        with WrittenLog(tmp_path, segment_bytes_max=1) as written:
            yield written


def closed_segments(catalog: Catalog) -> list[Segment]:
    return [each for each in catalog.segments() if not isinstance(each, ActiveSegment)]


def update(
    data: Path, files: Files | None = None, *, view: LogView | None = None, **more: Any
) -> LogView:
    """Bring the record of a log up to date; return a view of the log.

    The last segment is not closed yet, so the record lacks it.
    """
    view = view or LogView(data)
    settings = {"growth": 0, "share": 1.0, **more}
    record = LastMessageRecord(files or Files(), view.catalog, **settings)
    record.update(closed_segments(view.catalog))
    return view


def search(view: LogView, *names: str) -> tuple[dict[str, int], int]:
    """Return the last offset of each topic, and the number of row groups that were read."""
    topics = TopicTable()
    for name in names:
        topics.intern(name)
    record, _ = fitting_last_messages(Files(), view.catalog) or (None, 0)
    found = LastOffsets(view.catalog, topics, view.end, record=record)
    return dict(zip(names, found.find(), strict=True)), found.row_groups_read


def bytes_read() -> int:
    """Return the bytes that this process has read from files."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_a_search_reads_little_of_a_log_with_20_000_topics_and_some_that_were_never_used(
    log: WrittenLog,
) -> None:
    names = [f"plant/{number:07}/temperature" for number in range(20_000)]
    for _ in range(4):
        for first in range(0, len(names), 4000):
            log.put(*(message(name, bytes(200)) for name in names[first : first + 4000]))
    log.put(message(names[0], b"1"))
    never = [f"channel/{number}" for number in range(256)]
    size = sum(path.stat().st_size for path in log.segments())
    expected = {name: 60_000 + number for number, name in enumerate(names)}
    expected |= {names[0]: 80_000} | dict.fromkeys(never, -1)

    before = bytes_read()
    assert search(LogView(log.data), *names, *never) == (expected, 21)
    without = bytes_read() - before

    update(log.data)
    log.put(message(names[7], b"1"))
    log.put(message("other", b"1"))
    view = LogView(log.data)
    before = bytes_read()
    found, row_groups = search(view, *names, *never)
    assert found == expected | {names[7]: 80_001}
    assert row_groups == 2
    assert bytes_read() - before < min(without / 4, size / 15)


def test_the_record_says_what_a_search_without_it_finds(log: WrittenLog) -> None:
    names = ("a", "b", "c", "d", "none")
    log.put_many(3, topics=["a", "b", "c"])
    log.put(message("d", b"1"))
    log.put(message("a", b"1", kind=Kind.REQUEST), message("b", b"1", private=True))
    for _ in range(3):
        expected, _ = search(LogView(log.data), *names)
        assert search(update(log.data), *names)[0] == expected
        log.put(message("c", b"2"))
        log.put(message("d", b"2", private=True))


def test_segments_are_added_to_the_record_when_they_are_many_times_as_large(
    log: WrittenLog,
) -> None:
    log.put_many(4)
    view = update(log.data)
    loaded = load_last_messages(Files(), log.folder)
    assert loaded is not None
    record, size = loaded
    assert record.end == closed_segments(view.catalog)[-2].end_offset
    log.put_many(4)
    larger = sum(path.stat().st_size for path in log.segments()[4:]) // size + 1
    update(log.data, growth=larger)
    assert load_last_messages(Files(), log.folder) == (record, size)
    update(log.data, growth=0)
    loaded = load_last_messages(Files(), log.folder)
    assert loaded is not None
    assert loaded[0].end > record.end


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


@pytest.mark.parametrize(
    "spoil", [lambda path: flip(path, 400), cut_off, lambda path: path.write_bytes(b"")]
)
def test_a_damaged_record_is_not_used_and_is_written_again(
    log: WrittenLog, spoil: Callable[[Path], None]
) -> None:
    log.put_many(4)
    update(log.data)
    spoil(log.folder / LAST_MESSAGES)
    view = LogView(log.data)
    assert fitting_last_messages(Files(), view.catalog) is None
    assert search(view, "a", "b")[0] == {"a": 10, "b": 11}
    assert fitting_last_messages(Files(), update(log.data).catalog) is not None


def test_the_record_of_another_log_is_not_used(log: WrittenLog, tmp_path: Path) -> None:
    log.put_many(4)
    update(log.data)
    other = tmp_path / "other"
    with WrittenLog(other, segment_bytes_max=1) as second:
        second.put_many(4, topics=["c"])
    shutil.copy(log.folder / LAST_MESSAGES, partition_folder(other, 0))
    view = LogView(other)
    assert fitting_last_messages(Files(), view.catalog) is None
    assert search(view, "a", "c")[0] == {"a": -1, "c": 11}


def test_the_record_of_a_longer_log_is_not_used(log: WrittenLog) -> None:
    log.put_many(4)
    update(log.data)
    view = LogView(log.data)
    view.catalog.replace(view.catalog.segments()[:1], (), horizon=0)
    assert fitting_last_messages(Files(), view.catalog) is None


def test_messages_that_have_expired_are_not_taken_from_the_record(log: WrittenLog) -> None:
    log.put_many(4, rows=2, topics=["a", "b"])
    log.put(message("c", b"1"))
    log.put(message("c", b"1"))
    view = update(log.data)
    view.catalog.horizons = TopicHorizons([RuleHorizon(("a",), horizon=7)])
    assert search(view, "a", "b", "c")[0] == {"a": -1, "b": 7, "c": 9}
    view.catalog.horizons = TopicHorizons([RuleHorizon(("b",), horizon=8, last={"b": 7})])
    assert search(view, "a", "b", "c")[0] == {"a": 6, "b": 7, "c": 9}
    view.catalog.forget([0], 7)
    assert search(view, "a", "b", "c")[0] == {"a": -1, "b": 7, "c": 9}


def test_the_record_begins_anew_behind_a_segment_that_is_not_on_the_disk(log: WrittenLog) -> None:
    log.put(message("old", b"1"))
    log.put_many(4)
    view = LogView(log.data)
    paths = log.segments()
    hidden = paths[1].rename(paths[1].with_suffix(".hidden"))
    update(log.data, view=view)
    hidden.rename(paths[1])
    loaded = load_last_messages(Files(), log.folder)
    assert loaded is not None
    assert loaded[0].start == int(paths[2].stem)
    found, row_groups = search(LogView(log.data), "old", "a", "b")
    assert found == {"old": 0, "a": 12, "b": 11}
    assert row_groups <= 3, "the last segment, and those before the record"


def test_topics_beyond_the_limit_are_searched_before_the_record(
    log: WrittenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_messages_file, "LAST_RECORD_TOPICS_MAX", 2)
    for name in "abcde":
        log.put(message(name, b"1"))
    view = update(log.data)
    loaded = load_last_messages(Files(), log.folder)
    assert loaded is not None
    assert len(loaded[0].messages) == 2
    assert search(view, *"abcde")[0] == {name: number for number, name in enumerate("abcde")}


def test_long_names_beyond_the_limit_are_left_out_of_the_record(
    log: WrittenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_messages_file, "LAST_RECORD_NAMES_BYTES_MAX", 100)
    names = [letter * 40 for letter in "abcde"]
    for name in names:
        log.put(message(name, b"1"))
    view = update(log.data)
    loaded = load_last_messages(Files(), log.folder)
    assert loaded is not None
    assert len(loaded[0].messages) == 2
    assert search(view, *names)[0] == {name: number for number, name in enumerate(names)}


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename"])
def test_a_record_that_cannot_be_written_leaves_the_old_one(
    log: WrittenLog, operation: str
) -> None:
    log.put_many(4)
    update(log.data)
    before = load_last_messages(Files(), log.folder)
    log.put_many(4)
    files = FaultyFiles()
    files.fail(operation, LAST_MESSAGES if operation == "rename" else "")
    with pytest.raises(OSError, match="Input/output"):
        update(log.data, files)
    assert load_last_messages(Files(), log.folder) == before
    assert search(LogView(log.data), "a", "b")[0] == {"a": 22, "b": 23}


def test_an_update_that_is_stopped_leaves_the_old_record(log: WrittenLog) -> None:
    log.put_many(4)
    update(log.data)
    before = load_last_messages(Files(), log.folder)
    log.put_many(4)
    view = LogView(log.data)
    record = LastMessageRecord(Files(), view.catalog, growth=0, share=0.5)
    record.stop()
    record.update(closed_segments(view.catalog))
    assert load_last_messages(Files(), log.folder) == before


def test_a_broker_writes_the_record_of_closed_segments_and_finds_last_messages_by_it(
    tmp_path: Path,
) -> None:
    with WrittenLog(tmp_path, segment_bytes_max=1) as log:
        log.put_many(3)
        log.put(message("rare", b"1"))
    with WrittenLog(tmp_path) as log:
        log.until((log.folder / LAST_MESSAGES).exists)
        table = log.log._table
        assert table is not None
        for name in ("a", "b", "rare", "none"):
            table.intern(name)
        log.put(message("a", b"2"))
        found: list[LastFound | LogError] = []
        log.log.find_last(found.append)
        log.until(lambda: bool(found))
        assert found == [LastFound(array("q", [10, 7, 9, -1]), 11)]
