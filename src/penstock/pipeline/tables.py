"""Tables as Spark sees them: executors write the files, the driver commits them."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pyarrow as pa

from penstock.pipeline.delta import DeltaLog
from penstock.pipeline.errors import ColumnChanged
from penstock.pipeline.files import DataFile, take_out

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["STAGING", "Table", "prepare"]

STAGING: Final = "_staging"
"""Where in a table's folder files are until they are whole."""
_SETTINGS: Final = {
    # What other readers expect, and bounds in the footers.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A batch of several days is written without being sorted by day first.
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    # Files are named one by one: no job is needed to look them up.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.session.timeZone": "UTC",
}
_WRITE: Final = {
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "compression": "zstd",
}


def prepare(spark: "SparkSession") -> None:
    """Set what writing and reading tables needs."""
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)


class Table:
    """A table in a folder. One process writes it; `write` and `commit` are for one thread.

    With `by_day` its rows have a column `day`, and its files are kept by it.
    """

    def __init__(self, folder: Path, *, by_day: bool) -> None:
        self.folder = folder.absolute()
        self.name = folder.name
        self.by_day = by_day
        self.log = DeltaLog(self.folder)

    def exists(self) -> bool:
        """Look at what is committed; tell whether there is a table."""
        return self.log.refresh() >= 0

    def recover(self) -> None:
        """Remove staged files of a killed process; no other process may write the table.

        Data files that were written and not committed stay until the next vacuum.
        """
        shutil.rmtree(self.folder / STAGING, ignore_errors=True)

    # --- Writing

    def fit(self, frame: "DataFrame") -> None:
        """Make the table for a frame's columns; see `fit_schema`."""
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

        self.fit_schema(to_arrow_schema(frame.schema, timezone="UTC"))

    def fit_schema(self, schema: pa.Schema) -> None:
        """Make the table, or give it the columns that are new; raise ColumnChanged."""
        schema = _nullable(schema)
        if self.log.refresh() < 0:
            self.log.create(schema, by_day=self.by_day)
            return
        known = {field.name: field for field in _nullable(self.log.schema())}
        for field in schema:
            old = known.get(field.name)
            if old is not None and not _alike(old.type, field.type):
                raise ColumnChanged(self.name, field.name, str(old.type), str(field.type))
        new = [field for field in schema if field.name not in known]
        if new:
            self.log.add_columns(new)

    def write(self, frame: "DataFrame") -> list[DataFile]:
        """Have the rows of a frame written into the table's folder; `commit` makes them its own."""
        name = uuid4().hex
        staging = self.folder / STAGING / name
        writer = frame.write.options(**_WRITE)
        if self.by_day:
            writer = writer.partitionBy("day")
        try:
            writer.parquet(str(staging))
            return take_out(staging, self.folder, prefix=f"part-{name}")
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def commit(
        self,
        *,
        add: Sequence[DataFile] = (),
        remove: Sequence[DataFile] = (),
        marks: Mapping[str, int] | None = None,
    ) -> None:
        """Take files in and out and set marks, all in one."""
        self.log.commit(add=add, remove=remove, marks=marks)

    # --- Reading

    def read(self, spark: "SparkSession", files: Sequence[DataFile] | None = None) -> "DataFrame":
        """Return the rows of files, all that the table has without them."""
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415

        schema = from_arrow_schema(self.log.schema(), prefer_timestamp_ntz=True)
        found = self.log.files() if files is None else files
        if not found:
            return spark.createDataFrame([], schema)
        paths = [os.path.join(self.folder, each.path) for each in found]  # noqa: PTH118
        return spark.read.schema(schema).option("basePath", str(self.folder)).parquet(*paths)

    def rows(self) -> int:
        """Return how many rows the table has."""
        return sum(each.rows for each in self.log.files())


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(each.name, _plain(each.type)) for each in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return a type whose parts may all be null, lists with the usual name for theirs."""
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _plain(kind.value_type)))
    if pa.types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        return pa.struct([pa.field(each.name, _plain(each.type)) for each in fields])
    return kind


def _alike(one: pa.DataType, other: pa.DataType) -> bool:
    return bool(_plain(one) == _plain(other))
