"""Latency at a constant rate with every message in the log, and without a log.

    python -m bench.macro.log_latency [--save] [--quick] [--rounds 3]

10,000 messages of 100 bytes a second by the clock, whether or not earlier ones have arrived, as in
`bench.macro.latency`. "Acknowledged" is the time from when a message is due to its acknowledgment,
which with `fsync` is sent when the message is on disk. "Delivered" is the time to a subscriber;
delivery does not wait for the disk. The figures are those of the best round by its p99.
"""

import argparse
import multiprocessing
import socket
import sys
import time
from typing import Any

from bench.macro import latency
from bench.macro.intake import ACKNOWLEDGED, COUNTERS, VALUE
from bench.macro.latency import BURST, PER_SECOND, SECONDS_MAX
from bench.macro.peers import HOST
from bench.macro.stores import penstock_store
from bench.macro.wires import WIRES
from bench.results import save

DURABILITIES = ("memory", "os", "fsync")
DELIVERED = ("herald", "rheos2")
ACKNOWLEDGED_PROTOCOL = "rheos2"


def send(peer: socket.socket, frame: bytes, count: int, start: float) -> None:
    """Send `count` messages at the rate, the first at `start`."""
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    due = start
    for _ in range(count // BURST):
        time.sleep(max(0.0, due - time.monotonic()))
        peer.sendall(frame * BURST)
        due += BURST / PER_SECOND


def acknowledged(name: str, port: int, *, count: int) -> dict[str, float]:
    """Return percentiles in microseconds from due to acknowledged."""
    context = multiprocessing.get_context("fork")
    with socket.create_connection((HOST, port), timeout=SECONDS_MAX) as peer:
        frame = ACKNOWLEDGED[name].open_publisher(peer)(VALUE)
        counter = COUNTERS[name]()
        start = time.monotonic() + 0.2
        sender = context.Process(target=send, args=(peer, frame, count, start))
        sender.start()
        buffer = memoryview(bytearray(65_536))
        late: list[float] = []
        while len(late) < count:
            received = peer.recv_into(buffer)
            now = time.monotonic()
            if not received:
                raise SystemExit("the broker closed the connection")
            for _ in range(counter.count(buffer[:received])):
                late.append(now - start - len(late) // BURST * BURST / PER_SECOND)
        sender.join(SECONDS_MAX)
    late.sort()
    return {f"p{percent}_us": late[len(late) * percent // 100] * 1e6 for percent in (50, 90, 99)}


def measure(*, rounds: int, count: int) -> list[dict[str, Any]]:
    """Return the best figures of every durability."""
    best: dict[tuple[str, str, str], dict[str, float]] = {}

    def take(key: tuple[str, str, str], figures: dict[str, float]) -> None:
        if key not in best or figures["p99_us"] < best[key]["p99_us"]:
            best[key] = figures

    for _ in range(rounds):
        for durability in DURABILITIES:
            with penstock_store(durability) as store:
                name = ACKNOWLEDGED_PROTOCOL
                figures = acknowledged(name, store.port, count=count)
                take(("acknowledged", name, durability), figures)
                for name in DELIVERED:
                    figures = latency.run(WIRES[name], store.port, count=count)
                    take(("delivered", name, durability), figures)
    return [
        {
            "measure": what,
            "protocol": name,
            "durability": durability,
            "per_second": PER_SECOND,
            **figures,
        }
        for (what, name, durability), figures in sorted(best.items())
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rounds, count = (1, 2_000) if arguments.quick else (arguments.rounds, 50_000)
    results = measure(rounds=rounds, count=count)
    print("microseconds from due, at 10,000 messages of 100 bytes a second")
    print(f"{'':<13} {'protocol':<9} {'durability':<11} {'p50':>7} {'p90':>7} {'p99':>7}")
    for row in results:
        figures = " ".join(f"{row[name]:>7.0f}" for name in ("p50_us", "p90_us", "p99_us"))
        print(f"{row['measure']:<13} {row['protocol']:<9} {row['durability']:<11} {figures}")
    if arguments.save:
        print(f"saved to {save('log_latency', results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
