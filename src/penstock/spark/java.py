"""The Java that Spark runs on."""

import os
import shutil
from pathlib import Path

from penstock.errors import ErrorCode, OperatorError

__all__ = ["NoJava", "find_java"]


class NoJava(OperatorError):
    """No Java is installed where Spark looks for it."""

    code = ErrorCode.UNSUPPORTED
    template = "Spark needs Java, and there is none in {place}; install Java 17"

    place: str


def find_java() -> Path:
    """Return the program, as Spark's own scripts find it; raise NoJava."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if found is None:
        raise NoJava(f"JAVA_HOME, which is {home}" if home else "PATH")
    return Path(found).resolve()
