"""Latency at constant rates, and that of nats-server in the same run.

    python -m bench.macro.latency [--save] [--quick] [--rounds 5]

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
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bench.macro.pacing import SLACK_NS_MIN, exact_sleep, wait_until
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
BARS = ("p50_us", "p99_us")
"""Percentiles that may not be above those of nats-server at the same rate."""

Times = NDArray[np.float64]
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
        with exact_sleep():
            for _ in range(count // burst):
                due += burst / per_second
                wait_until(due)
                peer.sendall(frame(STAMP.pack(due) + zeros) * burst)
        acknowledgments.join(SECONDS_MAX)


def subscribe(
    wire: Wire,
    port: int,
    count: int,
    ready: Any,  # noqa: ANN401
    results: "Queue[Times]",
    *,
    value_bytes: int = VALUE_BYTES,
) -> None:
    """Receive `count` messages; report the latency of each, in seconds."""
    with socket.create_connection((HOST, port), timeout=SECONDS_MAX) as peer:
        size = wire.open_subscriber(peer, bytes(value_bytes))
        stamps = Stamps(size, size - wire.trailer_bytes - value_bytes, wire.interjection)
        ready.release()
        late: list[Times] = []
        while count > 0:
            data = peer.recv(65_536)
            now = time.monotonic()
            if not data:
                raise ConnectionError("the broker closed the connection")
            due = stamps.take(data)
            late.append(now - due)
            count -= len(due)
        results.put(np.concatenate(late))


class Stamps:
    """Finds the stamps in deliveries of one size, which arrive in pieces.

    A stamp is at `offset` of each. `interjection` may be between two deliveries.
    """

    def __init__(self, size: int, offset: int, interjection: bytes = b"") -> None:
        self._size = size
        self._offset = offset
        self._interjection = interjection
        self._pending = b""

    def take(self, data: bytes) -> Times:
        """Return the stamps of the deliveries that the next piece completes."""
        pending = self._pending + data
        found = []
        start = 0
        while len(pending) - start >= self._size:
            if self._interjection and pending.startswith(self._interjection, start):
                start += len(self._interjection)
                continue
            count = (len(pending) - start) // self._size
            if self._interjection and self._interjection in pending:
                count = 1
            offset = start + self._offset
            found.append(np.ndarray((count,), "<f8", pending, offset, (self._size,)))
            start += count * self._size
        self._pending = pending[start:]
        return np.concatenate(found) if found else np.empty(0)


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
    results: Queue[Times] = context.Queue()
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
    late = [results.get(timeout=SECONDS_MAX) for _ in receivers]
    for process in (sender, *receivers):
        process.join(SECONDS_MAX)
    return percentiles(np.concatenate(late))


def percentiles(seconds: Sequence[float] | Times) -> dict[str, float]:
    """Return the percentiles of some times in microseconds."""
    found = np.sort(seconds)
    last = len(found) - 1
    return {
        f"p{str(percent).replace('.', '')}_us": 1e6
        * float(found[min(last, int(len(found) * percent / 100))])
        for percent in (50, 90, 99, 99.9)
    }


def misses(results: list[dict[str, Any]]) -> list[str]:
    """Return the figures that are above those of nats-server at the same rate."""
    nats = {row["per_second"]: row for row in results if row["protocol"] == "nats"}
    return [
        f"{row['protocol']} at {row['per_second']:,} a second: {name.removesuffix('_us')} of"
        f" {row[name]:.0f} µs, {nats[row['per_second']][name]:.0f} of nats-server"
        for row in results
        for name in BARS
        if row[name] > nats[row["per_second"]][name]
    ]


def measure(*, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Return the best figures of every protocol and of nats, at each rate."""
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
    return [
        {
            "protocol": name,
            "per_second": rate,
            "nats_version": nats_version(),
            "timer_slack_ns": SLACK_NS_MIN,
            **found,
        }
        for (rate, name), found in best.items()
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    rounds, seconds = (1, 0.2) if arguments.quick else (arguments.rounds, 3.0)
    if not arguments.quick:
        build_newest_nats()
    results = measure(rounds=rounds, seconds=seconds)
    print(f"microseconds from due to received, 100 bytes; nats-server {nats_version()}")
    print(f"{'a second':>8} {'protocol':<9} {'p50':>8} {'p90':>8} {'p99':>8} {'p99.9':>8}")
    for row in results:
        figures = " ".join(f"{row[p]:>8.0f}" for p in ("p50_us", "p90_us", "p99_us", "p999_us"))
        print(f"{row['per_second']:>8,} {row['protocol']:<9} {figures}")
    if arguments.save:
        print(f"saved to {save('latency', results)}")
    short = misses(results)
    for miss in short:
        print(f"above target: {miss}", file=sys.stderr)
    return 1 if short and not arguments.quick else 0


if __name__ == "__main__":
    sys.exit(main())
