"""`make mutate` makes the faults it should, notices those that tests notice, and names the others."""

import dataclasses
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tools.mutate.__main__ import (
    EQUIVALENT,
    FOLDERS,
    SOURCE,
    TESTS,
    diff_of,
    draw,
    is_in,
    is_wanted,
    load_equivalent,
    modules,
    report,
    selected,
)
from tools.mutate.mutations import Mutation, all_mutations, mutations
from tools.mutate.record import Record
from tools.mutate.runs import Result, Run

ROOT = Path(__file__).parents[2]

SAMPLE = """
def limited(values, most):
    total = 0
    for value in values:
        total += value
        if total > most:
            return most
    return total


def until(number):
    while number > 0:
        number -= 1
    return number
"""
TESTS_OF_SAMPLE = """
from sample import limited, until

def test_limited():
    assert limited([1, 2], 10) == 3

def test_until():
    assert until(3) == 0
"""
DRIVER = """
import sys
from pathlib import Path
from tools.mutate.mutations import mutations
from tools.mutate.runs import Run, run_all

root = Path(sys.argv[1])
source = root / "src" / "sample"
path = Path("__init__.py")
faults = {each.diff(text): each for text in [(source / path).read_text()] for each in mutations(path, text)}
wanted = ["-        total += value\\n+        total -= value", "-            return most\\n+            pass",
          "-        number -= 1\\n+        number += 1"]
tests = ["tests/test_sample.py::test_limited", "tests/test_sample.py::test_until"]
runs = [Run(faults[diff], tests, seconds) for diff, seconds in zip(wanted, (60, 60, 6))]
for result in run_all(root, source, runs, workers=3):
    print(wanted.index(result.run.mutation.diff((source / path).read_text())), result.caught, result.how)
"""


def diffs(source: str) -> list[str]:
    return [each.diff(source) for each in mutations(Path("x.py"), source)]


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("x = a < b", "x = (a <= b)"),
        ("x = a == b", "x = (a != b)"),
        ("x = a is None", "x = (a is not None)"),
        ("x = a and b or c", "x = (a or b) or c"),
        ("if not a: f()", "if (a): f()"),
        ("f(a)", "pass"),
        ("x = min(a, b)", "x = max(a, b)"),
        ("x = True", "x = False"),
        ("x = 8", "x = 9"),
        ("x += y", "x -= y"),
        ("x = é + b", "x = (é - b)"),
        ("def f():\n    if a:\n        return", "        pass"),
        ("def f(self):\n    self.x = y", "    pass"),
        ("async def f():\n    await g()", "    pass"),
    ],
)
def test_a_small_fault_is_made(source: str, changed: str) -> None:
    made = [diff.partition("\n+")[2] for diff in diffs(source)]
    assert changed in made


@pytest.mark.parametrize(
    "source",
    [
        "log.info('x', size=y)",
        "'''A text.'''",
        "if TYPE_CHECKING:\n    import x",
        "def f():\n    raise AssertionError('x')",
        "x: list[1]",
        "__all__ = ['x']",
        "x = f'{a + 1}'",
    ],
)
def test_what_tests_need_not_notice_is_left_alone(source: str) -> None:
    assert diffs(source) == []


def test_every_fault_of_the_project_can_be_compiled_and_changes_its_file() -> None:
    found = list(all_mutations(SOURCE, FOLDERS))
    assert len(found) > 5000
    assert {each.path.parts[0] for each in found} == set(FOLDERS)
    for each in found[::50]:
        source = (SOURCE / each.path).read_text()
        changed = each.apply(source)
        assert changed != source
        compile(changed, str(each.path), "exec")


def test_the_run_notices_what_the_tests_notice_and_nothing_else(tmp_path: Path) -> None:
    package = tmp_path / "src" / "sample"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(SAMPLE)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_sample.py").write_text(TESTS_OF_SAMPLE)
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", DRIVER, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    said = sorted(ended.stdout.splitlines())
    assert said[0].startswith("0 True FAILED tests/test_sample.py::test_limited")
    assert said[1].split() == ["1", "False"], "no test has a limit that is reached"
    assert said[2] == "2 True hangs"
    assert (package / "__init__.py").read_text() == SAMPLE, "the sources do not change"


def test_survivors_are_printed_and_too_many_fail(capsys: pytest.CaptureFixture[str]) -> None:
    mutation = next(iter(all_mutations(SOURCE, ("core",))))
    run = Run(mutation, ["a test"], 1.0)
    caught, missed = Result(run, True, "FAILED x", 0.1), Result(run, False, "", 0.1)  # noqa: FBT003
    assert report([caught] * 9 + [missed], 0)
    said = capsys.readouterr().out
    assert f"not noticed: {mutation.path}:{mutation.line}" in said
    assert diff_of(mutation) in said
    assert "9 of 10 faults noticed (90.0%)" in said
    assert not report([caught] * 8 + [missed] * 2, 0)


def test_a_record_knows_the_tests_of_lines() -> None:
    record = Record()
    record.add(
        {"tests": ["a", "b"], "seconds": [1.0, 2.0], "lines": {"x.py": {"3": [0], "4": [0, 1]}}}
    )
    assert record.of_lines("x.py", 4, 5) == {"a", "b"}
    assert record.of_lines("x.py", 3, 3) == {"a"}
    assert record.of_lines("x.py", 5, 9) == set()
    assert record.of_file("x.py") == {"a": 2, "b": 1}


def test_quick_tests_come_first_and_for_a_constant_those_that_use_the_file_most() -> None:
    record = Record(
        seconds={"tests/interop/quick": 0.1, "tests/unit/core/own": 0.15, "tests/spark/slow": 9.0},
        lines={"core/x.py": {
            3: ["tests/interop/quick", "tests/unit/core/own", "tests/spark/slow"],
            4: ["tests/unit/core/own"],
        }},
    )  # fmt: skip
    inside = Mutation(Path("core/x.py"), 3, 3, "constant", 0, 1, "2")
    assert selected(record, inside) == ["tests/unit/core/own", "tests/interop/quick"]
    at_import = dataclasses.replace(inside, line=1, last_line=1)
    assert selected(record, at_import)[0] == "tests/unit/core/own"


def test_tests_of_code_in_threads_without_a_record_come_behind_those_on_record() -> None:
    record = Record(
        seconds={"tests/interop/test_flight.py::quick": 0.1, "tests/unit/server/slow": 5.0},
        lines={"server/flight/x.py": {3: ["tests/unit/server/slow"]}},
    )
    fault = Mutation(Path("server/flight/x.py"), 3, 3, "constant", 0, 1, "2")
    assert selected(record, fault) == list(reversed(record.seconds))
    assert selected(record, dataclasses.replace(fault, line=4, last_line=4)) == [
        "tests/interop/test_flight.py::quick"
    ]


def test_every_equivalent_fault_exists_and_has_a_reason() -> None:
    listed = tomllib.loads(EQUIVALENT.read_text())["fault"]
    assert len(load_equivalent()) == len(listed)
    by_file: dict[str, list[str]] = {}
    for each in listed:
        file, diff = each["file"], each["diff"].strip("\n")
        if file not in by_file:
            source = (SOURCE / file).read_text()
            by_file[file] = [fault.diff(source) for fault in mutations(Path(file), source)]
        assert by_file[file].count(diff) == each.get("places", 1), f"{file}: {diff}"
        assert len(each["reason"]) > 20


def test_the_test_folders_exist() -> None:
    for name in TESTS:
        assert (ROOT / name).exists(), name


def test_folders_can_be_left_out() -> None:
    assert is_in(Path("spark/source.py"), ["spark"])
    assert not is_in(Path("server/spark.py"), ["spark", "pipeline"])
    left = {each.relative_to(ROOT).parts[1] for each in modules(["spark", "pipeline", "interop"])}
    assert {"spark", "pipeline", "interop"}.isdisjoint(left)
    assert {"unit", "conformance"} <= left


def test_the_sample_stays_when_other_code_changes() -> None:
    path = Path("core/x.py")

    def drawn(source: str, seed: int) -> list[str]:
        found = draw(mutations(path, source), {path: source}, seed)
        return [each.diff(source) for each in found]

    before = drawn(SAMPLE, 1)
    assert sorted(before) == sorted(diffs(SAMPLE))
    after = drawn(f"import os\n\n\nlimit = 100\n{SAMPLE}", 1)
    assert [each for each in after if "limit =" not in each] == before
    assert drawn(SAMPLE, 2) != before


def test_faults_are_chosen_by_file_and_line() -> None:
    fault = Mutation(Path("core/broker.py"), 12, 12, "constant", 0, 1, "2")
    assert is_wanted(fault, [])
    assert is_wanted(fault, ["server", "broker.py:12"])
    assert is_wanted(fault, ["core/"])
    assert not is_wanted(fault, ["core/broker.py:1", "core/broker.py:13", "server"])
