"""Errors of a pipeline."""

import re
from typing import Final

from penstock.errors import ErrorCode, OperatorError

__all__ = [
    "CannotKeep",
    "ColumnChanged",
    "JobFailed",
    "NoSuchTable",
    "NoSuchTopics",
    "NotAQuery",
    "QueryFailed",
    "WarehouseInUse",
    "reason_of",
]


class CannotKeep(OperatorError):
    """The pipeline cannot keep tables in this folder."""

    code = ErrorCode.CANNOT_KEEP
    template = "cannot keep tables in {folder}: {reason}; set warehouse.folder"

    folder: str
    reason: str


class ColumnChanged(OperatorError):
    """A column has a different type in the table."""

    code = ErrorCode.INVALID_CONFIG
    template = (
        "table {table} has column {column} as {old}, not {new}: "
        "give the field another name, with its path, or the table another name"
    )

    table: str
    column: str
    old: str
    new: str


class JobFailed(OperatorError):
    """A job failed to update its table; `reason` is the first line of its error."""

    code = ErrorCode.CANNOT_KEEP
    template = "{name}: {reason}"

    name: str
    reason: str


class NoSuchTable(OperatorError):
    """No table or topic has this name."""

    code = ErrorCode.CANNOT_READ

    name: str
    known: str

    def __str__(self) -> str:
        return f"there is no table {self.name!r}; there are: {self.known or 'none'}"


class NoSuchTopics(OperatorError):
    """A pattern that no topic can match."""

    code = ErrorCode.CANNOT_READ

    pattern: str

    def __str__(self) -> str:
        return (
            f"no topic can be meant by {self.pattern[:200]!r}: levels are + or * for any one, "
            "# or > at the end for the rest"
        )


class NotAQuery(OperatorError):
    """A statement that is not a query; `text` is how it begins."""

    code = ErrorCode.INVALID_CONFIG
    template = (
        "sql: {text!r} changes something and was not run; "
        "give a query: SELECT, WITH, VALUES, TABLE, DESCRIBE, SHOW or EXPLAIN"
    )

    text: str


class QueryFailed(OperatorError):
    """Spark rejects a query of the user; `reason` is Spark's first line."""

    code = ErrorCode.INVALID_CONFIG
    template = "{where}: {reason}"

    where: str
    reason: str


class WarehouseInUse(OperatorError):
    """Another pipeline writes these tables."""

    code = ErrorCode.LOG_IN_USE
    template = "another pipeline writes {folder}: stop it, or set warehouse.folder"

    folder: str


# What a task of ours raised stands in Spark's text as the last line of a traceback.
_OURS: Final = re.compile(r"^penstock(?:\.\w+)+: (.+)$", re.MULTILINE)


def reason_of(error: BaseException) -> str:
    """Return what an error says in one line: of Spark's long ones what was ours, or the first."""
    text = str(error)
    lines = _OURS.findall(text)[-1:] or [line for line in text.splitlines() if line.strip()]
    return lines[0].rstrip(". ") if lines else type(error).__name__
