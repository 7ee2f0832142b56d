"""A sixth protocol: its own files and one line of registration, and everything works with it.

The package is copied with that one line added to `protocols/registry.py`. The checks in
`with_lines/` run against the copy, in a process of their own.
"""

import difflib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
REGISTRY = Path("penstock/protocols/registry.py")
LAST_LINE = '    "penstock.protocols.lamamq:LAMAMQ",  # 5\n'
NEW_LINE = '    "tests.sixth.protocol:LINES",  # 6\n'


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources with the one line; compiled kernels are linked."""
    folder = tmp_path_factory.mktemp("sixth") / "src"
    for package in ("penstock", "pyspark_penstock"):
        shutil.copytree(
            SOURCE / package,
            folder / package,
            ignore=shutil.ignore_patterns("__pycache__", "*.c"),
            copy_function=os.link,
        )
    registry = folder / REGISTRY
    text = registry.read_text()
    registry.unlink()  # it was a link to the original
    registry.write_text(text.replace(LAST_LINE, LAST_LINE + NEW_LINE))
    return folder


def run(copy: Path, *command: str, seconds_max: float = 300) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{copy}{os.pathsep}{ROOT}"}
    return subprocess.run(  # noqa: S603
        [sys.executable, *command],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds_max,
        check=False,
    )


def test_one_line_of_the_package_is_new(copy: Path) -> None:
    changed = []
    for path in sorted(copy.rglob("*.py")):
        before = (SOURCE / path.relative_to(copy)).read_text().splitlines()
        diff = difflib.unified_diff(before, path.read_text().splitlines(), n=0, lineterm="")
        changed += [line for line in diff if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert changed == [f"+{NEW_LINE.rstrip()}"]


def test_without_the_line_there_are_five(copy: Path) -> None:
    count = "from penstock.protocols import PROTOCOLS; print(*PROTOCOLS.labels)"
    with_line = run(copy, "-c", count).stdout.split()
    without = subprocess.run(  # noqa: S603
        [sys.executable, "-c", count], capture_output=True, text=True, check=True
    )
    assert with_line == [*without.stdout.split(), "lines"]


@pytest.mark.parametrize("checks", ["broker", "commands", "history"])
def test_it_works_like_the_others(copy: Path, checks: str) -> None:
    result = run(
        copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
        f"tests/sixth/with_lines/{checks}.py",
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-2000:]
    assert " passed" in result.stdout


@pytest.mark.spark
def test_spark_reads_it(copy: Path) -> None:
    result = run(
        copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
        "tests/sixth/with_lines/spark.py",
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-2000:]
    assert " passed" in result.stdout
