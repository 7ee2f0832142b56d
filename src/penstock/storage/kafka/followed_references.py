"""References to row groups of namespaces that a follower reads, or passes over."""

import time
from collections.abc import Callable, Collection
from typing import NamedTuple

import structlog

from penstock.limits import (
    KAFKA_REFERENCE_AGAIN_SECONDS_MAX,
    KAFKA_REFERENCE_PAUSE_SECONDS_MAX,
    KAFKA_REFERENCE_SECONDS_MAX,
)
from penstock.storage.kafka.client import RecordsRemoved
from penstock.storage.kafka.namespace_reader import NamespaceReader
from penstock.storage.kafka.partition import KafkaPartition
from penstock.storage.kafka.records import BadRecord, Heads, ReferenceRecord, RowGroupRecord

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
            try:
                self._tell(number, first, end, patterns)
            except Exception:  # one partition must not end the reports of all others
                log.exception("followed messages failed", partition=number, offset=first)


class _Pause(NamedTuple):
    """When a pause ends, and how long it is."""

    until: float
    seconds: float


class FollowedReferences:
    """Reads the row groups of references, in the thread of a follower.

    `step` is called after each call of librdkafka. After a failure, no row group of the same
    namespace and partition is read for a while, so that other partitions do not wait again and
    again. The pauses grow, so that the waits for any number of them take a small share of the time.
    """

    def __init__(self, heads: Heads, location: str, step: Callable[[], None]) -> None:
        self._heads = heads
        self._location = location
        self._step = step
        self._pauses: dict[tuple[str, int], _Pause] = {}  # of those that failed the last time

    def read(
        self, partition: KafkaPartition, data: NamespaceReader, record: ReferenceRecord
    ) -> RowGroupRecord | None:
        """Return the row group of a reference; None if Kafka does not return it soon."""
        reference, number = record.reference, partition.number
        key = reference.topic, number
        pause = self._pauses.get(key)
        if pause is not None and pause.until > time.monotonic():
            return None
        seconds_max = KAFKA_REFERENCE_SECONDS_MAX
        if self._pauses:
            seconds_max = min(seconds_max, KAFKA_REFERENCE_AGAIN_SECONDS_MAX)
        seconds = KAFKA_REFERENCE_SECONDS_MAX
        reason: Exception
        try:
            message = data.get(*key, reference.place, seconds_max=seconds_max, step=self._step)
            group = partition.keep(self._heads.resolve(record, message))
        except BadRecord as error:
            partition.tell(record.place, error)
            reason = error
        except RecordsRemoved as error:
            reason = error
        except OSError as error:
            if pause is not None:
                seconds = min(2 * pause.seconds, KAFKA_REFERENCE_PAUSE_SECONDS_MAX)
            reason = error
        else:
            self._pauses.pop(key, None)
            return group
        self._step()
        self._pauses[key] = _Pause(time.monotonic() + seconds, seconds)
        log.warning(
            "reference not read",
            log=self._location,
            partition=number,
            topic=reference.topic,
            kafka_offset=reference.place,
            error=str(reason) or "Kafka has removed it",
        )
        return None
