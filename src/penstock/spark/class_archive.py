"""Java's classes of Spark, kept in a file that the next start maps instead of loading them anew.

Java 17 writes such an archive when it ends. It goes to a name of that process and becomes the
archive when a later start finds it whole, so nobody ever maps one that is being written. Java
itself leaves aside an archive that does not fit it.
"""

import contextlib
import os
import time
import zlib
from pathlib import Path
from typing import Final

__all__ = ["class_archive_option"]

_MAGIC: Final = (0xF00BABA8).to_bytes(4, "little")
"""What an archive of Java 17 begins with; it is written last."""
_WRITING_SECONDS_MAX: Final = 600


def class_archive_option(home: Path, java: Path) -> str:
    """Return the option for a Java that uses its archive beside `home`, or writes it."""
    key = zlib.crc32(f"{java} {java.stat().st_mtime_ns}".encode())
    archive = home.with_name(f"{home.name}-{key:08x}.jsa")
    for written in archive.parent.glob(f"{archive.name}.*"):
        _adopt(written, archive)
    if archive.exists():
        return f"-XX:SharedArchiveFile={archive}"
    return f"-XX:ArchiveClassesAtExit={archive}.{os.getpid()}"


def _adopt(written: Path, archive: Path) -> None:
    """Make what a process has written the archive if it is whole; remove it if it never will be."""
    with contextlib.suppress(OSError):  # another process does the same
        with written.open("rb") as file:
            whole = file.read(len(_MAGIC)) == _MAGIC
        if whole:
            written.replace(archive)
        elif time.time() - written.stat().st_mtime > _WRITING_SECONDS_MAX:
            written.unlink()
