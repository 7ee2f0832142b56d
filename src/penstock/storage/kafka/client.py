"""Clients of Kafka: those of librdkafka, with the settings that Penstock relies on."""

import contextlib
import errno
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.errors import KafkaUnusable
from penstock.limits import (
    KAFKA_AGAIN_SECONDS_MAX,
    KAFKA_AHEAD_BYTES_MAX,
    KAFKA_READ_SECONDS_MAX,
    KAFKA_READERS_KEPT_MAX,
    KAFKA_STATE_RECORD_BYTES_MAX,
    KAFKA_TRANSACTION_SECONDS_MORE,
    KIB,
    MIB,
)
from penstock.storage.kafka.calls import Calls
from penstock.storage.kafka.closing import Closing
from penstock.storage.kafka.options import KafkaOptions

__all__ = [
    "REMOVED",
    "Connection",
    "Consumers",
    "NoAnswer",
    "PartitionTail",
    "RecordReader",
    "RecordsRemoved",
    "Refusal",
    "failure",
    "is_final",
    "settings_checked",
]

_LOGGER: Final = logging.getLogger("penstock.librdkafka")
_LOGGER.addHandler(logging.NullHandler())
_LOGGER.propagate = False  # the log's own events say what failed, and which partition
_FETCH_BYTES: Final = 4 * MIB
_CONSUMED: Final = 64
"""Records that are taken from a consumer at a time."""
_POLL_SECONDS: Final = 0.5
_TAIL_SECONDS: Final = 0.2
"""Longest wait of a reader of new records; it looks whether to stop after that."""
_RETRY_SECONDS: Final = 0.02
_SOCKET_MS: Final = 10_000
_NOWHERE: Final = (-1, -1)
_Answer = TypeVar("_Answer")


class NoAnswer(OSError):
    """Kafka did not answer in time."""


class RecordsRemoved(Exception):
    """Kafka has removed the records at an offset."""


def failure(error: KafkaException | KafkaError | str) -> OSError:
    """Return an error of Kafka as that of a disk."""
    if isinstance(error, KafkaException):
        error = error.args[0]
    if isinstance(error, KafkaError):
        error = error.str()
    return OSError(errno.EIO, f"Kafka: {error}")


class Refusal(NamedTuple):
    """Why Kafka and a client do not accept each other, and the settings to check."""

    reason: str
    remedy: str


@contextlib.contextmanager
def settings_checked(options: KafkaOptions) -> Iterator[None]:
    """Raise KafkaUnusable if librdkafka refuses a setting of a new client."""
    try:
        yield
    except KafkaException as error:
        reason, remedy = error.args[0].str(), "check the settings in [storage.kafka]"
        raise KafkaUnusable(options.bootstrap, reason, remedy) from error


class Connection:
    """Makes clients for one log, and remembers why Kafka could not be reached."""

    def __init__(self, options: KafkaOptions) -> None:
        self.options = options
        self.closing = Closing(options.location)
        """Closes the clients, so that none is waited for."""
        self.calls = Calls()
        """The calls that have not returned."""
        self._reason = ""
        self._reason_at = 0.0
        self._refusal: Refusal | None = None
        self._refusal_at = 0.0

    def _config(self, own: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
        return {
            "socket.timeout.ms": _SOCKET_MS,
            "reconnect.backoff.max.ms": 1000,
            "retry.backoff.ms": 20,
            "topic.metadata.refresh.fast.interval.ms": 50,
            "socket.nagle.disable": True,
            **self.options.settings,
            "bootstrap.servers": self.options.bootstrap,
            "error_cb": self._note,
            **own,
        }

    def _note(self, error: KafkaError) -> None:
        remedy = _REFUSALS.get(error.code())
        if remedy is not None:
            self._refusal, self._refusal_at = Refusal(error.str(), remedy), time.monotonic()
        elif error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001  (says not why)
            self._reason, self._reason_at = error.str(), time.monotonic()

    def refusal(self, seconds: float = KAFKA_READ_SECONDS_MAX) -> Refusal | None:
        """Return the last refusal of TLS or SASL in these seconds, None if there was none."""
        recent = time.monotonic() - self._refusal_at < seconds
        return self._refusal if recent else None

    def timed_out(self, seconds: float) -> OSError:
        """Return the error of an answer that did not come in time, with the last known reason."""
        refusal = self.refusal(seconds + 10)
        recent = time.monotonic() - self._reason_at < seconds + 10
        known = refusal.reason if refusal else self._reason if recent else ""
        reason = f": {known}" if known else ""
        return NoAnswer(errno.EIO, f"Kafka: no answer for {seconds:g} seconds{reason}")

    def admin(self) -> AdminClient:
        """Return a client for topics and their settings."""
        return AdminClient(self._config(), logger=_LOGGER)

    def transactional(
        self,
        record_bytes_max: int,
        *,
        node: int | None = None,
        seconds_max: float | None = None,
    ) -> Producer:
        """Return the producer of the node, which fences all earlier ones when it is initialized.

        With `node`, it is that of another node. A commit takes up to `seconds_max`, or else
        `commit_seconds_max` of the options. Kafka aborts a transaction that stays open for
        KAFKA_TRANSACTION_SECONDS_MORE longer: until then, it hides all later records of the same
        partition from readers.
        """
        seconds = self.options.commit_seconds_max if seconds_max is None else seconds_max
        transaction_ms = round(1000 * (seconds + KAFKA_TRANSACTION_SECONDS_MORE))
        own = {
            "linger.ms": 0,
            "acks": "all",
            "transactional.id": self.options.transactional_id_of(node),
            "transaction.timeout.ms": transaction_ms,
            "message.max.bytes": record_bytes_max,
            "message.timeout.ms": 0,  # the committer decides how long to wait
            "queue.buffering.max.messages": 0,  # no limit: changes of all topics may be in a commit
        }
        socket_ms = self.options.settings.get("socket.timeout.ms", str(_SOCKET_MS))
        if socket_ms.isdecimal():  # librdkafka refuses a longer one than that of the transaction
            own["socket.timeout.ms"] = min(int(socket_ms), transaction_ms - 100)
        return Producer(self._config(own), logger=_LOGGER)

    def idempotent(self) -> Producer:
        """Return a producer for records of the state topic outside transactions."""
        own = {
            "linger.ms": 0,
            "acks": "all",
            "enable.idempotence": True,
            "message.max.bytes": KAFKA_STATE_RECORD_BYTES_MAX,
        }
        return Producer(self._config(own), logger=_LOGGER)

    @contextlib.contextmanager
    def tail(self) -> Iterator["PartitionTail"]:
        """Lend a consumer that follows partitions; it is closed at the end, without a wait."""
        # Kafka answers when there is something: a longer wait costs no time, and fewer requests.
        tail = PartitionTail(self.consumer(fetch_wait_ms=500))
        try:
            yield tail
        finally:
            self.closing.close("follower", tail.close)

    def consumer(self, *, fetch_wait_ms: int = 5) -> Consumer:
        """Return a consumer of committed records, which never commits offsets."""
        return self._consumer("read_committed", fetch_wait_ms)

    def uncommitted_consumer(self) -> Consumer:
        """Return a consumer that also gets records of open and aborted transactions."""
        return self._consumer("read_uncommitted", 5)

    def _consumer(self, isolation: str, fetch_wait_ms: int) -> Consumer:
        own = {
            "group.id": self.options.group_id,
            "fetch.message.max.bytes": _FETCH_BYTES,
            "queued.max.messages.kbytes": KAFKA_AHEAD_BYTES_MAX // KIB,
            # A read elsewhere waits for the fetch that is under way.
            "fetch.wait.max.ms": fetch_wait_ms,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": isolation,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }
        return Consumer(self._config(own), logger=_LOGGER)


class RecordReader:
    """A consumer that reads committed records from any place. One thread uses it at a time.

    With `uncommitted`, it also reads records of open and aborted transactions.
    """

    def __init__(self, connection: Connection, *, uncommitted: bool = False) -> None:
        self._connection = connection
        self._consumer = connection.uncommitted_consumer() if uncommitted else connection.consumer()

    def bounds(
        self, topic: str, partition: int, *, seconds_max: float = KAFKA_READ_SECONDS_MAX
    ) -> tuple[int, int]:
        """Return Kafka's first offset, and the one after the last committed; raise OSError."""
        place = TopicPartition(topic, partition)

        def ask(left: float) -> tuple[int, int] | None:
            try:
                return self._consumer.get_watermark_offsets(place, timeout=left)
            except KafkaException as error:
                if error.args[0].code() == KafkaError._UNKNOWN_PARTITION:  # noqa: SLF001
                    # A partition that was added after the consumer had asked for them.
                    self._consumer.list_topics(topic, timeout=max(left, 1.0))
                raise

        return self._ask(ask, seconds_max)

    def bounds_if_there(
        self, topic: str, partition: int, *, seconds_max: float = KAFKA_READ_SECONDS_MAX
    ) -> tuple[int, int] | None:
        """As `bounds`; None if Kafka has no such topic or partition."""
        place = TopicPartition(topic, partition)

        def ask(left: float) -> tuple[int, int] | None:
            try:
                return self._consumer.get_watermark_offsets(place, timeout=left)
            except KafkaException as error:
                if error.args[0].code() in _UNKNOWN:
                    known = self._consumer.list_topics(topic, timeout=max(left, 0.1))
                    if partition not in known.topics[topic].partitions:
                        return _NOWHERE
                raise

        found = self._ask(ask, seconds_max)
        return None if found == _NOWHERE else found

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic; raise OSError."""
        found = self._ask(lambda left: self._consumer.list_topics(topic, timeout=left))
        return sorted(found.topics[topic].partitions)

    def has_leader(self, topic: str, partition: int) -> bool:
        """Return whether a Kafka broker leads a partition at the moment; raise OSError."""
        seconds_max = KAFKA_AGAIN_SECONDS_MAX
        found = self._ask(lambda left: self._consumer.list_topics(topic, timeout=left), seconds_max)
        return bool(found.topics[topic].partitions[partition].leader >= 0)

    def _ask(
        self,
        request: Callable[[float], _Answer | None],
        seconds_max: float = KAFKA_READ_SECONDS_MAX,
    ) -> _Answer:
        """Return the answer to a request; try again where a leader moves. Raise OSError."""
        deadline = time.monotonic() + seconds_max
        while True:
            left = deadline - time.monotonic()
            try:
                with self._connection.calls.noted():
                    answer = request(max(left, 0.1))
            except KafkaException as error:
                if not error.args[0].retriable() and error.args[0].code() not in _MOVING:
                    raise failure(error) from error
                answer = None
            if answer is not None:
                return answer
            if left <= 0:
                raise self._connection.timed_out(seconds_max)
            time.sleep(_RETRY_SECONDS)

    def records(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        end: int = 0,
        seconds_max: float = KAFKA_READ_SECONDS_MAX,
    ) -> Generator[Message, None, None]:
        """Yield the committed records from a Kafka offset on; raise RecordsRemoved or OSError.

        `end` is an end that `bounds` has returned, or the offset of a later record. After a leader
        has moved, Kafka may show fewer records for a moment; then this waits for the other records.
        """
        consumer = self._consumer
        try:
            with self._connection.calls.noted():
                consumer.assign([TopicPartition(topic, partition, offset)])
            deadline = time.monotonic() + seconds_max
            while True:
                for message in self._next():
                    error = message.error()
                    if error is None:
                        yield message
                        deadline = time.monotonic() + seconds_max
                    elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                        if (message.offset() or 0) >= end:
                            return
                    elif error.code() in REMOVED:
                        raise RecordsRemoved
                    elif is_final(error):
                        raise failure(error)
                if time.monotonic() > deadline:
                    raise self._connection.timed_out(seconds_max)
        except KafkaException as error:
            raise failure(error) from error
        finally:
            with contextlib.suppress(KafkaException, RuntimeError):
                consumer.unassign()

    def _next(self) -> list[Message]:
        """Wait for a record, and return it with those that have been fetched too."""
        with self._connection.calls.noted():
            message = self._consumer.poll(_POLL_SECONDS)
            return [] if message is None else [message, *self._consumer.consume(_CONSUMED, 0)]

    def first(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        end: int,
        seconds_max: float = KAFKA_READ_SECONDS_MAX,
    ) -> Message | None:
        """Return the first committed record from a Kafka offset on, None if there is none.

        `end` is as for `records`.
        """
        records = self.records(topic, partition, offset, end=end, seconds_max=seconds_max)
        with contextlib.closing(records):
            return next(records, None)

    def at(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        seconds_max: float = KAFKA_READ_SECONDS_MAX,
    ) -> Message:
        """Return the committed record at a Kafka offset; raise RecordsRemoved or OSError.

        It may come a little later than other records of its transaction.
        """
        deadline = time.monotonic() + seconds_max
        while True:
            records = self.records(topic, partition, offset, seconds_max=seconds_max)
            with contextlib.closing(records):
                found = next(records, None)
            if found is not None:
                if found.offset() != offset:
                    raise RecordsRemoved
                return found
            if time.monotonic() > deadline:
                raise self._connection.timed_out(seconds_max)

    def at_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """Return Kafka's first offset of a time or later, None if there is none; raise OSError."""
        place = TopicPartition(topic, partition, timestamp_ms)
        (found,) = self._ask(lambda left: self._consumer.offsets_for_times([place], timeout=left))
        if found.error is not None:
            raise failure(found.error)
        return None if found.offset < 0 else found.offset

    def close(self) -> None:
        """Disconnect, without waiting for it."""
        self._connection.closing.close("reader", self._consumer.close)


class PartitionTail:
    """A consumer that follows many partitions. One thread uses it."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def assign(self, places: Iterable[tuple[str, int, int]]) -> None:
        """Read on from these places only: topic, partition and Kafka's offset."""
        self._consumer.assign([TopicPartition(*each) for each in places])

    def next(self) -> list[Message]:
        """Wait a moment for records, and return them with errors, if there are any."""
        message = self._consumer.poll(_TAIL_SECONDS)
        return [] if message is None else [message, *self._consumer.consume(_CONSUMED, 0)]

    @staticmethod
    def is_removed(error: KafkaError) -> bool:
        """Return whether an error says that Kafka has removed the records at a place."""
        return error.code() in REMOVED

    @staticmethod
    def is_final(error: KafkaError) -> bool:
        """Return whether an error does not go away by itself."""
        return is_final(error)

    def close(self) -> None:
        """Disconnect; this may block for any time."""
        self._consumer.close()


def is_final(error: KafkaError) -> bool:
    """Return whether an error of a consumer does not go away by itself."""
    return error.fatal() or error.code() in _REFUSED


_REFUSALS: Final = MappingProxyType(
    {
        KafkaError._AUTHENTICATION: (  # noqa: SLF001
            "check sasl.mechanism, sasl.username and sasl.password in [storage.kafka]"
        ),
        KafkaError._SSL: (  # noqa: SLF001
            "check ssl.ca.location and the other settings of TLS in [storage.kafka]"
        ),
    }
)
"""Settings to check, by the code of an error of a connection."""
REMOVED: Final = frozenset(
    {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET}  # noqa: SLF001
)
"""Errors that say that Kafka has removed the records at a place."""
_MOVING: Final = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._DESTROY_BROKER,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        KafkaError._WAIT_CACHE,  # noqa: SLF001
    }
)
_UNKNOWN: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    }
)
_REFUSED: Final = _UNKNOWN | {KafkaError.TOPIC_AUTHORIZATION_FAILED}


class Consumers:
    """Readers that threads share: each uses one at a time."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._lock = threading.Lock()
        self._idle: list[RecordReader] = []
        self._closed = False

    @contextlib.contextmanager
    def take(self) -> Iterator[RecordReader]:
        """Lend a reader to the caller. One that failed is not lent again: it may fail always."""
        with self._lock:
            reader = self._idle.pop() if self._idle else None
        if reader is None:
            try:
                reader = RecordReader(self.connection)
            except KafkaException as error:
                raise failure(error) from error
        works = True
        try:
            yield reader
        except OSError:
            works = False
            raise
        finally:
            with self._lock:
                kept = works and not self._closed and len(self._idle) < KAFKA_READERS_KEPT_MAX
                if kept:
                    self._idle.append(reader)
            if not kept:
                reader.close()

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions that a topic has at the moment; raise OSError."""
        with self.take() as reader:
            return reader.partitions(topic)

    def close(self) -> None:
        """Disconnect all readers, without waiting for it."""
        with self._lock:
            idle, self._idle, self._closed = self._idle, [], True
        for reader in idle:
            reader.close()
