"""Reading a log with Spark, and the same rows with Spark's Parquet reader in the same run.

    python -m bench.spark.scan [--quick] [--save] [--rows 5000000]

Rows are messages of 100 random bytes in ten topics. Spark writes the Parquet files with its default
settings. `penstock.spark.scan` and `spark.read` read the log. All are measured in turns, the best
of several rounds counts.

"rows" reads all columns and drops them. "to Parquet" writes them to Parquet files. "by topic"
counts rows by topic: from the log with that column selected, from Parquet with Spark's own column
pruning. "over Flight" reads all columns from a broker, and from its files for comparison.
"""

import argparse
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame

from bench.macro.peers import HOST, free_port
from bench.macro.stores import data_folder, penstock_store
from bench.results import save
from bench.spark.tables import Tables, compare, noop
from penstock.spark import session

SECONDS_MAX = 30

# Target ratios to the other reader.
BARS = {"rows": 1.3, "to Parquet": 1.0, "by topic": 0.5, "over Flight": 0.7}


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


def measure(tables: Tables, rounds: int, only: str = "") -> list[dict[str, Any]]:
    """Return rows per second of each reader, for each way of reading."""
    ways: dict[str, dict[str, Callable[[], None]]] = {
        "rows": {
            "scan": lambda: noop(tables.of_scan()),
            "source": lambda: noop(tables.of_log()),
            "other": lambda: noop(tables.of_files()),
        },
        "to Parquet": {
            "scan": lambda: tables.to_parquet(tables.of_scan()),
            "source": lambda: tables.to_parquet(tables.of_log()),
            "other": lambda: tables.to_parquet(tables.of_files()),
        },
        "by topic": {
            "scan": lambda: by_topic(tables.of_scan(["topic"])),
            "source": lambda: by_topic(tables.of_log("topic STRING")),
            "other": lambda: by_topic(tables.of_files()),
        },
    }
    results = []
    for way, works in ways.items():
        if only in {"", way}:
            rates = compare(tables.rows, rounds=rounds, **works)
            results += [_result(way, how, rates[how], rates["other"]) for how in ("scan", "source")]
    if only in {"", "over Flight"}:
        results += over_flight(tables, rounds)
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


def _result(way: str, how: str, ours: float, other: float) -> dict[str, Any]:
    return {"way": way, "how": how, "ours": ours, "other": other, "times": ours / other}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--only", default="", choices=["", *BARS], help="one way of reading")
    arguments = parser.parse_args()
    rows, rounds = (20_000, 1) if arguments.quick else (arguments.rows, arguments.rounds)
    spark = session("bench", **{"spark.driver.memory": "2g"})
    try:
        with data_folder() as folder:
            results = measure(Tables(spark, folder, rows), rounds, arguments.only)
    finally:
        spark.stop()
    print(f"{'':>19} {'ours':>8} {'other':>8} {'times':>6} {'target':>6}   million rows a second")
    short = []
    for row in results:
        way = row["way"]
        print(
            f"{way:>12} {row['how']:<6} {row['ours'] / 1e6:>8.2f} {row['other'] / 1e6:>8.2f}"
            f" {row['times']:>6.2f} {BARS[way]:>5.1f}"
        )
        if row["times"] < BARS[way]:
            short.append(f"{way}, {row['how']}")
    if arguments.save:
        print(f"saved to {save('spark_scan', results)}")
    for way in short:
        print(f"below target: {way}", file=sys.stderr)
    return 1 if short and not arguments.quick else 0


if __name__ == "__main__":
    sys.exit(main())
