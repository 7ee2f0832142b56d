"""What can go wrong in a pipeline, for whoever runs it."""

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
    """A folder in which no tables can be kept."""

    code = ErrorCode.CANNOT_KEEP

    def __init__(self, folder: str, reason: str) -> None:
        super().__init__(folder, reason)
        self.folder = folder
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot keep tables in {self.folder}: {self.reason}; set warehouse.folder"


class ColumnChanged(OperatorError):
    """A column has another type than the table's."""

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
    """A table cannot be brought up to its input; `reason` is the first line of the error."""

    code = ErrorCode.CANNOT_KEEP

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class NoSuchTable(OperatorError):
    """A name that is neither a table's nor a topic's."""

    code = ErrorCode.CANNOT_READ

    def __init__(self, name: str, known: str) -> None:
        super().__init__(name, known)
        self.name = name
        self.known = known

    def __str__(self) -> str:
        return f"there is no table {self.name!r}; there are: {self.known or 'none'}"


class NoSuchTopics(OperatorError):
    """A pattern that no topic can fit."""

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
    """A statement that would change something; `text` is how it begins."""

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
    """A query of the user's that Spark does not take; `reason` is Spark's first line."""

    code = ErrorCode.INVALID_CONFIG

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(where, reason)
        self.where = where
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


class WarehouseInUse(OperatorError):
    """Two pipelines must not write the same tables."""

    code = ErrorCode.LOG_IN_USE

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.folder = folder

    def __str__(self) -> str:
        return f"another pipeline writes {self.folder}: stop it, or set warehouse.folder"


# What a task of ours raised stands in Spark's text as the last line of a traceback.
_OURS: Final = re.compile(r"^penstock(?:\.\w+)+: (.+)$", re.MULTILINE)


def reason_of(error: BaseException) -> str:
    """Return what an error says in one line: of Spark's long ones what was ours, or the first."""
    text = str(error)
    lines = _OURS.findall(text)[-1:] or [line for line in text.splitlines() if line.strip()]
    return lines[0].rstrip(". ") if lines else type(error).__name__
