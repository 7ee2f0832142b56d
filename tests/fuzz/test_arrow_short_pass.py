"""Damaged Arrow for everything that takes Arrow: found inputs and a fixed run, in another process."""

import subprocess
import sys
from pathlib import Path

from tests.fuzz import arrow

INPUTS = 2_000
FIRST = 20_000_000
"""Not the inputs that `make fuzz` tries."""


def test_no_damaged_arrow_does_harm() -> None:
    tally, reports = arrow.run(FIRST, INPUTS, arrow.SEED)
    assert not reports, "\n".join(reports)
    assert sum(each for name, each in tally.items() if "accepted" not in name) == INPUTS
    accepted = sum(each for name, each in tally.items() if "accepted" in name)
    assert INPUTS // 20 < accepted < INPUTS // 2  # neither all refused nor all taken


def test_inputs_that_were_found_once_do_no_harm() -> None:
    code = (
        "from tests.fuzz.arrow import kept\n"
        "from tests.fuzz.arrow_surfaces import SURFACES\n"
        "print(sum(SURFACES[name].check(data) is not None for name, data in kept()))"
    )
    done = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) == len(list(arrow.kept())) >= 2
