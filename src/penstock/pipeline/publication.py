"""Publication of gold tables to topics, where clients of every protocol receive the rows."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.bronze import bronze_offsets, table_offsets
from penstock.pipeline.config import SourceConfig
from penstock.pipeline.gold_jobs import REVISION
from penstock.pipeline.offsets import Stream, to_transactions
from penstock.pipeline.progress import StageProgress
from penstock.pipeline.tables import Table

__all__ = ["PUBLISHED", "AfterPublishing", "Job", "PublishJob", "TableJob", "to_messages"]

PUBLISHED: Final = "published"


def to_messages(rows: DataFrame, topic: str) -> DataFrame:
    """Return rows as messages of a topic, each a JSON object of the columns."""
    columns = [name for name in rows.columns if name not in {REVISION, "day"}]
    text = f.to_json(f.struct(*columns), {"ignoreNullFields": "false"})
    return rows.select(f.lit(topic).alias("topic"), f.encode(text, "UTF-8").alias("value"))


class PublishJob:
    """Publishes the rows of a table that changed since the last publication, each once.

    The broker identifies a publication by table and revision. An interrupted publication is
    repeated before the table changes, and the broker drops the rows that it already has.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: Table,
        topic: str,
        source: "SourceConfig",
        *,
        bronze: Table,
    ) -> None:
        self.name = f"publish.{table.name}"
        self.table_name = table.name
        self.settled = False
        """Whether every row that the broker may have is committed as published."""
        self._spark = spark
        self._table = table
        self._topic = topic
        self._source = source
        self._bronze = bronze

    def step(self, stage: StageProgress) -> bool:
        """Publish changed rows, if there are any."""
        if not self._table.exists():
            self.settled = True
            return False
        revision = self._table.log.transaction_version(REVISION) or 0
        done = self._table.log.transaction_version(PUBLISHED) or 0
        if revision <= done:
            self.settled = True
            return False
        self.settled = False
        streams = bronze_offsets(self._bronze)
        offsets = table_offsets(self._table, streams)
        reflected = to_transactions(offsets, f"{PUBLISHED}:")
        rows = self._table.read(self._spark).where(f.col(REVISION) > done)
        options = {
            **self._source.sink_options,
            "writer": f"pipeline-{self._table.log.table_id()}-{self._table.name}",
            "epoch": str(revision),
        }
        _set_active_session(self._spark)
        to_messages(rows, self._topic).write.format("penstock").options(**options).mode(
            "append"
        ).save()
        self._table.commit(transactions={PUBLISHED: revision} | reflected)
        self.settled = True
        stage.batch_rows = 1
        return False

    def offsets(self, streams: Iterable[Stream]) -> dict[Stream, int]:
        """See Job."""
        return table_offsets(self._table, streams, f"{PUBLISHED}:")


def _set_active_session(spark: SparkSession) -> None:
    """Set the active session of this thread, where Spark looks up the data source of a write.

    PySpark sets it only when the thread creates a DataFrame from Python values.
    """
    jvm: Any = spark._jvm  # noqa: SLF001
    jvm.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001


class Job(Protocol):
    """A unit of work that is done in steps."""

    name: str

    def step(self, stage: StageProgress) -> bool:
        """Do the next step, of bounded size; return whether there is more to do."""
        ...

    def offsets(self, streams: Iterable[Stream]) -> dict[Stream, int]:
        """Return the next offset of each stream that the result does not reflect."""
        ...


class TableJob(Job, Protocol):
    """A job that updates a table."""

    table: Table


class AfterPublishing:
    """A job that updates its table only while all publications of the table are settled.

    A failed publication may have reached the broker. If the table changed before the repetition,
    its rows would be published again together with new ones.
    """

    def __init__(self, job: TableJob, publications: Sequence[PublishJob]) -> None:
        self.name = job.name
        self._job = job
        self._publications = publications

    def step(self, stage: StageProgress) -> bool:
        """Do the next step; do nothing while a publication is not settled."""
        return all(each.settled for each in self._publications) and self._job.step(stage)

    def offsets(self, streams: Iterable[Stream]) -> dict[Stream, int]:
        """See Job."""
        return self._job.offsets(streams)
