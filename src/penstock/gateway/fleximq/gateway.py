"""fleximq connections: processes each message of a client and sends the replies."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
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
    FrameTooLarge,
    HookRefused,
    HookTimeout,
    KeyWithRouting,
    LogUnavailable,
    MemoryExhausted,
    MiddlewareMissing,
    NotAllowed,
    OutOfSequence,
    PeerError,
    TooManyMessages,
    TooManyStoredBytes,
    TopicTableFull,
    WireError,
)
from penstock.gateway.base import Gateway, KeyedPublish
from penstock.gateway.fleximq import frames
from penstock.gateway.fleximq.exchange import Exchange
from penstock.gateway.fleximq.keepalive import KeepAliveTimer
from penstock.gateway.fleximq.records import record_of
from penstock.gateway.fleximq.remote import RemoteRequests
from penstock.gateway.fleximq.replies import Replies
from penstock.gateway.options import GatewayOptions
from penstock.model import DEDUPE_HEADER, ByteOrder
from penstock.ports import Link, Receipt
from penstock.protocols import Protocol
from penstock.protocols.fleximq import FLEXIMQ
from penstock.wire import fleximq
from penstock.wire.fleximq import (
    BrokerState,
    ClientId,
    FleximqError,
    HeaderLimits,
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
        MiddlewareMissing: StatusCode.GATEWAY_TIMEOUT,
        TooManyMessages: StatusCode.TOO_MANY_REQUESTS,
        TooManyStoredBytes: StatusCode.TOO_MANY_REQUESTS,
        TopicTableFull: StatusCode.SERVICE_UNAVAILABLE,
        MemoryExhausted: StatusCode.SERVICE_UNAVAILABLE,
    }
)
_MESSAGES: Final = frozenset(
    {MessageType.REQ, MessageType.REP, MessageType.NOTIF, MessageType.BCAST, MessageType.PUB}
)
"""Messages that count against the rate limit; subscriptions and keep-alive do not."""
_NO_FRAME: Final = memoryview(b"")


class FleximqShared:
    """State that all fleximq connections of a broker share: caches of parsed headers.

    The topic ids in them are the broker's. Listeners with the same rules for headers share a cache.
    """

    def __init__(self) -> None:
        self._caches: dict[tuple[bool, HeaderLimits], kernel.HeaderCache] = {}

    def headers(self, *, strict: bool, limits: HeaderLimits) -> kernel.HeaderCache:
        """Return the cache of headers that are parsed by these rules."""
        cache = self._caches.get((strict, limits))
        if cache is None:
            cache = kernel.HeaderCache(partial(fleximq.publication, strict=strict, limits=limits))
            self._caches[strict, limits] = cache
        return cache


class FleximqGateway(Gateway):
    """One fleximq connection; a `ports.Handler`."""

    protocol: ClassVar[Protocol] = FLEXIMQ
    refuses_above_rate: ClassVar[bool] = True

    def __init__(
        self, broker: Broker, link: Link, options: GatewayOptions, *, order: ByteOrder
    ) -> None:
        super().__init__(broker, link, options, order=order)
        self.state = BrokerState.AWAITING_JOIN
        self._headers = broker.shared(FleximqShared).headers(
            strict=options.strict, limits=self._header_limits
        )
        self._id_bytes_max = self.limits["reqrep_id_bytes_max"]
        self._header_bytes_max = self.limits["header_bytes_max"]
        self._message_bytes_max = self.limits["message_bytes_max"]
        self._payload_depth_max = self.limits["payload_depth_max"]
        broker.requests.allow_ids(self._id_bytes_max)
        self._replies = Replies(broker, link, id_bytes_max=self._id_bytes_max)
        self._exchange = Exchange(broker, self._replies, self.await_work)
        self._keepalive: KeepAliveTimer | None = None
        self._join_id: str | None = None
        self._token_seconds: float | None = None
        self._cancel_check: Callable[[], None] | None = None
        self._frame_view = _NO_FRAME
        self._is_program = False
        self._unasked_bytes = 0  # of PONGs of this read that answer no PING

    @property
    def _header_limits(self) -> HeaderLimits:
        return HeaderLimits(
            elements_max=self.limits["header_elements_max"],
            routing_entries_max=self.limits["routing_entries_max"],
        )

    # --- Gateway ------------------------------------------------------------------------------

    def new_decoder(self) -> fleximq.BrokerDecoder:
        """See the base class."""
        return fleximq.BrokerDecoder(
            strict=self.options.strict,
            header_bytes_max=self.limits["header_bytes_max"],
            message_bytes_max=self.limits["message_bytes_max"],
            header_limits=self._header_limits,
            payload_depth_max=self.limits["payload_depth_max"],
        )

    def received(self, data: memoryview) -> int:
        """See the base class: a PONG that answers no PING is no sign of life."""
        last = self.received_at
        self._unasked_bytes = 0
        taken = super().received(data)
        if self._unasked_bytes and self._unasked_bytes == len(data):
            self.received_at = last
        return taken

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
            headers=self._headers,
            learn_topics=permits is None,
            permits=permits,
            header_bytes_max=self._header_bytes_max,
            message_bytes_max=self._message_bytes_max,
            payload_depth_max=self._payload_depth_max,
        )

    def acknowledge_batch(self, session: Session, receipt: Receipt) -> None:
        """See the base class: PUB has no acknowledgment."""
        self.broker.acknowledge(session, receipt, b"", self._replies.encode_failure)

    def refuse_batch(self, session: Session, error: LogUnavailable) -> None:  # noqa: ARG002
        """See the base class: one NOTIF for all rows."""
        self._replies.send_error(StatusCode.SERVICE_UNAVAILABLE, str(error), None)

    def topic_of(self, packet: Message) -> str | None:
        """See the base class: not for a PUB with `routing` or with a wrong client id."""
        if (
            packet.type is not MessageType.PUB
            or packet.header.routing is not None
            or self.session is None
            or packet.client_id != self.session.number
        ):
            return None
        return packet.header.topic

    def keyed(self, session: Session, packet: Message) -> KeyedPublish | None:
        """See the base class."""
        if packet.header.dedupe is None:
            return None
        return KeyedPublish(
            packet.header.dedupe.encode(),
            frames.routed_head(packet, None) + packet.payload,
            record_of(session, packet, timestamp_us=0)._replace(private=False),
        )

    def handle(self, packet: Message) -> None:
        """See the base class."""
        identifier = frames.reqrep_id(packet)
        try:
            if not (self._is_program and packet.type is MessageType.JOIN):
                fleximq.BROKER.advance(self.state, packet)  # only `open` changes the state
        except OutOfSequence as error:
            self.broker.counters.frames_rejected[self.protocol] += 1
            self._out_of_sequence(packet, error)
            return
        if identifier is not None and len(identifier.encode()) > self._id_bytes_max:
            text = f"reqrep.id has more than {self._id_bytes_max} bytes"
            self._replies.refuse(packet, StatusCode.BAD_REQUEST, text)
        elif packet.type is MessageType.JOIN:
            self._join(packet)
        elif self.session is not None:
            if packet.type in _MESSAGES and not self._within_rate():
                self.refuse_publish(packet, self.rate_error())
            else:
                self._process(self.session, packet)

    def _within_rate(self) -> bool:
        """Count a message that is not in a batch; return False if it is above the rate limit."""
        if self.is_above_rate():
            return False
        if self.session is not None:
            self.take_rates(self.session, 1, self.packet_bytes)
        return True

    def refuse_publish(self, packet: Message, error: PeerError | CallerError) -> None:
        """See the base class."""
        status = _PUBLISH_STATUS.get(type(error), StatusCode.BAD_REQUEST)
        self._replies.refuse(packet, status, str(error))

    def rejected(self, error: WireError) -> None:
        """See the base class: before JOIN, all but a malformed JOIN closes the connection."""
        status, message_type, identifier = _fault(error)
        joining = message_type == MessageType.JOIN
        if self.session is None and (joining or identifier is not None):
            self._replies.refuse_join(status, str(error), identifier)
        else:
            self._replies.send_error(status, str(error), identifier)
        if self.session is None and not (joining and status is StatusCode.BAD_REQUEST):
            self.close()

    def framing_lost(self, error: WireError) -> None:
        """See the base class."""
        status, _, identifier = _fault(error)
        if self.session is None:
            self._replies.refuse_join(status, str(error), identifier)
        else:
            self._replies.send_error(status, str(error), identifier)

    def suspend(self) -> None:
        """See the base class: stop keep-alive while the session is suspended."""
        if self._keepalive is not None:
            self._keepalive.suspend()
        super().suspend()

    def proceed(self) -> None:
        """See the base class: restart keep-alive unless the session was suspended again."""
        super().proceed()
        if self._keepalive is not None and not self._suspended:
            self._keepalive.start()

    def lost(self, reason: str) -> None:
        """See the base class: end the requests that await this client's answers."""
        if self._cancel_check is not None:
            self._cancel_check()
            self._cancel_check = None
        if self._keepalive is not None:
            self._keepalive.stop()
            self._keepalive = None
        if self.session is not None:
            self.broker.requests.leave(self.session)
            self.broker.shared(RemoteRequests).leave(self.broker, self.session.number)
        super().lost(reason)
        del self._exchange  # it refers to this gateway

    def _process_packet(self, packet: Any, data: memoryview, start: int, end: int) -> int:  # noqa: ANN401
        """See the base class: keep the frame, for messages that are forwarded unchanged.

        A PUB whose routing names the broker is for all subscribers, like one without routing.
        """
        if _is_for_all_subscribers(packet):
            header = dataclasses.replace(packet.header, routing=None)
            packet = dataclasses.replace(packet, header=header)
            frame = frames.routed_head(packet, None) + packet.payload
            super()._process_packet(packet, memoryview(frame), 0, len(frame))
            return end
        self._frame_view = data[start:end]
        try:
            return super()._process_packet(packet, data, start, end)
        finally:
            self._frame_view = _NO_FRAME

    # --- JOIN ---------------------------------------------------------------------------------

    def _identify(self, auth: fleximq.Auth | None) -> Principal | None:
        """Return the client's principal, None if the check continues in the background.

        Without principals, credentials are ignored. Raise AuthenticationFailed.
        """
        authenticator = None
        if auth is not None:
            authenticator = self.options.active_authenticator(kind="credentials")
        if authenticator is None:
            return self.options.identify(self.link)
        match auth:
            case fleximq.TokenAuth(token):
                self.method = "token"
                principal = authenticator.verify_token(token, self.link)
                self._token_seconds = authenticator.seconds_left(token)
                return principal
            case fleximq.ApiKeyAuth(api_key):
                self.method = "api-key"
                return authenticator.verify_api_key(api_key, self.link)
            case fleximq.BasicAuth(username, password):
                self.method = "password"
                self.suspend()
                self._cancel_check = authenticator.check_basic(
                    username, password, self.link, self._password_checked
                )
                return None
            case _:
                raise AssertionError(f"unknown credentials {type(auth).__name__}")

    def _password_checked(self, found: Principal | PeerError) -> None:
        self._cancel_check = None
        self.continue_with(lambda: self._identified(found))

    def _identified(self, found: Principal | PeerError) -> None:
        if isinstance(found, Principal):
            self.authenticated(found, seconds_max=self._token_seconds)
            self.run_connect_hooks(found.name, found, lambda: self._complete_join(found))
            return
        self.log_refused_client(
            found.reason if isinstance(found, AuthenticationFailed) else str(found)
        )
        self.refuse_connection(found)

    def open_program(self, principal: Principal) -> Session:
        """Open the session of a program, which needs no JOIN (section 6.4); raise what `open` does.

        A JOIN is answered with the id that the program has.
        """
        self._is_program = True
        return self.open(principal)

    def open(self, principal: Principal) -> Session:
        """Open the session.

        Raise BrokerFull, or AuthenticationFailed if the credentials have changed since.
        """
        session = self._replies.session = self.open_session(principal)
        self.state = BrokerState.JOINED
        self._keepalive = KeepAliveTimer(
            self.broker,
            seconds=self.limits["keepalive_interval_ms"] / 1000,
            misses_max=self.limits["keepalive_misses_max"],
            last_received=lambda: self.received_at,
            send=self._replies.write,
            timed_out=self._keepalive_timed_out,
        )
        return session

    def _join(self, message: Message) -> None:
        self._join_id = frames.reqrep_id(message)
        if self.session is not None:  # of a program
            self._answer_join(self.session)
            return
        try:
            principal = self._identify(message.header.auth)
        except AuthenticationFailed as error:
            self._identified(error)
        else:
            if principal is not None:
                self._identified(principal)

    def _complete_join(self, principal: Principal) -> None:
        try:
            session = self.open(principal)
        except BrokerFull as error:
            self.refuse_connection(error)
        except AuthenticationFailed as error:
            self.log_refused_client(error.reason)
            self.refuse_connection(error)
        else:
            self._answer_join(session)

    def _answer_join(self, session: Session) -> None:
        self._replies.write(
            frames.join_reply(StatusCode.OK, client_id=session.number, identifier=self._join_id)
        )

    def refuse_connection(self, error: PeerError) -> None:
        """See the base class."""
        status = _JOIN_STATUS.get(type(error), StatusCode.JOIN_REJECTED)
        self._replies.refuse_join(status, str(error), self._join_id)
        self.close()

    def answer_handshake_timeout(self) -> None:
        """See the base class."""
        self._replies.refuse_join(StatusCode.REQUEST_TIMEOUT, "no JOIN in time", self._join_id)

    def _out_of_sequence(self, message: Message, error: OutOfSequence) -> None:
        if self.session is not None:
            self._replies.refuse(message, StatusCode.CONFLICT, str(error))
        else:
            self._replies.refuse(message, StatusCode.UNAUTHORIZED, str(error))
            self.close()

    def _keepalive_timed_out(self) -> None:
        # The client does not read what is still unsent.
        if self.link.buffered:
            self.link.abort()
        else:
            self.close()

    # --- Messages after JOIN ------------------------------------------------------------------

    def _process(self, session: Session, message: Message) -> None:
        if message.client_id != session.number:
            text = f"this is client {session.number}, not {message.client_id}"
            self._replies.refuse(message, StatusCode.FORBIDDEN, text)
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
                    self._replies.refuse(message, StatusCode.TOPIC_NOT_FOUND, text)
            case MessageType.PING if header.keepalive is not None:
                self._replies.write(frames.pong(header.keepalive.timestamp))
            case MessageType.PONG if header.keepalive is not None and self._keepalive is not None:
                if not self._keepalive.answered(header.keepalive.timestamp):
                    self._unasked_bytes += len(self._frame_view)
            case _:
                pass

    def _subscribed(self, message: Message, error: PeerError | None) -> None:
        if error is not None:
            status = StatusCode.SUBSCRIPTION_FAILED
            if error.is_temporary:
                status = StatusCode.SERVICE_UNAVAILABLE
            self._replies.refuse(message, status, str(error))

    def _publish_routed(self, session: Session, message: Message, topic: str) -> None:
        def decided(error: PeerError | None) -> None:
            if error is None:
                error = self.still_allowed(session, topic)
            if error is None:
                self._exchange.publish_routed(session, message)
            else:
                self.refuse_publish(message, error)

        try:
            if message.header.dedupe is not None:
                raise KeyWithRouting(DEDUPE_HEADER)
            self.authorize_publish(session, topic)
        except (PeerError, CallerError) as error:
            self.refuse_publish(message, error)
            return
        hooks = self.broker.hooks
        if not hooks.watch(self.protocol, topic):
            decided(None)
            return
        hooks.messages_judged += 1
        value = fleximq.raw_value(message.payload)
        self.run_hooks(self.message_event(session, message, topic, value), decided)


def _is_for_all_subscribers(packet: object) -> bool:
    """Return whether a packet is a PUB with a routing entry for the broker."""
    return (
        isinstance(packet, Message)
        and packet.type is MessageType.PUB
        and packet.header.routing is not None
        and any(entry.client_id == ClientId.BROKER for entry in packet.header.routing)
    )


def _fault(error: WireError) -> tuple[StatusCode, int | None, str | None]:
    """Return the status of an error, the message's type and its `reqrep.id`."""
    if isinstance(error, FleximqError):
        return error.status, error.message_type, error.reqrep_id
    if isinstance(error, FrameTooLarge):
        return StatusCode.PAYLOAD_TOO_LARGE, None, None
    if isinstance(error, MemoryExhausted):
        return StatusCode.SERVICE_UNAVAILABLE, None, None
    return StatusCode.BAD_REQUEST, None, None
