"""A row group in memory, for replay: its messages are loaded into a batch."""

from array import array
from collections.abc import Callable

from penstock._kernels import stored
from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.storage.arrow.format.segment import (
    TIMESTAMPS,
    TOPIC_INDICES,
    RowGroup,
    row_group_topics,
)
from penstock.storage.arrow.format.topic_horizons import NO_HORIZONS, TopicHorizons
from penstock.storage.schema import KINDS, PROTOCOLS

__all__ = ["StoredRowGroup"]


class StoredRowGroup:
    """A row group in memory; a `ports.Stored`. Messages that have expired are hidden."""

    __slots__ = ("base_offset", "count", "data", "horizons", "row_group", "words")

    def __init__(
        self,
        data: bytes,
        row_group: RowGroup,
        words: stored.SegmentWords | None = None,
    ) -> None:
        self.data = data
        self.horizons = NO_HORIZONS
        self.row_group = row_group
        self.words = words or stored.SegmentWords(PROTOCOLS, KINDS)
        self.base_offset = row_group.base_offset
        self.count = row_group.count

    def load(self, batch: Batch, topics: TopicTable) -> None:
        """See ports.Stored."""
        row_group = self.row_group
        floors = self._floors(self.horizons)
        stored.load(
            batch,
            topics,
            self.data,
            row_group.layout,
            row_group.topic_layout,
            row_group.sender_layout,
            self.words,
            count=row_group.count,
            floors=None if floors is None else array("I", floors),
        )

    def _floors(self, horizons: TopicHorizons) -> list[int] | None:
        """Return, for each topic, the number of rows in which it has expired; None if in none."""
        if horizons.highest <= self.base_offset:
            return None
        found = horizons.of_names(row_group_topics(self.data, self.row_group), self.base_offset)
        if found is None:
            return None
        return [min(max(each - self.base_offset, 0), self.count) for each in found]

    def expired(self, since: object, wants: Callable[[str], bool], *, first: int, last: int) -> int:
        """See ports.Stored."""
        floors = self._floors(self.horizons)
        if floors is None:
            return 0
        known = self._floors(since) if isinstance(since, TopicHorizons) else None
        names = row_group_topics(self.data, self.row_group)
        begins = [0] * len(names) if known is None else known
        begins = [
            begin if begin < floor and wants(name) else self.count
            for name, begin, floor in zip(names, begins, floors, strict=True)
        ]
        start, length = self.row_group.layout[2 * TOPIC_INDICES : 2 * TOPIC_INDICES + 2]
        topics = array("H")
        topics.frombytes(self.data[start : start + length][: 2 * self.count])
        return sum(begins[topics[row]] <= row < floors[topics[row]] for row in range(first, last))

    def row_at_time(self, timestamp_us: int) -> int:
        """Return the first row taken at or after a time, or the number of rows."""
        start, length = self.row_group.layout[2 * TIMESTAMPS : 2 * TIMESTAMPS + 2]
        times = array("q")
        times.frombytes(self.data[start : start + length][: 8 * self.count])
        return next((row for row, taken in enumerate(times) if taken >= timestamp_us), self.count)
