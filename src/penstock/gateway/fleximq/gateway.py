"""One fleximq connection: what each message of a client does, and what answers it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

from penstock._kernels import fleximq as kernel
from penstock.core.access import Principal
from penstock.core.broker import Broker
from penstock.core.sessions import Session
from penstock.errors import (
    AuthenticationFailed,
    BrokerFull,
    CallerError,
    HookRefused,
    HookTimeout,
    LogUnavailable,
    NotAllowed,
    OutOfSequence,
    PeerError,
    TooManyMessages,
    TopicTableFull,
    WireError,
)
from penstock.gateway.base import Gateway
from penstock.gateway.fleximq import frames
from penstock.gateway.fleximq.answers import Answers
from penstock.gateway.fleximq.exchange import Exchange
from penstock.gateway.fleximq.keepalive import Pulse
from penstock.gateway.options import GatewayOptions
from penstock.limits import FLEXIMQ_KEEPALIVE_SECONDS, REQUEST_ID_BYTES_MAX
from penstock.model import ByteOrder, Protocol
from penstock.ports import Link, Receipt
from penstock.wire import fleximq
from penstock.wire.fleximq import (
    BrokerState,
    FleximqError,
    Message,
    MessageType,
    StatusCode,
)

__all__ = ["FleximqGateway", "FleximqShared"]

_JOIN_STATUS: Final[Mapping[type[Exception], StatusCode]] = MappingProxyType(
    {
        AuthenticationFailed: StatusCode.UNAUTHORIZED,
        fleximq.BadAuth: StatusCode.AUTHENTICATION_FAILED,
    }
)
_PUBLISH_STATUS: Final[Mapping[type[Exception], StatusCode]] = MappingProxyType(
    {
        NotAllowed: StatusCode.FORBIDDEN,
        HookRefused: StatusCode.FORBIDDEN,
        HookTimeout: StatusCode.GATEWAY_TIMEOUT,
        TooManyMessages: StatusCode.TOO_MANY_REQUESTS,
        TopicTableFull: StatusCode.SERVICE_UNAVAILABLE,
    }
)
_MESSAGES: Final = frozenset(
    {MessageType.REQ, MessageType.REP, MessageType.NOTIF, MessageType.BCAST, MessageType.PUB}
)
"""What counts against the rate limit; subscriptions and keep-alive do not."""
_NO_FRAME: Final = memoryview(b"")


class FleximqShared:
    """State that all fleximq connections of a broker share.

    `headers` caches parsed headers; the topic ids in it are the broker's. A changed
    `keepalive_seconds` applies to clients that join after the change.
    """

    def __init__(self) -> None:
        self.headers = kernel.HeaderCache(fleximq.publication)
        self.keepalive_seconds: float = FLEXIMQ_KEEPALIVE_SECONDS


class FleximqGateway(Gateway):
    """One fleximq connection; a `ports.Handler`."""

    protocol: ClassVar[Protocol] = Protocol.FLEXIMQ
    refuses_above_rate: ClassVar[bool] = True

    def __init__(
        self, broker: Broker, link: Link, options: GatewayOptions, *, order: ByteOrder
    ) -> None:
        super().__init__(broker, link, options, order=order)
        self.state = BrokerState.AWAITING_JOIN
        self._shared = broker.shared(FleximqShared)
        self._answers = Answers(broker, link)
        self._exchange = Exchange(broker, self._answers)
        self._pulse: Pulse | None = None
        self._join_id: str | None = None
        self._frame_view = _NO_FRAME

    # --- What the base class asks -------------------------------------------------------------

    def new_decoder(self) -> fleximq.BrokerDecoder:
        """See the base class."""
        frames = self.options.frames
        return fleximq.BrokerDecoder(
            strict=self.options.strict,
            header_bytes_max=frames.fleximq_header_bytes_max,
            message_bytes_max=frames.fleximq_message_bytes_max,
        )

    def received(self, data: memoryview) -> int:
        """See the base class: every byte is a sign of life."""
        if self._pulse is not None:
            self._pulse.heard = self.broker.clock.monotonic()
        return super().received(data)

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
            headers=self._shared.headers,
            learn_topics=permits is None,
            permits=permits,
            header_bytes_max=self.options.frames.fleximq_header_bytes_max,
            message_bytes_max=self.options.frames.fleximq_message_bytes_max,
        )

    def published(self, session: Session, receipt: Receipt) -> None:
        """See the base class: PUB has no acknowledgment."""
        self.broker.acknowledge(session, receipt, b"", self._answers.not_kept)

    def refuse_run(self, session: Session, error: LogUnavailable) -> None:  # noqa: ARG002
        """See the base class: one NOTIF for all."""
        self._answers.tell(StatusCode.SERVICE_UNAVAILABLE, str(error), None)

    def topic_of(self, packet: Message) -> str | None:
        """See the base class: a routed PUB is not plain, and one in another's name none at all."""
        if (
            packet.type is not MessageType.PUB
            or packet.header.routing is not None
            or self.session is None
            or packet.client_id != self.session.number
        ):
            return None
        return packet.header.topic

    def handle(self, packet: Message) -> None:
        """See the base class."""
        try:
            fleximq.BROKER.advance(self.state, packet)  # `open` alone moves on
        except OutOfSequence as error:
            self.broker.counters.frames_rejected[self.protocol] += 1
            self._out_of_sequence(packet, error)
            return
        identifier = frames.reqrep_id(packet)
        if identifier is not None and not frames.is_short(identifier):
            text = f"reqrep.id has more than {REQUEST_ID_BYTES_MAX} bytes"
            self._answers.refuse(packet, StatusCode.BAD_REQUEST, text)
        elif packet.type is MessageType.JOIN:
            self._join(packet)
        elif self.session is not None:
            if packet.type in _MESSAGES and not self._within_rate():
                rate = self.options.messages_per_second_max or 0
                self.refuse_publish(packet, TooManyMessages(rate))
            else:
                self._take(self.session, packet)

    def _within_rate(self) -> bool:
        """Count a message that no kernel takes; tell whether it may come now."""
        if not self.allowance.left(self.broker.clock.monotonic(), most=1):
            return False
        self.allowance.take(1)
        return True

    def refuse_publish(self, packet: Message, error: PeerError | CallerError) -> None:
        """See the base class."""
        status = _PUBLISH_STATUS.get(type(error), StatusCode.BAD_REQUEST)
        self._answers.refuse(packet, status, str(error))

    def rejected(self, error: WireError) -> None:
        """See the base class: before JOIN, only a JOIN that is malformed may be tried again."""
        status, message_type, identifier = _fault(error)
        joining = message_type == MessageType.JOIN
        if self.session is None and (joining or identifier is not None):
            self._answers.refuse_join(status, str(error), identifier)
        else:
            self._answers.tell(status, str(error), identifier)
        if self.session is None and not (joining and status is StatusCode.BAD_REQUEST):
            self.close()

    def framing_lost(self, error: WireError) -> None:
        """See the base class."""
        status, _, identifier = _fault(error)
        if self.session is None:
            self._answers.refuse_join(status, str(error), identifier)
        else:
            self._answers.tell(status, str(error), identifier)

    def suspend(self) -> None:
        """See the base class: nobody is called silent while nobody listens."""
        if self._pulse is not None:
            self._pulse.rest()
        super().suspend()

    def proceed(self) -> None:
        """See the base class: going on may well end in another stop."""
        super().proceed()
        if self._pulse is not None and not self._suspended:
            self._pulse.start()

    def lost(self, reason: str) -> None:
        """See the base class: those who wait for this client's answers are told."""
        if self._pulse is not None:
            self._pulse.stop()
            self._pulse = None
        if self.session is not None:
            self.broker.requests.leave(self.session)
        super().lost(reason)

    def _take_packet(self, packet: Any, data: memoryview, start: int, end: int) -> int:  # noqa: ANN401
        """See the base class: what is passed on as it came is copied from here."""
        self._frame_view = data[start:end]
        try:
            return super()._take_packet(packet, data, start, end)
        finally:
            self._frame_view = _NO_FRAME

    # --- JOIN ---------------------------------------------------------------------------------

    def _identify(self, auth: fleximq.Auth | None) -> Principal | None:
        """Return who a client is, None if that takes a while; raise AuthenticationFailed.

        Where nobody is known by name, credentials are not looked at.
        """
        authenticator = self.options.authenticator
        if auth is None or authenticator is None:
            if self.options.anonymous is None:
                raise AuthenticationFailed("a client without credentials", "none are let in")
            return self.options.anonymous
        match auth:
            case fleximq.TokenAuth(token):
                return authenticator.verify_token(token)
            case fleximq.ApiKeyAuth(api_key):
                return authenticator.verify_api_key(api_key)
            case fleximq.BasicAuth(username, password):
                self.suspend()
                authenticator.check_basic(
                    username, password, lambda found: self.go_on(lambda: self._identified(found))
                )
                return None

    def _identified(self, found: Principal | PeerError) -> None:
        if isinstance(found, Principal):
            self.connect(found.name, lambda: self._welcome(found))
            return
        self.note_unknown(found.reason if isinstance(found, AuthenticationFailed) else str(found))
        self.refuse_connection(found)

    def open(self, principal: Principal) -> Session:
        """Let the client in, also one that needs no JOIN (section 6.4); raise BrokerFull."""
        session = self.session = self._answers.session = self.broker.open(
            self.encoding, self.link, principal=principal, echo=self.options.echo
        )
        self.state = BrokerState.JOINED
        self._pulse = Pulse(
            self.broker,
            seconds=self._shared.keepalive_seconds,
            send=self._answers.write,
            dead=self._silent_for_too_long,
        )
        return session

    def _join(self, message: Message) -> None:
        self._join_id = frames.reqrep_id(message)
        try:
            principal = self._identify(message.header.auth)
        except AuthenticationFailed as error:
            self._identified(error)
        else:
            if principal is not None:
                self._identified(principal)

    def _welcome(self, principal: Principal) -> None:
        try:
            session = self.open(principal)
        except BrokerFull as error:
            self.refuse_connection(error)
        else:
            self._answers.write(
                frames.join_reply(StatusCode.OK, client_id=session.number, identifier=self._join_id)
            )

    def refuse_connection(self, error: PeerError) -> None:
        """See the base class."""
        status = _JOIN_STATUS.get(type(error), StatusCode.JOIN_REJECTED)
        self._answers.refuse_join(status, str(error), self._join_id)
        self.close()

    def _out_of_sequence(self, message: Message, error: OutOfSequence) -> None:
        if self.session is not None:
            self._answers.refuse(message, StatusCode.CONFLICT, str(error))
        else:
            self._answers.refuse(message, StatusCode.UNAUTHORIZED, str(error))
            self.close()

    def _silent_for_too_long(self) -> None:
        # What is still unsent will not be read.
        if self.link.buffered:
            self.link.abort()
        else:
            self.close()

    # --- What a client that joined may send ---------------------------------------------------

    def _take(self, session: Session, message: Message) -> None:
        if message.client_id != session.number:
            text = f"this is client {session.number}, not {message.client_id}"
            self._answers.refuse(message, StatusCode.FORBIDDEN, text)
            return
        header = message.header
        match message.type:
            case MessageType.REQ:
                self._exchange.request(session, message, self._frame_view)
            case MessageType.REP:
                self._exchange.reply(session, message, self._frame_view)
            case MessageType.NOTIF:
                self._exchange.notify(session, message)
            case MessageType.BCAST:
                self._exchange.broadcast(session, message, self._frame_view)
            case MessageType.PUB if header.topic is not None:
                self._publish_routed(session, message, header.topic)
            case MessageType.SUB if header.topic is not None:
                self.subscribe(
                    session, header.topic, lambda error: self._subscribed(message, error)
                )
            case MessageType.UNSUB if header.topic is not None:
                if not self.broker.unsubscribe(session, header.topic):
                    text = "there is no such subscription"
                    self._answers.refuse(message, StatusCode.TOPIC_NOT_FOUND, text)
            case MessageType.PING if header.keepalive is not None:
                self._answers.write(frames.pong(header.keepalive.timestamp))
            case _:
                pass  # PONG has done its work by arriving

    def _subscribed(self, message: Message, error: PeerError | None) -> None:
        if error is not None:
            self._answers.refuse(message, StatusCode.SUBSCRIPTION_FAILED, str(error))

    def _publish_routed(self, session: Session, message: Message, topic: str) -> None:
        def verdict(error: PeerError | None) -> None:
            if error is None:
                self._exchange.publish_routed(session, message)
            else:
                self.refuse_publish(message, error)

        try:
            self.admit(session, topic)
        except (PeerError, CallerError) as error:
            self.refuse_publish(message, error)
            return
        hooks = self.broker.hooks
        if not hooks.watch(self.protocol, topic):
            verdict(None)
            return
        hooks.messages_judged += 1
        value = fleximq.raw_value(message.payload)
        self.ask(self.message_event(session, message, topic, value), verdict)


def _fault(error: WireError) -> tuple[StatusCode, int | None, str | None]:
    """Return how a fault is answered: its status, the message's type and its `reqrep.id`."""
    if isinstance(error, FleximqError):
        return error.status, error.message_type, error.reqrep_id
    return StatusCode.BAD_REQUEST, None, None
