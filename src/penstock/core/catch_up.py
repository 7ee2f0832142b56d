"""Delivery from the log to sessions that fell behind or subscribed with a start in history.

Sessions take turns: fetch the row group at the session's position, write the matching messages
until the link is congested, go to the end of the queue. Only CATCH_UP_FETCHES_MAX fetches run at a
time, which bounds memory for any number of sessions. Large messages are encoded once for all
sessions that have them in their out-buffers.
"""

from functools import partial
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import structlog

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.core.counters import Counters
from penstock.core.encoders import Encoders
from penstock.core.feeds import Cursor, Feed
from penstock.core.routing import Encoding, Router
from penstock.core.sessions import Session
from penstock.core.timers import Timers
from penstock.errors import (
    CallerError,
    LogDamaged,
    LogError,
    OffsetBelowHorizon,
    OffsetPastEnd,
    TierUnavailable,
)
from penstock.limits import (
    CATCH_UP_FETCHES_MAX,
    CATCH_UP_PIECE_BYTES,
    CATCH_UP_SHARED_BYTES_MIN,
    CATCH_UP_SHARED_ROWS_MAX,
    TIER_RETRY_SECONDS,
)
from penstock.memory import Purpose
from penstock.ports import Clock, LogReader, LogWriter, Stored
from penstock.replay import Ago, AtOffset, AtTime, Earliest, Start

__all__ = ["CatchUp"]

log = structlog.get_logger("penstock.catch_up")

RETRY_SECONDS = 1.0
"""Delay before a fetch that raised OffsetPastEnd is tried again."""


class _SharedFrames(bytearray):
    """Encoded frames that several links hold; removed when the last of them has sent them."""


_SharedKey: TypeAlias = tuple[Encoding, int, bytes]
"""Encoding, base offset of the row group, and its rows."""


class CatchUp:
    """Serves sessions from their log position until they are live, without gap or repeat."""

    def __init__(
        self,
        *,
        writer: LogWriter,
        reader: LogReader,
        topics: TopicTable,
        router: Router,
        encoders: Encoders,
        counters: Counters,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._topics = topics
        self._router = router
        self._encoders = encoders
        self._counters = counters
        self._clock = clock
        self._timers = timers
        self._scratch = Batch()
        self._ready: dict[Session, None] = {}  # sessions with something to do, the next first
        self._awaiting_log: dict[Session, None] = {}  # until it has written more
        self._awaiting_memory: dict[Session, None] = {}  # until its account has room for a piece
        self._fetches = 0
        self._shared: WeakValueDictionary[_SharedKey, _SharedFrames] = WeakValueDictionary()
        self.last_commit = 0
        """The commit of the last appended message."""

    # --- Start positions --------------------------------------------------------------------------

    def check(self, start: Start) -> None:
        """Raise OffsetBelowHorizon or OffsetPastEnd if a start offset is out of range."""
        if isinstance(start, AtOffset):
            if start.offset < self._reader.horizon:
                raise OffsetBelowHorizon(start.offset, self._reader.horizon)
            if start.offset > self._writer.next_offset:
                raise OffsetPastEnd(start.offset, self._writer.next_offset)

    def fall_behind(self, session: Session, offset: int) -> None:
        """Serve a congested session from the log, from `offset` on, instead of live."""
        session.feed = Feed(offset, session.subscriptions)
        self._counters.fell_behind[session.encoding.protocol] += 1

    def read_from(self, session: Session, offset: int) -> None:
        """Serve a session from the log from `offset` on: what is there was not sent to it live."""
        feed = session.feed
        if feed is None:
            session.feed = Feed(offset, session.subscriptions)
            self.wake(session)
        elif feed.joins_at is not None and feed.joins_at <= offset:
            feed.stop_joining()

    def subscribed(self, session: Session, pattern: str, start: Start | None) -> None:
        """Start a new subscription at its position.

        A start time is looked up in the background.
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
        self._find_again(session, feed, cursor, max(timestamp_us, 0))

    def _find_again(self, session: Session, feed: Feed, cursor: Cursor, timestamp_us: int) -> None:
        if cursor in feed.lookups:
            then = partial(self._found, session, feed, cursor, timestamp_us)
            self._reader.find_time(timestamp_us, then)

    def _found(
        self,
        session: Session,
        feed: Feed,
        cursor: Cursor,
        timestamp_us: int,
        offset: int | LogError,
    ) -> None:
        if cursor not in feed.lookups:
            return  # the client has disconnected or unsubscribed
        if isinstance(offset, TierUnavailable):
            log.warning("history waits for the object store", **_log_fields(session))
            self._timers.after(
                TIER_RETRY_SECONDS, lambda: self._find_again(session, feed, cursor, timestamp_us)
            )
            return
        if isinstance(offset, LogError):
            # Too many messages are better than too few.
            log.warning("time not found", **_log_fields(session), error=str(offset))
            offset = self._reader.horizon
        del feed.lookups[cursor]
        latest = cursor.position
        for pattern in cursor.patterns:
            feed.place(pattern, min(offset, latest), subscribed_at=latest)
        self.wake(session)

    def unsubscribed(self, session: Session, pattern: str, cursor: Cursor | None) -> None:
        """Remove a subscription, which was at `cursor`, from the session's feed."""
        if session.feed is not None:
            session.feed.remove(pattern, cursor)
            self.wake(session)

    def positions(self, session: Session) -> dict[str, int]:
        """Return the next offset of each subscription of a session."""
        feed = session.feed
        if feed is None:
            return dict.fromkeys(session.subscriptions, self._writer.next_offset)
        return {
            pattern: (cursor or feed.main).position
            for pattern, cursor in session.subscriptions.items()
        }

    def forget(self, session: Session) -> None:
        """Remove a session."""
        self._ready.pop(session, None)
        self._awaiting_log.pop(session, None)
        self._awaiting_memory.pop(session, None)
        session.link.account.hold(Purpose.REPLAY, 0)
        if session.feed is not None:
            session.feed.end()
            session.feed = None

    # --- Turns ------------------------------------------------------------------------------------

    def wake(self, session: Session) -> None:
        """Queue a session for a turn, if it is served from the log."""
        if session.feed is not None:
            self._ready[session] = None
            self._run()

    def settled(self) -> None:
        """Queue the sessions that waited for the log: it has written, or failed to."""
        waiting, self._awaiting_log = self._awaiting_log, {}
        self._ready.update(waiting)
        self._run()

    def _run(self) -> None:
        while self._ready and self._fetches < CATCH_UP_FETCHES_MAX:
            session = next(iter(self._ready))
            del self._ready[session]
            self._take_turn(session)

    def _take_turn(self, session: Session) -> None:
        """Fetch the next messages of a session, or make it live if it has caught up."""
        feed = session.feed
        if feed is None or feed.fetching is not None or feed.lookups or feed.broken:
            return
        if session.link.congested:
            return  # Broker.drained wakes it
        if session in self._awaiting_memory:
            return
        while feed.idle and feed.limit is not None and feed.limit > feed.position:
            feed.advance(feed.limit)
        if self._has_caught_up(feed):
            self._go_live(session, feed)
        elif feed.position < self._reader.end:
            self._fetch_with_memory(session, feed)
        else:
            self._join(session, feed)

    def _has_caught_up(self, feed: Feed) -> bool:
        if feed.idle and feed.limit is None:
            return True
        joins_at = self._writer.next_offset if feed.joins_at is None else feed.joins_at
        return feed.position >= joins_at

    def _join(self, session: Session, feed: Feed) -> None:
        """Queue live messages until all earlier ones can be read from the log."""
        if feed.joins_at is None:
            feed.join(self._writer.next_offset, self.last_commit)
        if feed.join_commit <= self._writer.failed_commit:
            # All earlier commits are settled: missing messages failed to commit.
            self._go_live(session, feed)
        else:
            self._awaiting_log[session] = None

    def _go_live(self, session: Session, feed: Feed) -> None:
        session.feed = None
        feed.end()
        session.link.account.hold(Purpose.REPLAY, 0)
        for frames, count in feed.queue:
            session.link.write(frames)
            self._counters.sent(session, count, len(frames))

    # --- Reading ----------------------------------------------------------------------------------

    def _fetch_with_memory(self, session: Session, feed: Feed) -> None:
        """Fetch once the session's account holds a piece; the out-buffer holds it later."""
        account = session.link.account
        size = feed.queue_bytes + CATCH_UP_PIECE_BYTES
        if account.hold(Purpose.REPLAY, size):
            self._fetch(session, feed)
            return
        self._awaiting_memory[session] = None
        account.wait(Purpose.REPLAY, size, lambda: self._has_memory(session))

    def _has_memory(self, session: Session) -> None:
        self._awaiting_memory.pop(session, None)
        self.wake(session)

    def _fetch(self, session: Session, feed: Feed) -> None:
        feed.fetching = feed.position
        self._fetches += 1
        fetching = True

        def then(result: Stored | LogError) -> None:
            if fetching:  # deliver only after the caller of `wake` has returned
                self._timers.after(0.0, lambda: self._fetched(session, feed, result))
            else:
                self._fetched(session, feed, result)

        self._reader.fetch(feed.fetching, then)
        fetching = False

    def _fetched(self, session: Session, feed: Feed, result: Stored | LogError) -> None:
        """Serve fetched messages to a session, then run the next turns."""
        self._fetches -= 1
        offset, feed.fetching = feed.fetching, None
        current = session.feed is feed and feed.position == offset and not feed.lookups
        if current and not session.link.congested:
            try:
                self._process(session, feed, result)
            except Exception:  # a failing session ends its own connection only
                self._counters.connections_failed["internal error"] += 1
                log.exception("connection failed", **_log_fields(session))
                feed.broken = True
                session.link.abort()
        if session.feed is feed:
            session.link.account.hold(Purpose.REPLAY, feed.queue_bytes)
            # `fetch` may raise OffsetPastEnd while `end` lags behind; retry after RETRY_SECONDS.
            waits = current and isinstance(result, OffsetPastEnd)
            if current and isinstance(result, TierUnavailable):
                self._timers.after(TIER_RETRY_SECONDS, lambda: self.wake(session))
            else:
                (self._awaiting_log if waits else self._ready)[session] = None
            if waits:
                self._timers.after(RETRY_SECONDS, self.settled)
        self._run()

    def _process(self, session: Session, feed: Feed, result: Stored | LogError) -> None:
        match result:
            case OffsetBelowHorizon(horizon=horizon):
                lost = self._skip(feed, horizon)
                session.dropped += lost
                self._counters.messages_dropped[session.encoding.protocol] += lost
                log.warning("history overtaken", **_log_fields(session), messages=lost)
            case LogDamaged(resumes_at=resumes_at):
                self._skip_unreadable(session, feed, resumes_at, str(result))
            case OffsetPastEnd():
                pass
            case TierUnavailable():
                log.warning("history waits for the object store", **_log_fields(session))
            case LogError():
                log.warning("log not readable", **_log_fields(session), error=str(result))
                feed.broken = True
                session.link.abort()
            case _:
                self._serve(session, feed, result)

    def _skip(self, feed: Feed, offset: int) -> int:
        """Continue at `offset` or the next cursor; return the number of skipped messages."""
        position = feed.position
        if offset <= position:
            raise AssertionError(f"history goes on at {offset}, before {position}")
        feed.advance(offset if feed.limit is None else min(offset, feed.limit))
        return feed.position - position

    def _skip_unreadable(self, session: Session, feed: Feed, offset: int, reason: str) -> None:
        lost = self._skip(feed, offset)
        self._counters.messages_unreadable[session.encoding.protocol] += lost
        log.warning("history unreadable", **_log_fields(session), messages=lost, reason=reason)

    def _serve(self, session: Session, feed: Feed, stored: Stored) -> None:
        """Write the matching messages of one row group, until the link is congested."""
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
            wanted = self._router.wanted(batch, session, feed.wants(feed.cursors[0]))
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
        """Write some rows before `end`; return the next row."""
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
            raise AssertionError(f"row {row} of {len(batch)} is not advanced")
        if len(rows):
            frames = self._encode(session, batch, rows, wanted, base=base)
            session.link.write(frames)
            self._counters.sent(session, len(rows), len(frames))
        return next_row

    def _encode(
        self, session: Session, batch: Batch, rows: "memoryview[int]", wanted: bytes, *, base: int
    ) -> bytes | memoryview:
        """Return the frames of some rows; of few large rows those that other sessions have too."""
        encoding = session.encoding
        if len(rows) > CATCH_UP_SHARED_ROWS_MAX:
            return self._encoders.encode(encoding, batch, rows, wanted)
        key = (encoding, base, rows.tobytes())
        shared = self._shared.get(key)
        if shared is None:
            frames = self._encoders.encode(encoding, batch, rows, wanted)
            if len(frames) < CATCH_UP_SHARED_BYTES_MIN:
                return frames
            shared = self._shared[key] = _SharedFrames(frames)
        return memoryview(shared)


def _log_fields(session: Session) -> dict[str, Any]:
    """Return the fields of log events about a session."""
    return {"connection": session.link.connection, "peer": session.link.peer}
