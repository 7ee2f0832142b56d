"""The pipeline from end to end: a log in, tables out, dead letters and back."""

import json
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.pipeline.config import (
    FieldConfig,
    GoldConfig,
    PipelineConfig,
    SilverConfig,
    SourceConfig,
)
from penstock.pipeline.dead_letters import Replayed, replay
from penstock.pipeline.errors import JobFailed, NoSuchTable, NoSuchTopics, QueryFailed
from penstock.pipeline.offsets import Stream
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.progress import Progress, StageProgress
from penstock.pipeline.publication import to_messages
from penstock.pipeline.query import run_query
from penstock.pipeline.warehouse import Warehouse
from tests.support.written_log import START_US, WrittenLog, message

SECONDS_MAX = 120

READINGS = SilverConfig(
    name="readings",
    topics=("sensors/+/temp",),
    field=(
        FieldConfig(name="number", type="long", required=True),
        FieldConfig(name="measured", type="timestamp", formats=("epoch_us",)),
    ),
    event_time="measured",
    watermark_seconds=60,
)


def reading(offset: int, *, late_seconds: int = 0) -> bytes:
    measured = START_US + 1000 * offset - 1_000_000 * late_seconds
    return json.dumps({"number": offset, "measured": measured, "unit": "C"}).encode()


def put(log: WrittenLog, count: int, **strange: bytes) -> None:
    first = log.log.next_offset
    log.put(
        *(
            message(
                f"sensors/{n % 3}/temp",
                strange.get(f"n{n}", reading(n)),
                n,
            )
            for n in range(first, first + count)
        )
    )


def numbers(frame: DataFrame) -> list[Any]:
    return sorted(row[0] for row in frame.select("number").collect())


def test_a_log_becomes_tables_and_grows_with_it(  # noqa: PLR0915  (a session costs seconds)
    spark: SparkSession, warehouse: Warehouse, tmp_path: Path
) -> None:
    queries = tmp_path / "queries"
    queries.mkdir()
    (queries / "busy.sql").write_text(
        "select topic, count(*) as rows, max(number) as last from readings group by topic;"
    )
    config = PipelineConfig(
        source=SourceConfig(path=str(tmp_path / "data")),
        silver=(READINGS,),
        silver_rows_max=150,
        gold=GoldConfig(sql=str(queries), session_gap_seconds=1),
    )
    table = warehouse.silver("readings")
    with WrittenLog(tmp_path / "data") as log:
        put(log, 100, n7=b"not json", n8=b'{"number": "x"}', n9=b"{}")
        Pipeline(spark, warehouse, config).run_once()
        assert warehouse.bronze().exists()
        assert numbers(table.read(spark) if table.exists() else spark.range(0)) == [
            n for n in range(100) if n not in {7, 8, 9}
        ]
        # More of it; one row that is late by now, and one that the log has twice.
        put(log, 100, n150=reading(150, late_seconds=600), n151=reading(20))
        abandoned = next(warehouse.bronze().folder.glob("day=*")) / "abandoned.parquet"
        abandoned.write_bytes(b"of a process that was killed")
        os.utime(abandoned, (0, 0))
        Pipeline(spark, warehouse, config).run_once()
        assert not abandoned.exists(), "a run does the upkeep too"
    assert warehouse.bronze().read(spark).count() == 200 if warehouse.bronze().exists() else False
    assert table.exists()
    expected = [n for n in range(200) if n not in {7, 8, 9, 150, 151}] + [20]
    assert numbers(table.read(spark)) == sorted(expected)

    letters = warehouse.dead_letters()
    assert letters.exists()
    found = {row.offset: row for row in letters.read(spark).collect()}
    assert sorted(found) == [7, 8, 9, 150]
    assert bytes(found[7].value) == b"not json"
    assert (found[8].schema, found[8].error) == ("readings", "number is no long: x")
    assert found[150].error.startswith("late: ")

    tables = warehouse.tables()
    assert set(tables) == {
        "bronze", "dead_letters", "readings", "traffic", "exchanges", "latency", "sessions", "busy",
    }  # fmt: skip
    traffic = tables["traffic"].read(spark).collect()
    assert sum(row.messages for row in traffic) == 200
    assert {row.protocol for row in traffic} == {"herald"}
    sessions = tables["sessions"].read(spark).collect()
    assert [(row.sender, row.messages) for row in sessions] == [("somebody", 200)]
    busy = {row.topic: (row["rows"], row.last) for row in tables["busy"].read(spark).collect()}
    counts = Counter(f"sensors/{n % 3}/temp" for n in expected if n != 20)
    counts["sensors/2/temp"] += 1  # 20 itself
    counts["sensors/1/temp"] += 1  # 20 again, at offset 151
    assert busy == {
        topic: (count, max(n for n in expected if n % 3 == int(topic[8])))
        for topic, count in counts.items()
    }
    status = warehouse.read_status()["stages"]
    assert (status["silver.readings"]["lag"], status["bronze"]["error"]) == (0, "")
    assert Pipeline(spark, warehouse, config).progress.values() == {}

    # The schema learns to take them: text, and nothing at all.
    fields = (FieldConfig(name="number"), *READINGS.field[1:], FieldConfig(name="unit"))
    lenient = msgspec.structs.replace(READINGS, name="lenient", field=fields)
    more = msgspec.structs.replace(
        config, silver=(READINGS, lenient), gold=GoldConfig(enabled=False)
    )
    Pipeline(spark, warehouse, more).run_once()
    wide = msgspec.structs.replace(
        READINGS, field=(*READINGS.field[:1], FieldConfig(name="unit"), READINGS.field[1])
    )
    optional = msgspec.structs.replace(wide.field[0], required=False)
    wide = msgspec.structs.replace(wide, field=(optional, *wide.field[1:]))
    assert replay(spark, warehouse, wide) == Replayed("readings", 2, 2)
    assert replay(spark, warehouse, wide) == Replayed("readings", 0, 2)
    assert table.exists()
    assert table.read(spark).where("offset in (9, 150)").count() == 2
    assert table.read(spark).where("unit = 'C'").count() == 1  # the replayed one
    assert table.read(spark).count() == len(expected) + 2
    assert letters.exists()
    left = letters.read(spark).select("schema", "offset").collect()
    assert sorted(map(tuple, left)) == [
        ("lenient", 7),
        ("lenient", 150),
        ("readings", 7),
        ("readings", 8),
    ]

    tables = warehouse.tables()
    source = {"path": str(tmp_path / "data")}
    query = "select count(*) from `sensors/+/temp` a join readings b on a.offset = b.offset"
    assert run_query(spark, query, tables=tables, source=source).collect()[0][0] == 198
    query = "select max(`offset`), '`x`' from `sensors/1/temp` where topic like '%`%' or true;"
    assert tuple(run_query(spark, query, tables={}, source=source).collect()[0]) == (199, "`x`")
    with pytest.raises(NoSuchTopics, match=r"no topic can be meant by '#/x'"):
        run_query(spark, "select * from `#/x`", tables=tables, source=source)
    with pytest.raises(NoSuchTable, match=r"there are: bronze"):
        run_query(
            spark,
            "select * from `long`".replace("long", "x" * 70_000),
            tables=tables,
            source=source,
        )
    with pytest.raises(QueryFailed, match="TABLE_OR_VIEW_NOT_FOUND"):
        run_query(spark, "select * from nothing", tables=tables, source=source)

    rows = to_messages(tables["busy"].read(spark), "gold/busy").collect()
    assert {row.topic for row in rows} == {"gold/busy"}
    sent = [json.loads(bytes(row.value)) for row in rows]
    assert {each["topic"]: (each["rows"], each["last"]) for each in sent} == busy


def test_bronze_does_not_skip_messages_of_a_log_that_replaced_another(
    spark: SparkSession, warehouse: Warehouse, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    strict = PipelineConfig(source=SourceConfig(path=str(data)), gold=GoldConfig(enabled=False))
    lossy = msgspec.structs.replace(
        strict, source=SourceConfig(path=str(data), fail_on_data_loss=False)
    )
    for config, count in ((strict, 10), (lossy, 30)):
        with WrittenLog(data) as log:
            put(log, count)
        if count == 30:
            with pytest.raises(JobFailed, match=r"is now log .*/_checkpoints/bronze, .*fail_on_"):
                Pipeline(spark, warehouse, strict).run_once()
        Pipeline(spark, warehouse, config).run_once()
        shutil.rmtree(data)
    table = warehouse.bronze()
    assert table.exists()
    offsets = sorted(row.offset for row in table.read(spark).select("offset").collect())
    assert offsets == sorted([*range(10), *range(30)])


def plain(name: str) -> SilverConfig:
    return SilverConfig(name=name, topics=("#",), field=(FieldConfig(name="number"),))


def test_every_table_is_updated_while_messages_arrive(
    spark: SparkSession, warehouse: Warehouse, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "counted.sql").write_text("select count(*) as found from bronze")
    config = PipelineConfig(
        source=SourceConfig(path=str(tmp_path / "data")),
        silver=tuple(map(plain, "abc")),
        silver_seconds=0.1,
        gold=GoldConfig(sql=str(tmp_path), seconds=0.1),
    )
    expected = {"a", "b", "c", "traffic", "exchanges", "latency", "sessions", "counted"}
    with WrittenLog(tmp_path / "data") as log:
        put(log, 10)
        pipeline = Pipeline(spark, warehouse, config)
        running = threading.Thread(target=pipeline.run, args=(lambda _: None,))
        running.start()
        deadline = time.monotonic() + SECONDS_MAX
        while not expected <= set(warehouse.tables()) and time.monotonic() < deadline:
            put(log, 1)
            time.sleep(0.05)
        pipeline.stop()
        running.join(SECONDS_MAX)
    assert set(warehouse.tables()) == {*expected, "bronze", "dead_letters"}
    assert "step failed" not in capsys.readouterr().out


def test_a_table_is_behind_until_it_has_been_updated(
    spark: SparkSession, warehouse: Warehouse, tmp_path: Path
) -> None:
    (tmp_path / "counted.sql").write_text("select count(*) as found from a")
    config = PipelineConfig(
        source=SourceConfig(path=str(tmp_path / "data")),
        silver=(plain("a"), plain("b")),
        silver_rows_max=15,
        gold=GoldConfig(sql=str(tmp_path)),
    )
    seen: list[dict[str, int]] = []

    def shown(progress: Progress) -> None:
        lags = {name: stage.lag for name, stage in progress.values().items()}
        if not seen or seen[-1] != lags:
            seen.append(lags)

    with WrittenLog(tmp_path / "data") as log:
        put(log, 20)
        Pipeline(spark, warehouse, config).run_once(shown)
        names = [
            "bronze", "silver.a", "silver.b",
            *(f"gold.{name}" for name in ("traffic", "exchanges", "sessions", "latency", "counted")),
        ]  # fmt: skip
        # Bronze first, then one table after the other.
        assert seen == [
            {name: 0 if number < done else 20 for number, name in enumerate(names)}
            for done in (0, *range(2, len(names) + 1))
        ]
        put(log, 7)
        seen.clear()
        later = msgspec.structs.replace(
            config, silver=(plain("a"), plain("b"), plain("c")), gold=GoldConfig(enabled=False)
        )
        Pipeline(spark, warehouse, later).run_once(shown)
    assert seen[0] == {"bronze": 7, "silver.a": 7, "silver.b": 7, "silver.c": 27}
    assert seen[-1] == {"bronze": 0, "silver.a": 0, "silver.b": 0, "silver.c": 0}
    assert {name: each["lag"] for name, each in warehouse.read_status()["stages"].items()} == seen[
        -1
    ]


def test_a_table_that_fails_does_not_stop_the_others(
    spark: SparkSession, warehouse: Warehouse, tmp_path: Path
) -> None:
    (tmp_path / "bad.sql").write_text("select nothing from bronze")
    config = PipelineConfig(
        source=SourceConfig(path=str(tmp_path / "data")),
        gold=GoldConfig(sql=str(tmp_path)),
    )
    with WrittenLog(tmp_path / "data") as log:
        put(log, 10)
    with pytest.raises(JobFailed, match=r"gold.bad: .*bad.sql: .*UNRESOLVED_COLUMN"):
        Pipeline(spark, warehouse, config).run_once()
    assert warehouse.tables()["traffic"].read(spark).count() == 3
    assert warehouse.read_status()["stages"]["gold.bad"]["error"]


def test_an_error_is_shown_until_the_table_works_again(
    spark: SparkSession, warehouse: Warehouse, tmp_path: Path
) -> None:
    class Flaky:
        name = "gold.flaky"
        fails = True

        def step(self, stage: StageProgress) -> bool:
            if self.fails:
                raise OSError("no space left on device")
            stage.batch_rows = 3
            return False

        def offsets(self, streams: Iterable[Stream]) -> dict[Stream, int]:
            return dict.fromkeys(streams, 0)

    config = PipelineConfig(source=SourceConfig(path=str(tmp_path / "data")))
    with WrittenLog(tmp_path / "data"):
        pass
    pipeline = Pipeline(spark, warehouse, config)
    job = Flaky()
    assert not pipeline._step(job)
    stage = pipeline.progress.values()["gold.flaky"]
    assert "no space left" in stage.error
    assert stage.rows == 0
    job.fails = False
    pipeline._step(job)
    assert (stage.error, stage.rows, stage.batches) == ("", 3, 1)


def test_a_query_that_was_changed_is_computed_anew(
    spark: SparkSession, warehouse: Warehouse, tmp_path: Path
) -> None:
    file = tmp_path / "counted.sql"
    file.write_text("select count(*) as found from bronze")
    config = PipelineConfig(
        source=SourceConfig(path=str(tmp_path / "data")),
        gold=GoldConfig(sql=str(tmp_path)),
    )
    with WrittenLog(tmp_path / "data") as log:
        put(log, 10)
    Pipeline(spark, warehouse, config).run_once()

    def counted() -> list[tuple[object, ...]]:
        return [tuple(row) for row in warehouse.tables()["counted"].read(spark).collect()]

    assert counted() == [(10, 1)]
    file.write_text("select max(offset) as found from bronze")
    Pipeline(spark, warehouse, config).run_once()
    assert counted() == [(9, 2)]
    Pipeline(spark, warehouse, config).run_once()
    assert counted() == [(9, 2)]


def test_two_columns_of_one_name_are_told(
    spark: SparkSession, warehouse: Warehouse, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "twice.sql").write_text("select topic, key as Topic from bronze")
    config = PipelineConfig(
        source=SourceConfig(path=str(tmp_path / "data")),
        gold=GoldConfig(sql=str(tmp_path)),
    )
    with WrittenLog(tmp_path / "data") as log:
        put(log, 1)
    with pytest.raises(JobFailed, match="two columns are named topic; name one of them with AS"):
        Pipeline(spark, warehouse, config).run_once()
    assert "Traceback" not in capsys.readouterr().out


def test_a_table_without_new_rows_gets_no_commit(
    spark: SparkSession, warehouse: Warehouse, tmp_path: Path
) -> None:
    quiet = msgspec.structs.replace(plain("quiet"), topics=("elsewhere/#",))
    config = PipelineConfig(
        source=SourceConfig(path=str(tmp_path / "data")), silver=(plain("a"), quiet)
    )

    def run() -> dict[str, int]:
        Pipeline(spark, warehouse, config).run_once()
        stages = warehouse.read_status()["stages"]
        assert {stage["lag"] for stage in stages.values()} == {0}
        return {name: table.log.refresh() for name, table in warehouse.tables().items()}

    with WrittenLog(tmp_path / "data") as log:
        put(log, 10)
        before = run()
        put(log, 10)
        after = run()
        changed = {name for name, version in after.items() if version != before[name]}
        assert changed == {"bronze", "a", "traffic", "sessions"}
        assert {after[name] - before[name] for name in changed} == {1}
        assert run() == after
    tables = warehouse.tables()
    assert (tables["a"].rows(), tables["quiet"].rows(), tables["latency"].rows()) == (20, 0, 0)
