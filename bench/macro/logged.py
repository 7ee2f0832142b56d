"""Publish-subscribe with every message in the log, beside nats-server's core in the same run.

    python -m bench.macro.logged [--save] [--quick] [--rounds 3]

The load of `bench.macro.pubsub`, one publisher and one subscriber, through `penstock serve` with
each durability. With `memory` there is no log: what the others are less is its price. nats-server
keeps nothing. Rounds of all alternate; the best of each is kept.

"Of bare writes" says how near that is to what the machine can do: the bytes that the log got a
second, beside bare writes of 4 MiB into a new file in the same run, which nobody syncs. In a
virtual machine that gives free memory back to its host these are slow: every new page of the page
cache has to be fetched again.
"""

import argparse
import sys
from typing import Any

from bench.macro.intake import disk_rate, folder_bytes
from bench.macro.peers import nats_server
from bench.macro.pubsub import VALUE, run
from bench.macro.stores import penstock_store
from bench.macro.wires import WIRES
from bench.results import save

DURABILITIES = ("memory", "os", "fsync")
PROTOCOLS = [name for name in WIRES if name != "nats"]

# Times nats-server in the same run.
TIMES_MIN = {("herald", "os"): 1.5}


def measure(*, rounds: int, count: int, names: list[str]) -> list[dict[str, Any]]:
    """Best figures of every protocol with every durability, and of nats."""
    best: dict[tuple[str, str], float] = {}
    sizes: dict[tuple[str, str], float] = {}
    bare = 0.0
    for _ in range(rounds):
        bare = max(bare, disk_rate(count * 180, sync=False))
        with nats_server() as port:
            rate = run(WIRES["nats"], port, count=count // 4, subscribers=1)
            best["nats", "none"] = max(best.get(("nats", "none"), 0.0), rate)
        for name in names:
            for durability in DURABILITIES:
                with penstock_store(durability) as store:
                    rate = run(WIRES[name], store.port, count=count, subscribers=1)
                    sizes[name, durability] = folder_bytes(store.folder) / count
                best[name, durability] = max(best.get((name, durability), 0.0), rate)
    return [
        {
            "protocol": name,
            "durability": durability,
            "value_bytes": len(VALUE),
            "published": rate,
            "times_nats": rate / best["nats", "none"],
            "of_memory": rate / best.get((name, "memory"), rate),
            "of_bare_writes": rate * sizes.get((name, durability), 0.0) / bare,
        }
        for (name, durability), rate in best.items()
    ]


def misses(results: list[dict[str, Any]]) -> list[str]:
    """What falls short of the bars."""
    short = []
    for row in results:
        bar = TIMES_MIN.get((row["protocol"], row["durability"]), 0.0)
        if row["times_nats"] < bar:
            short.append(
                f"{row['protocol']} with {row['durability']}: {row['times_nats']:.1f} times"
                f" nats-server, {bar} wanted"
            )
    return short


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rounds, count = (1, 80_000) if arguments.quick else (arguments.rounds, 4_000_000)
    results = measure(rounds=rounds, count=count, names=PROTOCOLS)
    print("million messages of 100 bytes a second; best of several rounds in one run")
    print(
        f"{'protocol':<9} {'durability':<11} {'published':>10} {'x nats':>7} {'of memory':>10}"
        f" {'of bare writes':>15}"
    )
    for row in results:
        print(
            f"{row['protocol']:<9} {row['durability']:<11} {row['published'] / 1e6:>10.2f}"
            f" {row['times_nats']:>7.1f} {row['of_memory']:>10.0%}"
            f" {row['of_bare_writes']:>15.0%}"
        )
    if arguments.save:
        print(f"kept in {save('logged', results)}")
    short = misses(results)
    for miss in short:
        print(f"below the bar: {miss}", file=sys.stderr)
    return 1 if short and not arguments.quick else 0


if __name__ == "__main__":
    sys.exit(main())
