"""A plugin of pytest that records which tests execute which lines, and how long tests take.

PENSTOCK_RECORD is a JSON object: for each test module the file that gets its record.
PENSTOCK_RECORD_SOURCE is the folder of the sources. Tests that fail are left out.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

_TARGETS: dict[str, str] = json.loads(os.environ["PENSTOCK_RECORD"])
_SOURCE = os.environ["PENSTOCK_RECORD_SOURCE"]
_coverage = coverage.Coverage(
    data_file=None, config_file=False, source=[_SOURCE], concurrency=["thread"]
)
_seconds: dict[str, float] = {}
_failed: set[str] = set()

_coverage.start()  # when pytest loads this module: before anything imports the sources


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let lines count for this test, those of its fixtures and of threads included."""
    _coverage.switch_context(item.nodeid)
    begun = time.monotonic()
    try:
        return (yield)
    finally:
        _seconds[item.nodeid] = time.monotonic() - begun
        _coverage.switch_context("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a failure."""
    if report.failed:
        _failed.add(report.nodeid)


def pytest_sessionfinish(exitstatus: int) -> None:
    """Write the records, unless not all modules could be collected."""
    _coverage.stop()
    if exitstatus not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
        return
    data = _coverage.get_data()
    lines = {
        str(Path(file).relative_to(_SOURCE)): data.contexts_by_lineno(file)
        for file in data.measured_files()
    }
    for name in sorted(_failed):
        print(f"{name}: fails without a fault, and is not used")
    for module, target in _TARGETS.items():
        tests = sorted(
            each for each in _seconds if each.partition("::")[0] == module and each not in _failed
        )
        numbers = {name: number for number, name in enumerate(tests)}
        record = {
            "tests": tests,
            "seconds": [_seconds[name] for name in tests],
            "lines": {file: _numbered(found, numbers) for file, found in lines.items()},
        }
        Path(target).write_text(json.dumps(record))


def _numbered(found: dict[int, list[str]], numbers: dict[str, int]) -> dict[int, list[int]]:
    lines = {
        line: sorted(numbers[each] for each in tests if each in numbers)
        for line, tests in found.items()
    }
    return {line: each for line, each in lines.items() if each}
