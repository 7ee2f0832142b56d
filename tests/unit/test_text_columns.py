"""Names become columns in parts, so that no conversion holds the interpreter lock for long."""

import random

import pyarrow as pa
import pytest

from penstock.ports.text_columns import name_list, text_column, text_parts

LONG = [f"{number}/" + "n" * 2000 for number in range(2000)]


@pytest.mark.parametrize(
    "names", [[], ["a"], ["", "\N{HORSE}", "a" * 600_000, "b"], [str(n) for n in range(9000)], LONG]
)
def test_the_names_are_the_same_in_order(names: list[str]) -> None:
    column = text_column(names)
    assert column.type == pa.utf8()
    assert column.to_pylist() == names
    assert name_list(column) == names
    assert [name for part in text_parts(names) for name in part.to_pylist()] == names


def test_a_part_is_small() -> None:
    chance = random.Random(3)
    names = ["x" * chance.choice([1, 10, 3000]) for _ in range(20_000)]
    parts = list(text_parts(names))
    assert len(parts) > 10
    assert max(part.nbytes for part in parts) < 512 * 1024
    assert max(map(len, parts)) <= 4096


def test_a_list_of_a_sliced_column_is_that_of_the_slice() -> None:
    column = text_column(LONG)
    assert name_list(column.slice(700, 1000)) == LONG[700:1700]
