"""Workers of xdist: which tests they share, in which order, and how failed ones are named."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

USERS_OF_KAFKA = """
import os
from pathlib import Path

import pytest

@pytest.fixture(scope="session")
def kafka():
    return os.getpid()

def note(name):
    with Path("order.txt").open("a") as file:
        file.write(f"{name} {os.getpid()}\\n")

@pytest.mark.parametrize("number", range(4))
def test_with(kafka, number):
    note("kafka")

def test_without():
    note("other")
"""
FAILING = """
import pytest

@pytest.mark.parametrize("address", ["a", "user@host"])
def test_that_fails(address):
    assert address == ""

def test_that_fails_too():
    raise AssertionError
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose tests ran in two workers under the project's own conftest."""
    folder = tmp_path_factory.mktemp("workers")
    (folder / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (folder / "pytest.ini").write_text(
        f"[pytest]\npythonpath = {ROOT}\naddopts = --import-mode=importlib\n"
    )
    for name in ("test_a.py", "test_z.py"):
        (folder / name).write_text(USERS_OF_KAFKA)
    (folder / "test_m.py").write_text(FAILING)
    command = ["-m", "pytest", "-q", "-n", "2", "--dist", "loadscope"]
    subprocess.run(  # noqa: S603 - our own tests
        [sys.executable, *command], cwd=folder, capture_output=True, timeout=115, check=False
    )
    return folder


def test_one_worker_runs_all_that_share_kafka(folder: Path) -> None:
    lines = [line.split() for line in (folder / "order.txt").read_text().splitlines()]
    with_kafka = [process for name, process in lines if name == "kafka"]
    assert len(with_kafka) == 8
    assert len(set(with_kafka)) == 1, "each other worker would start a Kafka of its own"
    assert len(lines) == 10


def test_failed_tests_are_named_as_without_workers(folder: Path) -> None:
    failed = json.loads((folder / ".pytest_cache/v/cache/lastfailed").read_text())
    assert set(failed) == {
        "test_m.py::test_that_fails[a]",
        "test_m.py::test_that_fails[user@host]",
        "test_m.py::test_that_fails_too",
    }


def test_the_groups_that_come_first_exist(request: pytest.FixtureRequest) -> None:
    conftest = request.config.pluginmanager.get_plugin(str(ROOT / "tests" / "conftest.py"))
    assert conftest is not None
    modules = {*conftest.FIRST, *conftest.SLOW} - {"spark", "kafka", "console"}
    assert [name for name in sorted(modules) if not (ROOT / "tests" / name).is_file()] == []
