"""The records of one transaction: row groups, references to those of namespaces, and state."""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, TypeAlias

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from penstock.storage.arrow.format.segment import parse_row_group, row_group_times
from penstock.storage.kafka.client import failure
from penstock.storage.kafka.namespaces import Namespace
from penstock.storage.kafka.options import KafkaOptions
from penstock.storage.kafka.records import (
    HEAD_HEADER,
    NODES_HEADER,
    PREVIOUS_HEADER,
    REFERENCE_FORMAT,
    REFERENCE_HEADER,
    Heads,
    Reference,
)
from penstock.storage.kafka.state import NamespaceEnd

__all__ = ["SentRowGroup", "Transaction"]

_Headers: TypeAlias = list[tuple[str, str | bytes | None]]
_Noted: TypeAlias = Callable[[KafkaError | None, Message], None]
"""Called with an error or None, and the record that was sent; see `Producer.produce`."""


class SentRowGroup(NamedTuple):
    """A row group, the time of its latest message, and the nodes that private messages are for.

    If it has a `namespace`, it is sent to the Kafka topic of the namespace.
    """

    value: bytes
    timestamp_ms: int
    nodes: Collection[int]
    namespace: Namespace | None


class Transaction:
    """Sends the records of a transaction that has begun.

    The first topic has the row groups and references in the order of `add`. A reference needs the
    place of its row group, which is in Kafka's answer. So from the first row group of a namespace
    on, records for the first topic wait: the caller flushes the producer, then calls
    `send_waiting`. `ends` has the last row group in each Kafka topic of a namespace.
    Methods raise KafkaException or BufferError.
    """

    def __init__(
        self,
        producer: Producer,
        options: KafkaOptions,
        heads: Heads,
        ends: Mapping[str, NamespaceEnd],
    ) -> None:
        self._producer = producer
        self._options = options
        self._head = heads.own_name.encode()
        self._ends = {topic: last.end for topic, last in ends.items()}
        self.ends = dict(ends)
        """The last row group in each Kafka topic of a namespace, with those that were sent."""
        self._groups: list[SentRowGroup] = []
        self._places: dict[int, int] = {}  # in the first topic
        self._apart: dict[int, int] = {}  # in the Kafka topics of namespaces
        self._waiting: list[int] = []
        self._failed: list[KafkaError] = []

    def add(self, group: SentRowGroup) -> None:
        """Send a row group, or keep it if it has to wait."""
        number = len(self._groups)
        self._groups.append(group)
        if group.namespace is not None:
            self._send_apart(group, group.namespace, self._noting(self._apart, number))
            self._waiting.append(number)
        elif self._waiting:
            self._waiting.append(number)
        else:
            self._send_row_group(group, self._noting(self._places, number))

    @property
    def waits(self) -> bool:
        """Whether `send_waiting` has records to send."""
        return bool(self._waiting)

    def send_waiting(self) -> None:
        """Send the records that had to wait; Kafka must have answered all others."""
        if self._failed:
            raise KafkaException(self._failed[0])
        for number in self._waiting:
            group, noted = self._groups[number], self._noting(self._places, number)
            if group.namespace is None:
                self._send_row_group(group, noted)
            else:
                self._send_reference(group, group.namespace, self._apart[number], noted)

    def change(self, changes: Mapping[str, bytes | None]) -> None:
        """Send changes of the state topic."""
        for key, content in changes.items():
            self._producer.produce(self._options.state_topic, content, key.encode(), partition=0)

    def places(self) -> list[tuple[SentRowGroup, int]]:
        """Return the row groups and their places in the first topic; raise OSError."""
        if len(self._places) != len(self._groups):
            raise failure("a record was not delivered")
        return [(group, self._places[number]) for number, group in enumerate(self._groups)]

    def _noting(self, places: dict[int, int], number: int) -> _Noted:
        """Return a callback that notes the place of a record, or the error of its delivery."""

        def delivered(error: KafkaError | None, message: Message) -> None:
            place = None if error is not None else message.offset()
            if place is None:  # Kafka may take a record that was sent again without telling where
                self._failed.append(error or KafkaError(KafkaError.DUPLICATE_SEQUENCE_NUMBER))
            else:
                places[number] = place

        return delivered

    def _produce(
        self, topic: str, value: bytes, headers: _Headers, timestamp_ms: int, noted: _Noted
    ) -> None:
        self._producer.produce(
            topic, value, partition=self._options.node, headers=headers, timestamp=timestamp_ms,
            on_delivery=noted,
        )  # fmt: skip

    def _send_row_group(self, group: SentRowGroup, noted: _Noted) -> None:
        """Send a row group to the first topic."""
        headers: _Headers = [(HEAD_HEADER, self._head)]
        if group.nodes:
            headers.append((NODES_HEADER, ",".join(map(str, sorted(group.nodes))).encode()))
        self._produce(self._options.topic, group.value, headers, group.timestamp_ms, noted)

    def _send_apart(self, group: SentRowGroup, namespace: Namespace, noted: _Noted) -> None:
        """Send a row group to the Kafka topic of its namespace."""
        row_group = parse_row_group(group.value)
        previous = self._ends.get(namespace.topic, 0)
        self._ends[namespace.topic] = row_group.base_offset + row_group.count
        headers: _Headers = [(HEAD_HEADER, self._head), (PREVIOUS_HEADER, b"%d" % previous)]
        self._produce(namespace.topic, group.value, headers, group.timestamp_ms, noted)

    def _send_reference(
        self, group: SentRowGroup, namespace: Namespace, place: int, noted: _Noted
    ) -> None:
        """Send a reference to a row group at a place to the first topic."""
        row_group = parse_row_group(group.value)
        end = row_group.base_offset + row_group.count
        self.ends[namespace.topic] = NamespaceEnd(place, end)
        reference = Reference(
            base_offset=row_group.base_offset,
            count=row_group.count,
            latest_us=max(row_group_times(group.value, row_group)),
            crc32c=row_group.crc32c,
            pattern=namespace.pattern,
            topic=namespace.topic,
            place=place,
        )
        headers: _Headers = [(REFERENCE_HEADER, REFERENCE_FORMAT)]
        value = msgspec.json.encode(reference)
        self._produce(self._options.topic, value, headers, group.timestamp_ms, noted)
