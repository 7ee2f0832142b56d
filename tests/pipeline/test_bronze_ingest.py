"""Ingest into bronze: the task that reads records writes them as files, each record once."""

import datetime as dt
import json
from collections.abc import Sequence
from pathlib import Path

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.pipeline.bronze import BronzeWriter, bronze
from penstock.pipeline.bronze_ingest import BatchIngest, DailyParquetFiles
from penstock.pipeline.config import WarehouseConfig
from penstock.pipeline.offsets import Stream
from penstock.pipeline.tables import STAGING
from penstock.pipeline.warehouse import Warehouse
from penstock.spark.options import read_options
from penstock.spark.schema import RECORD, arrow_schema
from penstock.spark.stream import StreamReader
from penstock.spark.stream_offsets import JsonOffsets
from penstock.storage.dictionaries import RECORD_SCHEMA
from tests.spark.test_batch import let_go
from tests.support.pipeline_records import arrow, frame, record
from tests.support.written_log import WrittenLog

GIVEN = [
    record(
        n,
        None if n == 3 else b"value %d" % n,
        key=b"k" if n % 2 else None,
        headers=[{"key": "h", "value": b"\x00"}] if n % 5 == 0 else None,
        created=dt.datetime(2026, 1, 1, microsecond=n, tzinfo=dt.UTC) if n % 3 else None,
        status=n if n % 4 else None,
    )
    for n in range(120)  # the day changes in the middle
]


def ingest(folder: Path, records: Sequence[dict[str, object]]) -> list[str]:
    """Write records as a task does that gets them in two batches."""
    schema = arrow_schema(RECORD)
    table = arrow(records).cast(schema).combine_chunks()
    with DailyParquetFiles(folder, schema) as files:
        for batch in table.to_batches(max_chunksize=len(records) // 2 + 1):
            files.write(batch)
        return files.close()


def test_ingested_records_are_there_once_and_equal_to_what_spark_would_have_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    config = WarehouseConfig(folder=str(tmp_path))
    again = record(5, b"of another log", log=0xAAAAAAAAAAAA)
    other = record(7, b"of another partition", partition=3)
    with Warehouse(config) as warehouse:
        folder = warehouse.bronze().folder
        writer = BronzeWriter(warehouse.bronze())
        assert writer.add_files(ingest(folder, GIVEN[:50])) == 50
        assert writer.add_files(ingest(folder, GIVEN[:50])) == 0
        assert writer.add_files(ingest(folder, GIVEN[30:90])) == 40
        # As after a restart: nothing is known but what the table says.
        writer = BronzeWriter(warehouse.bronze())
        assert writer.add_files([*ingest(folder, GIVEN), *ingest(folder, [again, other])]) == 32
        assert writer.offsets == {
            Stream("01234567-89ab", 0): 120,
            Stream("01234567-89ab", 3): 8,
            Stream("aaaaaaaa-aaaa", 0): 6,
        }
        table = warehouse.bronze()
        assert table.exists()
        found = table.read(spark)
        expected = bronze(frame(spark, [*GIVEN, again, other]))
        assert found.columns == expected.columns
        in_order = [each.orderBy("message_id").collect() for each in (found, expected)]
        assert in_order[0] == in_order[1]
        listed = {each.path for each in table.log.files()}
        there = {str(each.relative_to(folder)) for each in folder.glob("day=*/*.parquet")}
        assert there == listed, "what was not taken is not left"


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    schema = arrow_schema(RECORD)
    batch = arrow(GIVEN).cast(schema).combine_chunks().to_batches()[0]
    with pytest.raises(ValueError, match="schema does not match"):  # noqa: PT012, SIM117
        with DailyParquetFiles(tmp_path, schema) as files:
            files.write(batch)
            assert list((tmp_path / STAGING).iterdir())
            files.write(batch.select(["timestamp"]))
    assert not list(tmp_path.rglob("*.parquet"))


def test_others_open_ingested_files(warehouse: Warehouse) -> None:
    table = warehouse.bronze()
    BronzeWriter(table).add_files(ingest(table.folder, GIVEN))
    folder = str(table.folder)
    with_polars = pl.read_delta(folder)
    assert sorted(with_polars["message_id"]) == [each["message_id"] for each in GIVEN]
    with_pandas = DeltaTable(folder).to_pandas()
    assert sorted(with_pandas["message_id"]) == [each["message_id"] for each in GIVEN]
    with_duckdb = duckdb.read_parquet(DeltaTable(folder).file_uris(), hive_partitioning=True)
    rows = with_duckdb.project(", ".join(f'"{name}"' for name in RECORD.names)).to_arrow_table()
    assert rows.cast(RECORD_SCHEMA).sort_by("offset").to_pylist() == arrow(GIVEN).to_pylist()


def test_messages_of_other_topics_that_retention_takes_do_not_end_the_ingest(
    tmp_path: Path,
) -> None:
    """Once broken: the driver writes a batch that Spark has planned, and knew less than Spark."""
    options = {"path": str(tmp_path / "data"), "subscribe": "quiet"}
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)

    def plan(number: int, start: JsonOffsets) -> JsonOffsets:
        end = planner.latestOffset(start, ReadAllAvailable())
        lines = ["v1", "{}", json.dumps(end)]
        (checkpoint / "offsets" / str(number)).write_text("\n".join(lines))
        return end

    with WrittenLog(tmp_path / "data", segment_bytes_max=1) as log:
        planner = StreamReader(read_options(options, streaming=True), RECORD)
        start = planner.initialOffset()
        log.put_many(1, topics=("quiet",))
        end = plan(0, start)
        log.put_many(3, topics=("busy",))
        log.put_many(1, topics=("quiet",))
        end = plan(1, end)
        log.put_many(3, topics=("busy",))
        assert planner.latestOffset(end, ReadAllAvailable()) == end
        let_go(log, 3)
        ingest = BatchIngest(options, tmp_path / "table", checkpoint)
        no_frame: DataFrame = None  # type: ignore[assignment]
        (path,) = ingest.write(no_frame, 1)
        assert pl.read_parquet(tmp_path / "table" / path)["offset"].to_list() == [12, 13, 14]
        let_go(log, len(log.segments()) - 1)
        assert plan(2, end) != end, "the checkpoint moves on"
        assert ingest.write(no_frame, 2) == []
