"""References to row groups of namespaces that a follower reads, or passes over."""

import time
from collections.abc import Callable, Collection

import structlog

from penstock.limits import KAFKA_REFERENCE_SECONDS_MAX
from penstock.storage.kafka.client import RecordsRemoved
from penstock.storage.kafka.namespace_reader import NamespaceReader
from penstock.storage.kafka.partition import KafkaPartition
from penstock.storage.kafka.records import BadRecord, GroupRecord, Heads, ReferenceRecord

__all__ = ["FollowedReferences", "PassedReferences"]

log = structlog.get_logger("penstock.log")


class PassedReferences:
    """References that were passed over, one range for each partition.

    Calling it in the event loop's thread calls `tell` with each partition's number, the first
    offset, the end and the patterns.
    """

    def __init__(self, tell: Callable[[int, int, int, Collection[str]], None]) -> None:
        self._tell = tell
        self._ranges: dict[int, tuple[int, int, set[str]]] = {}

    def add(self, number: int, record: ReferenceRecord) -> None:
        """Add a reference that follows the others of its partition."""
        first, _, patterns = self._ranges.get(number, (record.base_offset, 0, set()))
        patterns.add(record.reference.pattern)
        self._ranges[number] = first, record.end_offset, patterns

    def __call__(self) -> None:
        """Report the ranges, in the event loop's thread."""
        for number, (first, end, patterns) in self._ranges.items():
            self._tell(number, first, end, patterns)


class FollowedReferences:
    """Reads the row groups of references, in the thread of a follower.

    `step` is called after each call of librdkafka. After a failure, no row group of the same
    namespace and partition is read for KAFKA_REFERENCE_SECONDS_MAX, so that other partitions do not
    wait again and again.
    """

    def __init__(self, heads: Heads, location: str, step: Callable[[], None]) -> None:
        self._heads = heads
        self._location = location
        self._step = step
        self._fails_until: dict[tuple[str, int], float] = {}

    def read(
        self, partition: KafkaPartition, data: NamespaceReader, record: ReferenceRecord
    ) -> GroupRecord | None:
        """Return the row group of a reference; None if Kafka does not return it soon."""
        reference, number = record.reference, partition.number
        key = reference.topic, number
        if self._fails_until.get(key, 0.0) > time.monotonic():
            return None
        reason: Exception
        try:
            message = data.get(
                *key, reference.place, seconds_max=KAFKA_REFERENCE_SECONDS_MAX, step=self._step
            )
            return partition.keep(self._heads.resolve(record, message))
        except BadRecord as error:
            partition.tell(record.place, error)
            reason = error
        except (OSError, RecordsRemoved) as error:
            reason = error
        self._step()
        self._fails_until[key] = time.monotonic() + KAFKA_REFERENCE_SECONDS_MAX
        log.warning(
            "reference not read",
            log=self._location,
            partition=number,
            topic=reference.topic,
            kafka_offset=reference.place,
            error=str(reason) or "Kafka has removed it",
        )
        return None
