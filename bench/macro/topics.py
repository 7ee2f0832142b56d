"""Acknowledged publishes to different numbers of topics, through a broker with its log.

    python -m bench.macro.topics [--save] [--quick] [--rounds 3]

A Rheos v2 client creates the topics, then publishes 100 bytes to each of them in turn, repeatedly:
no two consecutive messages have the same topic. Figures are topics created and messages
acknowledged per second, with `fsync`. Rounds of all numbers of topics alternate; the best of each
counts.
"""

import argparse
import multiprocessing
import socket
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from bench.macro.intake import COUNTERS, SECONDS_MAX, VALUE, WINDOW, WRITE_BYTES, load
from bench.macro.peers import HOST
from bench.macro.stores import penstock_store
from bench.macro.wires import CLIENT
from bench.results import save
from penstock.wire import rheos2
from penstock.wire.rheos import OpCode

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

TOPIC_COUNTS = (1, 100, 10_000, 100_000)
# How many times slower 100,000 topics may be than one topic.
SLOWER_MAX = 1.3


def frames(opcode: OpCode, topic_count: int, data: bytes) -> list[bytes]:
    """Return one frame for each topic."""
    names = (b"plant/%05d/temperature" % number for number in range(topic_count))
    return [rheos2.encode(rheos2.Event(CLIENT, opcode, name, data)) for name in names]


def pieces(each: list[bytes], count: int) -> Iterable[tuple[memoryview, int]]:
    """Return `count` frames in turn, joined into large writes."""
    per_write = WRITE_BYTES // len(each[0])
    while len(each) < per_write:
        each = each * 2
    blocks = [each[first : first + per_write] for first in range(0, len(each), per_write)]
    joined = [(memoryview(b"".join(block)), len(block)) for block in blocks]
    sent = 0
    while sent < count:
        for block, (data, messages) in zip(blocks, joined, strict=True):
            if messages > count - sent:
                rest = block[: count - sent]
                if rest:
                    yield memoryview(b"".join(rest)), len(rest)
                return
            yield data, messages
            sent += messages


def publish(port: int, topic_count: int, count: int, results: "Queue[float]") -> None:
    """Create the topics and publish; report the seconds that each took."""
    with socket.create_connection((HOST, port), timeout=SECONDS_MAX) as peer:
        creations = frames(OpCode.CREATE, topic_count, b"")
        for each, messages in ((creations, topic_count), (None, count)):
            chosen = each or frames(OpCode.PUBLISH, topic_count, VALUE)
            counter = COUNTERS["rheos2"]()
            results.put(load(peer, pieces(chosen, messages), counter, WINDOW))


def run(port: int, *, topic_count: int, count: int) -> tuple[float, float]:
    """Return topics created and messages acknowledged per second."""
    context = multiprocessing.get_context("fork")
    results: Queue[float] = context.Queue()
    client = context.Process(target=publish, args=(port, topic_count, count, results))
    client.start()
    client.join(SECONDS_MAX)
    if client.exitcode != 0:
        client.kill()
        raise SystemExit(f"the publisher to {topic_count} topics failed")
    return topic_count / results.get(timeout=1), count / results.get(timeout=1)


def measure(*, rounds: int, count: int, topic_counts: Iterable[int]) -> list[dict[str, Any]]:
    """Return the best figures for each number of topics."""
    best: dict[int, tuple[float, float]] = {}
    for _ in range(rounds):
        for topic_count in topic_counts:
            with penstock_store("fsync") as store:
                made, rate = run(store.port, topic_count=topic_count, count=count)
            before = best.get(topic_count, (0.0, 0.0))
            best[topic_count] = max(made, before[0]), max(rate, before[1])
    fewest = best[min(best)][1]
    return [
        {
            "topics": topic_count,
            "value_bytes": len(VALUE),
            "topics_made": made,
            "acknowledged": rate,
            "times_slower": fewest / rate,
        }
        for topic_count, (made, rate) in best.items()
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rounds, count = (1, 40_000) if arguments.quick else (arguments.rounds, 2_000_000)
    results = measure(rounds=rounds, count=count, topic_counts=TOPIC_COUNTS)
    print("acknowledged messages of 100 bytes a second, in millions, and topics made a second")
    print(f"{'topics':>8} {'acknowledged':>13} {'times slower':>13} {'topics made':>12}")
    for row in results:
        print(
            f"{row['topics']:>8,} {row['acknowledged'] / 1e6:>13.2f}"
            f" {row['times_slower']:>13.1f} {row['topics_made']:>12,.0f}"
        )
    if arguments.save:
        print(f"saved to {save('topics', results)}")
    slow = [row for row in results if row["times_slower"] > SLOWER_MAX]
    for row in slow:
        print(
            f"below target: {row['topics']:,} topics are {row['times_slower']:.1f} times slower",
            file=sys.stderr,
        )
    return 1 if slow and not arguments.quick else 0


if __name__ == "__main__":
    sys.exit(main())
