"""A log on Kafka for readers that are no nodes: all partitions, without writing to any.

Spark plans with it, and commands read with it. Nothing here tells a reader of new messages: it asks
for them with `refresh`.
"""

import contextlib
from collections.abc import Mapping

from confluent_kafka import KafkaException

from penstock.closeable import Closeable
from penstock.errors import CannotReadKafka
from penstock.ports import Bounds
from penstock.storage.arrow.format.segment import parse_head
from penstock.storage.kafka.client import Connection, Consumers
from penstock.storage.kafka.cluster_topics import find_log
from penstock.storage.kafka.options import KafkaOptions
from penstock.storage.kafka.partition import KafkaPartition
from penstock.storage.kafka.record_cache import RecordCache
from penstock.storage.kafka.records import Heads
from penstock.storage.kafka.scanner import KafkaScanner
from penstock.storage.kafka.state import (
    HEAD,
    TOPIC,
    KafkaGroups,
    KafkaNumbers,
    StateTopic,
    TopicState,
)

__all__ = ["KafkaLogReader"]


class KafkaLogReader(Closeable):
    """Reads the partitions of a log. One thread uses it.

    Raise CannotReadKafka if there is no such log, or a setting is unknown to librdkafka.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self.options = options
        self.log_id = 0
        """The id of the log when it was last asked for; 0 before."""
        self._connection = Connection(options)
        try:
            self._admin = self._connection.admin()
            self._state = StateTopic(self._connection)
        except KafkaException as error:
            raise CannotReadKafka(options.location, error.args[0].str()) from error
        self._consumers = Consumers(self._connection)
        self._partitions: dict[int, KafkaPartition] = {}
        self._marks: dict[int, tuple[int, int]] = {}
        self._heads = Heads(0, 0, self.find_head)
        self._cache = RecordCache(options.cache_bytes_max)
        self.scanner = KafkaScanner(self._partitions)
        self.groups = KafkaGroups(self._state)

    def close(self) -> None:
        """Disconnect."""
        self._consumers.close()
        self._state.close()
        self._connection.closing.wait()

    def refresh(self) -> Mapping[int, Bounds]:
        """Ask Kafka for the partitions and their bounds; raise CannotReadKafka or OSError.

        If the topic was created anew, the log has another id, and nothing is known of it.
        """
        facts = find_log(self._connection, self._admin)
        if facts.log_id != self.log_id:
            self.log_id = facts.log_id
            self._partitions.clear()
            self._marks.clear()
            self._cache = RecordCache(self.options.cache_bytes_max)
        self._state.refresh()  # for the namespaces
        for number in range(facts.partitions):
            self._load(number)
        return self.scanner.bounds()

    def _load(self, number: int) -> None:
        """Load the bounds of a partition, if its records have changed."""
        topic = self.options.topic
        partition = self._partitions.get(number)
        if partition is None:
            partition = KafkaPartition(
                self._consumers,
                self._heads,
                self._cache,
                topic=topic,
                number=number,
                namespaces=lambda: self._state.namespaces,
                ends=lambda: self._state.ends(number),
            )
        with self._consumers.take() as reader:
            marks = reader.bounds(topic, number)
        if self._marks.get(number) != marks:
            partition.load_bounds()
            self._marks[number] = marks
        elif self._state.namespaces:
            partition.load_horizon()
        self._partitions[number] = partition

    def topics(self) -> dict[str, TopicState]:
        """Return all topics, also deleted ones; raise OSError."""
        self._state.refresh()
        return self._state.all(TOPIC, TopicState)

    def numbers(self, node: int) -> KafkaNumbers:
        """Return the kept session number of a node."""
        return KafkaNumbers(self._state, node)

    def heads(self, partition: int) -> dict[str, bytes]:
        """Return the heads that records of a partition may name; raise OSError."""
        found = self._known_heads(partition)
        if not found:  # of a node that is new
            self._state.refresh()
            found = self._known_heads(partition)
        return found

    def _known_heads(self, partition: int) -> dict[str, bytes]:
        found = {}
        for name, data in self._state.values(HEAD).items():
            with contextlib.suppress(ValueError):
                if parse_head(data).partition == partition:
                    found[name] = data
        return found

    def find_head(self, name: str) -> bytes | None:
        """Return the head that a record names; None if it is not in the state topic."""
        return self._state.find_head(name)
