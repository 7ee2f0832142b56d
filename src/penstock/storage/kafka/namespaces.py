"""Namespaces: patterns of topics whose messages have a Kafka topic of their own.

The *first topic* is the Kafka topic of the log, `KafkaOptions.topic`. A row group goes to the Kafka
topic of a namespace if all its messages are of topics of that namespace, and if it is large enough.
The first topic then has a *reference* to the row group, see `penstock.storage.kafka.records`. All
other row groups are in the first topic themselves.
"""

from array import array
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.limits import KAFKA_NAMESPACE_BYTES_MIN, KAFKA_NAMESPACE_NAMES_MAX
from penstock.patterns import compile_pattern

__all__ = ["Namespace", "Namespaces"]


class Namespace(NamedTuple):
    """A pattern of topics, and the Kafka topic of their messages."""

    pattern: str
    topic: str


class Namespaces:
    """Finds the namespace of topics: the first pattern that matches decides.

    Implements `storage.appends.Runs`, so that messages of a namespace get row groups of their own.
    The event loop's thread calls `of_batch` and `of_topic`, the writer thread calls `common`.
    """

    run_bytes_min = KAFKA_NAMESPACE_BYTES_MIN

    def __init__(self, topics: Mapping[str, str]) -> None:
        """Take the Kafka topic of each pattern; raise InvalidPattern."""
        self.all = tuple(Namespace(*each) for each in topics.items())
        self._expressions = [compile_pattern(each.pattern) for each in self.all]
        self._unknown = len(self.all) + 1  # number of topics that no batch has had
        self._wanted = [bytes(number) + b"\1" for number in range(self._unknown + 1)]
        self._of_topic = array("I")  # number of the namespace, by topic id
        self._known: dict[bytes, int] = {}  # the same by name, for the writer thread

    def __bool__(self) -> bool:
        return bool(self.all)

    @property
    def topics(self) -> list[str]:
        """The Kafka topics, each once."""
        return list(dict.fromkeys(each.topic for each in self.all))

    def of_topic(self, name: str) -> int:
        """Return the number of a topic's namespace, from 1 on; 0 if it has none."""
        for number, (each, expression) in enumerate(zip(self.all, self._expressions, strict=True)):
            if name == each.pattern if expression is None else expression.fullmatch(name):
                return number + 1
        return 0

    def of_batch(self, batch: Batch, topics: TopicTable) -> int:
        """Return the number of the namespace that all rows belong to; 0 if there is none."""
        if not len(batch):
            return 0
        known = self._of_topic
        if len(known) < len(topics):  # many at the start: only those that are used are looked at
            known.extend(array("I", (self._unknown,)) * (len(topics) - len(known)))
        found = self._look(batch.topic_id(0), topics)
        if not found:
            return 0
        if len(batch.select(known, self._wanted[found])) == len(batch):
            return found
        for row in batch.select(known, self._wanted[self._unknown]):
            if self._look(batch.topic_id(row), topics) != found:
                return 0
        same = len(batch.select(known, self._wanted[found])) == len(batch)
        return found if same else 0

    def _look(self, identifier: int, topics: TopicTable) -> int:
        """Return the number of a topic's namespace by its id, and remember it."""
        if identifier >= len(self._of_topic):
            return 0
        number = self._of_topic[identifier]
        if number == self._unknown:
            live = topics.is_live(identifier)
            number = self._of_topic[identifier] = (
                self.of_topic(topics.name(identifier)) if live else 0
            )
        return number

    def common(self, names: Iterable[bytes]) -> Namespace | None:
        """Return the namespace that all topics belong to; None if there is none."""
        found = None
        for name in names:
            number = self._known.get(name)
            if number is None:
                if len(self._known) >= KAFKA_NAMESPACE_NAMES_MAX:
                    self._known.clear()
                number = self._known[name] = self.of_topic(name.decode(errors="replace"))
            if not number or found not in {None, number}:
                return None
            found = number
        return None if found is None else self.all[found - 1]
