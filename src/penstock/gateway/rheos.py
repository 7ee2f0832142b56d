"""Rheos clients of both versions: CREATE, PUBLISH and SUBSCRIBE, each acknowledged."""

import uuid
from abc import abstractmethod
from functools import partial
from typing import TypeAlias

from penstock._kernels.batch import Sender
from penstock.core.access import Principal
from penstock.core.sessions import Session
from penstock.errors import (
    AuthenticationFailed,
    BrokerFull,
    CallerError,
    LogUnavailable,
    PeerError,
    WireError,
)
from penstock.gateway.base import Gateway
from penstock.model import (
    NO_MESSAGE_OFFSET,
    TEMPORARY_OFFSET,
    binary_topic_name,
    is_publishable,
    message_id,
    topic_name_from_binary,
)
from penstock.ports import Receipt
from penstock.positions import ASK_NAME
from penstock.replay import check_replay, split_replay
from penstock.wire import rheos1, rheos2
from penstock.wire.decoder import Rejected
from penstock.wire.rheos import (
    HEADER_BYTES,
    IDENTIFIER_BYTES,
    AckCode,
    DuplicateTopic,
    OpCode,
    TopicNotFound,
)

__all__ = ["RheosGateway", "RheosRequest", "RheosShared"]

RheosRequest: TypeAlias = rheos1.Request | rheos2.Event
"""A request: in both versions a client id, an operation, a name and data."""


class RheosShared:
    """State that all Rheos connections of a broker share.

    `unsaved_topics` are the ids of topics whose CREATE the log did not store. The topic table
    cannot forget them, but they can be created again as if they did not exist.
    """

    def __init__(self) -> None:
        self.unsaved_topics: set[int] = set()


class RheosGateway(Gateway):
    """One Rheos connection.

    There is no handshake: the first complete request opens the session, with its client id. Each
    request gets one acknowledgment, in the order of the requests. SUCCESS of a PUBLISH carries the
    message's id; all other acknowledgments carry the id that means "no message".
    """

    # --- For subclasses ---------------------------------------------------------------------------

    @abstractmethod
    def acknowledgment(self, code: AckCode, identifier: bytes) -> bytes:
        """Return one acknowledgment."""

    @abstractmethod
    def positions(self, key: bytes, payload: bytes) -> bytes:
        """Return a frame with positions for the client that has asked with `key`."""

    @abstractmethod
    def data_of(self, packet: RheosRequest) -> bytes:
        """Return the payload of a request."""

    @abstractmethod
    def acknowledgments(self, count: int, *, first_offset: int) -> bytes:
        """Return SUCCESS for each of `count` messages from `first_offset` on."""

    # --- The session ------------------------------------------------------------------------------

    def _process_packet(
        self, packet: RheosRequest | Rejected, data: memoryview, start: int, end: int
    ) -> int:
        """See the base class: the first request opens the session before it is processed."""
        if self.session is None and not isinstance(packet, Rejected):
            self._open_session(packet.client_id)
            if self.session is None:
                return start  # a hook is awaited: process the request again afterwards
        return super()._process_packet(packet, data, start, end)

    def frame_began(self, frame_view: memoryview) -> None:
        """See the base class: there is no handshake, so a client is known from its header on.

        Its first request may be as long as any other, but only if the client is accepted.
        """
        if len(frame_view) < HEADER_BYTES or self.link.account.authenticated:
            return
        try:
            principal = self.options.identify(self.link)
        except AuthenticationFailed as error:
            self.log_refused_client(error.reason)
            self._refuse_client()
        else:
            self.link.account.identify(None if principal.is_anonymous else principal.name)

    def _open_session(self, client_id: bytes) -> None:
        """Open a session, if the client's certificate or address, or the listener, allows it."""
        try:
            principal = self.options.identify(self.link)
        except AuthenticationFailed as error:
            self.log_refused_client(error.reason)
            self._refuse_client()
            return
        self.authenticated(principal)
        name = str(uuid.UUID(bytes=client_id))
        self.run_connect_hooks(
            name, principal, lambda: self._open(client_id, name=name, principal=principal)
        )

    def _open(self, client_id: bytes, *, name: str, principal: Principal) -> None:
        try:
            session = self.open_session(principal, name=name)
        except BrokerFull:
            self._refuse_client()
        except AuthenticationFailed as error:
            self.log_refused_client(error.reason)
            self._refuse_client()
        else:
            session.sender = Sender(client_id, session.number)

    def refuse_connection(self, error: PeerError) -> None:  # noqa: ARG002
        """See the base class."""
        self._refuse_client()

    def _refuse_client(self) -> None:
        self._answer(AckCode.FAILED)
        self.close()

    # --- Publishing -------------------------------------------------------------------------------

    def acknowledge_batch(self, session: Session, receipt: Receipt) -> None:
        """See the base class."""
        count = len(self.broker.batch)
        answer = self.acknowledgments(count, first_offset=receipt.first_offset)
        self.broker.acknowledge(session, receipt, answer, self._failed)

    def refuse_batch(self, session: Session, error: LogUnavailable) -> None:  # noqa: ARG002
        """See the base class."""
        session.reply(self._without_message(AckCode.FAILED) * len(self.broker.batch))

    def _failed(self, answer: bytes) -> bytes:
        """Return FAILED for each acknowledgment in `answer`; all have the same size."""
        failed = self._without_message(AckCode.FAILED)
        return failed * (len(answer) // len(failed))

    def topic_of(self, packet: RheosRequest) -> str | None:
        """See the base class."""
        return topic_name_from_binary(packet.name) if packet.opcode is OpCode.PUBLISH else None

    def authorize_publish(self, session: Session, topic: str) -> None:
        """See the base class: PUBLISH does not create topics."""
        self._find(topic)
        super().authorize_publish(session, topic)

    def refuse_publish(self, packet: RheosRequest, error: PeerError | CallerError) -> None:  # noqa: ARG002
        """See the base class."""
        self._answer(AckCode.FAILED)

    # --- Other requests ---------------------------------------------------------------------------

    def handle(self, packet: RheosRequest) -> None:
        """See the base class: CREATE or SUBSCRIBE, whose payload is ignored."""
        session = self.session
        if session is None:
            raise AssertionError("a request without a session")
        topic = topic_name_from_binary(packet.name)
        try:
            if packet.opcode is OpCode.CREATE:
                self._create(session, topic, packet.client_id)
            elif not topic and self._give_positions(session, self.data_of(packet)):
                self._settle(None)
            else:
                check_replay(topic)
                plain, _ = split_replay(topic)
                if is_publishable(plain):
                    self._find(plain)  # patterns with wildcards need no existing topic
                self.subscribe(session, topic, self._subscribed)
        except (PeerError, CallerError) as error:
            self._settle(error)

    def _give_positions(self, session: Session, asked: bytes) -> bool:
        """Give a client the positions of its messages if it asks: a word and a key of its own."""
        word, key = asked[:-IDENTIFIER_BYTES], asked[-IDENTIFIER_BYTES:]
        if word != ASK_NAME.encode():
            return False
        self.broker.give_positions(session, partial(self.positions, key))
        return True

    def _create(self, session: Session, topic: str, client_id: bytes) -> None:
        """Create a topic, with the client as its parent, if the client may publish to it.

        It is acknowledged once the log has stored it. Raise DuplicateTopic, InvalidTopicName,
        NotAllowed, TopicTableFull or LogUnavailable.
        """
        unsaved = self.broker.shared(RheosShared).unsaved_topics
        known = self.broker.topics.find(topic)
        if known is not None and known not in unsaved:
            raise DuplicateTopic(binary_topic_name(topic))
        topics = self.broker.topics
        self.broker.authorize_publish(session, topic)
        identifier = topics.intern(topic)
        unsaved.add(identifier)
        receipt = self.broker.log.add_topic(topic, client_id)
        unsaved.discard(identifier)
        topics.set_parent(identifier, client_id)

        def encode_failure(answer: bytes) -> bytes:
            unsaved.add(identifier)
            return self._failed(answer)

        answer = self._without_message(AckCode.SUCCESS)
        self.broker.acknowledge(session, receipt, answer, encode_failure)

    def _settle(self, error: PeerError | CallerError | None) -> None:
        """Acknowledge a request: SUCCESS, or FAILED if there is an error."""
        self._answer(AckCode.SUCCESS if error is None else AckCode.FAILED)

    def _subscribed(self, error: PeerError | None) -> None:
        """Acknowledge a SUBSCRIBE. The message id of FAILED says whether it may succeed later."""
        if error is not None and error.is_temporary:
            self._answer(AckCode.FAILED, TEMPORARY_OFFSET)
        else:
            self._settle(error)

    def _find(self, topic: str) -> None:
        if self.broker.topics.find(topic) is None:
            raise TopicNotFound(binary_topic_name(topic))

    # --- Faults -----------------------------------------------------------------------------------

    def rejected(self, error: WireError) -> None:  # noqa: ARG002
        """See the base class: every error has the same answer."""
        self._answer(AckCode.FAILED)

    def ended(self) -> None:
        """See the base class: a packet that the end of the input cuts off is FAILED."""
        if self.frame_incomplete and not self._closed:
            self.broker.counters.frames_rejected[self.protocol] += 1
            self._answer(AckCode.FAILED)
        super().ended()

    def framing_lost(self, error: WireError) -> None:  # noqa: ARG002
        """See the base class: FAILED is the last answer."""
        self._answer(AckCode.FAILED)

    def _answer(self, code: AckCode, offset: int = NO_MESSAGE_OFFSET) -> None:
        """Acknowledge one request, after all earlier answers; no message has `offset`."""
        answer = self._without_message(code, offset)
        if self.session is None:
            self.link.write(answer)
        else:
            self.session.reply(answer)

    def _without_message(self, code: AckCode, offset: int = NO_MESSAGE_OFFSET) -> bytes:
        log = self.broker.log
        nothing = message_id(log.log_id, partition=log.partition, offset=offset)
        return self.acknowledgment(code, nothing)
