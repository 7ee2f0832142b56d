"""Records of the last files of bronze, in memory: all tables read them, one after the other."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.limits import (
    PIPELINE_BATCH_ROWS_MAX,
    PIPELINE_READ_ROWS_MAX,
    PIPELINE_RECENT_BYTES_MAX,
    PIPELINE_RECENT_ROWS_MAX,
    PIPELINE_SMALL_STEP_ROWS_MAX,
)
from penstock.patterns import compile_pattern
from penstock.pipeline.data_files import DataFile
from penstock.pipeline.offsets import Slice, in_any_slice
from penstock.ports.selection import EVERYTHING
from penstock.spark.schema import RECORD, arrow_schema
from penstock.storage.object_store import ObjectStore

__all__ = ["RecentRecords", "Selection", "of_topics"]

Selection: TypeAlias = Callable[[pa.Table], pa.ChunkedArray | None]
"""Returns for each record whether it is selected; None selects all."""
_SCHEMA: Final = arrow_schema(RECORD)


class _Part(NamedTuple):
    """The records of a file from an offset on."""

    first: int
    rows: pa.Table


class RecentRecords:
    """Reads records of bronze, and keeps those of the last files. All threads may call it."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._parts: OrderedDict[str, _Part] = OrderedDict()

    def read(
        self, files: Sequence[DataFile], slices: Sequence[Slice], selection: Selection
    ) -> pa.Table | None:
        """Return selected records of slices, which the files hold; None if the files are large.

        Most tables need few of the records, so others are not copied.
        """
        first = min((each.start for each in slices), default=0)
        found = []
        for each in files:
            rows = self._rows(each, first)
            if rows is None:
                return None
            inside, selected = in_any_slice(rows, slices), selection(rows)
            found.append(rows.filter(inside if selected is None else pc.and_(inside, selected)))
        return pa.concat_tables(found).combine_chunks() if found else None

    def _rows(self, file: DataFile, first: int) -> pa.Table | None:
        """Return the records of a file from an offset on, or some more."""
        with self._lock:
            known = self._parts.get(file.path)
            if known is None or known.first > first:
                # Other tables may be some steps behind this one.
                known = self._read(file, max(0, first - PIPELINE_SMALL_STEP_ROWS_MAX))
            if known is not None:
                self._parts[file.path] = known
                self._parts.move_to_end(file.path)
            while self._is_full():
                self._parts.popitem(last=False)
            return None if known is None else known.rows

    def _read(self, file: DataFile, first: int) -> _Part | None:
        """Read the records of a file; a compacted file has many that all tables reflect."""
        if file.rows > PIPELINE_BATCH_ROWS_MAX:
            return None
        store = self._store
        found, size = [], 0
        with pq.ParquetFile(store.path(file.path), filesystem=store.file_system) as opened:
            for batch in opened.iter_batches(PIPELINE_READ_ROWS_MAX, use_threads=False):
                late = batch.filter(pc.greater_equal(batch.column("offset"), first))
                found.append(_uniform(late))
                size += late.nbytes
                if size > PIPELINE_RECENT_BYTES_MAX:
                    return None
        return _Part(first, pa.concat_tables([_SCHEMA.empty_table(), *found]))

    def _is_full(self) -> bool:
        kept = [each.rows for each in self._parts.values()]
        return len(kept) > 1 and (
            sum(each.nbytes for each in kept) > PIPELINE_RECENT_BYTES_MAX
            or sum(map(len, kept)) > PIPELINE_RECENT_ROWS_MAX
        )


def _uniform(rows: pa.RecordBatch) -> pa.Table:
    """Return records with the columns of bronze; a compaction may write other types of Arrow."""
    names = rows.schema.names
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in names
        else pa.nulls(len(rows), field.type)
        for field in _SCHEMA
    ]
    return pa.table(columns, schema=_SCHEMA)


def of_topics(records: pa.Table, patterns: Sequence[str]) -> pa.ChunkedArray | None:
    """Return which records have a topic that matches any pattern; `#` matches every record."""
    if not EVERYTHING.isdisjoint(patterns):
        return None
    names = {pattern for pattern in patterns if compile_pattern(pattern) is None}
    expressions = [found for found in map(compile_pattern, patterns) if found is not None]
    topics = pc.unique(records.column("topic")).to_pylist()
    chosen = [
        topic
        for topic in topics
        if topic is not None
        and (topic in names or (topic and any(each.fullmatch(topic) for each in expressions)))
    ]
    return pc.is_in(records.column("topic"), pa.array(chosen, pa.string()))
