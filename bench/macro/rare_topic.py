"""Bytes that a broker reads to replay a topic which is one in 10,000 messages of its log.

    python -m bench.macro.rare_topic [--save] [--quick] [--gibibytes 10]

A log is filled with messages of 100 bytes of 100 topics, at full speed, so that its row groups are
as large as they get. One message in 10,000 is of another topic: in "bursts" of 1,000 messages, as a
job or a device that uploads sends them, or "spread" evenly. Then a broker is started, a client
replays this topic from the earliest message, and the bytes that the broker has read by system calls
meanwhile are divided by the size of the log. A topic that is spread is in almost every row group;
there its messages are read by the row indexes of the segments, which a thread of the broker writes
after a segment is closed. The replay begins when they are complete.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.macro.intake import folder_bytes
from bench.macro.peers import HOST
from bench.macro.stores import data_folder, penstock_store
from bench.micro.log import SENDER, VALUE, Appending
from bench.results import save
from penstock._kernels import rheos2 as kernel
from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.client import connect
from penstock.storage.arrow.format.file_names import partition_folder
from penstock.wire import rheos2
from penstock.wire.rheos import OpCode

GIB: Final = 1 << 30
ONE_IN: Final = 10_000
BURST: Final = 1_000
TOPICS: Final = 100
BATCH_MESSAGES: Final = 2_000
RARE: Final = "rare"
SHARE_MAX: Final = 0.02
"""Target share of the log, for a topic in bursts and for one that is spread."""
INDEX_SECONDS_MAX: Final = 120.0
"""Limit of the wait for row indexes."""


class Source:
    """Batches of messages with some of the rare topic: one in ONE_IN, `burst` at a time."""

    def __init__(self, burst: int) -> None:
        self.topics = TopicTable()
        self.rare = 0
        self._burst = burst
        self._messages = 0
        self._often = [
            rheos2.encode(rheos2.Event(SENDER.uuid, OpCode.PUBLISH, b"often/%d" % number, VALUE))
            for number in range(TOPICS)
        ] * (BATCH_MESSAGES // TOPICS)
        self._frame = rheos2.encode(rheos2.Event(SENDER.uuid, OpCode.PUBLISH, RARE.encode(), VALUE))
        self._usual = self._batch(0)
        self._with_rare = self._batch(burst)

    def _batch(self, rare: int) -> Batch:
        batch = Batch()
        buffer = b"".join([self._frame] * rare + self._often[rare:])
        if kernel.scan(buffer, 0, batch, self.topics, SENDER) != len(buffer):
            raise AssertionError("the scan did not take the whole buffer")
        return batch

    def next(self) -> Batch:
        """Return the next batch."""
        self._messages += BATCH_MESSAGES
        batch = self._usual
        if self._messages >= (self.rare + self._burst) * ONE_IN:
            batch = self._with_rare
            self.rare += self._burst
        batch.timestamp_us = time.time_ns() // 1000
        return batch


async def fill(folder: Path, size: int, burst: int) -> int:
    """Write a log of `size` bytes; return the number of messages of the rare topic."""
    source = Source(burst)
    appending = Appending(folder, source)  # type: ignore[arg-type]
    while appending.log.status().size < size:
        await appending.append(100_000)
    appending.log.close()
    return source.rare


def bytes_read(process: int) -> int:
    """Return the bytes that a process has read by system calls."""
    lines = Path(f"/proc/{process}/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("rchar:")).split()[1])


def wait_for_row_indexes(folder: Path) -> float:
    """Wait until all segments but the last have a row index; return the seconds.

    The last one may be too short to have a message of the topic, and is indexed first.
    """
    start = time.monotonic()
    segments = sorted(folder.glob("*.arrows"))[:-1]
    while not all(path.with_suffix(".rows").exists() for path in segments):
        if time.monotonic() - start > INDEX_SECONDS_MAX:
            raise TimeoutError("the row indexes are not complete")
        time.sleep(0.05)
    return time.monotonic() - start


async def replay(port: int, count: int) -> float:
    """Receive `count` messages of the rare topic from the earliest on; return the seconds."""
    start = time.monotonic()
    async with (
        connect(f"tcp://{HOST}:{port}", protocol="lamamq", timeout=600) as client,
        await client.subscribe(f"{RARE}@earliest") as messages,
    ):
        for _ in range(count):
            async with asyncio.timeout(600):
                await anext(messages)
    return time.monotonic() - start


def run(size: int, burst: int) -> dict[str, Any]:
    """Return the figures of one log."""
    with data_folder() as folder:
        count = uvloop.run(fill(folder / "data", size, burst))
        stored = folder_bytes(folder / "data")
        with penstock_store("os", folder=folder) as store:
            waited = 0.0
            if burst == 1:  # a burst is not rare in its row group, and needs none
                waited = wait_for_row_indexes(partition_folder(folder / "data", 0))
            before = bytes_read(store.process.pid)
            seconds = uvloop.run(replay(store.port, count))
            read = bytes_read(store.process.pid) - before
        index_bytes = sum(path.stat().st_size for path in (folder / "data").rglob("*.rows"))
    return {
        "gibibytes": stored / GIB,
        "messages": count,
        "burst": burst,
        "bytes_read": read,
        "share": read / stored,
        "seconds": seconds,
        "index_bytes": index_bytes,
        "index_seconds": waited,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--gibibytes", type=float, default=10.0)
    arguments = parser.parse_args()
    size = 20_000_000 if arguments.quick else int(arguments.gibibytes * GIB)
    results = [run(size, burst) for burst in ((10, 1) if arguments.quick else (BURST, 1))]
    print("a replay of a topic that is 1 in 10,000 messages")
    for row in results:
        print(
            f"{row['messages']:,} messages, {row['burst']} at a time, {row['gibibytes']:.2f} GiB:"
            f" {row['bytes_read'] / 1e6:.1f} MB read, {row['share']:.2%}, {row['seconds']:.2f} s;"
            f" row indexes of {row['index_bytes'] / 1e6:.2f} MB, {row['index_seconds']:.1f} s"
        )
    if arguments.save:
        print(f"saved to {save('rare_topic', results)}")
    large = [row for row in results if row["share"] > SHARE_MAX]
    if large and not arguments.quick:
        print(f"below target: {large[0]['share']:.1%} of the log read", file=sys.stderr)
    return int(bool(large) and not arguments.quick)


if __name__ == "__main__":
    sys.exit(main())
