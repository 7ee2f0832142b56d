"""Apache Kafka on this machine, and Penstock nodes on it, for benchmarks."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bench.macro.stores import Store, data_folder, penstock_store
from tools.kafka import LIKE_KAFKA, KafkaBroker, free_ports, start_brokers

__all__ = ["Cluster", "kafka_nodes", "nodes_on"]


class Cluster(NamedTuple):
    """The processes of a cluster."""

    brokers: Sequence[KafkaBroker]
    nodes: list[Store]

    @property
    def bootstrap(self) -> str:
        """The addresses of all Kafka brokers."""
        return ",".join(each.address for each in self.brokers)


@contextlib.contextmanager
def kafka_nodes(nodes: int, *, brokers: int = 1) -> Iterator[Cluster]:
    """Run Kafka and a number of nodes, whose numbers start with 0."""
    with (
        data_folder() as folder,
        start_brokers(folder, free_ports(brokers), java=LIKE_KAFKA) as kafka,
        nodes_on(kafka, nodes) as cluster,
    ):
        yield cluster


@contextlib.contextmanager
def nodes_on(brokers: Sequence[KafkaBroker], nodes: int) -> Iterator[Cluster]:
    """Run a number of nodes on a Kafka that runs, with a topic of their own."""
    cluster = Cluster(brokers, [])
    storage = (
        f'kind = "kafka"\nbootstrap = "{cluster.bootstrap}"\ntopic = "bench-{time.time_ns()}"\n'
    )
    with data_folder() as folder, contextlib.ExitStack() as stack:
        for node in range(nodes):
            own = folder / str(node)
            own.mkdir()
            config = f"[storage]\n{storage}node = {node}\n"
            cluster.nodes.append(stack.enter_context(penstock_store(folder=own, config=config)))
        yield cluster
