"""Compiles the reader against the jars of PySpark, with the `javac` of the machine."""

import subprocess
from pathlib import Path

import pyspark

__all__ = ["FORMAT", "build"]

FORMAT = "penstock.spike.ArrowLogSource"
"""Its name for `spark.read.format`."""
SECONDS_MAX = 120


def build(folder: Path) -> Path:
    """Return a jar with the reader, written to a folder."""
    source = Path(__file__).with_name("ArrowLogSource.java")
    jars = Path(pyspark.__file__).parent / "jars"
    classes, jar = folder / "classes", folder / "spike.jar"
    for command in (
        ["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), str(source)],
        ["jar", "cf", str(jar), "-C", str(classes), "."],
    ):
        subprocess.run(command, check=True, timeout=SECONDS_MAX)  # noqa: S603
    return jar
