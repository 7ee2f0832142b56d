"""The measurements of the soak run: freshness by commits, memory by thirds, configuration."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from bench.spark.soak import ALL, QUERIES, Messages, configure, freshness, growth, selected, tables
from bench.spark.soak_load import BAD_EVERY, TOPICS, Sums, topic_of, value_of
from penstock.pipeline.config_loading import load


def commit(table: Path, *, offset: int, moment: float) -> None:
    """Add a row to a table that reflects the messages before an offset since a moment."""
    done = CommitProperties(app_transactions=[Transaction("5f0c2a9be1d4-/0", offset)])
    write_deltalake(table, pa.table({"n": [1]}), mode="append", commit_properties=done)
    last = max((table / "_delta_log").glob("*.json"))
    os.utime(last, (moment, moment))


def test_a_message_is_as_fresh_as_the_first_commit_that_reflects_it(tmp_path: Path) -> None:
    table = tmp_path / "table"
    commit(table, offset=2, moment=110.0)
    commit(table, offset=5, moment=120.0)
    found = Messages(
        offset=np.array([0, 1, 2, 4]),
        moment_us=np.array([100.0, 101.0, 102.0, 119.0]) * 1e6,
        topic=np.array(["a", "a", "soak/00", "a"]),
        kind=np.array(["publish", "request", "publish", "reply"]),
    )
    assert freshness(table, found, selected(found, ALL)).tolist() == [10.0, 9.0, 18.0, 1.0]
    assert selected(found, (0,)).tolist() == [False, False, True, False]
    assert selected(found, "requests").tolist() == [False, True, False, True]
    commit(table, offset=5, moment=130.0)
    later = found._replace(offset=np.array([0, 1, 2, 5]))
    with pytest.raises(SystemExit, match="1 messages are not reflected"):
        freshness(table, later, selected(later, ALL))


def test_memory_is_compared_after_the_first_third() -> None:
    steady = [(0.0, 50, 50)] * 3 + [(0.0, 100, 100)] * 6
    assert growth(steady) == 1.0
    assert growth([(0.0, size, 0) for size in (1, 1, 1, 10, 10, 10, 20, 20, 20)]) == 2.0


def test_the_pipeline_has_twenty_silver_and_ten_gold_tables(tmp_path: Path) -> None:
    config = load(configure(tmp_path, tmp_path / "data"))
    assert len(config.silver) == TOPICS == 20
    names = [name for name in tables() if name.startswith("gold/")]
    assert len(names) == 10
    assert {f"gold/{name}" for name in QUERIES} <= set(names)
    assert [each.topics for each in config.silver] == [(topic_of(n),) for n in range(TOPICS)]


def test_a_message_that_is_no_record_is_no_record_in_any_format() -> None:
    for topic in range(TOPICS):
        assert value_of(topic, BAD_EVERY, 0).startswith(b"lost <")
        assert b"7" in value_of(topic, 7, 0)
    assert Sums([], [], [], []).requests == 0
