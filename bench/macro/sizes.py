"""Throughput by the size of messages, beside nats-server and a bare relay in the same run.

    python -m bench.macro.sizes [--save] [--quick] [--rounds 3]

One publisher and one subscriber, as in `bench.macro.pubsub`, with values of 16 to 10,000 bytes and
brokers that store nothing. The relay is a C program of one thread that reads 256 KiB and writes
them: it moves the values alone, with no frame around them, and looks at nothing. Rounds of all
alternate; the best of each counts.
"""

import argparse
import sys
from typing import Any, Final

from bench.macro.peers import bare_relay, build_newest_nats, nats_server, nats_version, penstock
from bench.macro.pubsub import run
from bench.macro.wires import WIRES, Relay
from bench.results import save

SIZES: Final = (16, 100, 1_000, 10_000)
BYTES: Final = 1_500_000_000
"""Of values in a run of Penstock; small values are fewer."""
MESSAGES_MAX: Final = 4_000_000
NATS_PART: Final = 4
"""nats-server gets a part of them: it disconnects a subscriber that is 64 MB behind."""

TIMES_NATS_MIN: Final = {100: 3.6, 1_000: 1.8, 10_000: 1.2}
"""Target ratios to nats-server, in every protocol."""


def measure(*, rounds: int, names: list[str], part: int = 1) -> list[dict[str, Any]]:
    """Return the best figures of every protocol, nats-server and the relay, for each size."""
    wires = {**WIRES, "relay": Relay()}
    best: dict[tuple[str, int], float] = {}
    with penstock() as own, nats_server() as nats, bare_relay() as relay:
        ports = {"nats": nats, "relay": relay}
        for size in SIZES:
            value = bytes(number % 251 for number in range(size))
            messages = min(MESSAGES_MAX, BYTES // size) // part
            for _ in range(rounds):
                for name in [*names, "nats", "relay"]:
                    count = messages // NATS_PART if name == "nats" else messages
                    port = ports.get(name, own)
                    rate = run(wires[name], port, count=count, subscribers=1, value=value)
                    best[name, size] = max(best.get((name, size), 0.0), rate)
    version = nats_version()
    return [
        {
            "protocol": name,
            "value_bytes": size,
            "published": rate,
            "times_nats": rate / best["nats", size],
            "times_relay": rate / best["relay", size],
            "nats_version": version,
        }
        for (name, size), rate in best.items()
    ]


def misses(results: list[dict[str, Any]]) -> list[str]:
    """Return the figures that miss their targets."""
    return [
        f"{row['protocol']} with {row['value_bytes']} bytes: {row['times_nats']:.2f} times"
        f" nats-server, {TIMES_NATS_MIN[row['value_bytes']]} wanted"
        for row in results
        if row["protocol"] in WIRES
        and row["protocol"] != "nats"
        and row["times_nats"] < TIMES_NATS_MIN.get(row["value_bytes"], 0.0)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    names = [name for name in WIRES if name != "nats"]
    if not arguments.quick:
        build_newest_nats()
    rounds, part = (1, 100) if arguments.quick else (arguments.rounds, 1)
    results = measure(rounds=rounds, names=names, part=part)
    print(f"million messages a second; nats-server {results[0]['nats_version']}")
    print(f"{'protocol':<9} {'bytes':>6} {'published':>10} {'x nats':>7} {'x relay':>8}")
    for row in results:
        print(
            f"{row['protocol']:<9} {row['value_bytes']:>6} {row['published'] / 1e6:>10.3f}"
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
