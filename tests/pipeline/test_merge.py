"""Silver tables with one row for each key: the newest message wins, each message counts once."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from penstock.errors import InvalidConfig
from penstock.pipeline.config import (
    FieldConfig,
    GoldConfig,
    MergeConfig,
    PipelineConfig,
    SilverConfig,
    SourceConfig,
)
from penstock.pipeline.config_loading import load
from penstock.pipeline.dead_letters import Replayed, replay
from penstock.pipeline.errors import JobFailed
from penstock.pipeline.maintenance import Maintenance, check_table
from penstock.pipeline.pipeline import Pipeline, rebuild
from penstock.pipeline.warehouse import Warehouse
from tests.support.written_log import WrittenLog, message

DEVICES = SilverConfig(
    name="devices",
    topics=("devices/#",),
    field=(
        FieldConfig(name="id", required=True),
        FieldConfig(name="site"),
        FieldConfig(name="state"),
        FieldConfig(name="rank", type="long"),
        FieldConfig(name="tags", array=True),
    ),
    merge=MergeConfig(key=("site", "id"), order_by="rank", delete_when="state = 'gone'"),
)


def put(log: WrittenLog, *rows: tuple[str, str | None, int | None]) -> None:
    """Put messages with the id, the state and the rank of a device."""
    first = log.log.next_offset
    texts = [
        json.dumps({"id": device, "site": "x", "state": state, "rank": rank, "tags": ["t"]})
        for device, state, rank in rows
    ]
    log.put(*(message("devices/s", text.encode(), first + n) for n, text in enumerate(texts)))


def rows_of(folder: Path) -> list[tuple[Any, ...]]:
    found = DeltaTable(str(folder)).to_pyarrow_table(columns=["id", "state", "rank"]).to_pylist()
    return sorted(tuple(row.values()) for row in found)


def test_the_newest_message_of_a_key_wins(
    spark: SparkSession, warehouse: Warehouse, tmp_path: Path
) -> None:
    config = PipelineConfig(
        source=SourceConfig(path=str(tmp_path / "data")),
        silver=(DEVICES,),
        silver_rows_max=4,
        gold=GoldConfig(enabled=False),
    )
    table = warehouse.silver("devices")

    def run() -> int:
        Pipeline(spark, warehouse, config).run_once()
        return table.log.refresh()

    with WrittenLog(tmp_path / "data") as log:
        # In two steps; a, b and d change in a step or in the next, the last b is older.
        put(log, ("a", "new", 1), ("b", "new", 5), ("a", "on", 2), ("c", "new", 1))
        put(log, ("d", "gone", 1), ("b", "old", 4), ("a", "off", 2), ("e", "no rank", None))
        version = run()
        assert rows_of(table.folder) == [("a", "off", 2), ("b", "new", 5), ("c", "new", 1)]
        letters = warehouse.tables()["dead_letters"].read(spark).collect()
        assert [row.error for row in letters] == ["rank is missing, merge needs it"]
        # Without a change nothing is committed, and the messages are not read again.
        put(log, ("b", "old", 1))
        assert run() == version
        assert warehouse.read_status()["stages"]["silver.devices"]["lag"] == 0
        put(log, ("c", "gone", 2), ("b", "gone", 3), ("f", "new", 1))
        assert run() == version + 1
        expected = [("a", "off", 2), ("b", "new", 5), ("f", "new", 1)]
        assert rows_of(table.folder) == expected
        Maintenance(warehouse).compact(table, files_min=2)
        assert rows_of(table.folder) == expected
        put(log, ("a", "last", 9))
        run()
        expected[0] = ("a", "last", 9)
        assert rows_of(table.folder) == expected
        assert rebuild(spark, warehouse, config, "devices") == (3, 1)
        assert rows_of(table.folder) == expected
        assert check_table(warehouse.silver("devices")).problems == []
        # A dead letter that is replayed is merged too.
        by_time = msgspec.structs.replace(
            DEVICES, merge=MergeConfig(key=("site", "id"), delete_when="state = 'gone'")
        )
        assert replay(spark, warehouse, by_time) == Replayed("devices", 1, 0)
        assert rows_of(table.folder) == [*expected[:2], ("e", "no rank", None), expected[2]]

        wrong = msgspec.structs.replace(
            config,
            silver=(
                msgspec.structs.replace(
                    DEVICES, merge=MergeConfig(key=("id",), delete_when="nothing = 1")
                ),
            ),
        )
        put(log, ("a", "x", 10))
        with pytest.raises(JobFailed, match=r"silver devices: merge.delete_when: .*UNRESOLVED"):
            Pipeline(spark, warehouse, wrong).run_once()


def test_columns_of_a_merge_must_exist(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(
        """
[[silver]]
name = "temps"
topics = ["a"]
field = [{ name = "id" }, { name = "tags", array = true }]
dedup = ["id"]
watermark_seconds = 60
merge = { key = ["id", "tags", "x"], order_by = "y" }
"""
    )
    with pytest.raises(InvalidConfig) as error:
        load(file)
    for text in (
        'merge.key: there is no column "tags", or it is an array',
        'merge.key: there is no column "x"',
        'merge.order_by: there is no column "y"',
        "dedup: cannot be used with merge",
    ):
        assert text in str(error.value)
