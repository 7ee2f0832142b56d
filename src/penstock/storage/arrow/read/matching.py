"""Counts the selected messages of a range from the indexes, without reading values.

Only a row group that the range, or the limit of rows, cuts is read, and one whose index does not
have the numbers of messages by topic.
"""

import heapq
import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import LogDamaged
from penstock.ports import Matched, TopicCounts
from penstock.ports.selection import Selection
from penstock.storage.arrow.format.index import Index
from penstock.storage.arrow.read.catalog import ActiveSegment, Catalog
from penstock.storage.arrow.read.pieces import Piece, Span, candidates, read_pieces
from penstock.storage.arrow.recover.recovery import Segment

__all__ = ["count_topics", "match"]


class _Part(NamedTuple):
    """Offsets of one row group, or of damage, in the range.

    `rows` is the number of selected messages, None if the row group must be read for it.
    """

    first: int
    last: int
    rows: int | None
    piece: Piece | None


def match(
    folder: Path,
    catalog: Catalog,
    *,
    start: int,
    end: int,
    selection: Selection,
    rows_max: int | None = None,
) -> Matched:
    """See ports.Storage; raise FileNotFoundError for a segment that was removed, or OSError."""
    position, rows = start, 0
    begin = start
    parts = heapq.merge(
        _row_groups(catalog, start, end, selection),
        _damaged(catalog, start, end),
        key=lambda part: part.first,
    )
    for part in parts:
        left = None if rows_max is None else rows_max - rows
        if left == 0:
            break
        count = part.rows
        offsets = None
        is_cut = left is not None and count is not None and left < count < part.last - part.first
        if count is None or is_cut:
            offsets = _selected(folder, catalog, part, selection)
            count = len(offsets)
        if count and not rows:
            begin = part.first
        if left is not None and count > left:
            last = part.first + left if offsets is None else offsets[left - 1] + 1
            return Matched(last, rows + left, begin)
        if count:
            position, rows = part.last, rows + count
    return Matched(position, rows, begin)


def count_topics(
    folder: Path, catalog: Catalog, *, start: int, end: int, selection: Selection
) -> TopicCounts:
    """See ports.Storage; raise FileNotFoundError for a segment that was removed, or OSError."""
    counts: Counter[str] = Counter()
    rows = sum(part.last - part.first for part in _damaged(catalog, start, end))
    for segment, index, first, last in catalog.row_groups(start, end):
        cut = [
            number
            for number in dict.fromkeys((first, last - 1))
            if _is_cut(index, number, start, end)
        ]
        whole_first = first + (first in cut)
        whole_last = max(last - (last - 1 in cut), whole_first)
        some, none = _expired(catalog, segment, index)
        to_read = {number for number in some if whole_first <= number < whole_last}
        bounds = sorted({whole_first - 1, whole_last, *to_read, *none})
        for before, after in itertools.pairwise(bounds):
            if whole_first - 1 <= before and after <= whole_last and before + 1 < after:
                found, unknown = index.topic_rows(first=before + 1, last=after)
                counts.update(found)
                to_read.update(unknown)
        for number in sorted({*cut, *to_read} - none):
            entry = index.entry(number)
            begin, until = max(entry.base_offset, start), min(entry.base_offset + entry.count, end)
            piece = Span(segment.base_offset, index, number, number + 1).part(number, number + 1)
            try:
                for batch in read_pieces(
                    folder,
                    [piece],
                    first=begin,
                    last=until,
                    columns=["topic"],
                    horizons=catalog.horizons,
                ):
                    counts.update(_topics(batch.column("topic")))
            except LogDamaged:
                rows += until - begin
    wanted = {name: count for name, count in counts.items() if selection.wanted(name)}
    return TopicCounts(rows + sum(wanted.values()), wanted)


def _expired(
    catalog: Catalog, segment: Segment | ActiveSegment, index: Index
) -> tuple[set[int], set[int]]:
    """Return the row groups of which some messages may have expired, and those of which all have.

    The index counts expired messages, too.
    """
    horizons, base = catalog.horizons, segment.base_offset
    kept = catalog.kept(segment)
    if kept is None:
        return set(), set()
    last = index.at_offset(horizons.highest) + 1
    touched = set(index.with_topics(lambda name: horizons.of(name) > base, last=last))
    readable = set(index.with_topics(kept, last=last))
    return touched & readable, touched - readable


def _is_cut(index: Index, number: int, start: int, end: int) -> bool:
    entry = index.entry(number)
    return entry.base_offset < start or entry.base_offset + entry.count > end


def _topics(column: pa.Array) -> dict[str, int]:
    counts = pc.value_counts(column)
    names, numbers = counts.field(0), counts.field(1)
    return dict(zip(names.to_pylist(), numbers.to_pylist(), strict=True))


def _row_groups(catalog: Catalog, start: int, end: int, selection: Selection) -> Iterator[_Part]:
    """Yield the row groups that may have selected messages."""
    for segment, index, first, last in catalog.row_groups(start, end):
        some, none = _expired(catalog, segment, index)
        for number, rows in _counts(index, first, last, selection):
            if rows == 0 or number in none:
                continue
            entry = index.entry(number)
            begin = max(entry.base_offset, start)
            until = min(entry.base_offset + entry.count, end)
            if rows == entry.count and number not in some:
                yield _Part(begin, until, until - begin, None)
                continue
            is_whole = until - begin == entry.count and number not in some
            piece = Span(segment.base_offset, index, number, number + 1).part(number, number + 1)
            yield _Part(begin, until, rows if is_whole else None, piece)


def _counts(
    index: Index, first: int, last: int, selection: Selection
) -> Iterator[tuple[int, int | None]]:
    """Yield the number of each row group, and of its selected messages; None if it is not known."""
    if first >= last:
        return
    if not selection.columns:
        for number in range(first, last):
            yield number, index.entry(number).count
        return
    if selection.columns <= {"topic"}:
        selection.wanted_names(index.topics_between(first, last))  # all at once
        yield from enumerate(index.row_counts(selection.wanted, first=first, last=last), first)
        return
    for number in candidates(index, first, last, selection):
        yield number, None


def _damaged(catalog: Catalog, start: int, end: int) -> Iterator[_Part]:
    """Yield the offsets that cannot be read."""
    for each in catalog.damage:
        first, last = max(each.first_offset, start), min(each.resumes_at, end)
        if first < last:
            yield _Part(first, last, last - first, None)


def _selected(folder: Path, catalog: Catalog, part: _Part, selection: Selection) -> list[int]:
    """Return the offsets of the selected messages of a row group; of all if it is damaged."""
    if part.piece is None:
        raise AssertionError("a part without a row group is counted")
    found: list[int] = []
    try:
        for batch in read_pieces(
            folder,
            [part.piece],
            first=part.first,
            last=part.last,
            columns=["offset", *sorted(selection.columns)],
            horizons=catalog.horizons,
        ):
            found += selection.of(batch).column("offset").to_pylist()
    except LogDamaged:
        return list(range(part.first, part.last))
    return found
