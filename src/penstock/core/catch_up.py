"""Delivery from the log to sessions that fell behind or subscribed with a start in history.

Sessions take turns: fetch the row groups at the session's position, write the matching messages
until the link is congested, go to the end of the queue. Row groups without a topic of the session
need not be read. Only CATCH_UP_FETCHES_MAX fetches run, or wait to be written, at a time, which
bounds memory for any number of sessions.
"""

from collections.abc import Iterator
from functools import partial
from weakref import WeakValueDictionary

import structlog

from penstock.core.counters import Counters
from penstock.core.feeds import Cursor, Feed
from penstock.core.history import HistoryWriter, log_fields
from penstock.core.sessions import Session
from penstock.core.slices import Slices
from penstock.core.timers import Timers
from penstock.errors import (
    LogDamaged,
    LogError,
    OffsetBelowHorizon,
    OffsetPastEnd,
    TierUnavailable,
)
from penstock.limits import (
    CATCH_UP_FETCHES_MAX,
    CATCH_UP_PIECE_BYTES,
    SLICE_SECONDS_MAX,
    TIER_RETRY_SECONDS,
)
from penstock.memory import Purpose
from penstock.ports import (
    Clock,
    Fetched,
    LogReader,
    LogWriter,
    TopicFilter,
    new_topic_filter,
)
from penstock.replay import Ago, AtOffset, AtTime, Earliest, Start

__all__ = ["CatchUp"]

log = structlog.get_logger("penstock.catch_up")

RETRY_SECONDS = 1.0
"""Delay before a fetch that raised OffsetPastEnd is tried again."""


class CatchUp:
    """Serves sessions from their log position until they are live, without gap or repeat."""

    def __init__(
        self,
        *,
        writer: LogWriter,
        reader: LogReader,
        history: HistoryWriter,
        counters: Counters,
        clock: Clock,
        timers: Timers,
        slices: Slices,
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._history = history
        self._counters = counters
        self._clock = clock
        self._timers = timers
        self._slices = slices
        self._ready: dict[Session, None] = {}  # sessions with something to do, the next first
        self._awaiting_log: dict[Session, None] = {}  # until it has written more
        self._awaiting_memory: dict[Session, None] = {}  # until its account has room for a piece
        self._fetches = 0
        self._filters: WeakValueDictionary[frozenset[str], TopicFilter] = WeakValueDictionary()
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
            log.warning("history waits for the object store", **log_fields(session))
            self._timers.after(
                TIER_RETRY_SECONDS, lambda: self._find_again(session, feed, cursor, timestamp_us)
            )
            return
        if isinstance(offset, LogError):
            # Too many messages are better than too few.
            log.warning("time not found", **log_fields(session), error=str(offset))
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
        patterns = feed.patterns

        def then(result: Fetched | LogError) -> None:
            if fetching:  # deliver only after the caller of `wake` has returned
                self._timers.after(0.0, lambda: self._fetched(session, feed, patterns, result))
            else:
                self._fetched(session, feed, patterns, result)

        self._reader.fetch(feed.fetching, then, self._filter(feed))
        fetching = False

    def _filter(self, feed: Feed) -> TopicFilter | None:
        """Return the filter of a feed's patterns; sessions with the same patterns share one."""
        patterns = feed.patterns
        if feed.topics is None or feed.topics[0] is not patterns:
            found = self._filters.get(patterns)
            if found is None:
                found = new_topic_filter(patterns)
                if found is not None:
                    self._filters[patterns] = found
            feed.topics = (patterns, found)
        return feed.topics[1]

    def _fetched(
        self, session: Session, feed: Feed, patterns: frozenset[str], result: Fetched | LogError
    ) -> None:
        """Serve fetched messages to a session, then run the next turns.

        `patterns` were those of the feed when it asked: messages of others may be left out.
        """
        work = self._delivery(session, feed, patterns, result)
        ends = self._clock.monotonic() + SLICE_SECONDS_MAX
        for _ in work:
            if self._clock.monotonic() >= ends:
                self._slices.add(work)
                return

    def _delivery(
        self, session: Session, feed: Feed, patterns: frozenset[str], result: Fetched | LogError
    ) -> Iterator[None]:
        current = (
            session.feed is feed
            and feed.position == feed.fetching
            and feed.patterns is patterns
            and not feed.lookups
        )
        if current and not session.link.congested:
            try:
                if isinstance(result, Fetched):
                    yield from self._history.write(session, feed, patterns, result)
                else:
                    self._process(session, feed, result)
            except Exception:  # a failing session ends its own connection only
                self._counters.connections_failed["internal error"] += 1
                log.exception("connection failed", **log_fields(session))
                feed.broken = True
                session.link.abort()
        self._fetches -= 1
        feed.fetching = None
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

    def _process(self, session: Session, feed: Feed, result: LogError) -> None:
        match result:
            case OffsetBelowHorizon(horizon=horizon):
                lost = self._history.skip(feed, horizon)
                session.dropped += lost
                self._counters.messages_dropped[session.encoding.protocol] += lost
                log.warning("history overtaken", **log_fields(session), messages=lost)
            case LogDamaged(resumes_at=resumes_at):
                self._history.skip_unreadable(session, feed, resumes_at, str(result))
            case OffsetPastEnd():
                pass
            case TierUnavailable():
                log.warning("history waits for the object store", **log_fields(session))
            case _:
                log.warning("log not readable", **log_fields(session), error=str(result))
                feed.broken = True
                session.link.abort()
