"""Finds the last message of each topic, from the end of the log on, without reading values.

The record of last messages has those of most closed segments. Of others, the index names the topics
of each row group: so only row groups with a topic that is not found yet are read, and of these only
the columns that tell the topic.
"""

from array import array
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from penstock._kernels.topics import TopicTable
from penstock.errors import LogDamaged
from penstock.model import Kind
from penstock.ports import LastFound
from penstock.storage.arrow.format.index import Index
from penstock.storage.arrow.format.last_messages_file import LastMessages
from penstock.storage.arrow.read.catalog import ActiveSegment, Catalog
from penstock.storage.arrow.read.pieces import Span, read_pieces
from penstock.storage.arrow.recover.recovery import Segment

__all__ = ["LastOffsets"]

_COLUMNS = ("topic", "offset", "kind", "form")
_NAMES_STEP = 4096
_PRIVATE = 0x80
"""In `form`: a message that is not for every subscriber."""


class LastOffsets:
    """One search. `offsets` has the last offset of each topic by its number, -1 if there is none.

    With `known`, the result of an earlier search, only messages from its end on are searched.
    `record` has the last messages of some segments, which are not searched. Another thread may add
    topics and messages meanwhile.
    """

    def __init__(
        self,
        catalog: Catalog,
        topics: TopicTable,
        end: int,
        known: LastFound | None = None,
        record: LastMessages | None = None,
    ) -> None:
        self._catalog = catalog
        self._topics = topics
        self._end = end
        self._start = 0 if known is None else known.end
        self._record = record
        self.offsets = array("q", [] if known is None else known.offsets)
        self.offsets.extend([-1] * (len(topics) - len(self.offsets)))
        self._left = sum(map(topics.is_live, range(len(topics))))
        self.row_groups_read = 0

    def find(self) -> "array[int]":
        """Search until every topic is found, or the log is over; raise OSError."""
        record, is_taken = self._record, False
        for segment in reversed(self._catalog.segments()):
            if not self._left or segment.end_offset <= self._start:
                break
            if record is not None and segment.end_offset <= record.end:
                if not is_taken:
                    self._take(record)
                    is_taken = True
                if segment.base_offset >= record.start:
                    continue
            try:
                self._search(segment)
            except FileNotFoundError:  # retention has removed it meanwhile
                continue
        return self.offsets

    def _search(self, segment: Segment | ActiveSegment) -> None:
        index = self._catalog.index(segment)
        kept = self._catalog.kept(segment)
        missing = self._missing(index.topics)
        missing = missing if kept is None else set(filter(kept, missing))
        was_read = set()
        for number, names in index.last_row_groups():
            is_needed = names is None or any(name in missing for name in names)
            if self._left and is_needed:
                missing -= set(self._read(segment, index, number))
                was_read.add(number)
        # The last messages of some topics in a row group may be requests, which are not delivered.
        if missing:
            for number in reversed(index.with_topics(missing.__contains__)):
                if not missing:
                    break
                if number in was_read:
                    continue
                missing -= set(self._read(segment, index, number))

    def _take(self, record: LastMessages) -> None:
        """Take the last messages of a record, except for those that have expired."""
        horizons, horizon = self._catalog.horizons, max(self._catalog.horizon, self._start)
        for batch in record.messages.to_batches(max_chunksize=_NAMES_STEP):
            for name, offset in zip(*(each.to_pylist() for each in batch.columns), strict=True):
                number = self._number(name)
                if number is None or offset < horizon or (horizons and offset < horizons.of(name)):
                    continue
                self.offsets[number] = offset
                self._left -= 1

    def _missing(self, names: Iterable[str]) -> set[str]:
        return {name for name in names if self._number(name) is not None}

    def _number(self, name: str) -> int | None:
        """Return the number of a topic that is not found yet."""
        number = self._topics.find(name)
        if number is None or number >= len(self.offsets) or self.offsets[number] >= self._start:
            return None
        return number

    def _read(self, segment: Segment | ActiveSegment, index: Index, number: int) -> Iterator[str]:
        """Read a row group; yield the topics whose last messages it has."""
        piece = Span(segment.base_offset, index, number, number + 1).part(number, number + 1)
        if piece.end_offset <= self._start or piece.first_offset >= self._end:
            return
        self.row_groups_read += 1
        try:
            for batch in read_pieces(
                self._catalog.folder,
                [piece],
                first=max(self._catalog.horizon, self._start),
                last=self._end,
                columns=_COLUMNS,
                horizons=self._catalog.horizons,
            ):
                yield from self._note(batch)
        except LogDamaged:
            return

    def _note(self, batch: pa.RecordBatch) -> Iterator[str]:
        column = batch.column("topic")
        names, ids = column.dictionary, column.indices
        delivered = pc.and_(
            pc.equal(pc.cast(batch.column("kind"), pa.utf8()), Kind.PUBLISH.label),
            pc.less(batch.column("form"), _PRIVATE),
        )
        rows = pa.table({"id": ids, "offset": batch.column("offset")}).filter(delivered)
        last = rows.group_by("id").aggregate([("offset", "max")])
        for name, offset in zip(
            pc.take(names, last.column("id")).to_pylist(),
            last.column("offset_max").to_pylist(),
            strict=True,
        ):
            number = self._number(name)
            if number is not None:
                self.offsets[number] = offset
                self._left -= 1
                yield name
