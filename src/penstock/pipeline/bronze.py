"""Bronze: every record as the broker stored it, partitioned by day."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.limits import (
    PIPELINE_COMMIT_ROWS,
    PIPELINE_RECENT_ROWS_MAX,
    PIPELINE_SMALL_STEP_ROWS_MAX,
)
from penstock.pipeline.bronze_ingest import DailyParquetFiles
from penstock.pipeline.data_files import DataFile, describe, read_parquet
from penstock.pipeline.errors import WarehouseInUse
from penstock.pipeline.offsets import (
    Slice,
    Stream,
    at_or_after,
    drop_before,
    end_offsets,
    in_slices,
    lag,
    next_slices,
    overlapping,
)
from penstock.pipeline.recent_records import RecentRecords, Selection
from penstock.pipeline.step_session import session_for
from penstock.pipeline.tables import Table
from penstock.spark.schema import RECORD, arrow_schema

__all__ = [
    "BronzeWriter",
    "NewRecords",
    "bronze",
    "bronze_offsets",
    "new_records",
    "skip_slices",
    "table_offsets",
]

BRONZE_SCHEMA: Final = arrow_schema(RECORD).append(pa.field("day", pa.date32()))


def bronze(records: DataFrame) -> DataFrame:
    """Return records with `day`, the UTC day of their broker timestamp."""
    return records.withColumn("day", f.to_date("timestamp"))


class BronzeWriter:
    """Adds records to the bronze table, each once.

    Records before the table's offsets are dropped, so a batch that Spark runs again, after a crash
    or with a lost checkpoint, adds nothing twice.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._offsets: dict[Stream, int] | None = None
        self._rows: int | None = None
        self._schema_evolved = False

    @property
    def rows(self) -> int:
        """The number of records in the table."""
        if self._rows is None:
            self._rows = self._table.rows() if self._table.exists() else 0
        return self._rows

    @property
    def offsets(self) -> dict[Stream, int]:
        """The next offset of each stream."""
        if self._offsets is None:
            self._offsets = bronze_offsets(self._table)
        return self._offsets

    def write(self, records: DataFrame) -> int:
        """Add the records of a DataFrame; return the number of new ones."""
        frame = bronze(records)
        if not self._schema_evolved:
            self._table.evolve_schema(frame)
            self._schema_evolved = True
        condition = at_or_after(self.offsets)
        return self._commit(
            self._table.write(frame if condition is None else frame.where(condition))
        )

    def add_files(self, paths: Sequence[str]) -> int:
        """Add Parquet files that are already in the table's folder; return the new records."""
        if not self._schema_evolved:
            self._table.evolve_arrow_schema(BRONZE_SCHEMA)
            self._schema_evolved = True
        store = self._table.store
        files = []
        for path in paths:
            file = describe(store, path)
            done = [self.offsets.get(stream, 0) for stream in end_offsets(store, [file])]
            if any(offset > file.low["offset"] for offset in done):
                file = self._without_known_records(file)
            if file.rows:
                files.append(file)
        return self._commit(files)

    def _commit(self, files: list[DataFile]) -> int:
        if not files:
            return 0
        self._table.exists()  # a commit needs all commits after its snapshot; old ones are deleted
        known, rows = self.offsets, self.rows
        self._check_alone(known)
        found = end_offsets(self._table.store, files)
        if not found.keys() <= known.keys():
            names = frozenset(stream.name for stream in found.keys() | known.keys())
            self._table.log.set_stream_names(names)
        self._table.commit(
            add=files, transactions={stream.name: offset for stream, offset in found.items()}
        )
        known.update(found)
        added = sum(each.rows for each in files)
        self._rows = rows + added
        return added

    def _check_alone(self, known: Mapping[Stream, int]) -> None:
        """Raise WarehouseInUse if another process has added records since the last commit.

        A lock keeps processes of one machine apart, and those of others only with this check. A
        commit after it conflicts in the table's log, because both set the same app transaction.
        """
        for stream, offset in known.items():
            if (self._table.log.transaction_version(stream.name) or 0) != offset:
                raise WarehouseInUse(self._table.store.url)

    def _without_known_records(self, file: DataFile) -> DataFile:
        """Replace a file by one without the records that the table already has."""
        store = self._table.store
        left = drop_before(read_parquet(store, file.path), self.offsets)
        store.delete(file.path)
        if not len(left):
            return file._replace(rows=0)
        with DailyParquetFiles(store, left.schema) as files:
            for batch in left.combine_chunks().to_batches():
                files.write(batch)
            (name,) = files.close()
        return describe(store, name)


class NewRecords:
    """Records of bronze that another table has not processed; `more` if others come after them."""

    def __init__(
        self, table: Table, files: Sequence[DataFile], slices: list[Slice], *, more: bool
    ) -> None:
        self._table = table
        self._files = overlapping(files, slices)
        self.slices = slices
        self.more = more

    @property
    def offsets(self) -> int:
        """The number of offsets in the slices; there may be fewer records."""
        return sum(each.end - each.start for each in self.slices)

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the records, in a session for about so many."""
        session = session_for(spark, self.offsets)
        return self._table.read(session, self._files).where(in_slices(self.slices))

    def few_rows(self, recent: RecentRecords, selection: Selection) -> pa.Table | None:
        """Return the selected records if they are few, from memory; None if they are many.

        Of a table that is some steps behind, the records between do not count: a large step takes
        longer, so that a table among many would not catch up again.
        """
        if self.offsets > PIPELINE_RECENT_ROWS_MAX:
            return None
        found = recent.read(self._files, self.slices, selection)
        return None if found is None or len(found) > PIPELINE_SMALL_STEP_ROWS_MAX else found


def new_records(bronze_table: Table, table: Table, *, rows_max: int) -> NewRecords | None:
    """Return the next bronze records for `table`, about `rows_max`; None if there are none."""
    until = bronze_offsets(bronze_table)
    done = table_offsets(table, until)
    files = bronze_table.log.files() if until else ()
    slices = next_slices(files, done=done, until=until, rows_max=rows_max)
    if not slices:
        return None
    ends = done | {each.stream: each.end for each in slices}
    return NewRecords(bronze_table, files, slices, more=lag(ends, until) > 0)


def bronze_offsets(table: Table) -> dict[Stream, int]:
    """Return the next offset of each stream in the bronze table."""
    if not table.exists():
        return {}
    return table_offsets(table, map(Stream.parse, table.log.stream_names()))


def table_offsets(table: Table, streams: Iterable[Stream], prefix: str = "") -> dict[Stream, int]:
    """Return the next offset of streams in a table, from its app transactions `prefix` + name.

    Without a prefix, slices that were skipped count too.
    """
    table.exists()
    read = {} if prefix else table.read_offsets
    return {
        stream: max(
            table.log.transaction_version(f"{prefix}{stream.name}") or 0, read.get(stream.name, 0)
        )
        for stream in streams
    }


def skip_slices(table: Table, slices: Iterable[Slice]) -> None:
    """Note slices without a row for a table; commit their ends once they are many rows.

    A process that is killed before reads the slices again.
    """
    table.read_offsets.update({each.stream.name: each.end for each in slices})
    committed = {
        name: table.log.transaction_version(name) or 0 for name in list(table.read_offsets)
    }
    skipped = sum(max(0, end - committed[name]) for name, end in table.read_offsets.items())
    if skipped >= PIPELINE_COMMIT_ROWS:
        table.commit(transactions=dict(table.read_offsets))
