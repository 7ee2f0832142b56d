"""Plans a read of a log in one process, and reads its pieces in others.

A piece is a run of row groups of one segment, by its place in the file. The planner needs the
index; a reader needs only the file: it finds consecutive row groups, and checks them.
"""

import dataclasses
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import LogDamaged
from penstock.limits import (
    COLUMN_GROUP_BYTES_MIN,
    COLUMN_GROUPS_READ_BYTES,
    PIECE_GAP_BYTES_MAX,
    PIECE_READ_BYTES,
)
from penstock.ports.selection import Selection
from penstock.storage.arrow.format.file_names import segment_path
from penstock.storage.arrow.format.index import Entry, Index
from penstock.storage.arrow.format.segment import (
    COLUMN_FORMAT,
    HEAD_BYTES_MAX,
    BadRowGroup,
    Head,
    RowGroup,
    Truncated,
    check_row_group,
    head,
    parse_head,
    parse_row_group,
)
from penstock.storage.arrow.format.topic_horizons import NO_HORIZONS, TopicHorizons
from penstock.storage.arrow.read.catalog import Catalog, Place
from penstock.storage.arrow.read.columns import ColumnReader, SmallRowGroup
from penstock.storage.arrow.read.moved_places import moved_places
from penstock.storage.arrow.read.tiered_files import TieredFiles
from penstock.storage.arrow.recover.walk import Bad, Good, walk
from penstock.storage.rows import read_whole_batch
from penstock.storage.schema import RECORD_COLUMNS, SCHEMA

__all__ = ["Piece", "Span", "candidates", "cut", "plan", "read_pieces", "wanted_topics"]

_HEAD: Final = head(0, partition=0, base_offset=0, previous_end=0, previous_crc=0)
"""A head with the schema of every segment, in place of a damaged one."""
_SMALLEST: Final = "partition"
"""Read if no column is wanted, to count messages; it has no bytes of its own in most logs."""
_UNREADABLE: Final = "a row group that was merged cannot be read"

Damaged = Callable[[LogDamaged], None]
Reading = Callable[[int], None]
Placed = tuple[int, pa.RecordBatch]
"""The offset of the first message of a batch, and the batch."""


class Piece(NamedTuple):
    """Row groups of the segment at `segment`: `size` bytes from `position`.

    Their offsets are from `first_offset` up to `end_offset`.
    """

    segment: int
    position: int
    size: int
    first_offset: int
    end_offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """Consecutive row groups of a segment, with numbers from `first` up to `last`."""

    segment: int
    index: Index
    first: int
    last: int

    @property
    def position(self) -> int:
        """Position of the first row group."""
        return self.index.entry(self.first).position

    @property
    def end(self) -> int:
        """End of the last row group."""
        entry = self.index.entry(self.last - 1)
        return entry.position + entry.size

    def part(self, first: int, last: int) -> Piece:
        """Return the row groups from `first` up to `last` as a piece."""
        start, end = self.index.entry(first), self.index.entry(last - 1)
        return Piece(
            segment=self.segment,
            position=start.position,
            size=end.position + end.size - start.position,
            first_offset=start.base_offset,
            end_offset=end.base_offset + end.count,
        )

    def at(self, position: int) -> int:
        """Return the number of the first row group at or after a position in the file."""
        numbers = range(self.first, self.last)
        return self.first + bisect_left(
            numbers, position, key=lambda number: self.index.entry(number).position
        )


# --- Planning


def plan(catalog: Catalog, start: int, end: int, selection: Selection) -> list[Span]:
    """Return the row groups between two offsets that may have selected messages.

    Raise FileNotFoundError for a segment that was removed, or another OSError.
    """
    spans: list[Span] = []
    for segment, index, first, last in catalog.row_groups(start, end):
        numbers = candidates(index, first, last, selection, catalog.kept(segment))
        damaged = catalog.damage_between(segment.base_offset, segment.end_offset) is not None
        spans += _spans(segment.base_offset, index, numbers, whole=not damaged)
    return spans


def candidates(
    index: Index,
    first: int,
    last: int,
    selection: Selection,
    kept: Callable[[str], bool] | None = None,
) -> Sequence[int]:
    """Return the numbers of row groups that may have selected messages of topics that are kept."""
    numbers: Sequence[int] = range(first, last)
    if selection.by_topic:
        selection.wanted_names(index.topics_between(first, last))  # all at once
    wanted = wanted_topics(selection, kept)
    if wanted is not None:
        numbers = index.with_topics(wanted, first=first, last=last)
    if selection.since_us is None and selection.until_us is None:
        return numbers
    table = index.table()
    times = table.column("first_us"), table.column("last_us")
    mask = pa.array([True]) if not len(table) else pc.is_valid(times[0])
    if selection.since_us is not None:
        mask = pc.and_(mask, pc.greater_equal(pc.max_element_wise(*times), selection.since_us))
    if selection.until_us is not None:
        mask = pc.and_(mask, pc.less(pc.min_element_wise(*times), selection.until_us))
    hits = set(pc.indices_nonzero(mask).to_pylist())
    return [number for number in numbers if number in hits]


def wanted_topics(
    selection: Selection, kept: Callable[[str], bool] | None
) -> Callable[[str], bool] | None:
    """Return what tells the topics that are selected and kept; None if all are."""
    if kept is None:
        return selection.wanted if selection.by_topic else None
    if not selection.by_topic:
        return kept
    return lambda name: selection.wanted(name) and kept(name)


def _spans(segment: int, index: Index, numbers: Sequence[int], *, whole: bool) -> Iterator[Span]:
    """Yield numbers as spans; small gaps between two of them are read too.

    If the segment is damaged, not `whole`, spans end at bytes that are not a row group.
    """
    if whole and isinstance(numbers, range) and numbers:
        yield Span(segment, index, numbers[0], numbers[-1] + 1)
        return
    first = previous = -1
    end = 0
    for number in numbers:
        entry = index.entry(number)
        gap = entry.position - end
        if first < 0:
            first = number
        elif gap > PIECE_GAP_BYTES_MAX or (not whole and (gap or number != previous + 1)):
            yield Span(segment, index, first, previous + 1)
            first = number
        previous = number
        end = entry.position + entry.size
    if first >= 0:
        yield Span(segment, index, first, previous + 1)


def cut(spans: Sequence[Span], count: int) -> list[list[Piece]]:
    """Divide spans into at most `count` tasks of about the same number of bytes, in order."""
    total = sum(span.end - span.position for span in spans)
    tasks: list[list[Piece]] = []
    task: list[Piece] = []
    done = 0
    for span in spans:
        first = span.first
        while first < span.last:
            share = total * (len(tasks) + 1) // count
            start = span.index.entry(first).position
            last = span.last
            if done + span.end - start > share and len(tasks) < count - 1:
                last = min(max(span.at(start + share - done), first + 1), span.last)
            piece = span.part(first, last)
            task.append(piece)
            done += piece.size
            first = last
            if done >= share and len(tasks) < count - 1:
                tasks.append(task)
                task = []
    if task:
        tasks.append(task)
    return tasks


# --- Reading


def read_pieces(
    folder: Path,
    pieces: Iterable[Piece],
    *,
    first: int,
    last: int,
    columns: Sequence[str],
    damaged: Damaged | None = None,
    reading: Reading | None = None,
    horizons: TopicHorizons = NO_HORIZONS,
) -> Iterator[pa.RecordBatch]:
    """Read and check the row groups of pieces; yield each as a record batch, in order.

    Messages before offset `first` and from `last` on are left out. The batches have `columns` of
    the log's schema, in the schema's order, at least one. Damage raises LogDamaged, or is passed to
    `damaged` and skipped. Raise FileNotFoundError if retention has removed a segment. `reading` is
    called with the size of each buffer before it is allocated, and may raise. Messages that have
    expired by `horizons` are left out.
    """
    wanted = [name for name in SCHEMA.names if name in set(columns)] or [_SMALLEST]
    for piece in pieces:
        expires = piece.first_offset < horizons.highest
        needed = {*wanted, "topic", "offset"} if expires else {*wanted}
        read = [name for name in SCHEMA.names if name in needed]
        start_offset, end_offset = max(first, piece.first_offset), min(last, piece.end_offset)
        for base_offset, batch in _PieceReader(folder, piece, read, damaged, reading).batches():
            start = max(start_offset - base_offset, 0)
            count = min(end_offset - base_offset, len(batch)) - start
            if count <= 0:
                continue
            found = batch if count == len(batch) else batch.slice(start, count)
            if expires:
                found = horizons.shown(found).select(wanted)
            if len(found):
                yield found


class _PieceReader:
    """Reads one piece; all messages below `expected` are yielded or reported as damaged."""

    def __init__(
        self,
        folder: Path,
        piece: Piece,
        columns: Sequence[str],
        damaged: Damaged | None,
        reading: Reading | None,
    ) -> None:
        self.path = segment_path(folder, piece.segment)
        self.piece = piece
        self.columns = columns
        fields = [SCHEMA.get_field_index(name) for name in columns]
        self.options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
        self.damaged = damaged
        self.reading = reading
        self.position = piece.position
        self.end = piece.position + piece.size
        self.expected = piece.first_offset
        self.moved = False

    def batches(self) -> Iterator[Placed]:
        handle = TieredFiles().open_to_read(self.path)
        try:
            head, first_bytes = self._head(handle)
            some = self._column_reader(handle, head)
            size = PIECE_READ_BYTES
            while self.position < self.end:
                if some is not None:
                    try:
                        yield from self._some_columns(some)
                    except SmallRowGroup:
                        size = COLUMN_GROUPS_READ_BYTES
                    except BadRowGroup:
                        if self._find_again(head):
                            continue
                        yield from self._walked()
                        return
                    if self.position == self.end:
                        break
                size = min(size, self.end - self.position)
                if self.reading is not None:
                    self.reading(size)
                buffer, filled = _read(handle, first_bytes, self.position, size)
                row_groups = list(self._row_groups(buffer, len(first_bytes), filled))
                if row_groups:
                    yield from self._decoded(buffer, row_groups)
                    size = PIECE_READ_BYTES
                elif self._find_again(head):
                    size = PIECE_READ_BYTES
                elif filled - len(first_bytes) == size and self.position + size < self.end:
                    size *= 2  # a large row group
                else:
                    yield from self._walked()
                    return
            if self.moved:
                self._tell(self.piece.end_offset, _UNREADABLE)
        finally:
            os.close(handle)

    def _head(self, handle: int) -> tuple[Head | None, bytes]:
        data = os.pread(handle, HEAD_BYTES_MAX, 0)
        try:
            head = parse_head(data, path=str(self.path))
        except ValueError:
            return None, _HEAD
        return head, data[: head.size]

    def _column_reader(self, handle: int, head: Head | None) -> ColumnReader | None:
        """Return the reader of some columns; None if all are wanted or the format has no such."""
        if head is None or head.format < COLUMN_FORMAT or len(self.columns) >= RECORD_COLUMNS:
            return None
        return ColumnReader(
            handle, head, self.columns, size_min=COLUMN_GROUP_BYTES_MIN, reading=self.reading
        )

    def _find_again(self, head: Head | None) -> bool:
        """Go to the rest of the piece if the segment has merged row groups; return whether it has.

        It is looked up once: the file is open, so a later replacement does not change it.
        """
        if self.moved or head is None or head.last_crc is None:
            return False
        self.moved = True
        if self.expected >= self.piece.end_offset:
            self.position = self.end
            return True
        entry = Entry(self.expected, 0, self.position, 0, 0, 0)
        found = moved_places(TieredFiles(), Place(self.path, entry), self.piece.end_offset)
        if not found:
            return False
        start, position, last = found[0].entry.base_offset, found[0].entry.position, found[-1].entry
        if (position, last.position + last.size) == (self.position, self.end):
            return False
        self.position, self.end = position, last.position + last.size
        self._tell(start, _UNREADABLE)
        self.expected = start
        return True

    def _some_columns(self, reader: ColumnReader) -> Iterator[Placed]:
        """Yield row groups with the wanted columns; raise SmallRowGroup or BadRowGroup."""
        while self.position < self.end:
            row_group, batch = reader.read(self.position, self.end, base_offset=self.expected)
            self.position += row_group.size
            self.expected = row_group.base_offset + row_group.count
            yield row_group.base_offset, batch

    def _row_groups(self, buffer: pa.Buffer, start: int, end: int) -> Iterator[RowGroup]:
        """Yield the consecutive complete and good row groups from `start` on."""
        view = memoryview(buffer)[:end]
        while start < end:
            try:
                row_group = parse_row_group(view, start)
            except (Truncated, BadRowGroup):
                return
            if row_group.base_offset != self.expected or not check_row_group(view, row_group):
                return
            start += row_group.size
            self.position += row_group.size
            self.expected = row_group.base_offset + row_group.count
            yield row_group

    def _decoded(self, buffer: pa.Buffer, row_groups: list[RowGroup]) -> Iterator[Placed]:
        end = row_groups[-1].start + row_groups[-1].size
        done = 0
        try:
            with pa.ipc.open_stream(buffer.slice(0, end), options=self.options) as reader:
                for row_group in row_groups:
                    batch = read_whole_batch(reader)
                    if len(batch) != row_group.count:
                        break
                    yield row_group.base_offset, batch
                    done += 1
        except (pa.ArrowException, OSError, StopIteration):
            pass
        for row_group in row_groups[done:]:
            start = row_group.start
            yield from self._one(memoryview(buffer)[start : start + row_group.size], row_group)

    def _one(self, data: memoryview | bytes, row_group: RowGroup) -> Iterator[Placed]:
        """Yield one row group by itself; report it if Arrow cannot read it."""
        try:
            stream = pa.py_buffer(_HEAD + bytes(data))
            with pa.ipc.open_stream(stream, options=self.options) as reader:
                batch = read_whole_batch(reader)
        except (pa.ArrowException, OSError, StopIteration):
            batch = None
        if batch is not None and len(batch) == row_group.count:
            yield row_group.base_offset, batch
            return
        end = row_group.base_offset + row_group.count
        reason = f"{self.path.name}: Arrow cannot read its columns"
        error = LogDamaged(row_group.base_offset, end, reason)
        if self.damaged is None:
            raise error
        self.damaged(error)

    def _walked(self) -> Iterator[Placed]:
        """Continue past damage, and report it."""
        end = self.end
        for step in walk(
            TieredFiles(),
            self.path,
            position=self.position,
            base_offset=self.expected,
            previous_crc=None,
        ):
            if isinstance(step, Bad) and step.position < end:
                self._tell(min(step.resumes_at, self.piece.end_offset), step.reason)
            elif isinstance(step, Good) and step.position < end:
                if step.row_group.base_offset >= self.piece.end_offset:
                    break
                self.expected = step.row_group.base_offset + step.row_group.count
                start = step.row_group.start
                data = step.data[start : start + step.row_group.size]
                yield from self._one(data, step.row_group)
            else:
                break
        if self.expected < self.piece.end_offset:
            self._tell(self.piece.end_offset, "the segment ends too early")

    def _tell(self, resumes_at: int, reason: str) -> None:
        first, self.expected = self.expected, max(self.expected, resumes_at)
        if self.expected == first:
            return
        error = LogDamaged(first, self.expected, f"{self.path.name}: {reason}")
        if self.damaged is None:
            raise error
        self.damaged(error)


def _read(handle: int, first_bytes: bytes, position: int, size: int) -> tuple[pa.Buffer, int]:
    """Return a buffer with a head and bytes of a file, and its filled length."""
    buffer = pa.allocate_buffer(len(first_bytes) + size)
    view = memoryview(buffer).cast("B")
    filled = len(first_bytes)
    view[:filled] = first_bytes
    while filled < len(view):
        count = os.preadv(handle, [view[filled:]], position + filled - len(first_bytes))
        if not count:
            break
        filled += count
    return buffer, filled
