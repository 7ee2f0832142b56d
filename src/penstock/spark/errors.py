"""Errors of the data source, for the author of a Spark job."""

from penstock.errors import (
    CallerError,
    ErrorCode,
    LogReplaced,
    OffsetBelowHorizon,
    OffsetPastEnd,
)

__all__ = ["InvalidOption", "InvalidSchema", "LogWentBack", "OtherLog", "RangeLost"]


class InvalidOption(CallerError):
    """An option is unknown, invalid, missing or of another use; `allowed` lists valid values."""

    code = ErrorCode.BAD_OPTION
    template = "option {option}: {problem}; allowed: {allowed}"

    option: str
    problem: str
    allowed: str


class InvalidSchema(CallerError):
    """A column that the reader does not have or the sink does not accept."""

    code = ErrorCode.BAD_OPTION
    template = "column {column}: {problem}; allowed: {allowed}"

    column: str
    problem: str
    allowed: str


class RangeLost(OffsetBelowHorizon):
    """Retention removed messages before they were read, and failOnDataLoss is true."""

    where: str

    def __str__(self) -> str:
        return (
            f"offsets {self.offset} to {self.horizon - 1} of {self.where} are no longer kept; "
            f"keep messages for longer, or set failOnDataLoss to false to go on without them"
        )


class LogWentBack(OffsetPastEnd):
    """A stream's offset is after the end of the log: another log, or one that lost its end."""

    template = (
        "the query stands at offset {offset} of {where}, which ends at {end}: "
        "it is another log, or a power cut removed its end; start with a new checkpoint,"
        " or set failOnDataLoss to false to wait until the log reaches the offset"
    )

    where: str


class OtherLog(LogReplaced):
    """A query stands in one log and finds another in its place, and failOnDataLoss is true."""

    template = (
        "the query stands at offset {offset} of log {expected}, and {where} is now log {found}: "
        "its data was replaced, and messages that the query had not read are lost to it; "
        "to read log {found} from its beginning, start with a new checkpoint, "
        "or set failOnDataLoss to false"
    )

    offset: int
    where: str
