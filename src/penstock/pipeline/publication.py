"""Gold tables published back to topics, so that clients of every protocol receive them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.pipeline.gold_jobs import REVISION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.pipeline.config import SourceConfig
    from penstock.pipeline.progress import StageProgress
    from penstock.pipeline.tables import Table

__all__ = ["Behind", "PublishJob", "TableJob", "messages"]

_PUBLISHED: Final = "published"


def messages(rows: "DataFrame", topic: str) -> "DataFrame":
    """Return rows as messages of a topic: each a JSON object of its columns."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    columns = [name for name in rows.columns if name not in {REVISION, "day"}]
    text = f.to_json(f.struct(*columns), {"ignoreNullFields": "false"})
    return rows.select(f.lit(topic).alias("topic"), f.encode(text, "UTF-8").alias("value"))


class PublishJob:
    """Publishes the rows of a table that changed since the last time, once.

    The broker knows a publication by the table and its revision: one that was cut short
    is done again before the table changes, and nothing of it comes twice.
    """

    def __init__(
        self, spark: "SparkSession", table: "Table", topic: str, source: "SourceConfig"
    ) -> None:
        self.name = f"publish.{table.name}"
        self.table_name = table.name
        self.settled = False
        """Whether the broker has no rows that the table does not know to be published."""
        self._spark = spark
        self._table = table
        self._topic = topic
        self._source = source

    def step(self, stage: "StageProgress") -> bool:
        """Publish what changed; tell whether there was anything."""
        from pyspark.sql import functions as f  # noqa: PLC0415

        if not self._table.exists():
            self.settled = True
            return False
        revision = self._table.log.mark(REVISION) or 0
        done = self._table.log.mark(_PUBLISHED) or 0
        if revision <= done:
            self.settled = True
            return False
        self.settled = False
        rows = self._table.read(self._spark).where(f.col(REVISION) > done)
        options = {
            **self._source.options,
            "writer": f"pipeline-{self._table.log.identity()}-{self._table.name}",
            "epoch": str(revision),
        }
        _make_active(self._spark)
        messages(rows, self._topic).write.format("penstock").options(**options).mode(
            "append"
        ).save()
        self._table.commit(marks={_PUBLISHED: revision})
        self.settled = True
        stage.batch_rows = 1
        return True


def _make_active(spark: "SparkSession") -> None:
    """Let a write in this thread find the data source: Spark looks in the thread's own session.

    A thread has none until PySpark makes a DataFrame of Python's values in it, which does this too.
    """
    jvm: Any = spark._jvm  # noqa: SLF001
    jvm.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001


class TableJob(Protocol):
    """A job that brings a table up to its input."""

    name: str
    table: "Table"

    def step(self, stage: "StageProgress") -> bool:
        """Do the next part; tell whether there was anything to do."""
        ...


class Behind:
    """A job that leaves its table alone while rows of it may be published and not known to be.

    A publication that failed may have come to the broker. If the table changed, rows of it would
    be published once more, with those that are new.
    """

    def __init__(self, job: TableJob, publications: Sequence[PublishJob]) -> None:
        self.name = job.name
        self._job = job
        self._publications = publications

    def step(self, stage: "StageProgress") -> bool:
        """Do the next part, if it may be done."""
        return all(each.settled for each in self._publications) and self._job.step(stage)
