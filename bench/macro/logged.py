"""Publish-subscribe with every message in the log, and core nats-server in the same run.

    python -m bench.macro.logged [--save] [--quick] [--rounds 3]

The load of `bench.macro.pubsub`, one publisher and one subscriber, through a new `penstock serve`
for each durability and round. With `memory` nothing is written to disk: the difference to the
others is the cost of the log. nats-server stores nothing. Rounds of all alternate; the best of each
counts. Every run lasts at least a second.

"Of bare writes" compares the bytes that the log wrote in a second with plain writes of 4 MiB into a
new file in the same run, without a sync. In a virtual machine that returns free memory to its host
these are slow: the host must provide every new page of the page cache again.
"""

import argparse
import os
import sys
import time
from functools import partial
from typing import Any

from bench.macro.intake import folder_bytes
from bench.macro.peers import build_newest_nats, nats_server, nats_version
from bench.macro.pubsub import VALUE, run
from bench.macro.rates import SECONDS, Rates
from bench.macro.stores import data_folder, penstock_store
from bench.macro.wires import WIRES
from bench.results import save

DURABILITIES = ("memory", "os", "fsync")
PROTOCOLS = [name for name in WIRES if name != "nats"]
BARE_WRITE_BYTES = 4 * 1024 * 1024
BARE_BYTES = 500_000_000
"""Of a round of bare writes, about as many as the log writes in a run."""
TIMES_MIN = {
    "herald": (2.9, 1.5, 1.1),
    "rheos1": (3.2, 1.3, 1.1),
    "rheos2": (2.3, 1.0, 1.0),
    "fleximq": (3.1, 1.6, 1.4),
    "lamamq": (3.4, 1.8, 1.3),
}
"""Target ratios to nats-server in the same run, by DURABILITIES."""


def bare_write_rate(total: int) -> float:
    """Return bytes per second of writes to a new file, without a sync."""
    piece = os.urandom(BARE_WRITE_BYTES)
    with data_folder() as folder, (folder / "bare").open("wb", buffering=0) as file:
        start = time.monotonic()
        for _ in range(max(1, total // len(piece))):
            file.write(piece)
        return file.tell() / (time.monotonic() - start)


def measure(
    *, rounds: int, seconds: float = SECONDS, bare_bytes: int = BARE_BYTES
) -> list[dict[str, Any]]:
    """Return the best figures of every protocol with every durability, and of nats."""
    rates = Rates(seconds)
    sizes: dict[tuple[str, str], float] = {}
    bare = 0.0

    def beside(count: int) -> float:
        with nats_server() as port:
            return run(WIRES["nats"], port, count=count, subscribers=1)

    def stored(name: str, durability: str, count: int) -> float:
        with penstock_store(durability) as store:
            rate = run(WIRES[name], store.port, count=count, subscribers=1)
            sizes[name, durability] = folder_bytes(store.folder) / count
            return rate

    for _ in range(rounds):
        bare = max(bare, bare_write_rate(bare_bytes))
        rates.take(("nats", "none"), beside)
        for name in PROTOCOLS:
            for durability in DURABILITIES:
                rates.take((name, durability), partial(stored, name, durability))
    nats = rates.best["nats", "none"]
    keys = [("nats", "none"), *((name, each) for name in PROTOCOLS for each in DURABILITIES)]
    return [
        {
            "protocol": name,
            "durability": durability,
            "value_bytes": len(VALUE),
            "published": rates.best[name, durability],
            "times_nats": rates.best[name, durability] / nats,
            "of_memory": rates.best[name, durability] / rates.best.get((name, "memory"), nats),
            "of_bare_writes": rates.best[name, durability]
            * sizes.get((name, durability), 0)
            / bare,
            "nats_version": nats_version(),
        }
        for name, durability in keys
    ]


def misses(results: list[dict[str, Any]]) -> list[str]:
    """Return the figures that miss their targets."""
    short = []
    for row in results:
        bars = dict(zip(DURABILITIES, TIMES_MIN.get(row["protocol"], ()), strict=False))
        bar = bars.get(row["durability"], 0.0)
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
    if arguments.quick:
        results = measure(rounds=1, seconds=0.0, bare_bytes=BARE_WRITE_BYTES)
    else:
        build_newest_nats()
        results = measure(rounds=arguments.rounds)
    print(f"million messages of 100 bytes a second; nats-server {results[0]['nats_version']}")
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
        print(f"saved to {save('logged', results)}")
    short = misses(results)
    for miss in short:
        print(f"below target: {miss}", file=sys.stderr)
    return 1 if short and not arguments.quick else 0


if __name__ == "__main__":
    sys.exit(main())
