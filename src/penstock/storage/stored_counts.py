"""Bytes that principals have in the log, as last written: the file `stored-bytes` of a partition.

It is replaced atomically, every few seconds while messages come.
"""

from pathlib import Path
from typing import Final
from typing import Protocol as Port

from penstock.storage.files import Files

__all__ = ["KeptCounts", "StoredCountsFile"]

FILE_NAME: Final = "stored-bytes"


class KeptCounts(Port):
    """Keeps the counts of principals beside a log. Any thread may call it; it may block."""

    def load(self) -> bytes | None:
        """Return what was kept; None if there is nothing. Raise OSError."""

    def save(self, counts: bytes) -> None:
        """Keep counts in place of earlier ones; raise OSError."""


class StoredCountsFile:
    """The kept counts of one partition's folder, which the broker has locked."""

    def __init__(self, folder: Path, files: Files | None = None) -> None:
        self._path = folder / FILE_NAME
        self._files = files or Files()

    def load(self) -> bytes | None:
        """See KeptCounts."""
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None

    def save(self, counts: bytes) -> None:
        """See KeptCounts."""
        self._files.replace(self._path, counts)
