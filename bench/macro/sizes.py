"""Throughput by the size of messages, beside nats-server and a bare relay in the same run.

    python -m bench.macro.sizes [--save] [--quick] [--rounds 3]

One publisher and one subscriber, as in `bench.macro.pubsub`, with values of 16 to 10,000 bytes and
brokers that store nothing. The relay is a C program of one thread that reads from one connection
and writes to another, and looks at nothing. It moves as many bytes as the frames of a protocol's
publisher have, with reads as large as the smaller and the larger ones of Penstock; the better
counts. Rounds of all alternate; the best of each counts. Every run lasts at least a second.
"""

import argparse
import contextlib
import socket
import sys
from functools import partial
from typing import Any, Final

from bench.macro.peers import (
    HOST,
    bare_relay,
    build_newest_nats,
    nats_server,
    nats_version,
    penstock,
)
from bench.macro.pubsub import SECONDS_MAX, run
from bench.macro.rates import SECONDS, Rates
from bench.macro.wires import WIRES, Relay, Wire
from bench.results import save
from penstock.limits import LARGE_READ_BYTES, RECEIVE_BUFFER_BYTES

SIZES: Final = (16, 100, 1_000, 10_000)
READ_BYTES: Final = (RECEIVE_BUFFER_BYTES, LARGE_READ_BYTES)
TIMES_NATS_MIN: Final = {16: 5.6, 100: 4.5, 1_000: 1.8, 10_000: 1.2}
"""Target ratios to nats-server, in every protocol."""


def frame_bytes(wire: Wire, port: int, value: bytes) -> int:
    """Return the size of what a publisher sends for a value."""
    with socket.create_connection((HOST, port), timeout=SECONDS_MAX) as peer:
        return len(wire.open_publisher(peer)(value))


def measure(*, rounds: int, seconds: float = SECONDS) -> list[dict[str, Any]]:
    """Return the best figures of every protocol, nats-server and the relay, for each size."""
    rates = Rates(seconds)
    frames: dict[tuple[str, int], int] = {}
    with contextlib.ExitStack() as stack:
        own, nats = stack.enter_context(penstock()), stack.enter_context(nats_server())
        relays = {size: stack.enter_context(bare_relay(size)) for size in READ_BYTES}
        for size in SIZES:
            value = bytes(number % 251 for number in range(size))
            for _ in range(rounds):
                for name, wire in WIRES.items():
                    port = nats if name == "nats" else own
                    frames[name, size] = frame_bytes(wire, port, value)
                    rates.take((name, size), partial(_load, wire, port, value))
                    for read_bytes, relay in relays.items():
                        load = partial(_load, Relay(), relay, bytes(frames[name, size]))
                        rates.take((name, size, read_bytes), load)
    rows = []
    for (name, size), length in frames.items():
        rate, nats_rate = rates.best[name, size], rates.best["nats", size]
        relay_rate = max(rates.best[name, size, read_bytes] for read_bytes in READ_BYTES)
        row = {"protocol": name, "value_bytes": size, "frame_bytes": length}
        row |= {"published": rate, "relayed": relay_rate, "times_nats": rate / nats_rate}
        rows.append({**row, "times_relay": rate / relay_rate, "nats_version": nats_version()})
    return rows


def _load(wire: Wire, port: int, value: bytes, count: int) -> float:
    return run(wire, port, count=count, subscribers=1, value=value)


def misses(results: list[dict[str, Any]]) -> list[str]:
    """Return the figures that miss their targets."""
    return [
        f"{row['protocol']} with {row['value_bytes']} bytes: {row['times_nats']:.2f} times"
        f" nats-server, {TIMES_NATS_MIN[row['value_bytes']]} wanted"
        for row in results
        if row["protocol"] != "nats" and row["times_nats"] < TIMES_NATS_MIN[row["value_bytes"]]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if not arguments.quick:
        build_newest_nats()
    rounds, seconds = (1, 0.0) if arguments.quick else (arguments.rounds, SECONDS)
    results = measure(rounds=rounds, seconds=seconds)
    print(f"million messages a second; nats-server {results[0]['nats_version']}")
    print(
        f"{'protocol':<9} {'bytes':>6} {'frame':>6} {'published':>10} {'relayed':>10} {'x nats':>7}"
        f" {'x relay':>8}"
    )
    for row in results:
        print(
            f"{row['protocol']:<9} {row['value_bytes']:>6} {row['frame_bytes']:>6}"
            f" {row['published'] / 1e6:>10.3f} {row['relayed'] / 1e6:>10.3f}"
            f" {row['times_nats']:>7.2f} {row['times_relay']:>8.2f}"
        )
    if arguments.save:
        print(f"saved to {save('sizes', results)}")
    short = misses(results)
    for miss in short:
        print(f"below target: {miss}", file=sys.stderr)
    return 1 if short and not arguments.quick else 0


if __name__ == "__main__":
    sys.exit(main())
