"""Reads of one partition in threads, for sessions that are behind."""

import contextlib
import itertools
import threading
from array import array
from collections.abc import Callable

import structlog

from penstock.errors import LogDamaged, LogError, OffsetPastEnd
from penstock.limits import (
    KAFKA_BAD_RECORDS_MAX,
    KAFKA_REFERENCES_PASSED_MAX,
    KAFKA_TAKE_ATTEMPTS_MAX,
)
from penstock.ports import Fetched, LastFound, TopicFilter
from penstock.storage.kafka.partition import KafkaPartition, NotAsked
from penstock.storage.kafka.reader_threads import ReaderThreads
from penstock.storage.kafka.records import RowGroupRecord

__all__ = ["KafkaReader"]

log = structlog.get_logger("penstock.log")


def _fetched(record: RowGroupRecord) -> Fetched:
    return Fetched((record.group,), record.end_offset)


class KafkaReader:
    """The `ports.LogReader` of a partition; results are posted to the event loop's thread."""

    def __init__(
        self,
        partition: KafkaPartition,
        threads: ReaderThreads,
        post: Callable[[Callable[[], None]], None],
        *,
        location: str,
    ) -> None:
        self._partition = partition
        self._threads = threads
        self._post = post
        self._location = location
        self._lock = threading.Lock()
        self._attempts: dict[int, int] = {}  # reads that failed, by offset

    finds_last = False

    @property
    def horizon(self) -> int:
        """See ports.LogReader."""
        return self._partition.bounds.horizon

    def horizon_of(self, pattern: str) -> int:  # noqa: ARG002
        """See ports.LogReader: Kafka has one retention for all messages."""
        return self.horizon

    def expired_below(self, pattern: str) -> int:  # noqa: ARG002
        """See ports.LogReader."""
        return self.horizon

    @property
    def expiry(self) -> object:
        """See ports.LogReader."""
        return None

    @property
    def end(self) -> int:
        """See ports.LogReader."""
        return self._partition.bounds.end

    def fetch(
        self,
        offset: int,
        then: Callable[[Fetched | LogError], None],
        topics: TopicFilter | None = None,
    ) -> None:
        """See ports.LogReader. Only row groups of namespaces are left out: Kafka has no index.

        While Kafka does not answer, the error is OffsetPastEnd, after which callers try again. The
        same applies to unexpected errors. If a read fails KAFKA_TAKE_ATTEMPTS_MAX times, its row
        group counts as damaged.
        """

        def work() -> None:
            result: Fetched | LogError
            try:
                result = self._find(offset, topics)
                if self._attempts:
                    self._attempts.pop(offset, None)
            except LogError as error:
                result = error
            except OSError as error:
                result = self._not_read(offset, error)
            except Exception as error:
                log.exception("reading failed", offset=offset)
                result = self._failed(offset, error)
            self._post(lambda: then(result))

        self._threads.submit(work)

    def _not_read(self, offset: int, error: OSError) -> LogError:
        """Return the error of a read that Kafka did not answer."""
        if not isinstance(error, NotAsked):
            log.warning("kafka not read", log=self._location, error=str(error))
        return OffsetPastEnd(offset, offset)

    def _failed(self, offset: int, error: Exception) -> LogError:
        """Return the error of a read that failed by a bug, or for lack of memory."""
        with self._lock:
            if len(self._attempts) >= KAFKA_BAD_RECORDS_MAX:
                self._attempts.clear()
            attempts = self._attempts[offset] = self._attempts.get(offset, 0) + 1
        if attempts >= KAFKA_TAKE_ATTEMPTS_MAX and not isinstance(error, MemoryError):
            with contextlib.suppress(Exception):  # without the end of the row group, try again
                end = self._partition.find_record(offset).end_offset
                with self._lock:
                    self._attempts.pop(offset, None)
                return LogDamaged(offset, end, str(error))
        return OffsetPastEnd(offset, offset)

    def _find(self, offset: int, topics: TopicFilter | None) -> Fetched:
        """Return the first wanted row group at or after an offset; raise LogError or OSError.

        Without one among KAFKA_REFERENCES_PASSED_MAX references, return no row group and the offset
        to continue from.
        """
        partition = self._partition
        record = partition.find_record(offset)
        if isinstance(record, RowGroupRecord):
            return _fetched(record)
        if topics is None or topics.overlaps(record.reference.pattern):
            return _fetched(partition.fetch(record))
        passed = record.end_offset
        walk = partition.walk_records(passed, partition.bounds.end, topics.overlaps)
        with contextlib.closing(walk) as records, contextlib.suppress(LogError, OSError):
            for each in itertools.islice(records, KAFKA_REFERENCES_PASSED_MAX):
                if isinstance(each, RowGroupRecord):
                    return _fetched(each)
                passed = each.end_offset
        return Fetched((), passed)  # the next call continues, or raises the error

    def find_last(
        self,
        then: Callable[[LastFound | LogError], None],
        known: LastFound | None = None,  # noqa: ARG002
    ) -> None:
        """See ports.LogReader: Kafka has no index of topics."""
        then(LastFound(array("q"), 0))

    def find_time(self, timestamp_us: int, then: Callable[[int | LogError], None]) -> None:
        """See ports.LogReader."""

        def work() -> None:
            result: int | LogError
            try:
                result = self._partition.offset_at(timestamp_us)
            except LogError as error:
                result = error
            except OSError as error:
                result = self._not_read(self.end, error)
            except Exception as error:
                log.exception("time lookup failed", timestamp_us=timestamp_us)
                result = LogDamaged(self.end, self.end, str(error))
            self._post(lambda: then(result))

        self._threads.submit(work)
