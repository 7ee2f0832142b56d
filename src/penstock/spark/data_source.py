"""The Python data source `penstock`: batch read, stream read and sink."""

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from penstock.spark.errors import InvalidOption
from penstock.spark.options import ReadOptions, parse_columns, read_options, write_options
from penstock.spark.reader import BatchReader
from penstock.spark.schema import RECORD, record
from penstock.spark.stream import StreamReader
from penstock.spark.writer import BatchWriter, StreamWriter

__all__ = ["PenstockDataSource", "register"]


class PenstockDataSource(DataSource):
    """Reads a broker's log as a batch or stream, and publishes rows to a broker."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "penstock"

    def schema(self) -> StructType:
        """Return the record's columns; raise InvalidOption or InvalidSchema."""
        include = str(self.options.get("includeHeaders", "true")).strip().lower()
        if include not in {"true", "false"}:
            raise InvalidOption("includeHeaders", f"{include!r} is neither", "true, false")
        columns = parse_columns(self.options.get("columns"))
        if columns is not None:
            return record(columns)
        return record([name for name in RECORD.names if include == "true" or name != "headers"])

    def reader(self, schema: StructType) -> BatchReader:
        """Return the batch reader; raise InvalidOption or InvalidSchema."""
        options = read_options(self.options, streaming=False)
        _require_columns(options, schema)
        return BatchReader(options, schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        """Return the stream reader; raise InvalidOption or InvalidSchema."""
        options = read_options(self.options, streaming=True)
        _require_columns(options, schema)
        return StreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: FBT001
        """Return the sink of a DataFrame; raise InvalidOption or InvalidSchema."""
        if overwrite:
            raise InvalidOption("mode", "published messages cannot be overwritten", "append")
        return BatchWriter(write_options(self.options, streaming=False), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: ARG002, FBT001, N802
        """Return the sink of a stream; raise InvalidOption or InvalidSchema.

        With the output mode `complete`, which sets `overwrite`, it publishes the whole result of
        each batch, as Spark's Kafka sink does.
        """
        return StreamWriter(write_options(self.options, streaming=True), schema)


def _require_columns(options: ReadOptions, schema: StructType) -> None:
    if options.columns is not None and list(options.columns) != schema.names:
        raise InvalidOption("columns", "there is a schema too", "one of columns, schema")


def register(spark: SparkSession) -> None:
    """Register `penstock` in a session that did not discover the installed package."""
    spark.dataSource.register(PenstockDataSource)
