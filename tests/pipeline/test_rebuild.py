"""Rebuild: a table is computed again from bronze, and replaced in one commit or not at all."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from penstock.pipeline.config_loading import load
from penstock.pipeline.errors import CannotRebuild, NoSuchTable
from penstock.pipeline.maintenance import check_table
from penstock.pipeline.pipeline import Pipeline, rebuild
from penstock.pipeline.warehouse import Warehouse
from tests.support.written_log import WrittenLog, message

SECONDS_MAX = 180
BEFORE = '[{ name = "number", type = "int", required = true }]'
AFTER = '[{ name = "number", type = "long" }, { name = "unit" }]'


def toml(fields: str, *, rows_max: int = 1000) -> str:
    return f"""
silver_rows_max = {rows_max}
[source]
path = "data"
[[silver]]
name = "temps"
topics = ["a/#"]
field = {fields}
[[silver]]
name = "others"
topics = ["#"]
field = [{{ name = "number", type = "int", required = true }}]
"""


def put(log: WrittenLog, count: int) -> None:
    first = log.log.next_offset
    log.put(
        *(
            message(
                "a/b", b'{"unit": "C"}' if n % 10 == 7 else b'{"number": %d, "unit": "C"}' % n, n
            )
            for n in range(first, first + count)
        )
    )


def rows_of(folder: Path, *columns: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table by `deltalake` alone."""
    found = DeltaTable(str(folder)).to_pyarrow_table(columns=["offset", *columns]).to_pylist()
    return sorted(tuple(row.values()) for row in found)


def test_a_field_that_is_added_later_is_filled_for_old_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(toml(BEFORE))
    config = load(file)
    temps, letters, gold = (
        tmp_path / "warehouse" / each for each in ("silver/temps", "dead_letters", "gold/traffic")
    )
    with WrittenLog(tmp_path / "data") as log, Warehouse(config.warehouse) as warehouse:
        put(log, 40)
        Pipeline(spark, warehouse, config).run_once()
        old = [(n, n) for n in range(40) if n % 10 != 7]
        assert rows_of(temps, "number") == old
        assert len(rows_of(letters)) == 8
        version, counted = DeltaTable(str(temps)).version(), rows_of_traffic(gold)

        file.write_text(toml(AFTER, rows_max=15))  # several steps, and another type
        config = load(file)
        assert rebuild(spark, warehouse, config, "temps") == (40, 0)
        expected = [(n, None if n % 10 == 7 else n, "C") for n in range(40)]
        assert rows_of(temps, "number", "unit") == expected
        assert DeltaTable(str(temps)).version() == version + 1
        assert {row[1] for row in rows_of(letters, "schema")} == {"others"}
        assert not (tmp_path / "warehouse" / "_rebuild").exists()

        assert rebuild(spark, warehouse, config, "traffic").rows == len(counted)
        assert rows_of_traffic(gold) == counted
        with pytest.raises(CannotRebuild, match="cannot rebuild bronze: its rows are in no other"):
            rebuild(spark, warehouse, config, "bronze")
        with pytest.raises(NoSuchTable, match="there are: exchanges, latency, others, sessions"):
            rebuild(spark, warehouse, config, "x")

        put(log, 10)  # and on
        Pipeline(spark, warehouse, config).run_once()
        expected = [(n, None if n % 10 == 7 else n, "C") for n in range(50)]
        assert rows_of(temps, "number", "unit") == expected
        assert sum(row[1] for row in rows_of_traffic(gold)) == 50
        for table in warehouse.tables().values():
            assert check_table(table).problems == []


def rows_of_traffic(folder: Path) -> list[tuple[Any, ...]]:
    columns = ["window_start", "messages", "bytes"]
    found = DeltaTable(str(folder)).to_pyarrow_table(columns=columns).to_pylist()
    return sorted(tuple(row.values()) for row in found)


def test_a_rebuild_that_is_killed_leaves_the_old_table(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(toml(BEFORE))
    config = load(file)
    temps = tmp_path / "warehouse" / "silver" / "temps"
    with WrittenLog(tmp_path / "data") as log, Warehouse(config.warehouse) as warehouse:
        put(log, 200)
        Pipeline(spark, warehouse, config).run_once()
    old = rows_of(temps, "number")
    version = DeltaTable(str(temps)).version()

    file.write_text(toml(AFTER, rows_max=5))
    program = Path(sys.executable).parent / "penstock"
    command = [program, "pipeline", "rebuild", "temps", "--config", file]
    process = subprocess.Popen(command, start_new_session=True)  # noqa: S603
    try:
        beside = tmp_path / "warehouse" / "_rebuild" / "silver" / "temps"
        deadline = time.monotonic() + SECONDS_MAX
        while len(list(beside.glob("day=*/*.parquet"))) < 3:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert rows_of(temps, "number") == old
    assert DeltaTable(str(temps)).version() == version

    file.write_text(toml(AFTER))
    config = load(file)
    with Warehouse(config.warehouse) as warehouse:
        assert not (tmp_path / "warehouse" / "_rebuild").exists()
        assert rebuild(spark, warehouse, config, "temps") == (200, 0)
        assert check_table(warehouse.silver("temps")).problems == []
    assert {row[1] for row in rows_of(temps, "unit")} == {"C"}


@pytest.mark.parametrize("step", ["_replace", "remove_old_letters"])
def test_dead_letters_are_those_of_the_table_after_a_rebuild_was_killed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(toml(BEFORE))
    config = load(file)
    temps, letters = (tmp_path / "warehouse" / each for each in ("silver/temps", "dead_letters"))
    with WrittenLog(tmp_path / "data") as log:
        with Warehouse(config.warehouse) as warehouse:
            put(log, 20)
            Pipeline(spark, warehouse, config).run_once()
        old = rows_of(temps), rows_of(letters, "schema")

        def killed(*_: object) -> None:
            raise KeyboardInterrupt

        put(log, 10)
        with Warehouse(config.warehouse) as warehouse, monkeypatch.context() as patch:
            Pipeline(spark, warehouse, config).start_bronze(once=True).awaitTermination()
            patch.setattr(f"penstock.pipeline.rebuild.{step}", killed)
            with pytest.raises(KeyboardInterrupt):
                rebuild(spark, warehouse, config, "temps")
        with Warehouse(config.warehouse) as warehouse:
            found = rows_of(temps), rows_of(letters, "schema")
            new = (
                [(n,) for n in range(30) if n % 10 != 7],
                [(7, "others"), (7, "temps"), (17, "others"), (17, "temps"), (27, "temps")],
            )
            assert found == (old if step == "_replace" else new)
            Pipeline(spark, warehouse, config).run_once()
            assert rows_of(temps) == new[0]
            assert rows_of(letters, "schema") == sorted([*new[1], (27, "others")])
            assert check_table(warehouse.dead_letters()).problems == []
