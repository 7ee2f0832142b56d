"""Session numbers that earlier runs may have assigned: the file `session-numbers` of a partition.

It holds one decimal number: the next run assigns numbers from there on. It is written ahead of use,
a block at a time, and replaced atomically.
"""

from pathlib import Path
from typing import Final
from typing import Protocol as Port

from penstock.storage.files import Files

__all__ = ["KeptNumbers", "SessionNumbers"]

FILE_NAME: Final = "session-numbers"
_FILE_BYTES_MAX: Final = 32


class KeptNumbers(Port):
    """The session number with which the next run of a broker starts."""

    def load(self) -> int | None:
        """Return the first number to assign; None if there is none. Raise OSError, ValueError."""

    def save(self, number: int) -> None:
        """Keep the number that the next run starts with; raise OSError."""


class SessionNumbers:
    """The kept number of one partition's folder, which the broker has locked."""

    def __init__(self, folder: Path, files: Files | None = None) -> None:
        self._path = folder / FILE_NAME
        self._files = files or Files()

    def load(self) -> int | None:
        """Return the first number to assign; None if there is none. Raise OSError, ValueError."""
        try:
            data = self._files.read(self._path, 0, _FILE_BYTES_MAX)
        except FileNotFoundError:
            return None
        return int(data)

    def save(self, number: int) -> None:
        """Keep the number that the next run starts with; it is on disk on return. Raise OSError."""
        self._files.replace(self._path, f"{number}\n".encode())
