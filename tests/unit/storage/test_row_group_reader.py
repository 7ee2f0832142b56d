"""A row group that is read is the one that was asked for, whole; else it is damage or gone."""

import dataclasses
import queue
import threading
from pathlib import Path

import pytest

from penstock.errors import LogDamaged, LogError, OffsetBelowHorizon, OffsetPastEnd
from penstock.ports import Fetched, TopicFilter, new_topic_filter
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.reader import RowGroupReader, read_row_group
from penstock.storage.files import Files
from tests.support.written_log import WrittenLog, flip, message


@pytest.fixture
def view(tmp_path: Path) -> LogView:
    with WrittenLog(tmp_path) as log:
        log.put_many(3, rows=2)
    return LogView(tmp_path)


def fetch(
    view: LogView, offset: int, *, horizon: int | None = None, failure: Exception | None = None
) -> Fetched | LogError:
    """Read as the broker does; with `horizon`, retention moves it before the result is judged."""
    results: list[Fetched | LogError] = []
    done = threading.Event()

    def then(result: Fetched | LogError) -> None:
        results.append(result)
        done.set()

    class Reads(Files):
        def read(self, path: Path, position: int, size: int) -> bytes:
            if horizon is not None:
                view.catalog.forget([], horizon)
            if failure is not None:
                raise failure
            return super().read(path, position, size)

    reader = RowGroupReader(Reads(), view.catalog, lambda work: work())
    reader.fetch(offset, view.end, then)
    assert done.wait(10)
    reader.close()
    return results[0]


def test_a_row_group_with_other_offsets_is_damage(view: LogView) -> None:
    first, second = (view.catalog.place(offset, view.end) for offset in (0, 2))
    entry = dataclasses.replace(second.entry, base_offset=0)
    assert first.entry.base_offset == entry.base_offset
    with pytest.raises(LogDamaged) as caught:
        read_row_group(Files(), second._replace(entry=entry))
    assert (caught.value.offset, caught.value.resumes_at) == (0, 2)


def test_a_row_group_with_a_flipped_bit_is_damage(view: LogView) -> None:
    place = view.catalog.place(2, view.end)
    assert read_row_group(Files(), place).base_offset == 2
    flip(place.path, place.entry.position + place.entry.size - 8)
    with pytest.raises(LogDamaged, match="checksum") as caught:
        read_row_group(Files(), place)
    assert (caught.value.offset, caught.value.resumes_at) == (2, 4)


def test_a_row_group_that_cannot_be_read_is_damage(view: LogView) -> None:
    place = view.catalog.place(2, view.end)
    place.path.unlink()
    with pytest.raises(LogDamaged):
        read_row_group(Files(), place)


def test_a_read_that_fails_unexpectedly_passes_over_one_row_group(view: LogView) -> None:
    found = fetch(view, 2, failure=RuntimeError("a bug"))
    assert isinstance(found, LogDamaged)
    assert (found.offset, found.resumes_at) == (2, 4)
    assert view.end == 6


def test_a_read_without_memory_is_tried_again(view: LogView) -> None:
    assert isinstance(fetch(view, 2, failure=MemoryError()), OffsetPastEnd)


def test_damage_at_the_horizon_is_damage_and_below_it_is_gone(view: LogView) -> None:
    place = view.catalog.place(2, view.end)
    flip(place.path, place.entry.position + place.entry.size - 8)
    assert isinstance(fetch(view, 2, horizon=1), LogDamaged)
    found = fetch(view, 2, horizon=2)
    assert isinstance(found, LogDamaged), "the horizon itself is kept"
    assert found.offset == 2
    gone = fetch(view, 2, horizon=3)
    assert isinstance(gone, OffsetBelowHorizon)
    assert (gone.offset, gone.horizon) == (2, 3)


def test_a_whole_row_group_is_read_though_the_horizon_has_passed_it(view: LogView) -> None:
    found = fetch(view, 2, horizon=4)
    assert isinstance(found, Fetched)
    assert (found.groups[0].base_offset, found.groups[0].count) == (2, 2)


def test_a_rare_topic_is_found_by_reading_little_of_the_log(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        for number in range(150):
            values = [message("rare" if number == 70 else "often", bytes(1000)) for _ in range(4)]
            log.put(*values)
        size = sum(path.stat().st_size for path in log.segments())
    view = LogView(tmp_path)
    read: list[int] = []
    results: queue.Queue[Fetched | LogError] = queue.Queue()

    class Reads(Files):
        def read(self, path: Path, position: int, size: int) -> bytes:
            read.append(size)
            return super().read(path, position, size)

    rare: TopicFilter | None = new_topic_filter(["rare"])
    reader = RowGroupReader(Reads(), view.catalog, lambda work: work())
    offset, found = 0, 0
    while offset < view.end:
        reader.fetch(offset, view.end, results.put, rare)
        result = results.get(timeout=10)
        assert isinstance(result, Fetched)
        found += sum(group.count for group in result.groups)
        offset = result.end
    reader.close()
    assert found == 4
    assert sum(read) < 0.02 * size
