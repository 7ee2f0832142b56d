"""Finds the last message of each topic between two offsets, by the topics' names.

The index names the topics of each row group, so only row groups with a last message are read.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import LogDamaged
from penstock.model import Kind
from penstock.storage.arrow.format.index import Index
from penstock.storage.arrow.read.catalog import ActiveSegment, Catalog
from penstock.storage.arrow.read.pieces import Span, read_pieces
from penstock.storage.arrow.recover.recovery import Segment

__all__ = ["last_messages", "read_row_group"]

_COLUMNS: Final = ("topic", "offset", "kind", "form")
_PRIVATE: Final = 0x80
"""In `form`: a message that is not for every subscriber."""
_Wanted = Callable[[str], bool]


def read_row_group(
    folder: Path,
    segment: Segment | ActiveSegment,
    index: Index,
    place: int,
    *,
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Yield the columns of a row group; nothing if it is damaged."""
    piece = Span(segment.base_offset, index, place, place + 1).part(place, place + 1)
    try:
        yield from read_pieces(
            folder, [piece], first=piece.first_offset, last=piece.end_offset, columns=columns
        )
    except LogDamaged:
        return


def last_messages(
    catalog: Catalog,
    wanted: _Wanted,
    start: int,
    end: int,
    *,
    rest: Callable[[], None] = lambda: None,
) -> dict[str, int]:
    """Return the last message of each wanted topic between two offsets; raise OSError.

    Requests and private messages are not counted: subscribers do not get them. `rest` is called
    after each row group that is read.
    """
    found: dict[str, int] = {}
    for segment in reversed(catalog.segments()):
        if segment.base_offset < end and segment.end_offset > start:
            index = catalog.index(segment)
            first, last = index.at_offset(start), index.at_offset(end - 1) + 1
            names = set(filter(wanted, index.topics_between(first, min(last, len(index)))))
            search = _Search(catalog.folder, segment, index, start=start, end=end, rest=rest)
            search.add_to(found, names - found.keys())
    return {name: offset for name, offset in found.items() if wanted(name)}


class _Search:
    """The search in one segment, between two offsets."""

    def __init__(
        self,
        folder: Path,
        segment: Segment | ActiveSegment,
        index: Index,
        *,
        start: int,
        end: int,
        rest: Callable[[], None],
    ) -> None:
        self._folder = folder
        self._segment = segment
        self._index = index
        self._start = start
        self._end = end
        self._rest = rest

    def add_to(self, found: dict[str, int], missing: set[str]) -> None:
        """Add last messages to `found` until no topic of `missing` is left, or the segment ends."""
        was_read = set()
        for place, names in self._index.last_row_groups():
            if names is None or not missing.isdisjoint(names):
                self._take(place, found, missing)
                was_read.add(place)
        # The last row groups of some topics may have only requests of them, or be behind the end.
        others = self._index.with_topics(missing.__contains__) if missing else ()
        for place in reversed(others):
            if missing and place not in was_read:
                self._take(place, found, missing)

    def _take(self, place: int, found: dict[str, int], missing: set[str]) -> None:
        entry = self._index.entry(place)
        if entry.base_offset >= self._end or entry.base_offset + entry.count <= self._start:
            return
        for batch in read_row_group(
            self._folder, self._segment, self._index, place, columns=_COLUMNS
        ):
            offsets = batch.column("offset")
            inside = pc.and_(pc.greater_equal(offsets, self._start), pc.less(offsets, self._end))
            for name, offset in _last(batch.filter(inside)):
                found.setdefault(name, offset)
                missing.discard(name)
        self._rest()


def _last(batch: pa.RecordBatch) -> Iterator[tuple[str, int]]:
    column = batch.column("topic")
    delivered = pc.and_(
        pc.equal(pc.cast(batch.column("kind"), pa.utf8()), Kind.PUBLISH.label),
        pc.less(batch.column("form"), _PRIVATE),
    )
    rows = pa.table({"id": column.indices, "offset": batch.column("offset")}).filter(delivered)
    last = rows.group_by("id").aggregate([("offset", "max")])
    names = pc.take(column.dictionary, last.column("id")).to_pylist()
    yield from zip(names, last.column("offset_max").to_pylist(), strict=True)
