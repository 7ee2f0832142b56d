"""Writes messages from the log to the link of a session, a little in each turn of the loop."""

from array import array
from collections.abc import Iterator
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import structlog

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.core.audiences import Encoding
from penstock.core.counters import Counters
from penstock.core.encoders import Encoders
from penstock.core.encoders.encoder import Rows
from penstock.core.feeds import Feed
from penstock.core.last_values import LastRows
from penstock.core.partitions import OwnPartition, Partition
from penstock.core.position_marks import PositionMarks
from penstock.core.routing import Router
from penstock.core.sessions import Session
from penstock.errors import CallerError
from penstock.limits import (
    CATCH_UP_PIECE_BYTES,
    CATCH_UP_SHARED_BYTES_MIN,
    CATCH_UP_SHARED_ROWS_MAX,
    LAST_RUN_TOPICS,
    SLICE_SECONDS_MAX,
)
from penstock.ports import Clock, Fetched, Stored, new_topic_filter

__all__ = ["HistoryWriter", "log_fields"]

log = structlog.get_logger("penstock.catch_up")


class _SharedFrames(bytearray):
    """Encoded frames that several links hold; removed when the last of them has sent them."""

    rows: "memoryview[int]"
    """The rows that are encoded in them."""


_SharedKey: TypeAlias = tuple[Encoding, int, int, bytes]
"""Encoding, partition, base offset of the row group, and its rows."""


class HistoryWriter:
    """Encodes row groups for sessions, and moves their feeds behind what was written.

    Large messages are encoded once for all sessions that have them in their out-buffers. `own` is
    the number of the partition that this process writes: only there are messages of its sessions.
    """

    def __init__(
        self,
        *,
        own: int,
        topics: TopicTable,
        router: Router,
        encoders: Encoders,
        counters: Counters,
        clock: Clock,
        marks: PositionMarks,
    ) -> None:
        self._own = own
        self._marks = marks
        self._topics = topics
        self._router = router
        self._encoders = encoders
        self._counters = counters
        self._clock = clock
        self._batches: list[Batch] = []  # that no delivery uses
        self._shared: WeakValueDictionary[_SharedKey, _SharedFrames] = WeakValueDictionary()

    def skip(self, feed: Feed, offset: int) -> int:
        """Continue at `offset` or the next cursor; return the number of skipped messages."""
        position = feed.position
        if offset <= position:
            raise AssertionError(f"history goes on at {offset}, before {position}")
        feed.advance(offset if feed.limit is None else min(offset, feed.limit))
        return feed.position - position

    def skip_unreadable(self, session: Session, feed: Feed, offset: int, reason: str) -> None:
        """Continue at `offset`; count and log the messages before it, which cannot be read."""
        lost = self.skip(feed, offset)
        self._counters.messages_unreadable[session.encoding.protocol] += lost
        log.warning("history unreadable", **log_fields(session), messages=lost, reason=reason)

    def write(
        self,
        session: Session,
        partition: Partition,
        feed: Feed,
        patterns: frozenset[str],
        fetched: Fetched,
    ) -> Iterator[None]:
        """Write row groups, until the link is congested. A step takes about SLICE_SECONDS_MAX.

        It also ends when the patterns of the feed are others than `patterns`: messages of those may
        have been left out.
        """
        batch = self._batches.pop() if self._batches else Batch()
        number = partition.number

        def goes_on() -> bool:
            return session.feeds.get(number) is feed and _goes_on(session, feed, patterns)

        ends = self._clock.monotonic() + SLICE_SECONDS_MAX
        try:
            for stored in fetched.groups:
                end = stored.base_offset + stored.count
                self._load(session, feed, stored, batch)
                while feed.position < end and goes_on():
                    self._write_rows(session, partition, feed, stored, batch, ends=ends)
                    if self._clock.monotonic() >= ends and goes_on():
                        position = feed.position
                        yield
                        if feed.position != position:
                            return
                        ends = self._clock.monotonic() + SLICE_SECONDS_MAX
                batch.clear()
                if not goes_on():
                    return
        finally:
            batch.clear()
            self._batches.append(batch)
        end = fetched.end if feed.limit is None else min(fetched.end, feed.limit)
        if feed.position < end:
            feed.advance(end)

    # --- Last messages of topics ------------------------------------------------------------------

    def write_last(
        self, session: Session, partition: Partition, feed: Feed, last: LastRows, fetched: Fetched
    ) -> Iterator[None]:
        """Write the messages at the offsets of `last`, until the link is congested; see `write`."""
        batch = self._batches.pop() if self._batches else Batch()

        def goes_on() -> bool:
            alive = session.feeds.get(partition.number) is feed and feed.lasts.first is last
            return alive and not feed.broken and not session.link.congested

        ends = self._clock.monotonic() + SLICE_SECONDS_MAX
        try:
            for stored in fetched.groups:
                end = stored.base_offset + stored.count
                if last.next is None or last.next >= end:
                    continue
                last.skip(stored.base_offset)
                try:
                    stored.load(batch, self._topics)
                except (ValueError, CallerError) as error:
                    self.skip_last(session, last, end, str(error))
                while last.is_before(end) and goes_on():
                    self._write_last_rows(session, partition, last, stored, batch)
                    if self._clock.monotonic() >= ends and goes_on():
                        yield
                        ends = self._clock.monotonic() + SLICE_SECONDS_MAX
                batch.clear()
                if not goes_on():
                    return
        finally:
            batch.clear()
            self._batches.append(batch)
        last.skip(fetched.end)

    def _write_last_rows(
        self, session: Session, partition: Partition, last: LastRows, stored: Stored, batch: Batch
    ) -> None:
        """Write the next messages of a row group, up to a piece of them."""
        base, end = stored.base_offset, stored.base_offset + stored.count
        wanted = self._router.wanted(batch, session, lambda text: text == last.pattern)
        may_be_sender = partition.number == self._own and not session.echo
        rows = array("I")
        size = 0
        while last.next is not None and last.next < end:
            row = last.next - base
            last.take()
            found, _ = batch.select_piece(
                self._router.route_of_topic,
                wanted,
                first_row=row,
                last_row=row + 1,
                without_sender=session.number if may_be_sender else 0,
                own_from_row=max(session.opened_at - base, 0),
            )
            if len(found):
                rows.append(row)
                size += len(batch.value(row))
            if size >= CATCH_UP_PIECE_BYTES or len(rows) >= LAST_RUN_TOPICS:
                break
        if rows:
            self._send(session, batch, memoryview(rows), place=(partition, base))

    def skip_last(self, session: Session, last: LastRows, offset: int, reason: str) -> None:
        """Continue at `offset`; count and log the last messages before it that cannot be read."""
        lost = last.skip(offset)
        self._counters.messages_unreadable[session.encoding.protocol] += lost
        log.warning("history unreadable", **log_fields(session), messages=lost, reason=reason)

    # --- Rows -------------------------------------------------------------------------------------

    def _load(self, session: Session, feed: Feed, stored: Stored, batch: Batch) -> None:
        """Load a row group into `batch`; one that cannot be loaded is skipped."""
        end = stored.base_offset + stored.count
        if end <= feed.position:
            raise AssertionError(f"messages up to {end} for offset {feed.position}")
        try:
            stored.load(batch, self._topics)
        except (ValueError, CallerError) as error:
            self.skip_unreadable(session, feed, end, str(error))

    def _write_rows(
        self,
        session: Session,
        partition: Partition,
        feed: Feed,
        stored: Stored,
        batch: Batch,
        *,
        ends: float,
    ) -> None:
        """Write matching rows of a batch, until the link is congested or it is later than `ends`.

        Routes may have changed since the last rows.
        """
        base, end = stored.base_offset, stored.base_offset + stored.count
        reached = end if feed.limit is None else min(end, feed.limit)
        wanted = self._router.wanted(batch, session, feed.wants(feed.cursors[0]))
        row, last_row = max(feed.position - base, 0), max(reached - base, 0)
        first = row
        while wanted and row < last_row:
            row = self._write_piece(
                session, batch, wanted, place=(partition, base), row=row, end=last_row
            )
            if session.link.congested or self._clock.monotonic() >= ends:
                reached = base + row
                break
        if reached - base > first:
            self._count_expired(session, feed, stored, first=first, last=reached - base)
        feed.advance(reached)

    def _count_expired(
        self, session: Session, feed: Feed, stored: Stored, *, first: int, last: int
    ) -> None:
        """Count the messages that expired before a session that was behind got them."""
        patterns = new_topic_filter(feed.patterns)
        wants = _everything if patterns is None else patterns.wants
        lost = stored.expired(feed.since, wants, first=first, last=last)
        if lost:
            session.dropped += lost
            self._counters.messages_dropped[session.encoding.protocol] += lost
            log.warning("history overtaken", **log_fields(session), messages=lost)

    def _write_piece(
        self,
        session: Session,
        batch: Batch,
        wanted: bytes,
        *,
        place: tuple[Partition, int],
        row: int,
        end: int,
    ) -> int:
        """Write some rows before `end`; return the next row.

        `place` is the partition and the first offset of the batch.
        """
        partition, base = place
        may_be_sender = partition.number == self._own and not session.echo
        rows, next_row = batch.select_piece(
            self._router.route_of_topic,
            wanted,
            first_row=row,
            last_row=end,
            bytes_max=CATCH_UP_PIECE_BYTES,
            without_sender=session.number if may_be_sender else 0,
            own_from_row=max(session.opened_at - base, 0),
        )
        if next_row <= row:
            raise AssertionError(f"row {row} of {len(batch)} is not advanced")
        if len(rows):
            self._send(session, batch, rows, place=place)
        return next_row

    def _send(
        self,
        session: Session,
        batch: Batch,
        rows: "memoryview[int]",
        *,
        place: tuple[Partition, int],
    ) -> None:
        """Write some rows, behind their positions if the client has asked for them."""
        partition, base = place
        frames, rows_sent = self._encode(session, batch, rows, place=(partition.number, base))
        if session.mark is not None:
            final = not isinstance(partition, OwnPartition)
            places = self._marks.places(
                batch, rows_sent, partition=partition.number, first=base, final=final
            )
            session.link.write(session.mark(places))
        session.link.write(frames)
        self._counters.sent(session, len(rows), len(frames))

    def _encode(
        self,
        session: Session,
        batch: Batch,
        rows: "memoryview[int]",
        *,
        place: tuple[int, int],
    ) -> tuple[bytes | memoryview, Rows]:
        """Return the frames of some rows, and these rows without those that were left out.

        Frames of few large rows are those that other sessions have too.
        """
        encoding = session.encoding
        if len(rows) > CATCH_UP_SHARED_ROWS_MAX:
            frames = self._encoders.encode(encoding, batch, rows)
            return frames, self._encoders.encoded
        key = (encoding, *place, rows.tobytes())
        shared = self._shared.get(key)
        if shared is None:
            frames = self._encoders.encode(encoding, batch, rows)
            if len(frames) < CATCH_UP_SHARED_BYTES_MIN:
                return frames, self._encoders.encoded
            shared = self._shared[key] = _SharedFrames(frames)
            encoded = self._encoders.encoded
            shared.rows = rows if encoded is None else encoded
        return memoryview(shared), shared.rows


def _everything(_: str) -> bool:
    return True


def _goes_on(session: Session, feed: Feed, patterns: frozenset[str]) -> bool:
    """Return whether more of what was read for `patterns` can be written."""
    if session.link.congested or feed.broken or feed.lookups:
        return False
    return feed.patterns is patterns and (feed.limit is None or feed.position < feed.limit)


def log_fields(session: Session) -> dict[str, Any]:
    """Return the fields of log events about a session."""
    return {"connection": session.link.connection, "peer": session.link.peer}
