"""Benchmarks of a make target all run, and the target fails if any of them does."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.figures import ROOT

PROGRAMS = sorted(
    f"bench.{path.parent.name}.{path.stem}"
    for folder in ("micro", "macro")
    for path in (ROOT / "bench" / folder).glob("*.py")
    if "ArgumentParser" in path.read_text()
)
TARGETS = re.findall(r"^(bench[\w-]*): ", (ROOT / "Makefile").read_text(), re.MULTILINE)


def run_all(folder: Path, *given: str) -> "subprocess.CompletedProcess[str]":
    (folder / "good.py").write_text("import sys; print('good', *sys.argv[1:])")
    (folder / "bad.py").write_text("import sys; print('bad'); sys.exit(1)")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{folder}"}
    command = [sys.executable, "-m", "bench.run", *given]
    return subprocess.run(  # noqa: S603
        command, env=environment, capture_output=True, text=True, check=False
    )


def test_all_run_although_the_first_fails(tmp_path: Path) -> None:
    done = run_all(tmp_path, "bad", "good", "bad", "--", "--quick", "--rounds", "2")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        *("# bad", "bad", "# good", "good --quick --rounds 2", "# bad", "bad")
    ]
    assert done.stderr.splitlines() == ["failed: bad", "failed: bad"]


def test_it_succeeds_if_all_do(tmp_path: Path) -> None:
    done = run_all(tmp_path, "good", "--")
    assert (done.returncode, done.stdout, done.stderr) == (0, "# good\ngood\n", "")


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_make_target_runs_every_benchmark(program: str) -> None:
    assert re.search(rf"{re.escape(program)}\b", (ROOT / "Makefile").read_text())


@pytest.mark.parametrize("target", TARGETS)
def test_the_page_on_performance_names_every_target(target: str) -> None:
    assert f"| `make {target}` |" in (ROOT / "docs/performance.md").read_text()
