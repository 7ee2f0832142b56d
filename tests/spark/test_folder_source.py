"""Tasks over a data folder: parts of about the same size, and segments that are missing."""

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import LogDamaged
from penstock.ports.selection import Selection
from penstock.spark.folder_source import FileTask, FolderSource
from penstock.spark.log_source import Losses, Range, ReadRequest
from penstock.spark.options import read_options
from penstock.spark.parallelism import TaskLimit
from penstock.storage.arrow.format.file_names import partition_folder
from penstock.storage.arrow.format.topic_horizons import (
    RuleHorizon,
    TopicHorizons,
    save_horizons,
)
from penstock.storage.files import Files
from tests.support.written_log import WrittenLog

REQUEST = ReadRequest(Selection(), pa.schema([("offset", pa.int64())]), fail_on_data_loss=True)


def tasks(data: Path, *ranges: Range, count: int | None) -> list[Any]:
    losses = Losses(read_options({"path": str(data)}, streaming=False), "test")
    limit = TaskLimit(count, None)
    return list(FolderSource(data).tasks(ranges, REQUEST, limit=limit, losses=losses))


def test_tasks_are_shared_by_the_bytes_of_their_ranges(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        log.put_many(12)
    found = tasks(tmp_path, Range(0, 0, 27), Range(0, 27, 36), count=12)
    assert [each.span.start for each in found] == [0] * 9 + [27] * 3
    assert len(tasks(tmp_path, Range(0, 0, 36), count=None)) == 1, "of a small log"
    assert tasks(tmp_path, Range(0, 5, 5), count=3) == []
    offsets = [
        offset.as_py()
        for each in found
        for batch in each.batches(REQUEST)
        for offset in batch.column(0)
    ]
    assert offsets == list(range(36))


def test_of_a_missing_segment_only_what_was_wanted_is_named(tmp_path: Path) -> None:
    with WrittenLog(tmp_path, segment_bytes_max=1) as log:
        log.put_many(3)
    (task,) = tasks(tmp_path, Range(0, 4, 9), count=1)
    assert isinstance(task, FileTask)
    log.segments()[1].unlink()
    with pytest.raises(LogDamaged) as raised:
        list(task.batches(REQUEST))
    assert (raised.value.offset, raised.value.resumes_at) == (4, 6)


def test_tasks_leave_out_what_has_expired_when_they_were_planned(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        log.put_many(2, rows=4, topics=("a", "b"))
    folder = partition_folder(tmp_path, 0)
    rules = [RuleHorizon(("a",), (), 4), RuleHorizon(("b",), (), 8, {"b": 5})]
    save_horizons(Files(), folder, TopicHorizons(rules))
    found = pickle.loads(pickle.dumps(tasks(tmp_path, Range(0, 0, 8), count=2)))  # noqa: S301
    save_horizons(Files(), folder, TopicHorizons([RuleHorizon(("a",), (), 8), rules[1]]))
    offsets = [
        offset.as_py()
        for each in found
        for batch in each.batches(REQUEST)
        for offset in batch.column(0)
    ]
    assert offsets == [4, 5, 6, 7]
    source = FolderSource(tmp_path)
    assert source.match(Range(0, 0, 8), Selection()).rows == 2
    assert source.match(Range(0, 0, 8), Selection(topics=frozenset({"a"}))).rows == 0
