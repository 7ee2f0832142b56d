"""Data files of a table: Parquet files with the statistics of their columns."""

import datetime as dt
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.storage.object_store import ObjectStore

__all__ = [
    "NULL_PARTITION",
    "DataFile",
    "describe",
    "json_value",
    "move_data_files",
    "partition_of",
    "read_parquet",
]

STATISTICS_TYPES: Final = (
    pa.types.is_integer, pa.types.is_floating, pa.types.is_string, pa.types.is_timestamp,
    pa.types.is_date,
)  # fmt: skip
NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
"""The value in the name of a partition's folder that means null."""
STATISTICS_CHARACTERS_MAX: Final = 64
"""Columns with a longer maximum get no statistics in the table's log."""


class DataFile(NamedTuple):
    """A Parquet file of a table; `path` is relative to the table's folder.

    `low` and `high` hold the minimum and maximum of each column that has statistics. `partition`
    are the names and values of partition columns, in their order; None is null.
    """

    path: str
    size: int
    rows: int
    partition: tuple[tuple[str, str | None], ...]
    low: Mapping[str, Any]
    high: Mapping[str, Any]
    nulls: Mapping[str, int]
    modified_ms: int

    @property
    def day(self) -> str | None:
        """The value of the partition column `day`, None if the table has none."""
        return dict(self.partition).get("day")

    def overlaps(self, column: str, start: Any, end: Any) -> bool:  # noqa: ANN401
        """Return whether the file may hold a value from `start` up to, not including, `end`."""
        low: Any = json_value(self.low.get(column))
        high: Any = json_value(self.high.get(column))
        start, end = json_value(start), json_value(end)
        return low is None or high is None or (low < end and high >= start)


def describe(place: ObjectStore | Path, path: str) -> DataFile:
    """Return a data file with the statistics of its Parquet footer, and its partition's values."""
    store = ObjectStore.at(place)
    state = store.stat(path)
    footer = pq.read_metadata(store.path(path), filesystem=store.file_system)
    schema = footer.schema.to_arrow_schema()
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    names = {
        footer.schema.column(number).path: number for number in range(len(footer.schema.names))
    }
    for field in schema:
        number = names.get(field.name)
        if number is None or not any(fits(field.type) for fits in STATISTICS_TYPES):
            continue
        found = [footer.row_group(group).column(number) for group in range(footer.num_row_groups)]
        statistics = [each.statistics for each in found if each.num_values]
        if any(each is None for each in statistics):
            continue
        if all(each.has_null_count for each in statistics):
            nulls[field.name] = sum(each.null_count for each in statistics)
        bounded = [each for each in statistics if each.has_min_max]
        if bounded and all(
            each.has_min_max or each.null_count == chunk.num_values
            for each, chunk in zip(statistics, (c for c in found if c.num_values), strict=True)
        ):
            least = min(each.min for each in bounded)
            greatest = max(each.max for each in bounded)
            if isinstance(greatest, str) and len(greatest) > STATISTICS_CHARACTERS_MAX:
                continue
            low[field.name], high[field.name] = least, greatest
    return DataFile(
        path=path,
        size=state.size,
        rows=footer.num_rows,
        partition=partition_of(path),
        low=low,
        high=high,
        nulls=nulls,
        modified_ms=int(state.modified * 1000),
    )


def read_parquet(store: ObjectStore, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of a data file, without the columns of its partition."""
    return pq.read_table(
        store.path(path), columns=columns, partitioning=None, filesystem=store.file_system
    )


def partition_of(path: str) -> tuple[tuple[str, str | None], ...]:
    """Return names and values of the partition folders of a file, such as `site=a/day=…`."""
    pairs = (folder.partition("=") for folder in path.split("/")[:-1])
    return tuple(
        (name, None if value == NULL_PARTITION else unquote(value)) for name, _, value in pairs
    )


def json_value(value: object) -> object:
    """Return a value as Delta's statistics write it."""
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat(timespec="microseconds")[:26] + "Z"
    if isinstance(value, dt.date):
        return value.isoformat()
    return value


def move_data_files(staging: Path, folder: Path, *, prefix: str) -> list[DataFile]:
    """Move Parquet files from a staging folder into the table's folder; return those with rows.

    Partition folders such as `day=…` are kept. The names are new, so no file is overwritten.
    """
    found: list[DataFile] = []
    for parent, _, names in os.walk(staging):
        below = os.path.relpath(parent, staging)
        for name in sorted(names):
            if (
                not name.endswith(".parquet")
                or name.startswith((".", "_"))
                or "_temporary" in below
            ):
                continue
            moved = f"{prefix}-{len(found)}.parquet"
            path = moved if below == "." else f"{below}/{moved}"
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            Path(parent, name).rename(target)
            found.append(describe(folder, path))
    return [each for each in found if each.rows]
