"""Each protocol page ends in a table of its specification's statements, and each row is shown.

A row names conformance cases, as `fleximq/join-is-answered`, or tests, as
`tests/unit/wire/test_x.py::test_y`, each in backticks.
"""

import ast
import functools
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.conform import suite
from penstock.protocols import PROTOCOLS

ROOT = Path(__file__).parents[2]
HEADING = "## Statements of the specification"
HEAD = ("Section", "Statement", "Penstock", "Case")
SUPPORTED = re.compile(r"yes|(differs|not applicable): \S.*")
CELL_END = re.compile(r"(?<!\\)\|")
CASES = {
    f"{protocol.label}/{case.name}"
    for protocol in PROTOCOLS
    for case in suite(protocol.label).cases
}


class Statement(NamedTuple):
    """A row of the table."""

    section: str
    text: str
    supported: str
    shown_by: tuple[str, ...]


def statements(page: str) -> list[Statement]:
    """The rows of the table at the end of a page; empty without a table."""
    _, heading, rest = page.rpartition(f"\n{HEADING}\n")
    lines = [line for line in rest.splitlines() if line.startswith("|")] if heading else []
    rows = [tuple(cell.strip() for cell in CELL_END.split(line)[1:-1]) for line in lines]
    if rows[:1] != [HEAD]:
        return []
    assert rest.splitlines()[-len(lines) :] == lines, "text behind the table"
    found = []
    for row in rows[2:]:
        assert len(row) == len(HEAD), f"not four cells: {row}"
        section, text, supported, shown_by = row
        found.append(Statement(section, text, supported, tuple(re.findall("`([^`]+)`", shown_by))))
    return found


@functools.cache
def functions(path: str) -> frozenset[str]:
    """The tests that a file defines, as a node id names them; empty without such a file."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    found = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}::{each.name}"
                for each in node.body
                if isinstance(each, ast.FunctionDef)
            }
    return frozenset(found)


def exists(name: str) -> bool:
    """Whether there is a case, or a test, of this name."""
    path, separator, function = name.partition("::")
    if not separator:
        return name in CASES
    return function.split("::")[-1].startswith("test_") and function in functions(path)


@pytest.mark.parametrize("label", [protocol.label for protocol in PROTOCOLS])
def test_each_statement_is_shown_by_a_case(label: str) -> None:
    rows = statements((ROOT / "docs" / "protocols" / f"{label}.md").read_text())
    assert rows, f"{label}.md does not end in a table of its statements"
    for row in rows:
        assert row.section, row
        assert row.text, row
        assert SUPPORTED.fullmatch(row.supported), row
        assert row.shown_by, f"no case: {row}"
        missing = [name for name in row.shown_by if not exists(name)]
        assert not missing, f"no such case or test: {missing} in {row}"
    texts = [(row.section, row.text) for row in rows]
    assert len(set(texts)) == len(texts), "a statement occurs twice"


def test_a_name_that_is_no_case_and_no_test_is_found() -> None:
    here = Path(__file__).relative_to(ROOT).as_posix()
    assert exists("fleximq/join-is-answered")
    assert exists(f"{here}::test_each_statement_is_shown_by_a_case")
    assert not exists("fleximq/join-is-not-answered")
    assert not exists("join-is-answered")
    assert not exists(f"{here}::statements")
    assert not exists(f"{here}::test_nothing")
    assert not exists("tests/examples/test_nothing.py::test_nothing")


def test_the_table_is_read_from_the_end_of_a_page() -> None:
    table = f"\n{HEADING}\n\n| {' | '.join(HEAD)} |\n|---|---|---|---|\n| 1 | a \\| b | yes | `x`, `y` |\n"
    assert statements(table) == [Statement("1", "a \\| b", "yes", ("x", "y"))]
    assert statements(table.replace("Section", "Part")) == []
    assert statements("# A page without a table\n") == []
    with pytest.raises(AssertionError, match="text behind"):
        statements(f"{table}\nMore text.\n")
