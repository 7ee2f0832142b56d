"""A broker that is killed at any point of tiering loses nothing, and lists nothing twice."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.ports import PartitionRange
from penstock.ports.selection import Selection
from penstock.storage.arrow.format.file_names import partition_folder
from penstock.storage.object_store import ObjectStore
from penstock.storage.options import Retention, TierOptions
from tests.crash.tier_driver import POINTS
from tests.support.object_store import bucket, s3_endpoint
from tests.support.written_log import WrittenLog

__all__ = ["bucket", "s3_endpoint"]

SEGMENTS = 6
SECONDS_MAX = 30.0


@pytest.mark.parametrize("point", POINTS)
def test_killed_in_the_middle_of_tiering(
    point: str, tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.storage.arrow.write.tiering.TIER_SECONDS", 0.05)
    retained = POINTS[point]
    data, folder = tmp_path, partition_folder(tmp_path, 0)
    tier = TierOptions(bucket, local=Retention(bytes_max=1)) if retained else None
    with_log(data, tier, count=SEGMENTS)
    sizes = [path.stat().st_size for path in folder.glob("*.arrows")]
    bytes_max = 3 * max(sizes) if retained else 0

    command = [sys.executable, "-m", "tests.crash.tier_driver", data, bucket, point, bytes_max]
    done = subprocess.run(  # noqa: S603  (our own program)
        list(map(str, command)),
        env=os.environ,
        timeout=SECONDS_MAX,
        check=False,
        capture_output=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]

    tier = TierOptions(bucket, local=Retention(bytes_max=1))
    first = 3 * (SEGMENTS - 3) if retained else 0
    found = with_log(data, tier, count=0, retention=Retention(bytes_max=bytes_max or None))
    assert found == [b"%d" % n for n in range(first, 3 * SEGMENTS)]
    expected = {
        f"{base:020}{suffix}"
        for base in range(first, 3 * SEGMENTS, 3)
        for suffix in (".arrows", ".index")
    }
    assert {each.name.rpartition("/")[2] for each in ObjectStore(bucket).objects()} == expected
    markers = sorted(int(path.name[:20]) for path in folder.glob("*.tiered.json"))
    assert markers == list(range(first, 3 * SEGMENTS, 3))


def with_log(
    data: Path, tier: TierOptions | None, *, count: int, retention: Retention | None = None
) -> list[bytes]:
    """Open a log, write segments, and wait until the store has them all; return all values."""
    log = WrittenLog(data, segment_bytes_max=1, tier=tier, retention=retention or Retention())
    try:
        log.put_many(count)
        deadline = time.monotonic() + SECONDS_MAX
        while tier is not None and not _settled(log):
            assert time.monotonic() < deadline, log.log.status().tier
            time.sleep(0.01)
        segments = [each.base_offset for each in log.log.status().segments]
        assert segments == sorted(set(segments))
        assert log.log.recovered.damage == []
        bounds = log.log.bounds()[0]
        span = PartitionRange(0, bounds.horizon, bounds.end)
        batches = log.log.scan(span, Selection())
        return [value for batch in batches for value in batch.column("value").to_pylist()]
    finally:
        log.close()


def _settled(log: WrittenLog) -> bool:
    """Whether all closed segments are in the store, and no other, and one of them is local."""
    status = log.log.status()
    closed = len(status.segments) - (log.log.next_offset > 0 and _is_writing(log))
    tier = status.tier
    assert tier is not None
    return (tier.segments, tier.waiting_segments) == (closed, 0) and tier.local_segments == 1


def _is_writing(log: WrittenLog) -> bool:
    return log.log._committer._segment is not None
