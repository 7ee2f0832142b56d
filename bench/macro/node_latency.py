"""Latency from a node to a subscriber on another node, through Apache Kafka on this machine.

    python -m bench.macro.node_latency [--save] [--quick] [--rounds 3]

A publisher sends 1,000 messages of 100 bytes a second by the clock, as in `bench.macro.latency`. It
is connected to one node, the subscriber to the other. A message is delivered there when Kafka has
committed it. The figures are those of the best round by its p99.
"""

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.macro import latency
from bench.macro.stores import penstock_store
from bench.macro.wires import WIRES
from bench.results import save
from tools.kafka import free_ports, start_brokers

PER_SECOND = 1_000
PROTOCOLS = ("herald",)


@contextlib.contextmanager
def two_nodes() -> Iterator[tuple[int, int]]:
    """Run Kafka and two nodes; yield the ports of the nodes."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        (kafka,) = stack.enter_context(start_brokers(folder / "kafka", free_ports(1)))
        ports = []
        for node in (0, 1):
            own = folder / f"node-{node}"
            own.mkdir()
            config = f'[storage]\nkind = "kafka"\nbootstrap = "{kafka.address}"\nnode = {node}\n'
            store = stack.enter_context(penstock_store(folder=own, config=config))
            ports.append(store.port)
        yield ports[0], ports[1]


def measure(*, rounds: int, count: int) -> list[dict[str, Any]]:
    """Return the best figures of each protocol."""
    best: dict[str, dict[str, float]] = {}
    with two_nodes() as (source, target):
        for number in range(rounds + 1):
            for name in PROTOCOLS:
                figures = latency.run(
                    WIRES[name],
                    target,
                    count=count,
                    publish_port=source,
                    per_second=PER_SECOND,
                    burst=1,
                )
                if not number:
                    continue  # the first round warms up Kafka's Java
                if name not in best or figures["p99_us"] < best[name]["p99_us"]:
                    best[name] = figures
    return [{"protocol": name, "per_second": PER_SECOND, **best[name]} for name in PROTOCOLS]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rounds, count = (1, 1_000) if arguments.quick else (arguments.rounds, 10_000)
    results = measure(rounds=rounds, count=count)
    print("milliseconds from due to received on another node, at 1,000 messages a second")
    print(f"{'protocol':<9} {'p50':>8} {'p90':>8} {'p99':>8}")
    for row in results:
        figures = (row[name] / 1000 for name in ("p50_us", "p90_us", "p99_us"))
        print(f"{row['protocol']:<9} " + " ".join(f"{each:>8.1f}" for each in figures))
    if arguments.save:
        print(f"saved to {save('node_latency', results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
