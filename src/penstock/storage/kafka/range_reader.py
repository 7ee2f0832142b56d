"""Reads a range of a partition from a known place, without asking for the bounds of the log.

Many processes read parts of a log at once, each with its own connection. A process that knows the
place of its first record, and the heads of its records, only has to fetch records.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from confluent_kafka.admin import AdminClient

from penstock.errors import LogDamaged, LogReplaced, OffsetBelowHorizon
from penstock.limits import KAFKA_READ_SECONDS_MAX
from penstock.ports import PartitionRange
from penstock.storage.arrow.format.segment import parse_head
from penstock.storage.kafka.client import Connection, RecordReader, RecordsRemoved
from penstock.storage.kafka.cluster_topics import find_log
from penstock.storage.kafka.log_reader import KafkaLogReader
from penstock.storage.kafka.namespace_reader import NamespaceReader
from penstock.storage.kafka.options import KafkaOptions
from penstock.storage.kafka.partition import Wants
from penstock.storage.kafka.records import BadRecord, Heads, ReferenceRecord, RowGroupRecord

__all__ = ["RangeReader"]

_ATTEMPTS_MAX: Final = 3
"""How often a place is looked up again without progress."""


class RangeReader:
    """Yields the records of ranges of one log. One thread uses it."""

    def __init__(self, options: KafkaOptions, *, log_id: int, heads: Mapping[str, bytes]) -> None:
        self._options = options
        self._log_id = log_id
        self._given = heads
        self._connection = Connection(options)
        self._reader = RecordReader(self._connection)
        self._namespaces = NamespaceReader(self._connection)
        self._heads = Heads(0, 0, self._find_head)
        self._logs: dict[bytes, int] = {}
        self._lookup: KafkaLogReader | None = None
        self._admin: AdminClient | None = None  # not before it is needed

    def close(self) -> None:
        """Disconnect."""
        self._reader.close()
        self._namespaces.close()
        if self._lookup is not None:
            self._lookup.close()
        self._connection.closing.wait()

    def records(
        self, span: PartitionRange, place: int, wants: Wants | None = None
    ) -> Iterator[RowGroupRecord]:
        """Yield the row groups with messages of a range, in order, from `place` on.

        Row groups of namespaces whose patterns are not wanted are left out. Raise LogDamaged at
        messages that cannot be read, OffsetBelowHorizon if retention removes messages meanwhile,
        LogReplaced if the topic was created anew, and OSError if Kafka does not answer.
        """
        position, attempts = span.start, 0
        while position < span.end:
            try:
                for record in self._from(span._replace(start=position), place, wants):
                    position, place = record.end_offset, record.place + 1
                    attempts = 0
                    yield record
            except RecordsRemoved:
                attempts += 1
                if attempts > _ATTEMPTS_MAX:
                    raise LogDamaged(position, span.end, "Kafka does not return them") from None
                place = self._place_after_removal(span._replace(start=position))
            except (LogDamaged, OffsetBelowHorizon):
                self._check_topic()
                raise
            else:
                if position < span.end:  # the last records were references that are not wanted
                    self._check_topic()
                return

    def _from(
        self, span: PartitionRange, place: int, wants: Wants | None
    ) -> Iterator[RowGroupRecord]:
        position, reason = span.start, ""
        for message in self._reader.records(self._options.topic, span.partition, place):
            try:
                record = self._heads.read(message)
            except BadRecord as error:
                reason = str(error)
                continue
            if isinstance(record, RowGroupRecord):
                self._check_log(record)
            if record.end_offset <= position:
                continue
            if record.base_offset > position and reason:
                raise LogDamaged(position, min(record.base_offset, span.end), reason)
            if record.base_offset >= span.end:
                return
            if isinstance(record, RowGroupRecord):
                yield record
            elif wants is None or wants(record.reference.pattern):
                yield self._resolved(span, record)
            position, reason = record.end_offset, ""
            if position >= span.end:
                return
        if reason:
            raise LogDamaged(position, span.end, reason)
        raise RecordsRemoved  # the range was there when it was planned

    def _resolved(self, span: PartitionRange, record: ReferenceRecord) -> RowGroupRecord:
        """Return the row group of a reference.

        Raise OffsetBelowHorizon if retention has removed it, LogDamaged, LogReplaced or OSError.
        """
        reference = record.reference
        try:
            message = self._namespaces.get(
                reference.topic, span.partition, reference.place, seconds_max=KAFKA_READ_SECONDS_MAX
            )
            group = self._heads.resolve(record, message)
        except RecordsRemoved:
            bounds = self._log().refresh().get(span.partition)
            horizon = max(record.end_offset, 0 if bounds is None else bounds.horizon)
            raise OffsetBelowHorizon(max(span.start, record.base_offset), horizon) from None
        except BadRecord as error:
            raise LogDamaged(record.base_offset, record.end_offset, str(error)) from error
        self._check_log(group)
        return group

    def _check_log(self, record: RowGroupRecord) -> None:
        """Raise LogReplaced if a record is of another log."""
        found = self._logs.get(record.head)
        if found is None:
            found = self._logs[record.head] = parse_head(record.head).log_id
        if self._log_id and found != self._log_id:
            raise LogReplaced(f"{self._log_id:012x}", f"{found:012x}")

    def _check_topic(self) -> None:
        """Raise LogReplaced if the topic was created anew: a reference does not name its log.

        Raise CannotReadKafka or OSError.
        """
        if not self._log_id:
            return
        if self._admin is None:
            self._admin = self._connection.admin()
        found = find_log(self._connection, self._admin).log_id
        if found != self._log_id:
            raise LogReplaced(f"{self._log_id:012x}", f"{found:012x}")

    def _place_after_removal(self, span: PartitionRange) -> int:
        """Look the place of a range up again, after Kafka has removed records at the known place.

        Raise LogReplaced, OffsetBelowHorizon or LogDamaged.
        """
        lookup = self._log()
        bounds = lookup.refresh().get(span.partition)
        if self._log_id and lookup.log_id != self._log_id:
            raise LogReplaced(f"{self._log_id:012x}", f"{lookup.log_id:012x}")
        if bounds is None or span.end > bounds.end:
            raise LogDamaged(span.start, span.end, "Kafka has lost the end of the partition")
        if span.start < bounds.horizon:
            raise OffsetBelowHorizon(span.start, bounds.horizon)
        return lookup.scanner.partition(span.partition).place_at(span.start)

    def _find_head(self, name: str) -> bytes | None:
        """Return a head that was given, or that a node of another version has written since."""
        found = self._given.get(name)
        return self._log().find_head(name) if found is None else found

    def _log(self) -> KafkaLogReader:
        if self._lookup is None:
            self._lookup = KafkaLogReader(self._options)
        return self._lookup
