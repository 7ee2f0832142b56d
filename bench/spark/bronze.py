"""Throughput and latency from the log to the bronze table.

    python -m bench.spark.bronze [--quick] [--save] [--rows 5000000]

"now" is the pipeline's stream with `availableNow` and 1,000,000 offsets per batch, to a new table.
In the same run, in turns, Spark copies the same rows from Parquet files to others. "one row" is the
time of a micro-batch of one row, in milliseconds: to a sink that drops it, and to the table.
"fresh" is the time from sending a message to its commit in the table's log, at 1,000 messages per
second through a broker.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import uvloop
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.macro.peers import HOST
from bench.macro.stores import data_folder, penstock_store
from bench.micro.log import Appending, Source
from bench.results import save
from bench.spark.tables import Tables, compare
from penstock import connect_sync
from penstock.pipeline.config import BronzeConfig, PipelineConfig, SourceConfig, WarehouseConfig
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.warehouse import Warehouse
from penstock.spark import session

BATCH_OFFSETS = 1_000_000
RATE = 1_000
SECONDS_MAX = 300

TIMES_MIN = 0.8
ONE_ROW_MS_MAX = 150
FRESH_MS_MAX = {50: 400, 99: 1_000}


@contextmanager
def bronze(
    spark: SparkSession, log: Path, warehouse: Path, *, once: bool
) -> Iterator[StreamingQuery]:
    """Run the pipeline's stream into a bronze table; stop it afterwards."""
    config = PipelineConfig(
        source=SourceConfig(path=str(log)),
        warehouse=WarehouseConfig(folder=str(warehouse)),
        bronze=BronzeConfig(rows_max=BATCH_OFFSETS),
    )
    with Warehouse(config.warehouse) as tables:
        query = Pipeline(spark, tables, config).start_bronze(once=once)
        try:
            yield query
        finally:
            query.stop()


def now(tables: Tables) -> None:
    """Write all rows to a new table."""
    warehouse = tables.folder / "warehouse"
    shutil.rmtree(warehouse, ignore_errors=True)
    with bronze(tables.spark, tables.log, warehouse, once=True) as query:
        if not query.awaitTermination(SECONDS_MAX):
            raise SystemExit("the stream did not end in time")


async def one_row(tables: Tables, query: StreamingQuery, count: int) -> float:
    """Return the median milliseconds of micro-batches of one row."""
    appending = Appending(tables.log, Source(1))
    durations: list[int] = []
    try:
        query.processAllAvailable()
        for _ in range(count + 5):
            await appending.append(1)
            query.processAllAvailable()
            last = query.lastProgress
            if last is not None and "addBatch" in last["durationMs"]:
                durations.append(last["durationMs"]["triggerExecution"])
    finally:
        appending.log.close()
    warm = sorted(durations[5:]) or sorted(durations)
    return float(warm[len(warm) // 2])


def one_row_each(tables: Tables, count: int) -> list[dict[str, Any]]:
    results = []
    dropped = (
        tables.spark.readStream.format("penstock")
        .load(str(tables.log))
        .writeStream.format("noop")
        .option("checkpointLocation", str(tables.folder / "one"))
        .start()
    )
    try:
        took = uvloop.run(one_row(tables, dropped, count))
    finally:
        dropped.stop()
    results.append({"way": "one row", "to": "nothing", "milliseconds": took})
    with bronze(tables.spark, tables.log, tables.folder / "warehouse", once=False) as query:
        took = uvloop.run(one_row(tables, query, count))
    results.append({"way": "one row", "to": "bronze", "milliseconds": took})
    return results


def fresh(spark: SparkSession, seconds: float) -> dict[str, Any]:
    """Return percentiles of the time from sending a message to its commit, in milliseconds."""
    with penstock_store() as store:
        warehouse = store.folder.parent / "warehouse"
        with (
            connect_sync(f"tcp://{HOST}:{store.port}", protocol="rheos2") as client,
            bronze(spark, store.folder, warehouse, once=False) as query,
        ):
            for topic in ("warm", "fresh"):
                client.create_topic(topic)
            client.publish("warm", b"0")
            query.processAllAvailable()
            sent = 0
            begun = time.time()
            while (late := time.time() - begun) < seconds:
                due = int(late * RATE)
                if due > sent:
                    client.publish_many("fresh", [b"%d" % time.time_ns()] * (due - sent))
                    sent = due
                time.sleep(0.001)
            query.processAllAvailable()
            times = sorted(_times(warehouse / "bronze"))
    if len(times) != sent:
        raise SystemExit(f"{sent} messages were sent, {len(times)} are in the table")
    found = {str(each): times[len(times) * each // 100] for each in FRESH_MS_MAX}
    return {"way": "fresh", "messages": sent, "seconds": seconds, **found}


def _times(table: Path) -> Iterator[float]:
    """Yield the time from sending to commit of each message of a table."""
    for commit in sorted((table / "_delta_log").glob("*.json")):
        committed_ns = commit.stat().st_mtime_ns
        for line in commit.read_bytes().splitlines():
            added = msgspec.json.decode(line).get("add")
            if added is None:
                continue
            rows = pq.read_table(
                table / added["path"], columns=["topic", "value"], partitioning=None
            )
            for topic, value in zip(*(each.to_pylist() for each in rows.columns), strict=True):
                if topic == "fresh":
                    yield (committed_ns - int(value)) / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    quick = arguments.quick
    rows, rounds = (20_000, 1) if quick else (arguments.rows, arguments.rounds)
    spark = session("bench", **{"spark.driver.memory": "2g"})
    try:
        with data_folder() as folder:
            tables = Tables(spark, folder, rows)
            rates = compare(
                tables.rows,
                rounds=rounds,
                ours=lambda: now(tables),
                other=lambda: tables.to_parquet(tables.of_files()),
            )
            found = {**rates, "times": rates["ours"] / rates["other"]}
            results: list[dict[str, Any]] = [{"way": "now", **found}]
            results += one_row_each(tables, 3 if quick else 30)
        results.append(fresh(spark, 2 if quick else 30))
    finally:
        spark.stop()
    print(
        f"now: {found['ours'] / 1e6:.2f} million rows a second, Parquet to Parquet"
        f" {found['other'] / 1e6:.2f}, {found['times']:.2f} times (target {TIMES_MIN})"
    )
    short = ["now"] if found["times"] < TIMES_MIN else []
    for row in results:
        if row["way"] == "one row":
            print(f"one row to {row['to']}: {row['milliseconds']:.0f} ms (target {ONE_ROW_MS_MAX})")
            if row["milliseconds"] > ONE_ROW_MS_MAX:
                short.append(f"one row to {row['to']}")
        elif row["way"] == "fresh":
            for each, bar in FRESH_MS_MAX.items():
                print(f"fresh: p{each} {row[str(each)]:.0f} ms (target {bar})")
                if row[str(each)] > bar:
                    short.append(f"fresh p{each}")
    if arguments.save:
        print(f"saved to {save('spark_bronze', results)}")
    for way in short:
        print(f"below target: {way}", file=sys.stderr)
    return 1 if short and not quick else 0


if __name__ == "__main__":
    sys.exit(main())
