"""Replay of rare topics by row indexes gives what whole row groups give, and reads little."""

import dataclasses
import random
import threading
from array import array
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock._kernels.batch import Batch, Sender
from penstock._kernels.crc32c import crc32c
from penstock._kernels.topics import TopicTable
from penstock.errors import LogDamaged, LogError
from penstock.limits import ROW_INDEX_RARE
from penstock.model import Form, Kind
from penstock.ports import Fetched, Record, Stored, new_topic_filter
from penstock.protocols.fleximq import FLEXIMQ
from penstock.protocols.herald import HERALD
from penstock.protocols.lamamq import LAMAMQ
from penstock.protocols.rheos2 import RHEOS2
from penstock.storage.arrow.format import row_index_file
from penstock.storage.arrow.format.damage import Damage, Fault
from penstock.storage.arrow.format.file_names import index_path, rows_path
from penstock.storage.arrow.format.index import Entry
from penstock.storage.arrow.format.index_file import load_index
from penstock.storage.arrow.format.topic_horizons import RuleHorizon, TopicHorizons
from penstock.storage.arrow.log import ArrowLog
from penstock.storage.arrow.read.active_rows import ActiveRows
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.catalog import ActiveSegment
from penstock.storage.arrow.read.reader import RowGroupReader
from penstock.storage.arrow.recover.recovery import Segment
from penstock.storage.arrow.recover.verify import verify
from penstock.storage.arrow.write import row_indexing
from penstock.storage.arrow.write.row_indexing import RowIndexing
from penstock.storage.files import Files
from tests.support.written_log import START_US, WrittenLog, flip, message

ROWS = 1200
RARE = [f"rare/{number}" for number in range(6)]


class CountingFiles(Files):
    """Counts the bytes that are read."""

    def __init__(self) -> None:
        self.bytes_read = 0

    def read_at(self, handle: int, position: int, size: int) -> bytes:
        data = super().read_at(handle, position, size)
        self.bytes_read += len(data)
        return data


def any_message(random: random.Random, topic: str) -> Record:
    protocol = random.choice([HERALD, LAMAMQ, FLEXIMQ, RHEOS2])
    number = random.randrange(3)
    headers: tuple[tuple[str, bytes], ...] = ()
    if protocol in {LAMAMQ, FLEXIMQ} and random.random() < 0.5:
        headers = tuple(
            (f"key/{each}", random.randbytes(random.randrange(9)))
            for each in range(random.randrange(1, 4))
        )
    more: dict[str, Any] = {
        "protocol": protocol,
        "kind": random.choice([Kind.PUBLISH] * 9 + [Kind.REQUEST]),
        "sender": Sender(bytes([number]) * 16, 1000 + number),
        "sender_name": random.choice([f"{number:08}-0000-4000-8000-000000000000", "somebody", ""]),
        "form": random.choice([Form.PLAIN, Form.TEXT]) if protocol is LAMAMQ else Form.PLAIN,
        "private": random.random() < 0.1,
        "headers": headers,
        "status": random.choice([None, 0, 200]) if protocol is FLEXIMQ else None,
        "created_us": random.choice([None, START_US - 5]),
        "timestamp_us": START_US + random.randrange(1 << 40),
    }
    return message(topic, random.randbytes(random.choice([0, 1, 20, 90])), **more)


def topics_of(random: random.Random, *, fleet: int) -> list[str]:
    """Topics of a row group: `fleet` equally frequent ones, and some that are rare."""
    topics = [f"often/{random.randrange(fleet)}" for _ in range(ROWS)]
    for place in random.sample(range(ROWS), 5):
        topics[place] = random.choice(RARE)
    if random.random() < 0.3:
        topics[100:140] = ["rare/0"] * 40  # a burst
    return topics


def written(data: Path, seed: int, *, fleet: int = 5, row_groups: int = 6) -> None:
    source = random.Random(seed)
    with WrittenLog(data, segment_bytes_max=300_000) as log:
        for _ in range(row_groups):
            log.put(*(any_message(source, topic) for topic in topics_of(source, fleet=fleet)))


def indexed(data: Path) -> list[Path]:
    """Write all row indexes; return their paths."""
    view = LogView(data)
    indexing = RowIndexing(Files(), view.catalog, share=1.0)
    for segment in view.catalog.segments():
        assert isinstance(segment, Segment)
        indexing.index(segment)
    return sorted(view.catalog.folder.glob("*.rows"))


class Delivered(NamedTuple):
    """All that encoders may use of a message."""

    offset: int
    topic: str
    fields: tuple[Any, ...]


class Replay:
    """Reads a log as the broker does."""

    def __init__(
        self,
        data: Path,
        *,
        horizons: TopicHorizons | None = None,
        log: ArrowLog | None = None,
        active: ActiveRows | None = None,
    ) -> None:
        """With `log`, read what it has open, with the entries of its active segment."""
        self.view = LogView(data)
        self.catalog = self.view.catalog if log is None else log._catalog
        self._log = log
        self.active = active
        if horizons is not None:
            self.catalog.horizons = horizons
        self.files = CountingFiles()
        self.stale: list[int] = []
        self.lost: list[tuple[int, int]] = []
        self.row_groups: list[Stored] = []

    @property
    def end(self) -> int:
        return self.view.end if self._log is None else self._log.end

    def messages(self, *patterns: str, start: int = 0) -> list[Delivered]:
        topics = new_topic_filter(patterns)
        assert topics is not None
        reader = RowGroupReader(
            self.files,
            self.catalog,
            lambda work: work(),
            stale_rows=self.stale.append,
            active_rows=self.active,
        )
        table = TopicTable()
        found: list[Delivered] = []
        position = start
        while position < self.end:
            result = _fetch(reader, position, self.end, topics)
            if isinstance(result, LogDamaged):
                self.lost.append((result.offset, result.resumes_at))
                position = result.resumes_at
                continue
            assert isinstance(result, Fetched), result
            assert result.end > position
            for stored in result.groups:
                assert stored.base_offset + stored.count > position
                self.row_groups.append(stored)
                found += _delivered(stored, table, topics, position)
                position = stored.base_offset + stored.count
            position = result.end
        reader.close()
        return found


def _fetch(reader: RowGroupReader, offset: int, end: int, topics: Any) -> Fetched | LogError:
    results: list[Fetched | LogError] = []
    done = threading.Event()

    def then(result: Fetched | LogError) -> None:
        results.append(result)
        done.set()

    reader.fetch(offset, end, then, topics)
    assert done.wait(10)
    return results[0]


def _delivered(stored: Stored, table: TopicTable, topics: Any, position: int) -> list[Delivered]:
    batch = Batch()
    stored.load(batch, table)
    found = []
    for row in range(max(position - stored.base_offset, 0), stored.count):
        topic = batch.topic_id(row)
        if batch.hidden(row) or topic == 0xFFFFFFFF or not topics.wants(table.name(topic)):
            continue
        sender = batch.sender(row)
        fields = (
            batch.value(row), sender.uuid, sender.number, batch.headers(row), batch.created(row),
            batch.status(row), batch.row_protocol(row), batch.row_timestamp_us(row),
            batch.form(row), batch.times_and_senders(memoryview(array("I", [row]))),
        )  # fmt: skip
        found.append(Delivered(stored.base_offset + row, table.name(topic), fields))
    batch.clear()
    return found


PATTERNS = [("rare/1",), ("rare/0", "rare/3"), ("rare/+",), ("rare/#", "often/1"), ("absent",)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("fleet", [5, 2000])
def test_rows_are_what_whole_row_groups_have(tmp_path: Path, seed: int, fleet: int) -> None:
    written(tmp_path, seed, fleet=fleet)
    expected = [Replay(tmp_path).messages(*patterns) for patterns in PATTERNS]
    assert any(expected)
    assert len(indexed(tmp_path)) > 1
    for patterns, messages in zip(PATTERNS, expected, strict=True):
        replay = Replay(tmp_path)
        assert replay.messages(*patterns) == messages, patterns
        assert not replay.stale
        if patterns == ("rare/1",):
            assert any(each.count == 1 for each in replay.row_groups)
            if messages:
                start = messages[0].offset + 1
                assert replay.messages(*patterns, start=start) == messages[1:]


@pytest.mark.parametrize("fleet", [5, 2000])
def test_a_topic_that_is_spread_is_replayed_by_reading_little(tmp_path: Path, fleet: int) -> None:
    with WrittenLog(tmp_path) as log:
        for number in range(10):
            topics = [f"often/{place % fleet}" for place in range(3000)]
            topics[(7 * number) % 3000] = "rare"
            log.put(*(message(topic, bytes(100)) for topic in topics))
        size = sum(path.stat().st_size for path in log.segments())
    assert Replay(tmp_path).messages("rare")
    whole = Replay(tmp_path)
    whole.messages("rare")
    assert whole.files.bytes_read > 0.9 * size
    (path,) = indexed(tmp_path)
    replay = Replay(tmp_path)
    assert len(replay.messages("rare")) == 10
    index = index_path(path.parent, 0).stat().st_size
    assert replay.files.bytes_read - index - 8192 < 0.02 * size
    assert path.stat().st_size < 0.1 * size
    if fleet == 2000:  # each of its topics is as rare
        assert len(Replay(tmp_path).messages("often/500")) == 20


def test_expired_messages_are_hidden_and_counted_as_in_a_row_group(tmp_path: Path) -> None:
    written(tmp_path, 1)
    limit = ROWS * 3 + 77
    horizons = TopicHorizons([RuleHorizon(topics=("rare/#",), horizon=limit)])
    before = Replay(tmp_path, horizons=horizons)
    expected = before.messages("rare/2")
    counted = _expired(before, "rare/2")
    indexed(tmp_path)
    after = Replay(tmp_path, horizons=horizons)
    assert after.messages("rare/2") == expected
    assert expected
    assert expected[0].offset >= limit
    assert counted == _expired(after, "rare/2") > 0


def _expired(replay: Replay, topic: str) -> int:
    return sum(
        each.expired(None, lambda name: name == topic, first=0, last=each.count)
        for each in replay.row_groups
    )


def test_a_damaged_row_index_is_not_used_and_reported(tmp_path: Path) -> None:
    written(tmp_path, 2)
    expected = Replay(tmp_path).messages("rare/1")
    first, *_ = indexed(tmp_path)
    whole = first.read_bytes()
    source = random.Random(5)
    places = {0, 5, len(whole) - 1, len(whole) - 60, *source.sample(range(len(whole)), 40)}
    for place in sorted(places):
        first.write_bytes(whole)
        flip(first, place)
        replay = Replay(tmp_path)
        assert replay.messages("rare/1") == expected, place
        assert Fault.STALE_INDEX in _faults(tmp_path), place
    for size in (0, 10, len(whole) - 1):
        first.write_bytes(whole[:size])
        assert Replay(tmp_path).messages("rare/1") == expected
        assert Fault.STALE_INDEX in _faults(tmp_path)
    first.write_bytes(whole)
    assert not _faults(tmp_path)
    first.unlink()
    assert not _faults(tmp_path)


def _faults(data: Path) -> list[Fault]:
    found = verify(Files(), LogView(data).catalog.folder)
    return [each.fault for each in found if isinstance(each, Damage)]


def test_a_row_index_of_another_segment_is_not_used(tmp_path: Path) -> None:
    written(tmp_path, 2)
    expected = Replay(tmp_path).messages("rare/1")
    first, second, *_ = indexed(tmp_path)
    first.write_bytes(second.read_bytes())
    replay = Replay(tmp_path)
    assert replay.messages("rare/1") == expected
    assert replay.stale == [0]


def test_damage_to_a_listed_message_is_damage_of_its_row_group(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        for _ in range(3):
            log.put(
                *(message("often", bytes(40)) for _ in range(ROWS)), message("rare", b"precious")
            )
    indexed(tmp_path)
    segment = LogView(tmp_path).catalog.folder / f"{0:020}.arrows"
    place = segment.read_bytes().index(b"precious", 100_000)
    flip(segment, place)
    replay = Replay(tmp_path)
    found = replay.messages("rare")
    assert len(found) == 2
    assert len(replay.lost) == 1
    assert not replay.stale, "the row index is right"


def test_topics_with_the_same_hash_are_told_apart(tmp_path: Path) -> None:
    first, second = _twins()
    with WrittenLog(tmp_path) as log:
        for number in range(4):
            names = [first] if number % 2 else [first, second]
            often = (message(f"often/{each}", bytes(20)) for each in range(1100))
            log.put(*often, *(message(name, name.encode()) for name in names))
    indexed(tmp_path)
    replay = Replay(tmp_path)
    assert [each.fields[0] for each in replay.messages(second)] == [second.encode()] * 2
    assert [each.fields[0] for each in replay.messages(first)] == [first.encode()] * 4
    assert not replay.stale


def _twins() -> tuple[str, str]:
    """Return two names with the same CRC32C."""
    seen: dict[int, str] = {}
    source = random.Random(1)
    for _ in range(1_000_000):
        name = source.randbytes(8).hex()
        value = crc32c([name.encode()])
        if value in seen:
            return seen[value], name
        seen[value] = name
    raise AssertionError


def test_a_broker_indexes_what_it_closes_and_what_it_finds(tmp_path: Path) -> None:
    written(tmp_path, 3, row_groups=4)  # closed at the end, without waiting for row indexes
    with WrittenLog(tmp_path, segment_bytes_max=300_000) as log:
        _wait(lambda: len(list(log.folder.glob("*.rows"))) == len(log.segments()))
        before = len(log.segments())
        rows = [message(f"often/{number}", bytes(100)) for number in range(ROWS)]
        for _ in range(4):
            log.put(*rows)
        assert len(log.segments()) > before + 1
        _wait(lambda: len(list(log.folder.glob("*.rows"))) >= len(log.segments()) - 1)
        log.log._row_indexing.renew(0)
        _wait(rows_path(log.folder, 0).exists)
    assert not list(log.folder.glob("*.new"))
    for path in log.segments():
        path.unlink()
        path.with_suffix(".index").unlink()
    ArrowLog(tmp_path).close()
    assert not list(log.folder.glob("*.rows")), "recovery removes those without a segment"


def _wait(condition: Any) -> None:
    changed = threading.Event()
    for _ in range(1000):
        if condition():
            return
        changed.wait(0.01)
    raise AssertionError("the row indexes are not written")


def active_rows(log: WrittenLog, *, bytes_max: int = 1 << 24) -> ActiveRows:
    """Index the active segment of a log, as its thread does."""
    rows = ActiveRows(bytes_max=bytes_max)
    catalog = log.log._catalog
    active = catalog.segments()[-1]
    assert isinstance(active, ActiveSegment)
    RowIndexing(Files(), catalog, share=1.0, active=rows, active_bytes=1).index_active(active)
    return rows


def put_spread(log: WrittenLog, row_groups: int = 10) -> None:
    """Put row groups with one message of a rare topic each."""
    for number in range(row_groups):
        topics = [f"often/{place % 100}" for place in range(3000)]
        topics[(7 * number) % 3000] = "rare"
        log.put(*(message(topic, bytes(100)) for topic in topics))


def test_a_spread_topic_is_replayed_by_reading_little_of_the_active_segment(
    tmp_path: Path,
) -> None:
    with WrittenLog(tmp_path) as log:
        put_spread(log)
        size = sum(path.stat().st_size for path in log.segments())
        whole = Replay(tmp_path, log=log.log)
        expected = whole.messages("rare")
        assert whole.files.bytes_read > 0.9 * size
        replay = Replay(tmp_path, log=log.log, active=active_rows(log))
        assert replay.messages("rare") == expected
        assert len(expected) == 10
        assert replay.files.bytes_read < 0.01 * size
        put_spread(log, 1)  # behind what is indexed: it is read whole
        assert len(replay.messages("rare")) == 11


@pytest.mark.parametrize("bytes_max", [1 << 24, 20_000])
def test_rows_of_the_active_segment_are_what_whole_row_groups_have(
    tmp_path: Path, bytes_max: int
) -> None:
    source = random.Random(7)
    with WrittenLog(tmp_path) as log:
        for _ in range(6):
            log.put(*(any_message(source, topic) for topic in topics_of(source, fleet=500)))
        active = active_rows(log, bytes_max=bytes_max)
        assert active.segments() == [0]
        for patterns in PATTERNS:
            replay = Replay(tmp_path, log=log.log, active=active)
            assert replay.messages(*patterns) == Replay(tmp_path, log=log.log).messages(*patterns)
            assert not replay.stale


def test_entries_of_the_active_segment_are_limited_and_dropped() -> None:
    section = row_index_file.Section(0, 1, bytes(100), [bytes(50)])
    entries = [Entry(number, 1, 1000 * number, 1000, 0, 0) for number in range(3)]
    rows = ActiveRows(bytes_max=300)
    assert [rows.add(0, each, section) for each in entries] == [True, True, False]
    rows.drop(0)
    assert rows.segments() == []
    assert rows.add(5, entries[2], section)
    rows.refuse(5)
    assert rows.section(5, entries[2]) is None
    assert not rows.add(5, entries[0], section)
    assert rows.add(6, entries[0], section)
    other = dataclasses.replace(entries[0], size=1001)
    assert rows.section(6, other) is None, "another row group with the same offsets"


def test_a_wrong_entry_of_the_active_segment_is_not_used_and_reported(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        put_spread(log, 3)
        active = active_rows(log)
        entry = log.log._catalog.index(log.log._catalog.segments()[-1]).entry(1)
        section = active.section(0, entry)
        assert section is not None
        buckets = [
            bytes(byte ^ (place % 10 == 6) for place, byte in enumerate(each))
            for each in section.buckets
        ]
        active.add(0, entry, section._replace(buckets=buckets))
        replay = Replay(tmp_path, log=log.log, active=active)
        assert len(replay.messages("rare")) == 3
        assert replay.stale == [0]
        assert active.segments() == []


def test_the_row_index_of_a_closed_segment_has_the_entries_of_the_active_one(
    tmp_path: Path,
) -> None:
    with WrittenLog(tmp_path) as log:
        put_spread(log)
        active = active_rows(log)
    (path,) = indexed(tmp_path)
    expected = path.read_bytes()
    path.unlink()
    view, files = LogView(tmp_path), CountingFiles()
    (segment,) = view.catalog.segments()
    assert isinstance(segment, Segment)
    RowIndexing(files, view.catalog, share=1.0, active=active).index(segment)
    assert path.read_bytes() == expected
    assert files.bytes_read < 0.1 * segment.size, "no row group is read again"


def test_a_broker_indexes_its_active_segment_and_drops_the_entries_when_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_indexing, "ROW_INDEX_ACTIVE_SECONDS", 0.01)
    with WrittenLog(tmp_path, segment_bytes_max=2_000_000) as log:
        log.log._row_indexing._active_bytes = 100_000
        active = log.log._active_rows
        put_spread(log, 2)
        _wait(lambda: active.segments() == [0])
        while len(log.segments()) == 1:
            put_spread(log, 1)
        _wait(lambda: rows_path(log.folder, 0).exists() and 0 not in active.segments())


def test_only_large_row_groups_have_rare_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with WrittenLog(tmp_path) as log:
        log.put(*(message("often" if row else "rare", b"x" * 40, row) for row in range(600)))
    index, _ = load_index(Files(), LogView(tmp_path).catalog.folder, 0)
    size = index.entry(0).size
    for least, expected in ((size, True), (size + 1, False)):
        monkeypatch.setattr(row_index_file, "ROW_INDEX_GROUP_BYTES_MIN", least)
        assert row_index_file.may_be_rare(index, 0) is expected
        assert row_index_file.is_useful(index) is expected


def test_segments_without_rare_topics_get_no_row_index(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        log.put(*(message(f"often/{each % 9}", bytes(90)) for each in range(2 * ROW_INDEX_RARE)))
        log.put_many(30, rows=3)
    assert indexed(tmp_path) == []
