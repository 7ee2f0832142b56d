"""What a table needs of its log: which files it has, its schema, and how far it has come."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from penstock.pipeline.files import DataFile

__all__ = ["TableLog"]


class TableLog(Protocol):
    """The list of a table's files, changed by commits that are there whole or not at all.

    One process writes a table; in it, one thread appends and another may compact. Every object
    has a view of its own, which `refresh` brings up to date.
    """

    def recover(self) -> None:
        """Set right what a crash may have left; nobody else may write the table."""
        ...

    def refresh(self) -> int:
        """Look at what is committed; return the version, -1 if there is no table yet."""
        ...

    def create(self, schema: pa.Schema, *, by_day: bool) -> None:
        """Make the table if there is none."""
        ...

    def identity(self) -> str:
        """Return what no other table has, made with the table."""
        ...

    def schema(self) -> pa.Schema:
        """Return the columns, with `day` if files are kept by day."""
        ...

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        """Let the table have further columns, null in the rows that are there."""
        ...

    def files(self) -> Sequence[DataFile]:
        """Return the files of the table."""
        ...

    def mark(self, name: str) -> int | None:
        """Return the number that was committed under a name, the last one."""
        ...

    def names(self) -> frozenset[str]:
        """Return the names that `remember` was given."""
        ...

    def remember(self, names: frozenset[str]) -> None:
        """Keep a set of names with the table."""
        ...

    def commit(
        self,
        *,
        add: Sequence[DataFile] = (),
        remove: Sequence[DataFile] = (),
        marks: Mapping[str, int] | None = None,
    ) -> None:
        """Take files in and out and set marks, all in one."""
        ...

    def compact(self, *, files_min: int, size: int) -> int:
        """Make one file of many small ones of a day; return how many there are fewer."""
        ...

    def vacuum(self, *, hours: int) -> int:
        """Remove files that were not needed for so long; return how many."""
        ...
