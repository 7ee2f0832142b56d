"""Every target's found inputs, seeds and a fixed run of mutants: the fuzzing that CI can afford."""

from collections.abc import Callable

import pytest

from tests.fuzz.inputs import NAMES, found, load
from tests.fuzz.mutate import mutants

MUTANTS = 2_000
SEED = 20261101


@pytest.mark.parametrize("name", NAMES)
def test_no_input_breaks_a_promise(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    target = load(name)
    inputs = [b"", *found(name), *target.SEEDS]
    expected = len(inputs) + MUTANTS
    tried = 0
    for data in (*inputs, *mutants(target.SEEDS, count=MUTANTS, seed=SEED)):
        try:
            target.check(data)
        except Exception as error:
            error.add_note(f"target {name}, input {data.hex()}")
            raise
        tried += 1
    record_property("inputs_tried", tried)
    assert tried == expected
