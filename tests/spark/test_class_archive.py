"""The archive of Java's classes: used when it is whole, never while it is being written."""

import os
from pathlib import Path

import pytest

from penstock.spark.class_archive import class_archive_option

WHOLE = (0xF00BABA8).to_bytes(4, "little") + b"classes"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of Spark, and a Java of its own."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    (tmp_path / "spark").mkdir()
    return tmp_path / "spark"


def test_the_first_start_writes_and_the_next_one_uses(home: Path) -> None:
    option, _, path = class_archive_option(home).partition("=")
    assert option == "-XX:ArchiveClassesAtExit"
    Path(path).write_bytes(WHOLE)
    option, _, path = class_archive_option(home).partition("=")
    assert option == "-XX:SharedArchiveFile"
    assert Path(path).read_bytes() == WHOLE
    assert class_archive_option(home) == f"{option}={path}"


def test_one_that_is_not_whole_is_not_used_and_goes_when_it_is_old(home: Path) -> None:
    path = Path(class_archive_option(home).partition("=")[2])
    path.write_bytes(bytes(len(WHOLE)))
    assert class_archive_option(home).startswith("-XX:ArchiveClassesAtExit=")
    assert path.exists(), "it may still be written"
    os.utime(path, (0, 0))
    assert class_archive_option(home).startswith("-XX:ArchiveClassesAtExit=")
    assert not path.exists()


def test_another_java_has_another_archive(home: Path) -> None:
    first = class_archive_option(home)
    os.utime(home.parent / "java" / "bin" / "java", (1, 1))
    assert class_archive_option(home) != first


def test_without_java_there_is_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert class_archive_option(home) == ""
