"""Tables: every record once, whatever comes again; others can open them; they stay small."""

import datetime as dt
from pathlib import Path

import duckdb
import polars as pl
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.bronze import BronzeWriter, bronze_offsets
from penstock.pipeline.config import WarehouseConfig
from penstock.pipeline.data_files import DataFile
from penstock.pipeline.errors import ColumnChanged, WarehouseInUse
from penstock.pipeline.offsets import Slice, Stream, next_slices
from penstock.pipeline.tables import Table
from penstock.pipeline.warehouse import Warehouse
from penstock.storage.dictionaries import RECORD_SCHEMA
from tests.support.pipeline_records import arrow, frame, record

OURS = Stream("01234567-89ab", 0)


def test_bronze_has_every_record_once_in_every_column_whatever_comes_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    given = [
        record(
            n,
            None if n == 3 else b"value %d" % n,
            key=b"k" if n % 2 else None,
            headers=[{"key": "h", "value": b"\x00"}] if n % 5 == 0 else [],
            created=dt.datetime(2026, 1, 1, microsecond=n, tzinfo=dt.UTC) if n % 3 else None,
            status=n if n % 4 else None,
        )
        for n in range(120)  # the day changes in the middle
    ]
    again = record(5, b"of another log", log=0xAAAAAAAAAAAA)
    other = record(7, b"of another partition", partition=3)
    warehouse = Warehouse(WarehouseConfig(folder=str(tmp_path)))
    with warehouse:
        writer = BronzeWriter(warehouse.bronze())
        assert writer.write(frame(spark, given[:50])) == 50
        assert writer.write(frame(spark, given[:50])) == 0
        assert writer.write(frame(spark, given[30:90])) == 40
        # As after a restart: nothing is known but what the table says.
        writer = BronzeWriter(warehouse.bronze())
        assert writer.write(frame(spark, [*given, again, other]).repartition(3)) == 32
        assert writer.offsets == {
            OURS: 120,
            Stream("01234567-89ab", 3): 8,
            Stream("aaaaaaaa-aaaa", 0): 6,
        }
        assert bronze_offsets(warehouse.bronze()) == writer.offsets
        table = warehouse.bronze()
        assert table.exists()
        assert {each.day for each in table.log.files()} == {"2026-11-14", "2026-11-15"}
        count = len(table.log.files())
        assert table.log.compact(files_min=2, size=1 << 27) == count - 2
        assert len(table.log.files()) == 2
        found = table.read(spark).drop("day").toArrow().sort_by([("message_id", "ascending")])
        expected = arrow([*given, again, other]).sort_by([("message_id", "ascending")])
        assert found.cast(RECORD_SCHEMA).to_pylist() == expected.to_pylist()
        assert table.log.vacuum(seconds=0) == count
        parquet = {
            path for path in tmp_path.rglob("bronze/**/*.parquet") if "_delta" not in str(path)
        }
        assert len(parquet) == 2
        assert table.read(spark).count() == 122


def test_others_open_the_tables(spark: SparkSession, warehouse: Warehouse) -> None:
    BronzeWriter(warehouse.bronze()).write(frame(spark, [record(n, b"%d" % n) for n in range(90)]))
    folder = str(warehouse.folder / "bronze")
    expected = (90, sum(range(90)))
    with_polars = pl.read_delta(folder)
    assert (with_polars.height, with_polars["offset"].sum()) == expected
    with_pandas = DeltaTable(folder).to_pandas()
    assert (len(with_pandas), with_pandas["offset"].sum()) == expected
    bronze: ds.Dataset = DeltaTable(folder).to_pyarrow_dataset()
    query = "select count(*), sum(\"offset\") from bronze where day >= date '2026-11-14'"
    assert duckdb.connect().register("bronze", bronze).execute(query).fetchone() == expected
    by_files = duckdb.read_parquet(DeltaTable(folder).file_uris(), hive_partitioning=True)
    counts = by_files.aggregate("count(*), count(distinct day)").fetchall()
    assert counts == [(90, 2)]


def test_a_column_may_be_added_but_not_change_its_type(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(tmp_path / "t", partition_by=())
    for number, extra in enumerate(("", ", 'x' as note")):
        rows = spark.sql(f"select {number} as number{extra}")
        table.evolve_schema(rows)
        table.commit(add=table.write(rows), transactions={"n": number})
    found = sorted(map(tuple, table.read(spark).select("number", "note").collect()))
    assert found == [(0, None), (1, "x")]
    assert table.log.transaction_version("n") == 1
    with pytest.raises(ColumnChanged, match=r"table t has column number as int32, not string"):
        table.evolve_schema(spark.sql("select 'one' as number"))
    assert table.read(spark).where(f.col("note").isNull()).count() == 1


def test_reading_a_table_without_rows_does_not_change_the_active_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Table(tmp_path / "t", partition_by=())
    table.evolve_schema(spark.createDataFrame([], "a int not null, b array<string>"))
    other = spark.newSession()
    frame = table.read(other)
    assert frame.columns == ["a", "b"]
    assert frame.collect() == []
    assert SparkSession.getActiveSession() is spark


def test_what_a_killed_process_left_is_no_part_of_a_table_and_is_vacuumed(
    spark: SparkSession, tmp_path: Path
) -> None:
    config = WarehouseConfig(folder=str(tmp_path))
    with Warehouse(config) as warehouse:
        table = warehouse.gold("t", partition_by=())
        rows = spark.range(10)
        table.evolve_schema(rows)
        table.commit(add=table.write(rows))
        table.write(rows)  # and no commit
        (table.folder / "_staging" / "x").mkdir(parents=True)
        assert len(list(table.folder.glob("*.parquet"))) == 2 * len(table.log.files())
        assert table.read(spark).count() == 10
    with Warehouse(config) as warehouse:
        table = warehouse.gold("t")
        assert table.read(spark).count() == 10
        uncommitted = len(table.log.files())
        assert table.log.vacuum(seconds=0) == uncommitted
        assert len(list(table.folder.glob("*.parquet"))) == len(table.log.files())
        assert not (table.folder / "_staging").exists()


def test_two_processes_do_not_write_one_warehouse(warehouse: Warehouse) -> None:
    assert warehouse.is_running()
    with pytest.raises(WarehouseInUse, match=r"another pipeline writes .*: stop it"):
        Warehouse(warehouse.config).__enter__()


def test_a_plan_takes_no_more_rows_than_asked_and_waits_for_none_that_are_not_there() -> None:
    def file(low: int, high: int) -> DataFile:
        return DataFile("p", 1, high - low + 1, None, {"offset": low}, {"offset": high}, {}, 0)

    files = [file(100, 199), file(500, 599)]
    until = {OURS: 600}

    def planned(start: int, rows_max: int) -> list[Slice]:
        return next_slices(files, done={OURS: start}, until=until, rows_max=rows_max)

    assert planned(0, 50) == [Slice(OURS, 100, 150)]
    assert planned(150, 50) == [Slice(OURS, 150, 200)]
    assert planned(200, 50) == [Slice(OURS, 500, 550)]
    assert planned(550, 500) == [Slice(OURS, 550, 600)]
    assert planned(600, 500) == []
    assert next_slices([], done={}, until={}, rows_max=1) == []
