"""Dead letters: messages that a group could not process, in the topic `dead/<group>`.

A dead letter has the value and the headers of the message, and these headers:

    penstock-dead-reason       why its last delivery failed
    penstock-dead-deliveries   how many deliveries failed
    penstock-dead-topic        its topic
    penstock-dead-partition    its partition
    penstock-dead-offset       its offset

They are written at a limited rate, and their bytes count against the quota of the group's owner. At
either limit they wait: their messages stay unacknowledged.
"""

from collections.abc import Callable, Iterator
from typing import Final

import structlog

from penstock._kernels.batch import Batch, Sender
from penstock._kernels.topics import TopicTable
from penstock.core.groups.dead_letter_rates import DeadLetterRates
from penstock.core.groups.group import Group
from penstock.core.groups.ledger import Failure
from penstock.core.groups.places import PlacedReader, offset_of, partition_of
from penstock.core.groups.repeated_events import RepeatedEvents
from penstock.core.quotas import Quota, Reached
from penstock.core.sessions import sender_uuid
from penstock.core.timers import Timers
from penstock.errors import CallerError, LogDamaged, LogError, OffsetBelowHorizon, PenstockError
from penstock.limits import GROUP_READ_RETRY_SECONDS
from penstock.model import ByteOrder, Form, Kind, is_reserved_header
from penstock.ports import Clock, Fetched, Record, Stored
from penstock.protocols import PROTOCOLS, SOURCES, Protocol, Source

__all__ = ["DeadLetters"]

log = structlog.get_logger("penstock.groups")

_BROKER_NUMBER: Final = 1
_BROKER: Final = Sender(sender_uuid(_BROKER_NUMBER), _BROKER_NUMBER)
_BY_NUMBER: Final[dict[int, Source]] = {source.number: source for source in SOURCES.values()}


class DeadLetters:
    """Writes the dead letters of all groups, one after the other for each owner of groups."""

    def __init__(
        self,
        *,
        reader: PlacedReader,
        topics: TopicTable,
        clock: Clock,
        timers: Timers,
        publish: Callable[[Record, Callable[[bool], None]], None],
        quota_of: Callable[[str], Quota | None],
        quota_reached: Reached,
        changed: Callable[[Group], None],
    ) -> None:
        """`publish` writes a record and delivers it; it raises PenstockError.

        `quota_of` returns the quota of the owner of a group, None if it has none.
        """
        self._reader = reader
        self._topics = topics
        self._clock = clock
        self._timers = timers
        self._publish = publish
        self._quota_of = quota_of
        self._quota_reached = quota_reached
        self._rates = DeadLetterRates(clock, timers)
        self._changed = changed
        self._batch = Batch()
        self.dead = RepeatedEvents("message dead", timers)
        """Log events of messages that are dead."""
        self.waiting = RepeatedEvents("dead letters wait", timers)
        """Log events of groups whose owner has no room in the log."""

    def bury(self, group: Group) -> None:
        """Write the dead letters of a group, if it has some."""
        if group.is_burying or group.is_removed or not group.ledger.buried:
            return
        group.is_burying = True
        self._rates.begin(_owner(group), lambda: self._begin(group))

    def _begin(self, group: Group) -> None:
        """Write the first dead letter of a group, whose turn it is."""
        offset = next(iter(group.ledger.buried), None)
        if offset is None or group.is_removed:  # the group was reset
            self._rates.end(_owner(group), 0)
            self._next(group)
        elif self._has_room(group):
            self._reader.fetch(offset, lambda result: self._fetched(group, offset, result))
        else:
            self._rates.end(_owner(group), 0)
            self._retry(group)

    def _has_room(self, group: Group) -> bool:
        """Return whether the owner of a group may have more bytes in the log."""
        quota = self._quota_of(group.owner)
        if quota is None or not quota.is_full:
            return True
        error = quota.exceeded(self._clock.monotonic(), self._quota_reached)
        self.waiting.warn(group.name, messages=len(group.ledger.buried), error=str(error))
        return False

    def _fetched(self, group: Group, offset: int, result: Fetched | LogError) -> None:
        failure = group.ledger.buried.get(offset)
        size = 0
        if failure is None or group.is_removed:  # the group was reset
            self._next(group)
        elif isinstance(result, OffsetBelowHorizon | LogDamaged):
            self._lose(group, offset, str(result))
        elif isinstance(result, LogError):
            self._again(group, str(result))
        else:
            stored = next((each for each in result.groups if _has(each, offset)), None)
            if stored is None:
                self._lose(group, offset, "its messages have expired")
            else:
                size = self._write(group, offset, failure, stored)
        self._rates.end(_owner(group), size)

    def _write(self, group: Group, offset: int, failure: Failure, stored: Stored) -> int:
        """Write the dead letter of a message; return its bytes, 0 if it was not written."""

        def written(is_safe: bool) -> None:  # noqa: FBT001  (of Broker.when_settled)
            if is_safe:
                group.ledger.is_dead(offset)
                self.dead.warn(
                    group.name,
                    offset=offset_of(offset),
                    deliveries=failure.failures,
                    reason=failure.reason,
                )
                self._next(group)
            else:
                self._again(group, "it could not be written")

        try:
            record = self._record(group, offset, failure, stored)
        except (ValueError, CallerError) as error:
            self._lose(group, offset, str(error))
            return 0
        if record is None:
            row = offset - stored.base_offset
            lost = stored.expired(None, _everything, first=row, last=row + 1)
            self._lose(group, offset, "it has expired" if lost else "its topic was deleted", lost)
            return 0
        try:
            self._publish(record, written)
        except PenstockError as error:
            self._again(group, str(error))
            return 0
        headers = sum(len(key) + len(value) for key, value in record.headers)
        size = len(record.topic) + headers + len(record.value)
        quota = self._quota_of(group.owner)
        if quota is not None and quota.stored is not None:
            quota.stored.add(0, size)  # it is in the log already
        return size

    def _lose(self, group: Group, offset: int, error: str, lost: int = 1) -> None:
        """Give up a message that cannot be read any more, and go on with the next one."""
        lost = min(lost, group.ledger.drop_waiting(offset, offset + 1))
        group.lost += lost
        where = offset_of(offset)
        log.warning("dead letter lost", group=group.name, offset=where, error=error)
        self._next(group)

    def _next(self, group: Group) -> None:
        group.is_burying = False
        self._changed(group)
        self.bury(group)

    def _again(self, group: Group, error: str) -> None:
        log.warning("dead letter not written", group=group.name, error=error)
        self._retry(group)

    def _retry(self, group: Group) -> None:
        def retry() -> None:
            group.is_burying = False
            self.bury(group)

        self._timers.after(GROUP_READ_RETRY_SECONDS, retry)

    def _record(self, group: Group, offset: int, failure: Failure, stored: Stored) -> Record | None:
        """Return the dead letter of a message; raise CallerError or ValueError.

        It is None if the message is not delivered any more: it has expired, or its topic was
        deleted.
        """
        batch = self._batch
        row = offset - stored.base_offset
        try:
            stored.load(batch, self._topics)
            if batch.hidden(row) or not self._topics.is_live(batch.topic_id(row)):
                return None
            source, form = _source(batch.row_protocol(row), batch.form(row))
            return Record(
                source,
                Kind.PUBLISH,
                group.dead_topic,
                batch.value(row),
                _BROKER,
                "penstock",
                self._clock.now_us(),
                form=form,
                headers=(
                    ("penstock-dead-reason", failure.reason.encode()),
                    ("penstock-dead-deliveries", b"%d" % failure.failures),
                    ("penstock-dead-topic", self._topics.name(batch.topic_id(row)).encode()),
                    ("penstock-dead-partition", b"%d" % partition_of(offset)),
                    ("penstock-dead-offset", b"%d" % offset_of(offset)),
                    *_headers(batch.headers(row), batch.order),
                ),
            )
        finally:
            batch.clear()


def _owner(group: Group) -> str:
    return group.owner or group.name


def _everything(_: str) -> bool:
    return True


def _has(stored: Stored, offset: int) -> bool:
    """Return whether a message is in a row group."""
    return stored.base_offset <= offset < stored.base_offset + stored.count


def _source(number: int, form: int | None) -> tuple[Protocol, Form]:
    """Return the protocol and the form of a dead letter: one that carries headers."""
    source = _BY_NUMBER.get(number)
    if isinstance(source, Protocol) and source.carries.headers:
        return source, Form.PLAIN if form is None else Form(form)
    others = next(protocol for protocol in PROTOCOLS if protocol.carries.headers)
    return others, Form(form) if form in (Form.EMPTY, Form.TEXT) else Form.PLAIN


def _headers(data: bytes | None, order: ByteOrder) -> Iterator[tuple[str, bytes]]:
    """Yield the headers of a message, but those that only the broker may set."""
    if not data:
        return
    parts = []
    place = 2
    while place < len(data):
        size = int.from_bytes(data[place : place + 4], order)
        parts.append(data[place + 4 : place + 4 + size])
        place += 4 + size
    for key, value in zip(parts[::2], parts[1::2], strict=True):
        name = key.decode(errors="replace")
        if not is_reserved_header(name):
            yield name, value
