"""Apache Kafka on this machine, and Penstock nodes on it, for benchmarks."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.macro.stores import Store, penstock_store
from tools.kafka import KafkaBroker, free_ports, start_brokers

__all__ = ["Cluster", "kafka_nodes"]


class Cluster(NamedTuple):
    """The processes of a cluster."""

    brokers: list[KafkaBroker]
    nodes: list[Store]

    @property
    def bootstrap(self) -> str:
        """The addresses of all Kafka brokers."""
        return ",".join(each.address for each in self.brokers)


@contextlib.contextmanager
def kafka_nodes(nodes: int, *, brokers: int = 1) -> Iterator[Cluster]:
    """Run Kafka and a number of nodes, whose numbers start with 0."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        kafka = stack.enter_context(start_brokers(folder / "kafka", free_ports(brokers)))
        cluster = Cluster(kafka, [])
        for node in range(nodes):
            own = folder / f"node-{node}"
            own.mkdir()
            config = (
                f'[storage]\nkind = "kafka"\nbootstrap = "{cluster.bootstrap}"\nnode = {node}\n'
            )
            cluster.nodes.append(stack.enter_context(penstock_store(folder=own, config=config)))
        yield cluster
