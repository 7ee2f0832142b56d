"""Dead letters that a schema decodes now go into its table, each once, also after a cut."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from penstock.pipeline.config import FieldConfig, SilverConfig
from penstock.pipeline.dead_letters import Replayed, replay
from penstock.pipeline.silver import dead_letters, silver
from penstock.pipeline.tables import Table
from penstock.pipeline.warehouse import Warehouse
from tests.support.pipeline_records import frame, record

NUMBER = FieldConfig(name="number", type="long", required=True)
STRICT = SilverConfig(name="numbers", topics=("t",), field=(NUMBER,))
LENIENT = msgspec.structs.replace(STRICT, field=(FieldConfig(name="number"),), dedup=("number",))


class Cut(BaseException):
    """The driver has ended."""


def put_letters(spark: SparkSession, warehouse: Warehouse) -> None:
    """Put four letters. LENIENT decodes all but one: two have the same number, one has none."""
    values = [b'{"number": "one"}', b"{", b'{"number": "one"}', b"{}"]
    decoded = silver(frame(spark, [record(n, value) for n, value in enumerate(values)]), STRICT)
    table = warehouse.dead_letters()
    letters = dead_letters(decoded, STRICT)
    table.evolve_schema(letters)
    table.commit(add=table.write(letters))


def offsets(spark: SparkSession, table: Table) -> list[int]:
    return sorted(row.offset for row in table.read(spark).collect())


def test_a_replay_that_is_cut_between_its_commits_can_be_repeated(
    spark: SparkSession, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_letters(spark, warehouse)
    commit = Table.commit

    def cut(table: Table, **files: Any) -> None:
        if table.folder == warehouse.dead_letters().folder:
            raise Cut
        commit(table, **files)

    with monkeypatch.context() as patched:
        patched.setattr(Table, "commit", cut)
        with pytest.raises(Cut):
            replay(spark, warehouse, LENIENT)
    assert offsets(spark, warehouse.silver("numbers")) == [0, 3]
    assert offsets(spark, warehouse.dead_letters()) == [0, 1, 2, 3]
    assert replay(spark, warehouse, LENIENT) == Replayed("numbers", 0, 1)
    assert offsets(spark, warehouse.silver("numbers")) == [0, 3], "also the one without a number"
    assert offsets(spark, warehouse.dead_letters()) == [1]


def test_without_dead_letters_there_is_nothing_to_replay(
    spark: SparkSession, warehouse: Warehouse, tmp_path: Path
) -> None:
    assert replay(spark, warehouse, LENIENT) == Replayed("numbers", 0, 0)
    assert not list(tmp_path.rglob("*.parquet"))
