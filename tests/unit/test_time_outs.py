"""A test that hangs fails: its process ends with the stacks of all threads."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

HANG = """
import threading

def hang_here():
    threading.Event().wait()

def test_that_hangs():
    thread = threading.Thread(target=hang_here, daemon=True)
    thread.start()
    thread.join()
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a test that hangs, under the project's own conftest, with a time-out of one second."""
    (folder / "test_hang.py").write_text(HANG)
    (folder / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT}\ntimeout_method = thread\n")
    return subprocess.run(  # noqa: S603 - our own tests
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--timeout", "1", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=115,
        check=False,
    )


@pytest.mark.parametrize("workers", [(), ("-n", "1", "--max-worker-restart", "0")])
def test_a_test_that_hangs_fails_with_the_stacks_of_all_threads(
    tmp_path: Path, workers: tuple[str, ...]
) -> None:
    ended = run(tmp_path, *workers)
    assert ended.returncode != 0
    said = ended.stdout + ended.stderr
    assert "hang_here" in said, "the thread that hangs"
    assert "test_that_hangs" in said


def test_every_test_has_a_time_out() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert 0 < options["timeout"] <= 120
    assert options["timeout_method"] == "thread"


@pytest.mark.slow
def test_a_slow_test_has_a_longer_time_out(request: pytest.FixtureRequest) -> None:
    marker = request.node.get_closest_marker("timeout")
    if request.config.getoption("timeout") is None:
        assert marker is not None
        assert marker.args == (300,)
    else:
        assert marker is None, "--timeout is for all tests"
