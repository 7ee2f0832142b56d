"""The messages of a log as Arrow record batches: what commands and Spark read.

Groups are read into one buffer, behind a copy of their segment's head: to Arrow that is a stream,
and the columns it gives are the buffer itself. Each group's checksum is looked at first.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock._kernels.crc32c import crc32c
from penstock.errors import LogDamaged, OffsetBelowHorizon, OffsetPastEnd
from penstock.limits import RECORDS_BYTES_MAX, RECORDS_READ_BYTES, RECORDS_ROWS_MAX
from penstock.storage.arrow.format.index import Entry
from penstock.storage.arrow.format.segment import (
    HEAD_BYTES_MAX,
    BadGroup,
    check_group,
    head,
    parse_group,
    parse_head,
)
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.catalog import Place
from penstock.storage.plain import Plain, plain_schema
from penstock.storage.schema import RECORD_COLUMNS, SCHEMA

__all__ = ["RECORD_SCHEMA", "TopicCount", "count_topics", "plain_records", "record_batches"]

RECORD_SCHEMA: Final = plain_schema(pa.schema(list(SCHEMA)[:RECORD_COLUMNS]))
"""The record's columns with plain strings, for those who do not know dictionaries."""

_TOPIC: Final = SCHEMA.get_field_index("topic")
_OFFSET: Final = SCHEMA.get_field_index("offset")
_CRC_KEY: Final = re.compile(rb"penstock\.crc32c")
_CRC_ZEROS: Final = b"00000000"
_HEAD: Final = head(0, partition=0, base_offset=0, previous_end=0, previous_crc=0)
"""The head of any segment but for its numbers: for one whose own is damaged."""

Wanted = Callable[[str], bool]
Damaged = Callable[[LogDamaged], None]
Progress = Callable[[int], None]


class TopicCount(NamedTuple):
    """How much there is of a topic."""

    groups: int
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
    """Yield the messages from offset `start` up to `end`, all there are without them, in order.

    The batches have the log's schema; `plain_records` makes the record's of them. Only topics that
    are `wanted` are given; it is asked once for each topic. With `coalesce`, small groups come
    together. `progress` is called with how many offsets are done with since the last call.

    What cannot be read raises LogDamaged, or is told to `damaged` and left out. Raise
    OffsetBelowHorizon or OffsetPastEnd, also where retention was faster.
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
    reading = _Reading(
        view, first=first, last=last, wanted=wanted, damaged=damaged, progress=progress,
        coalesce=coalesce,
    )  # fmt: skip
    return _coalesced(reading.batches()) if coalesce else (each.batch for each in reading.batches())


def plain_records(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches of the log with the columns of RECORD_SCHEMA."""
    plain = Plain()
    for batch in batches:
        yield from plain.parts(batch.select(RECORD_SCHEMA.names))


def count_topics(
    view: LogView, *, damaged: Damaged | None = None, progress: Progress | None = None
) -> dict[str, TopicCount]:
    """Return how many groups and messages there are of each topic.

    Only groups with several topics are read. `progress` is called with how many messages are
    counted since the last call.
    """
    groups: dict[str, int] = {}
    messages: dict[str, int] = {}

    def add(name: str, group_count: int, message_count: int) -> None:
        groups[name] = groups.get(name, 0) + group_count
        messages[name] = messages.get(name, 0) + message_count

    for segment in view.segments:
        table = view.catalog.index(segment).table()
        lengths = pc.fill_null(pc.list_value_length(table.column("topics")), 0)
        single = table.filter(pc.equal(lengths, 1))
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
        mixed = table.filter(pc.not_equal(lengths, 1))
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
    return {name: TopicCount(groups[name], messages[name]) for name in sorted(groups)}


class _Sized(NamedTuple):
    """A batch, and about how many bytes of the log it is."""

    batch: pa.RecordBatch
    size: int


class _Reading:
    """One pass over a range; `cursor` is the offset up to which all is given or told."""

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
        self.together = coalesce or wanted is not None  # filters cost by the batch
        self.verdicts: dict[str, bool] = {}
        self.path = ""
        self.head = b""
        self.crc_distance = 0

    def batches(self) -> Iterator[_Sized]:
        wanted = None if self.wanted is None else self._is_wanted
        try:
            for run in self._runs(self.view.catalog.places(self.first, self.last, wanted)):
                yield from self._run(run)
        except FileNotFoundError as error:  # retention goes on meanwhile
            raise self.view.gone(self.cursor, error) from error
        self._pass(self.last)

    def _runs(self, places: Iterable[Place]) -> Iterator[list[Place]]:
        """Yield groups that are read at once: of one segment, and no damage among them."""
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
        """Read groups into one buffer, and give what is wanted of them."""
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
                self._told(run[0], error.strerror or str(error))
            else:  # those that can be read are given
                for place in run:
                    yield from self._run([place])
            return
        good: list[Entry] = []
        start = at = len(first_bytes)
        for place in run:
            if self._check(view[at : at + place.entry.size], place.entry):
                good.append(place.entry)
            else:
                yield from self._decoded(buffer, start, at, good)
                good = []
                start = at + place.entry.size
                self._told(place, "its checksum is wrong")
            at += place.entry.size
        yield from self._decoded(buffer, start, at, good)

    def _head(self, place: Place) -> bytes:
        """Return the head of the segment that a group stands in, read once for each."""
        path = str(place.path)
        if path != self.path:
            self.path = path
            try:
                data = self.view.files.read(place.path, 0, HEAD_BYTES_MAX)
                self.head = data[: parse_head(data, path=path).size]
            except (OSError, ValueError):
                self.head = _HEAD
        return self.head

    def _check(self, piece: memoryview, entry: Entry) -> bool:
        """Tell whether a group is what was written.

        Where the checksum stands is guessed from the group before: all of them spell their metadata
        alike. Only where that fails is the group parsed.
        """
        key = _CRC_KEY.search(piece)
        if key is None:
            return False
        if self.crc_distance:
            place = key.start() + self.crc_distance
            found = bytes(piece[place : place + len(_CRC_ZEROS)])
            rest = piece[place + len(_CRC_ZEROS) :]
            if found == b"%08x" % crc32c([piece[:place], _CRC_ZEROS, rest]):
                return True
        try:
            group = parse_group(piece)
        except BadGroup:
            return False
        self.crc_distance = group.crc_position - key.start()
        return group.base_offset == entry.base_offset and check_group(piece, group)

    def _decoded(
        self, buffer: pa.Buffer, start: int, end: int, entries: list[Entry]
    ) -> Iterator[_Sized]:
        """Give what is wanted of groups that stand from `start` to `end` of a buffer."""
        if not entries:
            return
        stream = buffer.slice(0, end)
        if start != len(self.head):  # behind a group that is damaged
            stream = pa.py_buffer(b"".join((self.head, memoryview(buffer)[start:end])))
        self._pass(entries[0].base_offset)
        batches = []
        with pa.ipc.open_stream(stream) as reader:
            for entry in entries:
                batch = self._cut(reader.read_next_batch(), entry)
                if self.together:
                    batches.append(batch)
                else:
                    yield _Sized(batch, entry.size)
                    self._pass(min(entry.base_offset + entry.count, self.last))
        if batches:
            rows = sum(map(len, batches))
            batch = self._filtered(_one(batches))
            if len(batch):
                yield _Sized(batch, (end - start) * len(batch) // rows)
            self._pass(min(entries[-1].base_offset + entries[-1].count, self.last))

    # --- What is given

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

    # --- What is not

    def _pass(self, offset: int) -> None:
        """Go on to `offset`; tell of damage that lies before it."""
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

    def _told(self, place: Place, reason: str) -> None:
        """Tell of a group that was found to be damaged."""
        entry = place.entry
        self._pass(entry.base_offset)
        end = min(entry.base_offset + entry.count, self.last)
        reason = f"{place.path.name} at {entry.position}: {reason}"
        self._tell(LogDamaged(max(entry.base_offset, self.first), end, reason))
        self._pass(end)

    def _tell(self, error: LogDamaged) -> None:
        if self.damaged is None:
            raise error
        self.damaged(error)


def _pieces(run: list[Place], view: memoryview, start: int) -> Iterator[tuple[int, memoryview]]:
    """Yield where to read and where to, groups that stand together as one piece."""
    position = run[0].entry.position
    begun = end = start
    for place in run:
        if place.entry.position != position + end - begun:
            yield position, view[begun:end]
            position, begun = place.entry.position, end
        end += place.entry.size
    yield position, view[begun:end]


def _coalesced(batches: Iterable[_Sized]) -> Iterator[pa.RecordBatch]:
    """Put small batches together, up to RECORDS_ROWS_MAX and RECORDS_BYTES_MAX."""
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
