"""Errors of the pipeline, for its operator."""

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
    """The warehouse folder cannot be read or written."""

    code = ErrorCode.CANNOT_KEEP

    def __init__(self, folder: str, reason: str) -> None:
        super().__init__(folder, reason)
        self.folder = folder
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot keep tables in {self.folder}: {self.reason}; set warehouse.folder"


class ColumnChanged(OperatorError):
    """A column has another type than in the table."""

    code = ErrorCode.INVALID_CONFIG

    def __init__(self, table: str, column: str, old: str, new: str) -> None:
        super().__init__(table, column, old, new)
        self.table = table
        self.column = column
        self.old = old
        self.new = new

    def __str__(self) -> str:
        return (
            f"table {self.table} has column {self.column} as {self.old}, not {self.new}: "
            f"give the field another name, with its path, or the table another name"
        )


class JobFailed(OperatorError):
    """A table cannot be updated; `reason` is the first line of the error."""

    code = ErrorCode.CANNOT_KEEP

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class NoSuchTable(OperatorError):
    """A name is neither a table nor a topic."""

    code = ErrorCode.CANNOT_READ

    def __init__(self, name: str, known: str) -> None:
        super().__init__(name, known)
        self.name = name
        self.known = known

    def __str__(self) -> str:
        return f"there is no table {self.name!r}; there are: {self.known or 'none'}"


class NoSuchTopics(OperatorError):
    """A pattern matches no possible topic."""

    code = ErrorCode.CANNOT_READ

    def __init__(self, pattern: str) -> None:
        super().__init__(pattern)
        self.pattern = pattern

    def __str__(self) -> str:
        return (
            f"no topic can be meant by {self.pattern[:200]!r}: levels are + or * for any one, "
            "# or > at the end for the rest"
        )


class NotAQuery(OperatorError):
    """A SQL statement is not read-only; `text` is its beginning."""

    code = ErrorCode.INVALID_CONFIG

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return (
            f"sql: {self.text!r} changes something and was not run; "
            "give a query: SELECT, WITH, VALUES, TABLE, DESCRIBE, SHOW or EXPLAIN"
        )


class QueryFailed(OperatorError):
    """Spark rejects a SQL query; `reason` is the first line of Spark's error."""

    code = ErrorCode.INVALID_CONFIG

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(where, reason)
        self.where = where
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


class WarehouseInUse(OperatorError):
    """Another process has locked the warehouse."""

    code = ErrorCode.LOG_IN_USE

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.folder = folder

    def __str__(self) -> str:
        return f"another pipeline writes {self.folder}: stop it, or set warehouse.folder"


# An error of a Penstock task is the last line of a traceback in the text of Spark's error.
_PENSTOCK_ERROR: Final = re.compile(r"^penstock(?:\.\w+)+: (.+)$", re.MULTILINE)


def reason_of(error: BaseException) -> str:
    """Return the reason of an error in one line: of the Penstock error in it, or the first."""
    text = str(error)
    lines = _PENSTOCK_ERROR.findall(text)[-1:] or [
        line for line in text.splitlines() if line.strip()
    ]
    return lines[0].rstrip(". ") if lines else type(error).__name__
