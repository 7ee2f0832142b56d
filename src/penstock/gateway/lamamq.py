"""LamaMQ clients: acknowledged pushes, subscriptions, and middleware."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Final

from penstock._kernels import lamamq as kernel
from penstock.core.access import Principal
from penstock.core.hooks import Event, EventKind
from penstock.core.sessions import Session
from penstock.errors import (
    AuthenticationFailed,
    BrokerFull,
    CallerError,
    GroupDamaged,
    HookRefused,
    HookTimeout,
    LogUnavailable,
    MiddlewareMissing,
    NotAllowed,
    NotSubscribed,
    PeerError,
    ReservedHeader,
    TopicTableFull,
    WireError,
)
from penstock.gateway.base import NOT_WRITTEN, Gateway, KeyedPublish
from penstock.gateway.lamamq_middleware import LamaMiddleware, hook_of
from penstock.gateway.options import NO_CREDENTIALS
from penstock.model import DEDUPE_HEADER, Form, Kind, is_reserved_header
from penstock.ports import Receipt, Record
from penstock.positions import ASK_HEADER
from penstock.protocols import Protocol
from penstock.protocols.lamamq import LAMAMQ, LAMAMQ_ERROR_MESSAGE_BYTES_MAX
from penstock.wire import lamamq
from penstock.wire.lamamq import (
    BROKER_ID_BIT,
    BrokerState,
    ErrorCode,
    MessageType,
    PayloadType,
)

__all__ = ["LamamqGateway"]

_MESSAGE_ID_BYTES: Final = 4
"""An answer without an error is the id and one more byte."""
_ANSWER_BYTES: Final = 5
"""Size of an answer without an error."""
_FORMS: Final[Mapping[PayloadType, Form]] = MappingProxyType(
    {
        PayloadType.EMPTY: Form.EMPTY,
        PayloadType.STRING: Form.TEXT,
        PayloadType.BUFFER: Form.PLAIN,
    }
)
_TYPE: Final = 4
"""Where the type of a message is, behind its id."""


class LamamqGateway(Gateway):
    """One LamaMQ connection."""

    protocol: ClassVar[Protocol] = LAMAMQ

    decoder: lamamq.BrokerDecoder
    state = BrokerState.AWAITING_AUTHENTICATION
    _name = ""
    _principal: Principal | None = None
    _middleware: LamaMiddleware | None = None

    def new_decoder(self) -> lamamq.BrokerDecoder:
        """See the base class."""
        return lamamq.BrokerDecoder(
            order=self.order,
            key_required=self._key_required,
            recalls=self._was_forwarded,
            limits=lamamq.Limits(
                headers_max=self.limits["headers_max"],
                headers_bytes_max=self.limits["headers_bytes_max"],
                payload_bytes_max=self.limits["payload_bytes_max"],
            ),
        )

    def _key_required(self, name: str) -> bool:
        """Return whether a client of this name must send a key."""
        authenticator = self.options.authenticator
        if authenticator is None or not authenticator.active:
            return False
        if authenticator.requires_key(name):
            return True
        try:
            self.options.identify(self.link)
        except AuthenticationFailed:
            return True
        return False

    def _was_forwarded(self, message_id: int) -> bool:
        """Return whether a message id is that of a message that this client may have got."""
        if not message_id & BROKER_ID_BIT or not self._gets_forwards:
            return False
        identifier = message_id & ~BROKER_ID_BIT
        return self.broker.encoders.forward_ids.is_recent(identifier) or self._has(identifier)

    def _has(self, identifier: int) -> bool:
        """Return whether this client has a message of a group with this id."""
        groups = self.broker.groups
        return (
            groups is not None
            and self.session is not None
            and groups.acknowledgments.expects(self.session, identifier)
        )

    @property
    def _gets_forwards(self) -> bool:
        session = self.session
        return session is not None and (
            self._middleware is not None or bool(session.subscriptions) or bool(session.memberships)
        )

    # --- Pushes -----------------------------------------------------------------------------------

    def scan(
        self, session: Session, data: memoryview, start: int, *, permits: bytearray | None
    ) -> int:
        """See the base class: stop at ids that may belong to answers, for the decoder.

        Answers to messages of groups that precede the pushes are processed first.
        """
        if session.memberships and self._middleware is None:
            start = self._take_answers(session, data, start)
        awaited = self._gets_forwards or bool(self.decoder.awaited)
        return self._scan(session, data, start, permits=permits, answers_awaited=awaited)

    def _take_answers(self, session: Session, data: memoryview, start: int) -> int:
        """Process a run of successful answers to messages of groups; return where it ends."""
        groups = self.broker.groups
        if groups is None:
            return start
        while True:
            first, count = kernel.answers(data, start, order=self.order)
            taken = count and groups.acknowledgments.answered_run(session, first, count)
            if not taken:
                return start
            start += taken * _ANSWER_BYTES
            self.decoder.skipped()

    def scan_decoded(self, session: Session, frame: memoryview) -> int:
        """See the base class: a decoded push is a push, with any id, and so is a forward."""
        if frame[_TYPE] == MessageType.FORWARD:
            pushed = bytearray(frame)
            pushed[_TYPE] = MessageType.PUSH
            frame = memoryview(bytes(pushed))
        return self._scan(session, frame, 0, permits=None, answers_awaited=False)

    def _scan(
        self,
        session: Session,
        data: memoryview,
        start: int,
        *,
        permits: bytearray | None,
        answers_awaited: bool,
    ) -> int:
        broker = self.broker
        end = kernel.scan(
            data,
            start,
            broker.batch,
            broker.topics,
            session.sender,
            order=self.order,
            learn_topics=permits is None,
            permits=permits,
            answers_awaited=answers_awaited,
            headers_max=self.limits["headers_max"],
            headers_bytes_max=self.limits["headers_bytes_max"],
            payload_bytes_max=self.limits["payload_bytes_max"],
        )
        if end != start:
            self.decoder.skipped()
        return end

    def acknowledge_batch(self, session: Session, receipt: Receipt) -> None:
        """See the base class: one answer for each push, in one write."""
        answers = kernel.acknowledge(self.broker.batch)
        self.broker.acknowledge(session, receipt, answers, self._encode_failure)

    def refuse_batch(self, session: Session, error: LogUnavailable) -> None:
        """See the base class."""
        session.reply(self._error_answers(kernel.acknowledge(self.broker.batch), error))

    def _encode_failure(self, answers: bytes) -> bytes:
        return self._error_answers(answers, LogUnavailable(NOT_WRITTEN))

    def _error_answers(self, answers: bytes, error: LogUnavailable) -> bytes:
        """Return an error answer for each answer in `answers`, with the same ids."""
        answer = lamamq.Answer(0, _code(error), _text(error))
        end = lamamq.encode(answer, order=self.order)[_MESSAGE_ID_BYTES:]
        return b"".join(
            answers[start : start + _MESSAGE_ID_BYTES] + end
            for start in range(0, len(answers), _MESSAGE_ID_BYTES + 1)
        )

    def topic_of(self, packet: lamamq.FromClient) -> str | None:
        """See the base class: not for a message with a header that only the broker may set."""
        if isinstance(packet, lamamq.Push | lamamq.Forward) and not _reserved(packet.message):
            return packet.message.routing_key
        return None

    def keyed(self, session: Session, packet: lamamq.Push | lamamq.Forward) -> KeyedPublish | None:
        """See the base class; of several keys the first counts."""
        message = packet.message
        key = next((text for name, text in message.headers if name == DEDUPE_HEADER), None)
        if key is None:
            return None
        headers = _other_headers(message)
        plain = lamamq.Push(packet.message_id, dataclasses.replace(message, headers=headers))
        record = Record(
            self.protocol,
            Kind.PUBLISH,
            message.routing_key,
            message.payload,
            session.sender,
            session.name,
            timestamp_us=0,
            form=_FORMS[message.payload_type],
            headers=headers,
            created_us=message.created_at * 1_000_000,
        )
        return KeyedPublish(key, lamamq.encode(plain, order=self.order), record)

    def message_event(
        self, session: Session, packet: lamamq.Push | lamamq.Forward, topic: str, value: bytes
    ) -> Event:
        """See the base class: adds headers, time and payload type."""
        message = packet.message
        return Event(
            EventKind.PUSH,
            topic,
            session.name,
            self.protocol,
            session,
            headers=_other_headers(message),
            value=value,
            value_is_text=message.payload_type is PayloadType.STRING,
            created_at=message.created_at,
        )

    def refuse_publish(
        self, packet: lamamq.Push | lamamq.Forward, error: PeerError | CallerError
    ) -> None:
        """See the base class."""
        self._answer(packet.message_id, error)

    # --- Everything else --------------------------------------------------------------------------

    def handle(self, packet: lamamq.FromClient) -> None:
        """See the base class."""
        self.state = lamamq.BROKER.advance(self.state, packet)
        match packet:
            case lamamq.Authentication(name, key):
                self._handle_authentication(name, key)
            case lamamq.VersionChoice():
                self._handle_version(packet)
            case _ if self.session is not None:
                self._request(self.session, packet)
            case _:
                raise AssertionError("a request without a session")

    def _request(self, session: Session, packet: lamamq.FromClient) -> None:
        match packet:
            case lamamq.Subscribe(message_id, routing_key):
                self.subscribe(session, routing_key, lambda error: self._answer(message_id, error))
            case lamamq.Unsubscribe(message_id, routing_key):
                had = self.broker.unsubscribe(session, routing_key)
                self._answer(message_id, None if had else NotSubscribed(routing_key))
            case lamamq.Register():
                self._register(session, packet)
            case lamamq.Unregister(message_id, hook_name):
                self._unregister(session, message_id, hook_name)
            case lamamq.Push(message_id, message) if _asks_for_positions(message):
                self.broker.give_positions(session, self._positions)
                self._answer(message_id, None)
            case lamamq.Push(message_id, message) | lamamq.Forward(message_id, message):
                self.broker.counters.messages_refused[self.protocol] += 1
                self._answer(message_id, ReservedHeader(_reserved(message) or ""))
            case lamamq.Answer(message_id, error, text):
                self._answered(session, message_id, None if error is None else text)
            case _:
                raise AssertionError(f"a {type(packet).__name__} is not handled")

    def _positions(self, payload: bytes) -> bytes:
        """Return a frame with positions: a Forward without a routing key."""
        message = lamamq.Message(0, "", (), PayloadType.BUFFER, payload)
        number = self.broker.encoders.forward_ids.take() | BROKER_ID_BIT
        return lamamq.encode(lamamq.Forward(number, message), order=self.order)

    def _answered(self, session: Session, message_id: int, refusal: str | None) -> None:
        """Process the answer to a hook call, or to a message of a consumer group."""
        if self._middleware is not None and self._middleware.answered(message_id, refusal):
            return
        groups = self.broker.groups
        if groups is not None and session.memberships:
            identifier = message_id & ~BROKER_ID_BIT
            groups.acknowledgments.answered(session, identifier, refusal)

    def rejected(self, error: WireError) -> None:
        """See the base class: a malformed answer to a hook call refuses the event."""
        message_id = error.message_id if isinstance(error, lamamq.LamaError) else 0
        if self._middleware is not None and self._middleware.answered(message_id, str(error)):
            return
        if not self._was_forwarded(message_id):
            self._answer(message_id, error)

    def framing_lost(self, error: WireError) -> None:
        """See the base class."""
        self._answer(error.message_id if isinstance(error, lamamq.LamaError) else 0, error)

    # --- The handshake ----------------------------------------------------------------------------

    def _authenticate(self, name: str, key: bytes | None) -> Principal:
        """Return the principal of a name and an optional key; raise AuthenticationFailed."""
        if not self._key_required(name):
            try:
                return self.options.identify(self.link)
            except AuthenticationFailed as error:
                raise AuthenticationFailed("identity", error.reason) from None
        authenticator = self.options.active_authenticator(kind="key")
        if authenticator is None:
            raise AuthenticationFailed("identity", NO_CREDENTIALS)
        self.method = "identity-key"
        return authenticator.verify_identity_key(name, key or b"", self.link)

    def _handle_authentication(self, name: str, key: bytes | None) -> None:
        self._name = name
        try:
            self._principal = self._authenticate(name, key)
            self.authenticated(self._principal)
        except AuthenticationFailed as error:
            self.log_refused_client(error.reason, client=self._name)
            self._refuse_handshake(ErrorCode.BAD_REQUEST, str(error))
        else:
            self._send(lamamq.VERSIONS_OFFERED)

    def _handle_version(self, choice: lamamq.VersionChoice) -> None:
        if self._principal is None:
            raise AssertionError("a version choice without a principal")
        if lamamq.accepts(choice):
            self.run_connect_hooks(self._name, self._principal, self._open)
        else:
            text = f"version {choice.major}.{choice.minor} was not offered"
            self._refuse_handshake(ErrorCode.BAD_REQUEST, text)

    def _open(self) -> None:
        if self._principal is None:
            raise AssertionError("a version choice without a principal")
        try:
            self.open_session(self._principal, name=self._name)
        except BrokerFull as error:
            self._refuse_handshake(ErrorCode.SERVER_EXCEPTION, str(error))
        except AuthenticationFailed as error:
            self.log_refused_client(error.reason, client=self._name)
            self._refuse_handshake(ErrorCode.BAD_REQUEST, str(error))

    def answer_handshake_timeout(self) -> None:
        """See the base class: the client may not know that a key is required."""
        self._send(lamamq.Answer(0, ErrorCode.BAD_REQUEST, "the handshake did not end in time"))

    def refuse_connection(self, error: PeerError) -> None:
        """See the base class."""
        self._refuse_handshake(_code(error), _text(error))

    def _refuse_handshake(self, code: ErrorCode, text: str) -> None:
        self._send(lamamq.Answer(0, code, text))
        self.close()

    # --- Middleware -------------------------------------------------------------------------------

    def _register(self, session: Session, packet: lamamq.Register) -> None:
        if self._middleware is None:
            self._middleware = LamaMiddleware(self.broker, session, self.order, self.decoder)
        hooks = self.broker.hooks
        hook = hook_of(packet, self._middleware)

        def decided(error: PeerError | None) -> None:
            if error is None:
                try:
                    hooks.register(hook)
                except PeerError as raised:
                    error = raised
            self._answer(packet.message_id, error)

        try:
            hooks.check(hook)
        except PeerError as error:
            if isinstance(error, NotAllowed):
                self.record_refusal(error)
            self._answer(packet.message_id, error)
            return
        self.run_hooks(
            Event(EventKind.REGISTER, hook.name, session.name, self.protocol, session), decided
        )

    def _unregister(self, session: Session, message_id: int, hook_name: str) -> None:
        hooks = self.broker.hooks
        try:
            hooks.unregister(session, hook_name)
        except PeerError as error:
            self._answer(message_id, error)
            return
        self._answer(message_id, None)
        hooks.tell(EventKind.UNREGISTER, hook_name, session)

    # --- Answers ----------------------------------------------------------------------------------

    def _answer(self, message_id: int, error: PeerError | CallerError | None) -> None:
        """Answer a message, after all earlier answers."""
        if error is None:
            self._send(lamamq.Answer(message_id))
        else:
            self._send(lamamq.Answer(message_id, _code(error), _text(error)))

    def _send(self, packet: lamamq.FromBroker) -> None:
        data = lamamq.encode(packet, order=self.order)
        if self.session is None:
            self.link.write(data)
        else:
            self.session.reply(data)


def _asks_for_positions(message: lamamq.Message) -> bool:
    return not message.routing_key and any(key == ASK_HEADER for key, _ in message.headers)


def _reserved(message: lamamq.Message) -> str | None:
    """Return the first header of a message that only the broker may set."""
    names = (name for name, _ in _other_headers(message))
    return next((name for name in names if is_reserved_header(name)), None)


def _other_headers(message: lamamq.Message) -> tuple[tuple[str, bytes], ...]:
    """Return the headers of a message without its key."""
    return tuple([each for each in message.headers if each[0] != DEDUPE_HEADER])


def _text(error: PeerError | CallerError) -> str:
    """Return the text of an error, cut to the length that an answer holds."""
    return str(error).encode()[:LAMAMQ_ERROR_MESSAGE_BYTES_MAX].decode(errors="ignore")


def _code(error: PeerError | CallerError) -> ErrorCode:
    match error:
        case HookRefused():
            return ErrorCode.MIDDLEWARE_REFUSED
        case HookTimeout() | MiddlewareMissing():
            return ErrorCode.MIDDLEWARE_TIMEOUT
        case TopicTableFull() | LogUnavailable() | GroupDamaged():
            return ErrorCode.SERVER_EXCEPTION
        case _ if error.is_temporary:
            return ErrorCode.SERVER_EXCEPTION
        case _:
            return ErrorCode.BAD_REQUEST
