"""herald clients: publishers and subscribers on channels."""

from collections.abc import Callable
from functools import cached_property
from typing import ClassVar, Final

from penstock._kernels import herald as kernel
from penstock.core.access import Action, Principal, authorize
from penstock.core.partitions import Position
from penstock.core.resumption import ClientKey, client_key
from penstock.core.sent_positions import SentPositions
from penstock.core.sessions import Session
from penstock.core.timers import Timer
from penstock.errors import (
    AuthenticationFailed,
    BrokerFull,
    CallerError,
    FrameTooLarge,
    HookRefused,
    HookTimeout,
    LogError,
    LogUnavailable,
    MemoryExhausted,
    MiddlewareMissing,
    NotAllowed,
    OutOfSequence,
    PeerError,
    TooManyMessages,
    TooManyStoredBytes,
    TooManySubscriptions,
    WireError,
)
from penstock.gateway.base import Gateway, log
from penstock.limits import (
    HALF_CLOSED_PROBE_SECONDS,
    LINGER_SECONDS_MAX,
    SENT_POSITIONS_SECONDS,
    SILENT_INTERVALS_MAX,
    UDP_DATAGRAM_BYTES_MAX,
)
from penstock.ports import AcknowledgedLink, Receipt, UnprovenLink
from penstock.positions import ASK_NAME, TIMESTAMP
from penstock.protocols import Protocol
from penstock.protocols.herald import HERALD, HERALD_PAYLOAD_BYTES_MAX
from penstock.replay import parse_start, split_group
from penstock.wire import herald
from penstock.wire.herald import BrokerState, ErrorCode
from penstock.wire.herald.packets import HEADER_BYTES

__all__ = ["HeraldGateway", "HeraldSubscribers"]

_PUBLISHING: Final = frozenset({BrokerState.PUBLISHER, BrokerState.PUBLISHER_AND_SUBSCRIBER})
_SUBSCRIBING: Final = frozenset({BrokerState.SUBSCRIBER, BrokerState.PUBLISHER_AND_SUBSCRIBER})
_TIMESTAMP_BYTES: Final = 8
"""A MESSAGE has a timestamp, besides the fields of its PUBLISH."""
_LOG_FAILED: Final = ErrorCode.RATE_LIMIT_EXCEEDED
"""The error for messages that the log did not store: the only code that means "later"."""


class HeraldSubscribers(dict[ClientKey, "HeraldGateway"]):
    """The connection of each subscriber that has a client id."""


class HeraldGateway(Gateway):
    """One herald connection."""

    protocol: ClassVar[Protocol] = HERALD
    refuses_above_rate: ClassVar[bool] = True

    state = BrokerState.AWAITING_HANDSHAKE
    _pending: tuple[tuple[int, bool], ...] = ()  # channels, and whether to subscribe or unsubscribe
    _wants_positions = False
    _resume_positions: dict[str, Position] | None = None  # by topic, of a client that reconnected
    _principal: Principal | None = None
    _ping_timer: Timer | None = None
    _half_closed = False
    _probes = 0  # PINGs since the client half-closed
    _passed_bytes = -1  # to the system, when that was checked last
    _passed_at = 0.0  # when it changed last
    _key: ClientKey | None = None  # of a subscriber that may resume
    _sent: SentPositions | None = None
    _note_timer: Timer | None = None
    _starts: dict[int, str] | None = None  # where channels of the handshake begin, if it says so

    def new_decoder(self) -> herald.Decoder:
        """See the base class."""
        payload_bytes_max = self.limits["payload_bytes_max"]
        return herald.Decoder(order=self.order, payload_bytes_max=payload_bytes_max)

    @property
    def may_publish(self) -> bool:
        """See the base class: after a publisher's handshake."""
        return self.state in _PUBLISHING

    def scan(
        self, session: Session, data: memoryview, start: int, *, permits: bytearray | None
    ) -> int:
        """See the base class."""
        broker = self.broker
        return kernel.scan(
            data,
            start,
            broker.batch,
            broker.topics,
            session.sender,
            order=self.order,
            permits=permits,
            payload_bytes_max=self._publish_bytes_max,
        )

    @cached_property
    def _publish_bytes_max(self) -> int:
        """Largest body of a PUBLISH whose MESSAGE can be sent, over the same transport."""
        message_bytes_max = HERALD_PAYLOAD_BYTES_MAX
        if self._has_datagrams:
            message_bytes_max = UDP_DATAGRAM_BYTES_MAX - HEADER_BYTES
        return min(self.limits["payload_bytes_max"], message_bytes_max - _TIMESTAMP_BYTES)

    @property
    def _has_datagrams(self) -> bool:
        return isinstance(self.link, UnprovenLink)

    def acknowledge_batch(self, session: Session, receipt: Receipt) -> None:
        """See the base class: herald has no acknowledgments."""
        self.broker.acknowledge(session, receipt, b"", self._encode_failure)

    def refuse_batch(self, session: Session, error: LogUnavailable) -> None:  # noqa: ARG002
        """See the base class: one ERROR for all rows."""
        self._error(_LOG_FAILED)

    def _encode_failure(self, answer: bytes) -> bytes:  # noqa: ARG002
        """Return the ERROR for messages whose commit failed; herald has no acknowledgments."""
        return herald.encode(herald.Error(_LOG_FAILED), order=self.order)

    def topic_of(self, packet: herald.Packet) -> str | None:
        """See the base class."""
        if not isinstance(packet, herald.Publish) or self._is_too_large(packet):
            return None
        return self._topic(packet.channel)

    def _is_too_large(self, packet: herald.Publish) -> bool:
        return 1 + len(packet.message) > self._publish_bytes_max

    def handle(self, packet: herald.Packet) -> None:
        """See the base class."""
        self.state = herald.BROKER.advance(self.state, packet)
        match packet:
            case herald.HandshakePub(channel, client_id):
                self._open(client_id, bytes((channel,)), subscribe=False)
            case herald.HandshakeSub(channels, client_id):
                self._open(client_id, channels, subscribe=True)
            case herald.Subscribe(channel):
                self._when_proven(lambda: self._change(((channel, True),)))
            case herald.Unsubscribe(channel):
                self._when_proven(lambda: self._change(((channel, False),)))
            case herald.Publish() if self._is_too_large(packet):
                self.broker.counters.messages_refused[self.protocol] += 1
                self._error(ErrorCode.MESSAGE_TOO_LARGE)
            case herald.Publish():
                self._error(ErrorCode.CHANNEL_NOT_FOUND)
            case herald.Ping():
                self._send(herald.Pong())
            case herald.Disconnect():
                self.close()
            case _:
                pass

    def refuse_publish(self, packet: herald.Publish, error: PeerError | CallerError) -> None:  # noqa: ARG002
        """See the base class."""
        if isinstance(error, TooManyMessages | TooManyStoredBytes | MemoryExhausted):
            self._error(ErrorCode.RATE_LIMIT_EXCEEDED)
            return
        refused = isinstance(error, NotAllowed | HookRefused | HookTimeout | MiddlewareMissing)
        self._error(ErrorCode.UNAUTHORIZED if refused else ErrorCode.CHANNEL_NOT_FOUND)

    def rejected(self, error: WireError) -> None:
        """See the base class."""
        if isinstance(error, herald.HeraldError):
            self._error(error.answer)
        elif isinstance(error, OutOfSequence) and (
            self.state is BrokerState.AWAITING_HANDSHAKE
            or error.packet in ("HandshakePub", "HandshakeSub")
        ):
            self._error(ErrorCode.INVALID_HANDSHAKE)
        else:
            self._error(ErrorCode.INVALID_OPCODE)

    def skip_unreadable(self, error: WireError) -> bool:  # noqa: ARG002
        """See the base class: a datagram is on its own."""
        if self._has_datagrams:
            self._error(ErrorCode.MALFORMED_MESSAGE)
        return self._has_datagrams

    def framing_lost(self, error: WireError) -> None:
        """See the base class: a wrong magic has no answer."""
        if isinstance(error, herald.HeraldError):
            self._error(error.answer)
        elif isinstance(error, MemoryExhausted):
            self._error(ErrorCode.RATE_LIMIT_EXCEEDED)
        elif isinstance(error, FrameTooLarge):
            self._error(ErrorCode.MALFORMED_MESSAGE)

    def _open(self, client_id: str, channels: bytes, *, subscribe: bool) -> None:
        """Process a handshake: all channels must exist and be allowed."""
        client_id, wants_positions = self._read_client_id(client_id, channels)
        error = self._channels_error(channels, subscribe=subscribe)
        if error is not None:
            self._refuse_handshake(error)
        elif self.session is not None:
            self._acknowledge_handshake(self.session, channels if subscribe else b"")
        else:
            self.run_connect_hooks(
                client_id,
                self._identify(),
                lambda: self._new_session(
                    client_id, channels if subscribe else b"", wants_positions=wants_positions
                ),
            )

    def _read_client_id(self, text: str, channels: bytes) -> tuple[str, bool]:
        """Return a client id without what may end it, and whether the client wants positions.

        `name@positions` asks for positions. `name@positions,2026-11-01T00:00:00Z` also says where
        the channels of the handshake begin; the broker's own memory of the client does not count.
        """
        name, at, asked = text.rpartition("@")
        word, _, start = asked.partition(",")
        if not at or word != ASK_NAME or (start and parse_start(start) is None):
            return text, False
        if start:
            self._starts = dict.fromkeys(channels, f"@{start}")
        return name, True

    def _positions(self, payload: bytes) -> bytes:
        """Return a frame with positions: a MESSAGE with a time that no message has."""
        return herald.encode(herald.Message(0, TIMESTAMP, payload), order=self.order)

    def pattern_name(self, pattern: str) -> str:
        """See the base class: clients know channels."""
        topics = self.broker.topics
        identifier = topics.find(pattern)
        for channel in range(256):
            if identifier is not None and topics.channel_topic(channel) == identifier:
                return f"channel/{channel}"
        return pattern

    def _channels_error(self, channels: bytes, *, subscribe: bool) -> ErrorCode | None:
        try:
            principal = self._identify()
        except AuthenticationFailed as error:
            self.log_refused_client(error.reason)
            return ErrorCode.UNAUTHORIZED
        action = Action.SUBSCRIBE if subscribe else Action.PUBLISH
        for channel in channels:
            topic = self._topic(channel)
            if topic is None:
                return ErrorCode.CHANNEL_NOT_FOUND
            try:
                authorize(principal, action, topic)
            except NotAllowed as error:
                self.record_refusal(error)
                return ErrorCode.UNAUTHORIZED
        return None

    def _identify(self) -> Principal:
        """Return the principal of the client; raise AuthenticationFailed."""
        if self.session is not None:
            return self.session.principal
        self._principal = principal = self.options.identify(self.link)
        self.authenticated(principal)
        return principal

    def refuse_connection(self, error: PeerError) -> None:  # noqa: ARG002
        """See the base class."""
        self._refuse_handshake(ErrorCode.UNAUTHORIZED)

    def answer_handshake_timeout(self) -> None:
        """See the base class: refuse a handshake that middleware did not judge in time."""
        if self.state not in (BrokerState.AWAITING_HANDSHAKE, BrokerState.CLOSED):
            self._send(herald.HandshakeAck(0, ErrorCode.UNAUTHORIZED))

    def _refuse_handshake(self, error: ErrorCode) -> None:
        self._send(herald.HandshakeAck(0, error))
        self.close()

    def _new_session(self, client_id: str, channels: bytes, *, wants_positions: bool) -> None:
        """Open a session with subscriptions to `channels`."""
        if self._principal is None:
            raise AssertionError("a handshake without a principal")
        try:
            session = self.open_session(self._principal, name=client_id)
        except BrokerFull:
            self._refuse_handshake(ErrorCode.RATE_LIMIT_EXCEEDED)
        except AuthenticationFailed as error:
            self.log_refused_client(error.reason)
            self._refuse_handshake(ErrorCode.UNAUTHORIZED)
        else:
            if not self._has_datagrams:  # the UDP transport sends it itself
                session.farewell = herald.encode(herald.Disconnect(), order=self.order)
            self._acknowledge_handshake(session, channels, wants_positions=wants_positions)
            if self.options.herald_ping_seconds:
                self._check_silence()

    def _acknowledge_handshake(
        self, session: Session, channels: bytes, *, wants_positions: bool = False
    ) -> None:
        self._wants_positions = wants_positions and not self._has_datagrams
        if self.state is not BrokerState.PUBLISHER and self._may_be_elsewhere(session):
            self._resume(session, channels)  # which acknowledges when it subscribes
            return
        self._acknowledge(session)
        if self.state is not BrokerState.PUBLISHER:
            self._when_proven(lambda: self._resume(session, channels))

    def _acknowledge(self, session: Session) -> None:
        self._send(herald.HandshakeAck(session.number))
        if self._wants_positions:
            self.broker.give_positions(session, self._positions)

    def _may_be_elsewhere(self, session: Session) -> bool:
        """Return whether other nodes are asked for the client before it is acknowledged.

        A client counts on its channels from the acknowledgment on. Over UDP, the acknowledgment
        has to come first: it proves the address.
        """
        return (
            self.broker.roaming is not None
            and client_key(session) is not None
            and not isinstance(self.link, UnprovenLink)
        )

    def _when_proven(self, action: Callable[[], None]) -> None:
        """Do what may send messages; over UDP, wait until the address has shown that it receives.

        A sender of datagrams can be forged, and its victim would get the messages.
        """
        if isinstance(self.link, UnprovenLink):
            self.link.when_proven(action)
        else:
            action()

    def _resume(self, session: Session, channels: bytes) -> None:
        """Subscribe to the channels of the handshake; if it has none, to those of an earlier one.

        An older connection of the same client that still looks alive is closed.
        """
        if self.session is not session:
            return
        self._take_over(session)
        kept = self.broker.resumption.take(session)
        roaming, key = self.broker.roaming, self._key
        if roaming is None or key is None:
            self._resume_at(kept, channels)
            return

        def start(done: Callable[[], None]) -> None:
            def given(positions: dict[str, Position]) -> None:
                found.update(positions)
                done()

            roaming.arrive(key, self, kept, given)

        found: dict[str, Position] = {}
        self.await_work(start, lambda: self._resume_at(found, channels))

    def _resume_at(self, positions: dict[str, Position], channels: bytes) -> None:
        if self.session is not None and self._may_be_elsewhere(self.session):
            self._acknowledge(self.session)
        self._resume_positions = {topic: each for topic, each in positions.items() if each}
        channels = channels or bytes(n for n in range(256) if self._topic(n) in positions)
        self._change(tuple((channel, True) for channel in channels))

    def _take_over(self, session: Session) -> None:
        """Close the older connection of this client, if there is one; note positions from now."""
        self._key = key = client_key(session)
        if key is None:
            return
        subscribers = self.broker.shared(HeraldSubscribers)
        older = subscribers.get(key)
        subscribers[key] = self
        if older is not None and older is not self:
            older.give_way()
        if isinstance(self.link, AcknowledgedLink):
            self._sent = SentPositions()
            self._note_position(seconds=SENT_POSITIONS_SECONDS[0])

    def give_way(self) -> None:
        """Close this connection: its client has another one, which gets the subscriptions."""
        session = self.session
        if session is None:
            return
        self._keep_for_resume(session)
        self.state = BrokerState.CLOSED
        for pattern in list(session.subscriptions):
            self.broker.unsubscribe(session, pattern)
        log.info("connection replaced", connection=self.link.connection, peer=self.link.peer)
        session.say_farewell()
        self.close()

    def _note_position(self, *, seconds: float) -> None:
        """Note which messages are written, now and again later."""
        if self._closed or self.session is None or not self._note():
            self._note_timer = None
            return
        if self.broker.roaming is not None and self._key is not None:
            self.broker.roaming.save(self._key, self, self._safe_positions(self.session))
        shortest, longest = SENT_POSITIONS_SECONDS
        messages = self.session.messages_sent
        self._note_timer = self.broker.timers.after(
            seconds,
            lambda: self._note_position(
                seconds=min(2 * seconds, longest) if self._sent_since(messages) == 0 else shortest
            ),
        )

    def _sent_since(self, messages: int) -> int:
        return 0 if self.session is None else self.session.messages_sent - messages

    def _note(self) -> bool:
        """Note which messages are written; return False if the client cannot resume."""
        link, sent, session = self.link, self._sent, self.session
        if sent is None or session is None or not isinstance(link, AcknowledgedLink):
            return False
        acknowledged = link.acknowledged()
        positions = self.broker.positions(session)
        sent.note(positions, written=link.written, acknowledged=acknowledged)
        return True

    def _keep_for_resume(self, session: Session) -> None:
        """Store the subscriptions, from the last message whose bytes are acknowledged."""
        self.broker.keep_for_resume(session, self._safe_positions(session))

    def _safe_positions(self, session: Session) -> dict[str, Position]:
        """Return the positions of the last message whose bytes are acknowledged.

        The position of a group's topic is empty, because the group keeps its own.
        """
        link, sent = self.link, self._sent
        positions = self.broker.positions(session)
        if sent is not None and isinstance(link, AcknowledgedLink):
            acknowledged = link.acknowledged()
            positions = sent.acknowledged(
                positions, written=link.written, acknowledged=acknowledged
            )
        return positions | {member.text: {} for member in session.memberships.values()}

    # --- Keep-alive and the end -------------------------------------------------------------------

    def _check_silence(self) -> None:
        """Send PING to a silent client; end the connection of one that stays silent."""
        self._ping_timer = None
        if self._closed or self._half_closed or self.session is None:
            return
        seconds = wait = self.options.herald_ping_seconds
        silent = self.broker.clock.monotonic() - self.received_at
        if silent >= seconds * SILENT_INTERVALS_MAX and not self._suspended:
            self.broker.counters.connections_failed["keep-alive timed out"] += 1
            log.info("keep-alive timed out", connection=self.link.connection, peer=self.link.peer)
            self.session.end()
            return
        if silent >= seconds:
            self._send(herald.Ping())
        else:
            wait -= silent
        self._ping_timer = self.broker.timers.after(wait, self._check_silence)

    def ended(self) -> None:
        """See the base class: a subscriber that half-closes still gets its messages."""
        if self.state not in _SUBSCRIBING or self._closed:
            super().ended()
            return
        self._half_closed = True
        self._note()  # the socket may be gone when the connection is lost
        self._probe()

    def _probe(self) -> None:
        """Send PING to a client that has half-closed: a write fails once its socket is gone."""
        if self._closed:
            return
        if self._has_stalled():
            self.link.abort()
            return
        if not self.link.buffered:
            self._send(herald.Ping())
        seconds = HALF_CLOSED_PROBE_SECONDS[min(self._probes, len(HALF_CLOSED_PROBE_SECONDS) - 1)]
        self._probes += 1
        self._ping_timer = self.broker.timers.after(seconds, self._probe)

    def _has_stalled(self) -> bool:
        """Return whether a client that has half-closed reads nothing for LINGER_SECONDS_MAX."""
        buffered, now = self.link.buffered, self.broker.clock.monotonic()
        passed = (self.link.written if isinstance(self.link, AcknowledgedLink) else 0) - buffered
        if not buffered or passed != self._passed_bytes:
            self._passed_bytes, self._passed_at = passed, now
        return now - self._passed_at >= LINGER_SECONDS_MAX

    def close(self) -> None:
        """See the base class: there is no DISCONNECT if the client's own frame is the cause."""
        if self.session is not None:
            self.session.farewell = b""
        super().close()

    def lost(self, reason: str) -> None:
        """See the base class: a client that sent no DISCONNECT may resume its subscriptions."""
        for timer in (self._ping_timer, self._note_timer):
            if timer is not None:
                timer.cancel()
        self._ping_timer = self._note_timer = None
        subscribers = self.broker.shared(HeraldSubscribers)
        if self._key is not None and subscribers.get(self._key) is self:
            del subscribers[self._key]
        if self.session is not None and self.state is not BrokerState.CLOSED:
            self._keep_for_resume(self.session)
        if self.broker.roaming is not None and self._key is not None:
            kept = self.state is not BrokerState.CLOSED
            self.broker.roaming.leave(self._key, self, kept=kept)
        super().lost(reason)

    def _awaits_hook(self) -> bool:
        return self._hook_chain is not None or self._awaited_work is not None

    def _change(self, changes: tuple[tuple[int, bool], ...]) -> None:
        """Subscribe to or unsubscribe from one channel after the other; each may await a hook."""
        if self._awaits_hook():  # of another request that waited for the proof of the address
            self._pending += changes
            return
        for index, (channel, is_wanted) in enumerate(changes):
            topic = self._topic(channel)
            if topic is None:
                self._error(ErrorCode.CHANNEL_NOT_FOUND)
            elif self.session is not None and is_wanted:
                self._subscribe_to(self.session, channel, topic)
            elif self.session is not None:
                self.broker.unsubscribe(self.session, topic)
            if self._awaits_hook():
                self._pending = changes[index + 1 :]
                return

    def _subscribe_to(self, session: Session, channel: int, topic: str) -> None:
        """Subscribe from the client's resume offset, else from the listener's `herald_replay`.

        What the handshake says comes first, but a group knows its place itself. Without a log, the
        channel begins with new messages. Over UDP, no client joins a group: its messages may be
        lost, and it acknowledges none.
        """
        resume_at = self._resume_positions.pop(topic, None) if self._resume_positions else None
        start = self._starts.pop(channel, "") if self._starts else ""
        configured = self.options.herald_replay.get(channel, "")
        in_group = split_group(topic + configured)[1] is not None
        if in_group and self._has_datagrams:
            self._error(ErrorCode.CHANNEL_NOT_FOUND)
            return
        if in_group:
            resume_at = None  # the group may be newer than the stored position
            topic += configured
        elif start and self.broker.catch_up is not None:
            resume_at = None
            topic += start
        elif resume_at is None and topic not in session.subscriptions:
            topic += configured
        self.subscribe(session, topic, self._subscribed, resume_at=resume_at)

    def _subscribed(self, error: PeerError | None) -> None:
        if error is not None and (error.is_temporary or isinstance(error, TooManySubscriptions)):
            self._error(ErrorCode.RATE_LIMIT_EXCEEDED)
        elif isinstance(error, LogError):
            self._error(ErrorCode.CHANNEL_NOT_FOUND)
        elif error is not None:
            self._error(ErrorCode.UNAUTHORIZED)
        else:
            self._note()
        changes, self._pending = self._pending, ()
        self._change(changes)

    def _topic(self, channel: int) -> str | None:
        identifier = self.broker.topics.channel_topic(channel)
        return None if identifier is None else self.broker.topics.name(identifier)

    def _error(self, code: ErrorCode) -> None:
        self._send(herald.Error(code))

    def _send(self, packet: herald.Packet) -> None:
        self.link.write(herald.encode(packet, order=self.order))
