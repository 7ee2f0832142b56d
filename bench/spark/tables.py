"""The same rows as a log and as Parquet files, for benchmarks on Spark."""

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import uvloop
from pyspark.sql import DataFrame, SparkSession

from bench.micro.log import Appending, Source
from bench.spikes.jvm import build as spike
from penstock._kernels import rheos2 as kernel
from penstock._kernels.batch import Batch, Sender
from penstock._kernels.topics import TopicTable
from penstock.spark import scan
from penstock.wire import rheos2
from penstock.wire.rheos import OpCode

TOPICS = 10
VALUE_BYTES = 100
BATCH_ROWS = 1_000
MESSAGES_DISTINCT = 200_000


class Messages(Source):
    """Batches of messages with incompressible values; topics take turns in runs of `run`."""

    def __init__(self, count: int, *, topics: int = TOPICS, run: int = 1) -> None:
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
                        name_of(number // run % topics).encode(),
                        chance.randbytes(VALUE_BYTES),
                    )
                )
                for number in range(first, first + BATCH_ROWS)
            ]
            batch = Batch()
            kernel.scan(b"".join(frames), 0, batch, self.topics, sender)
            self.batches.append(batch)


def name_of(topic: int) -> str:
    return f"plant/{topic:05}/temperature"


async def fill(folder: Path, count: int, *, topics: int = TOPICS, run: int = 1) -> None:
    distinct = min(count, max(MESSAGES_DISTINCT, topics * run))
    appending = Appending(folder, Messages(distinct, topics=topics, run=run))
    await appending.append(count)
    appending.log.close()


class Tables:
    """Create a log in `folder / "data"`, and Parquet files of it with Spark's default settings."""

    def __init__(
        self, spark: SparkSession, folder: Path, rows: int, *, topics: int = TOPICS, run: int = 1
    ) -> None:
        self.spark = spark
        self.folder = folder
        self.log = folder / "data"
        self.files = folder / "parquet"
        self.out = folder / "out"
        uvloop.run(fill(self.log, rows, topics=topics, run=run))
        self.of_scan().write.parquet(str(self.files))
        self.rows = self.of_files().count()

    def of_log(self, columns: str | None = None, topic: str | None = None) -> DataFrame:
        reader = self.spark.read.format("penstock")
        if topic is not None:
            reader = reader.option("subscribe", topic)
        return (reader.schema(columns) if columns else reader).load(str(self.log))

    def of_scan(self, columns: Sequence[str] | None = None, topic: str | None = None) -> DataFrame:
        return scan(self.spark, path=str(self.log), columns=columns, subscribe=topic)

    def of_kafka(self, url: str, columns: Sequence[str] | None = None) -> DataFrame:
        return scan(self.spark, path=url, columns=columns)

    def of_spike(self, topic: str | None = None) -> DataFrame:
        reader = self.spark.read.format(spike.FORMAT).option("path", str(self.log))
        return reader.load() if topic is None else reader.option("topic", topic).load()

    def of_files(self) -> DataFrame:
        return self.spark.read.parquet(str(self.files))

    def of_broker(self, endpoint: str) -> DataFrame:
        return self.spark.read.format("penstock").option("endpoint", endpoint).load()

    def of_broker_scan(self, endpoint: str) -> DataFrame:
        return scan(self.spark, endpoint=endpoint)

    def to_parquet(self, table: DataFrame) -> None:
        table.write.mode("overwrite").parquet(str(self.out))


def noop(table: DataFrame) -> None:
    table.write.format("noop").mode("overwrite").save()


def compare(rows: int, *, rounds: int, **ways: Callable[[], None]) -> dict[str, float]:
    """Return rows per second of each way, in turns: the best of several rounds.

    As many rounds run before as a warm-up of the JVM.
    """
    rates = dict.fromkeys(ways, 0.0)
    for number in range(2 * rounds):
        for name, work in ways.items():
            start = time.perf_counter()
            work()
            if number >= rounds:
                rates[name] = max(rates[name], rows / (time.perf_counter() - start))
    return rates
