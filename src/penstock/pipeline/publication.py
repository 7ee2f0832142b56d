"""Gold tables published back to topics, so that clients of every protocol receive them."""

from typing import TYPE_CHECKING, Final

from penstock.pipeline.gold_jobs import REVISION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.pipeline.config import SourceConfig
    from penstock.pipeline.progress import StageProgress
    from penstock.pipeline.tables import Table

__all__ = ["PublishJob", "messages"]

_PUBLISHED: Final = "published"


def messages(rows: "DataFrame", topic: str) -> "DataFrame":
    """Return rows as messages of a topic: each a JSON object of its columns."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    columns = [name for name in rows.columns if name not in {REVISION, "day"}]
    text = f.to_json(f.struct(*columns), {"ignoreNullFields": "false"})
    return rows.select(f.lit(topic).alias("topic"), f.encode(text, "UTF-8").alias("value"))


class PublishJob:
    """Publishes the rows of a table that changed since the last time, once.

    The broker knows a publication by the table and its revision: one that was cut short is done
    again before the table changes, and nothing of it comes twice.
    """

    def __init__(
        self, spark: "SparkSession", table: "Table", topic: str, source: "SourceConfig"
    ) -> None:
        self.name = f"publish.{table.name}"
        self._spark = spark
        self._table = table
        self._topic = topic
        self._source = source

    def step(self, stage: "StageProgress") -> bool:
        """Publish what changed; tell whether there was anything."""
        from pyspark.sql import functions as f  # noqa: PLC0415

        if not self._table.exists():
            return False
        revision = self._table.log.mark(REVISION) or 0
        done = self._table.log.mark(_PUBLISHED) or 0
        if revision <= done:
            return False
        rows = self._table.read(self._spark).where(f.col(REVISION) > done)
        options = {
            "endpoint": self._source.endpoint,
            "writer": f"pipeline-{self._table.log.identity()}-{self._table.name}",
            "epoch": str(revision),
        }
        if self._source.token:
            options["token"] = self._source.token
        messages(rows, self._topic).write.format("penstock").options(**options).mode(
            "append"
        ).save()
        self._table.commit(marks={_PUBLISHED: revision})
        stage.batch_rows = 1
        return True
