"""Errors of the data source, for the author of a Spark job."""

from penstock.errors import CallerError, ErrorCode, OffsetBelowHorizon, OffsetPastEnd

__all__ = ["InvalidOption", "InvalidSchema", "LogWentBack", "RangeLost"]


class InvalidOption(CallerError):
    """An option is unknown, invalid, missing or of another use; `allowed` lists valid values."""

    code = ErrorCode.BAD_OPTION

    def __init__(self, option: str, problem: str, allowed: str) -> None:
        super().__init__(option, problem, allowed)
        self.option = option
        self.problem = problem
        self.allowed = allowed

    def __str__(self) -> str:
        return f"option {self.option}: {self.problem}; allowed: {self.allowed}"


class InvalidSchema(CallerError):
    """A column that the reader does not have or the sink does not accept."""

    code = ErrorCode.BAD_OPTION

    def __init__(self, column: str, problem: str, allowed: str) -> None:
        super().__init__(column, problem, allowed)
        self.column = column
        self.problem = problem
        self.allowed = allowed

    def __str__(self) -> str:
        return f"column {self.column}: {self.problem}; allowed: {self.allowed}"


class RangeLost(OffsetBelowHorizon):
    """Retention removed messages before they were read, and failOnDataLoss is true."""

    def __init__(self, offset: int, horizon: int, where: str) -> None:
        super().__init__(offset, horizon)
        self.args = (offset, horizon, where)
        self.where = where

    def __str__(self) -> str:
        return (
            f"offsets {self.offset} to {self.horizon - 1} of {self.where} are no longer kept; "
            f"keep messages for longer, or set failOnDataLoss to false to go on without them"
        )


class LogWentBack(OffsetPastEnd):
    """A stream's offset is after the end of the log: another log, or one that lost its end."""

    def __init__(self, offset: int, end: int, where: str) -> None:
        super().__init__(offset, end)
        self.args = (offset, end, where)
        self.where = where

    def __str__(self) -> str:
        return (
            f"the query stands at offset {self.offset} of {self.where}, which ends at {self.end}: "
            f"it is another log, or a power cut removed its end; start with a new checkpoint,"
            f" or set failOnDataLoss to false to wait until the log reaches the offset"
        )
