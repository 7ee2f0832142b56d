"""Reading a log with Spark, beside Spark's own Parquet reader on the same rows in the same run.

    python -m bench.spark.scan [--quick] [--save] [--rows 5000000]

Rows are messages of 100 random bytes under ten topics. The Parquet files are what Spark itself
writes of them with its own settings. Both are measured in turns, the best of several rounds counts.

"rows" reads all columns and drops them; "to Parquet" writes them to Parquet files; "by topic"
counts them by topic, the log with `.schema("topic STRING")`, which Spark's Parquet reader finds out
by itself; "now" is a stream with `availableNow` and 1,000,000 offsets a batch that writes Parquet
files, beside a batch from Parquet to Parquet. "one row" is how long a micro-batch of one row takes,
to a sink that drops it, in milliseconds.
"""

import argparse
import random
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop
from pyspark.sql import DataFrame, SparkSession

from bench.macro.stores import data_folder
from bench.micro.log import Appending, Source
from bench.results import save
from penstock._kernels import rheos2 as kernel
from penstock._kernels.batch import Batch, Sender
from penstock._kernels.topics import TopicTable
from penstock.spark import session
from penstock.wire import rheos2
from penstock.wire.rheos import OpCode

TOPICS = 10
VALUE_BYTES = 100
BATCH_ROWS = 1_000
MESSAGES_DISTINCT = 200_000
BATCH_OFFSETS = 1_000_000
SECONDS_MAX = 300

# How many times as fast as with Parquet it must be, and the longest micro-batch of one row.
BARS = {"rows": 1.3, "to Parquet": 1.0, "by topic": 0.5, "now": 0.8}
ONE_ROW_MS_MAX = 150


class Messages(Source):
    """Batches of messages with values that no compression makes smaller."""

    def __init__(self, count: int) -> None:
        self.topics = TopicTable()
        self.batches = []
        self._next = 0
        sender = Sender(bytes(range(16)), 1000)
        chance = random.Random(1)  # noqa: S311  (the same rows in every run)
        for first in range(0, count, BATCH_ROWS):
            frames = [
                rheos2.encode(
                    rheos2.Event(
                        sender.uuid,
                        OpCode.PUBLISH,
                        b"plant/%05d/temperature" % (number % TOPICS),
                        chance.randbytes(VALUE_BYTES),
                    )
                )
                for number in range(first, first + BATCH_ROWS)
            ]
            batch = Batch()
            kernel.scan(b"".join(frames), 0, batch, self.topics, sender)
            self.batches.append(batch)


async def fill(folder: Path, count: int) -> None:
    appending = Appending(folder, Messages(min(count, MESSAGES_DISTINCT)))
    await appending.append(count)
    appending.log.close()


class Tables:
    """The same rows as a log and as Parquet files."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int) -> None:
        self.spark = spark
        self.folder = folder
        self.log = folder / "data"
        self.files = folder / "parquet"
        self.out = folder / "out"
        uvloop.run(fill(self.log, rows))
        self.of_log().write.parquet(str(self.files))
        self.rows = self.of_files().count()

    def of_log(self, columns: str | None = None) -> DataFrame:
        reader = self.spark.read.format("penstock")
        return (reader.schema(columns) if columns else reader).load(str(self.log))

    def of_files(self) -> DataFrame:
        return self.spark.read.parquet(str(self.files))

    def to_parquet(self, table: DataFrame) -> None:
        table.write.mode("overwrite").parquet(str(self.out))

    def now(self) -> None:
        """Write all rows by a stream with a new checkpoint."""
        for each in (self.out, self.folder / "checkpoint"):
            shutil.rmtree(each, ignore_errors=True)
        query = (
            self.spark.readStream.format("penstock")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", BATCH_OFFSETS)
            .load(str(self.log))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(self.out))
        )
        if not query.awaitTermination(SECONDS_MAX):
            raise SystemExit("the stream did not end in time")


def noop(table: DataFrame) -> None:
    table.write.format("noop").mode("overwrite").save()


def by_topic(table: DataFrame) -> None:
    table.groupBy("topic").count().collect()


def measure(tables: Tables, rounds: int, only: str = "") -> list[dict[str, Any]]:
    """Rows a second of both, for each way of reading."""
    ways: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
        "rows": (lambda: noop(tables.of_log()), lambda: noop(tables.of_files())),
        "to Parquet": (
            lambda: tables.to_parquet(tables.of_log()),
            lambda: tables.to_parquet(tables.of_files()),
        ),
        "by topic": (
            lambda: by_topic(tables.of_log("topic STRING")),
            lambda: by_topic(tables.of_files()),
        ),
        "now": (tables.now, lambda: tables.to_parquet(tables.of_files())),
    }
    results = []
    for way, both in ways.items():
        if only not in {"", way}:
            continue
        rates = [0.0, 0.0]
        for _ in range(rounds + 1):  # the first one is to get warm
            for which, work in enumerate(both):
                start = time.perf_counter()
                work()
                seconds = time.perf_counter() - start
                rates[which] = max(rates[which], tables.rows / seconds)
        results.append(
            {"way": way, "log": rates[0], "parquet": rates[1], "times": rates[0] / rates[1]}
        )
    return results


async def one_row(tables: Tables, count: int) -> dict[str, Any]:
    """Milliseconds of micro-batches of one row, the median of those with a row."""
    appending = Appending(tables.log, Source(1))
    query = (
        tables.spark.readStream.format("penstock")
        .load(str(tables.log))
        .writeStream.format("noop")
        .option("checkpointLocation", str(tables.folder / "one"))
        .start()
    )
    try:
        durations: list[int] = []
        query.processAllAvailable()
        for _ in range(count + 5):
            await appending.append(1)
            query.processAllAvailable()
            last = query.lastProgress
            if last is not None and last["numInputRows"]:
                durations.append(last["durationMs"]["triggerExecution"])
    finally:
        query.stop()
        appending.log.close()
    warm = sorted(durations[5:]) or sorted(durations)
    return {"way": "one row", "milliseconds": warm[len(warm) // 2]}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--only", default="", help="one way of reading")
    arguments = parser.parse_args()
    rows, rounds = (20_000, 1) if arguments.quick else (arguments.rows, arguments.rounds)
    spark = session("bench", **{"spark.driver.memory": "2g"})
    try:
        with data_folder() as folder:
            tables = Tables(spark, folder, rows)
            results = measure(tables, rounds, arguments.only)
            if arguments.only in {"", "one row"}:
                results.append(uvloop.run(one_row(tables, 3 if arguments.quick else 20)))
    finally:
        spark.stop()
    print(f"{'':>12} {'log':>8} {'Parquet':>8} {'times':>6} {'bar':>5}   million rows a second")
    short = []
    for row in results:
        way = row["way"]
        if way == "one row":
            print(f"{way:>12} {row['milliseconds']:>8.0f} milliseconds, bar {ONE_ROW_MS_MAX}")
            if row["milliseconds"] > ONE_ROW_MS_MAX:
                short.append(way)
            continue
        print(
            f"{way:>12} {row['log'] / 1e6:>8.2f} {row['parquet'] / 1e6:>8.2f}"
            f" {row['times']:>6.2f} {BARS[way]:>5.1f}"
        )
        if row["times"] < BARS[way]:
            short.append(way)
    if arguments.save:
        print(f"kept in {save('spark_scan', results)}")
    for way in short:
        print(f"below the bar: {way}", file=sys.stderr)
    return 1 if short and not arguments.quick else 0


if __name__ == "__main__":
    sys.exit(main())
