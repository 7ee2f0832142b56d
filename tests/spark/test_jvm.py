"""The archive of Java's classes: used when it is whole, never while it is being written."""

import os
from pathlib import Path

import pytest

from penstock.spark.jvm import NoJava, class_archive_option, find_java

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


def option(home: Path) -> str:
    return class_archive_option(home, find_java())


def test_the_first_start_writes_and_the_next_one_uses(home: Path) -> None:
    name, _, path = option(home).partition("=")
    assert name == "-XX:ArchiveClassesAtExit"
    Path(path).write_bytes(WHOLE)
    name, _, path = option(home).partition("=")
    assert name == "-XX:SharedArchiveFile"
    assert Path(path).read_bytes() == WHOLE
    assert option(home) == f"{name}={path}"


def test_one_that_is_not_whole_is_not_used_and_goes_when_it_is_old(home: Path) -> None:
    path = Path(option(home).partition("=")[2])
    path.write_bytes(bytes(len(WHOLE)))
    assert option(home).startswith("-XX:ArchiveClassesAtExit=")
    assert path.exists(), "it may still be written"
    os.utime(path, (0, 0))
    assert option(home).startswith("-XX:ArchiveClassesAtExit=")
    assert not path.exists()


def test_another_java_has_another_archive(home: Path) -> None:
    first = option(home)
    os.utime(home.parent / "java" / "bin" / "java", (1, 1))
    assert option(home) != first


def test_without_java_the_error_says_where_it_was_looked_for(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(NoJava, match=f"none in JAVA_HOME, which is {home}; install Java 17"):
        find_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(home))
    with pytest.raises(NoJava, match="none in PATH"):
        find_java()
