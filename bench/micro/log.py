"""The log without a network: the cost of an append, and the speed of reading.

    python -m bench.micro.log [--quick] [--save] [--gigabytes 4]

Appends: batches of publish frames of 100 bytes, as from a broker's read, are appended to a log with
`os` durability. All figures are nanoseconds per message. "Taking" is the processor time of the
event loop's thread inside `append`, which delays other clients. "Own" is the processor time of the
whole process, with the thread that builds row groups. "System" is the kernel's time for writing to
the page cache. They are measured while one log grows, then for growing numbers of topics. "In turn"
has consecutive messages of different topics, the worst case: a row group lists all its topics.
"Known" uses 100 of the known topics.

Reading: one thread reads and checks all row groups of a log in the page cache. "Row groups" is the
read of a broker's replay. "Loaded" also loads them into a batch, ready to be encoded. "Records" are
Arrow record batches, as commands and Spark read them. "Topic" selects a topic that is alone in the
log. "One of ten" selects one of ten topics that are in every row group: the messages are those of
the topic, the bytes those of all ten. Processor time per message is shown too; on a busy machine it
is more reliable than wall time.
"""

import argparse
import asyncio
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvloop

from bench.macro.stores import data_folder
from bench.results import save
from penstock._kernels import rheos2 as kernel
from penstock._kernels.batch import Batch, Sender
from penstock._kernels.topics import TopicTable
from penstock.model import Durability
from penstock.storage.arrow.log import ArrowLog
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.reader import StoredRowGroup, read_row_group
from penstock.storage.arrow.read.records import count_topics, record_batches
from penstock.storage.files import Files
from penstock.storage.options import DurabilityRules, LogOptions
from penstock.wire import rheos2
from penstock.wire.rheos import OpCode

BUFFER_BYTES = 256 * 1024
VALUE = bytes(range(100))
SENDER = Sender(bytes(range(16)), 1000)
TOPIC_COUNTS = (1, 100, 10_000, 100_000)
TOPICS_USED = 100
SECONDS_MAX = 120

# The largest allowed ratio of the largest to the smallest figure, and the targets for reading.
GROWTH_MAX = 2.0
READ_MESSAGES_MIN = 5_000_000
READ_BYTES_MIN = 1_000_000_000


class Source:
    """Batches scanned from frames of `topic_count` topics in turn.

    They exist before, and `known` topics in all: a batch is a whole read, while a scan stops after
    some new topics.
    """

    def __init__(self, topic_count: int, *, known: int = 0, batches_min: int = 8) -> None:
        self.topics = TopicTable()
        for number in range(max(known, topic_count)):
            self.topics.intern(_name(number).decode())
        frames = [_frame(number) for number in range(topic_count)]
        per_batch = BUFFER_BYTES // len(frames[0])
        while len(frames) < per_batch * batches_min:
            frames *= 2
        self.batches: list[Batch] = []
        for first in range(0, len(frames) - per_batch + 1, per_batch):
            batch = Batch()
            buffer = b"".join(frames[first : first + per_batch])
            if kernel.scan(buffer, 0, batch, self.topics, SENDER) != len(buffer):
                raise AssertionError("the scan did not take the whole buffer")
            self.batches.append(batch)
        self._next = 0

    def next(self) -> Batch:
        batch = self.batches[self._next]
        self._next = (self._next + 1) % len(self.batches)
        batch.timestamp_us = time.time_ns() // 1000
        return batch


def _frame(number: int) -> bytes:
    event = rheos2.Event(SENDER.uuid, OpCode.PUBLISH, _name(number), VALUE)
    return rheos2.encode(event)


def _name(number: int) -> bytes:
    return b"plant/%05d/temperature" % number


class Appending:
    """A log that the running event loop fills from a source."""

    def __init__(self, folder: Path, source: Source) -> None:
        self.log = ArrowLog(folder, LogOptions(durability=DurabilityRules(Durability.OS)))
        self._source = source
        self._settled = asyncio.Event()
        self.log.attach(source.topics, self._settled.set)

    async def append(self, count: int) -> dict[str, float]:
        """Append at least `count` messages; return nanoseconds per message."""
        taking = 0
        start = resource.getrusage(resource.RUSAGE_SELF)
        clock = time.monotonic_ns()
        first = self.log.next_offset
        while self.log.next_offset - first < count:
            batch = self._source.next()
            begun = time.thread_time_ns()
            self.log.append(batch, "bench")
            taking += time.thread_time_ns() - begun
            await asyncio.sleep(0)
            while self.log.crowded:
                await self._writes()
        while self.log.end < self.log.next_offset:
            await self._writes()
        appended = self.log.next_offset - first
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "taking_ns": taking / appended,
            "own_ns": (used.ru_utime - start.ru_utime) * 1e9 / appended,
            "system_ns": (used.ru_stime - start.ru_stime) * 1e9 / appended,
            "clock_ns": (time.monotonic_ns() - clock) / appended,
        }

    async def _writes(self) -> None:
        self._settled.clear()
        await asyncio.wait_for(self._settled.wait(), SECONDS_MAX)


async def growing(*, gigabytes: float, count: int) -> list[dict[str, Any]]:
    """Return the cost of an append while one log grows."""
    results = []
    with data_folder() as folder:
        appending = Appending(folder, Source(1))
        steps = 5
        await appending.append(count)  # warm-up
        for step in range(steps):
            size = appending.log.status().size
            figures = await appending.append(count)
            results.append({"measure": "size", "gigabytes": size / 1e9, **figures})
            while appending.log.status().size < gigabytes * 1e9 * (step + 1) / (steps - 1):
                if step == steps - 1:
                    break
                await appending.append(count)
        appending.log.close()
    return results


async def many_topics(*, count: int, rounds: int) -> list[dict[str, Any]]:
    """Return the cost of an append for each number of topics; the best of several rounds."""
    cases = [(topics, "in turn") for topics in TOPIC_COUNTS]
    cases += [(topics, "known") for topics in TOPIC_COUNTS[1:]]
    best: dict[tuple[int, str], dict[str, float]] = {}
    for _ in range(rounds):
        for case in cases:
            topics, use = case
            source = Source(topics) if use == "in turn" else Source(TOPICS_USED, known=topics)
            with data_folder() as folder:
                appending = Appending(folder, source)
                await appending.append(max(topics, 1000))  # warm-up: every topic once
                figures = await appending.append(count)
                appending.log.close()
            known = best.get(case, figures)
            best[case] = {name: min(known[name], figures[name]) for name in figures}
    return [
        {"measure": "topics", "topics": topics, "use": use, **figures}
        for (topics, use), figures in best.items()
    ]


async def fill(folder: Path, *, topic_count: int, count: int) -> None:
    appending = Appending(folder, Source(topic_count))
    await appending.append(count)
    appending.log.close()


def read_back(folder: Path, *, rounds: int) -> list[dict[str, Any]]:
    """Return messages and bytes per second of each way to read a log."""
    view = LogView(folder)
    bytes_all = sum(segment.size for segment in view.catalog.segments())
    files = Files()
    topics = TopicTable()
    batch = Batch()
    name = _name(0).decode()
    counts = count_topics(view)

    def row_groups() -> Iterator[StoredRowGroup]:
        for place in view.catalog.places(view.horizon, view.end):
            yield read_row_group(files, place)

    def bare() -> int:
        return sum(row_group.count for row_group in row_groups())

    def loaded() -> int:
        count = 0
        for row_group in row_groups():
            row_group.load(batch, topics)
            count += len(batch)
            batch.clear()
        return count

    def records() -> int:
        return sum(each.num_rows for each in record_batches(view))

    def topic() -> int:
        return sum(each.num_rows for each in record_batches(view, wanted=name.__eq__))

    ways: dict[str, Callable[[], int]] = {"groups": bare, "loaded": loaded, "records": records}
    expected = dict.fromkeys(ways, view.end - view.horizon)
    asked = "topic" if len(counts) == 1 else "one of ten"
    ways[asked] = topic
    expected[asked] = counts[name].messages
    best = dict.fromkeys(ways, 0.0)
    busy = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for way, work in ways.items():
            start, used = time.perf_counter(), time.process_time()
            count = work()
            seconds = time.perf_counter() - start
            busy[way] = min(busy[way], time.process_time() - used)
            if count != expected[way]:
                raise AssertionError(f"{way}: {count} of {expected[way]} messages were read")
            best[way] = max(best[way], 1 / seconds)
    return [
        {
            "measure": "read",
            "way": way,
            "messages": expected[way],
            "messages_a_second": expected[way] * rate,
            "bytes_a_second": bytes_all * rate,
            "processor_ns": busy[way] * 1e9 / expected[way],
        }
        for way, rate in best.items()
    ]


def misses(results: list[dict[str, Any]]) -> list[str]:
    """Return the figures that miss their targets."""
    short = []
    for what, use in (("size", None), ("topics", "known"), ("topics", "in turn")):
        costs = [
            row["own_ns"]
            for row in results
            if row["measure"] == what and row.get("use", use) == use
        ]
        if max(costs) > GROWTH_MAX * costs[0]:
            short.append(
                f"an append costs {max(costs) / (costs[0] or 1):.1f} times more with {what}"
                f" {use or ''}".rstrip()
            )
    for row in results:
        if row["measure"] == "read" and row["way"] in ("records", "topic"):
            if row["messages_a_second"] < READ_MESSAGES_MIN:
                rate = f"{row['messages_a_second'] / 1e6:.1f} million messages"
                short.append(f"{row['way']}: {rate} a second read")
            if row["bytes_a_second"] < READ_BYTES_MIN:
                short.append(f"{row['way']}: {row['bytes_a_second'] / 1e9:.2f} GB a second read")
    return short


def measure(*, gigabytes: float, count: int, rounds: int) -> list[dict[str, Any]]:
    """Return all figures."""
    results = uvloop.run(growing(gigabytes=gigabytes, count=count))
    results += uvloop.run(many_topics(count=count, rounds=rounds))
    for topic_count in (1, 10):
        with data_folder() as folder:
            uvloop.run(fill(folder, topic_count=topic_count, count=count * 3))
            rows = read_back(folder, rounds=rounds)
            results += rows if topic_count == 1 else rows[-1:]
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--gigabytes", type=float, default=4.0, help="how large the log grows")
    arguments = parser.parse_args()
    if arguments.quick:
        results = measure(gigabytes=0.01, count=20_000, rounds=1)
    else:
        results = measure(gigabytes=arguments.gigabytes, count=1_000_000, rounds=5)
    print_tables(results)
    if arguments.save:
        print(f"saved to {save('log', results)}")
    short = misses(results)
    for miss in short:
        print(f"below target: {miss}", file=sys.stderr)
    return 1 if short and not arguments.quick else 0


def print_tables(results: list[dict[str, Any]]) -> None:
    print("nanoseconds of processor time for each message appended, and by the clock")
    print(f"{'log':>23} {'taking':>7} {'own':>7} {'system':>7} {'clock':>7}")
    for row in results:
        if row["measure"] == "read":
            continue
        if "gigabytes" in row:
            log = f"{row['gigabytes']:.1f} GB"
        else:
            log = f"{row['topics']:,} topics {row['use']}"
        figures = " ".join(
            f"{row[name]:>7.0f}" for name in ("taking_ns", "own_ns", "system_ns", "clock_ns")
        )
        print(f"{log:>23} {figures}")
    print("read back from the page cache by one reader")
    print(f"{'':>23} {'million/s':>10} {'GB/s':>6} {'ns each':>8}")
    for row in results:
        if row["measure"] == "read":
            rates = f"{row['messages_a_second'] / 1e6:>10.1f} {row['bytes_a_second'] / 1e9:>6.2f}"
            print(f"{row['way']:>23} {rates} {row['processor_ns']:>8.0f}")


if __name__ == "__main__":
    sys.exit(main())
