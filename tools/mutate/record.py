"""The record of which tests execute which lines, in `.mutate/`; renewed when files change."""

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

_SECONDS_MAX: Final = 3600
_CHUNK_MODULES_MAX: Final = 8
SPARK: Final = ("tests/spark/", "tests/pipeline/")
"""Tests that may start Spark: they come last, and only for the packages that use it."""


@dataclasses.dataclass
class Record:
    """Durations of tests in seconds; for each source file the tests of each line."""

    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    lines: dict[str, dict[int, list[str]]] = dataclasses.field(default_factory=dict)
    imported: dict[str, set[int]] = dataclasses.field(default_factory=dict)
    """Lines that run at import, of each source file."""

    def add(self, data: dict[str, object]) -> None:
        """Add what the plugin has written."""
        tests: list[str] = data["tests"]  # type: ignore[assignment]
        seconds: list[float] = data["seconds"]  # type: ignore[assignment]
        lines: dict[str, dict[str, list[int]]] = data["lines"]  # type: ignore[assignment]
        self.seconds.update(zip(tests, seconds, strict=True))
        for file, found in lines.items():
            known = self.lines.setdefault(file, {})
            for line, numbers in found.items():
                known.setdefault(int(line), []).extend(tests[number] for number in numbers)

    def of_lines(self, file: str, first: int, last: int) -> set[str]:
        """Return the tests that execute any of some lines, none for lines that run at import."""
        lines = self.lines.get(file, {})
        if first in self.imported.get(file, ()):
            return set()
        return {test for line in range(first, last + 1) for test in lines.get(line, ())}

    def of_file(self, file: str) -> Counter[str]:
        """Return the tests that execute lines of a file, with how many."""
        return Counter(test for tests in self.lines.get(file, {}).values() for test in tests)


def _hash(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(f"{path}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:24]


def _record(root: Path, source: Path, places: Mapping[Path, Path]) -> None:
    """Run test modules under the plugin, which writes the record of each to its place."""
    names = {str(module.relative_to(root)): str(place) for module, place in places.items()}
    environment = {
        **os.environ,
        "PENSTOCK_RECORD": json.dumps(names),
        "PENSTOCK_RECORD_SOURCE": str(source),
    }
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "tools.mutate.recorder",
        "-p", "no:cacheprovider", "--timeout", "300", "-m", "not browser", *names,
    ]  # fmt: skip
    try:
        ended = subprocess.run(  # noqa: S603
            command,
            cwd=root,
            env=environment,
            capture_output=True,
            timeout=_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        print(f"{', '.join(names)}: not recorded within {_SECONDS_MAX} seconds")
        return
    output = ended.stdout.decode()
    for line in output.splitlines():
        if line.endswith("and is not used"):
            print(line, flush=True)
    if not all(place.exists() for place in places.values()):
        print(f"{', '.join(names)}: not recorded\n{output[-2000:]}", flush=True)


def _chunks(root: Path, modules: Sequence[Path]) -> Iterator[list[Path]]:
    """Split modules for processes of some minutes; tests with Spark share one session."""
    spark = [each for each in modules if str(each.relative_to(root)).startswith(SPARK)]
    others = [each for each in modules if each not in spark]
    if spark:
        yield spark
    for start in range(0, len(others), _CHUNK_MODULES_MAX):
        yield others[start : start + _CHUNK_MODULES_MAX]


def imported_lines(root: Path, source: Path, folders: Sequence[str]) -> dict[str, set[int]]:
    """Return the lines of each source file that run at import."""
    command = [sys.executable, "-m", "tools.mutate.imported", str(source), *folders]
    ended = subprocess.run(command, cwd=root, capture_output=True, check=True)  # noqa: S603
    return {file: set(lines) for file, lines in json.loads(ended.stdout).items()}


def load(
    root: Path, source: Path, modules: Sequence[Path], folder: Path, *, workers: int
) -> Record:
    """Return the record of test modules; run those whose record is missing or out of date."""
    sources = _hash(source.rglob("*.py"))
    shared = _hash([*(root / "tests" / "support").rglob("*.py"), root / "tests" / "conftest.py"])
    places = {
        module: folder / sources / f"{_hash([module])}-{shared[:8]}-{module.stem}.json"
        for module in modules
    }
    (folder / sources).mkdir(parents=True, exist_ok=True)
    missing = [module for module, place in places.items() if not place.exists()]
    if missing:
        print(f"recording which lines {len(missing)} test modules execute", flush=True)
    chunks = [{each: places[each] for each in chunk} for chunk in _chunks(root, missing)]
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda chunk: _record(root, source, chunk), chunks))
    record = Record()
    for place in places.values():
        if place.exists():
            record.add(json.loads(place.read_text()))
    return record
