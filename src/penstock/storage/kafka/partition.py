"""Reads one partition: finds the record with an offset, or walks over a range.

An *offset* is the number of a message in Penstock, a *place* the Kafka offset of a record. They
differ: a record is a row group, and Kafka counts transaction markers too. Both only grow. So the
place of an offset is found by interpolation between *anchors*, records whose offsets and places are
known. Each record that is read or written becomes an anchor.

A reference has the offsets of the row group that it names. So only readers that want its messages
read the Kafka topic of the namespace.
"""

import contextlib
import errno
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple, TypeAlias

import structlog
from confluent_kafka import Message

from penstock.errors import LogDamaged, LogError, OffsetBelowHorizon, OffsetPastEnd
from penstock.limits import (
    KAFKA_AGAIN_SECONDS_MAX,
    KAFKA_ANCHORS_MAX,
    KAFKA_BAD_RECORDS_MAX,
    KAFKA_READ_SECONDS_MAX,
    KAFKA_REFERENCE_AGAIN_SECONDS_MAX,
    KAFKA_REFERENCE_SECONDS_MAX,
    KAFKA_STEPS_BACK_MIN,
)
from penstock.ports import Bounds, DamagedRange
from penstock.storage.kafka.client import Consumers, RecordReader, RecordsRemoved
from penstock.storage.kafka.lost_references import LostReferences
from penstock.storage.kafka.namespace_reader import NamespaceReader
from penstock.storage.kafka.pause import NotAsked, Pause
from penstock.storage.kafka.record_cache import RecordCache
from penstock.storage.kafka.records import (
    BadRecord,
    Heads,
    LogRecord,
    Reference,
    ReferenceRecord,
    RowGroupRecord,
)
from penstock.storage.kafka.state import NamespaceEnd

__all__ = ["KafkaPartition", "NotAsked", "Wants"]

log = structlog.get_logger("penstock.log")


_RETRY_SECONDS: Final = 0.05

Wants: TypeAlias = Callable[[str], bool]
"""Returns whether a topic that matches a pattern may be wanted."""


class _Anchor(NamedTuple):
    """A row group, and the place of its record in Kafka."""

    base_offset: int
    end_offset: int
    place: int


class KafkaPartition:
    """The committed messages of one partition. Any thread may use it.

    `namespaces` returns the Kafka topics of all namespaces, `ends` the last row groups of this
    partition in them, as its node has stored them. Methods may block, and raise OSError if Kafka
    does not answer. All but `load_bounds` then raise NotAsked for a while: few threads read all
    partitions, and one that has no leader must not hold up the others.
    """

    def __init__(
        self,
        consumers: Consumers,
        heads: Heads,
        cache: RecordCache,
        *,
        topic: str,
        number: int,
        namespaces: Callable[[], AbstractSet[str]] = frozenset,
        ends: Callable[[], Mapping[str, NamespaceEnd]] = dict,
    ) -> None:
        self.number = number
        self._topic = topic
        self._consumers = consumers
        self._heads = heads
        self._lock = threading.Lock()
        self._anchors: list[_Anchor] = []  # in order of offsets, and of places
        self._cache = cache
        self._asked_from: dict[str, float] = {}  # when topics that did not answer are asked again
        self._pause = Pause(f"partition {number} of topic {topic!r}")
        self._lost = LostReferences(number, namespaces, ends)
        self._damage: dict[int, DamagedRange] = {}  # by first offset
        self._bad: dict[int, str] = {}  # why records cannot be read, by place
        self._first_place = 0
        self._horizon = 0
        self._end = 0
        self.last_us: int | None = None
        """Time of the last message."""
        self.last_crc = 0
        """Checksum of the last row group."""

    @contextlib.contextmanager
    def _asking(self) -> Iterator[RecordReader]:
        """Lend a reader; raise NotAsked or OSError."""
        again = self._pause.begin()
        try:
            with self._consumers.take() as reader:
                if again:
                    seconds_max = KAFKA_AGAIN_SECONDS_MAX
                    reader.bounds(self._topic, self.number, seconds_max=seconds_max)
                    self._pause.end()
                    again = False
                yield reader
        except OSError:
            self._pause.failed(again=again)
            raise

    # --- Bounds -----------------------------------------------------------------------------------

    @property
    def bounds(self) -> Bounds:
        """The readable offsets that are known without asking Kafka."""
        with self._lock:
            return Bounds(min(max(self._horizon, self._lost.end), self._end), self._end)

    def load_bounds(self, *, end_min: int = 0) -> int:
        """Ask Kafka for the first and the last message; an empty partition begins at `end_min`.

        Return the place after the last record.
        """
        with self._consumers.take() as reader:
            first, end = reader.bounds(self._topic, self.number)
            last = self._last(reader, first, end)
            known = self._knows_first(first)
            oldest = None if last is None or known else self._first_good(reader, first, end)
            self._lost.find(reader)
            self._lost.load(reader)
        with self._lock:
            if last is None:
                self._end = max(self._end, end_min)
                self._horizon = self._end
            else:
                if last.end_offset >= self._end:  # no other thread has added later ones
                    self.last_us, self.last_crc = last.latest_us, last.crc32c
                self._end = max(self._end, last.end_offset)
                if not known:
                    self._horizon = self._end if oldest is None else oldest.base_offset
            self._first_place = first
        self._pause.end()
        for record in (oldest, last):
            if record is not None:
                self._note(record)
        return end

    def _knows_first(self, place: int) -> bool:
        """Return whether the first record, at a place, is the first anchor already."""
        with self._lock:
            first = self._anchors[0] if self._anchors else None
            if first is None or place != self._first_place:
                return False
            return first.base_offset == self._horizon

    def load_horizon(self) -> int:
        """Ask Kafka for the first message that it still has; return the place of its record."""
        with self._asking() as reader:
            first, end = reader.bounds(self._topic, self.number)
            self._lost.load(reader)
            if first == self._first_place:
                return first
            oldest = self._first_good(reader, first, end) if first < end else None
        with self._lock:
            self._first_place = first
            self._horizon = self._end if oldest is None else oldest.base_offset
            self._anchors = [each for each in self._anchors if each.place >= first]
        return first

    def end_place(self, *, seconds_max: float = KAFKA_READ_SECONDS_MAX) -> int:
        """Ask Kafka for the place after the last committed record."""
        with self._asking() as reader:
            return reader.bounds(self._topic, self.number, seconds_max=seconds_max)[1]

    def has_leader(self) -> bool:
        """Ask Kafka whether one of its brokers leads the partition."""
        with self._consumers.take() as reader:
            return reader.has_leader(self._topic, self.number)

    def committed_end(self, place: int) -> int:
        """Ask Kafka for the end of the last message; records before `place` were read already.

        The bounds do not change: they are those of the messages that were read.
        """
        with self._asking() as reader:
            first, end = reader.bounds(self._topic, self.number)
            last = self._last(reader, max(first, place), end)
        return self.bounds.end if last is None else max(self.bounds.end, last.end_offset)

    @property
    def first_place(self) -> int:
        """The place of the first record when Kafka was last asked."""
        return self._first_place

    def last_of(self, topic: str) -> NamespaceEnd | None:
        """Return this partition's last row group in a namespace's topic; None if there is none.

        Kafka has KAFKA_REFERENCE_SECONDS_MAX to say where it is.
        """
        with self._consumers.take() as reader:
            seconds_max = KAFKA_REFERENCE_SECONDS_MAX
            first, end = reader.bounds(topic, self.number, seconds_max=seconds_max)
            found = self._last(reader, first, end, topic)
        return None if found is None else NamespaceEnd(found.place, found.end_offset)

    def _last(
        self, reader: RecordReader, first: int, end: int, topic: str = ""
    ) -> LogRecord | None:
        """Return the last readable record of a Kafka topic; None if there is none.

        `topic` is that of a namespace; without it, the first topic is read.
        """
        steps = KAFKA_STEPS_BACK_MIN
        while end > first:
            start = max(end - steps, first)
            found = None
            for message in reader.records(topic or self._topic, self.number, start, end=end):
                try:
                    found = self._heads.read(message)
                except BadRecord as error:
                    if not topic:
                        self.tell(message.offset(), error)
            if found is not None or start <= first:
                return found
            steps *= 8
        return None

    def _first_good(self, reader: RecordReader, place: int, end: int) -> LogRecord | None:
        """Return the first readable record from a place on; None if there is none.

        `end` is the place after a record that is known to be in Kafka.
        """
        for message in reader.records(self._topic, self.number, place, end=end):
            try:
                return self._heads.read(message)
            except BadRecord as error:
                self.tell(message.offset(), error)
        return None

    # --- New records ------------------------------------------------------------------------------

    def add(self, record: LogRecord) -> None:
        """Note a committed record; the end moves behind it if it is the last one."""
        self._pause.end()
        self._note(record)
        with self._lock:
            if record.end_offset <= self._end:
                return  # another thread has read more meanwhile
            if self._horizon >= self._end and not self._has_messages():
                self._horizon = record.base_offset
            self._end = record.end_offset
            self.last_us, self.last_crc = record.latest_us, record.crc32c

    def _has_messages(self) -> bool:
        return bool(self._anchors) and self._anchors[0].base_offset < self._end

    def _note(self, record: LogRecord) -> None:
        """Add a record to the anchors, and to the cache."""
        self._note_place(record)
        if isinstance(record, RowGroupRecord):
            self._cache.put(self.number, record)
        else:
            self._lost.note_topic(record)

    # --- Finding ----------------------------------------------------------------------------------

    def check(self, start: int, end: int) -> None:
        """Raise OffsetBelowHorizon or OffsetPastEnd if a range is outside the bounds."""
        bounds = self.bounds
        if start < bounds.horizon:
            raise OffsetBelowHorizon(start, bounds.horizon)
        if end > bounds.end:
            raise OffsetPastEnd(end, bounds.end)

    def find(self, offset: int) -> RowGroupRecord:
        """Return the row group with `offset`, or the first after it.

        Raise OffsetBelowHorizon, OffsetPastEnd or LogDamaged.
        """
        found = self.find_record(offset)
        return found if isinstance(found, RowGroupRecord) else self.fetch(found)

    def fetch(self, record: ReferenceRecord) -> RowGroupRecord:
        """Return the row group of a reference; raise as `resolve` does, or NotAsked.

        A few threads read for all sessions. So when Kafka has not returned a record, one of them
        asks again for that namespace, after a pause and for a moment.
        """
        topic, seconds_max = record.reference.topic, KAFKA_READ_SECONDS_MAX
        with self._lock:
            now, until = time.monotonic(), self._asked_from.get(topic)
            if until is not None:
                if now < until:
                    raise NotAsked(errno.EIO, f"Kafka: no answer for topic {topic!r} so far")
                seconds_max = min(seconds_max, KAFKA_REFERENCE_AGAIN_SECONDS_MAX)
                self._asked_from[topic] = now + KAFKA_READ_SECONDS_MAX

        def get(each: Reference) -> Message:
            return reader.at(each.topic, self.number, each.place, seconds_max=seconds_max)

        try:
            with self._consumers.take() as reader:
                found = self.resolve(record, get)
        except OSError:
            with self._lock:
                self._asked_from[topic] = time.monotonic() + KAFKA_REFERENCE_SECONDS_MAX
            raise
        except LogError:
            with self._lock:
                self._asked_from.pop(topic, None)
            raise
        with self._lock:
            self._asked_from.pop(topic, None)
        return found

    def find_record(self, offset: int) -> LogRecord:
        """As `find`, but return a reference if its row group is not in the cache."""
        self.check(offset, offset + 1)
        cached = self._cached(offset)
        if cached is not None:
            return cached
        try:
            with self._asking() as reader:
                record = self._search(reader, offset)
        except RecordsRemoved:
            self.load_horizon()
            self.check(offset, offset + 1)
            raise OffsetBelowHorizon(offset, self.bounds.horizon) from None
        if record is None:
            raise OffsetPastEnd(offset, self.bounds.end)
        if record.base_offset > offset:
            self._check_damage(offset, record)
        self._note(record)
        return record

    def _shown(self, offset: int) -> LogRecord:
        """As `find_record`, but wait for a record that Kafka does not show yet; raise OSError.

        Kafka shows the records of a transaction a moment after it has said that it is committed.
        """
        deadline = time.monotonic() + KAFKA_READ_SECONDS_MAX
        while True:
            try:
                return self.find_record(offset)
            except OffsetPastEnd:
                if offset >= self.bounds.end:
                    raise
            if time.monotonic() > deadline:
                raise self._consumers.connection.timed_out(KAFKA_READ_SECONDS_MAX)
            time.sleep(_RETRY_SECONDS)

    def resolve(
        self, record: ReferenceRecord, get: Callable[[Reference], Message]
    ) -> RowGroupRecord:
        """Return the row group of a reference; `get` reads the record that the reference names.

        Raise OffsetBelowHorizon if retention has removed it, LogDamaged or OSError.
        """
        try:
            group = self._heads.resolve(record, get(record.reference))
        except RecordsRemoved:
            self.load_horizon()
            self._lost.note_lost(record)
            raise OffsetBelowHorizon(record.base_offset, self.bounds.horizon) from None
        except BadRecord as error:
            self.tell(record.place, error)
            self._note_damage(record.base_offset, record.end_offset, str(error))
            raise LogDamaged(record.base_offset, record.end_offset, str(error)) from error
        return self.keep(group)

    def keep(self, group: RowGroupRecord) -> RowGroupRecord:
        """Add the row group of a reference to the cache; return it."""
        self._cache.put(self.number, group)
        return group

    def _check_damage(self, offset: int, record: LogRecord) -> None:
        """Raise LogDamaged if unreadable records before `record` are why `offset` is missing."""
        with self._lock:
            low = self._below(offset)
            first = -1 if low is None else low.place
            reasons = [self._bad[place] for place in self._bad if first < place < record.place]
        if reasons:
            self._note_damage(offset, record.base_offset, reasons[0])
            raise LogDamaged(offset, record.base_offset, reasons[0])

    def _cached(self, offset: int) -> RowGroupRecord | None:
        """Return the row group with `offset` if it is in the cache."""
        with self._lock:
            low = self._below(offset)
        if low is None or low.end_offset <= offset:
            return None
        return self._cache.get(self.number, low.place)

    def _below(self, offset: int) -> _Anchor | None:
        """Return the last anchor that starts at or before an offset."""
        index = bisect_right(self._anchors, offset, key=_base_offset)
        return self._anchors[index - 1] if index else None

    def _search(self, reader: RecordReader, offset: int) -> LogRecord | None:
        """Return the record with an offset, or the first after it; None if there is none."""
        with self._lock:
            low = self._below(offset)
            index = bisect_right(self._anchors, offset, key=_base_offset)
            high = self._anchors[index] if index < len(self._anchors) else None
            first, horizon, end = self._first_place, self._horizon, self._end
        if low is not None and offset < low.end_offset:
            return self._first_good(reader, low.place, low.place + 1)
        # The record is at `place` or later, or else it is the first from `top` on.
        place, low_offset = (first, horizon) if low is None else (low.place + 1, low.end_offset)
        if high is None:
            top, high_offset = reader.bounds(self._topic, self.number)[1], end
            last = top
        else:
            top, high_offset = high.place, high.base_offset
            last = top + 1
        following = None
        interpolates = True
        while place < top:
            share = (offset - low_offset) / max(high_offset - low_offset, 1)
            share = min(max(share, 0.0), 1.0) if interpolates else 0.5
            interpolates = not interpolates  # by halves too: groups may differ much in size
            middle = min(place + int((top - place) * share), top - 1)
            record = self._first_good(reader, middle, last)
            if record is None or record.base_offset > offset:
                top, following = middle, record
                high_offset = high_offset if record is None else record.base_offset
            elif offset < record.end_offset:
                return record
            else:
                self._note_place(record)
                place, low_offset = record.place + 1, record.end_offset
        return following or self._first_good(reader, top, last)

    def _note_place(self, record: LogRecord) -> None:
        """Add a record to the anchors, but not to the cache."""
        anchor = _Anchor(record.base_offset, record.end_offset, record.place)
        with self._lock:
            anchors = self._anchors
            index = bisect_left(anchors, anchor)
            if index == len(anchors) or anchors[index].base_offset != anchor.base_offset:
                anchors.insert(index, anchor)
            if len(anchors) > KAFKA_ANCHORS_MAX:
                del anchors[1:-1:2]  # every other one; records between the rest are searched

    # --- Walking ----------------------------------------------------------------------------------

    def walk(self, start: int, end: int, wants: Wants | None = None) -> Iterator[RowGroupRecord]:
        """Yield the row groups with messages from `start` up to `end`, in order.

        Row groups of namespaces whose patterns are not wanted are left out. Raise LogDamaged at
        messages that cannot be read, OffsetBelowHorizon if retention removes messages meanwhile.
        """
        for record in self.walk_records(start, end, wants):
            if isinstance(record, RowGroupRecord):
                yield record

    def walk_records(
        self, start: int, end: int, wants: Wants | None = None
    ) -> Generator[LogRecord, None, None]:
        """As `walk`, but yield the references to row groups that are not wanted."""
        position = start
        while position < end:
            record = self._cached(position)
            if record is None:
                yield from self._resolved(position, end, wants)
                return
            yield record
            position = record.end_offset

    def _resolved(self, start: int, end: int, wants: Wants | None) -> Iterator[LogRecord]:
        """Yield records from Kafka, with the row group in place of each wanted reference."""
        data: NamespaceReader | None = None
        try:
            for record in self._stream(start, end):
                if isinstance(record, RowGroupRecord) or not (
                    wants is None or wants(record.reference.pattern)
                ):
                    yield record
                    continue
                if data is None:
                    data = NamespaceReader(self._consumers.connection)
                reading = data

                def get(each: Reference, reading: NamespaceReader = reading) -> Message:
                    return reading.get(
                        each.topic, self.number, each.place, seconds_max=KAFKA_READ_SECONDS_MAX
                    )

                yield self.resolve(record, get)
        finally:
            if data is not None:
                data.close()

    def _stream(self, start: int, end: int) -> Iterator[LogRecord]:
        """Yield the records of a range from Kafka, without adding them to the cache."""
        position = start
        while position < end:
            first = self._shown(position)
            if first.base_offset >= end:
                return
            yield first
            position = first.end_offset
            if position < end:
                for record in self._stream_from(first.place + 1, position, end):
                    yield record
                    position = record.end_offset

    def _stream_from(self, place: int, position: int, end: int) -> Iterator[LogRecord]:
        """Yield the records that Kafka shows from a place on, up to an offset."""
        reason = ""
        try:
            with self._consumers.take() as reader:
                for message in reader.records(self._topic, self.number, place):
                    try:
                        record = self._heads.read(message)
                    except BadRecord as error:
                        self.tell(message.offset(), error)
                        reason = str(error)
                        continue
                    if record.base_offset > position and reason:
                        self._note_damage(position, record.base_offset, reason)
                        raise LogDamaged(position, min(record.base_offset, end), reason)
                    if record.base_offset >= end:
                        return
                    self._note_place(record)
                    yield record
                    position, reason = record.end_offset, ""
                    if position >= end:
                        return
        except RecordsRemoved:
            self.load_horizon()
            raise OffsetBelowHorizon(position, self.bounds.horizon) from None

    def place_at(self, offset: int) -> int:
        """Return the place of the record with an offset, or of the first after it."""
        with self._lock:
            low = self._below(offset)
            if low is not None and offset < low.end_offset:
                return low.place
        return self._shown(offset).place

    def offset_after_place(self, place: int) -> int:
        """Return the first offset of the first record from a place on, or the end."""
        with self._lock:
            index = bisect_left(self._anchors, place, key=lambda each: each.place)
            if 0 < index < len(self._anchors):
                before, anchor = self._anchors[index - 1 : index + 1]
                if anchor.place == place or before.end_offset == anchor.base_offset:
                    return anchor.base_offset  # there is no record between the two
        with self._asking() as reader:
            end = reader.bounds(self._topic, self.number)[1]
            record = self._first_good(reader, place, end)
        if record is None:
            return self.bounds.end
        self._note_place(record)
        return record.base_offset

    def offset_at(self, timestamp_us: int) -> int:
        """Return the first offset taken at or after a time, or the end."""
        end = self.bounds.end
        last = self.end_place()
        with self._consumers.take() as reader:
            # Kafka regards the times of markers too, so its answer may be an earlier place.
            place = reader.at_time(self._topic, self.number, max(timestamp_us, 0) // 1000)
            if place is None:
                return end
            for message in reader.records(self._topic, self.number, place, end=last):
                try:
                    record = self._heads.read(message)
                except BadRecord as error:
                    self.tell(message.offset(), error)
                    continue
                row = self._row_at_time(record, timestamp_us)
                if row is not None:
                    return min(record.base_offset + row, end)
                if record.end_offset >= end:
                    break
        return end

    def _row_at_time(self, record: LogRecord, timestamp_us: int) -> int | None:
        """Return the first row taken at or after a time; None if there is none, or if it is lost.

        The row is counted from the first message of the record.
        """
        if isinstance(record, ReferenceRecord):
            if record.latest_us < timestamp_us:
                return None
            try:
                record = self.fetch(record)
            except (OffsetBelowHorizon, LogDamaged):
                return None
        row = record.group.row_at_time(timestamp_us)
        return row if row < record.group.count else None

    # --- Damage -----------------------------------------------------------------------------------

    def damage(self, start: int, end: int) -> list[DamagedRange]:
        """Return the damage that was found in a range, in order."""
        with self._lock:
            found = sorted(self._damage.values())
        return [each for each in found if each.first_offset < end and each.resumes_at > start]

    def _note_damage(self, start: int, end: int, reason: str) -> None:
        with self._lock:
            self._damage[start] = DamagedRange(start, end, reason)

    def tell(self, place: int | None, error: BadRecord) -> None:
        """Log a record that cannot be read, once."""
        with self._lock:
            if place is None or place in self._bad or len(self._bad) >= KAFKA_BAD_RECORDS_MAX:
                return
            self._bad[place] = str(error)
        log.error(
            "record cannot be read",
            topic=self._topic,
            partition=self.number,
            kafka_offset=place,
            error=str(error),
        )


def _base_offset(anchor: _Anchor) -> int:
    return anchor.base_offset
