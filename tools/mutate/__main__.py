"""`make mutate`: put a sample of small faults into the code, and print those that no test notices.

Each fault is run against the tests that execute its lines, the quickest first, up to a limit of
time. Faults that change nothing are listed in `equivalent.toml`, each with the reason.
"""

import argparse
import hashlib
import random
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.mutate import record as recording
from tools.mutate.mutations import Mutation, all_mutations
from tools.mutate.record import SPARK, Record
from tools.mutate.runs import Result, Run, preload, run_all

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "penstock"
FOLDERS: Final = (
    "core", "memory", "storage", "gateway", "server", "transport", "tracing", "console", "spark",
    "pipeline",
)  # fmt: skip
TESTS: Final = (
    "tests/unit/core", "tests/unit/storage", "tests/unit/gateway", "tests/unit/server",
    "tests/unit/transport", "tests/unit/tracing", "tests/unit/console", "tests/unit/test_memory.py",
    "tests/unit/test_replay.py", "tests/unit/test_expressions.py",
    "tests/unit/cli/log", "tests/conformance", "tests/interop", "tests/golden", "tests/sim",
    "tests/fuzz/test_flight_rows.py", "tests/crash/test_failing_disk.py",
    "tests/crash/test_slow_disk.py", "tests/crash/test_power_cut.py",
    "tests/spark", "tests/pipeline",
)  # fmt: skip
FOREIGN_THREADS: Final = {
    "server/flight": (
        "tests/interop/test_flight",
        "tests/unit/server/test_flight",
        "tests/fuzz/test_flight",
    ),
    "console/query_worker": ("tests/unit/console/test_query_processes",),
    "spark": ("tests/spark",),
    "pipeline": ("tests/pipeline",),
}
"""Tests of code that runs in threads of gRPC or in workers of Spark, where no line is recorded."""

CAUGHT_MIN: Final = 0.9
SELECTED_SECONDS_MAX: Final = 100.0
SELECTED_MAX: Final = 400
START_SECONDS_MAX: Final = 60.0
TEST_SECONDS_MIN: Final = 60.0
"""Time-out of a test that took no time when it was recorded."""
SECONDS_MAX: Final = 600.0
"""Time-out of tests that are not on record."""
EQUIVALENT: Final = Path(__file__).with_name("equivalent.toml")


def selected(record: Record, mutation: Mutation) -> list[str]:
    """Return the tests for a fault: those on record first, and the quickest of them.

    Tests with Spark are left out if there are others, except for code that uses it.
    """
    file = str(mutation.path)
    found = record.of_lines(file, mutation.line, mutation.last_line)
    at_import = mutation.line in record.imported.get(file, ())
    foreign: set[str] = set()
    if not at_import:
        for folder, prefixes in FOREIGN_THREADS.items():
            if file.startswith(f"{folder}/"):
                foreign = {test for test in record.seconds if test.startswith(prefixes)} - found
                found |= foreign
    used: Counter[str] = Counter()
    if not found:
        used = record.of_file(file)
        found = set(used)
    uses_spark = file.startswith(("spark/", "pipeline/"))
    if not uses_spark:
        others = {test for test in found if not test.startswith(SPARK)}
        found = others or found
    own = f"tests/unit/{mutation.path.parts[0]}/"
    limit = SELECTED_SECONDS_MAX * (2 if uses_spark else 1)
    chosen: list[str] = []
    seconds = 0.0

    def order(test: str) -> tuple[bool, float, str]:
        return test in foreign, *_order(test, own, record.seconds[test], used[test])

    for test in sorted(found, key=order):
        if record.seconds[test] > limit - seconds and chosen:
            continue
        seconds += record.seconds[test]
        chosen.append(test)
        if seconds > limit or len(chosen) >= SELECTED_MAX:
            break
    return chosen


def _order(test: str, own: str, seconds: float, lines: int) -> tuple[float, str]:
    """Return the place of a test: quick ones first, and those that use many `lines` of the file.

    Tests of the own package are more likely to notice a fault.
    """
    weight = 0.2 if test.startswith(own) else 1.0
    return (weight * (seconds + 0.1) / max(lines, 1), test)


def load_equivalent() -> dict[tuple[str, str], str]:
    """Return the reasons of faults that change nothing, by file and diff."""
    listed = tomllib.loads(EQUIVALENT.read_text()).get("fault", [])
    return {(each["file"], each["diff"].strip("\n")): each["reason"] for each in listed}


def modules(without: Collection[str] = ()) -> list[Path]:
    """Return the test modules that are used, except those in folders of `without`."""
    found: list[Path] = []
    for name in TESTS:
        place = ROOT / name
        found += [place] if place.is_file() else sorted(place.rglob("test_*.py"))
    return [each for each in found if not is_in(each.relative_to(ROOT), without)]


def is_in(path: Path, folders: Collection[str]) -> bool:
    """Return whether a file is in a folder with one of some names, at any level."""
    return not set(path.parts[:-1]).isdisjoint(folders)


def draw(found: Iterable[Mutation], sources: Mapping[Path, str], seed: int) -> list[Mutation]:
    """Return faults in an order by chance: that of a seed and of the code that each changes.

    The first 200 are a sample that stays the same, except for code that was edited. So a fault
    that was not noticed once is tried again.
    """
    seen: Counter[str] = Counter()
    ranked = []
    for mutation in found:
        identity = mutation.identity(sources[mutation.path])
        seen[identity] += 1
        text = f"{seed}\0{seen[identity]}\0{identity}"
        ranked.append((hashlib.sha256(text.encode()).digest(), mutation))
    return [mutation for _, mutation in sorted(ranked, key=lambda each: each[0])]


def is_wanted(mutation: Mutation, only: Collection[str]) -> bool:
    """Return whether a fault is at one of some places, such as `core/broker.py` or `broker.py:12`.

    All faults are wanted if no place is given.
    """
    for place in only:
        path, _, line = place.partition(":")
        if path in str(mutation.path) and line in {"", str(mutation.line)}:
            return True
    return not only


def sample(count: int, seed: int, only: Collection[str]) -> tuple[list[Mutation], int]:
    """Return a sample of the faults, and how many were passed over as they change nothing."""
    found = [each for each in all_mutations(SOURCE, FOLDERS) if is_wanted(each, only)]
    sources = {each: (SOURCE / each).read_text() for each in {fault.path for fault in found}}
    equivalent = load_equivalent()
    files = {file for file, _ in equivalent}
    chosen: list[Mutation] = []
    unchanged = 0
    for each in draw(found, sources, seed):
        if len(chosen) == count:
            break
        if str(each.path) in files and (str(each.path), diff_of(each)) in equivalent:
            unchanged += 1
        else:
            chosen.append(each)
    return sorted(chosen, key=lambda each: (str(each.path), each.start)), unchanged


def diff_of(mutation: Mutation) -> str:
    """Return the change of a fault."""
    return mutation.diff((SOURCE / mutation.path).read_text())


def report(results: Sequence[Result], unchanged: int) -> bool:
    """Print the faults that were not noticed and the counts; return whether enough were."""
    survivors = [each for each in results if not each.caught]
    for result in sorted(
        survivors, key=lambda each: (each.run.mutation.path, each.run.mutation.line)
    ):
        mutation = result.run.mutation
        print(f"\nnot noticed: {mutation.path}:{mutation.line} ({mutation.operator})")
        print(diff_of(mutation))
        print(
            f"  by {len(result.run.tests)} tests" if result.run.tests else "  no test executes it"
        )
    total: Counter[str] = Counter()
    caught: Counter[str] = Counter()
    for result in results:
        folder = result.run.mutation.path.parts[0]
        total[folder] += 1
        caught[folder] += result.caught
    print()
    for folder in sorted(total):
        print(f"{folder:10} {caught[folder]:4} of {total[folder]:4}")
    share = caught.total() / max(total.total(), 1)
    hangs = sum("hang" in each.how for each in results)
    print(
        f"{caught.total()} of {total.total()} faults noticed ({share:.1%}), {hangs} of them by a "
        f"time-out; {unchanged} that change nothing left out"
    )
    return share >= CAUGHT_MIN


def check_tests(tests: Sequence[str]) -> None:
    """Exit if tests fail without a fault: they would seem to notice every one."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    if ended.returncode:
        sys.exit(f"the tests fail without a fault:\n{ended.stdout[-2000:]}")


def recorded_runs(chosen: Sequence[Mutation], without: Collection[str], workers: int) -> list[Run]:
    """Return a run for each fault with the tests that execute its lines."""
    begun = time.monotonic()
    record = recording.load(ROOT, SOURCE, modules(without), ROOT / ".mutate", workers=workers)
    print(f"loaded the record of tests in {time.monotonic() - begun:.0f} s", flush=True)
    record.imported = recording.imported_lines(ROOT, SOURCE, FOLDERS)
    runs = []
    for mutation in chosen:
        tests = selected(record, mutation)
        seconds = [record.seconds[test] for test in tests]
        hangs = TEST_SECONDS_MIN + 5 * max(seconds, default=0)
        runs.append(Run(mutation, tests, START_SECONDS_MAX + hangs + 3 * sum(seconds), hangs))
    return runs


def main(arguments: Sequence[str]) -> int:
    """Run a sample; return the exit code."""
    parser = argparse.ArgumentParser(prog="make mutate", description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--only",
        nargs="*",
        default=[],
        help="parts of paths, such as core/broker.py, or with a line, such as core/broker.py:12",
    )
    parser.add_argument(
        "--without",
        nargs="*",
        default=[],
        help="names of folders whose faults and tests are left out of the sample, such as spark",
    )
    parser.add_argument(
        "--tests", nargs="*", default=[], help="run these tests instead of those on record"
    )
    parser.add_argument("--show", action="store_true", help="print the sample, run nothing")
    options = parser.parse_args(arguments)
    drawn, unchanged = sample(options.count, options.seed, options.only)
    chosen = [each for each in drawn if not is_in(each.path, options.without)]
    if options.show:
        for each in chosen:
            print(f"{each.path}:{each.line} ({each.operator})\n{diff_of(each)}")
        return 0
    if options.tests:
        check_tests(options.tests)
        runs = [Run(each, options.tests, SECONDS_MAX) for each in chosen]
    else:
        runs = recorded_runs(chosen, options.without, options.workers)
    preload()
    untested = [Result(run, caught=False, how="", seconds=0) for run in runs if not run.tests]
    results = list(untested)
    tested = [run for run in runs if run.tests]
    random.Random(options.seed).shuffle(tested)  # noqa: S311  (a part is a sample too)
    for number, result in enumerate(run_all(ROOT, SOURCE, tested, workers=options.workers), 1):
        results.append(result)
        mutation = result.run.mutation
        state = result.how if result.caught else "NOT NOTICED"
        print(
            f"{number:4}/{len(tested)} {mutation.path}:{mutation.line} {mutation.operator}: "
            f"{state} ({result.seconds:.1f} s)",
            flush=True,
        )
    if len(chosen) < len(drawn):
        print(
            f"\n{len(drawn) - len(chosen)} faults not tried: {', '.join(options.without)} left out"
        )
    return 0 if report(results, unchanged) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
