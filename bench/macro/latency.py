"""Latency at constant rates, and that of nats-server in the same run.

    python -m bench.macro.latency [--save] [--quick]

A publisher sends 1,000, 10,000 and 100,000 messages of 100 bytes a second by the clock, whether or
not earlier ones have arrived (open loop): a burst each millisecond, each message stamped when it is
due. A subscriber subtracts the stamp from the time it has the whole message. Neither broker has a
log. Rounds of all brokers alternate; of each broker and rate, the best p50 and the best p99 of all
rounds count.
"""

import argparse
import itertools
import multiprocessing
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bench.macro.peers import HOST, build_newest_nats, nats_server, nats_version, penstock
from bench.macro.pubsub import drain
from bench.macro.wires import WIRES, Wire
from bench.results import save

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

VALUE_BYTES = 100
PER_SECOND = 10_000
BURST = 10
RATES = (1_000, PER_SECOND, 100_000)
BURSTS_PER_SECOND = PER_SECOND // BURST
SECONDS_MAX = 60
STAMP = struct.Struct("<d")

Answers = Callable[[socket.socket, int], None]
"""Reads the answers to so many messages."""


def publish(
    wire: Wire,
    port: int,
    count: int,
    *,
    per_second: int = PER_SECOND,
    burst: int = BURST,
    value_bytes: int = VALUE_BYTES,
    answers: Answers | None = None,
) -> None:
    """Send `count` messages at the rate, each with the time it was due."""
    zeros = bytes(value_bytes - STAMP.size)
    with socket.create_connection((HOST, port), timeout=SECONDS_MAX) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        frame = wire.open_publisher(peer)
        target, size = (
            (drain, count * wire.acknowledged_bytes) if answers is None else (answers, count)
        )
        acknowledgments = threading.Thread(target=target, args=(peer, size), daemon=True)
        acknowledgments.start()
        due = time.monotonic() + 0.1
        for _ in range(count // burst):
            due += burst / per_second
            time.sleep(max(0.0, due - time.monotonic()))
            peer.sendall(frame(STAMP.pack(due) + zeros) * burst)
        acknowledgments.join(SECONDS_MAX)


def subscribe(
    wire: Wire,
    port: int,
    count: int,
    ready: Any,  # noqa: ANN401
    results: "Queue[list[float]]",
    *,
    value_bytes: int = VALUE_BYTES,
) -> None:
    """Receive `count` messages; report the latency of each, in seconds."""
    zeros = bytes(value_bytes - STAMP.size)
    with socket.create_connection((HOST, port), timeout=SECONDS_MAX) as peer:
        size = wire.open_subscriber(peer, bytes(value_bytes))
        ready.release()
        late: list[float] = []
        pending = bytearray()
        # The value has the same position in every delivery; the zeros after the stamp locate it.
        offset = -1
        while len(late) < count:
            pending += peer.recv(65_536)
            now = time.monotonic()
            start = 0
            while len(pending) - start >= size:
                if wire.interjection and pending.startswith(wire.interjection, start):
                    start += len(wire.interjection)
                    continue
                if offset < 0:
                    offset = bytes(pending[start : start + size]).rindex(zeros) - STAMP.size
                late.append(now - STAMP.unpack_from(pending, start + offset)[0])
                start += size
            del pending[:start]
        results.put(late)


def run(
    wire: Wire,
    port: int,
    *,
    count: int,
    publish_port: int | None = None,
    per_second: int = PER_SECOND,
    burst: int = BURST,
    value_bytes: int = VALUE_BYTES,
    subscribers: int = 1,
    answers: Answers | None = None,
) -> dict[str, float]:
    """Return percentiles in microseconds, from `publish_port` or `port` to `port`.

    `answers` reads the answers of a broker whose acknowledgments differ in size.
    """
    context = multiprocessing.get_context("fork")
    ready = context.Semaphore(0)
    results: Queue[list[float]] = context.Queue()
    receivers = [
        context.Process(
            target=subscribe,
            args=(wire, port, count, ready, results),
            kwargs={"value_bytes": value_bytes},
        )
        for _ in range(subscribers)
    ]
    for receiver in receivers:
        receiver.start()
    for _ in receivers:
        if not ready.acquire(timeout=SECONDS_MAX):
            raise SystemExit(f"a {wire.name} subscriber did not get ready")
    source = port if publish_port is None else publish_port
    sender = context.Process(
        target=publish,
        args=(wire, source, count),
        kwargs={
            "per_second": per_second,
            "burst": burst,
            "value_bytes": value_bytes,
            "answers": answers,
        },
    )
    sender.start()
    late: list[float] = []
    for _ in receivers:
        late += results.get(timeout=SECONDS_MAX)
    for process in (sender, *receivers):
        process.join(SECONDS_MAX)
    return percentiles(late)


def percentiles(seconds: list[float]) -> dict[str, float]:
    """Return the percentiles of some times in microseconds."""
    found = sorted(seconds)
    last = len(found) - 1
    return {
        f"p{str(percent).replace('.', '')}_us": found[min(last, int(len(found) * percent / 100))]
        * 1e6
        for percent in (50, 90, 99, 99.9)
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    arguments = parser.parse_args()
    rounds, seconds = (1, 0.2) if arguments.quick else (5, 3.0)
    build_newest_nats()
    best: dict[tuple[int, str], dict[str, float]] = {}
    with penstock() as own, nats_server() as nats:
        for _ in range(rounds):
            for rate, (name, wire) in itertools.product(RATES, WIRES.items()):
                figures = run(
                    wire,
                    nats if name == "nats" else own,
                    count=int(seconds * rate),
                    per_second=rate,
                    burst=rate // BURSTS_PER_SECOND,
                )
                before = best.get((rate, name), figures)
                best[rate, name] = {each: min(figures[each], before[each]) for each in figures}
    print(f"microseconds from due to received, 100 bytes; nats-server {nats_version()}")
    print(f"{'a second':>8} {'protocol':<9} {'p50':>8} {'p90':>8} {'p99':>8} {'p99.9':>8}")
    for (rate, name), figures in best.items():
        print(f"{rate:>8,} {name:<9} " + " ".join(f"{figures[p]:>8.0f}" for p in figures))
    if arguments.save:
        rows = [
            {"protocol": name, "per_second": rate, "nats_version": nats_version(), **found}
            for (rate, name), found in best.items()
        ]
        print(f"saved to {save('latency', rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
