"""Delta tables for Spark: executors write the data files, the driver commits them."""

import re
import shutil
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StringType, StructType

from penstock.pipeline.data_files import DataFile, describe, move_data_files
from penstock.pipeline.delta_log import DeltaLog
from penstock.pipeline.errors import ColumnChanged, PartitionsChanged
from penstock.pipeline.object_tables import read_objects, read_rows, write_objects, write_rows
from penstock.pipeline.widening import widened
from penstock.storage.object_store import ObjectStore

__all__ = ["STAGING", "Table", "prepare"]

STAGING: Final = "_staging"
"""The folder in a table's folder for files that are still being written."""
_SETTINGS: Final = {
    # The type that other readers expect, with statistics in the footer.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Write several days at once instead of sorting by day first.
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    # Reads name every file, so no Spark job has to list them.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.session.timeZone": "UTC",
}
_WRITE: Final = {
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "compression": "zstd",
}

_ESCAPED_BYTE: Final = re.compile("%[89A-Fa-f][0-9A-Fa-f]")
"""A byte of UTF-8 in a folder's name, as delta-rs writes it. Spark takes it for a character."""


def prepare(spark: SparkSession) -> None:
    """Set the session's settings for writing and reading tables."""
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)


class Table:
    """A Delta table in a folder or a bucket.

    One process writes it; one thread calls `write` and `commit`.

    A new table is partitioned by the columns `partition_by`.
    """

    def __init__(
        self,
        place: ObjectStore | Path,
        *,
        partition_by: Sequence[str],
        read_offsets: dict[str, int] | None = None,
        rewriting: "threading.Lock | None" = None,
    ) -> None:
        self.read_offsets: dict[str, int] = {} if read_offsets is None else read_offsets
        """Offsets of streams up to which this process read without a row for the table.

        They are newer than those in the table's log, which change only with rows, so that no
        commit is empty. All objects of a table in a process share them.
        """
        self.rewriting = threading.Lock() if rewriting is None else rewriting
        """Held while existing rows are moved to other files: by a compaction or a merge."""
        self.store = ObjectStore.at(place)
        self.name = self.store.url.rpartition("/")[2]
        self.partition_by = tuple(partition_by)
        self.log = DeltaLog(self.store)

    @property
    def folder(self) -> Path:
        """The folder of a table that is not in a bucket."""
        folder = self.store.folder
        if folder is None:
            raise AssertionError(f"{self.store.url} is in a bucket")
        return folder

    def exists(self) -> bool:
        """Load the newest snapshot; return whether the table exists."""
        return self.log.refresh() >= 0

    def recover(self) -> None:
        """Remove staged files of a killed process; no other process may write the table.

        Data files that were written and not committed stay until the next vacuum.
        """
        if self.store.folder is not None:  # in a bucket there is no staging
            shutil.rmtree(self.store.folder / STAGING, ignore_errors=True)

    # --- Writing

    def evolve_schema(self, frame: DataFrame) -> None:
        """Create the table, or give it the columns and wider types of a DataFrame.

        Raise ColumnChanged or PartitionsChanged.
        """
        schema = to_arrow_schema(frame.schema, timezone="UTC")
        if self.log.refresh() >= 0:
            wider = widened(_nullable(self.log.schema()), _nullable(schema))
            if wider is not None:
                self._rewrite(frame.sparkSession, wider)
        self.evolve_arrow_schema(schema)

    def _rewrite(self, spark: SparkSession, schema: pa.Schema) -> None:
        """Replace all files by files with wider types, in one commit.

        Delta has a table feature for files with narrower types, but common readers refuse tables
        with it.
        """
        with self.rewriting:
            self.log.refresh()
            rows = self.read(spark, schema=schema)
            files = self.write(rows) if self.log.files() else []
            self.log.replace(add=files, schema=schema, transactions={})

    def evolve_arrow_schema(self, schema: pa.Schema) -> None:
        """Create the table, or add the columns that it lacks; raise ColumnChanged."""
        schema = _nullable(schema)
        if self.log.refresh() < 0:
            self.log.create(schema, partition_by=self.partition_by)
            return
        if self.log.partition_by() != self.partition_by:
            raise self.partitions_changed()
        known = {field.name: field for field in _nullable(self.log.schema())}
        for field in schema:
            old = known.get(field.name)
            if old is not None and not _same_type(old.type, field.type):
                raise ColumnChanged(self.name, field.name, str(old.type), str(field.type))
        new = [field for field in schema if field.name not in known]
        if new:
            self.log.add_columns(new)

    def partitions_changed(self) -> PartitionsChanged:
        """Return the error of a table whose partitions are not `partition_by`."""
        both = (self.log.partition_by(), self.partition_by)
        old, new = (", ".join(each) or "none" for each in both)
        return PartitionsChanged(self.name, old, new, self.store.url)

    def write(self, frame: DataFrame) -> list[DataFile]:
        """Write rows to data files in the table's folder; `commit` adds them to the table."""
        folder = self.store.folder
        if folder is None:
            return write_objects(self.store, frame, partition_by=self.partition_by)
        name = uuid4().hex
        staging = folder / STAGING / name
        writer = frame.write.options(**_WRITE)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        try:
            writer.parquet(str(staging))
            return move_data_files(staging, folder, prefix=f"part-{name}")
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def write_rows(self, rows: pa.Table) -> list[DataFile]:
        """Write a few rows to data files, without Spark; see `write`."""
        if not len(rows):
            return []
        folder = self.store.folder
        if folder is None:
            paths = write_rows(self.store, rows, partition_by=self.partition_by)
            return [describe(self.store, path) for path in paths]
        name = uuid4().hex
        staging = folder / STAGING / name
        try:
            write_rows(ObjectStore.at(staging), rows, partition_by=self.partition_by)
            return move_data_files(staging, folder, prefix=f"part-{name}")
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def commit(
        self,
        *,
        add: Sequence[DataFile] = (),
        remove: Sequence[DataFile] = (),
        transactions: Mapping[str, int] | None = None,
    ) -> None:
        """Add and remove files and set app transactions in one commit."""
        self.log.commit(add=add, remove=remove, transactions=transactions)

    # --- Reading

    def read(
        self,
        spark: SparkSession,
        files: Sequence[DataFile] | None = None,
        *,
        schema: pa.Schema | None = None,
    ) -> DataFrame:
        """Return the rows of some data files, by default of all, in types that may be wider."""
        columns = self.log.schema() if schema is None else schema
        kinds = from_arrow_schema(columns, prefer_timestamp_ntz=True)
        found = self.log.files() if files is None else files
        if not found:
            return _no_rows(spark, kinds)
        if self.store.folder is None:
            return read_objects(spark, self.store, found, kinds)
        escaped = [each for each in found if _ESCAPED_BYTE.search(each.path)]
        if not escaped:
            return self._files(spark, found, kinds)
        texts = [name for name in self.log.partition_by() if kinds[name].dataType == StringType()]
        decoded = {
            name: functions.decode(functions.encode(name, "ISO-8859-1"), "UTF-8") for name in texts
        }
        frame = self._files(spark, escaped, kinds).withColumns(decoded)
        others = [each for each in found if not _ESCAPED_BYTE.search(each.path)]
        return frame.unionByName(self._files(spark, others, kinds)) if others else frame

    def _files(
        self, spark: SparkSession, files: Sequence[DataFile], kinds: StructType
    ) -> DataFrame:
        paths = [self.store.path(each.path) for each in files]
        return spark.read.schema(kinds).option("basePath", self.store.path()).parquet(*paths)

    def read_rows(
        self, files: Sequence[DataFile], columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Return the rows of a few data files, by default with all columns, without Spark."""
        schema = _nullable(self.log.schema())
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        return read_rows(self.store, files, schema)

    def rows(self) -> int:
        """Return the number of rows of the table."""
        return sum(each.rows for each in self.log.files())


def _no_rows(spark: SparkSession, kinds: StructType) -> DataFrame:
    """Return a DataFrame without rows; `createDataFrame` would make `spark` the active session."""
    columns = [functions.lit(None).cast(kind.dataType).alias(kind.name) for kind in kinds]
    return spark.range(0).select(*columns)


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(each.name, _nullable_type(each.type)) for each in schema])


def _nullable_type(kind: pa.DataType) -> pa.DataType:
    """Return a type whose fields are all nullable; list items are named `element`."""
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _nullable_type(kind.value_type)))
    if pa.types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        return pa.struct([pa.field(each.name, _nullable_type(each.type)) for each in fields])
    if pa.types.is_map(kind):
        return pa.map_(_nullable_type(kind.key_type), _nullable_type(kind.item_type))
    return kind


def _same_type(one: pa.DataType, other: pa.DataType) -> bool:
    return bool(_nullable_type(one) == _nullable_type(other))
