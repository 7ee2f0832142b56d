"""Replay reads the row groups with its topics, small ones together, and misses nothing."""

import random
import threading
from pathlib import Path

import pytest

from penstock.errors import LogDamaged, LogError
from penstock.limits import CATCH_UP_GROUPS_MAX, PATTERN_LEVELS_MAX
from penstock.ports import Fetched, TopicFilter, new_topic_filter
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.catalog import Catalog
from penstock.storage.arrow.read.reader import RowGroupReader
from penstock.storage.arrow.read.topic_skips import wanted_topics
from penstock.storage.files import Files
from tests.support.written_log import WrittenLog, flip, message

NAMES = [
    "a",
    "a/b",
    "a.b",
    "a/b/c",
    "b/a",
    "+",
    "a/+",
    "(.+)+!",
    "a\nb",
    "\N{HORSE}/1",
    "a b#",
    "a-b",
]


class CountingFiles(Files):
    """Counts what is read of segments."""

    def __init__(self) -> None:
        self.reads = 0
        self.bytes_read = 0

    def read(self, path: Path, position: int, size: int) -> bytes:
        data = super().read(path, position, size)
        if position:  # not the head
            self.reads += 1
            self.bytes_read += len(data)
        return data


class Replay:
    """Fetches as the broker does, from an offset to the end."""

    def __init__(self, catalog: Catalog, end: int) -> None:
        self.files = CountingFiles()
        self.catalog = catalog
        self.end = end
        self.fetches = 0
        self.damaged: list[tuple[int, int]] = []

    def fetch(self, reader: RowGroupReader, offset: int, topics: TopicFilter | None) -> object:
        results: list[Fetched | LogError] = []
        done = threading.Event()

        def then(result: Fetched | LogError) -> None:
            results.append(result)
            done.set()

        self.fetches += 1
        reader.fetch(offset, self.end, then, topics)
        assert done.wait(10)
        return results[0]

    def offsets(self, *patterns: str, start: int = 0) -> list[int]:
        topics = new_topic_filter(patterns) if patterns else None
        reader = RowGroupReader(self.files, self.catalog, lambda work: work())
        found: list[int] = []
        position = start
        while position < self.end:
            fetched = self.fetch(reader, position, topics)
            if isinstance(fetched, LogDamaged):
                assert fetched.resumes_at > position
                self.damaged.append((fetched.offset, fetched.resumes_at))
                position = fetched.resumes_at
                continue
            assert isinstance(fetched, Fetched), fetched
            assert fetched.end > position
            for group in fetched.groups:
                found += range(group.base_offset, group.base_offset + group.count)
            position = fetched.end
        reader.close()
        return found


def replay_of(data: Path) -> Replay:
    view = LogView(data)
    return Replay(view.catalog, view.end)


def size_of(data: Path) -> int:
    return sum(path.stat().st_size for path in data.rglob("*.arrows"))


def test_a_rare_topic_is_read_in_proportion(tmp_path: Path) -> None:
    rare: list[int] = []
    with WrittenLog(tmp_path, segment_bytes_max=1 << 18) as log:
        for number in range(600):
            topic = "rare" if number % 200 == 77 else f"busy/{number % 7}"
            first = log.log.next_offset
            log.put(*(message(topic, bytes(500), first + each) for each in range(4)))
            if topic == "rare":
                rare += range(first, first + 4)
        assert len(log.segments()) > 3
    replay = replay_of(tmp_path)
    assert replay.offsets("rare") == rare
    assert replay.files.bytes_read < 0.02 * size_of(tmp_path)
    assert replay.fetches < 10
    everything = replay_of(tmp_path)
    assert everything.offsets() == list(range(everything.end))
    assert everything.files.bytes_read > 0.9 * size_of(tmp_path)


def test_small_row_groups_are_read_together(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        log.put_many(10 * CATCH_UP_GROUPS_MAX, rows=1)
    replay = replay_of(tmp_path)
    assert replay.offsets() == list(range(replay.end))
    assert replay.fetches == 10
    assert replay.files.reads == 10


def test_a_large_row_group_is_read_alone(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        for _ in range(3):
            log.put(message("a", bytes(300_000)))
    replay = replay_of(tmp_path)
    assert replay.offsets("a") == [0, 1, 2]
    assert replay.fetches == 3


def test_row_groups_with_more_topics_than_the_index_lists_are_read(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        log.put(message("a", b""))
        log.put(*(message(f"many/{number}", b"") for number in range(2000)))
        log.put(message("a", b""))
    assert replay_of(tmp_path).offsets("many/7") == list(range(1, 2001))


def test_topics_that_are_new_in_the_active_segment_are_found(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        log.put(message("a", b""))
        topics = new_topic_filter(["new/+"])
        reader = log.log._row_group_reader
        replay = Replay(log.log._catalog, 1)
        assert replay.fetch(reader_of(reader), 0, topics) == Fetched((), 1)
        log.put(message("b", b""))
        log.put(message("new/1", b""))
        replay.end = 3
        fetched = replay.fetch(reader_of(reader), 1, topics)
        assert isinstance(fetched, Fetched)
        assert [each.base_offset for each in fetched.groups] == [2]


def reader_of(reader: RowGroupReader) -> RowGroupReader:
    """Let a reader answer in its own thread: the event loop of the test does not run."""
    reader._post = lambda work: work()
    return reader


@pytest.mark.parametrize("patterns", [(), ("rare",), ("b",)])
def test_damage_is_reported_though_its_topic_is_not_known(
    tmp_path: Path, patterns: tuple[str, ...]
) -> None:
    with WrittenLog(tmp_path) as log:
        log.put_many(10, rows=1, topics=("a",))
        log.put(message("rare", b""))
        log.put_many(10, rows=1, topics=("b",))
    view = LogView(tmp_path)
    place = view.catalog.place(5, view.end)
    flip(place.path, place.entry.position + place.entry.size - 8)
    for path in tmp_path.rglob("*.index*"):
        path.unlink()  # so that opening reads the whole segment and finds the damage
    replay = replay_of(tmp_path)
    assert replay.catalog.damage
    found = replay.offsets(*patterns)
    assert replay.damaged == [(5, 6)]
    if not patterns:
        assert found == [each for each in range(21) if each != 5]
    if patterns == ("rare",):
        assert found == [10]


def test_damage_that_is_found_while_reading_ends_a_run_before_it(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        log.put_many(9, rows=2)
    replay = replay_of(tmp_path)
    place = replay.catalog.place(6, replay.end)
    flip(place.path, place.entry.position + place.entry.size - 8)
    assert replay.offsets() == [each for each in range(18) if each not in (6, 7)]
    assert replay.damaged == [(6, 8)]


def test_wanted_topics_are_those_of_the_filter() -> None:
    chance = random.Random(5)
    for _ in range(300):
        patterns = [
            "/".join(chance.choice(["a", "b", "+", "*", "a b#", "a-b", "(.+)+!"]) for _ in range(n))
            + chance.choice(["", "/#", ".>"])
            for n in range(1, 4)
        ]
        topics = new_topic_filter(patterns)
        if topics is not None:
            expected = [topics.wants(name) for name in NAMES]
            assert wanted_topics(topics, NAMES).to_pylist() == expected, patterns


def test_a_filter_too_large_for_re2_is_right() -> None:
    levels = "+/" * (PATTERN_LEVELS_MAX - 2)
    topics = new_topic_filter([f"{number}/{levels}+" for number in range(64)])
    assert topics is not None
    names = ["a", f"7/{levels}x", f"7/{levels}x/x", f"65/{levels}x"]
    assert wanted_topics(topics, names).to_pylist() == [False, True, False, False]


def test_patterns_for_all_topics_are_no_filter() -> None:
    assert new_topic_filter(["a", "#"]) is None
    assert new_topic_filter([">"]) is None
    assert new_topic_filter([f"t/{number}" for number in range(65)]) is None
    assert new_topic_filter([f"t/{number}" for number in range(64)]) is not None
