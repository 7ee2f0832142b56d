"""Reads the messages of a log view as Arrow record batches, for commands.

Row groups are read into one buffer, behind a copy of their segment's head. Arrow reads this as a
stream without copying the columns. The checksum of each row group is checked first.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import LogDamaged, OffsetBelowHorizon, OffsetPastEnd
from penstock.limits import RECORDS_BYTES_MAX, RECORDS_READ_BYTES, RECORDS_ROWS_MAX
from penstock.storage.arrow.format.index import Entry
from penstock.storage.arrow.format.segment import (
    HEAD_BYTES_MAX,
    BadRowGroup,
    check_row_group,
    head,
    parse_head,
    parse_row_group,
)
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.catalog import Place
from penstock.storage.arrow.read.moved_places import moved_places
from penstock.storage.dictionaries import RECORD_SCHEMA, DictionaryDecoder
from penstock.storage.rows import read_whole_batch
from penstock.storage.schema import SCHEMA

__all__ = ["TopicCount", "count_topics", "plain_records", "record_batches"]

_TOPIC: Final = SCHEMA.get_field_index("topic")
_OFFSET: Final = SCHEMA.get_field_index("offset")
_HEAD: Final = head(0, partition=0, base_offset=0, previous_end=0, previous_crc=0)
"""A head with the schema of every segment, in place of a damaged one."""

Wanted = Callable[[str], bool]
Damaged = Callable[[LogDamaged], None]
Progress = Callable[[int], None]


class TopicCount(NamedTuple):
    """Totals of a topic."""

    row_groups: int
    messages: int


def record_batches(
    view: LogView,
    *,
    start: int | None = None,
    end: int | None = None,
    wanted: Wanted | None = None,
    coalesce: bool = False,
    damaged: Damaged | None = None,
    progress: Progress | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the messages from offset `start` up to `end` in order; by default all messages.

    The batches have the log's schema; `plain_records` converts them to the record's. `wanted`
    selects topics; it is called once for each. With `coalesce`, small row groups are concatenated.
    `progress` is called with the number of offsets processed since the last call.

    Damage raises LogDamaged, or is passed to `damaged` and skipped. Raise OffsetBelowHorizon or
    OffsetPastEnd, also where retention is faster.
    """
    first = view.horizon if start is None else start
    last = view.end if end is None else end
    if first < view.horizon:
        raise OffsetBelowHorizon(first, view.horizon)
    for offset in (first, last):
        if offset > view.end:
            raise OffsetPastEnd(offset, view.end)
    if first >= last:
        return iter(())
    reading = _RangeReader(
        view, first=first, last=last, wanted=wanted, damaged=damaged, progress=progress,
        coalesce=coalesce,
    )  # fmt: skip
    return _coalesced(reading.batches()) if coalesce else (each.batch for each in reading.batches())


def plain_records(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Convert batches of the log to RECORD_SCHEMA."""
    plain = DictionaryDecoder()
    for batch in batches:
        yield from plain.parts(batch.select(RECORD_SCHEMA.names))


def count_topics(
    view: LogView, *, damaged: Damaged | None = None, progress: Progress | None = None
) -> dict[str, TopicCount]:
    """Return the number of row groups and messages of each topic.

    Only row groups with several topics are read. `progress` is called with the number of messages
    counted since the last call.
    """
    row_groups: dict[str, int] = {}
    messages: dict[str, int] = {}

    def add(name: str, row_group_count: int, message_count: int) -> None:
        row_groups[name] = row_groups.get(name, 0) + row_group_count
        messages[name] = messages.get(name, 0) + message_count

    for segment in view.segments:
        table = view.catalog.index(segment).table()
        lengths = pc.fill_null(pc.list_value_length(table.column("topics")), 0)
        expires = pc.less(table.column("base_offset"), view.catalog.horizons.highest)
        is_single = pc.and_not(pc.equal(lengths, 1), expires)
        single = table.filter(is_single)
        names = pa.table(
            {
                "topic": pc.cast(pc.list_flatten(single.column("topics")), pa.utf8()),
                "count": single.column("count"),
            }
        )
        totals = names.group_by("topic").aggregate([("count", "sum"), ("count", "count")])
        for row in totals.to_pylist():
            add(row["topic"], row["count_count"], row["count_sum"])
        if progress is not None:
            progress(pc.sum(names.column("count")).as_py() or 0)
        mixed = table.filter(pc.invert(is_single))
        for base_offset, count in zip(
            mixed.column("base_offset").to_pylist(), mixed.column("count").to_pylist(), strict=True
        ):
            for batch in record_batches(
                view, start=base_offset, end=base_offset + count, damaged=damaged
            ):
                for each in pc.value_counts(batch.column(_TOPIC)).to_pylist():
                    add(each["values"], 1, each["counts"])
            if progress is not None:
                progress(count)
    return {name: TopicCount(row_groups[name], messages[name]) for name in sorted(row_groups)}


class _Sized(NamedTuple):
    """A batch, and its approximate size in the log."""

    batch: pa.RecordBatch
    size: int


class _RangeReader:
    """Reads a range; all messages below `cursor` are yielded or reported as damaged."""

    def __init__(
        self,
        view: LogView,
        *,
        first: int,
        last: int,
        wanted: Wanted | None,
        damaged: Damaged | None,
        progress: Progress | None,
        coalesce: bool,
    ) -> None:
        self.view = view
        self.cursor = first
        self.first = first
        self.last = last
        self.wanted = wanted
        self.damaged = damaged
        self.progress = progress
        self.together = coalesce or wanted is not None  # a filter has a cost for each batch
        self.verdicts: dict[str, bool] = {}
        self.path = ""
        self.head = b""

    def batches(self) -> Iterator[_Sized]:
        wanted = None if self.wanted is None else self._is_wanted
        try:
            for run in self._runs(self.view.catalog.places(self.first, self.last, wanted)):
                yield from self._run(run)
        except FileNotFoundError as error:  # retention may run meanwhile
            raise self.view.missing_segment(self.cursor, error) from error
        self._pass(self.last)

    def _runs(self, places: Iterable[Place]) -> Iterator[list[Place]]:
        """Yield runs of row groups to read at once: of one segment, without damage between them."""
        run: list[Place] = []
        rows = size = 0
        for place in places:
            entry = place.entry
            if run and (
                size + entry.size > RECORDS_READ_BYTES
                or rows + entry.count > RECORDS_ROWS_MAX
                or place.path != run[0].path
                or self._damage_between(run[-1].entry, entry)
            ):
                yield run
                run, rows, size = [], 0, 0
            run.append(place)
            rows += entry.count
            size += entry.size
        if run:
            yield run

    def _damage_between(self, entry: Entry, following: Entry) -> bool:
        return bool(self.view.damage) and (
            self.view.catalog.damage_between(entry.base_offset, following.base_offset) is not None
        )

    # --- Reading

    def _run(self, run: list[Place]) -> Iterator[_Sized]:
        """Read row groups into one buffer, and yield their wanted messages."""
        first_bytes = self._head(run[0])
        buffer = pa.allocate_buffer(len(first_bytes) + sum(place.entry.size for place in run))
        view = memoryview(buffer).cast("B")
        view[: len(first_bytes)] = first_bytes
        try:
            self.view.files.read_into(run[0].path, _pieces(run, view, len(first_bytes)))
        except FileNotFoundError:
            self._pass(run[0].entry.base_offset)
            raise
        except OSError as error:
            if len(run) == 1:
                self._report(run[0], error.strerror or str(error))
            else:  # yield those that can be read
                for place in run:
                    yield from self._run([place])
            return
        good: list[Entry] = []
        start = at = len(first_bytes)
        for number, place in enumerate(run):
            fault = self._fault(view[at : at + place.entry.size], place.entry)
            if not fault:
                good.append(place.entry)
            elif moved := self._moved(run[number:]):
                yield from self._decoded(buffer, start, at, good)
                yield from self._moved_run(run[number:], moved)
                return
            else:
                yield from self._decoded(buffer, start, at, good)
                good = []
                start = at + place.entry.size
                self._report(place, fault)
            at += place.entry.size
        yield from self._decoded(buffer, start, at, good)

    def _moved(self, run: list[Place]) -> list[Place]:
        """Return the row groups that now have the messages of a run; none if they did not move."""
        last = run[-1].entry
        return moved_places(self.view.files, run[0], last.base_offset + last.count)

    def _moved_run(self, run: list[Place], moved: list[Place]) -> Iterator[_Sized]:
        """Yield the messages of a run from `moved`, the row groups that have them now."""
        first, last = self.first, self.last
        end = run[-1].entry.base_offset + run[-1].entry.count
        self.first, self.last = max(first, run[0].entry.base_offset), min(last, end)
        self.path = ""  # read the head again: the replaced file has another one
        expected = self.first
        try:
            for whole in _neighbours(moved):
                self._report_lost(expected, whole[0].entry.base_offset)
                for each in self._runs(whole):
                    yield from self._run(each)
                expected = whole[-1].entry.base_offset + whole[-1].entry.count
            self._report_lost(expected, end)
        finally:
            self.first, self.last = first, last

    def _head(self, place: Place) -> bytes:
        """Return the head of the segment of a row group; it is read once for each segment."""
        path = str(place.path)
        if path != self.path:
            self.path = path
            try:
                data = self.view.files.read(place.path, 0, HEAD_BYTES_MAX)
                self.head = data[: parse_head(data, path=path).size]
            except (OSError, ValueError):
                self.head = _HEAD
        return self.head

    def _fault(self, piece: memoryview, entry: Entry) -> str:
        """Return why `piece` is not the row group of the entry; empty if it is, and is good."""
        try:
            row_group = parse_row_group(piece)
        except BadRowGroup:
            return "its checksum is wrong"
        if row_group.base_offset != entry.base_offset or not check_row_group(piece, row_group):
            return "its checksum is wrong"
        return "" if row_group.count == entry.count else "the index is not of this segment"

    def _decoded(
        self, buffer: pa.Buffer, start: int, end: int, entries: list[Entry]
    ) -> Iterator[_Sized]:
        """Yield the wanted messages of row groups between `start` and `end` of a buffer."""
        if not entries:
            return
        self._pass(entries[0].base_offset)
        found = self._arrow(buffer, start, end, len(entries))
        if found is None and len(entries) > 1:
            for entry in entries:  # yield those that can be read
                yield from self._decoded(buffer, start, start + entry.size, [entry])
                start += entry.size
            return
        if found is None:
            last = min(entries[0].base_offset + entries[0].count, self.last)
            first = max(entries[0].base_offset, self.first)
            self._tell(LogDamaged(first, last, "Arrow cannot read its columns"))
            self._pass(last)
            return
        batches = []
        for entry, each in zip(entries, found, strict=True):
            batch = self.view.catalog.horizons.shown(self._cut(each, entry))
            if self.together:
                batches.append(batch)
            else:
                if len(batch):
                    yield _Sized(batch, entry.size)
                self._pass(min(entry.base_offset + entry.count, self.last))
        if batches:
            rows = sum(map(len, batches))
            batch = self._filtered(_one(batches))
            if len(batch):
                yield _Sized(batch, (end - start) * len(batch) // max(rows, 1))
            self._pass(min(entries[-1].base_offset + entries[-1].count, self.last))

    def _arrow(
        self, buffer: pa.Buffer, start: int, end: int, count: int
    ) -> list[pa.RecordBatch] | None:
        """Return row groups as record batches, None if Arrow cannot read one of them."""
        stream = buffer.slice(0, end)
        if start != len(self.head):  # after a damaged row group
            stream = pa.py_buffer(b"".join((self.head, memoryview(buffer)[start:end])))
        try:
            with pa.ipc.open_stream(stream) as reader:
                return [read_whole_batch(reader) for _ in range(count)]
        except (pa.ArrowException, OSError, StopIteration):
            return None

    # --- Filtering

    def _cut(self, batch: pa.RecordBatch, entry: Entry) -> pa.RecordBatch:
        if len(batch) != entry.count or batch.column(_OFFSET)[0].as_py() != entry.base_offset:
            end = entry.base_offset + entry.count
            raise LogDamaged(entry.base_offset, end, "the index is not of this segment")
        first = max(self.first - entry.base_offset, 0)
        last = min(self.last - entry.base_offset, entry.count)
        return batch if last - first == entry.count else batch.slice(first, last - first)

    def _is_wanted(self, name: str) -> bool:
        verdict = self.verdicts.get(name)
        if verdict is None:
            verdict = self.verdicts[name] = self.wanted is None or self.wanted(name)
        return verdict

    def _filtered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        column = batch.column(_TOPIC)
        if self.wanted is None:
            return batch
        hits = [self._is_wanted(name) for name in column.dictionary.to_pylist()]
        if all(hits):
            return batch
        if not any(hits):
            return batch.slice(0, 0)
        return batch.filter(pc.take(pa.array(hits), column.indices))

    # --- Damage

    def _pass(self, offset: int) -> None:
        """Move the cursor to `offset`; report damage before it."""
        begun = self.cursor
        while self.cursor < offset:
            damage = self.view.catalog.damage_between(self.cursor, offset)
            if damage is None:
                self.cursor = offset
                break
            first = max(self.cursor, damage.first_offset)
            self.cursor = min(damage.resumes_at, offset)
            self._tell(LogDamaged(first, min(damage.resumes_at, self.last), damage.reason))
        if self.progress is not None and self.cursor > begun:
            self.progress(self.cursor - begun)

    def _report(self, place: Place, reason: str) -> None:
        """Report a row group that was found damaged."""
        entry = place.entry
        self._pass(entry.base_offset)
        end = min(entry.base_offset + entry.count, self.last)
        reason = f"{place.path.name} at {entry.position}: {reason}"
        self._tell(LogDamaged(max(entry.base_offset, self.first), end, reason))
        self._pass(end)

    def _report_lost(self, first: int, last: int) -> None:
        """Report messages that are in none of the merged row groups, unless it is known."""
        first, last = max(first, self.first), min(last, self.last)
        if first < last:
            self._pass(first)
            if self.view.catalog.damage_between(first, last) is None:
                self._tell(LogDamaged(first, last, "a row group that was merged cannot be read"))
            self._pass(last)

    def _tell(self, error: LogDamaged) -> None:
        if self.damaged is None:
            raise error
        self.damaged(error)


def _pieces(run: list[Place], view: memoryview, start: int) -> Iterator[tuple[int, memoryview]]:
    """Yield file positions and target buffers; consecutive row groups are one piece."""
    position = run[0].entry.position
    begun = end = start
    for place in run:
        if place.entry.position != position + end - begun:
            yield position, view[begun:end]
            position, begun = place.entry.position, end
        end += place.entry.size
    yield position, view[begun:end]


def _neighbours(places: list[Place]) -> Iterator[list[Place]]:
    """Yield row groups in lists of those whose offsets are consecutive."""
    found: list[Place] = []
    for place in places:
        if found and place.entry.base_offset != found[-1].entry.base_offset + found[-1].entry.count:
            yield found
            found = []
        found.append(place)
    yield found


def _coalesced(batches: Iterable[_Sized]) -> Iterator[pa.RecordBatch]:
    """Concatenate small batches, up to RECORDS_ROWS_MAX and RECORDS_BYTES_MAX."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch, batch_size in batches:
        if waiting and (
            rows + len(batch) > RECORDS_ROWS_MAX or size + batch_size > RECORDS_BYTES_MAX
        ):
            yield _one(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows += len(batch)
        size += batch_size
    if waiting:
        yield _one(waiting)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
