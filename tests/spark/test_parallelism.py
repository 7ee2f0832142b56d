"""Tasks are planned by the cores that run them, or by size where they are not known."""

import os
from pathlib import Path

import pytest

from penstock.limits import SPARK_TASK_BYTES, SPARK_TASK_BYTES_MIN, SPARK_TASKS_BY_SIZE_MAX
from penstock.spark.options import read_options
from penstock.spark.parallelism import PARALLELISM, cores_of, is_local, task_count
from penstock.spark.reader import BatchReader
from penstock.spark.schema import RECORD
from tests.support.written_log import WrittenLog, message

EXECUTORS = {"spark.executor.cores": "4", "spark.executor.instances": "3"}


@pytest.mark.parametrize(
    ("master", "settings", "local", "cores"),
    [
        ("local", {}, True, 1),
        ("local[3]", {}, True, 3),
        ("local[3, 2]", {}, True, 3),
        ("local[*]", {}, True, os.cpu_count()),
        ("local[*]", {"spark.default.parallelism": "7"}, True, 7),
        ("local-cluster[2,3,512]", {}, True, 6),
        ("spark://a:7077,b:7077", {}, False, None),
        ("spark://localhost:7077", {"spark.cores.max": "9"}, False, 9),
        ("yarn", EXECUTORS, False, 12),
        ("k8s://https://local:6443", {"spark.executor.cores": "4"}, False, None),
        ("localhost", {}, False, None),
    ],
)
def test_only_a_local_master_is_local(
    master: str,
    settings: dict[str, str],
    local: bool,  # noqa: FBT001
    cores: int | None,
) -> None:
    assert is_local(master) is local
    assert cores_of(master, settings) == cores


def test_tasks_are_as_many_as_cores_or_by_size() -> None:
    def count(size: int, cores: int | None) -> int:
        return task_count(
            size, cores=cores, size_min=SPARK_TASK_BYTES_MIN, size_usual=SPARK_TASK_BYTES
        )

    assert [count(1, cores) for cores in (1, 64, None)] == [1, 1, 1]
    assert count(100 * SPARK_TASK_BYTES, 64) == 64
    assert count(100 * SPARK_TASK_BYTES, None) == max(100, os.cpu_count() or 1)
    assert count(10**6 * SPARK_TASK_BYTES, None) == SPARK_TASKS_BY_SIZE_MAX
    assert count(2 * SPARK_TASK_BYTES_MIN, 64) == 3


def test_a_read_is_planned_by_the_cores_of_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with WrittenLog(tmp_path) as log:
        for _ in range(3):
            log.put(message("a", os.urandom(SPARK_TASK_BYTES_MIN)))

    def tasks(**options: str) -> int:
        given = read_options({"path": str(tmp_path), **options}, streaming=False)
        return len(BatchReader(given, RECORD).partitions())

    for cores in ("1", "3"):
        monkeypatch.setenv(PARALLELISM, cores)
        assert tasks() == int(cores)
        assert tasks(minPartitions="2") == 2
    monkeypatch.delenv(PARALLELISM)
    assert tasks() == min(os.cpu_count() or 1, 3)
