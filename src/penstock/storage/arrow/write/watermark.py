"""The watermark: the offset up to which readers of the folder may read, in the file `committed`.

    0            8          12         16
    ┌────────────┬──────────┬──────────┐
    │ end, i64   │ CRC32C   │ "PSW1"   │   little-endian; the checksum is of the first 8 bytes
    └────────────┴──────────┴──────────┘

The writer updates it after each commit, so messages below `end` are as safe as their durability
asks. Only readers of the folder use it: it is not synced, recovery ignores it, and the log works
without it. Readers without it read only what the segments say is on disk.

It is written by `pwrite`, not through a mapping: a full disk is then an error, not a signal.
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
"""Name of the file in the folder of a partition."""

log = structlog.get_logger("penstock.log")

_END: Final = struct.Struct("<q")
_WHOLE: Final = struct.Struct("<qI4s")
_MARK: Final = b"PSW1"


class Watermark:
    """Writes the watermark. One thread at a time may use it; no method raises."""

    def __init__(self, folder: Path, end: int) -> None:
        """Write the watermark of a log that ends at `end`, replacing an old one."""
        self._path = folder / WATERMARK
        self._handle: int | None = None
        try:
            self._handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            log.warning("readers of the folder will lag", path=str(self._path), error=str(error))
        self.advance(end)

    def advance(self, end: int) -> None:
        """Set the watermark to `end`."""
        if self._handle is None:
            return
        number = _END.pack(end)
        try:
            os.pwrite(self._handle, _WHOLE.pack(end, crc32c([number]), _MARK), 0)
        except OSError as error:
            log.warning("readers of the folder will lag", path=str(self._path), error=str(error))
            self._remove()

    def close(self) -> None:
        """Close the file; it stays."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            with contextlib.suppress(OSError):
                os.close(handle)

    def _remove(self) -> None:
        """Remove the file: readers must not trust a watermark that no longer moves."""
        self.close()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


def read_watermark(folder: Path) -> int | None:
    """Return the watermark, None if there is none that can be read."""
    try:
        handle = os.open(folder / WATERMARK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        for _ in range(WATERMARK_TRIES_MAX):  # a write may be in progress
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
