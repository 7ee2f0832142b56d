"""Publication of the batches of a stream by `foreachBatch`, for output modes that Spark refuses.

Spark 4.3 refuses the output mode `update` for the sink of a Python data source.
"""

from pyspark.sql import DataFrame

from penstock.spark.options import write_options

__all__ = ["EpochPublisher"]


class EpochPublisher:
    """A function for `foreachBatch` that publishes each batch of a query once.

    `writer` is a name that stays the same when the query restarts. A query with a new checkpoint
    counts its batches from 0 again and needs a new name. `options` are those of the sink.
    """

    def __init__(self, writer: str, **options: str) -> None:
        """Raise InvalidOption."""
        self._options = {**options, "writer": writer}
        write_options({**self._options, "epoch": "0"}, streaming=False)

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Publish the rows of a batch, unless they were published before."""
        sink = rows.write.format("penstock").options(**self._options).option("epoch", batch)
        sink.mode("append").save()
