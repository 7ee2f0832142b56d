"""Up to where a log that is being written is safe to show: the file `committed` of a partition.

    0            8          12         16
    ┌────────────┬──────────┬──────────┐
    │ end, i64   │ CRC32C   │ "PSW1"   │   little-endian; the checksum is of the first 8 bytes
    └────────────┴──────────┴──────────┘

The writer puts it there after each commit, so messages below `end` are as safe as their durability
asks. It is for readers of the folder alone: nobody waits for it to be on disk, recovery does not
look at it, and a log whose disk does not take it works without. Readers then show only what the
segments themselves say is on disk.

It is written by `pwrite`, not through a mapping: a full disk is an error then, not a signal.
"""

import contextlib
import os
import struct
from pathlib import Path
from typing import Final

import structlog

from penstock._kernels.crc32c import crc32c
from penstock.limits import WATERMARK_TRIES_MAX

__all__ = ["WATERMARK", "Watermark", "read_watermark"]

WATERMARK: Final = "committed"
"""The file's name in the folder of a partition."""

log = structlog.get_logger("penstock.log")

_END: Final = struct.Struct("<q")
_WHOLE: Final = struct.Struct("<qI4s")
_MARK: Final = b"PSW1"


class Watermark:
    """The writer's side. One thread at a time may use it; nothing here raises."""

    def __init__(self, folder: Path, end: int) -> None:
        """Put it in place for a log that ends at `end`, in place of what a crash has left."""
        self._path = folder / WATERMARK
        self._handle: int | None = None
        try:
            self._handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            log.warning("readers of the folder will lag", path=str(self._path), error=str(error))
        self.advance(end)

    def advance(self, end: int) -> None:
        """Let readers see messages up to `end`."""
        if self._handle is None:
            return
        number = _END.pack(end)
        try:
            os.pwrite(self._handle, _WHOLE.pack(end, crc32c([number]), _MARK), 0)
        except OSError as error:
            log.warning("readers of the folder will lag", path=str(self._path), error=str(error))
            self._remove()

    def close(self) -> None:
        """Give the file back; it stays."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            with contextlib.suppress(OSError):
                os.close(handle)

    def _remove(self) -> None:
        """Do without: one that does not move must not be taken for one that does."""
        self.close()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


def read_watermark(folder: Path) -> int | None:
    """Return up to where a log is safe to show, None if that is not known."""
    try:
        handle = os.open(folder / WATERMARK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        for _ in range(WATERMARK_TRIES_MAX):  # it may be half written
            data = os.pread(handle, _WHOLE.size, 0)
            if len(data) < _WHOLE.size:
                return None
            end, checksum, mark = _WHOLE.unpack(data)
            if mark == _MARK and checksum == crc32c([data[: _END.size]]):
                return int(end)
    except OSError:
        pass
    finally:
        os.close(handle)
    return None
