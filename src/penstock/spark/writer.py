"""Sink: `df.write.format("penstock")` and `df.writeStream.format("penstock")`.

Each task stages its rows at the broker. When all tasks have, the driver publishes the staged rows
as one epoch of a writer. The broker ignores rows that other attempts of a task staged, and
publishes an epoch once, so retries publish nothing twice. Calls are retried while the broker
restarts.
"""

import contextlib
import uuid
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from penstock.errors import PenstockError
from penstock.flight.protocol import SINK_SCHEMA
from penstock.spark.errors import InvalidOption, InvalidSchema
from penstock.spark.options import Broker, WriteOptions
from penstock.spark.schema import HEADERS

__all__ = ["BatchWriter", "StreamWriter", "sink_rows"]

_QUERY: Final = "sql.streaming.queryId"
_EPOCH: Final = "streaming.sql.batchId"
"""Local properties that Spark sets for tasks of a streaming query."""

_ALLOWED: Final = (
    "topic string, value binary or string, key binary or string, "
    "headers array<struct<key:string,value:binary>>, partition int"
)
_PARTITION: Final = 0
"""The partition of a broker's log."""


class Staged(WriterCommitMessage):
    """Commit message of a task: its rows are staged under a token unique to this attempt."""

    def __init__(self, writer: str, epoch: int, partition: int, token: str) -> None:
        self.writer = writer
        self.epoch = epoch
        self.partition = partition
        self.token = token


def check_rows(schema: StructType, options: WriteOptions) -> None:
    """Raise InvalidSchema unless rows of this schema can be published."""
    names = schema.fieldNames()
    if "value" not in names:
        raise InvalidSchema("value", "it is missing", _ALLOWED)
    if "topic" not in names and options.topic is None:
        raise InvalidSchema("topic", "it is missing, and there is no option topic", _ALLOWED)
    for field in schema:
        texts = (StringType,) if field.name == "topic" else (BinaryType, StringType)
        if field.name in {"topic", "value", "key"}:
            fits = isinstance(field.dataType, texts)
        elif field.name == "headers":
            fits = field.dataType.simpleString() == HEADERS.simpleString()
        elif field.name == "partition":
            fits = isinstance(field.dataType, IntegerType)
        else:
            raise InvalidSchema(field.name, "there is no such column", _ALLOWED)
        if not fits:
            problem = f"{field.dataType.simpleString()} cannot be published"
            raise InvalidSchema(field.name, problem, _ALLOWED)


def sink_rows(batch: pa.RecordBatch, *, topic: str | None) -> pa.RecordBatch:
    """Return a batch with the columns of SINK_SCHEMA; `topic` replaces the topic of all rows.

    Raise InvalidSchema if a row is for a partition that the log does not have.
    """
    if "partition" in batch.schema.names:
        numbers = batch.column("partition").drop_null()
        others = numbers.filter(pc.not_equal(numbers, _PARTITION))
        if len(others):
            allowed = f"{_PARTITION} or null, since a broker's log has one partition"
            raise InvalidSchema("partition", f"a row has {others[0]}", allowed)
    columns = []
    fields = []
    for field in SINK_SCHEMA:
        if field.name == "topic" and topic is not None:
            columns.append(pa.repeat(pa.scalar(topic, field.type), len(batch)))
        elif field.name in batch.schema.names:
            columns.append(batch.column(field.name).cast(field.type))
        else:
            continue
        fields.append(field)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


class _Sink:
    """Common part of the batch and stream writer."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_rows(schema, options)
        self._broker: Broker = options.broker
        self._topic = options.topic

    def _stage(self, batches: Iterator[pa.RecordBatch], *, writer: str, epoch: int) -> Staged:
        context = TaskContext.get()
        if context is None:
            raise AssertionError("rows are written outside a Spark task")
        partition = context.partitionId()
        rows = (sink_rows(batch, topic=self._topic) for batch in batches)
        token = uuid.uuid4().hex
        with self._broker.client() as client:
            client.stage(
                rows,
                writer=writer,
                epoch=epoch,
                partition=partition,
                attempt=context.attemptNumber(),
                token=token,
            )
        return Staged(writer, epoch, partition, token)

    def _publish(self, messages: list[WriterCommitMessage | None], *, final: bool) -> None:
        """Publish the staged rows of all tasks; `final` if the writer has no further epoch."""
        staged = [each for each in messages if isinstance(each, Staged)]
        if not staged:
            return
        tokens = {each.partition: each.token for each in staged}
        partitions = sorted(tokens)
        with self._broker.client() as client:
            client.publish_epoch(
                staged[0].writer,
                staged[0].epoch,
                partitions,
                tokens=[tokens[each] for each in partitions],
                final=final,
            )

    def _abort(self, writer: str, epoch: int) -> None:
        """Remove staged rows; if the broker does not answer, they expire there."""
        with self._broker.client() as client, contextlib.suppress(PenstockError):
            client.abort_epoch(writer, epoch)


class BatchWriter(_Sink, DataSourceArrowWriter):
    """Publishes a DataFrame; with `writer` and `epoch` a repeated write publishes nothing."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._writer = options.writer or f"batch-{uuid.uuid4()}"
        self._epoch = options.epoch or 0
        self._once = options.writer is None
        with self._broker.client(expected=False) as client:
            client.bounds()  # fail on a wrong address before rows are computed

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a task."""
        return self._stage(iterator, writer=self._writer, epoch=self._epoch)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the staged rows of all tasks."""
        self._publish(messages, final=self._once)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """Remove the staged rows of all tasks."""
        self._abort(self._writer, self._epoch)


class StreamWriter(_Sink, DataSourceStreamArrowWriter):
    """Publishes each batch of a query exactly once.

    The writer is the query, whose id is in its checkpoint, or the option `writer`.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._writer = options.writer

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a task."""
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY) if context is not None else None
        epoch = context.getLocalProperty(_EPOCH) if context is not None else None
        writer = self._writer or query
        if writer is None or epoch is None:
            allowed = "a name unique to this query that stays the same when the query restarts"
            raise InvalidOption("writer", "Spark sets no query id", allowed)
        return self._stage(iterator, writer=writer, epoch=int(epoch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish the staged rows of a batch."""
        for each in messages:
            if isinstance(each, Staged) and each.epoch != batchId:
                raise AssertionError(f"batch {batchId} has rows of {each.epoch}")
        self._publish(messages, final=False)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove the staged rows of a batch."""
        writers = {each.writer for each in messages if isinstance(each, Staged)}
        for writer in writers | ({self._writer} if self._writer else set()):
            self._abort(writer, batchId)
