"""Delivery from the log to sessions that fell behind or subscribed with a start in history.

Sessions take turns: fetch the row groups at the session's position, write the matching messages
until the link is congested, go to the end of the queue. Row groups without a topic of the session
need not be read. Only CATCH_UP_FETCHES_MAX fetches run, or wait to be written, at a time, which
bounds memory for any number of sessions.

A session has a feed for each partition in which it is behind. They take turns, too: one is fetched
at a time, so the order of messages is kept within each partition, not between them.
"""

import contextlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from weakref import WeakValueDictionary

import structlog

from penstock.core.counters import Counters
from penstock.core.early_offsets import EarlyOffsets
from penstock.core.feeds import Cursor, Feed
from penstock.core.history import HistoryWriter, log_fields
from penstock.core.last_search import LastSearch
from penstock.core.last_values import LastRows, LastValues
from penstock.core.partitions import OwnPartition, Partition, Position
from penstock.core.routing import Router
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
from penstock.ports import Clock, Fetched, TopicFilter, new_topic_filter
from penstock.replay import Ago, AtOffset, AtOffsets, AtTime, Earliest, Last, Start

__all__ = ["CatchUp"]

log = structlog.get_logger("penstock.catch_up")

RETRY_SECONDS = 1.0
"""Delay before a read that raised OffsetPastEnd is tried again."""


class CatchUp:
    """Serves sessions from their log position until they are live, without gap or repeat.

    `own` is the partition that this process writes. Offsets without a partition are its.
    """

    def __init__(
        self,
        *,
        own: Partition,
        router: Router,
        history: HistoryWriter,
        last_values: LastValues,
        counters: Counters,
        clock: Clock,
        timers: Timers,
        slices: Slices,
    ) -> None:
        self.own = own
        self.partitions: dict[int, Partition] = {own.number: own}
        self._history = history
        self._last_values = last_values
        self._last_search = LastSearch(last_values, router, counters)
        self._counters = counters
        self._clock = clock
        self._timers = timers
        self._slices = slices
        self.early = EarlyOffsets()
        self._ready: OrderedDict[Session, None] = OrderedDict()
        """Sessions with something to do, the next first."""
        self._awaiting_log: dict[Session, None] = {}  # until it has written more
        self._awaiting_memory: dict[Session, None] = {}  # until its account has room for a piece
        self._fetches = 0
        self._filters: WeakValueDictionary[frozenset[str], TopicFilter] = WeakValueDictionary()

    # --- Start positions --------------------------------------------------------------------------

    def check(self, start: Start, pattern: str) -> None:
        """Raise OffsetBelowHorizon or OffsetPastEnd if a start offset is out of a pattern's range.

        Raise NoLastValues if the log cannot find the last messages of topics.
        """
        match start:
            case Last():
                self._last_values.check()
            case AtOffset(offset):
                _check(self.own, offset, pattern)
            case AtOffsets(offsets):
                for number, offset in offsets.items():
                    if number in self.partitions:
                        _check(self.partitions[number], offset, pattern)
            case _:
                pass

    def prepare(
        self, session: Session, pattern: str, offsets: Mapping[int, int], *, check: bool
    ) -> AtOffsets:
        """Store offsets of partitions that may be found later, before a subscription begins.

        Return the offsets without those of partitions that cannot exist. With `check`, raise
        TooManySubscriptions or MemoryExhausted if the session has too many.
        """
        known = {number: offsets[number] for number in offsets if number in self.partitions}
        later = {
            number: offset
            for number, offset in offsets.items()
            if number not in known and number < self.early.partitions_max
        }
        if later:
            if check:
                self.early.check(session, len(later))
            self.early.add(session, pattern, later)
        return AtOffsets(known | later)

    def fall_behind(self, session: Session, partition: Partition, offset: int) -> None:
        """Serve a congested session from the log, from `offset` on, instead of live."""
        session.feeds[partition.number] = _new_feed(session, partition, offset)
        self._counters.fell_behind[session.encoding.protocol] += 1

    def read_from(self, session: Session, offset: int) -> None:
        """Serve a session from the log from `offset` on: what is there was not sent to it live."""
        feed = session.feeds.get(self.own.number)
        if feed is None:
            session.feeds[self.own.number] = _new_feed(session, self.own, offset)
            self.wake(session)
        elif feed.joins_at is not None and feed.joins_at <= offset:
            feed.stop_joining()

    def subscribed(self, session: Session, pattern: str, start: Start | None) -> None:
        """Start a new subscription at its position.

        A start time is looked up in the background.
        """
        for partition in self.partitions.values():
            self._start(session, pattern, partition, start)

    def partition_found(self, partition: Partition) -> None:
        """Add a partition; sessions that have a position in it start there."""
        self.partitions[partition.number] = partition
        for session, pattern, offset in self.early.take(partition.number):
            self._start(session, pattern, partition, AtOffsets({partition.number: offset}))

    def _start(
        self, session: Session, pattern: str, partition: Partition, start: Start | None
    ) -> None:
        horizon = partition.reader.horizon
        match start:
            case Earliest():
                first = partition.reader.horizon_of(pattern)
                self._place(session, pattern, partition, min(first, partition.next_offset))
            case AtOffset(offset) if partition is self.own:
                self._place(session, pattern, partition, max(offset, horizon))
            case AtOffsets(offsets):
                offset = max(offsets.get(partition.number, horizon), horizon)
                self._place(session, pattern, partition, offset)
                if partition.number in session.feeds:
                    session.feeds[partition.number].since = None  # it has missed what has expired
            case Last() if partition is self.own:
                self._start_last(session, pattern, partition)
            case Ago(us):
                self._look_up(session, pattern, partition, self._clock.now_us() - us)
            case AtTime(us):
                self._look_up(session, pattern, partition, us)
            case _:
                feed = session.feeds.get(partition.number)
                if feed is not None:
                    next_offset = partition.next_offset
                    feed.place(pattern, next_offset, subscribed_at=next_offset)

    def _start_last(self, session: Session, pattern: str, partition: Partition) -> None:
        """Send the last message of each topic first, and all from now on afterwards."""
        now = partition.next_offset
        feed = session.feeds.get(partition.number)
        if feed is None:
            feed = session.feeds[partition.number] = _new_feed(session, partition, now)
        else:
            feed.place(pattern, now, subscribed_at=now)
        feed.lasts.add(pattern)
        self._last_search.start(session, feed, then=self.wake)

    def failed(self, *, start: int, end: int) -> None:
        """Note that the commits of some offsets of the own partition have failed."""
        self._last_values.failed(start=start, end=end)

    def _place(self, session: Session, pattern: str, partition: Partition, offset: int) -> None:
        next_offset = partition.next_offset
        feed = session.feeds.get(partition.number)
        if isinstance(partition, OwnPartition):
            offset = min(offset, next_offset)
        if feed is None:
            if offset == next_offset:
                return
            feed = session.feeds[partition.number] = _new_feed(session, partition, next_offset)
        # The node on which the client was may have read more of another partition than this one.
        feed.place(pattern, offset, subscribed_at=next_offset)
        self.wake(session)

    def _look_up(
        self, session: Session, pattern: str, partition: Partition, timestamp_us: int
    ) -> None:
        next_offset = partition.next_offset
        if timestamp_us > self._clock.now_us():
            self._place(session, pattern, partition, next_offset)
            return
        feed = session.feeds.get(partition.number)
        if feed is None:
            feed = session.feeds[partition.number] = _new_feed(session, partition, next_offset)
        cursor = feed.look_up(pattern, next_offset)
        self._find_again(session, partition, feed, cursor, max(timestamp_us, 0))

    def _find_again(
        self, session: Session, partition: Partition, feed: Feed, cursor: Cursor, timestamp_us: int
    ) -> None:
        if cursor in feed.lookups:
            then = partial(
                self._found,
                session=session,
                partition=partition,
                feed=feed,
                cursor=cursor,
                timestamp_us=timestamp_us,
            )
            partition.reader.find_time(timestamp_us, then)

    def _found(
        self,
        offset: int | LogError,
        *,
        session: Session,
        partition: Partition,
        feed: Feed,
        cursor: Cursor,
        timestamp_us: int,
    ) -> None:
        if cursor not in feed.lookups:
            return  # the client has disconnected or unsubscribed
        if isinstance(offset, TierUnavailable | OffsetPastEnd):  # it is not known yet
            seconds = RETRY_SECONDS
            if isinstance(offset, TierUnavailable):
                log.warning("history waits for the object store", **log_fields(session))
                seconds = TIER_RETRY_SECONDS
            self._timers.after(
                seconds,
                lambda: self._find_again(session, partition, feed, cursor, timestamp_us),
            )
            return
        if isinstance(offset, LogError):
            # Too many messages are better than too few.
            log.warning("time not found", **log_fields(session), error=str(offset))
            offset = partition.reader.horizon
        del feed.lookups[cursor]
        latest = cursor.position
        for pattern in list(cursor.patterns):
            feed.place(pattern, min(offset, latest), subscribed_at=latest)
        self.wake(session)

    def unsubscribed(self, session: Session, pattern: str) -> None:
        """Remove a subscription from the session's feeds."""
        self.early.remove(session, pattern)
        if session.feeds:
            for feed in session.feeds.values():
                feed.remove(pattern)
                self._last_search.start(session, feed, then=self.wake)
            self.wake(session)

    def positions(self, session: Session) -> dict[str, Position]:
        """Return the position of each subscription of a session."""
        live = {number: each.next_offset for number, each in self.partitions.items()}
        early = self.early.of(session)
        if not session.feeds and not early:
            return dict.fromkeys(session.subscriptions, live)
        return {
            pattern: live
            | {number: feed.position_of(pattern) for number, feed in session.feeds.items()}
            | dict(early.get(pattern, ()))
            for pattern in session.subscriptions
        }

    def behind(self, session: Session) -> int:
        """Return how many messages a session has not been served from the log yet."""
        return sum(
            max(self.partitions[number].next_offset - feed.position, 0)
            for number, feed in session.feeds.items()
        )

    def forget(self, session: Session) -> None:
        """Remove a session."""
        self.early.forget(session)
        self._ready.pop(session, None)
        self._awaiting_log.pop(session, None)
        self._awaiting_memory.pop(session, None)
        session.link.account.hold(Purpose.REPLAY, 0)
        for feed in session.feeds.values():
            feed.end()
        session.feeds.clear()

    # --- Turns ------------------------------------------------------------------------------------

    def wake(self, session: Session) -> None:
        """Queue a session for a turn, if it is served from the log."""
        if session.feeds:
            self._ready[session] = None
            self._run()

    @property
    def awaits_log(self) -> bool:
        """Whether sessions wait for the log."""
        return bool(self._awaiting_log)

    def settled(self) -> None:
        """Queue the sessions that waited for the log: it has written, or failed to."""
        waiting, self._awaiting_log = self._awaiting_log, {}
        self._ready.update(waiting)
        self._run()

    def _run(self) -> None:
        while self._ready and self._fetches < CATCH_UP_FETCHES_MAX:
            session, _ = self._ready.popitem(last=False)
            self._take_turn(session)

    def _take_turn(self, session: Session) -> None:
        """Fetch the next messages of a session, or make it live where it has caught up."""
        if session in self._awaiting_memory:
            return
        if any(feed.fetching is not None or feed.broken for feed in session.feeds.values()):
            return
        for number, feed in list(session.feeds.items()):
            if session.link.congested:
                return  # Broker.drained wakes it
            if feed.lookups:
                continue
            partition = self.partitions[number]
            if feed.lasts:
                if self._take_last_turn(session, partition, feed):
                    return
                if feed.lasts:
                    continue
            while feed.idle and feed.limit is not None and feed.limit > feed.position:
                feed.advance(feed.limit)
            if _is_ahead(partition, feed):
                self._awaiting_log[session] = None
            elif _has_caught_up(partition, feed):
                self._go_live(session, partition, feed)
            elif feed.position < partition.reader.end:
                session.feeds[number] = session.feeds.pop(number)  # others have the next turn
                self._fetch_with_memory(session, partition, feed)
                return
            else:
                self._join(session, partition, feed)

    def _take_last_turn(self, session: Session, partition: Partition, feed: Feed) -> bool:
        """Fetch the next last messages of a session; return whether it fetches."""
        while (last := feed.lasts.first) is not None and last.ready:
            while last.next is not None and self._last_values.is_failed(last.next):
                last.take()
            if last.next is None:
                feed.lasts.remove_first()
            elif last.next < partition.reader.end:
                self._fetch_with_memory(session, partition, feed)
                return True
            else:
                self._awaiting_log[session] = None
                return False
        return False

    def _join(self, session: Session, partition: Partition, feed: Feed) -> None:
        """Queue live messages until all earlier ones can be read from the log."""
        if feed.joins_at is None:
            feed.join(partition.next_offset, partition.last_commit)
        if partition.is_settled(feed.join_commit):
            # All earlier commits are settled: missing messages failed to commit.
            self._go_live(session, partition, feed)
        else:
            self._awaiting_log[session] = None

    def _go_live(self, session: Session, partition: Partition, feed: Feed) -> None:
        del session.feeds[partition.number]
        feed.end()
        session.link.account.hold(Purpose.REPLAY, _queue_bytes(session.feeds.values()))
        for frames, count in feed.queue:
            session.link.write(frames)
            self._counters.sent(session, count, len(frames))

    # --- Reading ----------------------------------------------------------------------------------

    def _fetch_with_memory(self, session: Session, partition: Partition, feed: Feed) -> None:
        """Fetch once the session's account holds a piece; the out-buffer holds it later."""
        account = session.link.account
        size = _queue_bytes(session.feeds.values()) + CATCH_UP_PIECE_BYTES
        if account.hold(Purpose.REPLAY, size):
            self._fetch(session, partition, feed)
            return
        self._awaiting_memory[session] = None
        account.wait(Purpose.REPLAY, size, lambda: self._has_memory(session))

    def _has_memory(self, session: Session) -> None:
        self._awaiting_memory.pop(session, None)
        self.wake(session)

    def _fetch(self, session: Session, partition: Partition, feed: Feed) -> None:
        last = feed.lasts.first
        if last is not None and last.next is None:
            self.wake(session)  # its subscription has ended while it waited for memory
            return
        feed.fetching = feed.position if last is None else last.next
        self._fetches += 1
        fetching = True
        patterns = feed.patterns

        def then(result: Fetched | LogError) -> None:
            if fetching:  # deliver only after the caller of `wake` has returned
                self._timers.after(0.0, lambda: self._fetched(delivery(result)))
            else:
                self._fetched(delivery(result))

        def delivery(result: Fetched | LogError) -> Iterator[None]:
            if last is None:
                return self._delivery(session, partition, feed, patterns, result)
            return self._last_delivery(session, partition, feed, last, result)

        topics = self._filter(feed) if last is None else last.topics
        partition.reader.fetch(feed.fetching or 0, then, topics)
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

    def _fetched(self, work: Iterator[None]) -> None:
        """Serve fetched messages to a session, then run the next turns."""
        ends = self._clock.monotonic() + SLICE_SECONDS_MAX
        for _ in work:
            if self._clock.monotonic() >= ends:
                self._slices.add(work)
                return

    def _delivery(
        self,
        session: Session,
        partition: Partition,
        feed: Feed,
        patterns: frozenset[str],
        result: Fetched | LogError,
    ) -> Iterator[None]:
        """Write fetched messages in steps.

        `patterns` were those of the feed when it asked: messages of others may be left out.
        """
        current = (
            session.feeds.get(partition.number) is feed
            and feed.position == feed.fetching
            and feed.patterns is patterns
            and not feed.lookups
            and not feed.lasts
        )
        if current and not session.link.congested:
            with self._failing_alone(session, feed):
                if isinstance(result, Fetched):
                    yield from self._history.write(session, partition, feed, patterns, result)
                else:
                    self._process(session, feed, result)
        self._end_delivery(session, feed, result, current=current)

    def _last_delivery(
        self,
        session: Session,
        partition: Partition,
        feed: Feed,
        last: LastRows,
        result: Fetched | LogError,
    ) -> Iterator[None]:
        """Write the last messages among those that were fetched, in steps."""
        current = session.feeds.get(partition.number) is feed and feed.lasts.first is last
        if current and not session.link.congested:
            with self._failing_alone(session, feed):
                match result:
                    case Fetched():
                        yield from self._history.write_last(session, partition, feed, last, result)
                    case OffsetBelowHorizon(horizon=horizon):
                        last.skip(horizon)
                    case LogDamaged(resumes_at=resumes_at):
                        self._history.skip_last(session, last, resumes_at, str(result))
                    case _:
                        self._process(session, feed, result)
        self._end_delivery(session, feed, result, current=current)

    @contextlib.contextmanager
    def _failing_alone(self, session: Session, feed: Feed) -> Iterator[None]:
        """Let a session that fails end its own connection only."""
        try:
            yield
        except Exception:
            self._counters.connections_failed["internal error"] += 1
            log.exception("connection failed", **log_fields(session))
            feed.broken = True
            session.link.abort()

    def _end_delivery(
        self, session: Session, feed: Feed, result: Fetched | LogError, *, current: bool
    ) -> None:
        """Queue a session again after a fetch, and run the next turns."""
        self._fetches -= 1
        feed.fetching = None
        if session.feeds:
            session.link.account.hold(Purpose.REPLAY, _queue_bytes(session.feeds.values()))
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


def _new_feed(session: Session, partition: Partition, offset: int) -> Feed:
    return Feed(offset, session.subscriptions, since=partition.reader.expiry)


def _has_caught_up(partition: Partition, feed: Feed) -> bool:
    if feed.idle and feed.limit is None:
        return True
    joins_at = partition.next_offset if feed.joins_at is None else feed.joins_at
    return feed.position >= joins_at


def _is_ahead(partition: Partition, feed: Feed) -> bool:
    """Return whether a feed has to wait for a partition that was not followed so far yet."""
    if isinstance(partition, OwnPartition):
        return False
    next_offset = partition.next_offset
    return feed.position >= next_offset and feed.cursors[-1].position > next_offset


def _queue_bytes(feeds: Iterable[Feed]) -> int:
    return sum(feed.held_bytes for feed in feeds)


def _check(partition: Partition, offset: int, pattern: str) -> None:
    """Raise OffsetBelowHorizon or OffsetPastEnd if an offset is out of range."""
    horizon = partition.reader.horizon_of(pattern)
    if offset < min(horizon, partition.next_offset):
        raise OffsetBelowHorizon(offset, horizon)
    if offset > partition.next_offset:
        raise OffsetPastEnd(offset, partition.next_offset)
