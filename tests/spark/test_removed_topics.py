"""A reader below the horizon goes on if its topics lost nothing, and is told if they did."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock.ports.selection import Selection
from penstock.spark.errors import RangeLost
from penstock.spark.folder_source import FolderSource
from penstock.spark.log_source import Range
from penstock.spark.options import read_options
from penstock.spark.reader import BatchReader
from penstock.spark.schema import RECORD
from penstock.spark.stream import StreamReader
from penstock.spark.stream_offsets import JsonOffsets, parse_stream_offsets
from penstock.storage.arrow.read.follow import LogFollower
from penstock.storage.options import LogOptions, Retention, TierOptions
from tests.spark.test_batch import let_go
from tests.support.flight import serve_tables
from tests.support.live import LiveBroker
from tests.support.written_log import WrittenLog, message

SECONDS_MAX = 20.0
START: JsonOffsets = {"0": 0}

Where = dict[str, str]


@contextlib.contextmanager
def by_path(data: Path) -> Iterator[Where]:
    yield {"path": str(data)}


@contextlib.contextmanager
def by_flight(data: Path) -> Iterator[Where]:
    with LiveBroker(data=data) as broker:
        yield {"endpoint": serve_tables(broker, data)}


def write(data: Path, *topics: str, tier: TierOptions | None = None) -> int:
    """Put a segment of three messages for each topic; keep the last two. Return the horizon."""
    kept = Retention(bytes_max=1)
    with WrittenLog(data, segment_bytes_max=1, retention=kept, tier=tier) as log:
        for topic in topics:
            log.put_many(1, topics=(topic,))
            deadline = time.monotonic() + SECONDS_MAX
            while tier is not None and len(log.segments()) > 2:  # the others are only in the store
                assert time.monotonic() < deadline
                time.sleep(0.01)
    return log.log.horizon  # the writer thread has ended


def stream_of(where: Where, **options: str) -> StreamReader:
    return StreamReader(read_options({**where, **options}, streaming=True), RECORD)


def rows_from(stream: StreamReader, start: JsonOffsets) -> list[int]:
    """Read a stream as Spark does; return the offsets of all rows."""
    found: list[int] = []
    while (end := stream.latestOffset(start, ReadAllAvailable())) != start:
        for task in stream.partitions(start, end):
            found += [n for each in stream.read(task) for n in each["offset"].to_pylist()]
        start = end
    return found


def batch_of(where: Where, **options: str) -> list[int]:
    reader = BatchReader(read_options({**where, **options}, streaming=False), RECORD)
    return sorted(
        offset
        for task in reader.partitions()
        for each in reader.read(task)
        for offset in each["offset"].to_pylist()
    )


@pytest.mark.parametrize("place", [by_path, by_flight])
@pytest.mark.parametrize("in_store", [False, True], ids=["local", "tiered"])
def test_a_stopped_reader_goes_on_unless_its_topics_lost_messages(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: Callable[[Path], contextlib.AbstractContextManager[Where]],
    in_store: bool,  # noqa: FBT001
) -> None:
    """Once broken: messages of other topics that retention removed ended it as lost."""
    monkeypatch.setattr("penstock.storage.arrow.write.tiering.TIER_SECONDS", 0.02)
    data, tier = tmp_path / "data", None
    if in_store:
        tier = TierOptions(f"file://{tmp_path}/store", local=Retention(bytes_max=1))
    write(data, "quiet", tier=tier)
    position = stream_of({"path": str(data)}, subscribe="quiet").latestOffset(
        START, ReadAllAvailable()
    )
    assert parse_stream_offsets(position)[0].offset == 3
    write(data, "a", "b", tier=tier)
    horizon = write(data, "a", "quiet", "b", tier=tier)  # the record survives a restart
    assert horizon == 12
    assert LogFollower(data).bounds() == (12, 18)
    numbers = '{"quiet": {"0": 3}, "new": {"0": 3}}'
    with place(data) as where:
        for options in (
            {"subscribe": "quiet"},
            {"subscribePattern": "qu.*|x"},
            {"subscribe": "q/#,quiet"},
        ):
            assert rows_from(stream_of(where, **options), position) == [12, 13, 14]
        ends = stream_of(where, subscribe="quiet").latestOffset(position, ReadMaxRows(2))
        assert parse_stream_offsets(ends)[0].offset == 14, "what others lost does not count"
        assert batch_of(where, subscribe="quiet,new", startingOffsets=numbers) == [12, 13, 14]
        assert rows_from(stream_of(where, subscribe="quiet"), {"0": 11}) == [12, 13, 14]
        for lost in (
            {"subscribe": "quiet,b"},
            {"subscribePattern": "[ab]"},
            {"subscribe": "+"},
            {},
        ):
            with pytest.raises(RangeLost, match="offsets 3 to "):
                rows_from(stream_of(where, **lost), position)
        with pytest.raises(RangeLost):  # its own first messages
            rows_from(stream_of(where, subscribe="quiet"), {"0": 2})
        with pytest.raises(RangeLost):
            batch_of(where, subscribe="b", startingOffsets='{"b": {"0": 3}}')
        lossy = stream_of(where, subscribe="b", failOnDataLoss="false")
        assert rows_from(lossy, position) == [15, 16, 17]


def test_a_folder_without_the_record_is_read_as_before_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with WrittenLog(data, segment_bytes_max=1) as log:
        log.put_many(4)
        assert let_go(log, 2, recorded=False) == 6
    where = {"path": str(data)}
    with pytest.raises(RangeLost, match="offsets 3 to 5 "):
        rows_from(stream_of(where, subscribe="quiet"), {"0": 3})
    assert write(data, "a", "a") == 12
    with pytest.raises(RangeLost, match="offsets 3 to 5 "):
        rows_from(stream_of(where, subscribe="quiet"), {"0": 3})
    assert rows_from(stream_of(where, subscribe="quiet"), {"0": 6}) == []
    with pytest.raises(RangeLost, match="offsets 6 to 11 "):
        rows_from(stream_of(where, subscribe="a"), {"0": 6})


def test_messages_that_their_age_hides_are_looked_up(tmp_path: Path) -> None:
    """The broker hides old messages of segments that cannot be removed yet."""
    data = tmp_path / "data"
    now = time.time_ns() // 1000
    with WrittenLog(data) as log:
        log.put_many(2)  # of 2025
        log.put(*(message("quiet", b"", timestamp_us=now) for _ in range(3)))
    age = LogOptions(retention=Retention(age_seconds_max=3600.0))
    with LiveBroker(data=data, log_options=age) as broker:
        where = {"endpoint": serve_tables(broker, data)}
        deadline = time.monotonic() + SECONDS_MAX
        while (
            not stream_of(where, startingOffsets="earliest").initialOffset().items()
            >= {f"{broker.server.broker.reader.log_id:012x}": {"0": 6}}.items()
        ):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert rows_from(stream_of(where, subscribe="quiet"), START) == [6, 7, 8]
        with pytest.raises(RangeLost):
            rows_from(stream_of(where, subscribe="a"), START)


def test_messages_that_are_removed_after_the_bounds_were_read_are_counted(tmp_path: Path) -> None:
    """Once broken: a batch began behind them, so that no task found them missing."""
    data = tmp_path / "data"
    with WrittenLog(data, segment_bytes_max=1) as log:
        log.put_many(1, topics=("a",))
        log.put_many(2, topics=("b",))
        log.put_many(2, topics=("a",))
        source = FolderSource(data)
        assert source.bounds()[0][:2] == (0, 15)
        let_go(log, 2)
        source._followers[0].refresh()
        whole = Range(0, 0, 15)
        assert source.match(whole, Selection(topics=frozenset({"a"}))) == (15, 9, 0)
        assert source.match(whole, Selection(topics=frozenset({"b"})), rows_max=1).first == 0
        assert source.match(whole, Selection(topics=frozenset({"c"}))) == (0, 0, 0)
        assert source.match(whole._replace(start=3), Selection(topics=frozenset({"a"}))).rows == 6


def test_history_that_was_removed_while_it_was_read_is_lost(tmp_path: Path) -> None:
    """Once broken: the history of a topic that joined a stream then ended without an error."""
    data = tmp_path / "data"
    with WrittenLog(data, segment_bytes_max=1) as log:
        log.put_many(2, topics=("new",))
        log.put_many(2, topics=("a",))
        where = {"path": str(data)}
        position = stream_of(where, subscribe="a").latestOffset(START, ReadAllAvailable())
        joined = {"subscribe": "a,new", "newTopics": "earliest"}
        first = stream_of(where, **joined).latestOffset(position, ReadMaxRows(3))
        assert first["history"] == {"0": 3}
        let_go(log, 2)
        end = stream_of(where, **joined).latestOffset(first, ReadMaxRows(3))
        with pytest.raises(RangeLost, match="offsets 3 to 5 "):
            stream_of(where, **joined).partitions(first, end)
