"""The same messages in Apache Kafka, and Spark's own Kafka source to read them.

A broker is started with `make kafka`; its address is an argument of the benchmark. The connector is
fetched from Maven Central by the Ivy that PySpark brings, once. It is that of Spark 4.2: for 4.3
there is none yet.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pyspark
from pyspark.sql import DataFrame, SparkSession

__all__ = ["COLUMNS", "KafkaTopics", "connector"]

COLUMNS: Final = (
    "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
)  # fmt: skip
"""Columns of Spark's Kafka source."""
_ARTIFACTS: Final = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)
_SECONDS_MAX: Final = 300


def connector() -> str:
    """Return the jars of the Kafka source for `spark.jars`; fetch them if they are missing."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(cache) / "penstock" / "spark-kafka-4.2.0"
    ivy = next(Path(pyspark.__file__).parent.joinpath("jars").glob("ivy-*.jar"))
    for group, name, version in _ARTIFACTS:
        if not (folder / f"{name}-{version}.jar").exists():
            command = [
                shutil.which("java") or "java", "-jar", str(ivy), "-notransitive",
                "-cache", str(folder / "ivy"), "-confs", "default",
                "-dependency", group, name, version, "-types", "jar",
                "-retrieve", f"{folder}/[artifact]-[revision].[ext]",
            ]  # fmt: skip
            subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS_MAX)  # noqa: S603
    return ",".join(str(path) for path in sorted(folder.glob("*.jar")))


class KafkaTopics:
    """Messages of a table in Kafka: a topic of one partition for each of its topics."""

    def __init__(self, spark: SparkSession, address: str, rows: DataFrame, *, prefix: str) -> None:
        self._spark = spark
        self._options = {"kafka.bootstrap.servers": address}
        self._prefix = prefix
        names = [row[0] for row in rows.select("topic").distinct().collect()]
        self._create(address, [self.name(each) for each in names])
        renamed = rows.selectExpr("key", "value", f"'{prefix}' || replace(topic, '/', '-') topic")
        renamed.write.format("kafka").options(**self._options).save()

    def name(self, topic: str) -> str:
        """Return the name of a topic in Kafka, which allows no slashes."""
        return self._prefix + topic.replace("/", "-")

    def read(self, topic: str | None = None) -> DataFrame:
        """Return all messages, or those of one topic."""
        which = ("subscribePattern", f"{self._prefix}.*")
        if topic is not None:
            which = ("subscribe", self.name(topic))
        reader = self._spark.read.format("kafka").options(**self._options)
        return reader.option(*which).option("includeHeaders", "true").load()

    def _create(self, address: str, names: list[str]) -> None:
        java: Any = self._spark._jvm  # noqa: SLF001
        settings = java.java.util.Properties()
        settings.put("bootstrap.servers", address)
        admin = java.org.apache.kafka.clients.admin.AdminClient.create(settings)
        topics = java.java.util.ArrayList()
        for name in names:
            topics.add(java.org.apache.kafka.clients.admin.NewTopic(name, 1, 1))
        admin.createTopics(topics).all().get()
        admin.close()
