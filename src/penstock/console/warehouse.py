"""The tables of a pipeline, read from their folder: rows, freshness, commits, dead letters.

All functions may block and run in threads.
"""

import dataclasses
import json
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import deltalake
import pyarrow as pa
from deltalake.exceptions import DeltaError

from penstock.console.queries import run_query
from penstock.console.query_turns import QueryRefused

__all__ = ["Commit", "TableState", "Warehouse"]

LETTERS: Final = "dead_letters"
_NEWEST_LETTERS: Final = (
    "SELECT topic, schema, error, value, message_id, timestamp "
    "FROM dead_letters ORDER BY timestamp DESC, message_id"
)
_LETTERS_SHOWN: Final = 100
_COMMITS_SHOWN: Final = 15
_COMMIT_BYTES_MAX: Final = 4 << 20
"""A commit that is described by more bytes, one of very many files, is left out."""


@dataclasses.dataclass(frozen=True, slots=True)
class TableState:
    """A table: its name in queries, rows, bytes and the time of its last commit."""

    name: str
    rows: int
    size: int
    version: int
    committed: datetime
    problem: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Commit:
    """One commit to a table: its batch of rows and files. A rewrite adds and removes files."""

    table: str
    version: int
    committed: datetime
    operation: str
    rows: int
    added: int
    removed: int


class Warehouse:
    """The folder of a pipeline's tables."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def tables(self) -> dict[str, Path]:
        """Return the folders of all tables by their names in queries."""
        found = {}
        for place in (
            self.folder / "bronze",
            *sorted(self.folder.glob("silver/*")),
            *sorted(self.folder.glob("gold/*")),
            self.folder / LETTERS,
        ):
            if (place / "_delta_log").is_dir():
                found[place.name] = place
        return found

    def states(self) -> list[TableState]:
        """Return the state of all tables."""
        return [_state(name, place) for name, place in self.tables().items()]

    def commits(self) -> list[Commit]:
        """Return the last commits to all tables, the newest first."""
        found = [each for item in self.tables().items() for each in _commits(*item)]
        found.sort(key=lambda each: each.committed, reverse=True)
        return found[:_COMMITS_SHOWN]

    def letters(self) -> list[dict[str, Any]]:
        """Return the newest dead letters; none if there is no such table."""
        if LETTERS not in self.tables():
            return []
        tables = self.named({LETTERS})
        found = run_query(_NEWEST_LETTERS, tables, rows_max=_LETTERS_SHOWN)
        return [dict(zip(found.columns, row, strict=True)) for row in found.rows]

    def named(self, names: Collection[str]) -> dict[str, Any]:
        """Return those of some tables that exist, as Arrow data sets; raise QueryRefused."""
        try:
            return {
                name: deltalake.DeltaTable(str(place)).to_pyarrow_dataset()
                for name, place in self.tables().items()
                if name in names
            }
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise QueryRefused(str(error)) from None


def _state(name: str, place: Path) -> TableState:
    try:
        table = deltalake.DeltaTable(str(place))
        files = pa.table(table.get_add_actions(flatten=True))
        last = table.history(1)[0]
    except (DeltaError, OSError, IndexError) as error:
        return TableState(name, 0, 0, 0, datetime.fromtimestamp(0, UTC), str(error))
    return TableState(
        name=name,
        rows=_sum(files, "num_records"),
        size=_sum(files, "size_bytes"),
        version=table.version(),
        committed=datetime.fromtimestamp(last.get("timestamp", 0) / 1000, UTC),
    )


def _commits(name: str, place: Path) -> list[Commit]:
    """Return the last commits to a table that are still in its log."""
    paths = sorted((place / "_delta_log").glob("[0-9]*.json"))[-_COMMITS_SHOWN:]
    return [commit for path in paths if (commit := _commit(name, path)) is not None]


def _commit(name: str, path: Path) -> Commit | None:
    """Return a commit, None if it was removed meanwhile or is not described."""
    try:
        if path.stat().st_size > _COMMIT_BYTES_MAX:
            return None
        actions = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    except (OSError, ValueError):
        return None
    info = next((each["commitInfo"] for each in actions if "commitInfo" in each), None)
    if info is None or "timestamp" not in info:
        return None
    added = [each["add"] for each in actions if "add" in each]
    return Commit(
        table=name,
        version=int(path.stem),
        committed=datetime.fromtimestamp(info["timestamp"] / 1000, UTC),
        operation=str(info.get("operation", "")),
        rows=sum(json.loads(each.get("stats") or "{}").get("numRecords", 0) for each in added),
        added=len(added),
        removed=sum("remove" in each for each in actions),
    )


def _sum(files: pa.Table, column: str) -> int:
    if column not in files.schema.names:
        return 0
    numbers: Sequence[int | None] = files.column(column).to_pylist()
    return sum(number or 0 for number in numbers)
