"""The messages and bytes that rules of retention have in row groups and segments."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import pyarrow.compute as pc

from penstock.storage.arrow.format.index import Index
from penstock.storage.arrow.read.catalog import ActiveSegment, Catalog
from penstock.storage.arrow.read.last_messages import read_row_group
from penstock.storage.arrow.recover.recovery import Segment

__all__ = ["RuleSize", "RuleSizes"]

_ROW_GROUPS_KNOWN_MAX: Final = 65_536
_Wanted = Callable[[str], bool]


class RuleSize(NamedTuple):
    """Messages of a rule, and their bytes: each has an equal part of its row group's bytes."""

    rows: int
    size: int


class RuleSizes:
    """Sizes of rules; `wanted` has a test of topics for each rule. One thread uses it.

    `rest` is called before a row group is read; it may raise.
    """

    def __init__(
        self,
        catalog: Catalog,
        wanted: Sequence[_Wanted],
        *,
        rest: Callable[[], None] = lambda: None,
    ) -> None:
        self._catalog = catalog
        self._rest = rest
        self._wanted = wanted
        # By rule, offset and size of a closed segment.
        self._totals: dict[tuple[int, int, int], RuleSize] = {}
        # Messages in row groups that were read: by rule, base offset and count.
        self._rows: dict[tuple[int, int, int], int] = {}

    def forget_removed(self) -> None:
        """Forget segments that are no longer in the catalog."""
        kept = {(each.base_offset, each.size) for each in self._catalog.segments()}
        self._totals = {key: size for key, size in self._totals.items() if key[1:] in kept}

    def total(self, number: int, segment: Segment | ActiveSegment) -> RuleSize:
        """Return the size of a rule in a segment; raise OSError."""
        key = (number, segment.base_offset, segment.size)
        found = self._totals.get(key)
        if found is None:
            sizes = self.of(number, segment)
            found = RuleSize(sum(each.rows for each in sizes), sum(each.size for each in sizes))
            if not isinstance(segment, ActiveSegment):
                self._totals[key] = found
        return found

    def of(self, number: int, segment: Segment | ActiveSegment) -> list[RuleSize]:
        """Return the size of a rule in each row group of a segment; raise OSError."""
        index = self._catalog.index(segment)
        counts = index.row_counts(self._wanted[number], first=0, last=len(index))
        sizes = []
        for place, rows in enumerate(counts):
            entry = index.entry(place)
            found = self._count(number, segment, index, place) if rows is None else rows
            sizes.append(RuleSize(found, entry.size * found // entry.count))
        return sizes

    def _count(
        self, number: int, segment: Segment | ActiveSegment, index: Index, place: int
    ) -> int:
        """Count the messages of a rule in a row group whose index does not name its topics."""
        entry = index.entry(place)
        known = self._rows.get((number, entry.base_offset, entry.count))
        if known is None:
            self._rest()
            wanted = self._wanted[number]
            known = 0
            for batch in read_row_group(
                self._catalog.folder, segment, index, place, columns=["topic"]
            ):
                counts = pc.value_counts(batch.column("topic"))
                known += sum(
                    count
                    for name, count in zip(
                        counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True
                    )
                    if wanted(name)
                )
            if len(self._rows) > _ROW_GROUPS_KNOWN_MAX:
                self._rows.clear()
            self._rows[number, entry.base_offset, entry.count] = known
        return known
