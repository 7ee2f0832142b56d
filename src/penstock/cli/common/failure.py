"""How a command fails: one line that says what happened and what to do."""

from typing import Final

from penstock.errors import ErrorCode, OperatorError

__all__ = ["EXIT_INCOMPLETE", "EXIT_INTERRUPTED", "CommandFailed"]

EXIT_INCOMPLETE: Final = 1
EXIT_INTERRUPTED: Final = 130


class CommandFailed(OperatorError):
    """A command could not do its work: `text` says what happened, `remedy` what to do."""

    code = ErrorCode.REFUSED

    text: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.text}; {self.remedy}" if self.remedy else self.text
