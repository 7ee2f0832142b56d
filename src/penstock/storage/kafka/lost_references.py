"""References to messages of namespaces that Kafka has removed.

Each Kafka topic has its own retention, so a reference may outlive its row group. All messages of a
partition up to the last lost one count as removed: readers get an error, never a silent gap.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet

import structlog

from penstock.limits import KAFKA_REFERENCE_AGAIN_SECONDS_MAX, KAFKA_REFERENCE_SECONDS_MAX
from penstock.storage.kafka.client import RecordReader, RecordsRemoved
from penstock.storage.kafka.records import ReferenceRecord, previous_end
from penstock.storage.kafka.state import NamespaceEnd

__all__ = ["LostReferences"]

log = structlog.get_logger("penstock.log")


class LostReferences:
    """The end of the lost messages of one partition. Any thread may use it.

    The first record of such a topic has the end of the record before it, which was removed. If the
    topic has no record left, the state of the log has the end of its last one: the node that writes
    the topic stores it every few seconds. For what was not stored, and while Kafka does not answer
    for a topic, the first reader of a reference calls `note_lost`.
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
        self._silent: set[str] = set()  # topics for which Kafka did not answer the last time
        self.end = 0
        """One past the last offset that is known to be lost."""

    def find(self, reader: RecordReader) -> None:
        """Ask Kafka which topics of namespaces the partition uses."""
        self._ask(self._namespaces() - self._first.copy().keys(), self._find, reader)

    def _find(self, topic: str, reader: RecordReader, seconds_max: float) -> None:
        bounds = reader.bounds_if_there(topic, self._partition, seconds_max=seconds_max)
        if bounds is not None and bounds[1] > 0:
            self._first.setdefault(topic, 0)

    def note_topic(self, record: ReferenceRecord) -> None:
        """Note that the partition uses the Kafka topic of a reference, for `load`."""
        self._first.setdefault(record.reference.topic, 0)

    def load(self, reader: RecordReader) -> None:
        """Ask Kafka which messages retention has removed from the known topics."""
        self._ask(self._silent - self._first.copy().keys(), self._find, reader)
        self._ask(self._first.copy(), self._load, reader)

    def _load(self, topic: str, reader: RecordReader, seconds_max: float) -> None:
        bounds = reader.bounds_if_there(topic, self._partition, seconds_max=seconds_max)
        if bounds is None:
            return  # it was deleted: readers of its messages find out
        first, end = bounds
        last = self._ends().get(topic)
        if last is not None and first > last.place:
            self._raise(last.end)
        if first == self._first[topic]:
            return
        if first < end:
            try:
                message = reader.first(
                    topic, self._partition, first, end=end, seconds_max=seconds_max
                )
            except RecordsRemoved:
                return  # removed meanwhile; the next call finds the end
            if message is not None:
                self._raise(previous_end(message))
        self._first[topic] = first

    def _ask(
        self,
        topics: Iterable[str],
        ask: Callable[[str, RecordReader, float], None],
        reader: RecordReader,
    ) -> None:
        """Call `ask` for each topic; one without an answer must not hold up the partition.

        All of them together take little longer than KAFKA_REFERENCE_SECONDS_MAX.
        """
        deadline = time.monotonic() + KAFKA_REFERENCE_SECONDS_MAX
        for topic in topics:
            seconds_max = max(deadline - time.monotonic(), 0.1)
            if topic in self._silent:
                seconds_max = min(seconds_max, KAFKA_REFERENCE_AGAIN_SECONDS_MAX)
            try:
                ask(topic, reader, seconds_max)
            except OSError as error:
                if topic not in self._silent:
                    self._silent.add(topic)
                    log.warning(
                        "namespace not reached",
                        topic=topic,
                        partition=self._partition,
                        error=str(error),
                    )
            else:
                self._silent.discard(topic)

    def note_lost(self, record: ReferenceRecord) -> None:
        """Note a reference to a record that was removed."""
        self._raise(record.end_offset)

    def _raise(self, end: int) -> None:
        with self._lock:
            self.end = max(self.end, end)
