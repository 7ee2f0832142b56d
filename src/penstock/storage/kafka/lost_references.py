"""References to messages of namespaces that Kafka has removed.

Each Kafka topic has its own retention, so a reference may outlive its row group. All messages of a
partition up to the last lost one count as removed: readers get an error, never a silent gap.
"""

import threading
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from penstock.storage.kafka.client import RecordReader, RecordsRemoved
from penstock.storage.kafka.records import ReferenceRecord, previous_end

__all__ = ["LostReferences"]


class LostReferences:
    """The end of the lost messages of one partition. Any thread may use it.

    The first record of such a topic has the end of the record before it, which was removed. If the
    topic has no record left, the first reader of a reference calls `note_lost`.
    """

    def __init__(self, partition: int, namespaces: Callable[[], AbstractSet[str]]) -> None:
        self._partition = partition
        self._namespaces = namespaces
        self._lock = threading.Lock()
        self._first: dict[str, int] = {}  # Kafka's first offset of each topic that has messages
        self.end = 0
        """One past the last offset that is known to be lost."""

    def find(self, reader: RecordReader) -> None:
        """Ask Kafka which topics of namespaces the partition uses; raise OSError."""
        for topic in self._namespaces() - self._first.copy().keys():
            exists = self._partition in reader.partitions(topic)
            if exists and reader.bounds(topic, self._partition)[1] > 0:
                self._first.setdefault(topic, 0)

    def note_topic(self, record: ReferenceRecord) -> None:
        """Note that the partition uses the Kafka topic of a reference, for `load`."""
        self._first.setdefault(record.reference.topic, 0)

    def load(self, reader: RecordReader) -> None:
        """Ask Kafka which messages retention has removed from the known topics; raise OSError."""
        for topic, before in self._first.copy().items():
            first, end = reader.bounds(topic, self._partition)
            if first == before:
                continue
            if first < end:
                try:
                    message = reader.first(topic, self._partition, first)
                except RecordsRemoved:
                    continue  # removed meanwhile; the next call finds the end
                if message is not None:
                    self._raise(previous_end(message))
            self._first[topic] = first

    def note_lost(self, record: ReferenceRecord) -> None:
        """Note a reference to a record that was removed."""
        self._raise(record.end_offset)

    def _raise(self, end: int) -> None:
        with self._lock:
            self.end = max(self.end, end)
