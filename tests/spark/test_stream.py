"""A stream has each row once: while the log grows, through restarts, in batches of any size."""

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from penstock.errors import LogDamaged
from penstock.ports import Subscription
from penstock.spark.errors import InvalidOption, LogWentBack, OtherLog, RangeLost
from penstock.spark.options import read_options
from penstock.spark.schema import RECORD
from penstock.spark.stream import StreamReader
from penstock.spark.stream_offsets import JsonOffsets, lag_between, parse_stream_offsets
from penstock.storage.group_offsets import GroupOffsets
from tests.spark.test_batch import let_go
from tests.support.written_log import WrittenLog, flip

SECONDS_MAX = 60


def reader(log: WrittenLog, **options: str) -> StreamReader:
    return StreamReader(read_options({"path": str(log.data), **options}, streaming=True), RECORD)


def at(log: WrittenLog, offset: int) -> JsonOffsets:
    """An offset of the log as a checkpoint has it."""
    return {f"{log.log.log_id:012x}": {"0": offset}}


def offset_of(offsets: JsonOffsets) -> int:
    return parse_stream_offsets(offsets)[0].offset


def replace(log: WrittenLog) -> WrittenLog:
    """Put another, empty log in the place of a log."""
    log.close()
    shutil.rmtree(log.data)
    return WrittenLog(log.data)


class Sink:
    """A stream into Parquet files whose rows can be counted."""

    def __init__(self, spark: SparkSession, data: Path, folder: Path, **options: str) -> None:
        self._spark = spark
        self._data = data
        self._out = folder / "out"
        self._checkpoint = folder / "checkpoint"
        self._options = {"startingOffsets": "earliest", **options}

    def start(self, *, now: bool = True) -> Any:
        stream = (
            self._spark.readStream.format("penstock")
            .schema("topic STRING, offset BIGINT, value BINARY")
            .options(**self._options)
            .load(str(self._data))
        )
        writer = stream.writeStream.format("parquet").option(
            "checkpointLocation", str(self._checkpoint)
        )
        writer = writer.trigger(availableNow=True) if now else writer
        return writer.start(str(self._out))

    def run(self) -> list[int]:
        """Read all that is there; return how many rows each batch had."""
        query = self.start()
        assert query.awaitTermination(SECONDS_MAX), "the stream did not end in time"
        return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]

    def rows(self) -> DataFrame:
        return self._spark.read.parquet(str(self._out))

    def offsets(self) -> list[int]:
        return sorted(row.offset for row in self.rows().collect())


def test_a_stream_goes_on_where_it_was_in_batches_as_large_as_asked(
    spark: SparkSession, log: WrittenLog, tmp_path: Path
) -> None:
    log.put_many(30)
    sink = Sink(spark, log.data, tmp_path, maxOffsetsPerTrigger="40", group="bronze")
    assert sink.run() == [40, 40, 10]
    log.put_many(20)
    assert sink.run() == [40, 20]
    assert sink.run() == []
    assert sink.offsets() == list(range(150))
    assert all(row.value == b"%d" % row.offset for row in sink.rows().collect())
    state = GroupOffsets(log.data).load("bronze")
    assert state is not None
    assert state.offsets == {0: 150}  # that of the last batch too


def test_a_stream_reads_while_another_process_writes(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "data"
    program = (
        "import sys; from pathlib import Path; from tests.support.written_log import WrittenLog\n"
        "log = WrittenLog(Path(sys.argv[1]), segment_bytes_max=65536)\n"
        "print('ready', flush=True)\n"
        "for line in sys.stdin: log.put_many(int(line), rows=7); print('done', flush=True)\n"
        "log.close()\n"
    )
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", program, str(data)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
    ) as writer:  # fmt: skip
        assert writer.stdin is not None
        assert writer.stdout is not None
        try:
            assert writer.stdout.readline() == "ready\n"
            sink = Sink(spark, data, tmp_path)
            query = sink.start(now=False)
            for count in (1, 50, 200, 1, 100):
                writer.stdin.write(f"{count}\n")
                writer.stdin.flush()
                assert writer.stdout.readline() == "done\n"
            writer.stdin.close()
            assert writer.wait(SECONDS_MAX) == 0
            query.processAllAvailable()
            query.stop()
        finally:
            writer.kill()
    assert sink.offsets() == list(range(352 * 7))


def test_what_retention_took_ends_a_stream_or_is_counted(
    spark: SparkSession, log: WrittenLog, tmp_path: Path
) -> None:
    log.put_many(10)
    strict = Sink(spark, log.data, tmp_path / "strict")
    lossy = Sink(spark, log.data, tmp_path / "lossy", failOnDataLoss="false", group="lossy")
    for sink in (strict, lossy):
        assert sink.run() == [30]
    log.put_many(60)
    horizon = let_go(log, 3)
    assert horizon > 30
    query = strict.start()
    with pytest.raises(StreamingQueryException, match=f"offsets 30 to {horizon - 1} of partition"):
        query.awaitTermination(SECONDS_MAX)
    assert lossy.run() == [210 - horizon]
    assert lossy.offsets() == [*range(30), *range(horizon, 210)]
    state = GroupOffsets(log.data).load("lossy")
    assert state is not None
    assert (state.offsets, state.lost) == ({0: 210}, horizon - 30)


def test_a_checkpoint_of_another_log_ends_a_stream_or_begins_again(
    spark: SparkSession, log: WrittenLog, tmp_path: Path
) -> None:
    log.put_many(10)
    sink = Sink(spark, log.data, tmp_path, group="g")
    assert sink.run() == [30]
    with replace(log) as new:
        new.put_many(20)
        query = sink.start()
        with pytest.raises(StreamingQueryException, match=r"OtherLog: the query stands at .* 30 "):
            query.awaitTermination(SECONDS_MAX)
        lossy = Sink(spark, log.data, tmp_path, group="g", failOnDataLoss="false")
        assert lossy.run() == [60]
        assert lossy.offsets() == sorted([*range(30), *range(60)])
        state = GroupOffsets(log.data).load("g")
        assert state is not None
        assert (state.offsets, state.lost) == ({0: 60}, 0)


def test_a_running_query_waits_for_enough_rows(
    spark: SparkSession, log: WrittenLog, tmp_path: Path
) -> None:
    log.put_many(1)
    options = {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "1h"}
    sink = Sink(spark, log.data, tmp_path, **options)
    query = sink.start(now=False)
    for expected in (3, 3, 9):
        query.processAllAvailable()
        assert sink.offsets() == list(range(expected))
        log.put_many(1)
    query.stop()
    assert sink.run() == [3], "a query that ends reads all"


# --- Without Spark


def test_offsets_of_another_log_are_data_loss(
    log: WrittenLog, capsys: pytest.CaptureFixture[str]
) -> None:
    log.put_many(10)
    planners = [reader(log), reader(log, failOnDataLoss="false")]
    strict, lossy = planners
    begun = strict.latestOffset(at(log, 0), ReadAllAvailable())
    assert begun == at(log, 30)
    assert lossy.latestOffset(at(log, 0), ReadAllAvailable()) == begun
    ((task,), _) = [each.partitions(at(log, 0), begun) for each in planners]
    old = at(log, 20)
    with replace(log) as new:
        new.put_many(20)
        for planner in (strict, reader(new)):  # one that runs on, and one after a restart
            with pytest.raises(
                OtherLog, match=r"offset 20 of log .* a new checkpoint, or set fail"
            ):
                planner.latestOffset(old, ReadAllAvailable())
            with pytest.raises(OtherLog):
                planner.partitions(old, begun)
            with pytest.raises(OtherLog):
                planner.partitions(old, at(new, 40))
        with pytest.raises(OtherLog):  # it was planned before
            list(strict.read(task))
        assert list(lossy.read(task)) == []
        for planner in (lossy, reader(new, failOnDataLoss="false")):
            capsys.readouterr()
            for _ in range(2):
                assert planner.latestOffset(old, ReadMaxRows(7)) == at(new, 7)
            assert capsys.readouterr().out.count("reading the new one from its beginning") == 1
            assert planner.partitions(old, begun) == []
            (again,) = planner.partitions(old, at(new, 40))
            found = [n for each in planner.read(again) for n in each["offset"].to_pylist()]
            assert found == list(range(40))


def test_offsets_without_a_log_id_are_those_of_the_current_log(log: WrittenLog) -> None:
    log.put_many(10)
    stream = reader(log)
    assert stream.latestOffset({"0": 12}, ReadMaxRows(5)) == at(log, 17)
    assert stream.latestOffset({"0": 30}, ReadAllAvailable()) == at(log, 30)
    for start, end in (({"0": 12}, {"0": 17}), ({"0": 12}, at(log, 17))):
        (task,) = stream.partitions(start, end)
        assert [len(batch) for batch in stream.read(task)] == [5]


def test_lag_counts_all_messages_of_a_new_log() -> None:
    assert lag_between({"0": 3}, {"0": 10}) == 7
    assert lag_between({"0": 3}, {"a": {"0": 10}}) == 7
    assert lag_between({"a": {"0": 3, "1": 5}}, {"a": {"0": 10, "1": 4}}) == 7
    assert lag_between({"a": {"0": 3}}, {"b": {"0": 10}}) == 10
    assert lag_between({}, {"b": {"0": 10}}) == 10


def test_latest_offset_does_not_advance_and_keeps_to_the_limit(log: WrittenLog) -> None:
    log.put_many(20)
    stream = reader(log, maxOffsetsPerTrigger="25")
    assert stream.initialOffset() == at(log, 60)
    start = at(log, 0)
    for _ in range(3):
        assert stream.latestOffset(start, ReadMaxRows(25)) == at(log, 25)
        assert stream.latestOffset(start, ReadAllAvailable()) == at(log, 60)
    assert stream.getDefaultReadLimit() == ReadMaxRows(25)
    assert stream.reportLatestOffset() == at(log, 60)
    stream.prepareForTriggerAvailableNow()
    log.put_many(5)
    assert stream.latestOffset(at(log, 50), ReadMaxRows(25)) == at(log, 60)
    assert stream.latestOffset(at(log, 60), ReadMaxRows(25)) == at(log, 60)
    assert reader(log, startingOffsets='{"0": 7}').initialOffset() == at(log, 7)
    assert reader(log, startingTimestamp="1763200000031").initialOffset() == at(log, 31)


def test_a_stream_of_a_quiet_topic_stays_while_others_get_messages(log: WrittenLog) -> None:
    """Once broken: each message of any topic was a batch, most of them without rows."""
    log.put_many(1, topics=("quiet",))
    log.put_many(5)
    stream = reader(log, subscribe="quiet")
    end = stream.latestOffset(at(log, 0), ReadAllAvailable())
    assert end == stream.reportLatestOffset()
    assert offset_of(end) == 3
    for _ in range(3):
        log.put_many(3)
        for each in (stream, reader(log, subscribe="quiet"), reader(log, subscribePattern="q.*")):
            assert offset_of(each.latestOffset(end, ReadAllAvailable())) == 3
            assert offset_of(each.latestOffset(end, ReadMaxRows(10))) == 3
            assert each.count_after(end) == 0
        assert stream.latestOffset(end, ReadAllAvailable()) == end
    assert stream.partitions(end, end) == []
    log.put_many(1, rows=4, topics=("b", "quiet"))
    more = stream.latestOffset(end, ReadAllAvailable())
    assert more != end
    assert stream.latestOffset(more, ReadAllAvailable()) == more
    assert stream.count_after(end) == 2
    (task,) = stream.partitions(end, more)
    assert [row for each in stream.read(task) for row in each["topic"].to_pylist()] == ["quiet"] * 2


def test_a_limit_counts_the_rows_of_the_stream(log: WrittenLog) -> None:
    """Once broken: `maxOffsetsPerTrigger` counted messages of all topics."""
    log.put_many(10, rows=9, topics=("a", "b", "b", "b"))  # offsets 0, 4, 8 … are of a
    stream = reader(log, subscribe="a", startingOffsets="earliest")
    position, counts = stream.initialOffset(), []
    while (end := stream.latestOffset(position, ReadMaxRows(10))) != position:
        tasks = stream.partitions(position, end)
        counts.append(sum(len(batch) for task in tasks for batch in stream.read(task)))
        position = end
    assert counts == [10, 10, 3]
    other = reader(log, subscribe="none")
    assert offset_of(other.latestOffset(at(log, 0), ReadMaxRows(5))) == 0


def test_a_quiet_topic_outlives_retention_of_others(log: WrittenLog) -> None:
    log.put_many(1, topics=("quiet",))
    stream = reader(log, subscribe="quiet")
    position = stream.latestOffset(at(log, 0), ReadAllAvailable())
    assert offset_of(position) == 3
    log.put_many(60)
    assert stream.latestOffset(position, ReadAllAvailable()) == position
    let_go(log, 2)
    moved = stream.latestOffset(position, ReadAllAvailable())
    assert offset_of(moved) == log.log.end, "a restart would take the position for lost"
    assert stream.partitions(position, moved) == []
    assert stream.latestOffset(moved, ReadAllAvailable()) == moved
    # Another reader knows it from the offset, as that of the pipeline's driver, or from the record.
    assert reader(log, subscribe="quiet").partitions(position, moved) == []
    end = reader(log, subscribe="quiet").latestOffset(position, ReadAllAvailable())
    assert reader(log, subscribe="quiet").partitions(position, end) == []
    with pytest.raises(RangeLost):
        reader(log, subscribe="a").partitions({"0": 3}, {"0": log.log.end})


def test_messages_of_others_that_retention_takes_are_not_lost_to_a_stream(
    tmp_path: Path,
) -> None:
    """Once broken: a batch began where the last one ended, and what was there was gone."""
    with WrittenLog(tmp_path / "data", segment_bytes_max=1) as log:
        log.put_many(1, topics=("quiet",))
        stream = reader(log, subscribe="quiet")
        position = stream.latestOffset(at(log, 0), ReadAllAvailable())
        log.put_many(4)
        log.put_many(1, topics=("quiet",))
        end = stream.latestOffset(position, ReadAllAvailable())
        let_go(log, 4)
        for planner in (
            stream,
            reader(log, subscribe="quiet"),
            reader(log, subscribePattern="q.*"),
        ):
            (task,) = planner.partitions(position, end)
            found = [n for each in stream.read(task) for n in each["offset"].to_pylist()]
            assert found == [15, 16, 17]
        assert stream.latestOffset(end, ReadAllAvailable()) == end == stream.reportLatestOffset()


def test_the_first_batch_has_the_same_rows_after_a_restart(log: WrittenLog) -> None:
    """Once broken: Spark asks for the start of the first batch again, which was then later."""
    log.put_many(2)
    stream = reader(log)
    start = stream.initialOffset()
    log.put_many(2)
    end = stream.latestOffset(start, ReadAllAvailable())
    log.put_many(2)
    for again in (stream, reader(log)):
        (task,) = again.partitions(again.initialOffset(), end)
        assert [n for b in again.read(task) for n in b["offset"].to_pylist()] == [*range(6, 12)]
    more = stream.latestOffset(end, ReadAllAvailable())
    assert more == at(log, 18), "later batches need no start"


def test_a_checkpoint_does_not_fall_far_behind(
    log: WrittenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.batch_ends.SPARK_EMPTY_OFFSETS_MAX", 50)
    log.put_many(3, rows=16)
    stream = reader(log, subscribe="quiet")
    assert offset_of(stream.latestOffset(at(log, 0), ReadAllAvailable())) == 0
    log.put_many(1, rows=6)
    assert offset_of(stream.latestOffset(at(log, 0), ReadAllAvailable())) == 54
    assert offset_of(stream.latestOffset(at(log, 54), ReadAllAvailable())) == 54


def test_damaged_messages_are_not_skipped_by_a_quiet_stream(log: WrittenLog) -> None:
    log.put_many(10)
    log.close()
    first = log.segments()[0]
    first.with_suffix(".index").unlink()
    flip(first, first.stat().st_size // 2)
    stream = reader(log, subscribe="quiet")
    start: JsonOffsets = {"0": 0}
    end = stream.latestOffset(start, ReadAllAvailable())
    with pytest.raises(LogDamaged):
        stream.partitions(start, end)


def test_the_same_range_has_the_same_rows(log: WrittenLog) -> None:
    log.put_many(20)
    start, end = at(log, 10), at(log, 41)

    def rows() -> list[int]:
        stream = reader(log, minPartitions="3")
        tasks = stream.partitions(start, end)
        assert len(tasks) == 3
        return [
            offset
            for task in tasks
            for batch in stream.read(task)
            for offset in batch.column("offset").to_pylist()
        ]

    assert rows() == list(range(10, 41))
    log.put_many(30)
    assert rows() == list(range(10, 41))
    log.close()
    assert rows() == list(range(10, 41))


def test_a_stream_that_stands_behind_the_end_is_told(log: WrittenLog) -> None:
    log.put_many(2)
    with pytest.raises(LogWentBack, match=r"stands at offset 9 of .*ends at 6.*new checkpoint"):
        reader(log).latestOffset({"0": 9}, ReadAllAvailable())
    with pytest.raises(LogWentBack):
        reader(log).partitions({"0": 0}, {"0": 9})
    waiting = reader(log, failOnDataLoss="false")
    assert waiting.latestOffset(at(log, 9), ReadAllAvailable()) == at(log, 9)
    log.put_many(2)
    assert waiting.latestOffset(at(log, 9), ReadAllAvailable()) == at(log, 12)


def test_a_limit_is_not_used_up_by_what_is_gone(log: WrittenLog) -> None:
    log.put_many(60)
    horizon = let_go(log, 2)
    stream = reader(log, failOnDataLoss="false")
    end = stream.latestOffset({"0": 0}, ReadMaxRows(10))
    assert end == at(log, horizon + 10)
    (task,) = stream.partitions({"0": 0}, end)
    assert [len(batch) for batch in stream.read(task)] == [10]
    with pytest.raises(RangeLost, match=f"offsets 0 to {horizon - 1} "):
        reader(log).partitions({"0": 0}, end)


def test_a_group_that_cannot_be_reported_does_not_end_a_stream(log: WrittenLog) -> None:
    log.put_many(1)
    (log.data / "groups").write_text("in the way")
    stream = reader(log, group="g")
    stream.commit({"0": 3})
    assert stream.latestOffset(at(log, 3), ReadAllAvailable()) == at(log, 3)
    (log.data / "groups").unlink()
    stream.commit({"0": 3})
    assert json.loads((log.data / "groups" / "g.json").read_text())["offsets"] == {"0": 3}


def test_a_group_reports_the_topics_that_it_reads(log: WrittenLog) -> None:
    groups = GroupOffsets(log.data)
    for options, expected in (
        ({"subscribe": "b, a, c/+"}, Subscription(topics=("a", "b"), patterns=("c/+",))),
        ({"subscribePattern": "a.*"}, Subscription(expression="a.*")),
        ({"subscribe": "#"}, None),
        ({}, None),
    ):
        reader(log, group="g", **options).commit({"0": 0})
        state = groups.load("g")
        assert state is not None
        assert state.subscription == expected


def read_all(
    stream: StreamReader, start: JsonOffsets, rows_max: int
) -> tuple[list[list[int]], JsonOffsets]:
    """Read a stream in batches as Spark does; return the offsets of each, and where it ends."""
    batches = []
    while (end := stream.latestOffset(start, ReadMaxRows(rows_max))) != start:
        tasks = pickle.loads(pickle.dumps(stream.partitions(start, end)))  # noqa: S301
        found = [
            n for task in tasks for each in stream.read(task) for n in each["offset"].to_pylist()
        ]
        batches.append(sorted(found))
        start = json.loads(json.dumps(end))
    return batches, start


def test_a_topic_that_joins_brings_its_history_if_asked(log: WrittenLog) -> None:
    """Once broken: a topic added to `subscribe` began at the offset of the query."""
    log.put_many(3, rows=4, topics=("a", "b", "c", "d/e"))
    first = reader(log, subscribe="a", startingOffsets="earliest")
    batches, done = read_all(first, first.initialOffset(), 100)
    assert batches == [[0, 4, 8]]
    log.put_many(1, rows=4, topics=("a", "b", "c", "d/e"))
    plain, _ = read_all(reader(log, subscribe="a, b"), done, 100)
    assert plain == [[12, 13]]
    joining = reader(log, subscribe="a, b, d/+", newTopics="earliest")
    batches, end = read_all(joining, done, 4)
    assert [each for each in batches if each] == [[1, 3, 5, 7], [9, 11], [12, 13, 15]]
    assert read_all(joining, end, 4) == ([], end)
    again, end = read_all(reader(log, subscribe="#", newTopics="earliest"), end, 100)
    assert [each for each in again if each] == [[2, 6, 10, 14]]
    fewer, _ = read_all(reader(log, subscribe="b", newTopics="earliest"), end, 100)
    assert [each for each in fewer if each] == []


def test_a_restart_amid_the_history_of_a_topic_goes_on_with_it(log: WrittenLog) -> None:
    log.put_many(2, rows=4, topics=("a", "b"))
    first = reader(log, subscribe="a", startingOffsets="earliest")
    _, done = read_all(first, first.initialOffset(), 100)
    options = {"subscribe": "a, b", "newTopics": "earliest"}
    middle = reader(log, **options).latestOffset(done, ReadMaxRows(1))
    rows = [
        [
            n
            for task in each.partitions(done, middle)
            for b in each.read(task)
            for n in b["offset"].to_pylist()
        ]
        for each in (reader(log, **options), reader(log, subscribe="a, b"))
    ]
    assert rows == [[1], [1]], "the same range has the same rows"
    rest, _ = read_all(reader(log, subscribe="a, b"), middle, 100)
    assert [each for each in rest if each] == [[3, 5, 7]]


def test_a_loss_is_reported_once(log: WrittenLog) -> None:
    log.put_many(60)
    horizon = let_go(log, 2)
    stream = reader(log, failOnDataLoss="false", group="g")
    groups = GroupOffsets(log.data)
    first, second = horizon + 3, horizon + 6
    stream.partitions({"0": 2}, {"0": first})
    stream.commit({"0": first})
    stream.partitions({"0": first}, {"0": second})
    stream.commit({"0": second})
    state = groups.load("g")
    assert state is not None
    assert (state.offsets, state.lost) == ({0: second}, horizon - 2)


# --- Offsets by topic, small batches, small tasks


def test_topics_start_where_each_is_told_to(log: WrittenLog) -> None:
    log.put_many(5, rows=4, topics=("a", "b", "c", "d"))  # a is 0, 4, 8 … up to 16, b is 1, 5 …
    expected = [0, 4, 8, 9, 12, 13, 16, 17, 18, 22, 23]
    starts = {"a": {"0": -2}, "b": {"0": 9}, "c": {"0": 18}, "d": {"0": -1}}
    options = {"subscribe": "a,b,c,d", "startingOffsets": json.dumps(starts)}
    first = reader(log, **options)
    start = first.initialOffset()
    assert offset_of(start) == 0
    log.put_many(1, rows=4, topics=("x", "y", "c", "d"))
    for rows_max in (1, 2, 3, 100):
        batches, end = read_all(reader(log, **options), start, rows_max)
        assert [n for each in batches for n in each] == expected
        assert all(0 < len(each) <= rows_max for each in batches)
        restarted, _ = read_all(reader(log, subscribe="a,b,c,d"), start, rows_max)
        assert restarted == batches, "the checkpoint tells where topics start"
    assert reader(log, **options).count_after(start) == len(expected)
    log.put_many(1, rows=4, topics=("a", "b", "c", "d"))
    more = first.latestOffset(end, ReadAllAvailable())
    assert set(more) == {*at(log, 0), "subscription"}, "all topics have started"


def test_topics_of_patterns_start_where_each_is_told_to(log: WrittenLog) -> None:
    log.put_many(5, rows=4, topics=("a", "b", "c", "d/e"))
    for options in ({"subscribePattern": "[abc]"}, {"subscribe": "+"}, {}):
        first = reader(log, startingOffsets='{"b": {"0": 5}, "c": {"0": 14}}', **options)
        start = first.initialOffset()
        batches, _ = read_all(first, start, 3)
        assert batches == [[5, 9, 13], [14, 17, 18]], "others start at the end"
        assert all(batches)


def test_starts_of_topics_are_not_those_of_another_log(log: WrittenLog) -> None:
    log.put_many(3, rows=4, topics=("a", "b"))
    options = {"startingOffsets": '{"a": {"0": 11}, "b": {"0": 3}}', "subscribe": "a,b"}
    start = reader(log, **options).initialOffset()
    with replace(log) as new:
        new.put_many(1, rows=4, topics=("a", "b"))
        lossy = reader(new, failOnDataLoss="false", subscribe="a,b")
        assert read_all(lossy, start, 100)[0] == [[0, 1, 2, 3]]


def test_a_stream_starts_at_times_by_topic(log: WrittenLog) -> None:
    log.put_many(5, rows=4, topics=("a", "b"))
    times = {"a": {"0": 1_763_200_000_007}, "b": {"0": 1_763_200_000_015}}
    options = {"subscribe": "a,b", "startingOffsetsByTimestamp": json.dumps(times)}
    stream = reader(log, **options)
    batches, _ = read_all(stream, stream.initialOffset(), 100)
    assert batches == [[8, 10, 12, 14, 15, 16, 17, 18, 19]]
    late = {"a": {"0": 1_763_200_000_019}, "b": {"0": 0}}
    options["startingOffsetsByTimestamp"] = json.dumps(late)
    assert offset_of(reader(log, **options).initialOffset()) == 0
    options["startingOffsetsByTimestampStrategy"] = "error"
    with pytest.raises(InvalidOption, match="there is no message of 'a' at or after the time"):
        reader(log, **options).initialOffset()
    for given, problem in (
        ({"subscribe": "a,b"}, "no message of 'a' at"),
        ({}, "there is no message at or"),
    ):
        strict = {**given, "startingOffsetsByTimestampStrategy": "error"}
        time = "1763200000020" if not given else "1763200000019"
        with pytest.raises(InvalidOption, match=problem):
            reader(log, startingTimestamp=time, **strict).initialOffset()


def test_a_small_batch_waits_for_more_rows_but_not_for_ever(log: WrittenLog) -> None:
    now = 0.0

    def planner(**options: str) -> StreamReader:
        given = {"path": str(log.data), "minOffsetsPerTrigger": "6", **options}
        return StreamReader(read_options(given, streaming=True), RECORD, clock=lambda: now)

    for options in ({}, {"subscribe": "a,b"}, {"maxOffsetsPerTrigger": "7"}):
        stream = planner(maxTriggerDelay="10s", **options)
        limit = stream.getDefaultReadLimit()
        first = log.log.next_offset
        log.put_many(1)
        end = stream.latestOffset(at(log, first), limit)
        assert offset_of(end) == first + 3, "the first batch does not wait"
        log.put_many(1)
        for _ in range(2):
            assert stream.latestOffset(end, limit) == end
        assert offset_of(stream.latestOffset(end, ReadAllAvailable())) == first + 6
        now += 10
        due = stream.latestOffset(end, limit)
        assert offset_of(due) == first + 6
        assert stream.latestOffset(end, limit) == due, "asked again"
        log.put_many(2)
        now += 1
        assert offset_of(stream.latestOffset(due, limit)) == first + 12, "it has enough rows"
    stream = planner(subscribe="quiet")
    end = stream.latestOffset(at(log, 0), stream.getDefaultReadLimit())
    log.put_many(5)
    assert stream.latestOffset(end, stream.getDefaultReadLimit()) == end
    stream = planner()
    assert stream.getDefaultReadLimit() == ReadMinRows(6)
    stream.prepareForTriggerAvailableNow()
    begun = stream.latestOffset(at(log, 0), ReadMinRows(6))
    assert stream.latestOffset(begun, ReadMinRows(6)) == begun
    near = at(log, log.log.next_offset - 1)
    assert stream.latestOffset(near, ReadMinRows(6)) == begun, "it ends when all is read"


def test_a_task_has_at_most_so_many_records(
    log: WrittenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.put_many(10, rows=9, topics=("a", "b", "b", "b"))
    for options, expected in (
        ({}, [20, 20, 20, 20, 10]),
        ({"subscribe": "a"}, [20, 3]),
        ({"subscribe": "b"}, [20, 20, 20, 7]),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": 40}}'}, [13]),
    ):
        stream = reader(log, maxRecordsPerPartition="20", **options)
        start = at(log, 0) if "startingOffsets" not in options else stream.initialOffset()
        end = stream.latestOffset(start, ReadAllAvailable())
        tasks = stream.partitions(start, end)
        rows = [sum(len(each) for each in stream.read(task)) for task in tasks]
        assert rows == expected
        more = reader(log, maxRecordsPerPartition="20", minPartitions="6", **options)
        assert len(more.partitions(start, end)) >= len(expected)
    monkeypatch.setattr("penstock.spark.planning.SPARK_TASKS_MAX", 8)
    small = reader(log, maxRecordsPerPartition="1")
    with pytest.raises(InvalidOption, match="with 1 there are more than 8 tasks"):
        small.partitions(at(log, 0), at(log, 9))
