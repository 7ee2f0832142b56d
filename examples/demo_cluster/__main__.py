"""Run the demo of a cluster: lose a node and a Kafka broker in the middle, and count.

python -m examples.demo_cluster [--messages N]
"""

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import deltalake
from examples.demo.errors import DemoFailed
from examples.demo.screen import chapter, line, problem, table
from examples.demo.spark import java_problem
from examples.demo_cluster.nodes import node
from examples.demo_cluster.spark import cluster, run_pipeline
from examples.demo_cluster.traffic import SENDERS, Counts, Publisher, count_all, publish_all

from penstock.errors import PenstockError
from penstock.protocols import PROTOCOLS
from tools.kafka import KafkaBroker, KafkaFailed, KafkaMissing, free_ports, start_brokers

MESSAGES = 200
"""Messages of each sender; the kills come after half of them."""
SETTLE_SECONDS_MAX = 60.0
POLL_SECONDS = 0.05
CHECKED_BY = PROTOCOLS["rheos2"]
"""The subscriber whose messages tell publishers what has arrived."""


async def run(folder: Path, kafka: list[KafkaBroker], count: int) -> bool:
    """Tell the story; return whether all counts are exact."""
    log = f"kafka://{','.join(broker.address for broker in kafka)}/brewery"
    line("Three brokers, replication factor 3, min.insync.replicas 2.")
    async with AsyncExitStack() as stack:
        second = await stack.enter_async_context(node(folder, 1, log))
        first_stack = await stack.enter_async_context(AsyncExitStack())
        first = await first_stack.enter_async_context(node(folder, 0, log))
        chapter("2 Nodes", "Publishers on the first, subscribers on the second.")
        line(f"node 0 at {first.url}, node 1 at {second.url}")
        counts = await stack.enter_async_context(count_all(second.url))
        publishers = [
            Publisher(topic, [first.url, second.url], counts[CHECKED_BY, topic])
            for topic in SENDERS
        ]
        sending = asyncio.create_task(publish_all(publishers, count))
        try:
            await _until(lambda: all(len(each.arrived) >= count // 2 for each in publishers))
            first.process.kill()
            kafka[0].kill()
            line(f"After half of {count} messages each: node 0 and a Kafka broker get kill -9.")
            await sending
        finally:
            sending.cancel()
        await first_stack.aclose()
        await stack.enter_async_context(node(folder, 0, log))
        line("The publishers went on with node 1; another process took over node 0.")
        exact = await _show_arrived(publishers, counts, count)
        chapter("3 Spark", "A master and two workers make tables, from Kafka itself.")
        master = await stack.enter_async_context(cluster(folder))
        await run_pipeline(folder, log=log, flight=second.flight, master=master)
        return _show_tables(folder / "warehouse", publishers, count) and exact


async def _show_arrived(publishers: list[Publisher], counts: Counts, count: int) -> bool:
    """Wait until all subscribers have the same; return whether nothing came too often."""

    def complete() -> bool:
        return all(
            len(counter) == count and counter == counts[CHECKED_BY, topic]
            for (_, topic), counter in counts.items()
        )

    await _until(complete)
    rows = []
    for publisher in publishers:
        topic = publisher.topic
        repeated = sum(counts[CHECKED_BY, topic].values()) - count
        rows.append([topic, SENDERS[topic], count, publisher.sent.total() - count, repeated])
    columns = ["topic", "sender", "different", "sent again", "arrived twice"]
    table("messages received on node 1, by subscribers of each protocol", columns, rows)
    return all(each.arrived <= each.sent for each in publishers)


def _show_tables(warehouse: Path, publishers: list[Publisher], count: int) -> bool:
    """Show the rows of the table; return whether it has every number, no more often than sent.

    A message whose answer from Kafka got lost may be in the table, and at no subscriber.
    """
    silver = deltalake.DeltaTable(str(warehouse / "silver" / "readings"))
    found = silver.to_pyarrow_table(columns=["topic", "number"]).to_pylist()
    exact = True
    rows = []
    for publisher in publishers:
        numbers = Counter(row["number"] for row in found if row["topic"] == publisher.topic)
        fits = len(numbers) == count and publisher.arrived <= numbers <= publisher.sent
        exact = exact and fits
        answer = "yes" if fits else "NO"
        rows.append([publisher.topic, numbers.total(), len(numbers), answer])
    table("silver/readings", ["topic", "rows", "different", "as sent and received"], rows)
    line("All counts are exact." if exact else "THE COUNTS DIFFER.")
    return exact


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SETTLE_SECONDS_MAX):
        while not condition():
            await asyncio.sleep(POLL_SECONDS)


def main() -> int:
    """Run the demo to its end, and remove its files."""
    parser = argparse.ArgumentParser(prog="make demo-cluster", description=main.__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES, help="of each of five senders")
    arguments = parser.parse_args()
    if missing := java_problem():
        problem(missing)
        return 1
    chapter("1 Kafka", "The log is on a Kafka cluster of this machine.")
    with tempfile.TemporaryDirectory(prefix="penstock-cluster-") as name:
        try:
            with start_brokers(Path(name, "kafka"), free_ports(3)) as brokers:
                return 0 if asyncio.run(run(Path(name), brokers, arguments.messages)) else 1
        except (KafkaMissing, KafkaFailed) as error:
            problem(f"Apache Kafka: {error}")
        except (DemoFailed, PenstockError, TimeoutError) as error:
            problem(str(error) or "something did not happen in time; is the machine very busy?")
    return 1


sys.exit(main())
