"""The broker: sessions, rights, subscriptions, publishing and acknowledgments."""

import dataclasses
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

import structlog

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.core.access import (
    Action,
    Principal,
    authorize,
    authorize_anywhere,
    is_allowed,
    path_name,
)
from penstock.core.acknowledge_times import AcknowledgeTimes
from penstock.core.answers import FailureEncoder, is_safe
from penstock.core.audiences import Encoding
from penstock.core.catch_up import CatchUp
from penstock.core.counters import Counters, TopicCounts
from penstock.core.deduplication import Deduplication
from penstock.core.encoders import Encoders
from penstock.core.following import Following
from penstock.core.groups import Groups, GroupSettings
from penstock.core.history import HistoryWriter
from penstock.core.hooks import EventKind, Hooks
from penstock.core.last_values import LastValues
from penstock.core.live_delivery import LiveDelivery
from penstock.core.partitions import OwnPartition, Partition, Position, StoredPartition
from penstock.core.position_marks import PositionMarks
from penstock.core.quotas import Quota
from penstock.core.remote_services import RemoteServices
from penstock.core.requests import Requests
from penstock.core.resumption import Resumption
from penstock.core.roaming import Roaming
from penstock.core.routing import Router
from penstock.core.services import Services
from penstock.core.sessions import Session, Sessions
from penstock.core.slices import Slices
from penstock.core.stalls import Stalls
from penstock.core.stored_bytes import StoredCounts
from penstock.core.timers import Timers
from penstock.core.traces import Traces
from penstock.core.turns import LoopTurn
from penstock.errors import (
    AlreadySubscribed,
    BrokerFull,
    NoHistory,
    NoSuchTopic,
    NotAllowed,
    PeerError,
    TooManySubscriptions,
    TopicHasChannel,
    TopicTableFull,
)
from penstock.limits import (
    DEDUPE_KEYS_MAX,
    DEDUPE_SECONDS,
    GROUPS_PER_PRINCIPAL_MAX,
    HOLD_SECONDS_MAX,
    LAST_TOPICS_MAX,
    NODES_MAX,
    OUT_BUFFER_BYTES_MAX,
    RESUME_SECONDS_MAX,
    RIGHTS_STEP,
    SESSIONS_MAX,
    SUBSCRIPTION_BYTES_MAX,
    SUBSCRIPTIONS_MAX,
    TOPIC_NAMES_BYTES_MAX,
    TOPIC_NAMES_BYTES_PER_PRINCIPAL_MAX,
    TOPICS_MAX,
    TOPICS_PER_PRINCIPAL_MAX,
)
from penstock.memory import MemoryBudget
from penstock.ports import (
    NO_AUDIT,
    Audit,
    AuditEvent,
    Clock,
    GroupStore,
    KnownService,
    Link,
    LogReader,
    LogWriter,
    Prepared,
    Receipt,
    Record,
    ServiceStore,
    SessionStore,
)
from penstock.replay import (
    AtOffsets,
    GroupPlace,
    Start,
    check_replay,
    split_group,
    split_replay,
)
from penstock.service_messages import path_of_requests
from penstock.topic_names import check_topic_name
from penstock.tracing import Span

__all__ = ["Broker", "BrokerSettings"]

log = structlog.get_logger("penstock.broker")

_T = TypeVar("_T")
_GROUPS: Final = GroupSettings()


@dataclasses.dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Broker settings. Defaults are safe for a public listener."""

    sessions_max: int = SESSIONS_MAX
    subscriptions_max: int = SUBSCRIPTIONS_MAX
    subscription_bytes_max: int = SUBSCRIPTION_BYTES_MAX
    out_buffer_bytes_max: int = OUT_BUFFER_BYTES_MAX
    hold_seconds_max: float = HOLD_SECONDS_MAX
    disconnect_slow_consumers: bool = False
    deliver_committed: bool = False
    """Whether messages are delivered when they are in the log, not before. It needs a reader."""
    resume_seconds_max: float = RESUME_SECONDS_MAX
    topics_max: int = TOPICS_MAX
    topic_names_bytes_max: int = TOPIC_NAMES_BYTES_MAX
    topics_per_principal_max: int = TOPICS_PER_PRINCIPAL_MAX
    topic_names_bytes_per_principal_max: int = TOPIC_NAMES_BYTES_PER_PRINCIPAL_MAX
    groups_per_principal_max: int = GROUPS_PER_PRINCIPAL_MAX
    last_topics_max: int = LAST_TOPICS_MAX
    dedupe_seconds: float = DEDUPE_SECONDS
    dedupe_keys_max: int = DEDUPE_KEYS_MAX
    groups: GroupSettings = _GROUPS
    groups_by_name: Mapping[str, GroupSettings] = dataclasses.field(default_factory=dict)


class Broker:
    """Writes published messages to the log and delivers them to subscribers. One thread owns it.

    With a log `reader`, slow subscribers are served from the log and do not slow down publishers,
    and subscriptions may start in history. Without one, publishers are paused for slow subscribers,
    up to `hold_seconds_max`; after that the slow subscribers lose messages.

    With a `group_store` as well, clients may join consumer groups.
    """

    def __init__(
        self,
        *,
        log: LogWriter,
        reader: LogReader | None = None,
        group_store: GroupStore | None = None,
        clock: Clock,
        settings: BrokerSettings | None = None,
        audit: Audit = NO_AUDIT,
        memory: MemoryBudget | None = None,
    ) -> None:
        self.settings = settings or BrokerSettings()
        self.audit = audit
        self.memory = memory or MemoryBudget()
        self.log = log
        self.reader = reader
        self.clock = clock
        self.topics = TopicTable(
            capacity=self.settings.topics_max,
            name_bytes_max=self.settings.topic_names_bytes_max,
            owner_topics_max=self.settings.topics_per_principal_max,
            owner_name_bytes_max=self.settings.topic_names_bytes_per_principal_max,
        )
        self.sessions = Sessions(sessions_max=self.settings.sessions_max)
        self.batch = Batch()
        self.counters = Counters()
        self.stalls = Stalls()
        self.acknowledge_times = AcknowledgeTimes(self.counters.messages_refused)
        self.topic_counts = TopicCounts(self.topics)
        self.timers = Timers(clock)
        self.slices = Slices(self.timers, clock)
        self.turn = LoopTurn()
        self.router = Router(self.topics, self.slices)
        self.resumption = Resumption(self.timers, seconds_max=self.settings.resume_seconds_max)
        self.roaming: Roaming | None = None
        self.requests = Requests(self.timers, self.slices, clock)
        self.services = Services(self.requests, RemoteServices(self.requests, self.timers))
        self.encoders = Encoders(self.topics, self.counters)
        self.stored = StoredCounts(log, reader)
        """Bytes of each principal in the log."""
        self.hooks = Hooks(self.timers, clock, self.encoders.forward_ids.take)
        self.marks = PositionMarks(log, clock)
        self.deduplication = Deduplication(
            clock,
            self.memory,
            self.slices,
            seconds=self.settings.dedupe_seconds,
            keys_max=self.settings.dedupe_keys_max,
        )
        self.quota_of: Callable[[str], Quota | None] = _no_quota
        """Returns the quota of a principal, by the name that `topic_owner` returns."""
        self._shared: dict[type[Any], Any] = {}
        self._awaiting_answers: dict[Session, None] = {}
        self._awaiting_commits: deque[tuple[Receipt, Callable[[bool], None]]] = deque()
        self._prepared_batch = Batch()
        self._failed_commit = log.failed_commit  # the last that is noted
        self._paused_publishers: dict[Session, None] = {}  # until the log's backlog shrinks
        self.catch_up: CatchUp | None = None
        self.following: Following | None = None
        """Delivers messages that were read from the log: those of other nodes."""
        self._delivers_committed = self.settings.deliver_committed and reader is not None
        self.delivery = LiveDelivery(
            log=log,
            router=self.router,
            encoders=self.encoders,
            counters=self.counters,
            topic_counts=self.topic_counts,
            timers=self.timers,
            marks=self.marks,
            out_buffer_bytes_max=self.settings.out_buffer_bytes_max,
            hold_seconds_max=self.settings.hold_seconds_max,
            disconnects_slow=self.settings.disconnect_slow_consumers,
            waits_for_commit=self._delivers_committed,
        )
        if reader is not None:
            own: Partition = (
                StoredPartition(log.partition, reader, log.next_offset)
                if self._delivers_committed
                else OwnPartition(log, reader)
            )
            self.catch_up = CatchUp(
                own=own,
                router=self.router,
                history=HistoryWriter(
                    own=own.number,
                    topics=self.topics,
                    router=self.router,
                    encoders=self.encoders,
                    counters=self.counters,
                    clock=clock,
                    marks=self.marks,
                ),
                last_values=LastValues(
                    reader,
                    counts=self.topic_counts,
                    topics=self.topics,
                    router=self.router,
                    slices=self.slices,
                    timers=self.timers,
                    topics_max=self.settings.last_topics_max,
                ),
                counters=self.counters,
                clock=clock,
                timers=self.timers,
                slices=self.slices,
            )
            self.delivery.catch_up = self.catch_up
            self.following = Following(
                catch_up=self.catch_up,
                topics=self.topics,
                router=self.router,
                encoders=self.encoders,
                counters=self.counters,
                timers=self.timers,
                clock=clock,
                write=self.delivery.write,
                marks=self.marks,
                leaves_slow=not self.settings.disconnect_slow_consumers,
            )
        self.groups: Groups | None = None
        if self.catch_up is not None and group_store is not None:
            self.groups = Groups(
                store=group_store,
                node=log.partition,
                partitions=self.catch_up.partitions,
                topics=self.topics,
                router=self.router,
                encoders=self.encoders,
                counters=self.counters,
                clock=clock,
                timers=self.timers,
                slices=self.slices,
                memory=self.memory,
                publish=self._publish_record,
                quota_of=self._quota_of,
                quota_reached=self.quota_reached,
                settings=self.settings.groups,
                settings_by_name=self.settings.groups_by_name,
            )
            if self.following is not None:
                self.following.on_delivered = self.groups.settled

    def roam(self, store: SessionStore) -> None:
        """Let clients that disconnect resume on other nodes, through a store that all nodes see.

        Subscriptions may start at offsets of nodes that are not found yet.
        """
        reader = self.reader
        self.roaming = Roaming(
            self.resumption,
            self.timers,
            self.clock,
            store,
            committed=lambda: self.log.next_offset if reader is None else reader.end,
        )
        if self.following is not None:
            self.following.roaming = self.roaming
        if self.catch_up is not None:
            self.catch_up.early.partitions_max = NODES_MAX

    def share_services(self, store: ServiceStore) -> None:
        """Let requests reach the servers of other nodes, and theirs those of this one."""

        def changed(change: KnownService) -> None:
            elsewhere.service_changed(change)
            if change.served is None or not change.served.subscribers:
                self.services.subscriber_left()

        elsewhere = self.services.elsewhere
        elsewhere.share(store)
        self.router.watch(elsewhere.subscribed)
        if self.following is not None:
            self.following.service_changed = changed

    def trace(
        self,
        export: Callable[[Span], None],
        *,
        new_id: Callable[[], int],
        every: int,
        per_second_max: int,
        from_publishers: bool = True,
    ) -> None:
        """Trace sampled messages from now on, see core.traces."""
        traces = self.delivery.traces = Traces(
            log=self.log,
            topics=self.topics,
            clock=self.clock,
            export=export,
            new_id=new_id,
            every=every,
            per_second_max=per_second_max,
            from_publishers=from_publishers,
        )
        if self.following is not None:
            self.following.traces = traces

    def shared(self, kind: type[_T]) -> _T:
        """Return the broker's only instance of `kind`, created at the first call.

        The connections of a protocol keep their common state here: `core` does not know its type.
        """
        found: _T | None = self._shared.get(kind)
        if found is None:
            found = self._shared[kind] = kind()
        return found

    # --- Sessions ---------------------------------------------------------------------------------

    def open(
        self,
        encoding: Encoding,
        link: Link,
        *,
        name: str = "",
        principal: Principal,
        echo: bool = True,
        method: str = "anonymous",
    ) -> Session:
        """Open the session of a client after its handshake; raise BrokerFull at the limit.

        Without a name, the session's number is its name. `method` is how the client proved its
        identity, for the audit log.
        """
        if self.sessions.full:
            raise BrokerFull(len(self.sessions))
        principal.quota.connect(self.clock.monotonic(), self.quota_reached)
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
        link.account.identify(None if principal.is_anonymous else principal.name)
        self.sessions.add(session)
        self.counters.sessions_opened[encoding.protocol] += 1
        self.audit.record(
            AuditEvent.LOGIN,
            principal=principal.name,
            peer=link.peer,
            protocol=encoding.protocol.label,
            method=method,
            connection=link.connection,
            client=session.name,
        )
        return session

    def close(self, session: Session) -> None:
        """Remove a session and all its subscriptions."""
        serves = any(path_of_requests(text) is not None for text in session.subscribed)
        if self.catch_up is not None:
            self.catch_up.forget(session)
        if self.groups is not None:
            self.groups.forget(session)
        self.router.leave(session)
        session.subscriptions.clear()
        self.delivery.release_held(session)
        self.services.leave(session)
        self.requests.leave(session)
        self.sessions.remove(session)
        session.principal.quota.disconnect()
        self._awaiting_answers.pop(session, None)
        self._paused_publishers.pop(session, None)
        self.hooks.closed(session)
        if serves:
            self.services.subscriber_left()

    def _quota_of(self, owner: str) -> Quota | None:
        return self.quota_of(owner)

    def quota_reached(self, quota: Quota, what: str) -> None:
        """Log and record that a principal is at a quota."""
        most = quota.limit_of(what)
        log.warning("quota reached", principal=quota.principal, quota=what, limit=most)
        self.audit.record(
            AuditEvent.QUOTA_REACHED, principal=quota.principal, quota=what, limit=most
        )

    # --- Rights -----------------------------------------------------------------------------------

    def authorize(self, session: Session, action: Action, name: str) -> None:
        """Raise NotAllowed, and record it, unless a client may do this; see core.access."""
        try:
            authorize(session.principal, action, name)
        except NotAllowed as error:
            self._record_refusal(session, error)
            raise

    def authorize_anywhere(self, session: Session, *actions: Action) -> None:
        """Raise NotAllowed, and record it, unless a client may do one of these on some name."""
        try:
            authorize_anywhere(session.principal, *actions)
        except NotAllowed as error:
            self._record_refusal(session, error)
            raise

    def _record_refusal(self, session: Session, error: NotAllowed) -> None:
        protocol = session.encoding.protocol.label
        self.record_refusal(error, peer=session.link.peer, protocol=protocol, client=session.name)

    def record_refusal(
        self, error: NotAllowed, *, peer: str, protocol: str, client: str | None = None
    ) -> None:
        """Record in the audit log that the rules of a principal refused an act.

        `client` is the name of the client's session, None if it has none.
        """
        self.audit.record(
            AuditEvent.REFUSED,
            principal=error.principal,
            peer=peer,
            protocol=protocol,
            action=str(error.action),
            name=error.topic,
            rule=error.rule or None,
            **({} if client is None else {"client": client}),
        )

    def rules_changed(self) -> None:
        """Enforce changed access rules on open sessions, in slices.

        A client with a subscription or hook that is no longer allowed loses it, and is
        disconnected: it would not notice otherwise, and gets the refusal when it tries again.
        """
        self.hooks.rules_changed()
        for session in self.hooks.remove_forbidden():
            session.end()
        self.slices.start(self._end_forbidden())

    def _end_forbidden(self) -> Iterator[None]:
        """End subscriptions and memberships that the rules forbid, and the sessions with them."""
        for session in self.sessions:
            yield
            principal = session.principal
            if session.checked_rights is principal.rights:
                continue
            session.checked_rights = principal.rights
            is_ended = False
            for done, pattern in enumerate(list(session.subscriptions), 1):
                if pattern in session.subscriptions and not _may_subscribe(principal, pattern):
                    is_ended = True
                    self.unsubscribe(session, pattern)
                if not done % RIGHTS_STEP:
                    yield
            for done, (name, member) in enumerate(list(session.memberships.items()), 1):
                allowed = is_allowed(principal, Action.GROUP, name) and _may_subscribe(
                    principal, member.text
                )
                is_current = session.memberships.get(name) is member
                if is_current and not allowed and self.groups is not None:
                    is_ended = True
                    self.groups.leave(member)
                if not done % RIGHTS_STEP:
                    yield
            if is_ended and self.sessions.get(session.number) is session:
                session.end()

    # --- Subscriptions ----------------------------------------------------------------------------

    def subscribe(
        self, session: Session, text: str, then: Callable[[], None] | None = None
    ) -> bool:
        """Subscribe a session to a pattern; return False if it has the subscription already.

        `then` is called when the subscription has taken effect: before this returns, or later if
        the pattern is new and many topics may match.

        `text` may end in a start position in history, see `penstock.replay`. Then the session is
        served from the log until it has caught up, and live messages wait. The start position is
        not part of the subscription's identity. A time before the retained log means its start, a
        time in the future means now.

        If it ends in a consumer group, the session becomes a member, and shares the messages with
        the other members. `groups.open` must have been called for the group.

        Raise InvalidPattern, InvalidStart, NotAllowed, AlreadySubscribed if the session has the
        pattern and `text` has a start, TooManySubscriptions, TooManyPatternShapes, GroupDiffers,
        NoHistory, NoLastValues, OffsetBelowHorizon, OffsetPastEnd, MemoryExhausted or
        LogUnavailable, and change nothing.
        """
        check_replay(text)
        pattern, place = split_group(text)
        if place is not None:
            return self._join(session, pattern, place, then)
        pattern, start = split_replay(text)
        if pattern in session.subscriptions:
            if start is not None:
                raise AlreadySubscribed(pattern[:200])
            if then is not None:
                then()
            return False
        self.check_subscription(session, pattern)
        if start is not None:
            if self.catch_up is None:
                raise NoHistory
            self.catch_up.check(start, pattern)
            if isinstance(start, AtOffsets):
                start = self.catch_up.prepare(session, pattern, start.offsets, check=True)
        self._subscribe(session, pattern, start, then)
        return True

    def _join(
        self,
        session: Session,
        pattern: str,
        place: GroupPlace,
        then: Callable[[], None] | None,
    ) -> bool:
        """Make a session a member of a consumer group, see `subscribe`."""
        if self.groups is None or self.catch_up is None:
            raise NoHistory
        self.authorize(session, Action.GROUP, place.name)
        if place.name in session.memberships:
            self.groups.check(pattern, place)
            if then is not None:
                then()
            return False
        self.check_subscription(session, pattern)
        if place.start is not None:
            self.catch_up.check(place.start, pattern)
        self.groups.check(pattern, place)
        self.groups.join(session, pattern, place, then or _do_nothing)
        return True

    def resume(
        self,
        session: Session,
        pattern: str,
        position: Position,
        then: Callable[[], None] | None = None,
    ) -> bool:
        """Subscribe a client that reconnected, from `position` on; see `subscribe` for `then`.

        Messages that are no longer retained are skipped; without a log reader, all missed ones.
        Return False if it has the subscription already; raise InvalidPattern, NotAllowed or
        TooManySubscriptions.
        """
        if pattern in session.subscriptions:
            if then is not None:
                then()
            return False
        self.check_subscription(session, pattern)
        start = AtOffsets(position)
        if self.catch_up is not None:
            start = self.catch_up.prepare(session, pattern, position, check=False)
        self._subscribe(session, pattern, start, then)
        return True

    def positions(self, session: Session) -> dict[str, Position]:
        """Return the position of each subscription; all earlier messages were written."""
        if self.catch_up is not None:
            return self.catch_up.positions(session)
        position = {self.log.partition: self.log.next_offset}
        return dict.fromkeys(session.subscriptions, position)

    def keep_for_resume(
        self, session: Session, positions: dict[str, Position] | None = None
    ) -> None:
        """Store a client's subscriptions for `resume`, with the position of each.

        Without `positions`, messages written to its link count as sent.
        """
        self.resumption.keep(session, self.positions(session) if positions is None else positions)

    def give_positions(self, session: Session, mark: Callable[[bytes], bytes]) -> None:
        """Tell a client from now on where its messages are; `mark` frames what it is told."""
        session.mark = mark
        session.marks = self.marks
        self.anchor(session, "")

    def anchor(
        self,
        session: Session,
        pattern: str,
        *,
        name: str = "",
        is_replay: bool = False,
        in_group: bool = False,
    ) -> None:
        """Tell a client that wants positions where a subscription takes effect: here.

        `name` is the client's name for the pattern. With `is_replay`, earlier messages follow; with
        `in_group`, those of a consumer group.
        """
        partitions = {} if self.catch_up is None else self.catch_up.partitions
        self.marks.anchor(
            session, pattern, partitions, name=name, is_replay=is_replay, in_group=in_group
        )

    def _subscribe(
        self,
        session: Session,
        pattern: str,
        start: Start | None,
        then: Callable[[], None] | None,
    ) -> None:
        def routed() -> None:
            if self.catch_up is not None and pattern in session.subscriptions:
                self.catch_up.subscribed(session, pattern, start)
            if then is not None:
                then()

        session.subscriptions[pattern] = None  # also while it is not yet in effect
        session.subscription_bytes += len(pattern.encode())
        try:
            self.router.subscribe(session, pattern, routed)
        except PeerError:
            del session.subscriptions[pattern]
            session.subscription_bytes -= len(pattern.encode())
            if self.catch_up is not None:
                self.catch_up.early.remove(session, pattern)
            raise

    def check_subscription(self, session: Session, pattern: str) -> None:
        """Raise NotAllowed or TooManySubscriptions if a session may not add a pattern.

        A client that subscribes to requests of a service must have the right to serve it.
        """
        self.authorize(session, Action.SUBSCRIBE, pattern)
        path = path_of_requests(pattern)
        if path is not None:
            self.authorize(session, Action.SERVE, path_name(path))
        count = len(session.subscriptions) + len(session.memberships)
        if count >= self.settings.subscriptions_max:
            raise TooManySubscriptions(self.settings.subscriptions_max)
        bytes_max = self.settings.subscription_bytes_max
        if session.subscription_bytes + len(pattern.encode()) > bytes_max:
            raise TooManySubscriptions(bytes_max, "bytes of subscriptions")

    def unsubscribe(self, session: Session, text: str) -> bool:
        """Remove a subscription at once; return False if the session did not have it.

        A start position in `text` is ignored. A pattern without a group also ends memberships, if
        the session has no subscription to it.
        """
        pattern, place = split_group(text)
        if place is None:
            pattern, _ = split_replay(text)
        if place is not None or pattern not in session.subscriptions:
            return self._leave(session, pattern, place)
        del session.subscriptions[pattern]
        session.subscription_bytes -= len(pattern.encode())
        self.router.unsubscribe(session, pattern)
        if self.catch_up is not None:
            self.catch_up.unsubscribed(session, pattern)
        self.hooks.tell(EventKind.UNSUBSCRIBE, pattern, session)
        return True

    def has_group(self, name: str) -> bool:
        """Return whether a consumer group has members; any thread may call."""
        return self.groups is not None and name in self.groups

    def _leave(self, session: Session, pattern: str, place: GroupPlace | None) -> bool:
        """End the memberships of a session with a pattern, only that of `place` if it is given."""
        found = [
            member
            for name, member in session.memberships.items()
            if member.text == pattern and (place is None or name == place.name)
        ]
        for member in found:
            if self.groups is not None:
                self.groups.leave(member)
            self.hooks.tell(EventKind.UNSUBSCRIBE, pattern, session)
        return bool(found)

    # --- Topics -----------------------------------------------------------------------------------

    def delete_topic(self, name: str) -> Receipt:
        """Remove a topic; raise NoSuchTopic, TopicHasChannel or LogUnavailable.

        Subscriptions stay, and the next publish creates the topic again, with another number. Its
        messages stay in the log, but clients do not get them while the topic does not exist.
        """
        topics = self.topics
        identifier = topics.find(name)
        if identifier is None:
            raise NoSuchTopic(name[:200])
        if topics.has_channel(identifier):
            raise TopicHasChannel(name[:200])
        receipt = self.log.remove_topic(name)
        self.router.remove_topic(identifier)
        topics.remove(identifier)
        self.deduplication.topic_deleted(name, next_offset=self.log.next_offset)
        return receipt

    # --- Publishing -------------------------------------------------------------------------------

    def permits(self, session: Session) -> bytearray | None:
        """Return the table of topics that a scan may take; None if it may take all.

        With a table, a scan must not add topics: `authorize_publish` adds the allowed ones.
        """
        if session.encoding.protocol in self.hooks.watched:
            return self.hooks.permits(session)
        principal = session.principal
        return principal.permits if principal.restricted else None

    def authorize_publish(self, session: Session, name: str) -> None:
        """Check a topic at which a scan stopped, and mark it in the session's permit table.

        Topics that hooks watch are not marked: the hooks must run first.
        Raise InvalidTopicName, NotAllowed or TopicTableFull.
        """
        check_topic_name(name)
        self.authorize(session, Action.PUBLISH, name)
        identifier = self.intern_topic(session, name)
        session.principal.permit(identifier)
        if session.encoding.protocol in self.hooks.watched:
            self.hooks.permit(session, name, identifier)

    def intern_topic(self, session: Session, name: str) -> int:
        """Return the id of a topic; a new one is charged to the client's principal.

        Raise InvalidTopicName or TopicTableFull.
        """
        quota = session.principal.quota
        try:
            return self.topics.intern_for(
                name, session.topic_owner, topics_max=quota.limits.topics_max
            )
        except TopicTableFull as error:
            quota.topic_refused(error, self.clock.monotonic(), self.quota_reached)
            raise

    # Messages come in four forms. `append_record` only writes to the log, and the caller delivers;
    # the others write and deliver. The log comes first: if it
    # raises LogUnavailable, no subscriber gets any of the messages.
    #
    #   publish_batch      a scanned run of frames; counts for the session and may pause it
    #   publish_keyed      one message with a key, in a batch and as a record, which has the key's
    #                      digest; counts for the session and may pause it
    #   append_record      one message outside a batch (fleximq REQ, REP, NOTIF, BCAST, routed PUB);
    #                      counts for the session and may pause it
    #   publish_prepared   rows from Flight or HTTP; the caller counts them, and waits with
    #                      `when_settled` instead of being paused

    def publish_batch(self, session: Session, batch: Batch) -> Receipt:
        """Write all rows of `batch` to the log and deliver them; raise LogUnavailable."""
        batch.timestamp_us = now_us = self.clock.now_us()
        receipt = self.log.append(batch, session.name)
        count = len(batch)
        self.acknowledge_times.appended(receipt, now_us, count, session.encoding.protocol)
        self._count_received(session, receipt, count)
        batch.lends = True
        self.delivery.fan_out(session, batch, receipt)
        return receipt

    def publish_keyed(
        self, session: Session, batch: Batch, record: Record, digest: bytes
    ) -> Receipt:
        """Write the only row of `batch`, as `record`, to the log and deliver it.

        The key of the message is known from now on. Raise LogUnavailable.
        """
        batch.timestamp_us = record.timestamp_us
        receipt = self.append_record(session, record)
        self.deduplication.add(digest, receipt, session.topic_owner)
        batch.lends = True
        self.delivery.fan_out(session, batch, receipt)
        return receipt

    def append_record(self, session: Session, record: Record) -> Receipt:
        """Write one message to the log; the caller delivers it. Raise LogUnavailable."""
        receipt = self.log.append_record(record)
        self.acknowledge_times.appended(receipt, record.timestamp_us, 1, session.encoding.protocol)
        self._count_received(session, receipt, 1)
        return receipt

    def publish_prepared(
        self, rows: Prepared, *, owner: str = "", quota: Quota | None = None
    ) -> Receipt:
        """Write rows that were authorized before to the log and deliver them.

        New topics belong to `owner`, see `topic_owner`, and count for `quota`. Raise
        LogUnavailable or TopicTableFull.
        """
        batch = self._prepared_batch
        now_us = self.clock.now_us()
        rows.stamp(now_us)
        self.topics.charge_to(owner, topics_max=0 if quota is None else quota.limits.topics_max)
        try:
            rows.load(batch, self.topics)
        except TopicTableFull as error:
            if quota is not None:
                quota.topic_refused(error, self.clock.monotonic(), self.quota_reached)
            raise
        batch.timestamp_us = now_us
        try:
            receipt = self.log.append_prepared(rows)
            self.acknowledge_times.appended(receipt, now_us, len(batch), None)
            self._note_commit(receipt)
            self.delivery.fan_out(None, batch, receipt)
        finally:
            batch.clear()
        return receipt

    def _publish_record(self, record: Record, then: Callable[[bool], None]) -> None:
        """Write one message of the broker to the log; `then` is that of `when_settled`.

        Subscribers get it from the log. Raise LogUnavailable or TopicTableFull.
        """
        identifier = self.topics.intern_for(record.topic, "")
        receipt = self.log.append_record(record)
        self._note_commit(receipt)
        self.topic_counts.add_record(
            identifier,
            size=len(record.value),
            offset=receipt.first_offset,
            timestamp_us=record.timestamp_us,
        )
        if self.catch_up is not None and not self._delivers_committed:
            for session in self.router.subscribers(record.topic):
                self.catch_up.read_from(session, receipt.first_offset)
        self.when_settled(receipt, then)

    def _count_received(self, session: Session, receipt: Receipt, count: int) -> None:
        """Count messages of a session, and pause it while the log's backlog is full."""
        self.counters.messages_received[session.encoding.protocol] += count
        session.messages_received += count
        if self.catch_up is not None:
            self.catch_up.own.last_commit = receipt.commit
        if self.log.crowded:
            self.pause_for_log(session)

    def _note_commit(self, receipt: Receipt) -> None:
        if self.catch_up is not None:
            self.catch_up.own.last_commit = receipt.commit

    def pause_for_log(self, session: Session) -> bool:
        """Pause a session while the log's backlog is full; return whether it is."""
        if not self.log.crowded:
            return False
        if session not in self._paused_publishers:
            self._paused_publishers[session] = None
            session.link.pause()
        return True

    # --- Slow subscribers -------------------------------------------------------------------------

    def drained(self, session: Session) -> None:
        """Resume a session whose link is no longer congested, and the publishers held for it."""
        session.slow = False
        self.delivery.release_held(session)
        if self.catch_up is not None:
            self.catch_up.wake(session)
        if self.groups is not None and session.memberships:
            self.groups.drained(session)

    # --- Acknowledgments --------------------------------------------------------------------------

    def acknowledge(
        self,
        session: Session,
        receipt: Receipt,
        answer: bytes,
        encode_failure: FailureEncoder,
    ) -> None:
        """Send `answer` once the messages of `receipt` have the durability that they ask for.

        If their commit fails, send `encode_failure(answer)` instead. Answers keep their order.
        An empty `answer` is for protocols without acknowledgments: only a failure sends something,
        once for all messages of the session that failed together, and no answer waits for it.
        """
        if session.answers.send_when_safe(receipt, answer, encode_failure, self.log):
            self._awaiting_answers[session] = None

    def when_settled(self, receipt: Receipt, then: Callable[[bool], None]) -> None:
        """Call `then` with True once the messages of `receipt` are safe, with False if they fail.

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
        """Send answers and resume sessions that waited for the log.

        The log's owner calls this when the log's commit numbers have moved.
        """
        self._note_failure()
        self._settle_commits()
        self.acknowledge_times.settled(self.log, self.clock.now_us())
        if self.delivery.traces is not None:
            self.delivery.traces.settled()
        for session in list(self._awaiting_answers):
            try:
                waiting = session.answers.release(self.log)
            except Exception:  # a failing session ends its own connection only
                self.counters.connections_failed["internal error"] += 1
                log.exception(
                    "connection failed",
                    connection=session.link.connection,
                    peer=session.link.peer,
                )
                session.link.abort()
                waiting = False
            if not waiting:
                self._awaiting_answers.pop(session, None)
        if self._paused_publishers and not self.log.crowded:
            paused, self._paused_publishers = self._paused_publishers, {}
            for session in paused:
                session.link.resume()
        if self.catch_up is not None:
            self.catch_up.settled()
        if self.groups is not None:
            self.groups.settled()

    def _note_failure(self) -> None:
        """Let the last messages of topics be found in the log after a commit has failed."""
        if self.log.failed_commit == self._failed_commit:
            return
        self._failed_commit = self.log.failed_commit
        self.deduplication.failed(self.log.written_commit)
        if self.catch_up is not None and self.reader is not None:
            self.catch_up.failed(start=self.reader.end, end=self.log.next_offset)


def _may_subscribe(principal: Principal, pattern: str) -> bool:
    """Return whether a principal may have a subscription, see `check_subscription`."""
    if not is_allowed(principal, Action.SUBSCRIBE, pattern):
        return False
    path = path_of_requests(pattern)
    return path is None or is_allowed(principal, Action.SERVE, path_name(path))


def _no_quota(_: str) -> Quota | None:
    return None


def _do_nothing() -> None:
    pass
