"""The base of all gateways: kernels publish runs of frames, the codec decodes all other frames."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

import structlog

from penstock.core.access import Action, Principal
from penstock.core.audiences import Encoding
from penstock.core.broker import Broker
from penstock.core.deduplication import correlation_of, key_digest
from penstock.core.hooks import Event, EventKind, HookChain
from penstock.core.partitions import Position
from penstock.core.rates import RateLimit
from penstock.core.sessions import Session
from penstock.core.timers import Timer
from penstock.errors import (
    AuthenticationFailed,
    CallerError,
    FrameTooLarge,
    GroupNotStored,
    LogUnavailable,
    MemoryExhausted,
    NotAllowed,
    OutOfSequence,
    PeerError,
    TooManyMessages,
    TooManyStoredBytes,
    WireError,
)
from penstock.gateway.options import GatewayOptions
from penstock.limits import (
    BUSY_READ_SECONDS_MIN,
    BUSY_SECONDS,
    LARGE_READ_BYTES,
    LINGER_SECONDS_MAX,
    TURN_SECONDS_MAX,
)
from penstock.memory import Purpose
from penstock.model import ByteOrder
from penstock.patterns import canonical_pattern
from penstock.ports import AuditEvent, Link, Receipt, Record
from penstock.protocols import Protocol
from penstock.replay import check_replay, split_group, split_replay
from penstock.wire.decoder import Decoder, Rejected

__all__ = ["NOT_WRITTEN", "Gateway", "KeyedPublish", "refuse"]

log = structlog.get_logger("penstock.gateway")

NOT_WRITTEN: Final = "it could not be written"
"""Reason in the failure answer of a message whose commit failed."""


def refuse(broker: Broker, link: Link, reason: str) -> None:
    """Count and log a connection that is not served, and close it."""
    broker.counters.connections_failed[reason] += 1
    log.info("connection refused", connection=link.connection, peer=link.peer, reason=reason)
    link.close()


class _Pending:
    """Work that may end later."""

    __slots__ = ("ended", "then")

    def __init__(self) -> None:
        self.ended = False
        self.then: Callable[[], None] | None = None

    def end(self) -> None:
        """Mark the work as done, and call `then` if it was awaited."""
        self.ended = True
        if self.then is not None:
            self.then()


class KeyedPublish(NamedTuple):
    """A publish with a key: its frame without the key, and its record, which has no time yet."""

    key: bytes
    frame: bytes
    record: Record


class Gateway(ABC):
    """One connection of one protocol: a `ports.Handler`.

    A subclass provides the scan, handles packets, and encodes acknowledgments and errors.
    """

    protocol: ClassVar[Protocol]
    refuses_above_rate: ClassVar[bool] = False
    """Whether a publish above the rate limit is refused; otherwise reading pauses."""

    method = "anonymous"
    """How the client proves its identity, for the audit log."""

    def __init__(
        self, broker: Broker, link: Link, options: GatewayOptions, *, order: ByteOrder
    ) -> None:
        self.broker = broker
        self.link = link
        self.options = options
        self.order: ByteOrder = order
        self.limits = options.limits_of(self.protocol)
        self.session: Session | None = None
        self.decoder = self.new_decoder()
        self.received_at = 0.0
        """Monotonic time of the last bytes."""
        self.packet_bytes = 0
        """Bytes of the frame of the packet that `handle` gets."""
        self.rate_limit: RateLimit | None = None
        if options.messages_per_second_max is not None:
            now = broker.clock.monotonic()
            self.rate_limit = RateLimit(options.messages_per_second_max, now)
        self.frame_incomplete = False
        """Whether the last bytes that were received are the start of a frame."""
        self._suspended = False
        self._deferred_bytes = 0
        self._turn = -1
        self._turn_ends = 0.0
        self._has_turn = False  # whether what was put off is processed now
        self._busy_until = 0.0
        self._source = broker.turn.source(link.host)
        self._paused_until_drained = False
        self._closed = False
        self._hook_chain: HookChain | None = None
        self._awaited_work: _Pending | None = None
        self._handshake_deadline: Timer | None = None
        self._close_deadline: Timer | None = None
        self._login_deadline: Timer | None = None
        self._principal_version = 0

    # --- For subclasses ---------------------------------------------------------------------------

    @abstractmethod
    def new_decoder(self) -> Decoder[Any]:
        """Return the decoder of the client's packets."""

    @abstractmethod
    def scan(
        self, session: Session, data: memoryview, start: int, *, permits: bytearray | None
    ) -> int:
        """Fill the broker's batch with publish frames from `start`; return where the run ends.

        The run ends at a topic that `permits` does not mark; None lets all topics pass.
        """

    def scan_decoded(self, session: Session, frame: memoryview) -> int:
        """Fill the broker's batch with one publish that was decoded and authorized before."""
        return self.scan(session, frame, 0, permits=None)

    @abstractmethod
    def acknowledge_batch(self, session: Session, receipt: Receipt) -> None:
        """Acknowledge the broker's batch, which is in the log, once it has its durability.

        Protocols without acknowledgments only report a failed commit.
        """

    @abstractmethod
    def refuse_batch(self, session: Session, error: LogUnavailable) -> None:
        """Answer all rows of the broker's batch, none of which is in the log."""

    @abstractmethod
    def topic_of(self, packet: Any) -> str | None:  # noqa: ANN401
        """Return the topic of a publish that the kernel can scan, None for other packets."""

    def keyed(self, session: Session, packet: Any) -> KeyedPublish | None:  # noqa: ANN401, ARG002
        """Return a publish that has a key, for deduplication; None if it has none."""
        return None

    @abstractmethod
    def handle(self, packet: Any) -> None:  # noqa: ANN401
        """Handle any packet for which `topic_of` is None; raise OutOfSequence if it is illegal."""

    @abstractmethod
    def refuse_publish(self, packet: Any, error: PeerError | CallerError) -> None:  # noqa: ANN401
        """Answer a publish that is refused."""

    @abstractmethod
    def rejected(self, error: WireError) -> None:
        """Answer a frame with invalid content, or one that is out of sequence."""

    @abstractmethod
    def framing_lost(self, error: WireError) -> None:
        """Answer a framing error, if the protocol can; then the connection closes."""

    def skip_unreadable(self, error: WireError) -> bool:  # noqa: ARG002
        """Answer a framing error and skip the rest of the input; False if the link must close.

        For links whose input comes in datagrams: the next one begins with a frame again.
        """
        return False

    @property
    def may_publish(self) -> bool:
        """Whether the client may send publish frames in its present state."""
        return True

    def authorize_publish(self, session: Session, topic: str) -> None:
        """Check the topic of a publish at which the scan stopped; raise the reason to refuse it."""
        self.broker.authorize_publish(session, topic)

    def message_event(self, session: Session, packet: Any, topic: str, value: bytes) -> Event:  # noqa: ANN401, ARG002
        """Return the event that hooks get for a publish; a protocol may add headers."""
        return Event(EventKind.PUSH, topic, session.name, self.protocol, session, value=value)

    def pattern_name(self, pattern: str) -> str:
        """Return how the client calls what it has subscribed to."""
        return pattern

    def refuse_connection(self, error: PeerError) -> None:  # noqa: ARG002
        """Answer a client that a hook refuses, if the protocol can, and close."""
        self.close()

    def answer_handshake_timeout(self) -> None:  # noqa: B027  (most protocols cannot)
        """Answer a client whose handshake took too long, if the protocol can."""

    # --- Reading ----------------------------------------------------------------------------------

    def received(self, data: memoryview) -> int:
        """See ports.Handler."""
        position = 0
        size = len(data)
        broker = self.broker
        monotonic = broker.clock.monotonic
        self.received_at = monotonic()
        if self._deferred_bytes:
            self._forget_deferred()
        if self._waits_for_turn(size):
            return 0
        turn_ends = self._turn_ends
        if size > LARGE_READ_BYTES and self._waits_for_log():
            return 0
        try:
            while position < size and not self._suspended and not self._closed:
                if self.session is not None and self.may_publish:
                    position = self._publish_run(self.session, data, position)
                    if position == size:
                        break
                    if monotonic() > turn_ends:
                        self._yield_to_loop()
                        break
                step = self.decoder.decode_at(data, position)
                if step is None:
                    break
                packet, end = step
                position = self._process_packet(packet, data, position, end)
                if monotonic() > turn_ends:
                    self._yield_to_loop()
                if self.link.account.overdrawn and position < size:
                    self._yield_to_loop()  # a link that is not congested is not drained either
                    break
        except WireError as error:
            self._refuse_unreadable(error)
            position = size
        finally:
            broker.batch.clear()
        now = monotonic()
        took = now - self.received_at
        self._busy_until = now + BUSY_SECONDS if took > BUSY_READ_SECONDS_MIN else 0.0
        broker.turn.count(self._source, now, took)
        self.frame_incomplete = position < size
        if self.session is not None:
            broker.counters.received(self.session, position)
        elif position < size and not self._closed:
            self.frame_began(data[position:])
        if self._closed:
            return size
        if self.link.congested and not self._paused_until_drained:
            # The client does not read its replies: take no more requests until it does.
            self._paused_until_drained = True
            self.link.pause()
        return position

    def _waits_for_turn(self, size: int) -> bool:
        """Put off what was received if this client has no time left in this turn; return whether.

        A connection may be read many times in one turn of the loop: its time is for all of them.
        """
        turn = self.broker.turn
        size = min(size, LARGE_READ_BYTES)  # the rest of a large frame is held in its account
        now = self.received_at
        if not self._has_turn and (
            turn.defers(now, size, is_busy=now < self._busy_until, source=self._source)
            or (self._turn == turn.number and now > self._turn_ends)
        ):
            self._deferred_bytes = size
            turn.deferred_bytes += size
            self._yield_to_loop()
            return True
        if self._turn != turn.number or self._has_turn:
            self._turn = turn.number
            self._turn_ends = now + turn.shortened(TURN_SECONDS_MAX, now)
        return False

    def _refuse_unreadable(self, error: WireError) -> None:
        """Answer input whose frames cannot be told apart, and close unless it may be skipped."""
        self.broker.counters.frames_rejected[self.protocol] += 1
        if not self.skip_unreadable(error):
            self.framing_lost(error)
            self.close()

    def _waits_for_log(self) -> bool:
        """Pause a client with a large frame while the log's backlog is full; return whether."""
        return self.session is not None and self.broker.pause_for_log(self.session)

    def frame_began(self, frame_view: memoryview) -> None:  # noqa: B027  (most need nothing)
        """Process the start of an incomplete frame of a client that has no session yet."""

    def starved(self) -> None:
        """See ports.Handler: a frame before the end of the handshake is too large."""
        if self._closed:
            return
        if self.link.account.authenticated:
            error: WireError = MemoryExhausted("frame")
        else:
            limit = self.options.handshake_bytes_max
            error = FrameTooLarge("handshake", limit + 1, limit)
        self.broker.counters.frames_rejected[self.protocol] += 1
        self.broker.counters.connections_failed["no memory"] += 1
        log.info(
            "connection refused",
            connection=self.link.connection,
            peer=self.link.peer,
            reason=str(error),
        )
        self.framing_lost(error)
        self.close()

    def _yield_to_loop(self) -> None:
        """Yield to the event loop after TURN_SECONDS_MAX; take the remaining input afterwards."""
        if not self._suspended and not self._closed:
            self.suspend()
            self.broker.slices.later(self._take_turn, self._source)

    def _take_turn(self) -> None:
        """Take the input that was put off, or the rest of it."""
        self._has_turn = True
        try:
            self.proceed()
        finally:
            self._has_turn = False

    def _forget_deferred(self) -> None:
        if self._deferred_bytes:
            self.broker.turn.deferred_bytes -= self._deferred_bytes
            self._deferred_bytes = 0

    def _publish_run(self, session: Session, data: memoryview, start: int) -> int:
        """Scan and publish a run of publish frames; return where it ends."""
        broker = self.broker
        batch = broker.batch
        most = broker.router.rows_max
        if self.rate_limit is not None or session.principal.quota.is_limited:
            most = self._within_rates(session, most)
        batch.rows_max = most
        broker.topics.charge_to(
            session.topic_owner, topics_max=session.principal.quota.limits.topics_max
        )
        end = self.scan(session, data, start, permits=broker.permits(session))
        if len(batch):
            self._publish(session, end - start)
        return end

    def _within_rates(self, session: Session, most: int) -> int:
        """Return how many messages the client and its principal may send now, up to `most`."""
        quota = session.principal.quota
        if self.rate_limit is None and not quota.is_limited:
            return most
        now = self.broker.clock.monotonic()
        if self.rate_limit is not None:
            most = self.rate_limit.available(now, most=most)
        return quota.available(now, most=most) if quota.is_limited else most

    def take_rates(self, session: Session, messages: int, size: int) -> None:
        """Count messages against the rates of the client and its principal."""
        if self.rate_limit is not None:
            self.rate_limit.take(messages)
        session.principal.quota.take(messages, size)

    def _publish(self, session: Session, size: int) -> None:
        """Publish the broker's batch, which this client sent in `size` bytes, and answer it."""
        batch = self.broker.batch
        if self.rate_limit is not None:
            self.rate_limit.take(len(batch))
        session.principal.quota.take(len(batch), size)
        try:
            receipt = self.broker.publish_batch(session, batch)
        except LogUnavailable as error:
            self.broker.counters.messages_refused[self.protocol] += len(batch)
            self.refuse_batch(session, error)
        else:
            self.acknowledge_batch(session, receipt)

    def _process_packet(self, packet: Any, data: memoryview, start: int, end: int) -> int:  # noqa: ANN401
        """Process the packet from `start` to `end`; return the position to continue at."""
        if isinstance(packet, Rejected):
            self.broker.counters.frames_rejected[self.protocol] += 1
            self.rejected(packet.error)
            return end
        topic = self.topic_of(packet) if self.session is not None and self.may_publish else None
        if topic is None:
            self.packet_bytes = end - start
            try:
                self.handle(packet)
            except OutOfSequence as error:
                self.broker.counters.frames_rejected[self.protocol] += 1
                self.rejected(error)
            return end
        session = self.session
        if session is None:
            raise AssertionError("a publish without a session")
        if self.is_above_rate():
            return self._limit_rate(packet, start, end)
        try:
            self.authorize_publish(session, topic)
        except (PeerError, CallerError) as error:
            self._refuse_publish(packet, error)
            return end
        keyed = self.keyed(session, packet)
        if keyed is not None:
            self._publish_with_key(session, packet, topic, keyed)
            return end
        if self.broker.hooks.watch(self.protocol, topic):
            frame = bytes(data[start:end])
            publish = partial(self._publish_decoded, session, frame)
            self._publish_after_hooks(session, packet, topic, frame, publish)
            return end
        # The topic is permitted now: the kernel takes this frame and those that follow.
        run_end = self._publish_run(session, data, start)
        if run_end == start:
            self._publish_decoded(session, bytes(data[start:end]))
            return end
        return run_end

    def is_above_rate(self) -> bool:
        """Return whether one more message would exceed the rate of the client or its principal."""
        return self.session is not None and self._within_rates(self.session, 1) < 1

    def rate_error(self) -> TooManyMessages | TooManyStoredBytes:
        """Return the error for a message above the rate of the client, or a quota."""
        now = self.broker.clock.monotonic()
        quota = None if self.session is None else self.session.principal.quota
        if quota is not None and quota.is_limited and quota.available(now, most=1) < 1:
            return quota.exceeded(now, self.broker.quota_reached)
        return TooManyMessages(self.options.messages_per_second_max or 0)

    def _limit_rate(self, packet: Any, start: int, end: int) -> int:  # noqa: ANN401
        """Refuse a publish above the rate limit, or suspend reading until it is within it.

        Room in the log may not come soon: without it, all protocols refuse.
        """
        error = self.rate_error()
        refuses = self.refuses_above_rate or isinstance(error, TooManyStoredBytes)
        if refuses or self.session is None:
            self.broker.counters.frames_rejected[self.protocol] += 1
            self._refuse_publish(packet, error)
            return end
        seconds = self.session.principal.quota.wait_seconds()
        if self.rate_limit is not None:
            seconds = max(seconds, self.rate_limit.wait_seconds())
        self.suspend()
        self.broker.timers.after(seconds, self.proceed)
        return start

    def _refuse_publish(self, packet: Any, error: PeerError | CallerError) -> None:  # noqa: ANN401
        """Count and answer a message that is refused."""
        self.broker.counters.messages_refused[self.protocol] += 1
        self.refuse_publish(packet, error)

    def _publish_decoded(self, session: Session, frame: bytes) -> None:
        """Publish one frame that was decoded and authorized before."""
        self._scan_decoded(session, frame)
        self._publish(session, len(frame))

    def _scan_decoded(self, session: Session, frame: bytes) -> None:
        self.broker.batch.rows_max = 1
        self.broker.topics.charge_to(
            session.topic_owner, topics_max=session.principal.quota.limits.topics_max
        )
        end = self.scan_decoded(session, memoryview(frame))
        if end != len(frame) or len(self.broker.batch) != 1:
            raise AssertionError(f"a {self.protocol.label} publish that the kernel does not scan")

    # --- Deduplication ----------------------------------------------------------------------------

    def _publish_with_key(
        self,
        session: Session,
        packet: Any,  # noqa: ANN401
        topic: str,
        keyed: KeyedPublish,
    ) -> None:
        """Publish a message with a key, once the keys of earlier runs are known."""
        try:
            digest = key_digest(session.principal.name, topic, keyed.key)
        except PeerError as error:
            self._refuse_publish(packet, error)
            return
        publish = partial(self._publish_keyed, session, keyed, digest)
        then = partial(self._await_keys, publish)
        if self.broker.hooks.watch(self.protocol, topic):
            self._publish_after_hooks(session, packet, topic, keyed.frame, then)
        else:
            then()

    def _await_keys(self, publish: Callable[[], None]) -> None:
        self.await_work(self.broker.deduplication.when_ready, publish)

    def _publish_keyed(self, session: Session, keyed: KeyedPublish, digest: bytes) -> None:
        """Publish a message unless its key is known; then answer as the first one is answered."""
        broker = self.broker
        self.take_rates(session, 1, len(keyed.frame))
        self._scan_decoded(session, keyed.frame)
        receipt = broker.deduplication.find(digest, keyed.record.topic)
        if receipt is None:
            record = keyed.record._replace(
                timestamp_us=broker.clock.now_us(), correlation=correlation_of(digest)
            )
            try:
                receipt = broker.publish_keyed(session, broker.batch, record, digest)
            except LogUnavailable as error:
                broker.counters.messages_refused[self.protocol] += 1
                self.refuse_batch(session, error)
                return
        self.acknowledge_batch(session, receipt)

    # --- Subscriptions ----------------------------------------------------------------------------

    def subscribe(
        self,
        session: Session,
        text: str,
        then: Callable[[PeerError | None], None],
        *,
        resume_at: Position | None = None,
    ) -> None:
        """Subscribe a session to a pattern if no hook refuses; call `then` when done.

        `text` is the pattern, optionally with a start in history, which hooks do not see. With
        `resume_at` it is the pattern alone, and that position is the start.
        `then` gets None for a success, also if the session had the subscription before, or
        InvalidPattern, InvalidStart, NotAllowed, AlreadySubscribed, TooManySubscriptions,
        TooManyPatternShapes, GroupDiffers, GroupNotStored, HookRefused, HookTimeout or another
        LogError. While the topics of a new pattern are routed, the client stays suspended.
        """

        def decided(error: PeerError | None) -> None:
            groups = self.broker.groups
            if error is not None:
                then(error)
            elif place is not None and groups is not None:
                self.await_work(partial(groups.open, place.name), start)
            else:
                start()

        def start() -> None:
            try:
                self.await_work(subscribe, taken_effect)
            except PeerError as raised:
                then(raised)

        def taken_effect() -> None:
            if place is not None and place.name not in session.memberships:
                then(GroupNotStored("the log of the broker has the reason"))
                return
            if session.mark is not None:
                is_replay = not is_known and (start_at is not None or resume_at is not None)
                is_replay |= bool(session.feeds) and (is_known or place is not None)
                name, joins = self.pattern_name(pattern), place is not None
                self.broker.anchor(session, pattern, name=name, is_replay=is_replay, in_group=joins)
            then(None)

        def subscribe(done: Callable[[], None]) -> None:
            if resume_at is None:
                self.broker.subscribe(session, text, done)
            else:
                self.broker.resume(session, text, resume_at, done)

        pattern, start_at = (text, None) if resume_at is not None else split_replay(text)
        _, place = (text, None) if resume_at is not None else split_group(text)
        hooks = self.broker.hooks
        is_known = pattern in session.subscriptions and place is None
        has_hooks = hooks.has(EventKind.SUBSCRIBE)
        if is_known or (place is None and not has_hooks):
            decided(None)
            return
        try:
            if place is not None:
                # Checked before hooks are called and the state of the group is read.
                self.broker.authorize(session, Action.SUBSCRIBE, pattern)
                self.broker.authorize(session, Action.GROUP, place.name)
            if has_hooks:
                if resume_at is None:
                    check_replay(text)
                canonical_pattern(pattern)
                self.broker.check_subscription(session, pattern)
        except PeerError as error:
            then(error)
            return
        if not has_hooks:
            decided(None)
            return
        event = Event(EventKind.SUBSCRIBE, pattern, session.name, self.protocol, session)
        self.run_hooks(event, decided)

    def await_work(
        self, start: Callable[[Callable[[], None]], None], then: Callable[[], None]
    ) -> None:
        """Start work and call `then` when it is done; raise PeerError if `start` does.

        `start` gets a function that it calls at the end of the work. If that is not at once, the
        client stays suspended until `then` has returned. If the connection is lost meanwhile,
        `then` is not called.
        """
        pending = _Pending()
        start(pending.end)
        if pending.ended:
            then()
            return
        self._awaited_work = pending
        pending.then = lambda: self._work_done(then)
        self.suspend()

    def _work_done(self, then: Callable[[], None]) -> None:
        self._awaited_work = None
        self.continue_with(then)

    # --- Hooks ------------------------------------------------------------------------------------

    def run_hooks(self, event: Event, then: Callable[[PeerError | None], None]) -> None:
        """Run the hooks of an event; call `then` with None, or with the error that refuses it.

        If a hook must be awaited, this returns first, and the client stays suspended until `then`
        has returned. If the connection is lost meanwhile, `then` is not called.
        """
        chain = self.broker.hooks.ask(event)
        if chain.settled:
            then(chain.error)
            return
        self._hook_chain = chain
        chain.then = lambda error: self._hooks_done(then, error)
        self.suspend()

    def _hooks_done(
        self, then: Callable[[PeerError | None], None], error: PeerError | None
    ) -> None:
        self._hook_chain = None
        self.link.account.hold(Purpose.HOOKS, 0)
        self.continue_with(lambda: then(error))

    def run_connect_hooks(self, name: str, principal: Principal, then: Callable[[], None]) -> None:
        """Run the hooks on a connecting client; call `then`, or `refuse_connection`."""
        if not self.broker.hooks.has(EventKind.CONNECT):
            then()
            return

        def decided(error: PeerError | None) -> None:
            if error is None:
                then()
            else:
                self.broker.counters.connections_failed["refused by middleware"] += 1
                self.refuse_connection(error)

        event = Event(EventKind.CONNECT, name, name, self.protocol, principal=principal.name)
        self.run_hooks(event, decided)

    def run_message_hooks(self, event: Event, packet: Any, then: Callable[[], None]) -> None:  # noqa: ANN401
        """Run the hooks on a message; call `then`, or refuse the publish."""

        def decided(error: PeerError | None) -> None:
            if error is None and event.session is not None:
                error = self.still_allowed(event.session, event.subject)
            if error is None:
                then()
            else:
                self._refuse_publish(packet, error)

        self.broker.hooks.messages_judged += 1
        self.run_hooks(event, decided)

    def still_allowed(self, session: Session, topic: str) -> PeerError | None:
        """Return the refusal if rules changed while hooks judged a message, else None."""
        try:
            self.broker.authorize(session, Action.PUBLISH, topic)
        except NotAllowed as error:
            return error
        return None

    def _publish_after_hooks(
        self,
        session: Session,
        packet: Any,  # noqa: ANN401
        topic: str,
        frame: bytes,
        then: Callable[[], None],
    ) -> None:
        """Call `then` if no hook refuses a publish. Frame and event are held until then."""

        def publish() -> None:
            try:  # the topic may have been deleted meanwhile
                self.authorize_publish(session, topic)
            except (PeerError, CallerError) as error:
                self._refuse_publish(packet, error)
            else:
                then()

        if not self.link.account.hold(Purpose.HOOKS, 2 * len(frame)):
            self._refuse_publish(packet, MemoryExhausted("hooks"))
            return
        self._scan_decoded(session, frame)
        event = self.message_event(session, packet, topic, self.broker.batch.value(0))
        self.run_message_hooks(event, packet, publish)
        if self._hook_chain is None:
            self.link.account.hold(Purpose.HOOKS, 0)

    # --- Suspension -------------------------------------------------------------------------------

    def suspend(self) -> None:
        """Process no more packets until `proceed`."""
        if not self._suspended:
            self._suspended = True
            self.link.pause()

    def proceed(self) -> None:
        """Process packets again, unless a hook or other work is still awaited."""
        if self._suspended and self._hook_chain is None and self._awaited_work is None:
            self._suspended = False
            self.link.resume()

    def continue_with(self, work: Callable[[], None]) -> None:
        """Do the work for which the client was suspended, then process packets again.

        Another connection, a thread or a timer calls this. An exception of `work` ends this
        connection and does not reach the caller.
        """
        if self._closed:
            return
        try:
            work()
        except Exception:
            self.broker.counters.connections_failed["internal error"] += 1
            log.exception("connection failed", connection=self.link.connection, peer=self.link.peer)
            self._closed = True
            self.link.abort()
            return
        finally:
            self.broker.batch.clear()
        self.proceed()

    # --- The session ------------------------------------------------------------------------------

    def authenticated(self, principal: Principal, *, seconds_max: float | None = None) -> None:
        """Note that the client has logged in; call this before `open_session`.

        The connection closes after `seconds_max`, when the client's token expires.
        """
        self._principal_version = principal.credentials_version
        if not principal.is_anonymous:
            self._source = self.broker.turn.source(self.link.host, principal.name)
        if self.method == "anonymous" and not principal.is_anonymous:
            self.method = "certificate" if self.link.certificate_names else "network"
        if seconds_max is not None:
            self._login_deadline = self.broker.timers.after(seconds_max, self._login_expired)

    def _login_expired(self) -> None:
        self.log_refused_client("token expired")
        if self.session is not None:
            self.session.is_ended = True
        self.close()

    def open_session(self, principal: Principal, *, name: str = "") -> Session:
        """Open the session of a client that has logged in as `principal`.

        Raise BrokerFull, or AuthenticationFailed if its credentials have changed since.
        """
        if principal.credentials_version != self._principal_version:
            raise AuthenticationFailed("credentials", "changed meanwhile")
        self.session = self.broker.open(
            self.encoding,
            self.link,
            name=name,
            principal=principal,
            echo=self.options.echo,
            method=self.method,
        )
        log.info("client opened", **self._log_fields(), principal=principal.name, name=name)
        return self.session

    # --- Connection -------------------------------------------------------------------------------

    @property
    def encoding(self) -> Encoding:
        """The encoding of deliveries to this client."""
        return Encoding(self.protocol, self.order)

    def limit_handshake(self, deadline: Timer) -> None:
        """Close the connection if it has no session when `deadline` is due."""
        deadline.callback = self.handshake_timed_out
        self._handshake_deadline = deadline

    def handshake_timed_out(self) -> None:
        """Close the connection unless it has a session."""
        if self.session is None:
            self.answer_handshake_timeout()
            refuse(self.broker, self.link, "no handshake in time")

    def log_refused_client(self, reason: str, *, client: str | None = None) -> None:
        """Count and log a client that has no valid credentials.

        `client` is the name that it sent, None if there is none. It is not verified.
        """
        self.broker.counters.connections_failed["credentials refused"] += 1
        log.info(
            "client refused",
            connection=self.link.connection,
            peer=self.link.peer,
            protocol=self.protocol.label,
            reason=reason,
        )
        self.broker.audit.record(
            AuditEvent.LOGIN_FAILED,
            peer=self.link.peer,
            protocol=self.protocol.label,
            method=self.method,
            reason=reason,
            connection=self.link.connection,
            client=client,
        )

    def _log_fields(self) -> dict[str, Any]:
        link = self.link
        return {
            "connection": link.connection,
            "peer": link.peer,
            "protocol": self.protocol.label,
        }

    def record_refusal(self, error: NotAllowed) -> None:
        """Record in the audit log what the rules of this client refused."""
        self.broker.record_refusal(
            error,
            peer=self.link.peer,
            protocol=self.protocol.label,
            client=None if self.session is None else self.session.name,
        )

    def close(self) -> None:
        """Close the connection after all pending answers, at most LINGER_SECONDS_MAX later."""
        if not self._closed:
            self._closed = True
            if self.session is None:
                self.link.close()
            else:
                self._close_deadline = self.broker.timers.after(LINGER_SECONDS_MAX, self.link.close)
                self.session.finish()

    def ended(self) -> None:
        """See ports.Handler: answers that wait for the disk are still sent."""
        self.close()

    @property
    def established(self) -> bool:
        """See ports.Handler."""
        return self.session is not None

    def drained(self) -> None:
        """See ports.Handler."""
        if self.session is not None:
            self.broker.drained(self.session)
        if self._paused_until_drained:
            self._paused_until_drained = False
            self.link.resume()

    def lost(self, reason: str) -> None:
        """See ports.Handler."""
        self._closed = True
        self._forget_deferred()
        for deadline in (self._handshake_deadline, self._close_deadline, self._login_deadline):
            if deadline is not None:
                deadline.cancel()
        self._handshake_deadline = self._close_deadline = self._login_deadline = None
        if self._hook_chain is not None:
            self._hook_chain.cancel()
            self._hook_chain = None
        if self.session is not None:
            self.broker.close(self.session)
            log.info("client closed", **self._log_fields(), reason=reason)
            self.session = None
        # It may refer to this gateway: without a cycle, memory is free without the collector.
        del self.decoder
