"""Bronze: every record as it was taken, by day."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.pipeline.files import DataFile, day_of, describe
from penstock.pipeline.landing import LandedFiles
from penstock.pipeline.positions import Stream, ends, not_before, without
from penstock.spark.schema import RECORD, arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.pipeline.tables import Table

__all__ = ["BronzeWriter", "bronze", "positions_of"]


LANDED: Final = arrow_schema(RECORD).append(pa.field("day", pa.date32()))
"""The table's columns."""


def bronze(records: "DataFrame") -> "DataFrame":
    """Return records with the day, in UTC, on which the broker took them."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    return records.withColumn("day", f.to_date("timestamp"))


class BronzeWriter:
    """Puts records into the table, each once: what is before the table's position is left out.

    So a batch that comes again, after a crash or with a checkpoint that was lost, adds nothing.
    """

    def __init__(self, table: "Table") -> None:
        self._table = table
        self._positions: dict[Stream, int] | None = None

    @property
    def positions(self) -> dict[Stream, int]:
        """The next offset of each stream."""
        if self._positions is None:
            self._positions = positions_of(self._table)
        return self._positions

    def put(self, records: "DataFrame") -> int:
        """Put records into the table; return how many were new."""
        frame = bronze(records)
        if self._positions is None:
            self._table.fit(frame)
        condition = not_before(self.positions)
        return self._commit(
            self._table.write(frame if condition is None else frame.where(condition))
        )

    def take(self, paths: Sequence[str]) -> int:
        """Put files of records that were written into the table's folder into the table.

        Return how many of their records were new.
        """
        if self._positions is None:
            self._table.fit_schema(LANDED)
        folder = self._table.folder
        files = []
        for path in paths:
            file = describe(folder, path, day=day_of(path))
            done = [self.positions.get(stream, 0) for stream in ends(folder, [file])]
            if any(offset > file.low["offset"] for offset in done):
                file = self._trimmed(file)
            if file.rows:
                files.append(file)
        return self._commit(files)

    def _commit(self, files: list[DataFile]) -> int:
        if not files:
            return 0
        known = self.positions
        found = ends(self._table.folder, files)
        if not found.keys() <= known.keys():
            names = frozenset(stream.name for stream in found.keys() | known.keys())
            self._table.log.remember(names)
        self._table.commit(
            add=files, marks={stream.name: offset for stream, offset in found.items()}
        )
        known.update(found)
        return sum(each.rows for each in files)

    def _trimmed(self, file: DataFile) -> DataFile:
        """Write a file anew without the records that the table has."""
        place = self._table.folder / file.path
        left = without(pq.read_table(place, partitioning=None), self.positions)
        place.unlink()
        if not len(left):
            return file._replace(rows=0)
        with LandedFiles(self._table.folder, left.schema) as files:
            for batch in left.combine_chunks().to_batches():
                files.write(batch)
            (path,) = files.close()
        return describe(self._table.folder, path, day=file.day)


def positions_of(table: "Table") -> dict[Stream, int]:
    """Return how far the bronze table has come, by its own log."""
    if not table.exists():
        return {}
    streams = map(Stream.parse, table.log.names())
    return {stream: table.log.mark(stream.name) or 0 for stream in streams}
