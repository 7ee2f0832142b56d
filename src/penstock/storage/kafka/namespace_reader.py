"""Reads the records that references name, from the Kafka topics of namespaces.

A *place* is the Kafka offset of a record. References are read in order, so the next wanted record
of a namespace mostly follows the last one. One consumer reads ahead in all namespaces and
partitions that were asked for. Records that it reads before their references are kept, up to
KAFKA_NAMESPACE_AHEAD_BYTES_MAX.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from penstock.limits import KAFKA_NAMESPACE_AHEAD, KAFKA_NAMESPACE_AHEAD_BYTES_MAX
from penstock.storage.kafka.client import REMOVED, Connection, RecordsRemoved, failure, is_final

__all__ = ["NamespaceReader"]

_Key: TypeAlias = tuple[str, int]
_POLL_SECONDS: Final = 0.1
_CONSUMED: Final = 64
"""Records that are taken from the consumer at a time."""


class _Ahead:
    """Records of a namespace and partition that were read ahead; `next` is the next place."""

    def __init__(self, place: int) -> None:
        self.next = place
        self.messages: deque[Message] = deque()
        self.size = 0
        self.paused = False
        self.removed = False

    def add(self, message: Message) -> None:
        self.messages.append(message)
        self.size += len(message.value() or b"")
        self.next = (message.offset() or 0) + 1

    def take(self, place: int) -> Message | None:
        """Return the record at a place, None if it was not read yet; drop those before it.

        Raise RecordsRemoved if Kafka has removed it.
        """
        while self.messages:
            message = self.messages[0]
            found = message.offset() or 0
            if found > place:
                raise RecordsRemoved
            self.messages.popleft()
            self.size -= len(message.value() or b"")
            if found == place:
                return message
        if self.removed and self.next >= place:
            raise RecordsRemoved
        return None

    def reaches(self, place: int) -> bool:
        """Return whether the record at a place was read, or follows so soon that no seek pays."""
        first = self.messages[0].offset() if self.messages else self.next
        ahead = 1 if self.removed else KAFKA_NAMESPACE_AHEAD
        return (first or 0) <= place < self.next + ahead


class NamespaceReader:
    """A consumer of the Kafka topics of namespaces. One thread uses it.

    If there are no new records, Kafka waits `waits_ms` for some before it answers.
    """

    def __init__(self, connection: Connection, *, waits_ms: int = 5) -> None:
        self._connection = connection
        self._waits_ms = waits_ms
        self._made: Consumer | None = None  # not before it is needed
        self._ahead: dict[_Key, _Ahead] = {}
        self.fetched = 0
        """Number of records that were read, including those that no reference has named."""

    def get(
        self,
        topic: str,
        partition: int,
        place: int,
        *,
        seconds_max: float,
        step: Callable[[], None] = lambda: None,
    ) -> Message:
        """Return the committed record at a place; raise RecordsRemoved or OSError.

        Kafka shows the records of a transaction one after the other, so this one may come a little
        later than its reference. `step` is called after each call of librdkafka.
        """
        with self._replacing_failed():
            try:
                return self._get((topic, partition), place, seconds_max, step)
            except RecordsRemoved:
                self._leave((topic, partition))
                raise

    def _get(self, key: _Key, place: int, seconds_max: float, step: Callable[[], None]) -> Message:
        ahead = self._ahead.get(key)
        if ahead is None or not ahead.reaches(place):
            ahead = self._ahead[key] = _Ahead(place)
            self._assign()
        deadline = time.monotonic() + seconds_max
        while True:
            found = ahead.take(place)
            if found is not None:
                return found
            if ahead.removed:  # records before the place were removed, not the one at it
                ahead = self._ahead[key] = _Ahead(place)
                self._assign()
            self._resume(key, ahead)
            self._read(key)
            step()
            if time.monotonic() > deadline:
                raise self._connection.timed_out(seconds_max)

    def leave(self, topic: str, partition: int) -> None:
        """Read no more of a namespace and partition, until it is asked for again; raise OSError."""
        with self._replacing_failed():
            self._leave((topic, partition))

    def _leave(self, key: _Key) -> None:
        if self._ahead.pop(key, None) is not None:
            self._assign()

    @contextlib.contextmanager
    def _replacing_failed(self) -> Iterator[None]:
        """Close a consumer that fails, so that the next call makes another one. Raise OSError."""
        try:
            yield
        except (KafkaException, OSError) as error:
            self.close()
            raise (failure(error) if isinstance(error, KafkaException) else error) from error

    def close(self) -> None:
        """Disconnect, without waiting for it; another call connects again."""
        made, self._made = self._made, None
        self._ahead.clear()
        if made is not None:
            self._connection.closing.close("namespace reader", made.close)

    @property
    def _consumer(self) -> Consumer:
        if self._made is None:
            self._made = self._connection.consumer(fetch_wait_ms=self._waits_ms)
        return self._made

    def _assign(self) -> None:
        for ahead in self._ahead.values():
            ahead.paused = False
        self._consumer.assign(
            [TopicPartition(*key, ahead.next) for key, ahead in self._ahead.items()]
        )

    def _resume(self, key: _Key, ahead: _Ahead) -> None:
        if ahead.paused:
            ahead.paused = False
            self._consumer.resume([TopicPartition(*key)])

    def _read(self, wanted: _Key) -> None:
        """Wait a moment for records, and keep them; raise OSError."""
        with self._connection.calls.noted():
            message = self._consumer.poll(_POLL_SECONDS)
            if message is None:
                return
            messages = message, *self._consumer.consume(_CONSUMED, 0)
        for each in messages:
            self._keep(each, wanted)

    def _keep(self, message: Message, wanted: _Key) -> None:
        topic, partition, place = message.topic(), message.partition(), message.offset()
        key = topic or "", -1 if partition is None else partition
        ahead = self._ahead.get(key)
        error = message.error()
        if error is not None:
            if ahead is not None and error.code() in REMOVED:
                ahead.removed = True
            elif is_final(error) and (ahead is None or key == wanted):
                raise failure(error)
            return
        if ahead is None or place is None or place < ahead.next:
            return  # it was read before the partitions were assigned again
        self.fetched += 1
        ahead.add(message)
        if ahead.size > KAFKA_NAMESPACE_AHEAD_BYTES_MAX and not ahead.paused and key != wanted:
            ahead.paused = True
            self._consumer.pause([TopicPartition(*key)])
