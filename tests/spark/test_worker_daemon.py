"""The daemon of Spark's Python workers imports the worker's module and the data source."""

import gc
import sys
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.spark.worker_daemon import _import_worker_modules


def test_only_the_first_argument_is_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["daemon", "pyspark.worker_util", "penstock.none"])
    monkeypatch.delitem(sys.modules, "pyspark.worker_util", raising=False)
    _import_worker_modules()
    assert "pyspark.worker_util" in sys.modules
    assert "penstock.spark.data_source" in sys.modules


def test_a_module_of_others_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["daemon", "none.at.all"])
    _import_worker_modules()


def test_a_worker_does_not_collect_the_objects_of_the_modules(spark: SparkSession) -> None:
    def counts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            numbers = [gc.get_freeze_count(), len(gc.get_objects())]
            yield pa.RecordBatch.from_arrays([pa.array([each]) for each in numbers], ["a", "b"])

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(counts, "a long, b long").collect()
    assert row.a > row.b  # a worker that is used again has objects of earlier tasks, too
