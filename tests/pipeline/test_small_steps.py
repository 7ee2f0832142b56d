"""A few records are decoded by kept plans; their tables are those that Spark writes for many."""

import datetime as dt
import itertools
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from penstock.pipeline import bronze, gold, recent_records, small_gold
from penstock.pipeline.bronze_ingest import DailyParquetFiles
from penstock.pipeline.config import (
    BronzeConfig,
    FieldConfig,
    GoldConfig,
    MergeConfig,
    PipelineConfig,
    SilverConfig,
    SourceConfig,
    WarehouseConfig,
)
from penstock.pipeline.data_files import describe
from penstock.pipeline.gold_jobs import with_revision
from penstock.pipeline.offsets import Slice, Stream
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.progress import StageProgress
from penstock.pipeline.recent_records import RecentRecords, of_topics
from penstock.pipeline.silver_job import SilverJob
from penstock.pipeline.small_silver import first_rows
from penstock.pipeline.warehouse import Warehouse
from penstock.storage.dictionaries import RECORD_SCHEMA
from penstock.storage.object_store import ObjectStore
from tests.support.pipeline_records import START, arrow, record
from tests.support.written_log import START_US, WrittenLog, message

ID = FieldConfig(name="id", type="long", required=True)
AT = FieldConfig(name="at", type="timestamp", formats=("epoch_us",))
TIMED: dict[str, Any] = {
    "topics": ("a/+",), "field": (ID, AT), "event_time": "at", "watermark_seconds": 5,
}  # fmt: skip
SCHEMAS = (
    SilverConfig(name="plain", topics=("a/+", "b"), field=(ID, FieldConfig(name="text"))),
    SilverConfig(
        name="all_topics",
        topics=("#",),
        field=(ID,),
        kinds=("publish",),
        partition_by=("topic",),
    ),
    SilverConfig(name="others", topics=("nothing/#",), field=(ID,)),
    SilverConfig(name="repeated", dedup=("id",), **TIMED),
    SilverConfig(name="dropped", late="drop", dedup=(), **TIMED),
    SilverConfig(
        name="parts",
        topics=("a/1",),
        explode="parts",
        field=(ID, FieldConfig(name="part", path="parts", type="int")),
    ),
    SilverConfig(
        name="latest",
        topics=("a/#",),
        field=(ID, FieldConfig(name="text")),
        merge=MergeConfig(key=("id",), order_by="offset"),
    ),
)
STEP_ROWS = 15
LOG_ID = str(record(0)["message_id"])[:13]
BAD = (b"no json", b'{"id": "x"}', b'{"id": 5, "parts": [1, "two", "three", 4]}')


def values(first: int) -> Iterable[bytes]:
    """Messages of one step: ids that come again, times that are late later, values to refuse."""
    for number in range(first, first + 12):
        seconds = number if number % 5 else number - 40
        yield json.dumps(
            {
                "id": number % 9,
                "text": f"text {number}",
                "at": START_US + 1_000_000 * seconds,
                "parts": [number, number + 1],
            }
        ).encode()
    yield from BAD


def run_steps(spark: SparkSession, data: Path, folder: Path) -> Warehouse:
    warehouse = Warehouse(WarehouseConfig(folder=str(folder)))
    gold = GoldConfig(traffic_window_seconds=1, session_gap_seconds=1)
    config = PipelineConfig(
        source=SourceConfig(path=str(data)),
        bronze=BronzeConfig(rows_max=STEP_ROWS),
        silver=SCHEMAS,
        silver_rows_max=STEP_ROWS,
        gold=gold,
    )
    with warehouse:
        Pipeline(spark, warehouse, config).run_once()
    return warehouse


def rows_of(table: Path) -> list[str]:
    rows = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    return sorted(str({name: row[name] for name in row if name != "failed_at"}) for row in rows)


def test_small_and_large_steps_write_the_same_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    topics = itertools.cycle(("a/1", "b", "a/2", "a/1", "c"))
    with WrittenLog(tmp_path / "data") as log:
        for first in (0, STEP_ROWS):
            pairs = zip(values(first), topics, strict=False)
            log.put(*(message(topic, value, first + n) for n, (value, topic) in enumerate(pairs)))
        assert log.log.next_offset == 2 * STEP_ROWS
        tables = run_steps(spark, tmp_path / "data", small).tables()
        monkeypatch.setattr(bronze, "PIPELINE_SMALL_STEP_ROWS_MAX", 0)
        others = run_steps(spark, tmp_path / "data", large).tables()
    assert set(tables) == set(others) >= {each.name for each in SCHEMAS}
    for name, table in tables.items():
        assert rows_of(table.folder) == rows_of(others[name].folder), name
        assert table.log.schema() == others[name].log.schema()
        assert not list(table.folder.glob("_staging/*"))
    assert [row for row in rows_of(small / "dead_letters") if "late: " in row]
    for name in ("repeated", "latest"):
        ids = DeltaTable(str(small / "silver" / name)).to_pyarrow_table().column("id").to_pylist()
        assert len(ids) == len(set(ids)) > 5


def test_a_table_that_is_behind_takes_a_small_step_for_few_records_of_its_own(
    spark: SparkSession, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bronze, "PIPELINE_SMALL_STEP_ROWS_MAX", 5)
    few, many = (
        SilverJob(
            spark,
            warehouse,
            SilverConfig(name=name, topics=(name,), field=(ID,)),
            rows_max=1_000_000,
        )
        for name in ("few", "many")
    )
    writer = bronze.BronzeWriter(warehouse.bronze())
    topics = ["many"] * 95 + ["few"] * 5
    records = [record(n, b'{"id": 1}', topic=topic) for n, topic in enumerate(topics)]
    with DailyParquetFiles(warehouse.bronze().store, RECORD_SCHEMA) as files:
        for batch in arrow(records).to_batches():
            files.write(batch)
        writer.add_files(files.close())
    monkeypatch.setattr(SilverJob, "_update", lambda *_: pytest.fail("a large step"))
    stage = StageProgress()
    assert not few.step(stage)
    assert stage.batch_rows == 5
    with pytest.raises(pytest.fail.Exception, match="a large step"):
        many.step(stage)


def session_records(seed: int) -> list[dict[str, Any]]:
    """Messages of few clients at random times, some with no value, over midnight."""
    chance = random.Random(seed)
    found = []
    for number in range(300):
        moment = START + dt.timedelta(seconds=chance.randrange(120), milliseconds=500)
        found.append(
            record(
                number,
                chance.choice([None, b"", b"four"]),
                timestamp=moment,
                topic=chance.choice(["a", "b", ""]),
                sender=f"client {chance.randrange(20)}",
                protocol=chance.choice(["herald", "rheos2"]),
            )
        )
    return found


@pytest.mark.parametrize("gap_seconds", [2, 7, 600])
def test_arrow_computes_traffic_and_sessions_as_spark_does(
    spark: SparkSession, gap_seconds: int
) -> None:
    first, second = (arrow(session_records(gap_seconds + n)) for n in (0, 1))

    def sorted_rows(table: pa.Table) -> list[str]:
        return sorted(map(str, table.to_pylist()))

    both = pa.concat_tables([first, second])
    all_records = spark.createDataFrame(both)
    expected = gold.traffic(all_records, window_seconds=gap_seconds).toArrow()
    rows = [small_gold.traffic_rows(each, window_seconds=gap_seconds) for each in (first, second)]
    merged = small_gold.merged_traffic_rows(pa.concat_tables(rows))
    assert merged.schema == expected.cast(merged.schema).schema
    assert sorted_rows(merged) == sorted_rows(expected)
    expected = gold.sessions(all_records, gap_seconds=gap_seconds).toArrow()
    rows = [small_gold.session_rows(each, gap_seconds=gap_seconds) for each in (first, second)]
    merged = small_gold.merged_session_rows(pa.concat_tables(rows), gap_seconds=gap_seconds)
    assert sorted_rows(merged) == sorted_rows(expected)
    numbered = [with_revision(each, number) for number, each in enumerate(rows, 1)]
    merged = small_gold.merged_session_rows(pa.concat_tables(numbered), gap_seconds=gap_seconds)
    known = spark.createDataFrame(pa.concat_tables(numbered))
    wanted = gold.merged_sessions(known, gap_seconds=gap_seconds).toArrow()
    assert sorted_rows(merged) == sorted_rows(wanted)


def test_the_first_of_equal_rows_is_kept_and_null_equals_nothing() -> None:
    rows = pa.table({"k": [1, None, 1, 2, None, 3], "offset": [5, 4, 3, 2, 1, 0]})
    found = first_rows(rows, ["k"], order_by=["offset"])
    assert found.column("offset").to_pylist() == [0, 1, 2, 3, 4]
    known = pa.table({"k": [3, None, 3]})
    found = first_rows(rows, ["k"], known, order_by=["offset"])
    assert found.column("offset").to_pylist() == [1, 2, 3, 4]


def test_of_a_large_file_only_the_last_records_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_records, "PIPELINE_SMALL_STEP_ROWS_MAX", 10)
    store = ObjectStore.at(tmp_path)
    pq.write_table(arrow([record(n, b"%d" % n) for n in range(100)]), tmp_path / "a.parquet")
    file = describe(store, "a.parquet")
    recent = RecentRecords(store)

    def offsets(start: int, end: int) -> list[int]:
        rows = recent.read([file], [Slice(Stream(LOG_ID, 0), start, end)], lambda _: None)
        assert rows is not None
        found: list[int] = rows.column("offset").to_pylist()
        return found

    assert offsets(90, 95) == [*range(90, 95)]
    (tmp_path / "a.parquet").rename(tmp_path / "b.parquet")
    assert offsets(80, 100) == [*range(80, 100)], "read from memory"
    with pytest.raises(FileNotFoundError):
        offsets(79, 81)
    (tmp_path / "b.parquet").rename(tmp_path / "a.parquet")
    assert offsets(5, 7) == [5, 6]
    other = Slice(Stream("other", 0), 0, 100)
    assert len(recent.read([file], [other], lambda _: None) or []) == 0
    monkeypatch.setattr(recent_records, "PIPELINE_RECENT_BYTES_MAX", 1)
    assert RecentRecords(store).read([file], [other], lambda _: None) is None


def test_records_are_chosen_by_names_and_patterns() -> None:
    records = pa.table({"topic": ["a/b", "a/b/c", "", None, "a.b", "x"]})

    def chosen(*patterns: str) -> list[str | None]:
        selected = of_topics(records, patterns)
        rows = records if selected is None else records.filter(selected)
        found: list[str | None] = rows.column("topic").to_pylist()
        return found

    assert chosen("a/+", "x") == ["a/b", "a.b", "x"]
    assert chosen("a/b") == ["a/b"]
    assert chosen("a/#") == ["a/b", "a/b/c", "a.b"]
    assert chosen("#") == ["a/b", "a/b/c", "", None, "a.b", "x"]
    assert chosen("nothing") == []
