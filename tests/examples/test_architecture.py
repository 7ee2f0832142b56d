"""The picture of the layers is the one that is enforced."""

import itertools
import re
from pathlib import Path

from tests.unit.test_layers import RANK, SOURCE

PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
PICTURE = PAGE.partition("\n## Layers\n")[2].split("```")[1].strip("\n")
NAMES_WIDTH = 34  # what stands behind it says what they are


def drawn() -> list[list[str]]:
    """The names on each line of the picture, from the top."""
    return [re.findall(r"\w+", line[:NAMES_WIDTH]) for line in PICTURE.splitlines()]


def test_a_line_of_the_picture_sees_those_below_it() -> None:
    ranks = [{RANK[name] for name in line} for line in drawn()]
    for above, below in itertools.pairwise(ranks):
        assert min(above) > max(below)
    assert {len(each) for each in ranks[:-1]} == {1}  # names side by side do not see each other


def test_every_package_that_is_there_is_in_the_picture() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages - {name for line in drawn() for name in line} == set()
