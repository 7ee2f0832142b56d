"""Tasks that read a data folder read the segments that are in an object store too."""

import pickle
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import TierUnavailable
from penstock.ports.selection import Selection
from penstock.spark.folder_source import FolderSource
from penstock.spark.log_source import Losses, Range, ReadRequest
from penstock.spark.options import read_options
from penstock.spark.parallelism import TaskLimit
from penstock.storage.options import Retention, TierOptions
from tests.support.written_log import WrittenLog

REQUEST = ReadRequest(Selection(), pa.schema([("offset", pa.int64())]), fail_on_data_loss=True)
SECONDS_MAX = 20.0


def tiered(data: Path, store: Path) -> None:
    """Write a log of which only the last segment is local."""
    tier = TierOptions(f"file://{store}", local=Retention(bytes_max=1))
    with WrittenLog(data, segment_bytes_max=1, tier=tier) as log:
        log.put_many(6)
        deadline = time.monotonic() + SECONDS_MAX
        while len(log.segments()) > 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def read(data: Path) -> list[int]:
    source = FolderSource(data)
    losses = Losses(read_options({"path": str(data)}, streaming=False), str(data))
    tasks = source.tasks([Range(0, 0, 18)], REQUEST, limit=TaskLimit(3, None), losses=losses)
    sent = pickle.loads(pickle.dumps(tasks))  # noqa: S301  (as Spark does)
    found = [each for task in sent for each in task.batches(REQUEST)]
    return [offset for batch in found for offset in batch.column("offset").to_pylist()]


def test_tasks_wait_for_the_store_and_then_read_every_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("spark.folder_source", "storage.arrow.read.segment_cache"):
        monkeypatch.setattr(f"penstock.{module}.TIER_RETRY_SECONDS", 0.02)
    monkeypatch.setattr("penstock.storage.arrow.write.tiering.TIER_SECONDS", 0.02)
    data, store, away = (tmp_path / name for name in ("data", "store", "away"))
    tiered(data, store)
    store.rename(away)
    store.write_text("a file in place of the folder")
    with monkeypatch.context() as short:
        short.setattr("penstock.spark.folder_source.SPARK_TIER_SECONDS_MAX", 0.1)
        with pytest.raises(TierUnavailable):
            read(data)

    def come_back() -> None:
        store.unlink()
        away.rename(store)

    timer = threading.Timer(0.3, come_back)
    timer.start()
    assert read(data) == list(range(18))
    timer.join()
