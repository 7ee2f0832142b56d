"""Errors of the pipeline, for its operator."""

import re
from typing import Final

from penstock.errors import ErrorCode, OperatorError

__all__ = [
    "CannotKeep",
    "CannotRebuild",
    "ColumnChanged",
    "JobFailed",
    "NoSuchTable",
    "NoSuchTopics",
    "NotAQuery",
    "PartitionsChanged",
    "QueryFailed",
    "RegistryFailed",
    "WarehouseInUse",
    "reason_of",
]


class CannotKeep(OperatorError):
    """The warehouse folder cannot be read or written."""

    code = ErrorCode.CANNOT_KEEP
    template = "cannot keep tables in {folder}: {reason}; set warehouse.folder"

    folder: str
    reason: str


class CannotRebuild(OperatorError):
    """A table cannot be computed again."""

    code = ErrorCode.INVALID_CONFIG
    template = "cannot rebuild {table}: {reason}"

    table: str
    reason: str


class ColumnChanged(OperatorError):
    """A column has another type than in the table."""

    code = ErrorCode.INVALID_CONFIG
    template = (
        "table {table} has column {column} as {old}, not {new}: "
        "stop the pipeline and run penstock pipeline rebuild {table}, "
        "or give the field another name, with its path"
    )

    table: str
    column: str
    old: str
    new: str


class JobFailed(OperatorError):
    """A table cannot be updated; `reason` is the first line of the error."""

    code = ErrorCode.CANNOT_KEEP
    template = "{name}: {reason}"

    name: str
    reason: str


class NoSuchTable(OperatorError):
    """A name is neither a table nor a topic."""

    code = ErrorCode.CANNOT_READ

    name: str
    known: str

    def __str__(self) -> str:
        return f"there is no table {self.name!r}; there are: {self.known or 'none'}"


class NoSuchTopics(OperatorError):
    """A pattern matches no possible topic."""

    code = ErrorCode.CANNOT_READ

    pattern: str

    def __str__(self) -> str:
        return (
            f"no topic can be meant by {self.pattern[:200]!r}: levels are + or * for any one, "
            "# or > at the end for the rest"
        )


class NotAQuery(OperatorError):
    """A SQL statement is not read-only; `text` is its beginning."""

    code = ErrorCode.INVALID_CONFIG
    template = (
        "sql: {text!r} changes something and was not run; "
        "give a query: SELECT, WITH, VALUES, TABLE, DESCRIBE, SHOW or EXPLAIN"
    )

    text: str


class PartitionsChanged(OperatorError):
    """A table has other partitions than its settings say."""

    code = ErrorCode.INVALID_CONFIG
    template = (
        "table {table} is partitioned by {old}, not {new}, which cannot change: set partition_by "
        "as before, or stop the pipeline and delete {folder}; its rows are then computed again"
    )

    table: str
    old: str
    new: str
    folder: str


class QueryFailed(OperatorError):
    """Spark rejects a SQL query; `reason` is the first line of Spark's error."""

    code = ErrorCode.INVALID_CONFIG
    template = "{where}: {reason}"

    where: str
    reason: str


class RegistryFailed(OperatorError):
    """The schema registry gives no answer, or one that cannot be used; the step is retried."""

    code = ErrorCode.CANNOT_READ
    template = (
        "schema registry {url}: {reason}; check registry.url, its credentials and the network"
    )

    url: str
    reason: str


class WarehouseInUse(OperatorError):
    """Another process has locked the warehouse."""

    code = ErrorCode.LOG_IN_USE
    template = "another pipeline writes {folder}: stop it, or set warehouse.folder"

    folder: str


# An error of a Penstock task is the last line of a traceback in the text of Spark's error.
_PENSTOCK_ERROR: Final = re.compile(r"^penstock(?:\.\w+)+: (.+)$", re.MULTILINE)


def reason_of(error: BaseException) -> str:
    """Return the reason of an error in one line: of the Penstock error in it, or the first."""
    text = str(error)
    lines = _PENSTOCK_ERROR.findall(text)[-1:] or [
        line for line in text.splitlines() if line.strip()
    ]
    return lines[0].rstrip(". ") if lines else type(error).__name__
