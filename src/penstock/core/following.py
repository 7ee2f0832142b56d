"""Delivery of messages of other nodes, which are in the log already.

The storage reads them and hands over whole row groups, in the order of each partition. They are
routed and encoded like messages of clients, in pieces, since a row group may be large. A session
that becomes congested is served from the log from the next row on.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import structlog

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.core.audiences import Audience
from penstock.core.catch_up import CatchUp
from penstock.core.counters import Counters
from penstock.core.encoders import Encoders
from penstock.core.partitions import StoredPartition
from penstock.core.position_marks import PositionMarks
from penstock.core.roaming import Roaming
from penstock.core.routing import Router
from penstock.core.timers import Timers
from penstock.core.traces import Traces
from penstock.errors import CallerError
from penstock.limits import CATCH_UP_PIECE_BYTES, MEMORY_BLOCK_BYTES
from penstock.ports import (
    Clock,
    KeptSession,
    KnownService,
    KnownTopic,
    LogReader,
    Record,
    Stored,
)
from penstock.protocols import Protocol

if TYPE_CHECKING:
    from penstock.core.sessions import Session

__all__ = ["Following"]

log = structlog.get_logger("penstock.following")


class _Piece(NamedTuple):
    """Frames for a session or many, and the offsets from which their rows were selected."""

    frames: bytes
    places: bytes
    messages: int
    start: int
    end: int


class Following:
    """Delivers row groups of partitions: a `ports.Follower`.

    `write` sends messages, after their positions, to one client and returns False if they were
    dropped. With
    `leaves_slow`, congested sessions are served from the log.
    """

    def __init__(
        self,
        *,
        catch_up: CatchUp,
        topics: TopicTable,
        router: Router,
        encoders: Encoders,
        counters: Counters,
        timers: Timers,
        clock: Clock,
        write: Callable[["Session", bytes, int, bytes], bool],
        marks: PositionMarks,
        leaves_slow: bool,
    ) -> None:
        self._catch_up = catch_up
        self._topics = topics
        self._router = router
        self._encoders = encoders
        self._counters = counters
        self._timers = timers
        self._clock = clock
        self._write = write
        self._marks = marks
        self._leaves_slow = leaves_slow
        self._batch = Batch()
        self.receivers: dict[Protocol, Callable[[Record], None]] = {}
        """Deliver private messages of other nodes, by protocol."""
        self.traces: Traces | None = None
        """Traces of sampled messages."""
        self.roaming: Roaming | None = None
        """Takes what other nodes write of clients that may resume here."""
        self.service_changed: Callable[[KnownService], None] = lambda _: None
        """Takes what other nodes write of their services, see ports.Follower."""
        self.on_delivered: Callable[[], None] = lambda: None
        """Called after messages were delivered or passed over: consumer groups may read them."""

    # --- Partitions and topics --------------------------------------------------------------------

    def partition_found(self, number: int, reader: LogReader, next_offset: int) -> None:
        """See ports.Follower."""
        if number not in self._catch_up.partitions:
            self._catch_up.partition_found(StoredPartition(number, reader, next_offset))

    def topic_created(self, topic: KnownTopic) -> None:
        """See ports.Follower."""
        if self._topics.find(topic.name) is not None:
            return
        try:
            identifier = self._topics.restore(topic.name, topic.owner)
            self._topics.set_parent(identifier, topic.creator)
        except CallerError as error:
            log.warning("topic not restored", topic=topic.name, error=str(error))

    def topic_deleted(self, name: str) -> None:
        """See ports.Follower."""
        identifier = self._topics.find(name)
        if identifier is None or self._topics.has_channel(identifier):
            return
        self._router.remove_topic(identifier)
        self._topics.remove(identifier)

    def session_changed(self, key: str, session: KeptSession) -> None:
        """See ports.Follower."""
        if self.roaming is not None:
            self.roaming.session_changed(key, session)

    def records_read(self, records: Sequence[Record]) -> None:
        """See ports.Follower."""
        for record in records:
            receive = self.receivers.get(record.protocol)
            if receive is not None:
                receive(record)

    # --- Messages that are not read ---------------------------------------------------------------

    def pattern_found(self, pattern: str) -> None:
        """See ports.Follower."""
        self._router.interest.watch(pattern)

    def wants(self, pattern: str) -> bool:
        """See ports.Follower."""
        return self._router.interest.wants(pattern)

    def messages_passed_over(
        self, number: int, first: int, end: int, patterns: Collection[str]
    ) -> None:
        """See ports.Follower. Sessions that have subscribed meanwhile read them from the log."""
        partition = self._catch_up.partitions[number]
        if not isinstance(partition, StoredPartition):
            raise TypeError(f"partition {number} is delivered when it is appended")
        if end <= partition.next_offset:
            return
        start = max(first, partition.next_offset)
        sessions = set().union(*map(self._router.interested, patterns))
        self._leave_to_log(partition, sessions, start)
        self._move_to(partition, end)

    def messages_failed(self, number: int, end: int) -> None:
        """See ports.Follower."""
        partition = self._catch_up.partitions[number]
        if isinstance(partition, StoredPartition) and end > partition.next_offset:
            self._leave_to_log(partition, self._router.all_sessions(), partition.next_offset)
            self._move_to(partition, end)

    def _leave_to_log(
        self, partition: StoredPartition, sessions: "Iterable[Session]", start: int
    ) -> None:
        """Serve sessions from the log from `start` on."""
        for session in sessions:
            if partition.number not in session.feeds:
                self._catch_up.fall_behind(session, partition, start)
                self._timers.after(0.0, partial(self._catch_up.wake, session))

    # --- Messages ---------------------------------------------------------------------------------

    def messages_read(self, number: int, stored: Stored) -> None:
        """See ports.Follower."""
        partition = self._catch_up.partitions[number]
        if not isinstance(partition, StoredPartition):
            raise TypeError(f"partition {number} is delivered when it is appended")
        first, end = stored.base_offset, stored.base_offset + stored.count
        if end <= partition.next_offset:
            return
        batch = self._batch
        try:
            stored.load(batch, self._topics)
        except (ValueError, CallerError) as error:
            log.warning(
                "messages not delivered",
                partition=number,
                offset=first,
                messages=stored.count,
                error=str(error),
            )
            start = max(partition.next_offset, first)
            self._leave_to_log(partition, self._router.all_sessions(), start)
        else:
            row = max(partition.next_offset - first, 0)
            if self.traces is None:
                for audience in self._router.audiences(batch):
                    self._deliver_or_leave(partition, batch, audience, first=first, row=row)
            else:
                self._deliver_traced(self.traces, partition, batch, first=first, row=row)
        finally:
            batch.clear()
            partition.next_offset = end
        self._move_to(partition, end)

    def _move_to(self, partition: StoredPartition, end: int) -> None:
        """Move the partition's next offset to `end`, and wake the sessions that wait for it."""
        partition.next_offset = end
        if self._catch_up.awaits_log:
            self._catch_up.settled()
        self.on_delivered()

    def _deliver_traced(
        self, traces: Traces, partition: StoredPartition, batch: Batch, *, first: int, row: int
    ) -> None:
        """Deliver a batch, with a span if a message of it is traced."""
        traced = traces.sample(batch, partition=partition.number, first=first, first_row=row)
        start_us, sessions = self._clock.now_us(), 0
        topic = None if traced is None else batch.topic_id(traced.row)
        for audience in self._router.audiences(batch):
            reached = self._deliver_or_leave(partition, batch, audience, first=first, row=row)
            if topic is not None and self._router.wants(audience, topic):
                sessions += reached
        if traced is not None:
            traces.delivered(traced, start_us=start_us, sessions=sessions)

    def _deliver_or_leave(
        self, partition: StoredPartition, batch: Batch, audience: Audience, *, first: int, row: int
    ) -> int:
        """As `_deliver`; if that fails, the sessions are served from the log.

        Sessions that had got some of the messages before the failure get these again.
        """
        try:
            return self._deliver(partition, batch, audience, first=first, row=row)
        except Exception:  # one audience must not end the delivery to all others
            log.exception("followed messages failed", partition=partition.number, offset=first)
            self._leave_to_log(partition, audience.sessions, first + row)
            return 0

    def _deliver(
        self, partition: StoredPartition, batch: Batch, audience: Audience, *, first: int, row: int
    ) -> int:
        """Deliver an audience its rows from `row` on; `first` is the offset of the first.

        Return how many sessions got them at once.
        """
        number = partition.number
        own = partition is self._catch_up.own
        live: list[Session] = []
        others = 0
        for session in audience.sessions:
            if number in session.feeds:
                continue
            if self._leaves_slow and session.link.congested:
                self._catch_up.fall_behind(session, partition, first + row)
            elif own and not session.echo:
                # It must not get its own messages: it has frames of its own.
                pieces = self._pieces(
                    number, batch, audience, first=first, row=row, but=session.number
                )
                self._send(partition, [session], pieces)
                others += 1
            else:
                live.append(session)
        if live:
            self._send(partition, live, self._pieces(number, batch, audience, first=first, row=row))
        return len(live) + others

    def _pieces(
        self,
        number: int,
        batch: Batch,
        audience: Audience,
        *,
        first: int,
        row: int,
        but: int = 0,
    ) -> Iterator[_Piece]:
        """Yield the frames of an audience, leaving out those of the sender `but`."""
        marked = any(session.mark is not None for session in audience.sessions)
        while row < len(batch):
            start = row
            rows, row = batch.select_piece(
                self._router.route_of_topic,
                audience.wanted,
                kind_of_route=audience.kind_of_route,
                first_row=start,
                bytes_max=CATCH_UP_PIECE_BYTES,
                without_sender=but,
            )
            if len(rows):
                frames = self._encoders.encode(audience.encoding, batch, rows)
                places = b""
                if marked:
                    encoded = self._encoders.encoded
                    places = self._marks.places(
                        batch, encoded, partition=number, first=first, final=True
                    )
                yield _Piece(frames, places, len(rows), first + start, first + row)

    def _send(
        self, partition: StoredPartition, sessions: "list[Session]", pieces: Iterator[_Piece]
    ) -> None:
        """Send pieces to sessions; those that become congested are served from the log."""
        for frames, places, count, start, end in pieces:
            still: list[Session] = []
            for session in sessions:
                if (
                    len(frames) > MEMORY_BLOCK_BYTES
                    and self._leaves_slow
                    and not session.link.account.has_room(len(frames))
                ):
                    self._catch_up.fall_behind(session, partition, start)
                    self._timers.after(0.0, partial(self._catch_up.wake, session))
                    continue
                if self._write(session, frames, count, places):
                    protocol = session.encoding.protocol
                    self._counters.messages_sent[protocol] += count
                    self._counters.bytes_sent[protocol] += len(frames)
                if self._leaves_slow and session.link.congested:
                    self._catch_up.fall_behind(session, partition, end)
                else:
                    still.append(session)
            sessions = still
            if not sessions:
                return
