"""References to messages of namespaces that Kafka has removed.

Each Kafka topic has its own retention, so a reference may outlive its row group. All messages of a
partition up to the last lost one count as removed: readers get an error, never a silent gap.
"""

import threading
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

from penstock.storage.kafka.client import RecordReader, RecordsRemoved
from penstock.storage.kafka.records import ReferenceRecord, previous_end
from penstock.storage.kafka.state import NamespaceEnd

__all__ = ["LostReferences"]


class LostReferences:
    """The end of the lost messages of one partition. Any thread may use it.

    The first record of such a topic has the end of the record before it, which was removed. If the
    topic has no record left, the state of the log has the end of its last one: the node that writes
    the topic stores it every few seconds. For what was not stored, the first reader of a reference
    calls `note_lost`.
    """

    def __init__(
        self,
        partition: int,
        namespaces: Callable[[], AbstractSet[str]],
        ends: Callable[[], Mapping[str, NamespaceEnd]],
    ) -> None:
        self._partition = partition
        self._namespaces = namespaces
        self._ends = ends
        self._lock = threading.Lock()
        self._first: dict[str, int] = {}  # Kafka's first offset of each topic that has messages
        self.end = 0
        """One past the last offset that is known to be lost."""

    def find(self, reader: RecordReader) -> None:
        """Ask Kafka which topics of namespaces the partition uses; raise OSError."""
        for topic in self._namespaces() - self._first.copy().keys():
            bounds = reader.bounds_if_there(topic, self._partition)
            if bounds is not None and bounds[1] > 0:
                self._first.setdefault(topic, 0)

    def note_topic(self, record: ReferenceRecord) -> None:
        """Note that the partition uses the Kafka topic of a reference, for `load`."""
        self._first.setdefault(record.reference.topic, 0)

    def load(self, reader: RecordReader) -> None:
        """Ask Kafka which messages retention has removed from the known topics; raise OSError."""
        ends = self._ends()
        for topic, before in self._first.copy().items():
            bounds = reader.bounds_if_there(topic, self._partition)
            if bounds is None:
                continue  # it was deleted: readers of its messages find out
            first, end = bounds
            last = ends.get(topic)
            if last is not None and first > last.place:
                self._raise(last.end)
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
