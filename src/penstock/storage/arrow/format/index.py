"""The sparse index of a segment: offsets, times, topics and position of each row group.

Columns are arrays, not objects: a segment may have 100,000 row groups. The writer adds to the index
of the active segment while other threads look up; a row group is visible once it is complete.
"""

import contextlib
import dataclasses
import itertools
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.limits import INDEX_TOPICS_MAX
from penstock.ports.text_columns import name_list, text_column
from penstock.storage.arrow.format.segment import (
    RowGroup,
    row_group_times,
    row_group_topic_counts,
    row_group_topics,
)

__all__ = ["Entry", "Index"]

_UNKNOWN: Final = -(1 << 30)
"""A number of messages that is not known. No sum with numbers that are known is positive."""
_WINDOW: Final = 4096
"""Row groups that a search for a few of them looks at together."""


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A row group in its segment. Times are microseconds since the epoch."""

    base_offset: int
    count: int
    position: int
    size: int
    first_us: int
    last_us: int


class Index:
    """The row groups of one segment, in order."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.end_offset = base_offset
        """One past the last offset of the segment, unreadable ones included."""
        self._length = 0
        self._base_offsets = array("q")
        self._counts = array("q")
        self._positions = array("q")
        self._sizes = array("q")
        self._first_us = array("q")
        self._last_us = array("q")
        self._latest_us = array("q")  # maximum up to this row group: clocks may be set back
        self._topic_starts = array("q", [0])
        self._topic_ids = array("i")
        self._topic_counts = array("i")  # messages of each of _topic_ids
        self._any_topic: set[int] = set()  # row groups with too many topics to list
        self._names: list[str] = []
        self._ids: dict[str, int] = {}
        self._summed = (0, 0)  # some row groups from the first on, and their messages

    def __len__(self) -> int:
        return self._length

    @property
    def memory_bytes(self) -> int:
        """Approximate memory, in bytes."""
        names = sum(100 + len(name) for name in self._names)
        return 64 * self._length + 8 * len(self._topic_ids) + names

    @property
    def first_us(self) -> int | None:
        """The time of the first message."""
        return self._first_us[0] if self._length else None

    @property
    def last_us(self) -> int | None:
        """The latest time of any message."""
        return self._latest_us[self._length - 1] if self._length else None

    # --- Adding

    def add(
        self, entry: Entry, topics: Sequence[str] | None, counts: Sequence[int] | None = None
    ) -> None:
        """Add a row group at the end; it may have any topic if `topics` is None.

        `counts` are the numbers of messages of the topics, None if they are not known.
        """
        last_us = max(entry.first_us, entry.last_us)
        self._base_offsets.append(entry.base_offset)
        self._counts.append(entry.count)
        self._positions.append(entry.position)
        self._sizes.append(entry.size)
        self._first_us.append(entry.first_us)
        self._last_us.append(entry.last_us)
        self._latest_us.append(max(last_us, self._latest_us[-1]) if self._length else last_us)
        if topics is None or len(topics) > INDEX_TOPICS_MAX:
            self._any_topic.add(self._length)
        else:
            ids = self._ids
            for name in topics:
                if name not in ids:
                    ids[name] = len(self._names)
                    self._names.append(name)
            if counts is None:
                counts = [entry.count] if len(topics) == 1 else [_UNKNOWN] * len(topics)
            self._topic_counts.extend(counts)
            self._topic_ids.extend([ids[name] for name in topics])
        self._topic_starts.append(len(self._topic_ids))
        self.end_offset = entry.base_offset + entry.count
        self._length += 1

    def add_row_group(
        self, data: bytes | bytearray | memoryview, row_group: RowGroup, position: int
    ) -> None:
        """Add a row group parsed from `data`, at `position` of its segment."""
        first_us, last_us = row_group_times(data, row_group)
        entry = Entry(
            row_group.base_offset, row_group.count, position, row_group.size, first_us, last_us
        )
        topics = counts = None
        if row_group.topic_count <= INDEX_TOPICS_MAX:
            with contextlib.suppress(UnicodeDecodeError):  # reading the row group reports it
                topics = row_group_topics(data, row_group)
                counts = row_group_topic_counts(data, row_group)
        self.add(entry, topics, counts)

    def cut(self, length: int) -> None:
        """Keep only the first `length` row groups."""
        self._length = min(length, self._length)
        self._summed = (0, 0)
        for column in (
            self._base_offsets, self._counts, self._positions, self._sizes, self._first_us,
            self._last_us, self._latest_us,
        ):  # fmt: skip
            del column[length:]
        del self._topic_starts[length + 1 :]
        del self._topic_ids[self._topic_starts[-1] :]
        del self._topic_counts[self._topic_starts[-1] :]
        self._any_topic = {each for each in self._any_topic if each < length}
        last = self.entry(length - 1) if length else None
        self.end_offset = last.base_offset + last.count if last else self.base_offset

    # --- Looking up

    def entry(self, number: int) -> Entry:
        """Return a row group by its number."""
        return Entry(
            base_offset=self._base_offsets[number],
            count=self._counts[number],
            position=self._positions[number],
            size=self._sizes[number],
            first_us=self._first_us[number],
            last_us=self._last_us[number],
        )

    def at_offset(self, offset: int) -> int:
        """Return the number of the row group with `offset`, or of the first after it.

        It is `len(self)` if there is none.
        """
        number = bisect_right(self._base_offsets, offset, 0, self._length) - 1
        if number >= 0 and offset < self._base_offsets[number] + self._counts[number]:
            return number
        return number + 1

    def at_time(self, timestamp_us: int) -> int:
        """Return the number of the first row group that may have a message at or after a time."""
        return bisect_left(self._latest_us, timestamp_us, 0, self._length)

    @property
    def topics(self) -> Sequence[str]:
        """All topics of the segment."""
        return self._names[:]

    @property
    def topic_count(self) -> int:
        """Number of topics of the segment."""
        return len(self._names)

    def topics_from(self, first: int) -> Sequence[str]:
        """Return the topics of the segment from a place among all of them on."""
        return self._names[first:]

    def topic_counts_of(self, number: int) -> Sequence[int] | None:
        """Return the numbers of messages of the topics of a row group, None if one is not known."""
        if number in self._any_topic:
            return None
        start, end = self._topic_starts[number : number + 2]
        counts = self._topic_counts[start:end]
        return None if any(each < 0 for each in counts) else counts

    def topics_of(self, number: int) -> Sequence[str] | None:
        """Return the topics of a row group; None if the index does not list them."""
        if number in self._any_topic:
            return None
        start, end = self._topic_starts[number : number + 2]
        return [self._names[each] for each in self._topic_ids[start:end]]

    def marked_topics(self, hits: pa.Array, number: int) -> Sequence[str] | None:
        """Return the topics of a row group that `hits` marks, None if the index has none of it.

        `hits` marks topics by their place in `topics`.
        """
        if number in self._any_topic:
            return None
        start, end = self._topic_starts[number : number + 2]
        ids = _column(self._topic_ids[start:end], pa.int32())
        return self._names_of(pc.filter(ids, pc.take(hits, ids)).to_pylist())

    def with_topics(
        self, wanted: Callable[[str], bool], *, first: int = 0, last: int | None = None
    ) -> Sequence[int]:
        """Return the numbers of the row groups that may have a message of a wanted topic, in order.

        `wanted` is called once for each topic of `topics_between`, not for each row group.
        """
        last = self._length if last is None else min(last, self._length)
        ids = self._ids_between(first, last)
        hits = [wanted(name) for name in self._names_of(ids)]
        if all(hits):
            return range(first, last)
        if not any(hits) or first >= last:
            return sorted(each for each in self._any_topic if first <= each < last)
        return self._with_hits(self._by_id(hits, ids), first, last)

    def topics_between(self, first: int, last: int) -> Sequence[str]:
        """Return the topics of the row groups from `first` to `last`, and maybe further ones."""
        return self._names_of(self._ids_between(first, last))

    def _ids_between(self, first: int, last: int) -> list[int] | None:
        """Return the topics of some row groups; None for all topics, if there are not fewer.

        A segment may have 100,000 topics, and a read of some messages needs a few of them.
        """
        start, end = self._topic_starts[first], self._topic_starts[max(first, last)]
        if end - start >= len(self._names):
            return None
        return list(dict.fromkeys(self._topic_ids[start:end]))

    def _names_of(self, ids: list[int] | None) -> list[str]:
        names = self._names
        return names[:] if ids is None else [names[each] for each in ids]

    def _by_id(self, hits: list[bool], ids: list[int] | None) -> pa.Array:
        """Return marks of topics by their numbers."""
        if ids is None:
            return pa.array(hits)
        marks = bytearray(len(self._names))
        for each, hit in zip(ids, hits, strict=True):
            marks[each] = hit
        whole = pa.Array.from_buffers(pa.uint8(), len(marks), [None, pa.py_buffer(marks)])
        return whole.cast(pa.bool_())

    def last_row_groups(self) -> Iterator[tuple[int, Sequence[str] | None]]:
        """Yield row groups, the last first, with the topics of which none is in a later one.

        Row groups without such a topic are left out. The topics are None where the index does not
        have them.
        """
        length = self._length
        ids = _column(self._topic_ids[: self._topic_starts[length]], pa.int32())
        starts = _column(self._topic_starts[: length + 1], pa.int64())
        parents = pc.list_parent_indices(pa.LargeListArray.from_arrays(starts, ids))
        last = pa.table({"id": ids, "number": parents}).group_by("id")
        last = last.aggregate([("number", "max")])
        names = self._names
        found: dict[int, list[str] | None] = dict.fromkeys(
            number for number in self._any_topic if number < length
        )
        for identifier, number in zip(
            last.column("id").to_pylist(), last.column("number_max").to_pylist(), strict=True
        ):
            listed = found.setdefault(number, [])
            if listed is not None:
                listed.append(names[identifier])
        for number in sorted(found, reverse=True):
            yield number, found[number]

    @property
    def missing(self) -> int:
        """Number of offsets between the first row group and the last that are in none."""
        length = self._length
        if not length:
            return 0
        known, count = self._summed
        count += sum(self._counts[known:length])
        self._summed = (length, count)  # at once: several threads may ask
        last = self.entry(length - 1)
        return last.base_offset + last.count - self._base_offsets[0] - count

    def first_with(self, hits: pa.Array, *, first: int, last: int, count_max: int) -> list[int]:
        """Return the numbers of the first row groups that may have a message of a marked topic.

        `hits` marks topics by their place in `topics`. The row groups are from `first` to `last`.
        """
        found: list[int] = []
        for start in range(first, last, _WINDOW):
            found += self._with_hits(hits, start, min(start + _WINDOW, last))
            if len(found) >= count_max:
                break
        return found[:count_max]

    def _with_hits(self, hits: pa.Array, first: int, last: int) -> list[int]:
        """Return the numbers of the row groups from `first` to `last` with a marked topic."""
        open_row_groups = (
            {each for each in self._any_topic if first <= each < last} if self._any_topic else set()
        )
        start, end = self._topic_starts[first], self._topic_starts[last]
        ids = _column(self._topic_ids[start:end], pa.int32())
        starts = pc.subtract(_column(self._topic_starts[first : last + 1], pa.int64()), start)
        lists = pa.LargeListArray.from_arrays(starts, pc.take(hits, ids))
        parents = pc.filter(pc.list_parent_indices(lists), pc.list_flatten(lists))
        return sorted(
            open_row_groups.union(first + each for each in pc.unique(parents).to_pylist())
        )

    def row_counts(
        self, wanted: Callable[[str], bool], *, first: int, last: int
    ) -> list[int | None]:
        """Return the number of messages of wanted topics in each row group from `first` to `last`.

        It is None where the index does not tell. `wanted` is called once for each topic of
        `topics_between`.
        """
        named = self._ids_between(first, last)
        if named == []:
            return [None] * (last - first)
        hits = [wanted(name) for name in self._names_of(named)]
        if all(hits) and not self._any_topic:
            return list(self._counts[first:last])
        start, end = self._topic_starts[first], self._topic_starts[last]
        found: list[int | None] = [0] * (last - first)
        if any(hits) and start < end:
            ids = _column(self._topic_ids[start:end], pa.int32())
            counts = pc.cast(_column(self._topic_counts[start:end], pa.int32()), pa.int64())
            selected = pc.if_else(pc.take(self._by_id(hits, named), ids), counts, 0)
            sums = [0, *pc.cumulative_sum(selected).to_pylist()]
            places = (each - start for each in self._topic_starts[first : last + 1])
            rows = [sums[end] - sums[begin] for begin, end in itertools.pairwise(places)]
            found = [None if each < 0 else each for each in rows]
        for number in self._any_topic:
            if first <= number < last:
                found[number - first] = None
        return found

    def topic_rows(self, *, first: int, last: int) -> tuple[Counter[str], list[int]]:
        """Return the number of messages by topic in the row groups from `first` to `last`.

        Row groups whose numbers the index does not have are not counted; their numbers follow.
        """
        unknown = [number for number in self._any_topic if first <= number < last]
        start, end = self._topic_starts[first], self._topic_starts[last]
        found: Counter[str] = Counter()
        if start == end:
            return found, sorted(unknown)
        ids = _column(self._topic_ids[start:end], pa.int32())
        counts = _column(self._topic_counts[start:end], pa.int32())
        known = pc.greater_equal(counts, 0)
        if known.true_count < len(known):
            starts = pc.subtract(_column(self._topic_starts[first : last + 1], pa.int64()), start)
            lists = pa.LargeListArray.from_arrays(starts, pc.invert(known))
            parents = pc.filter(pc.list_parent_indices(lists), pc.list_flatten(lists))
            unknown += [first + each for each in pc.unique(parents).to_pylist()]
            ids, counts = ids.filter(known), counts.filter(known)
        sums = pa.table({"id": ids, "count": counts}).group_by("id").aggregate([("count", "sum")])
        names = self._names
        for number, count in zip(
            sums.column("id").to_pylist(), sums.column("count_sum").to_pylist(), strict=True
        ):
            found[names[number]] += count
        return found, sorted(unknown)

    # --- As Arrow

    def table(self) -> pa.RecordBatch:
        """Return the index as Arrow columns. Another thread may `add` meanwhile.

        All columns have the first `_length` entries: `add` changes that last.
        """
        length = self._length
        topic_starts = self._topic_starts[: length + 1]
        topic_ids = _column(self._topic_ids[: topic_starts[-1]], pa.int32())
        names = text_column(self._names[:])
        ids = pa.DictionaryArray.from_arrays(topic_ids, names)
        starts = pc.cast(_column(topic_starts, pa.int64()), pa.int32())
        mask = [each in self._any_topic for each in range(length)] if self._any_topic else []
        nulls = pa.array(mask, pa.bool_()) if mask else None
        topics = pa.ListArray.from_arrays(starts, ids, mask=nulls)
        counts = _column(self._topic_counts[: topic_starts[-1]], pa.int32())
        topic_counts = pa.ListArray.from_arrays(starts, counts, mask=nulls)
        columns = (
            self._base_offsets, self._counts, self._positions, self._sizes, self._first_us,
            self._last_us,
        )  # fmt: skip
        return pa.RecordBatch.from_arrays(
            [*(_column(column[:length], pa.int64()) for column in columns), topics, topic_counts],
            schema=SCHEMA,
        )

    @classmethod
    def from_table(cls, table: pa.RecordBatch, *, base_offset: int, end_offset: int) -> "Index":
        """Return the index that `table` was created from."""
        index = cls(base_offset)
        index._length = len(table)
        columns = [
            index._base_offsets, index._counts, index._positions, index._sizes, index._first_us,
            index._last_us,
        ]  # fmt: skip
        for number, column in enumerate(columns):
            column.frombytes(_values(table.column(number)))
        latest = 0
        for last_us, first_us in zip(index._last_us, index._first_us, strict=True):
            latest = max(latest, last_us, first_us) if index._latest_us else max(last_us, first_us)
            index._latest_us.append(latest)
        topics = table.column(6)
        index._topic_starts = array("q", topics.offsets.to_pylist())
        index._topic_ids.frombytes(_values(topics.values.indices))
        if table.num_columns > _COUNTS:
            index._topic_counts.frombytes(_values(table.column(_COUNTS).values))
        else:
            for count, (first, last) in zip(
                index._counts, itertools.pairwise(index._topic_starts), strict=True
            ):
                counts = [count] if last - first == 1 else [_UNKNOWN] * (last - first)
                index._topic_counts.extend(counts)
        index._any_topic = set(pc.indices_nonzero(topics.is_null()).to_pylist())
        index._names = name_list(topics.values.dictionary)
        index._ids = {name: number for number, name in enumerate(index._names)}
        index.end_offset = end_offset
        return index


def _column(values: "array[int]", kind: pa.DataType) -> pa.Array:
    """Return a copy of an array as a column: a shared array could not grow."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values.tobytes())])


def _values(column: pa.Array) -> memoryview:
    """Return the bytes of a column of numbers."""
    width = column.type.bit_width // 8
    if not len(column):
        return memoryview(b"")
    view = memoryview(column.buffers()[1])
    return view[column.offset * width : (column.offset + len(column)) * width]


SCHEMA_1 = pa.schema(
    [
        ("base_offset", pa.int64()),
        ("count", pa.int64()),
        ("position", pa.int64()),
        ("size", pa.int64()),
        ("first_us", pa.int64()),
        ("last_us", pa.int64()),
        ("topics", pa.list_(pa.dictionary(pa.int32(), pa.utf8()))),
    ]
)
"""Columns of an index file of format 1; null topics mean any topic."""
SCHEMA = SCHEMA_1.append(pa.field("topic_counts", pa.list_(pa.int32())))
"""Columns of an index file: `topic_counts` are the messages of each of `topics`."""
_COUNTS = SCHEMA.get_field_index("topic_counts")
