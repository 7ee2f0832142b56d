"""The broker: sessions, topics, subscriptions and the way of a batch from one to all others."""

import dataclasses

from penstock._kernels import fleximq as fleximq_kernel
from penstock._kernels import herald as herald_kernel
from penstock._kernels import lamamq as lamamq_kernel
from penstock._kernels import rheos1 as rheos1_kernel
from penstock._kernels import rheos2 as rheos2_kernel
from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.core.access import Action, Principal
from penstock.core.counters import Counters
from penstock.core.hooks import EventKind, Hooks
from penstock.core.requests import Requests
from penstock.core.resumption import Resumption
from penstock.core.routing import Encoding, Router
from penstock.core.sessions import Session, Sessions
from penstock.core.timers import Timers
from penstock.errors import (
    BrokerFull,
    InvalidTopicName,
    NotAllowed,
    TooManySubscriptions,
    ValueNotDeliverable,
)
from penstock.limits import (
    HERALD_PAYLOAD_BYTES_MAX,
    HOLD_SECONDS_MAX,
    OUT_BUFFER_BYTES_MAX,
    RESUME_SECONDS_MAX,
    SESSIONS_MAX,
    SUBSCRIPTIONS_MAX,
)
from penstock.model import Protocol, is_publishable
from penstock.ports import Clock, Link, LogWriter

__all__ = ["Broker", "BrokerSettings"]

HERALD_VALUE_BYTES_MAX = HERALD_PAYLOAD_BYTES_MAX - 9


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
    """Takes batches from sessions and brings them to all who subscribed. One thread owns it."""

    def __init__(
        self, *, log: LogWriter, clock: Clock, settings: BrokerSettings | None = None
    ) -> None:
        self.settings = settings or BrokerSettings()
        self.log = log
        self.clock = clock
        self.topics = TopicTable()
        self.router = Router(self.topics)
        self.sessions = Sessions(sessions_max=self.settings.sessions_max)
        self.batch = Batch()
        self.counters = Counters()
        self.timers = Timers(clock)
        self.resumption = Resumption(self.timers, seconds_max=self.settings.resume_seconds_max)
        self.creators: dict[int, bytes] = {}  # the client ids that Rheos calls parents, by topic
        self.requests = Requests(self.timers, clock)
        self.hooks = Hooks(self.timers, clock, self._next_forward_id)
        self.judged = False  # what is scanned now has been judged: `permits` must not stop it
        self._forward_id = 0
        self._awaiting_disk: dict[Session, None] = {}

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
        )
        self.sessions.add(session)
        self.counters.sessions_opened[encoding.protocol] += 1
        return session

    def close(self, session: Session) -> None:
        """Forget a client and all its subscriptions."""
        for pattern in session.subscriptions:
            self.router.unsubscribe(session, pattern)
        session.subscriptions.clear()
        self._release_held(session)
        self.requests.leave(session)
        self.sessions.remove(session)
        self._awaiting_disk.pop(session, None)
        self.hooks.closed(session)

    # --- Subscriptions ----------------------------------------------------------------------------

    def subscribe(self, session: Session, pattern: str) -> bool:
        """Give a session the topics of a pattern; return False if it had them already.

        Raise InvalidPattern, NotAllowed or TooManySubscriptions.
        """
        if pattern in session.subscriptions:
            return False
        self.judge_subscription(session, pattern)
        self.router.subscribe(session, pattern)
        session.subscriptions[pattern] = None
        return True

    def judge_subscription(self, session: Session, pattern: str) -> None:
        """Raise NotAllowed or TooManySubscriptions if a session may not have a new pattern."""
        if not session.principal.may(Action.SUBSCRIBE, pattern):
            raise NotAllowed(session.principal.name, Action.SUBSCRIBE, pattern)
        if len(session.subscriptions) >= self.settings.subscriptions_max:
            raise TooManySubscriptions(self.settings.subscriptions_max)

    def unsubscribe(self, session: Session, pattern: str) -> bool:
        """Take a pattern back: not one message more. Return False if the session had it not."""
        if pattern not in session.subscriptions:
            return False
        del session.subscriptions[pattern]
        self.router.unsubscribe(session, pattern)
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

    def publish(self, session: Session, batch: Batch) -> int:
        """Keep and deliver all rows of `batch`; return the offset of the first."""
        batch.timestamp_us = self.clock.now_us()
        first = self.log.append(batch)
        protocol = session.encoding.protocol
        self.counters.messages_received[protocol] += len(batch)
        for audience in self.router.audiences(batch):
            rows = None
            count = len(batch)
            if audience.wanted is not None:
                rows = batch.select(self.router.route_of_topic, audience.wanted)
                count = len(rows)
            frames = self._encode(audience.encoding, batch, rows, audience.wanted)
            for receiver in audience.sessions:
                if receiver is not session or session.echo:
                    self.send(receiver, frames, count)
                    if receiver.link.congested and not receiver.slow:
                        self._hold(session, receiver)
        return first

    def send(self, session: Session, frames: bytes, count: int) -> None:
        """Bring `count` messages to one client, if it keeps up."""
        link = session.link
        if link.buffered > self.settings.out_buffer_bytes_max:
            session.dropped += count
            self.counters.messages_dropped[session.encoding.protocol] += count
            if self.settings.disconnect_slow_consumers:
                link.abort()
            return
        link.write(frames)
        self.counters.messages_sent[session.encoding.protocol] += count

    # --- Publishers and slow subscribers ----------------------------------------------------------

    def _hold(self, publisher: Session, receiver: Session) -> None:
        """Read no more from `publisher` until `receiver` has caught up or had its time to."""
        if receiver.patience is None:
            seconds = self.settings.hold_seconds_max
            receiver.patience = self.timers.after(seconds, lambda: self._give_up_on(receiver))
        if publisher not in receiver.held:
            receiver.held[publisher] = None
            publisher.link.pause()

    def drained(self, session: Session) -> None:
        """Go on with the publishers that waited for this session."""
        session.slow = False
        self._release_held(session)

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

    def _encode(
        self,
        encoding: Encoding,
        batch: Batch,
        rows: "memoryview[int] | None",
        wanted: bytes | None,
    ) -> bytes:
        match encoding.protocol:
            case Protocol.RHEOS1:
                return rheos1_kernel.encode(batch, self.topics, rows=rows)
            case Protocol.RHEOS2:
                return rheos2_kernel.encode(batch, self.topics, rows=rows)
            case Protocol.FLEXIMQ:
                return fleximq_kernel.encode(batch, self.topics, rows=rows)
            case Protocol.LAMAMQ:
                first = self._next_forward_id(len(batch))
                return lamamq_kernel.encode(
                    batch, self.topics, order=encoding.order, rows=rows, first_message_id=first
                )
            case Protocol.HERALD:
                try:
                    return herald_kernel.encode(batch, self.topics, order=encoding.order, rows=rows)
                except ValueNotDeliverable:
                    count = len(batch) if rows is None else len(rows)
                    return self._encode_for_herald_what_fits(encoding, batch, wanted, count)

    def _next_forward_id(self, count: int = 1) -> int:
        """Return the first of `count` ids for what LamaMQ clients are sent: 31 bits, in a ring."""
        first = self._forward_id
        self._forward_id = (first + count) & 0x7FFFFFFF
        return first

    def _encode_for_herald_what_fits(
        self, encoding: Encoding, batch: Batch, wanted: bytes | None, count: int
    ) -> bytes:
        """Leave out those of `count` values that no MESSAGE can carry; see docs/decisions/0004."""
        routes = self.router.route_of_topic
        all_routes = b"\x01" * (max(routes, default=0) + 1)
        rows = batch.select(routes, wanted or all_routes, value_bytes_max=HERALD_VALUE_BYTES_MAX)
        self.counters.messages_undeliverable[Protocol.HERALD] += count - len(rows)
        return herald_kernel.encode(batch, self.topics, order=encoding.order, rows=rows)

    # --- Answers that wait for the disk -----------------------------------------------------------

    def acknowledge(self, session: Session, last_offset: int, answer: bytes) -> None:
        """Send an answer to `session` once the log holds all messages up to `last_offset`."""
        durable = self.log.durable_offset
        session.reply_when_durable(last_offset, answer, durable_offset=durable)
        if last_offset >= durable:
            self._awaiting_disk[session] = None

    def became_durable(self) -> None:
        """Release the answers that waited; the log's owner calls it when its offset has moved."""
        durable = self.log.durable_offset
        for session in list(self._awaiting_disk):
            if not session.release(durable):
                del self._awaiting_disk[session]
