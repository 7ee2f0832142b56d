"""One Spark session for all tests of a process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.spark import session
from tests.support.written_log import WrittenLog


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    settings = {"spark.sql.shuffle.partitions": "1", "spark.default.parallelism": "2"}
    made = session("tests", master="local[2]", short=True, **settings)
    yield made
    made.stop()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WrittenLog]:
    """A log of small segments that is being written."""
    with WrittenLog(tmp_path / "data", segment_bytes_max=32_768) as written:
        yield written
