"""Bronze: every record as it was taken, by day."""

from typing import TYPE_CHECKING

from penstock.pipeline.positions import Stream, ends, not_before

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.pipeline.tables import Table

__all__ = ["BronzeWriter", "bronze", "positions_of"]


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
        known = self.positions
        condition = not_before(known)
        files = self._table.write(frame if condition is None else frame.where(condition))
        if not files:
            return 0
        found = ends(self._table.folder, files)
        if not found.keys() <= known.keys():
            names = frozenset(stream.name for stream in found.keys() | known.keys())
            self._table.log.remember(names)
        self._table.commit(
            add=files, marks={stream.name: offset for stream, offset in found.items()}
        )
        known.update(found)
        return sum(each.rows for each in files)


def positions_of(table: "Table") -> dict[Stream, int]:
    """Return how far the bronze table has come, by its own log."""
    if not table.exists():
        return {}
    streams = map(Stream.parse, table.log.names())
    return {stream: table.log.mark(stream.name) or 0 for stream in streams}
