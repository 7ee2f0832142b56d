"""Time to open a large log: after a clean close, and after kill -9.

    python -m bench.macro.opening [--save] [--quick] [--gibibytes 10]

A log is filled with messages of 100 bytes. Before each opening its files are evicted from the page
cache. "Open" is opening the log alone, with the bytes it reads. "Ready" is a whole broker, from the
start of its process to its first accepted connection; the same with an empty folder is the part
that does not depend on the log. For the crash, a broker acknowledges messages in a new segment and
is killed.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import uvloop

from bench.macro import intake
from bench.macro.stores import data_folder, penstock_store
from bench.micro.log import Appending, Source
from bench.results import save
from penstock.storage.arrow.log import ArrowLog

GIB = 1 << 30
READY_SECONDS_MAX = 2.0


async def fill(folder: Path, size: int) -> None:
    """Create a log of `size` bytes and close it."""
    appending = Appending(folder, Source(100))
    while appending.log.status().size < size:
        await appending.append(min(1_000_000, size // 200))
    appending.log.close()


def evict(folder: Path) -> None:
    """Evict all files from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            os.fsync(handle)  # dirty pages are not evicted
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def bytes_read() -> int:
    """Return the bytes that this process has read so far, from files and page cache."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("rchar:"):
            return int(line.split()[1])
    raise AssertionError("/proc/self/io has no rchar")


def open_log(folder: Path) -> tuple[float, int, int]:
    """Open and close a log; return seconds, bytes read and the next offset."""
    evict(folder)
    read = bytes_read()
    start = time.monotonic()
    log = ArrowLog(folder)
    seconds = time.monotonic() - start
    read = bytes_read() - read
    next_offset = log.next_offset
    log.close()
    return seconds, read, next_offset


def ready(folder: Path) -> float:
    """Return the seconds until a broker accepts connections."""
    evict(folder)
    with penstock_store(folder=folder) as store:
        return store.ready_seconds


def crash(folder: Path, count: int) -> None:
    """Kill a broker that has acknowledged `count` messages."""
    with penstock_store(folder=folder) as store:
        intake.run("rheos2", store.port, count=count)
        store.end(signal.SIGKILL)


def measure(*, size: int, crashed_count: int, starts: int = 3) -> list[dict[str, Any]]:
    """Return all figures for a log of `size` bytes."""
    with data_folder() as folder:
        empty = min(ready(folder) for _ in range(starts))
    with data_folder() as folder:
        data = folder / "data"
        uvloop.run(fill(data, size))
        gibibytes = intake.folder_bytes(data) / GIB
        seconds, read, kept = open_log(data)
        clean = {"open_seconds": seconds, "bytes_read": read, "ready_seconds": ready(folder)}
        crash(folder, crashed_count)
        seconds, read, recovered = open_log(data)
        if recovered - kept != crashed_count:
            raise AssertionError(f"{recovered - kept} of {crashed_count} messages recovered")
        crash(folder, crashed_count)
        killed = {"open_seconds": seconds, "bytes_read": read, "ready_seconds": ready(folder)}
    common = {"gibibytes": gibibytes, "empty_ready_seconds": empty}
    return [
        {"end": "clean", **common, **clean},
        {"end": "killed", **common, "unsealed_messages": crashed_count, **killed},
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--gibibytes", type=float, default=10.0)
    arguments = parser.parse_args()
    if arguments.quick:
        results = measure(size=20_000_000, crashed_count=20_000)
    else:
        results = measure(size=int(arguments.gibibytes * GIB), crashed_count=1_000_000)
    print(f"seconds to open a log of {results[0]['gibibytes']:.1f} GiB")
    print(f"{'end':<7} {'open':>6} {'MB read':>8} {'ready':>6} {'ready, empty':>13}")
    for row in results:
        print(
            f"{row['end']:<7} {row['open_seconds']:>6.2f} {row['bytes_read'] / 1e6:>8.1f}"
            f" {row['ready_seconds']:>6.2f} {row['empty_ready_seconds']:>13.2f}"
        )
    if arguments.save:
        print(f"saved to {save('opening', results)}")
    late = results[0]["ready_seconds"] > READY_SECONDS_MAX
    if late:
        print(f"below target: ready after {results[0]['ready_seconds']:.1f} s", file=sys.stderr)
    return int(late and not arguments.quick)


if __name__ == "__main__":
    sys.exit(main())
