"""Opens a log with an object store, and kills its own process at a named point of tiering.

python -m tests.crash.tier_driver DATA URL POINT BYTES_MAX
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from penstock._kernels.topics import TopicTable
from penstock.storage.arrow.log import ArrowLog
from penstock.storage.arrow.read.tiered_files import TieredFiles
from penstock.storage.arrow.write import tiering
from penstock.storage.object_store import Copied, ObjectStore
from penstock.storage.options import LogOptions, Retention, TierOptions

POINTS = {
    "half of the segment is uploaded": False,
    "the segment is uploaded, its index is not": False,
    "all is uploaded, there is no marker": False,
    "the marker has its temporary name": False,
    "the marker is written, the local segment is there": False,
    "the local segment is removed": False,
    "the horizon is moved, nothing is deleted": True,
    "the first object is deleted": True,
    "all objects are deleted, the marker is there": True,
}
"""The points, and whether retention must run to reach them."""


def run(data: Path, url: str, point: str, bytes_max: int) -> None:
    def reached(name: str) -> None:
        if name == point:
            os.kill(os.getpid(), signal.SIGKILL)

    class Store(ObjectStore):
        def upload(
            self, source: Path, name: str, going: Callable[[], bool] = lambda: True
        ) -> Copied:
            if name.endswith(".arrows") and point == "half of the segment is uploaded":
                half = source.read_bytes()[: source.stat().st_size // 2]
                with self.writing(name) as stream:
                    stream.write(half)
                    if self.scheme != "file":
                        stream.close()  # as a store that keeps the part
                    reached(point)
            copied = super().upload(source, name, going)
            if name.endswith(".arrows"):
                reached("the segment is uploaded, its index is not")
            return copied

        def delete(self, name: str) -> bool:
            existed = super().delete(name)
            reached("the first object is deleted")
            return existed

    class KillingFiles(TieredFiles):
        def rename(self, path: Path, new: Path) -> None:
            if new.name.endswith(".tiered.json"):
                reached("the marker has its temporary name")
            super().rename(path, new)

        def replace(self, path: Path, content: bytes) -> None:  # type: ignore[override]
            if path.name.endswith(".tiered.json"):
                reached("all is uploaded, there is no marker")
            super().replace(path, content)
            if path.name == "log.json":
                reached("the horizon is moved, nothing is deleted")

        def remove(self, path: Path) -> None:
            if path.name.endswith(".arrows"):
                reached("the marker is written, the local segment is there")
            if path.name.endswith(".tiered.json"):
                reached("all objects are deleted, the marker is there")
            super().remove(path)
            if path.name.endswith(".arrows"):
                reached("the local segment is removed")

    tiering.ObjectStore = Store  # type: ignore[misc]
    tiering.TIER_SECONDS = 0.05  # type: ignore[misc]
    retention = Retention(bytes_max=bytes_max or None)
    tier = TierOptions(url, local=Retention(bytes_max=1))

    async def live() -> None:
        options = LogOptions(segment_bytes_max=1, retention=retention, tier=tier)
        ArrowLog(data, options, files=KillingFiles()).attach(TopicTable(), lambda: None)
        await asyncio.sleep(30)

    asyncio.run(live())


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
