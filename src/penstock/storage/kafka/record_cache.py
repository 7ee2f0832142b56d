"""The records of all partitions that were written or read last, in memory."""

import threading
from collections import OrderedDict

from penstock.storage.kafka.records import GroupRecord

__all__ = ["RecordCache"]


class RecordCache:
    """Records that were written or read last, of all partitions. Any thread may use it."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._records: OrderedDict[tuple[int, int], GroupRecord] = OrderedDict()
        self._bytes = 0

    def put(self, partition: int, record: GroupRecord) -> None:
        """Keep a record; the ones that were not used for longest give way."""
        with self._lock:
            key = partition, record.place
            if key in self._records:
                return
            self._records[key] = record
            self._bytes += len(record.group.data)
            while self._bytes > self._bytes_max:
                _, oldest = self._records.popitem(last=False)
                self._bytes -= len(oldest.group.data)

    def get(self, partition: int, place: int) -> GroupRecord | None:
        """Return a record, None if it is not kept."""
        with self._lock:
            record = self._records.get((partition, place))
            if record is not None:
                self._records.move_to_end((partition, place))
            return record
