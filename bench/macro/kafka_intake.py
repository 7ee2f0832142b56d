"""Acknowledged publishes per second on Kafka, and Kafka's own client in the same run.

    python -m bench.macro.kafka_intake [--save] [--quick] [--rounds 3] [--brokers 1]

The load of `bench.macro.intake` on a node whose log is on Kafka: an acknowledgment is sent when
Kafka has committed the transaction with its message, with `acks=all`. The other program is a
producer of `confluent-kafka` that sends one record for each message to a topic of one partition of
the same Kafka, with `acks=all` and no transactions. It is measured in two ways: with a callback for
each message, which is how a program learns of an acknowledgment, and without, waiting for all of
them at the end. Rounds alternate; the best of each counts. Ratios are to the faster way.
"""

import argparse
import multiprocessing
import sys
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.macro import intake
from bench.macro.kafka_nodes import Cluster, kafka_nodes
from bench.results import save

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

PROTOCOLS = ("rheos1", "rheos2", "lamamq")
WAYS = {"client, a callback each": True, "client, no callbacks": False}
WAITING_MAX = 1_000_000
"""Messages that wait in the producer; more would not make it faster."""
SETTINGS = {
    "acks": "all",
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "batch.num.messages": 10_000,
    "queue.buffering.max.messages": WAITING_MAX,
}
SECONDS_MAX = 300

# Target ratio to the faster way of the client in the same run.
TIMES_MIN = {"rheos2": 2.0}


def produce(
    bootstrap: str, topic: str, count: int, results: "Queue[float]", *, calls_back: bool
) -> None:
    """Send `count` records and wait for their acknowledgments; report the seconds it took."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **SETTINGS})
    producer.list_topics(topic, timeout=SECONDS_MAX)  # it is connected before the time starts
    acknowledged = 0

    def delivered(error: object, _: object) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    more = {"on_delivery": delivered} if calls_back else {}
    start = time.monotonic()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, intake.VALUE, **more)
                break
            except BufferError:
                producer.poll(0.01)
        if calls_back and not number % 1000:
            producer.poll(0)
    left = producer.flush(SECONDS_MAX)
    seconds = time.monotonic() - start
    if left or (calls_back and acknowledged != count):
        raise SystemExit(f"{left} records of {count} were not acknowledged")
    results.put(seconds)


def run_client(bootstrap: str, topic: str, count: int, *, calls_back: bool) -> float:
    """Return acknowledged records per second of Kafka's client."""
    context = multiprocessing.get_context("spawn")
    results: Queue[float] = context.Queue()
    sender = context.Process(
        target=produce, args=(bootstrap, topic, count, results), kwargs={"calls_back": calls_back}
    )
    sender.start()
    sender.join(SECONDS_MAX)
    if sender.exitcode != 0:
        sender.kill()
        raise SystemExit("the producer failed")
    return count / results.get(timeout=1)


def measure(
    cluster: Cluster, *, rounds: int, count: int, warms: bool = True
) -> list[dict[str, Any]]:
    """Return the best figures of each protocol, and of the client."""
    best: dict[str, float] = {}
    topic = f"one-by-one-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic(topic, 1)]).values():
        made.result(SECONDS_MAX)
    for number in range(not warms, rounds + 1):
        messages = count if number else count // 10  # the first round warms up Kafka's Java
        rates = {
            way: run_client(cluster.bootstrap, topic, messages // 4, calls_back=calls_back)
            for way, calls_back in WAYS.items()
        }
        for name in PROTOCOLS:
            rates[name] = intake.run(name, cluster.nodes[0].port, count=messages)
        if number:
            best = {name: max(rate, best.get(name, 0.0)) for name, rate in rates.items()}
    fastest = max(best[way] for way in WAYS)
    return [
        {
            "sender": name,
            "brokers": len(cluster.brokers),
            "value_bytes": len(intake.VALUE),
            "acknowledged": rate,
            "times_client": rate / fastest,
        }
        for name, rate in best.items()
    ]


def misses(results: list[dict[str, Any]]) -> list[str]:
    """Return the figures that miss their targets."""
    return [
        f"{row['sender']}: {row['times_client']:.1f} times Kafka's client,"
        f" {TIMES_MIN[row['sender']]:.0f} wanted"
        for row in results
        if row["times_client"] < TIMES_MIN.get(row["sender"], 0.0)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--brokers", type=int, default=1, help="Kafka brokers, and copies of all")
    arguments = parser.parse_args()
    rounds, count = (1, 40_000) if arguments.quick else (arguments.rounds, 2_000_000)
    with kafka_nodes(1, brokers=arguments.brokers) as cluster:
        results = measure(cluster, rounds=rounds, count=count)
    print("million acknowledged messages of 100 bytes a second; best of several rounds in one run")
    print(f"{'':<24} {'acknowledged':>12} {'x client':>9}")
    for row in results:
        rate = row["acknowledged"] / 1e6
        print(f"{row['sender']:<24} {rate:>12.2f} {row['times_client']:>9.1f}")
    if arguments.save:
        print(f"saved to {save('kafka_intake', results)}")
    short = misses(results)
    for miss in short:
        print(f"below target: {miss}", file=sys.stderr)
    return 1 if short and not arguments.quick else 0


if __name__ == "__main__":
    sys.exit(main())
