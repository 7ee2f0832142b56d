"""Every example runs, and says what the README says it does."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run(path: Path) -> str:
    command = [sys.executable, "-W", "error", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_is_short(path: Path) -> None:
    assert run(path)
    assert len(path.read_text().splitlines()) <= 80


def test_the_bytes_of_all_bridges_are_shown() -> None:
    output = run(ROOT / "examples" / "five_protocols.py")
    assert output.count(" to ") == 25 + 1
    assert "feca1005 00000007 32312e35" in output
    assert "lamamq, little-endian" in output
