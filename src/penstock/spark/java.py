"""The Java that Spark runs on."""

import os
import shutil
from pathlib import Path

from penstock.errors import ErrorCode, OperatorError

__all__ = ["NoJava", "find_java"]


class NoJava(OperatorError):
    """There is none where Spark looks for it."""

    code = ErrorCode.UNSUPPORTED

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.place = place

    def __str__(self) -> str:
        return f"Spark needs Java, and there is none in {self.place}; install Java 17"


def find_java() -> Path:
    """Return the program, as Spark's own scripts find it; raise NoJava."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if found is None:
        raise NoJava(f"JAVA_HOME, which is {home}" if home else "PATH")
    return Path(found).resolve()
