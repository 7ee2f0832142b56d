"""Reading a log with Spark, and the same rows with Spark's Parquet reader in the same run.

    python -m bench.spark.scan [--quick] [--save] [--rows 5000000] [--kafka [HOST:PORT]] [--spike]
    python -m bench.spark.scan --only Kafka

Rows are messages of 100 random bytes in ten topics. Spark writes the Parquet files with its default
settings. `penstock.spark.scan` and `spark.read` read the log. All are measured in turns, the best
of several rounds counts.

"rows" reads all columns and drops them. "to Parquet" writes them to Parquet files. "by topic"
counts rows by topic: from the log with that column selected, from Parquet with Spark's own column
pruning. "one topic" reads all columns of one of a thousand topics, which come in runs of a thousand
messages, from a log of four times as many rows. "over Flight" reads all columns from a broker, and
from its files for comparison.

With `--kafka`, the eight columns of Spark's own Kafka source are compared with it, on the same
messages: "scan" reads the log in its folder, "on Kafka" the same log after `penstock log export
--to kafka://…`. A broker is started for it, unless there is the address of one. `--only Kafka`
measures nothing else, and saves it in a file of its own. With `--spike`, the reader inside the JVM
of bench/spikes is measured too.
"""

import argparse
import contextlib
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from pyspark.sql import DataFrame

from bench.macro.peers import HOST, free_port
from bench.macro.stores import data_folder, penstock_store
from bench.results import save
from bench.spark.kafka import COLUMNS, KafkaTopics, connector
from bench.spark.tables import Tables, compare, name_of, noop
from bench.spikes.jvm import build as spike
from penstock.errors import LogDamaged
from penstock.spark import session
from penstock.storage.kafka.moving import export_log
from penstock.storage.kafka.options import KafkaOptions
from tools.kafka import free_ports, start_brokers

SECONDS_MAX = 30

# Target ratios to the other reader: Parquet files, for Flight the segments.
BARS = {"rows": 1.3, "to Parquet": 1.1, "by topic": 0.75, "one topic": 5.0, "over Flight": 0.7}
KAFKA = "Kafka"
OWN = "own"
"""Stands for a Kafka broker that the benchmark starts."""
KAFKA_BAR = 3.0
ON_KAFKA = "on Kafka"
ON_KAFKA_BAR = 2.0

TOPIC_COUNT = 1000
TOPIC_RUN = 1000
TOPIC_ROWS_TIMES = 4
TOPIC = name_of(7)


class Settings(NamedTuple):
    """One way of reading or all, a Kafka broker to compare with, and whether the spike runs."""

    only: str
    kafka: str
    spike: bool


def by_topic(table: DataFrame) -> None:
    table.groupBy("topic").count().collect()


def wait_for(address: str) -> None:
    """Wait until the port accepts connections."""
    host, _, port = address.partition(":")
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def measure(tables: Tables, rounds: int, settings: Settings) -> list[dict[str, Any]]:
    """Return rows per second of each reader, for each way of reading."""
    ways: dict[str, dict[str, Callable[[], None]]] = {
        "rows": {
            "scan": lambda: noop(tables.of_scan()),
            "source": lambda: noop(tables.of_log()),
            "spike": lambda: noop(tables.of_spike()),
            "other": lambda: noop(tables.of_files()),
        },
        "to Parquet": {
            "scan": lambda: tables.to_parquet(tables.of_scan()),
            "source": lambda: tables.to_parquet(tables.of_log()),
            "spike": lambda: tables.to_parquet(tables.of_spike()),
            "other": lambda: tables.to_parquet(tables.of_files()),
        },
        "by topic": {
            "scan": lambda: by_topic(tables.of_scan(["topic"])),
            "source": lambda: by_topic(tables.of_log("topic STRING NOT NULL")),
            "spike": lambda: by_topic(tables.of_spike()),
            "other": lambda: by_topic(tables.of_files()),
        },
    }
    results = []
    for way, works in ways.items():
        if settings.only in {"", way}:
            results += compared(way, tables.rows, works, rounds, settings)
    if settings.kafka:
        topics = KafkaTopics(
            tables.spark, settings.kafka, tables.of_scan(COLUMNS), prefix=f"{time.time_ns()}-"
        )
        url = moved(tables, settings.kafka)
        for way, work in beside_kafka(tables, topics, url).items():
            if settings.only in {"", way, KAFKA}:
                rates = compare(tables.rows, rounds=rounds, **work)
                results.append(_result(way, "scan", rates["scan"], rates["kafka"], KAFKA))
                results.append(_result(way, ON_KAFKA, rates["moved"], rates["kafka"], KAFKA))
    if settings.only in {"", "over Flight"}:
        results += over_flight(tables, rounds)
    return results


def compared(
    way: str,
    rows: int,
    works: dict[str, Callable[[], None]],
    rounds: int,
    settings: Settings,
) -> list[dict[str, Any]]:
    """Measure the readers of a way, beside the other reader."""
    hows = [how for how in works if how != "other" and (how != "spike" or settings.spike)]
    rates = compare(rows, rounds=rounds, **{how: works[how] for how in (*hows, "other")})
    return [_result(way, how, rates[how], rates["other"]) for how in hows]


def moved(tables: Tables, address: str) -> str:
    """Copy the log to Kafka; return its URL."""
    options = KafkaOptions(address, f"log-{time.time_ns()}")
    done = export_log(tables.log, options, damaged=_refuse, progress=lambda _: None)
    if done.messages != tables.rows:
        raise RuntimeError(f"{done.messages} messages of {tables.rows} are on Kafka")
    return f"kafka://{address}/{options.topic}"


def _refuse(error: LogDamaged) -> None:
    raise error


def beside_kafka(
    tables: Tables, topics: KafkaTopics, url: str
) -> dict[str, dict[str, Callable[[], None]]]:
    """Return the ways of reading the columns that Kafka has, by our scans and Spark's source."""
    return {
        "rows": {
            "scan": lambda: noop(tables.of_scan(COLUMNS)),
            "moved": lambda: noop(tables.of_kafka(url, COLUMNS)),
            "kafka": lambda: noop(topics.read()),
        },
        "to Parquet": {
            "scan": lambda: tables.to_parquet(tables.of_scan(COLUMNS)),
            "moved": lambda: tables.to_parquet(tables.of_kafka(url, COLUMNS)),
            "kafka": lambda: tables.to_parquet(topics.read()),
        },
        "by topic": {
            "scan": lambda: by_topic(tables.of_scan(["topic"])),
            "moved": lambda: by_topic(tables.of_kafka(url, ["topic"])),
            "kafka": lambda: by_topic(topics.read()),
        },
    }


def one_topic(tables: Tables, rounds: int, settings: Settings) -> list[dict[str, Any]]:
    """Measure reads of one topic; a rate is that of all rows of the log."""
    results = compared(
        "one topic",
        tables.rows,
        {
            "scan": lambda: noop(tables.of_scan(topic=TOPIC)),
            "source": lambda: noop(tables.of_log(topic=TOPIC)),
            "spike": lambda: noop(tables.of_spike(TOPIC).where(f"topic = '{TOPIC}'")),
            "other": lambda: noop(tables.of_files().where(f"topic = '{TOPIC}'")),
        },
        rounds,
        settings,
    )
    if settings.kafka:
        some = tables.of_scan(COLUMNS, topic=TOPIC)
        topics = KafkaTopics(tables.spark, settings.kafka, some, prefix=f"{time.time_ns()}-")
        rates = compare(
            tables.rows,
            rounds=rounds,
            scan=lambda: noop(tables.of_scan(COLUMNS, topic=TOPIC)),
            kafka=lambda: noop(topics.read(TOPIC)),
        )
        results.append(_result("one topic", "scan", rates["scan"], rates["kafka"], KAFKA))
    return results


def over_flight(tables: Tables, rounds: int) -> list[dict[str, Any]]:
    address = f"{HOST}:{free_port()}"
    endpoint = f"grpc://{address}"
    with penstock_store(folder=tables.folder, config=f'[flight]\naddress = "{address}"\n'):
        wait_for(address)
        rates = compare(
            tables.rows,
            rounds=rounds,
            scan=lambda: noop(tables.of_broker_scan(endpoint)),
            scan_files=lambda: noop(tables.of_scan()),
            source=lambda: noop(tables.of_broker(endpoint)),
            source_files=lambda: noop(tables.of_log()),
        )
    return [
        _result("over Flight", how, rates[how], rates[f"{how}_files"]) for how in ("scan", "source")
    ]


def _result(way: str, how: str, ours: float, other: float, beside: str = "") -> dict[str, Any]:
    beside = beside or ("segments" if way == "over Flight" else "Parquet")
    times = ours / other
    return {"way": way, "how": how, "beside": beside, "ours": ours, "other": other, "times": times}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--only", default="", choices=["", *BARS, KAFKA], help="one way of reading")
    parser.add_argument("--kafka", nargs="?", default="", const=OWN, help="address of a broker")
    parser.add_argument("--spike", action="store_true", help="measure the reader in the JVM too")
    arguments = parser.parse_args()
    rows, rounds = (20_000, 1) if arguments.quick else (arguments.rows, arguments.rounds)
    with data_folder() as folder, contextlib.ExitStack() as stack:
        kafka = arguments.kafka or (OWN if arguments.only == KAFKA else "")
        if kafka == OWN:
            (broker,) = stack.enter_context(start_brokers(folder / "kafka", free_ports(1)))
            kafka = broker.address
        settings = Settings(arguments.only, kafka, arguments.spike)
        jars = [str(spike.build(folder))] if settings.spike else []
        jars += [connector()] if settings.kafka else []
        configuration = {"spark.driver.memory": "2g", "spark.jars": ",".join(jars)}
        spark = session("bench", **configuration)
        try:
            results = []
            if settings.only != "one topic":
                results = measure(Tables(spark, folder / "ten", rows), rounds, settings)
            if settings.only in {"", "one topic"}:
                tables = Tables(
                    spark, folder / "thousand", TOPIC_ROWS_TIMES * rows,
                    topics=TOPIC_COUNT, run=TOPIC_RUN,
                )  # fmt: skip
                results += one_topic(tables, rounds, settings)
        finally:
            spark.stop()
    print(f"{'':>21} {'ours':>8} {'other':>8} {'times':>6} {'target':>6}   million rows a second")
    short = []
    for row in results:
        way, how, beside = row["way"], row["how"], row["beside"]
        bar = KAFKA_BAR if beside == KAFKA else BARS[way]
        bar = ON_KAFKA_BAR if how == ON_KAFKA else bar
        print(
            f"{way:>12} {how:<8} {row['ours'] / 1e6:>8.2f} {row['other'] / 1e6:>8.2f}"
            f" {row['times']:>6.2f} {bar:>6.2f}   {beside}"
        )
        if row["times"] < bar and how != "spike":
            short.append(f"{way}, {how}, beside {beside}")
    if arguments.save:
        name = "spark_kafka" if arguments.only == KAFKA else "spark_scan"
        print(f"saved to {save(name, results)}")
    for way in short:
        print(f"below target: {way}", file=sys.stderr)
    return 1 if short and not arguments.quick else 0


if __name__ == "__main__":
    sys.exit(main())
