"""A cache in memory of the row groups that were written or read last, of all partitions."""

import threading
from collections import OrderedDict

from penstock.storage.kafka.records import RowGroupRecord

__all__ = ["RecordCache"]


class RecordCache:
    """Row groups by partition and place of their records. Any thread may use it."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._records: OrderedDict[tuple[int, int], RowGroupRecord] = OrderedDict()
        self._bytes = 0

    def put(self, partition: int, record: RowGroupRecord) -> None:
        """Keep a record; drop the least recently used ones above the limit of bytes."""
        with self._lock:
            key = partition, record.place
            if key in self._records:
                return
            self._records[key] = record
            self._bytes += len(record.group.data)
            while self._bytes > self._bytes_max:
                _, oldest = self._records.popitem(last=False)
                self._bytes -= len(oldest.group.data)

    def get(self, partition: int, place: int) -> RowGroupRecord | None:
        """Return the record of a partition at a place; None if it is not in the cache."""
        with self._lock:
            record = self._records.get((partition, place))
            if record is not None:
                self._records.move_to_end((partition, place))
            return record
