"""The end of the messages of namespaces that Kafka has removed, while their references are there.

Each Kafka topic has its own retention. Messages of a partition before the last one that is lost
count as removed, so that no reader passes over a gap without a word.
"""

import threading
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

from penstock.storage.kafka.client import RecordReader, RecordsRemoved
from penstock.storage.kafka.records import ReferenceRecord, previous_end
from penstock.storage.kafka.state import NamespaceEnd

__all__ = ["LostReferences"]


class LostReferences:
    """What one partition has lost in the Kafka topics of namespaces. Any thread may use it.

    The first record of such a topic names the end of the one before it. If there is no record any
    more, the node that wrote them has told where the last one was, every few seconds. What it has
    not told, a reader that meets a reference finds out.
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

    def met(self, record: ReferenceRecord) -> None:
        """Note the topic of a reference: it is asked for from now on."""
        self._first.setdefault(record.reference.topic, 0)

    def load(self, reader: RecordReader) -> None:
        """Ask Kafka what retention has removed from topics that are known; raise OSError."""
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
                    continue  # it goes on; the next call finds out
                if message is not None:
                    self._raise(previous_end(message))
            self._first[topic] = first

    def note(self, record: ReferenceRecord) -> None:
        """Note a reference to a record that was removed."""
        self._raise(record.end_offset)

    def _raise(self, end: int) -> None:
        with self._lock:
            self.end = max(self.end, end)
