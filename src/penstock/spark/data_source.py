"""The data source `penstock`: every topic is a table."""

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from penstock.spark.errors import InvalidOption
from penstock.spark.options import read_options, write_options
from penstock.spark.reader import BatchReader, FilteringReader
from penstock.spark.schema import RECORD, record
from penstock.spark.stream import StreamReader
from penstock.spark.writer import BatchWriter, StreamWriter

__all__ = ["PenstockDataSource", "register"]


class PenstockDataSource(DataSource):
    """Reads a broker's log, as a batch or as a stream, and publishes rows to a broker."""

    @classmethod
    def name(cls) -> str:
        """Return what `format` takes."""
        return "penstock"

    def schema(self) -> StructType:
        """Return the record's columns; raise InvalidOption."""
        include = str(self.options.get("includeHeaders", "true")).strip().lower()
        if include not in {"true", "false"}:
            raise InvalidOption("includeHeaders", f"{include!r} is neither", "true, false")
        return record([name for name in RECORD.names if include == "true" or name != "headers"])

    def reader(self, schema: StructType) -> BatchReader:
        """Return a reader of a range; raise InvalidOption or InvalidSchema."""
        options = read_options(self.options, streaming=False)
        return (FilteringReader if options.filter_pushdown else BatchReader)(options, schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        """Return a reader of what comes; raise InvalidOption or InvalidSchema."""
        return StreamReader(read_options(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: FBT001
        """Return a sink for a DataFrame; raise InvalidOption or InvalidSchema."""
        _only_append(overwrite=overwrite)
        return BatchWriter(write_options(self.options, streaming=False), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: FBT001, N802
        """Return a sink for a stream; raise InvalidOption or InvalidSchema."""
        _only_append(overwrite=overwrite)
        return StreamWriter(write_options(self.options, streaming=True), schema)


def _only_append(*, overwrite: bool) -> None:
    if overwrite:
        raise InvalidOption("mode", "what was published stays", "append")


def register(spark: SparkSession) -> None:
    """Make `penstock` known to a session that has not found it by itself."""
    spark.dataSource.register(PenstockDataSource)
