"""Reads of one partition in threads, for sessions that are behind."""

from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import structlog

from penstock.errors import LogDamaged, LogError, OffsetPastEnd
from penstock.ports import Fetched, TopicFilter
from penstock.storage.kafka.partition import KafkaPartition

__all__ = ["KafkaReader"]

log = structlog.get_logger("penstock.log")


class KafkaReader:
    """The `ports.LogReader` of a partition; results are posted to the event loop's thread."""

    def __init__(
        self,
        partition: KafkaPartition,
        threads: ThreadPoolExecutor,
        post: Callable[[Callable[[], None]], None],
        *,
        location: str,
    ) -> None:
        self._partition = partition
        self._threads = threads
        self._post = post
        self._location = location

    finds_last = False

    @property
    def horizon(self) -> int:
        """See ports.LogReader."""
        return self._partition.bounds.horizon

    def horizon_of(self, pattern: str) -> int:  # noqa: ARG002
        """See ports.LogReader: Kafka has one retention for all messages."""
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
        topics: TopicFilter | None = None,  # noqa: ARG002 - Kafka has no index of topics
    ) -> None:
        """See ports.LogReader. While Kafka does not answer, it is OffsetPastEnd: try again."""

        def work() -> None:
            result: Fetched | LogError
            try:
                group = self._partition.find(offset).group
                result = Fetched((group,), group.base_offset + group.count)
            except LogError as error:
                result = error
            except OSError as error:
                log.warning("kafka not read", log=self._location, error=str(error))
                result = OffsetPastEnd(offset, offset)
            except Exception as error:
                log.exception("reading failed", offset=offset)
                result = LogDamaged(offset, self.end, str(error))
            self._post(lambda: then(result))

        self._threads.submit(work)

    def find_last(self, then: "Callable[[array[int] | LogError], None]") -> None:
        """See ports.LogReader: Kafka has no index of topics."""
        then(array("q"))

    def find_time(self, timestamp_us: int, then: Callable[[int | LogError], None]) -> None:
        """See ports.LogReader."""

        def work() -> None:
            result: int | LogError
            try:
                result = self._partition.offset_at(timestamp_us)
            except LogError as error:
                result = error
            except Exception as error:
                log.exception("time lookup failed", timestamp_us=timestamp_us)
                result = LogDamaged(self.end, self.end, str(error))
            self._post(lambda: then(result))

        self._threads.submit(work)
