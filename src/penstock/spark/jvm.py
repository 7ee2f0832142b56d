"""The Java virtual machine of Spark: the `java` program and its archive of loaded classes."""

import contextlib
import os
import shutil
import time
import zlib
from pathlib import Path
from typing import Final

from penstock.errors import ErrorCode, OperatorError

__all__ = ["NoJava", "class_archive_option", "find_java"]

_ARCHIVE_MAGIC: Final = (0xF00BABA8).to_bytes(4, "little")
"""The first bytes of an archive of Java 17; Java writes them last."""
_ARCHIVE_WRITE_SECONDS_MAX: Final = 600


class NoJava(OperatorError):
    """Java is not installed where Spark looks for it."""

    code = ErrorCode.UNSUPPORTED
    template = "Spark needs Java, and there is none in {place}; install Java 17"

    place: str


def find_java() -> Path:
    """Return the program that Spark's scripts start: of JAVA_HOME, else of PATH; raise NoJava."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if found is None:
        raise NoJava(f"JAVA_HOME, which is {home}" if home else "PATH")
    return Path(found).resolve()


def class_archive_option(spark_home: Path, java: Path) -> str:
    """Return the Java option that uses the class archive beside `spark_home`, or writes it.

    The archive (class data sharing) holds Spark's loaded classes, so that the next start maps one
    file instead of loading them. Java 17 writes it on exit, to a file name with the process id.
    A later start renames it when it is complete, so no process maps an archive that is being
    written. Java ignores an archive of another Java version or class path.
    """
    key = zlib.crc32(f"{java} {java.stat().st_mtime_ns}".encode())
    archive = spark_home.with_name(f"{spark_home.name}-{key:08x}.jsa")
    for written in archive.parent.glob(f"{archive.name}.*"):
        _adopt(written, archive)
    if archive.exists():
        return f"-XX:SharedArchiveFile={archive}"
    return f"-XX:ArchiveClassesAtExit={archive}.{os.getpid()}"


def _adopt(written: Path, archive: Path) -> None:
    """Rename a complete file to the archive; remove one that was never completed."""
    with contextlib.suppress(OSError):  # another process adopts the same file
        with written.open("rb") as file:
            complete = file.read(len(_ARCHIVE_MAGIC)) == _ARCHIVE_MAGIC
        if complete:
            written.replace(archive)
        elif time.time() - written.stat().st_mtime > _ARCHIVE_WRITE_SECONDS_MAX:
            written.unlink()
