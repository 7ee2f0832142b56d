"""A broker with a million topics, and a client that asks for the last message of each.

    python -m bench.macro.last_values [--save] [--quick] [--topics 1000000]

A log is filled with one message of 100 bytes for each topic. "Ready" is the time from the start of
a broker's process to its first accepted connection, and its memory then. A client then subscribes
to all topics with `@last`; "first" and "all" are the times until its first and its last message. A
second client asks again: the broker has found the offsets by then. Memory is that of the process,
less that of a broker with an empty log, for each topic.
"""

import argparse
import socket
import sys
import time
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.macro.peers import HOST
from bench.macro.stores import data_folder, penstock_store
from bench.macro.wires import CLIENT
from bench.micro.log import BUFFER_BYTES, SENDER, VALUE, Appending
from bench.results import save
from penstock._kernels import rheos2 as kernel
from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.wire import rheos2
from penstock.wire.rheos import OpCode

SECONDS_MAX: Final = 600
ACKNOWLEDGMENT_BYTES: Final = 22


def name(number: int) -> bytes:
    return b"plant/%07d/temperature" % number


class Source:
    """Batches with one message for each topic."""

    def __init__(self, count: int) -> None:
        self.topics = TopicTable()
        self._numbers = iter(range(count))

    def next(self) -> Batch:
        """Return the next batch."""
        frames: list[bytes] = []
        for number in self._numbers:
            event = rheos2.Event(SENDER.uuid, OpCode.PUBLISH, name(number), VALUE)
            self.topics.intern(event.name.decode())  # a scan takes few new topics
            frames.append(rheos2.encode(event))
            if len(frames) == BUFFER_BYTES // len(frames[0]):
                break
        batch, buffer = Batch(), b"".join(frames)
        if kernel.scan(buffer, 0, batch, self.topics, SENDER) != len(buffer):
            raise AssertionError("the scan did not take the whole buffer")
        batch.timestamp_us = time.time_ns() // 1000
        return batch


async def fill(folder: Path, count: int) -> None:
    """Write a log with one message for each of `count` topics."""
    appending = Appending(folder, Source(count))  # type: ignore[arg-type]
    await appending.append(count)
    appending.log.close()


def memory(process: int) -> int:
    """Return the resident memory of a process, in bytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmRSS:")).split()[1])


def ask(port: int, count: int) -> tuple[float, float]:
    """Ask for all last messages; return the seconds until the first and until the last one."""
    size = len(rheos2.encode(rheos2.Event(SENDER.uuid, OpCode.PUBLISH, name(0), VALUE)))
    buffer = bytearray(1 << 20)
    with socket.create_connection((HOST, port), timeout=SECONDS_MAX) as peer:
        start = time.monotonic()
        peer.sendall(rheos2.encode(rheos2.Event(CLIENT, OpCode.SUBSCRIBE, b"plant/#@last", b"")))
        left = ACKNOWLEDGMENT_BYTES + size * count
        first = 0.0
        while left > 0:
            received = peer.recv_into(buffer)
            if not received:
                raise SystemExit("the broker closed the connection")
            left -= received
            if not first and left < size * count:
                first = time.monotonic() - start
        if left:
            raise SystemExit(f"{-left} bytes too many")
        return first, time.monotonic() - start


def measure(count: int) -> dict[str, Any]:
    """Return the figures for so many topics."""
    with data_folder() as folder, penstock_store("os", folder=folder) as store:
        empty, empty_ready = memory(store.process.pid), store.ready_seconds
    with data_folder() as folder:
        uvloop.run(fill(folder / "data", count))
        with penstock_store("os", folder=folder) as store:
            ready = memory(store.process.pid)
            first, all_of_them = ask(store.port, count)
            again_first, again_all = ask(store.port, count)
            asked = memory(store.process.pid)
            ready_seconds = store.ready_seconds
    return {
        "topics": count,
        "value_bytes": len(VALUE),
        "ready_seconds": ready_seconds,
        "empty_ready_seconds": empty_ready,
        "ready_bytes_each": (ready - empty) / count,
        "asked_bytes_each": (asked - empty) / count,
        "first_seconds": first,
        "all_seconds": all_of_them,
        "again_first_seconds": again_first,
        "again_all_seconds": again_all,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--topics", type=int, default=1_000_000)
    arguments = parser.parse_args()
    row = measure(10_000 if arguments.quick else arguments.topics)
    print(f"{row['topics']:,} topics with a message of {row['value_bytes']} bytes each")
    print(f"ready after {row['ready_seconds']:.2f} s, empty {row['empty_ready_seconds']:.2f} s")
    print(f"memory {row['ready_bytes_each']:.0f} bytes for each topic when it is ready,")
    print(f"       {row['asked_bytes_each']:.0f} bytes when it has sent the last messages")
    print(f"first after {row['first_seconds']:.2f} s, all after {row['all_seconds']:.2f} s;")
    print(f"again {row['again_first_seconds']:.2f} s and {row['again_all_seconds']:.2f} s")
    if arguments.save:
        print(f"saved to {save('last_values', [row])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
