"""Apache Kafka on this machine, and Penstock nodes on it, for benchmarks."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from bench.macro.stores import Store, data_folder, penstock_store
from tools.kafka import LIKE_KAFKA, KafkaBroker, free_ports, start_brokers

__all__ = ["Cluster", "kafka_nodes", "nodes_on"]

_NO_NAMESPACES: Final[Mapping[str, str]] = MappingProxyType({})


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
def nodes_on(
    brokers: Sequence[KafkaBroker], nodes: int, *, namespaces: Mapping[str, str] = _NO_NAMESPACES
) -> Iterator[Cluster]:
    """Run a number of nodes on a Kafka that runs, with a topic of their own.

    `namespaces` are ends of the names of Kafka topics, by pattern.
    """
    cluster = Cluster(brokers, [])
    topic = f"bench-{time.time_ns()}"
    storage = f'kind = "kafka"\nbootstrap = "{cluster.bootstrap}"\ntopic = "{topic}"\n'
    spaces = "".join(f'"{each}" = "{topic}-{end}"\n' for each, end in namespaces.items())
    with data_folder() as folder, contextlib.ExitStack() as stack:
        for node in range(nodes):
            own = folder / str(node)
            own.mkdir()
            config = f"[storage]\n{storage}node = {node}\n"
            if spaces:
                config += f"[storage.kafka.namespaces]\n{spaces}"
            cluster.nodes.append(stack.enter_context(penstock_store(folder=own, config=config)))
        yield cluster
