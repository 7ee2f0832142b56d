"""The daemon of Spark's Python workers imports the worker's module and the data source."""

import sys

import pytest

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
