"""A reader of all partitions of a log, for consumer groups.

The state of a group names messages of each partition by places, see `penstock.ports.places`.
"""

from collections.abc import Callable, Mapping

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.core.partitions import OwnPartition, Partition
from penstock.errors import LogError, OffsetPastEnd
from penstock.ports import Fetched, Stored, TopicFilter
from penstock.ports.places import offset_of, partition_of, place_of

__all__ = ["PlacedReader", "offset_of", "partition_of", "place_of"]


class _PlacedRowGroup:
    """A row group of a partition; its base offset is a place."""

    __slots__ = ("_stored", "base_offset", "count")

    def __init__(self, stored: Stored, base: int) -> None:
        self._stored = stored
        self.base_offset = base + stored.base_offset
        self.count = stored.count

    def load(self, batch: Batch, topics: TopicTable) -> None:
        """See ports.Stored."""
        self._stored.load(batch, topics)

    def expired(self, since: object, wants: Callable[[str], bool], *, first: int, last: int) -> int:
        """See ports.Stored."""
        return self._stored.expired(since, wants, first=first, last=last)


class PlacedReader:
    """Reads all partitions by places. `partitions` grows when other nodes are found."""

    def __init__(self, partitions: Mapping[int, Partition]) -> None:
        self.partitions = partitions

    def horizon(self, number: int) -> int:
        """Return the first place that a partition has."""
        return place_of(number, self.partitions[number].reader.horizon)

    def end(self, number: int) -> int:
        """Return the place behind the last message of a partition that can be delivered."""
        partition = self.partitions[number]
        end = partition.reader.end
        if not isinstance(partition, OwnPartition):  # before that, its topics may not be known
            end = min(end, partition.next_offset)
        return place_of(number, end)

    def next(self, number: int) -> int:
        """Return the place of the next message of a partition."""
        return place_of(number, self.partitions[number].next_offset)

    def fetch(
        self,
        place: int,
        then: Callable[[Fetched | LogError], None],
        topics: TopicFilter | None = None,
    ) -> None:
        """See ports.LogReader. Row groups have places; errors have the offsets of the partition."""
        number, offset = partition_of(place), offset_of(place)
        base = place_of(number, 0)
        if number not in self.partitions:  # it is not found yet
            then(OffsetPastEnd(offset, offset))
            return

        def read(result: Fetched | LogError) -> None:
            if base and isinstance(result, Fetched):
                placed = [_PlacedRowGroup(stored, base) for stored in result.groups]
                result = Fetched(placed, base + result.end)
            then(result)

        self.partitions[number].reader.fetch(offset, read, topics)
