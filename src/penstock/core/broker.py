"""The broker: sessions, topics, subscriptions and the way of a batch from one to all others."""

import dataclasses
from collections import deque
from collections.abc import Callable

import structlog

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.core.access import Action, Principal
from penstock.core.answers import Refusal, is_safe
from penstock.core.catch_up import CatchUp
from penstock.core.counters import Counters, TopicCounts
from penstock.core.encoder import Encoder
from penstock.core.hooks import EventKind, Hooks
from penstock.core.requests import Requests
from penstock.core.resumption import Resumption
from penstock.core.routing import Audience, Encoding, Router
from penstock.core.sessions import Session, Sessions
from penstock.core.timers import Timers
from penstock.errors import (
    BrokerFull,
    InvalidTopicName,
    NoHistory,
    NotAllowed,
    TooManySubscriptions,
)
from penstock.limits import (
    HOLD_SECONDS_MAX,
    OUT_BUFFER_BYTES_MAX,
    RESUME_SECONDS_MAX,
    SESSIONS_MAX,
    SUBSCRIPTIONS_MAX,
)
from penstock.model import is_publishable
from penstock.ports import Clock, Link, LogReader, LogWriter, Prepared, Receipt, Record
from penstock.replay import AtOffset, Start, split_replay

__all__ = ["Broker", "BrokerSettings"]

log = structlog.get_logger("penstock.broker")


@dataclasses.dataclass(frozen=True, slots=True)
class BrokerSettings:
    """What an operator may set; every bound has a safe default."""

    sessions_max: int = SESSIONS_MAX
    subscriptions_max: int = SUBSCRIPTIONS_MAX
    out_buffer_bytes_max: int = OUT_BUFFER_BYTES_MAX
    hold_seconds_max: float = HOLD_SECONDS_MAX
    disconnect_slow_consumers: bool = False
    resume_seconds_max: float = RESUME_SECONDS_MAX


class Broker:
    """Takes batches from sessions and brings them to all who subscribed. One thread owns it.

    With a `reader` of the log, who falls behind is served from there and holds up nobody, and a
    subscription may ask for history. Without one, publishers wait a while for subscribers that do
    not read, and then those lose messages.
    """

    def __init__(
        self,
        *,
        log: LogWriter,
        reader: LogReader | None = None,
        clock: Clock,
        settings: BrokerSettings | None = None,
    ) -> None:
        self.settings = settings or BrokerSettings()
        self.log = log
        self.reader = reader
        self.clock = clock
        self.topics = TopicTable()
        self.router = Router(self.topics)
        self.sessions = Sessions(sessions_max=self.settings.sessions_max)
        self.batch = Batch()
        self.counters = Counters()
        self.topic_counts = TopicCounts(self.topics)
        self.timers = Timers(clock)
        self.resumption = Resumption(self.timers, seconds_max=self.settings.resume_seconds_max)
        self.creators: dict[int, bytes] = {}  # the client ids that Rheos calls parents, by topic
        self.requests = Requests(self.timers, clock)
        self.encoder = Encoder(self.topics, self.router, self.counters)
        self.hooks = Hooks(self.timers, clock, self.encoder.next_forward_id)
        self.judged = False  # what is scanned now has been judged: `permits` must not stop it
        self._awaiting_disk: dict[Session, None] = {}
        self._awaiting_commits: deque[tuple[Receipt, Callable[[bool], None]]] = deque()
        self._prepared_batch = Batch()
        self._crowding: dict[Session, None] = {}  # publishers that wait for the log
        self.catch_up: CatchUp | None = None
        if reader is not None:
            self.catch_up = CatchUp(
                writer=log,
                reader=reader,
                topics=self.topics,
                router=self.router,
                encoder=self.encoder,
                counters=self.counters,
                clock=clock,
                timers=self.timers,
            )

    # --- Sessions ---------------------------------------------------------------------------------

    def open(
        self,
        encoding: Encoding,
        link: Link,
        *,
        name: str = "",
        principal: Principal,
        echo: bool = True,
    ) -> Session:
        """Let a client in that has passed its handshake; raise BrokerFull at the limit.

        Without a name the client goes by its number.
        """
        if self.sessions.full:
            raise BrokerFull(len(self.sessions))
        number = self.sessions.next_number()
        session = Session(
            number,
            encoding=encoding,
            link=link,
            name=name or str(number),
            principal=principal,
            echo=echo,
            opened_at=self.log.next_offset,
            since_us=self.clock.now_us(),
        )
        self.sessions.add(session)
        self.counters.sessions_opened[encoding.protocol] += 1
        return session

    def close(self, session: Session) -> None:
        """Forget a client and all its subscriptions."""
        if self.catch_up is not None:
            self.catch_up.forget(session)
        for pattern in session.subscriptions:
            self.router.unsubscribe(session, pattern)
        session.subscriptions.clear()
        self._release_held(session)
        self.requests.leave(session)
        self.sessions.remove(session)
        self._awaiting_disk.pop(session, None)
        self._crowding.pop(session, None)
        self.hooks.closed(session)

    # --- Subscriptions ----------------------------------------------------------------------------

    def subscribe(self, session: Session, text: str) -> bool:
        """Give a session the topics of a pattern; return False if it had them already.

        `text` may end in a place in history, see `penstock.replay`. Then what is live waits for
        what is older: the session is served from the log until it has caught up. The pattern is
        the same subscription with and without it. A time that is not kept any more stands for the
        earliest that is, one to come for now.

        Raise InvalidPattern, NotAllowed, TooManySubscriptions, NoHistory, OffsetBelowHorizon or
        OffsetPastEnd; then nothing has changed.
        """
        pattern, start = split_replay(text)
        if pattern in session.subscriptions:
            return False
        self.judge_subscription(session, pattern)
        if start is not None:
            if self.catch_up is None:
                raise NoHistory
            self.catch_up.check(start)
        self._subscribe(session, pattern, start)
        return True

    def resume(self, session: Session, pattern: str, offset: int) -> bool:
        """Subscribe for a client that is back: to what it missed from `offset` on, and what comes.

        What is no longer kept is left out, and without a log all of it. Return False if it has the
        subscription already; raise InvalidPattern, NotAllowed or TooManySubscriptions.
        """
        if pattern in session.subscriptions:
            return False
        self.judge_subscription(session, pattern)
        self._subscribe(session, pattern, AtOffset(offset))
        return True

    def cut_off(self, session: Session) -> None:
        """Keep a client's subscriptions for `resume`, with what it was not sent of each.

        What was written to its link counts as sent, also what the system had not taken yet.
        """
        positions = dict.fromkeys(session.subscriptions, self.log.next_offset)
        if self.catch_up is not None:
            positions = self.catch_up.positions(session)
        self.resumption.keep(session, positions)

    def _subscribe(self, session: Session, pattern: str, start: Start | None) -> None:
        self.router.subscribe(session, pattern)
        session.subscriptions[pattern] = None
        if self.catch_up is not None:
            self.catch_up.subscribed(session, pattern, start)

    def judge_subscription(self, session: Session, pattern: str) -> None:
        """Raise NotAllowed or TooManySubscriptions if a session may not have a new pattern."""
        if not session.principal.may(Action.SUBSCRIBE, pattern):
            raise NotAllowed(session.principal.name, Action.SUBSCRIBE, pattern)
        if len(session.subscriptions) >= self.settings.subscriptions_max:
            raise TooManySubscriptions(self.settings.subscriptions_max)

    def unsubscribe(self, session: Session, text: str) -> bool:
        """Take a pattern back: not one message more. Return False if the session had it not.

        A place in history behind it makes no difference.
        """
        pattern, _ = split_replay(text)
        if pattern not in session.subscriptions:
            return False
        cursor = session.subscriptions.pop(pattern)
        self.router.unsubscribe(session, pattern)
        if self.catch_up is not None:
            self.catch_up.unsubscribed(session, pattern, cursor)
        self.hooks.tell(EventKind.UNSUBSCRIBE, pattern, session)
        return True

    # --- Publishing -------------------------------------------------------------------------------

    def permits(self, session: Session) -> bytearray | None:
        """Return the table by which a scan stops at topics that need a closer look; None for all.

        With a table, a scan must not learn topics: `admit` does, for those that are allowed.
        """
        if self.judged:
            return None
        if session.encoding.protocol in self.hooks.watched:
            return self.hooks.permits(session)
        principal = session.principal
        return principal.permits if principal.restricted else None

    def admit(self, session: Session, name: str) -> None:
        """Judge a topic that a scan stopped at.

        When this returns, a scan will take it, unless hooks watch it: they must be asked first.
        Raise InvalidTopicName, NotAllowed or TopicTableFull.
        """
        if not is_publishable(name):
            raise InvalidTopicName(name[:200])
        if not session.principal.may(Action.PUBLISH, name):
            raise NotAllowed(session.principal.name, Action.PUBLISH, name)
        identifier = self.topics.intern(name)
        session.principal.permit(identifier)
        if session.encoding.protocol in self.hooks.watched:
            self.hooks.permit(session, name, identifier)

    def publish(self, session: Session, batch: Batch) -> Receipt:
        """Keep and deliver all rows of `batch`.

        Raise LogUnavailable if they cannot be kept: then nobody gets them.
        """
        batch.timestamp_us = self.clock.now_us()
        receipt = self.log.append(batch, session.name)
        self._taken(session, receipt, len(batch))
        self.topic_counts.add(batch, receipt.first_offset)
        for audience in self.router.audiences(batch):
            self._deliver(session, batch, audience, receipt.first_offset)
        return receipt

    def publish_record(self, session: Session, record: Record) -> Receipt:
        """Keep one message that no batch carries; whoever sends it on does so itself.

        Raise LogUnavailable if it cannot be kept.
        """
        receipt = self.log.append_record(record)
        self._taken(session, receipt, 1)
        return receipt

    def publish_prepared(self, rows: Prepared) -> Receipt:
        """Keep and deliver rows, of a table or of its kind, which were judged before.

        Nobody is held for them: whoever brings them counts them and waits until they are settled.
        Raise LogUnavailable or TopicTableFull if they cannot be kept: then nobody gets them.
        """
        batch = self._prepared_batch
        now_us = self.clock.now_us()
        rows.stamp(now_us)
        rows.load(batch, self.topics)
        batch.timestamp_us = now_us
        try:
            receipt = self.log.append_prepared(rows)
            self.topic_counts.add(batch, receipt.first_offset)
            if self.catch_up is not None:
                self.catch_up.last_commit = receipt.commit
            for audience in self.router.audiences(batch):
                self._deliver(None, batch, audience, receipt.first_offset)
        finally:
            batch.clear()
        return receipt

    def _taken(self, session: Session, receipt: Receipt, count: int) -> None:
        """Count what the log has taken, and hold its sender if that was as much as it can take."""
        self.counters.messages_received[session.encoding.protocol] += count
        session.messages_received += count
        if self.catch_up is not None:
            self.catch_up.last_commit = receipt.commit
        if self.log.crowded and session not in self._crowding:
            self._crowding[session] = None
            session.link.pause()

    def _deliver(
        self, sender: Session | None, batch: Batch, audience: Audience, first: int
    ) -> None:
        """Bring its rows of `batch`, whose first offset is `first`, to an audience."""
        catch_up = None if self.settings.disconnect_slow_consumers else self.catch_up
        frames, count, reached = None, 0, 0
        for receiver in audience.sessions:
            if receiver is sender and not receiver.echo:
                continue
            feed = receiver.feed
            if feed is not None:
                if feed.joins_at is None or feed.joins_at > first:
                    continue  # the log brings it
            elif catch_up is not None and receiver.link.congested:
                catch_up.leave(receiver, first)
                continue
            if frames is None:
                frames, count = self._encode(audience, batch)
            if feed is not None:
                feed.keep(frames, count)
                continue
            if self._write(receiver, frames, count):
                reached += 1
            if self.reader is None and receiver.link.congested and not receiver.slow and sender:
                self._hold(sender, receiver)
        if frames is not None and reached:
            protocol = audience.encoding.protocol
            self.counters.messages_sent[protocol] += reached * count
            self.counters.bytes_sent[protocol] += reached * len(frames)

    def _encode(self, audience: Audience, batch: Batch) -> tuple[bytes, int]:
        """Return the frames of an audience, and how many messages they are."""
        rows = None
        if audience.wanted is not None:
            rows = batch.select(self.router.route_of_topic, audience.wanted)
        frames = self.encoder.encode(audience.encoding, batch, rows, audience.wanted)
        return frames, len(batch) if rows is None else len(rows)

    def send(self, session: Session, frames: bytes, count: int) -> None:
        """Bring `count` messages to one client, if it keeps up."""
        if self._write(session, frames, count):
            protocol = session.encoding.protocol
            self.counters.messages_sent[protocol] += count
            self.counters.bytes_sent[protocol] += len(frames)

    def _write(self, session: Session, frames: bytes, count: int) -> bool:
        """Write `count` messages to one client, if it keeps up; tell whether it does."""
        link = session.link
        if link.buffered > self.settings.out_buffer_bytes_max:
            protocol = session.encoding.protocol
            if self.settings.disconnect_slow_consumers:
                self.counters.cut_off[protocol] += not session.dropped  # once, while it ends
                link.abort()
            session.dropped += count
            self.counters.messages_dropped[protocol] += count
            return False
        link.write(frames)
        session.messages_sent += count
        session.bytes_sent += len(frames)
        return True

    # --- Publishers and slow subscribers ----------------------------------------------------------

    def drained(self, session: Session) -> None:
        """Go on with a session whose link has room again, and with those that waited for it."""
        session.slow = False
        self._release_held(session)
        if self.catch_up is not None:
            self.catch_up.wake(session)

    def _hold(self, publisher: Session, receiver: Session) -> None:
        """Read no more from `publisher` until `receiver` has caught up or had its time to."""
        if receiver.patience is None:
            seconds = self.settings.hold_seconds_max
            receiver.patience = self.timers.after(seconds, lambda: self._give_up_on(receiver))
        if publisher not in receiver.held:
            receiver.held[publisher] = None
            publisher.link.pause()

    def _give_up_on(self, receiver: Session) -> None:
        receiver.slow = receiver.link.congested
        self._release_held(receiver)

    def _release_held(self, receiver: Session) -> None:
        if receiver.patience is not None:
            receiver.patience.cancel()
            receiver.patience = None
        held = list(receiver.held)
        receiver.held.clear()
        for publisher in held:
            publisher.link.resume()

    # --- Answers that wait for the disk -----------------------------------------------------------

    def acknowledge(
        self, session: Session, receipt: Receipt, answer: bytes, refusal: Refusal
    ) -> None:
        """Send `answer` once the messages of `receipt` are as safe as they are to be.

        If they fail, `refusal(answer)` is sent instead. Either goes behind the answers before it.
        An empty `answer` is for protocols without acknowledgments: only a failure sends something,
        once for all messages of the session that failed together, and nothing waits behind it.
        """
        if session.answers.send_when_safe(receipt, answer, refusal, self.log):
            self._awaiting_disk[session] = None

    def when_settled(self, receipt: Receipt, then: Callable[[bool], None]) -> None:
        """Call `then` once the messages of `receipt` are safe, or with False once they failed.

        Receipts must come in the order of their commits.
        """
        self._awaiting_commits.append((receipt, then))
        self._settle_commits()

    def _settle_commits(self) -> None:
        waiting = self._awaiting_commits
        while waiting:
            receipt, then = waiting[0]
            safe = is_safe(receipt, self.log)
            if not safe and receipt.commit > self.log.failed_commit:
                return
            waiting.popleft()
            then(safe)

    def settle(self) -> None:
        """Go on with all that waited for the log; its owner calls it when commit numbers moved."""
        self._settle_commits()
        for session in list(self._awaiting_disk):
            try:
                waits = session.answers.release(self.log)
            except Exception:  # one connection fails alone
                self.counters.connections_failed["internal error"] += 1
                log.exception(
                    "connection failed",
                    connection=session.link.connection,
                    peer=session.link.peer,
                )
                session.link.abort()
                waits = False
            if not waits:
                self._awaiting_disk.pop(session, None)
        if self._crowding and not self.log.crowded:
            crowding, self._crowding = self._crowding, {}
            for session in crowding:
                session.link.resume()
        if self.catch_up is not None:
            self.catch_up.settled()
