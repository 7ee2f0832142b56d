"""One Spark session for all tests of a process, and records to try things with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.pipeline.config import WarehouseConfig
from penstock.pipeline.tables import prepare
from penstock.pipeline.warehouse import Warehouse
from penstock.spark.session import session

SMALL = {"spark.sql.codegen.wholeStage": "false", "spark.sql.shuffle.partitions": "1"}
"""For frames of a few rows: to compile a query takes longer than to run it."""


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    found = session(
        "tests", short=True, **{"spark.sql.shuffle.partitions": "1", "spark.driver.memory": "1g"}
    )
    prepare(found)
    for name, value in SMALL.items():
        found.conf.set(name, value)
    return found


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with Warehouse(WarehouseConfig(folder=str(tmp_path / "warehouse"))) as found:
        yield found
