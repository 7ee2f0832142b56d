"""Wider types, partitions and Z-order: rows stay as they are, for every reader of Delta."""

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from penstock.errors import InvalidConfig
from penstock.pipeline.config_loading import load
from penstock.pipeline.errors import ColumnChanged, JobFailed, PartitionsChanged, QueryFailed
from penstock.pipeline.maintenance import Maintenance, check_table
from penstock.pipeline.pipeline import Pipeline, rebuild
from penstock.pipeline.warehouse import Warehouse
from penstock.pipeline.widening import widened
from tests.support.written_log import WrittenLog, message


def settings(folder: Path, fields: str, more: str = "", gold: str = "enabled = false") -> Path:
    file = folder / "pipeline.toml"
    file.write_text(
        f"""
silver_rows_max = 1000
[source]
path = "data"
[gold]
{gold}
[[silver]]
name = "temps"
topics = ["a"]
field = [{fields}]
{more}
"""
    )
    return file


def put(log: WrittenLog, *values: Any) -> None:
    first = log.log.next_offset
    texts = [json.dumps(value).encode() for value in values]
    log.put(*(message("a", text, first + n) for n, text in enumerate(texts)))


def rows_of(folder: Path, *columns: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table by `deltalake` alone."""
    found = DeltaTable(str(folder)).to_pyarrow_table(columns=["offset", *columns]).to_pylist()
    return [tuple(row.values())[1:] for row in sorted(found, key=lambda row: row["offset"])]


NARROW = """
  { name = "n", type = "int" },
  { name = "x", type = "float" },
  { name = "price", type = "decimal(6,2)" },
  { name = "part", type = "struct", field = [{ name = "count", type = "int" }] },
  { name = "steps", type = "int", array = true },
"""
WIDE = """
  { name = "n", type = "long" },
  { name = "x", type = "double" },
  { name = "price", type = "decimal(12,3)" },
  { name = "part", type = "struct", field = [{ name = "count", type = "long" }, { name = "unit" }] },
  { name = "steps", type = "long", array = true },
"""


def test_types_become_wider_in_one_commit(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "warehouse" / "silver" / "temps"
    columns = ("n", "x", "price", "part", "steps")
    first = {"n": 5, "x": 1.5, "price": "1.25", "part": {"count": 2}, "steps": [1, 2]}
    with WrittenLog(tmp_path / "data") as log:
        config = load(settings(tmp_path, NARROW))
        with Warehouse(config.warehouse) as warehouse:
            put(log, first, {"n": 2**40})
            Pipeline(spark, warehouse, config).run_once()
        version = DeltaTable(str(table)).version()
        config = load(settings(tmp_path, WIDE))
        with Warehouse(config.warehouse) as warehouse:
            put(log, {"n": 2**40, "x": 0.1, "price": "123456789.125", "part": {"count": 2**40,
                                                                               "unit": "C"}})  # fmt: skip
            Pipeline(spark, warehouse, config).run_once()
            old = (5, 1.5, Decimal("1.250"), {"count": 2, "unit": None}, [1, 2])
            new = (2**40, 0.1, Decimal("123456789.125"), {"count": 2**40, "unit": "C"}, None)
            assert rows_of(table, *columns) == [old, new]
            delta = DeltaTable(str(table))
            assert delta.version() == version + 2  # the wider table, and the new row
            assert delta.protocol().min_reader_version == 1
            for path in delta.file_uris():  # a reader that does not convert finds the types too
                assert pq.read_schema(path).field("n").type == pa.int64()
            assert check_table(warehouse.silver("temps")).problems == []
        config = load(settings(tmp_path, NARROW))
        with Warehouse(config.warehouse) as warehouse:
            frame = warehouse.tables()["temps"].read(spark).selectExpr("cast(n as int) as n")
            with pytest.raises(ColumnChanged, match="column n as int64, not int32"):
                warehouse.silver("temps").evolve_schema(frame)


def test_only_types_that_hold_every_value_are_wider() -> None:
    def schema(kind: pa.DataType) -> pa.Schema:
        return pa.schema([("a", kind), ("b", pa.string())])

    for old, new, fits in (
        (pa.int32(), pa.int64(), True),
        (pa.int64(), pa.int32(), False),
        (pa.float32(), pa.float64(), True),
        (pa.int32(), pa.float64(), False),
        (pa.decimal128(6, 2), pa.decimal128(8, 2), True),
        (pa.decimal128(6, 2), pa.decimal128(8, 4), True),
        (pa.decimal128(6, 2), pa.decimal128(7, 4), False),
        (pa.decimal128(6, 2), pa.decimal128(8, 1), False),
        (pa.decimal128(6, 2), pa.decimal128(6, 2), False),
        (pa.string(), pa.int64(), False),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64()), True),
    ):
        found = widened(schema(old), schema(new))
        assert (found == schema(new)) if fits else found is None, (old, new)


FIELDS = '{ name = "site" }, { name = "at", type = "timestamp" }, { name = "n", type = "int" }'
SITES = ("plain", "a b", "ü/ö", "50%", "x=y:z", "[*]{?}", "..", 'O\'Neill "q"', "007", None)


def test_a_table_is_partitioned_by_columns_and_time_units(
    spark: SparkSession, tmp_path: Path
) -> None:
    more = 'partition_by = ["site", "month(at)", "hour(at)"]\nz_order = ["n"]'
    sql = tmp_path / "queries"
    sql.mkdir()
    (sql / "counts.sql").write_text(
        "select site, at, count(*) as rows from temps group by site, at"
    )
    gold = 'sql = "queries"\n[[gold.table]]\nname = "counts"\npartition_by = ["site", "day(at)"]'
    config = load(settings(tmp_path, FIELDS, more, gold))
    folder = tmp_path / "warehouse"
    at, month, hour = "2026-11-15T01:30:00Z", dt.date(2026, 11, 1), "2026-11-15 01"
    wanted: list[tuple[Any, ...]] = [("plain", 7, None, None)]
    unfit = ({"site": ""}, {"site": "x" * 61}, {"site": "__HIVE_DEFAULT_PARTITION__"})
    with WrittenLog(tmp_path / "data") as log, Warehouse(config.warehouse) as warehouse:
        put(log, {"site": "plain", "n": 7}, *unfit)
        for n in range(2):
            put(log, *({"site": site, "at": at, "n": n} for site in SITES))
            wanted += [(str(site), n, month, hour) for site in SITES]
            Pipeline(spark, warehouse, config).run_once()

        def found() -> list[tuple[Any, ...]]:
            rows = rows_of(folder / "silver/temps", "n", "site", "at_month", "at_hour")
            return sorted(((str(site), n, *more) for n, site, *more in rows), key=str)

        def shown() -> list[tuple[Any, ...]]:
            """Return the rows as the pipeline itself reads them."""
            rows = warehouse.tables()["temps"].read(spark)
            names = ("site", "n", "at_month", "at_hour")
            return sorted(
                ((str(row[0]), *row[1:]) for row in rows.select(*names).collect()), key=str
            )

        expected = sorted(wanted, key=str)
        assert found() == expected
        assert shown() == expected
        delta = DeltaTable(str(folder / "silver/temps"))
        assert delta.metadata().partition_columns == ["site", "at_month", "at_hour"]
        letters = rows_of(folder / "dead_letters", "error")
        assert len(letters) == len(unfit)
        assert all("cannot name a partition, it needs 1 to 60 bytes" in row[0] for row in letters)
        counts = DeltaTable(str(folder / "gold/counts"))
        assert counts.metadata().partition_columns == ["site", "at_day"]
        assert counts.to_pyarrow_table(columns=["rows"]).num_rows == len(SITES) + 1

        table = warehouse.tables()["temps"]
        maintenance = Maintenance(warehouse, config.silver)
        assert len(table.log.files()) == len(SITES) + 1  # `run_once` merges those of a partition
        version = table.log.refresh()
        maintenance.compact(table, files_min=2)
        assert table.log.refresh() == version
        assert check_table(table).problems == []
        assert rebuild(spark, warehouse, config, "temps") == (len(wanted), len(unfit))
        assert found() == expected


def test_the_partitions_of_a_table_do_not_change(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "queries").mkdir()
    query = tmp_path / "queries" / "counts.sql"
    query.write_text("select site, count(*) as rows from temps group by site")
    gold = 'sql = "queries"\n[[gold.table]]\nname = "counts"\npartition_by = ["nothing"]'
    config = load(settings(tmp_path, FIELDS, 'partition_by = ["site", "day(at)"]'))
    with WrittenLog(tmp_path / "data") as log, Warehouse(config.warehouse) as warehouse:
        put(log, {"site": "x"})
        Pipeline(spark, warehouse, config).run_once()
        for more, text in (('partition_by = ["site"]', "site"), ("", "day")):
            other = load(settings(tmp_path, FIELDS, more))
            with pytest.raises(
                PartitionsChanged, match=f"by site, at_day, not {text}, which cannot"
            ):
                rebuild(spark, warehouse, other, "temps")
        put(log, {"site": "x"})
        with pytest.raises(JobFailed, match="set partition_by as before, or stop the pipeline"):
            Pipeline(spark, warehouse, other).run_once()
        more = 'partition_by = ["site", "day(at)"]'
        with pytest.raises(QueryFailed, match="nothing"):
            rebuild(spark, warehouse, load(settings(tmp_path, FIELDS, more, gold)), "counts")


def test_z_order_sorts_a_partition_again_when_it_has_grown(
    spark: SparkSession, tmp_path: Path
) -> None:
    config = load(settings(tmp_path, FIELDS, 'partition_by = []\nz_order = ["site", "n"]'))
    with WrittenLog(tmp_path / "data") as log, Warehouse(config.warehouse) as warehouse:
        table = warehouse.silver("temps")

        def grow() -> None:
            for _ in range(2):
                put(log, *({"site": "ba"[n % 2], "n": -n} for n in range(50)))
                Pipeline(spark, warehouse, config).run_once()
            table.log.refresh()

        grow()
        files = table.log.files()
        assert len(files) == 1  # by `run_once`, which sorts
        read = pq.read_table(table.folder / files[0].path, columns=["site", "n"]).to_pylist()
        places = [row["site"] for row in read]
        assert places != [place for _ in range(2) for place in "ba" * 25]
        assert sorted(places) == sorted("ba" * 50)


@pytest.mark.parametrize(
    ("more", "key", "problem"),
    [
        ('partition_by = ["x"]', "partition_by", 'there is no column "x"'),
        ('partition_by = ["Site!"]', "partition_by[0]", "a column, or year, month, day or hour"),
        ('partition_by = ["day(site)"]', "partition_by", 'needs a column of type "timestamp"'),
        ('partition_by = ["at"]', "partition_by", "partitioned by a timestamp; use day(at)"),
        ('partition_by = ["site", "site"]', "partition_by", "names a column twice"),
        ('z_order = ["day"]', "z_order", "no partitions"),
        (
            'merge = { key = ["n"] }\npartition_by = ["site"]',
            "partition_by",
            "must be in merge.key",
        ),
    ],
)
def test_partitions_need_columns_that_fit(
    tmp_path: Path, more: str, key: str, problem: str
) -> None:
    with pytest.raises(InvalidConfig) as error:
        load(settings(tmp_path, FIELDS, more))
    assert f"silver[0].{key}: " in str(error.value)
    assert problem in str(error.value)


def test_only_tables_of_sql_files_have_other_partitions(tmp_path: Path) -> None:
    for gold, problem in (
        ('[[gold.table]]\nname = "traffic"\npartition_by = ["topic"]', "always partitioned by day"),
        ('[[gold.table]]\nname = "mine"\npartition_by = ["topic"]', "needs gold.sql"),
    ):
        with pytest.raises(InvalidConfig) as error:
            load(settings(tmp_path, FIELDS, "", gold))
        assert problem in str(error.value)
