"""Recovery of a rebuild that was killed while it replaced the rows of two tables.

A rebuild replaces the rows of a silver table and its dead letters, in three commits: it adds the
new dead letters, replaces the rows, and removes the old dead letters. A plan of these commits,
written before the first one, lets the next process remove the new dead letters again if the rows
were not replaced, and the old ones if they were.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from penstock.pipeline.data_files import describe
from penstock.pipeline.tables import Table

__all__ = ["LetterPlan", "read_plan", "recover_letters", "remove_old_letters", "write_plan"]

_PLAN = "dead_letters.json"


class LetterPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The replacement of the dead letters of one silver table; files are paths in their table.

    `version` is that of the silver table before its rows are replaced, `offsets` are the app
    transactions of the dead letters before.
    """

    silver: str
    version: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]
    """New files with the rows of `removed` that belong to other silver tables."""
    offsets: Mapping[str, int]


def write_plan(folder: Path, plan: LetterPlan) -> None:
    """Write a plan to the folder of the rebuild."""
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"{_PLAN}.new"
    place.write_bytes(msgspec.json.encode(plan))
    place.replace(folder / _PLAN)


def read_plan(folder: Path) -> LetterPlan | None:
    """Return the plan of an unfinished rebuild, None if there is none."""
    try:
        data = (folder / _PLAN).read_bytes()
    except FileNotFoundError:
        return None
    return msgspec.json.decode(data, type=LetterPlan)


def recover_letters(plan: LetterPlan, *, silver: Table, letters: Table) -> None:
    """Remove the old dead letters if the silver table was replaced, else the new ones."""
    if not letters.exists():
        return
    if silver.log.refresh() > plan.version:
        remove_old_letters(plan, letters)
        return
    added = [each for each in letters.log.files() if each.path in plan.added]
    if added:
        letters.commit(remove=added, transactions=plan.offsets)


def remove_old_letters(plan: LetterPlan, letters: Table) -> None:
    """Remove the old dead letters, unless that was done before."""
    letters.exists()
    removed = [each for each in letters.log.files() if each.path in plan.removed]
    if removed:
        kept = [describe(letters.store, path) for path in plan.kept]
        letters.commit(add=kept, remove=removed)
