"""What a group of another node costs a node that needs none of its messages: read, or passed over.

    python -m bench.macro.namespace_costs [--save] [--quick] [--seconds 5]

A publisher sends bursts of messages of 100 bytes to one node, as in bench.macro.node_costs. Another
node follows it, without a subscriber: first without namespaces, so that it reads all groups, then
with a namespace for the topic, so that it reads references. The processor time of the other node
and of the first one is read from the system, less what they use while nothing is sent.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from bench.macro.kafka_nodes import nodes_on
from bench.macro.node_costs import idle_rates, processes, send
from bench.macro.stores import data_folder
from bench.macro.wires import TOPIC
from bench.results import save
from tools.kafka import LIKE_KAFKA, KafkaBroker, free_ports, start_brokers

BURSTS = (100, 2_000)


def measure(brokers: Sequence[KafkaBroker], *, seconds: float) -> list[dict[str, Any]]:
    """Return the processor time of both nodes for a group, and the time of a commit."""
    results = []
    for way, namespaces in (("read", {}), ("passed", {TOPIC: "apart"})):
        with nodes_on(brokers, 2, namespaces=namespaces) as cluster:
            warm = dict.fromkeys(processes(cluster), 0.0)
            for burst in BURSTS:
                send(cluster, burst, seconds, warm)
            idle = idle_rates(cluster, seconds)
            for burst in BURSTS:
                run = send(cluster, burst, seconds, idle)
                results.append(
                    {
                        "way": way,
                        "burst": burst,
                        "groups": run.groups,
                        "target_us": run.used["target"] / run.groups * 1e6,
                        "source_us": run.used["source"] / run.groups * 1e6,
                        "commit_ms": run.seconds / run.groups * 1e3,
                    }
                )
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load")
    arguments = parser.parse_args()
    with (
        data_folder() as folder,
        start_brokers(folder, free_ports(1), java=LIKE_KAFKA) as brokers,
    ):
        results = measure(brokers, seconds=1.0 if arguments.quick else arguments.seconds)
    for row in results:
        print(", ".join(f"{key} {value}" for key, value in row.items()))
    if arguments.save:
        print(f"saved to {save('namespace_costs', results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
