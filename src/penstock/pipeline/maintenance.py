"""Maintenance of the tables: compaction, deletion of old files and commits, and a check."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.limits import PIPELINE_COMMITS_FACTOR, PIPELINE_Z_ORDER_GROWTH
from penstock.pipeline.config import ELEMENT_COLUMN, RECORD_COLUMN, SilverConfig, WarehouseConfig
from penstock.pipeline.data_files import DataFile, read_parquet
from penstock.pipeline.tables import Table
from penstock.pipeline.warehouse import Warehouse

__all__ = ["Maintenance", "TableCheck", "check_table"]

_PROBLEMS_MAX: Final = 20
"""Problems that are listed for one table."""


class Maintenance:
    """Keeps the number of files and commits of each table small. One thread calls it."""

    def __init__(self, warehouse: Warehouse, silver: Sequence[SilverConfig] = ()) -> None:
        self._warehouse = warehouse
        self._z_order = {each.name: each.z_order for each in silver if each.z_order}
        self._config: WarehouseConfig = warehouse.config
        self._next_commit: dict[str, int] = {}
        """The version of the first commit whose removed files may still exist, by table."""

    def compact(self, table: Table, *, files_min: int | None = None) -> int:
        """Merge small files of a table; return by how many files it shrank.

        Gold tables are left: their jobs replace whole files.
        """
        if self._warehouse.is_gold(table):
            return 0
        config = self._config
        files_min = config.compact_files_min if files_min is None else files_min
        with table.rewriting:
            table.log.refresh()
            shrunk = table.log.compact(files_min=files_min, size=config.compact_bytes)
            columns = self._z_order.get(table.name)
            if columns and table.log.files():
                before = len(table.log.files())
                growth = PIPELINE_Z_ORDER_GROWTH if files_min == config.compact_files_min else 1.0
                table.log.z_order(columns, size=config.compact_bytes, growth=growth)
                shrunk += before - len(table.log.files())
            return shrunk

    def delete_history(self, table: Table, *, now: float | None = None) -> int:
        """Delete replaced files and commits older than the history; return how many files.

        `now` is the current time, or the start of the oldest step that still runs: it may read
        files that were replaced since.
        """
        now = time.time() if now is None else now
        seconds = self._config.history_seconds
        place = table.store.url
        deleted, self._next_commit[place] = table.log.delete_replaced(
            before=now - seconds, since=self._next_commit.get(place, 0)
        )
        table.log.delete_commits(before=now - PIPELINE_COMMITS_FACTOR * seconds)
        return deleted

    def vacuum(self, table: Table) -> int:
        """Delete old files that no commit names; return how many."""
        config = self._config
        return table.log.vacuum(seconds=max(3600 * config.vacuum_hours, config.history_seconds))


class TableCheck(NamedTuple):
    """The result of a check; `uncommitted` files belong to no version of the table on disk."""

    rows: int
    files: int
    uncommitted: int
    problems: list[str]


def check_table(table: Table) -> TableCheck:
    """Read all files of a table; compare them with its log, and look for repeated messages."""
    files = table.log.files()
    problems: list[str] = []
    for each in files:
        problems += _file_problems(table, each)
    if not problems and "message_id" in table.log.schema().names:
        problems += _repeated(table, files)
    known = {each.path for each in files} | table.log.removed_paths()
    shown = problems[:_PROBLEMS_MAX]
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown)} more")
    return TableCheck(table.rows(), len(files), len(table.log.paths_on_disk() - known), shown)


def _file_problems(table: Table, file: DataFile) -> Iterator[str]:
    """Yield the difference between a file and its entry in the log, if there is one."""
    store = table.store
    try:
        size = store.stat(file.path).size
        if size != file.size:
            yield f"{file.path} has {size} bytes, not {file.size}"
            return
        with pq.ParquetFile(store.path(file.path), filesystem=store.file_system) as opened:
            rows = sum(batch.num_rows for batch in opened.iter_batches())
    except FileNotFoundError:
        yield f"{file.path} is missing"
    except (OSError, pa.ArrowException) as error:
        yield f"{file.path} cannot be read: {str(error).splitlines()[0]}"
    else:
        if rows != file.rows:
            yield f"{file.path} has {rows} rows, not {file.rows}"


def _repeated(table: Table, files: Sequence[DataFile]) -> Iterator[str]:
    """Yield rows of messages that are in a table more than once, and repeated dead letters.

    A row has one partition, so the files of a partition are enough at a time.
    """
    named = (RECORD_COLUMN, ELEMENT_COLUMN, "message_id")
    keys = [name for name in named if name in table.log.schema().names]
    if table.name == "dead_letters":
        keys = ["schema", "message_id"]
    for partition in sorted({each.partition for each in files}, key=str):
        paths = [each.path for each in files if each.partition == partition]
        read = (read_parquet(table.store, path, keys) for path in paths)
        # Of the columns alone: files may differ in whether a column may be null.
        found = pa.concat_tables(pa.table(each.columns, names=keys) for each in read)
        counts: Counter[tuple[str, ...]] = Counter()
        if len(found) != len(found.group_by(keys).aggregate([])):
            counts.update(tuple(row.values()) for row in found.to_pylist())
        for key, count in counts.items():
            if count > 1:
                yield f"message {key[-1]} is there {count} times"
