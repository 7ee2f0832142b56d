"""Runs tests against mutants, each in a process that is forked from one that has imported much.

A mutant is a copy of the sources as links, with one file of its own. Nothing in the working tree
changes, and programs that a test starts see the mutant too.
"""

import contextlib
import dataclasses
import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from tools.mutate.mutations import Mutation

PRELOADED: Final = (
    "asyncio", "hypothesis", "msgspec", "numpy", "pandas", "pyarrow", "pyarrow.flight",
    "pyarrow.parquet", "pyspark.sql", "rich.console", "starlette.applications", "structlog",
    "typer", "uvicorn", "uvloop", "websockets",
)  # fmt: skip
"""Packages that most tests import, and that do not import ours."""
_POLL_SECONDS: Final = 0.05
_BROKEN: Final = 70
"""Exit code of a fork that did not come to run its tests."""


@dataclasses.dataclass(frozen=True)
class Run:
    """A mutant and the tests that shall notice it."""

    mutation: Mutation
    tests: Sequence[str]
    seconds_max: float
    test_seconds_max: float = 60.0


@dataclasses.dataclass(frozen=True)
class Result:
    """Whether the tests noticed the fault; `how` is the test that failed, or "hangs"."""

    run: Run
    caught: bool
    how: str
    seconds: float


def preload() -> None:
    """Import packages once for all forks."""
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def copy_of(source: Path, mutation: Mutation, target: Path) -> None:
    """Make a mutant of the package `source` in `target`: folders, links, and one file."""
    for folder, _, names in os.walk(source):
        place = target / Path(folder).relative_to(source)
        if place.name == "__pycache__":
            continue
        place.mkdir(parents=True)
        for name in names:
            (place / name).symlink_to(Path(folder) / name)
    changed = target / mutation.path
    changed.unlink()
    changed.write_text(mutation.apply((source / mutation.path).read_text()))


class _Session:
    """Takes the result of the tests, before pytest looks at what they left behind."""

    def __init__(self) -> None:
        self.code = _BROKEN

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Take the exit code."""
        self.code = int(exitstatus)


class _Child:
    """A forked process that runs the tests of one mutant."""

    def __init__(self, root: Path, source: Path, run: Run) -> None:
        self.run = run
        self._folder = Path(tempfile.mkdtemp(prefix="mutant-"))
        self._output = self._folder / "output"
        copy_of(source, run.mutation, self._folder / "src" / source.name)
        self._begun = time.monotonic()
        self._pid = os.fork()
        if self._pid == 0:
            code = _BROKEN
            try:
                code = self._test(root)
            except BaseException:  # noqa: BLE001  (nothing of the parent may run here)
                traceback.print_exc()
            finally:
                os._exit(code)

    def _test(self, root: Path) -> int:
        """Run the tests, in the child."""
        os.setsid()
        output = os.open(self._output, os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(root)
        path = str(self._folder / "src")
        sys.path.insert(0, path)
        os.environ["PYTHONPATH"] = path
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(self._folder / "hypothesis")
        sys.dont_write_bytecode = True
        session = _Session()
        try:
            code = pytest.main(
                [
                    "-q", "-x", "--tb=line", "-p", "no:cacheprovider",
                    "-W", "ignore::pytest.PytestAssertRewriteWarning",
                    "--timeout", str(self.run.test_seconds_max),
                    "--basetemp", str(self._folder / "tmp"),
                    *self.run.tests,
                ],
                plugins=[session],
            )  # fmt: skip
        except BaseException:  # noqa: BLE001  (of what the tests left behind, after their result)
            traceback.print_exc()
            return session.code
        return int(code)

    def poll(self) -> Result | None:
        """Return the result when there is one; end a run that takes too long."""
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        seconds = time.monotonic() - self._begun
        if not pid:
            if seconds < self.run.seconds_max:
                return None
            os.killpg(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            return self._result("hangs", seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)  # brokers and Spark that the tests left
        code = os.waitstatus_to_exitcode(status)
        if code == _BROKEN:
            raise RuntimeError(f"the run of a mutant failed:\n{self._output.read_text()}")
        if code == pytest.ExitCode.OK:
            return self._result("", seconds)
        return self._result(self._reason(code), seconds)

    def _reason(self, code: int) -> str:
        text = self._output.read_text(errors="replace")
        for line in reversed(text.splitlines()):
            if line.startswith(("FAILED ", "ERROR ")):
                return line.split(" - ")[0]
        return "a test hangs" if "Timeout" in text else f"exit code {code}"

    def _result(self, how: str, seconds: float) -> Result:
        shutil.rmtree(self._folder, ignore_errors=True)
        return Result(self.run, bool(how), how, seconds)


def run_all(root: Path, source: Path, runs: Sequence[Run], *, workers: int) -> Iterator[Result]:
    """Yield the result of each run, in the order in which they end."""
    waiting = list(reversed(runs))
    children: list[_Child] = []
    while waiting or children:
        while waiting and len(children) < workers:
            children.append(_Child(root, source, waiting.pop()))
        for child in list(children):
            result = child.poll()
            if result is not None:
                children.remove(child)
                yield result
        time.sleep(_POLL_SECONDS)
