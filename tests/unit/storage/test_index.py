"""The index: which row groups may hold an offset, a time, a topic; never one too few."""

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from penstock._kernels.crc32c import crc32c
from penstock.limits import INDEX_TOPICS_MAX
from penstock.storage.arrow.format.file_names import index_path
from penstock.storage.arrow.format.index import Entry, Index
from penstock.storage.arrow.format.index_file import (
    StaleIndex,
    Summary,
    load_index,
    load_summary,
    save_index,
)
from penstock.storage.arrow.read.index_cache import IndexCache
from penstock.storage.files import Files
from tests.support.recorded_files import RecordedFiles
from tests.unit.storage.sample import FOLDER, GROUPS, base_of, sample


def built(seed: int, row_groups: int) -> tuple[Index, list[Entry], list[list[str]]]:
    chance = random.Random(seed)
    index = Index(100)
    entries, topics = [], []
    offset, position, now = 100, 2000, 1_000_000
    for _ in range(row_groups):
        offset += chance.choice((0, 0, 0, 5))  # what is between was lost
        count, size = chance.randint(1, 9), 8 * chance.randint(1, 100)
        first = now
        now += chance.randint(-500, 1000)  # a clock that is set back
        entries.append(Entry(offset, count, position, size, first, now))
        topics.append([f"t/{number}" for number in sorted(chance.sample(range(20), 3))])
        index.add(entries[-1], topics[-1])
        offset, position = offset + count, position + size
    return index, entries, topics


@pytest.mark.parametrize("seed", range(5))
def test_lookups_find_what_a_search_through_all_groups_finds(seed: int, tmp_path: Path) -> None:
    index, entries, topics = built(seed, 200)
    files = Files()
    summary = Summary(100, index.end_offset, 1_000_000, 1, 2, index.last_us)
    save_index(files, tmp_path, index, summary)
    loaded, found = load_index(files, tmp_path, 100)
    assert found == summary == load_summary(files, tmp_path, 100)
    for each in (index, loaded):
        assert [each.entry(number) for number in range(len(each))] == entries
        assert each.first_us == entries[0].first_us
        assert each.last_us == max(max(e.first_us, e.last_us) for e in entries)
        assert each.end_offset == entries[-1].base_offset + entries[-1].count
        for offset in range(90, index.end_offset + 5):
            expected = next(
                (n for n, e in enumerate(entries) if offset < e.base_offset + e.count), len(entries)
            )
            assert each.at_offset(offset) == expected
        for time in range(999_000, max(e.last_us for e in entries) + 2000, 371):
            expected = next(
                (n for n, e in enumerate(entries) if max(e.first_us, e.last_us) >= time),
                len(entries),
            )
            assert each.at_time(time) == expected
        for wanted in ({"t/3"}, {"t/3", "t/7"}, {"none"}, {f"t/{n}" for n in range(20)}):
            for first, last in ((0, None), (50, 120), (199, 200), (7, 7)):
                got = each.with_topics(wanted.__contains__, first=first, last=last)
                stop = len(entries) if last is None else last
                assert list(got) == [n for n in range(first, stop) if wanted & set(topics[n])]


def test_a_group_with_too_many_topics_may_hold_any(tmp_path: Path) -> None:
    index = Index(0)
    index.add(Entry(0, 1, 0, 8, 1, 1), ["a"])
    index.add(Entry(1, 1, 8, 8, 1, 1), [f"b/{number}" for number in range(INDEX_TOPICS_MAX + 1)])
    index.add(Entry(2, 1, 16, 8, 1, 1), [f"c/{number}" for number in range(INDEX_TOPICS_MAX)])
    files = Files()
    save_index(files, tmp_path, index, Summary(0, 3, 24, 0, 0, 1))
    for each in (index, load_index(files, tmp_path, 0)[0]):
        assert list(each.with_topics(lambda name: name == "never")) == [1]
        assert list(each.with_topics(lambda name: name == "a")) == [0, 1]
        assert list(each.with_topics(lambda name: name == "c/7")) == [1, 2]


def test_cutting_forgets_the_groups_behind() -> None:
    index, entries, topics = built(3, 50)
    index.cut(20)
    assert [index.entry(number) for number in range(len(index))] == entries[:20]
    index.add(entries[20], topics[20])
    assert index.end_offset == entries[20].base_offset + entries[20].count
    assert list(index.with_topics({"t/1"}.__contains__)) == [
        n for n in range(21) if "t/1" in topics[n]
    ]
    index.cut(0)
    assert (len(index), index.end_offset, index.last_us) == (0, 100, None)


def test_a_table_is_whole_while_a_row_group_is_added() -> None:
    index = Index(0)
    index.add(Entry(0, 1, 0, 1, 0, 0), ["a"])
    before = index.table().to_pylist()
    seen = []

    class Topics(list[str]):
        """Another thread asks for the table while `add` reads these."""

        def __iter__(self) -> Iterator[str]:
            for name in super().__iter__():
                seen.append(index.table().to_pylist())
                yield name

    index.add(Entry(1, 1, 1, 1, 1, 1), Topics(["b", "c"]))
    assert seen == [before] * len(seen)
    assert len(seen) == 4
    assert index.table().column("topics").to_pylist() == [["a"], ["b", "c"]]


def test_an_index_file_is_a_plain_arrow_stream(tmp_path: Path) -> None:
    index, entries, topics = built(1, 10)
    save_index(Files(), tmp_path, index, Summary(100, index.end_offset, 1, 0, 0, None))
    table = pa.ipc.open_stream(index_path(tmp_path, 100).read_bytes()).read_all()
    assert table.column("base_offset").to_pylist() == [each.base_offset for each in entries]
    assert table.column("topics").to_pylist() == topics


def test_a_bit_that_is_flipped_makes_an_index_stale(tmp_path: Path) -> None:
    index, _, _ = built(1, 5)
    save_index(Files(), tmp_path, index, Summary(100, index.end_offset, 1, 0, 0, None))
    path = index_path(tmp_path, 100)
    right = path.read_bytes()
    chance = random.Random(1)
    for _ in range(300):
        position = chance.randrange(len(right))
        changed = bytearray(right)
        changed[position] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        if bytes(changed).lower() != right.lower():  # the checksum's own letters
            with pytest.raises(StaleIndex):
                load_index(Files(), tmp_path, 100)


def test_the_least_used_index_is_let_go_and_comes_back_when_it_is_asked_for() -> None:
    state, _ = sample(segments=3)
    files = RecordedFiles(state)
    one = IndexCache(files, FOLDER).get(0, end_offset=base_of(1)).memory_bytes
    cache = IndexCache(files, FOLDER, bytes_max=2 * one)
    found = [cache.get(base_of(number), end_offset=base_of(number + 1)) for number in range(3)]
    assert cache.memory_bytes <= 2 * one
    assert cache.get(base_of(2), end_offset=base_of(3)) is found[2]
    assert cache.get(0, end_offset=base_of(1)) is not found[0]
    assert cache.get(0, end_offset=base_of(1)).entry(1) == found[0].entry(1)
    assert cache.rebuilt == 0
    cache.drop(0)
    cache.drop(0)
    assert files.operations == []


def test_an_index_that_is_slow_to_load_keeps_no_other_waiting() -> None:
    class SlowFiles(RecordedFiles):
        """The index of the first segment is read when that of the second one was."""

        def read(self, path: Path, position: int, size: int) -> bytes:
            if path == index_path(FOLDER, 0):
                begun.set()
                assert others_done.wait(10)
            return super().read(path, position, size)

    begun, others_done = threading.Event(), threading.Event()
    state, _ = sample(segments=2)
    cache = IndexCache(SlowFiles(state), FOLDER)
    with ThreadPoolExecutor(2) as threads:
        slow = threads.submit(cache.get, 0, end_offset=base_of(1))
        assert begun.wait(10)
        other = threads.submit(cache.get, base_of(1), end_offset=base_of(2))
        try:
            assert len(other.result(5)) == GROUPS
        finally:
            others_done.set()
        assert len(slow.result(10)) == GROUPS


class _Damaged:
    """An index whose columns are given, whatever they are."""

    def __init__(self, index: Index, **columns: pa.Array) -> None:
        table = index.table()
        self._table = pa.RecordBatch.from_arrays(
            [columns.get(field.name, table.column(field.name)) for field in table.schema],
            schema=table.schema,
        )

    def table(self) -> pa.RecordBatch:
        return self._table


def _numbers(*numbers: int) -> pa.Array:
    return pa.array(numbers, pa.int64())


_OUTSIDE = pa.ListArray.from_arrays(
    pa.array([0, 1, 2], pa.int32()),
    pa.DictionaryArray.from_arrays(pa.array([0, 1 << 28], pa.int32()), pa.array(["a"]), safe=False),
)


@pytest.mark.parametrize(
    "columns",
    [
        {"topics": _OUTSIDE},
        {"size": _numbers(8, 1 << 50)},
        {"size": _numbers(8, 0)},
        {"position": _numbers(2000, 100)},
        {"position": _numbers(-8, 2000)},
        {"count": _numbers(-1, 3)},
        {"base_offset": _numbers(100, 100)},
        {"base_offset": pa.array([100, None], pa.int64())},
    ],
)
def test_an_index_with_a_right_checksum_and_wrong_columns_is_stale(
    columns: dict[str, pa.Array], tmp_path: Path
) -> None:
    index, _, _ = built(1, 2)
    summary = Summary(100, index.end_offset, 1_000_000, 1, 2, index.last_us)
    save_index(Files(), tmp_path, _Damaged(index, **columns), summary)  # type: ignore[arg-type]
    with pytest.raises(StaleIndex):
        load_index(Files(), tmp_path, 100)


def test_messages_of_topics_are_counted_by_row_group(tmp_path: Path) -> None:
    index = Index(0)
    index.add(Entry(0, 5, 0, 8, 1, 1), ["a", "b"], [2, 3])
    index.add(Entry(5, 7, 8, 8, 1, 1), ["b"])
    index.add(Entry(12, 9, 16, 8, 1, 1), None)
    index.add(Entry(21, 2, 24, 8, 1, 1), ["a", "c"])  # not counted
    index.add(Entry(23, 6, 32, 8, 1, 1), ["a", "b", "c"], [1, 2, 3])
    files = Files()
    save_index(files, tmp_path, index, Summary(0, 29, 40, 0, 0, 1))
    loaded, _ = load_index(files, tmp_path, 0)
    for each in (index, loaded):
        assert each.row_counts({"a"}.__contains__, first=0, last=5) == [2, 0, None, None, 1]
        assert each.row_counts({"b"}.__contains__, first=0, last=5) == [3, 7, None, 0, 2]
        assert each.row_counts({"a", "b"}.__contains__, first=0, last=5) == [5, 7, None, None, 3]
        assert each.row_counts({"b"}.__contains__, first=1, last=2) == [7]
        assert each.row_counts({"x"}.__contains__, first=0, last=5) == [0, 0, None, 0, 0]
        assert each.topic_rows(first=0, last=5) == ({"a": 3, "b": 12, "c": 3}, [2, 3])
        assert each.topic_rows(first=1, last=2) == ({"b": 7}, [])
        assert each.topic_rows(first=2, last=4) == ({}, [2, 3])


def test_an_index_of_the_first_format_is_used_without_its_counts(tmp_path: Path) -> None:
    index = Index(0)
    index.add(Entry(0, 5, 0, 8, 1, 1), ["a", "b"], [2, 3])
    index.add(Entry(5, 7, 8, 8, 1, 1), ["b"])
    save_index(Files(), tmp_path, index, Summary(0, 12, 40, 0, 0, 1))
    path = index_path(tmp_path, 0)
    with pa.ipc.open_stream(path) as reader:
        schema, batch = reader.schema, reader.read_next_batch()
    metadata = {
        **schema.metadata,
        b"penstock.index_format": b"1",
        b"penstock.crc32c": b"crc32c=00000000",
    }
    old = batch.drop_columns(["topic_counts"]).replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, old.schema) as writer:
        writer.write_batch(old)
    data = bytearray(sink.getvalue())
    place = data.index(b"crc32c=") + 7
    data[place : place + 8] = f"{crc32c([data]):08x}".encode()
    path.write_bytes(data)
    loaded, _ = load_index(Files(), tmp_path, 0)
    assert loaded.row_counts({"a"}.__contains__, first=0, last=2) == [None, 0]
    assert loaded.row_counts({"b"}.__contains__, first=0, last=2) == [None, 7]


def test_an_index_of_another_format_is_not_used(tmp_path: Path) -> None:
    index, _, _ = built(1, 3)
    assert Index(100).last_us is None
    assert Index(100).first_us is None
    save_index(Files(), tmp_path, index, Summary(100, index.end_offset, 1, 1, 2, index.last_us))
    path = index_path(tmp_path, 100)
    with pa.ipc.open_stream(path) as reader:
        schema, batch = reader.schema, reader.read_next_batch()
    assert schema.metadata[b"penstock.index_format"] == b"2", "files of earlier versions are used"
    other = schema.with_metadata({**schema.metadata, b"penstock.index_format": b"3"})
    with pa.ipc.new_stream(path, other) as writer:
        writer.write_batch(batch)
    with pytest.raises(StaleIndex, match="another format"):
        load_summary(Files(), tmp_path, 100)


def test_a_few_row_groups_of_many_topics_need_only_their_own_topics() -> None:
    index = Index(0)
    for number in range(100):
        names = [f"t/{each}" for each in range(10 * number, 10 * number + 10)]
        index.add(Entry(20 * number, 20, 8 * number, 8, 1, 1), names, [2] * 10)
    asked: list[str] = []

    def wanted(name: str) -> bool:
        asked.append(name)
        return name.endswith("3")

    assert list(index.with_topics(wanted, first=40, last=42)) == [40, 41]
    assert index.row_counts(wanted, first=40, last=42) == [2, 2]
    assert sorted(set(asked)) == sorted(index.topics_between(40, 42))
    assert len(index.topics_between(40, 42)) == 20
    assert list(index.topics_between(0, 100)) == list(index.topics)
    assert list(index.with_topics({"t/405"}.__contains__, first=30, last=60)) == [40]
    assert index.row_counts(lambda _: True, first=40, last=42) == [20, 20]
    assert index.row_counts({"t/1"}.__contains__, first=40, last=42) == [0, 0]
