"""Errors of the Spark data source."""

from penstock.errors import CallerError, ErrorCode, OffsetBelowHorizon, OffsetPastEnd

__all__ = ["InvalidOption", "InvalidSchema", "LogWentBack", "RangeLost"]


class InvalidOption(CallerError):
    """An option that is unknown, wrong, missing or not for this use; `allowed` says what is."""

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
    """Retention removed messages before they were read, and failOnDataLoss is set."""

    where: str

    def __str__(self) -> str:
        return (
            f"offsets {self.offset} to {self.horizon - 1} of {self.where} are no longer kept; "
            f"keep messages for longer, or set failOnDataLoss to false to go on without them"
        )


class LogWentBack(OffsetPastEnd):
    """The offset of a stream is past the end of the log: another log, or one that lost its end."""

    template = (
        "the query stands at offset {offset} of {where}, which ends at {end}: "
        "it is another log, or its end was lost with a power cut; begin with a new checkpoint,"
        " or set failOnDataLoss to false to wait until it has got there"
    )

    where: str
