"""Sessions that are served from the log: those that fell behind, and those that asked for history.

Each has its turn: the row group at its place is fetched, what it wants of them is written
until its link is congested, and it goes to the end of the line. A few fetches are under way at a
time, so what they hold is bounded however many sessions wait.
"""

from functools import partial
from typing import Any

import structlog

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.core.counters import Counters
from penstock.core.encoder import Encoder
from penstock.core.feeds import Cursor, Feed
from penstock.core.routing import Router
from penstock.core.sessions import Session
from penstock.core.timers import Timers
from penstock.errors import (
    CallerError,
    LogDamaged,
    LogError,
    OffsetBelowHorizon,
    OffsetPastEnd,
)
from penstock.limits import CATCH_UP_FETCHES_MAX, CATCH_UP_PIECE_BYTES
from penstock.ports import Clock, LogReader, LogWriter, Stored
from penstock.replay import Ago, AtOffset, AtTime, Earliest, Start

__all__ = ["CatchUp"]

log = structlog.get_logger("penstock.catch_up")

AT_END_SECONDS = 1.0
"""When a log that could not give what it said it had is asked again."""


class CatchUp:
    """Brings sessions from where they stand to the tail of the log, with no gap and no repeat."""

    def __init__(
        self,
        *,
        writer: LogWriter,
        reader: LogReader,
        topics: TopicTable,
        router: Router,
        encoder: Encoder,
        counters: Counters,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._topics = topics
        self._router = router
        self._encoder = encoder
        self._counters = counters
        self._clock = clock
        self._timers = timers
        self._scratch = Batch()
        self._line: dict[Session, None] = {}  # who has something to read, the next first
        self._at_end: dict[Session, None] = {}  # who waits for the log to write
        self._fetches = 0
        self.last_commit = 0
        """The commit of the last message that it gave an offset."""

    # --- Where sessions begin ---------------------------------------------------------------------

    def check(self, start: Start) -> None:
        """Raise OffsetBelowHorizon or OffsetPastEnd for a place that nobody can start from."""
        if isinstance(start, AtOffset):
            if start.offset < self._reader.horizon:
                raise OffsetBelowHorizon(start.offset, self._reader.horizon)
            if start.offset > self._writer.next_offset:
                raise OffsetPastEnd(start.offset, self._writer.next_offset)

    def leave(self, session: Session, offset: int) -> None:
        """Take a session whose link is congested out of live fan-out; it was not sent `offset`."""
        session.feed = Feed(offset, session.subscriptions)
        self._counters.fell_behind[session.encoding.protocol] += 1

    def subscribed(self, session: Session, pattern: str, start: Start | None) -> None:
        """Let a new subscription of a session begin at its place.

        A place in time is looked up, and found a little later.
        """
        next_offset = self._writer.next_offset
        match start:
            case None:
                if session.feed is not None:
                    session.feed.place(pattern, next_offset, subscribed_at=next_offset)
            case Earliest():
                self._place(session, pattern, self._reader.horizon)
            case AtOffset(offset):
                self._place(session, pattern, max(offset, self._reader.horizon))
            case Ago(us):
                self._look_up(session, pattern, self._clock.now_us() - us)
            case AtTime(us):
                self._look_up(session, pattern, us)

    def _place(self, session: Session, pattern: str, offset: int) -> None:
        next_offset = self._writer.next_offset
        if session.feed is None:
            if offset >= next_offset:
                return
            session.feed = Feed(next_offset, session.subscriptions)
        session.feed.place(pattern, min(offset, next_offset), subscribed_at=next_offset)
        self.wake(session)

    def _look_up(self, session: Session, pattern: str, timestamp_us: int) -> None:
        next_offset = self._writer.next_offset
        if timestamp_us > self._clock.now_us():
            self._place(session, pattern, next_offset)
            return
        feed = session.feed
        if feed is None:
            feed = session.feed = Feed(next_offset, session.subscriptions)
        cursor = feed.look_up(pattern, next_offset)
        then = partial(self._found, session, feed, cursor)
        self._reader.find_time(max(timestamp_us, 0), then)

    def _found(self, session: Session, feed: Feed, cursor: Cursor, offset: int | LogError) -> None:
        if cursor not in feed.lookups:
            return  # the client has left, or does not want it any more
        if isinstance(offset, LogError):
            # More than was asked for is better than less.
            log.warning("time not found", **_who(session), error=str(offset))
            offset = self._reader.horizon
        del feed.lookups[cursor]
        latest = cursor.position
        for pattern in cursor.patterns:
            feed.place(pattern, min(offset, latest), subscribed_at=latest)
        self.wake(session)

    def unsubscribed(self, session: Session, pattern: str, cursor: Cursor | None) -> None:
        """Learn that a session gave up a subscription, which stood at `cursor`."""
        if session.feed is not None:
            session.feed.remove(pattern, cursor)
            self.wake(session)

    def positions(self, session: Session) -> dict[str, int]:
        """Return, for each subscription of a session, the first offset that it was not sent."""
        feed = session.feed
        if feed is None:
            return dict.fromkeys(session.subscriptions, self._writer.next_offset)
        return {
            pattern: (cursor or feed.main).position
            for pattern, cursor in session.subscriptions.items()
        }

    def forget(self, session: Session) -> None:
        """Let a session go."""
        self._line.pop(session, None)
        self._at_end.pop(session, None)
        if session.feed is not None:
            session.feed.end()
            session.feed = None

    # --- Turns ------------------------------------------------------------------------------------

    def wake(self, session: Session) -> None:
        """Give a session its turn, if it has something to do."""
        if session.feed is not None:
            self._line[session] = None
            self._go_on()

    def settled(self) -> None:
        """Learn that the log has written, or given up, what it had taken."""
        waiting, self._at_end = self._at_end, {}
        self._line.update(waiting)
        self._go_on()

    def _go_on(self) -> None:
        while self._line and self._fetches < CATCH_UP_FETCHES_MAX:
            session = next(iter(self._line))
            del self._line[session]
            self._take_turn(session)

    def _take_turn(self, session: Session) -> None:
        """Start to read what a session gets next, or let it go live if it has got everything."""
        feed = session.feed
        if feed is None or feed.asked is not None or feed.lookups or feed.broken:
            return
        if session.link.congested:
            return  # `drained` wakes it
        while feed.idle and feed.limit is not None and feed.limit > feed.position:
            feed.advance(feed.limit)
        if self._has_all(feed):
            self._go_live(session, feed)
        elif feed.position < self._reader.end:
            self._fetch(session, feed)
        else:
            self._join(session, feed)

    def _has_all(self, feed: Feed) -> bool:
        if feed.idle and feed.limit is None:
            return True
        joins_at = self._writer.next_offset if feed.joins_at is None else feed.joins_at
        return feed.position >= joins_at

    def _join(self, session: Session, feed: Feed) -> None:
        """Have what comes from now on kept, until what was taken before can be read."""
        if feed.joins_at is None:
            feed.join(self._writer.next_offset, self.last_commit)
        if feed.join_commit <= self._writer.failed_commit:
            # All before is settled, and no more of it can be read: what is missing was lost.
            self._go_live(session, feed)
        else:
            self._at_end[session] = None

    def _go_live(self, session: Session, feed: Feed) -> None:
        session.feed = None
        feed.end()
        for frames, count in feed.queue:
            session.link.write(frames)
            self._counters.sent(session, count, len(frames))

    # --- Reading ----------------------------------------------------------------------------------

    def _fetch(self, session: Session, feed: Feed) -> None:
        feed.asked = feed.position
        self._fetches += 1
        fetching = True

        def then(result: Stored | LogError) -> None:
            if fetching:  # nothing may be delivered before whoever woke the session has returned
                self._timers.after(0.0, lambda: self._fetched(session, feed, result))
            else:
                self._fetched(session, feed, result)

        self._reader.fetch(feed.asked, then)
        fetching = False

    def _fetched(self, session: Session, feed: Feed, result: Stored | LogError) -> None:
        """Bring a session what was read for it, and give the next one its turn."""
        self._fetches -= 1
        asked, feed.asked = feed.asked, None
        current = session.feed is feed and feed.position == asked and not feed.lookups
        if current and not session.link.congested:
            try:
                self._take(session, feed, result)
            except Exception:  # one connection fails alone
                self._counters.connections_failed["internal error"] += 1
                log.exception("connection failed", **_who(session))
                feed.broken = True
                session.link.abort()
        if session.feed is feed:
            # Who is told that there is no more, against what `end` says, waits until there is.
            waits = current and isinstance(result, OffsetPastEnd)
            (self._at_end if waits else self._line)[session] = None
            if waits:
                self._timers.after(AT_END_SECONDS, self.settled)
        self._go_on()

    def _take(self, session: Session, feed: Feed, result: Stored | LogError) -> None:
        match result:
            case OffsetBelowHorizon(horizon=horizon):
                lost = self._skip(feed, horizon)
                session.dropped += lost
                self._counters.messages_dropped[session.encoding.protocol] += lost
                log.warning("history overtaken", **_who(session), messages=lost)
            case LogDamaged(resumes_at=resumes_at):
                self._skip_unreadable(session, feed, resumes_at, str(result))
            case OffsetPastEnd():
                pass
            case LogError():
                log.warning("log not readable", **_who(session), error=str(result))
                feed.broken = True
                session.link.abort()
            case _:
                self._serve(session, feed, result)

    def _skip(self, feed: Feed, offset: int) -> int:
        """Go on at `offset`, or at the next cursor; return how many messages that leaves out."""
        position = feed.position
        if offset <= position:
            raise AssertionError(f"history goes on at {offset}, before {position}")
        feed.advance(offset if feed.limit is None else min(offset, feed.limit))
        return feed.position - position

    def _skip_unreadable(self, session: Session, feed: Feed, offset: int, reason: str) -> None:
        lost = self._skip(feed, offset)
        self._counters.messages_unreadable[session.encoding.protocol] += lost
        log.warning("history unreadable", **_who(session), messages=lost, reason=reason)

    def _serve(self, session: Session, feed: Feed, stored: Stored) -> None:
        """Write what a session wants of one row group, until its link is congested."""
        batch = self._scratch
        base, end = stored.base_offset, stored.base_offset + stored.count
        if end <= feed.position:
            raise AssertionError(f"messages up to {end} for offset {feed.position}")
        try:
            try:
                stored.load(batch, self._topics)
            except (ValueError, CallerError) as error:
                self._skip_unreadable(session, feed, end, str(error))
                return
            reached = end if feed.limit is None else min(end, feed.limit)
            wanted = self._router.wanted(batch, feed.wants(feed.cursors[0]))
            row, last_row = max(feed.position - base, 0), max(reached - base, 0)
            while wanted and row < last_row:
                row = self._write_piece(session, batch, wanted, base=base, row=row, end=last_row)
                if session.link.congested:
                    reached = base + row
                    break
            feed.advance(reached)
        finally:
            batch.clear()

    def _write_piece(
        self, session: Session, batch: Batch, wanted: bytes, *, base: int, row: int, end: int
    ) -> int:
        """Write some of the rows before `end`; return the row to go on with."""
        rows, next_row = batch.select_piece(
            self._router.route_of_topic,
            wanted,
            first_row=row,
            last_row=end,
            bytes_max=CATCH_UP_PIECE_BYTES,
            without_sender=0 if session.echo else session.number,
            own_from_row=max(session.opened_at - base, 0),
        )
        if next_row <= row:
            raise AssertionError(f"row {row} of {len(batch)} leads nowhere")
        if len(rows):
            frames = self._encoder.encode(session.encoding, batch, rows, wanted)
            session.link.write(frames)
            self._counters.sent(session, len(rows), len(frames))
        return next_row


def _who(session: Session) -> dict[str, Any]:
    """Return what log events say of a session."""
    return {"connection": session.link.connection, "peer": session.link.peer}
