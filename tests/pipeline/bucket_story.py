"""The pipeline with a warehouse in a bucket; a process of its own, so that Spark has its variables.

python -m tests.pipeline.bucket_story FOLDER URL
"""

import sys
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from penstock.pipeline.config_loading import load
from penstock.pipeline.maintenance import Maintenance, check_table
from penstock.pipeline.pipeline import Pipeline, rebuild
from penstock.pipeline.query import run_query
from penstock.pipeline.warehouse import Warehouse
from penstock.spark import session
from tests.support.written_log import WrittenLog, message

CONFIG = """
[source]
path = "data"
[warehouse]
folder = "{url}"
[bronze]
rows_max = 20
[[silver]]
name = "readings"
topics = ["a/#"]
field = [{{ name = "number", type = "{type}", required = true }}{more}]
[[silver]]
name = "newest"
topics = ["a/#"]
field = [{{ name = "number", type = "long", required = true }}, {{ name = "key" }}]
merge = {{ key = ["key"], order_by = "number" }}
"""

FEW_ROWS = {"spark.sql.shuffle.partitions": "1", "spark.sql.codegen.wholeStage": "false"}


def put(log: WrittenLog, count: int) -> None:
    first = log.log.next_offset
    log.put(
        *(
            message(
                "a/b",
                b"strange" if n % 10 == 7 else b'{"number": %d, "key": "k%d"}' % (n, n % 3),
                n,
            )
            for n in range(first, first + count)
        )
    )


def configured(folder: Path, url: str, kind: str, more: str = "") -> Path:
    path = folder / "pipeline.toml"
    path.write_text(CONFIG.format(url=url, type=kind, more=more))
    return path


def numbers(url: str) -> list[int]:
    """The rows of the silver table by `deltalake` alone."""
    return sorted(DeltaTable(f"{url}/silver/readings").to_pyarrow_table()["number"].to_pylist())


def main(folder: Path, url: str) -> None:
    config = load(configured(folder, url, "int"))
    spark: SparkSession = session("bucket", master="local[2]", short=True, **FEW_ROWS)
    good = [n for n in range(40) if n % 10 != 7]
    with WrittenLog(folder / "data") as log, Warehouse(config.warehouse) as warehouse:
        put(log, 40)  # two batches of bronze
        Pipeline(spark, warehouse, config).run_once()
        assert numbers(url) == good
        tables = warehouse.tables()
        assert {"bronze", "dead_letters", "readings", "newest", "traffic"} <= set(tables), tables
        assert tables["bronze"].read(spark).count() == 40
        assert sorted(row.offset for row in tables["dead_letters"].read(spark).collect()) == [
            n for n in range(40) if n % 10 == 7 for _ in range(2)
        ]
        newest = DeltaTable(f"{url}/silver/newest").to_pyarrow_table().to_pylist()
        assert {row["key"]: row["number"] for row in newest} == {"k0": 39, "k1": 34, "k2": 38}

        maintenance = Maintenance(warehouse)
        bronze = warehouse.bronze()
        assert maintenance.compact(bronze, files_min=2) > 0
        assert len(bronze.log.files()) == 1
        for table in warehouse.tables().values():
            assert check_table(table).problems == []
        maintenance.delete_history(bronze, now=4e9)
        assert len(bronze.log.paths_on_disk()) == 1
        assert bronze.log.vacuum(seconds=-10) == 0
        query = "select count(*) as n, max(number) as last from readings"
        (row,) = run_query(spark, query, tables=warehouse.tables(), source={}).collect()
        assert (row.n, row.last) == (36, 39)

        config = load(configured(folder, url, "long", ', { name = "key" }'))
        assert rebuild(spark, warehouse, config, "readings").rows == 36
        rows = DeltaTable(f"{url}/silver/readings").to_pyarrow_table()
        assert sorted(rows["number"].to_pylist()) == good
        assert rows["key"].null_count == 0
        assert not warehouse.store.objects("_rebuild")
        put(log, 20)
        Pipeline(spark, warehouse, config).run_once()
        assert numbers(url) == [n for n in range(60) if n % 10 != 7]
    assert not (folder / "s3:").exists()
    assert (folder / "warehouse-state" / "_status.json").exists()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
