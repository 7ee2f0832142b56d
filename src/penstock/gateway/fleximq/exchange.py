"""Messages between fleximq clients by number: REQ, REP, NOTIF, BCAST, and PUB with `routing`.

The sender needs the right to request the path, and the receiver the right to serve it. A BCAST has
no path: it needs `request` for all paths, and reaches the clients that may serve all paths. A REP
needs no right, but a pending REQ.

REQ, REP and BCAST are forwarded unchanged. Each receiver of a NOTIF or PUB gets it with its own
routing entry only. Clients of other protocols have numbers too, but cannot be addressed. A client
of another node is sent its message by that node, see `remote.py`.

Each message is appended to the log, then forwarded without waiting for the disk. If the log refuses
it, the sender gets 503. If its commit fails later, the sender gets 503 in a NOTIF: a REP could be
mistaken for the answer.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable
from functools import partial

from penstock.core.access import EVERYTHING, Action, is_allowed, path_name
from penstock.core.broker import Broker
from penstock.core.requests import Failure, Match, node_target
from penstock.core.sessions import Session
from penstock.errors import (
    InvalidAcknowledgment,
    InvalidServicePath,
    LogUnavailable,
    NotAllowed,
    TooManyServices,
)
from penstock.gateway.fleximq import frames
from penstock.gateway.fleximq.acknowledgments import (
    ACKNOWLEDGMENTS,
    acknowledge,
)
from penstock.gateway.fleximq.outcomes import FAILURES, REFUSALS, ServiceRequester, unserved
from penstock.gateway.fleximq.records import broker_reply, record_of
from penstock.gateway.fleximq.registrations import REGISTRATIONS, register
from penstock.gateway.fleximq.remote import RemoteRequests, nodes_of
from penstock.gateway.fleximq.replies import Replies
from penstock.gateway.fleximq.service_topics import ServiceTopics
from penstock.gateway.fleximq.services import ADMINISTRATIVE, SERVICES, Listings
from penstock.limits import SHARED_PAYLOAD_BYTES_MIN
from penstock.ports import EVERY_NODE
from penstock.positions import ASK_PATH
from penstock.protocols.fleximq import FLEXIMQ
from penstock.service_messages import ServiceRequest
from penstock.wire import fleximq, messagepack
from penstock.wire.fleximq import ClientId, Message, MessageType, Routing, StatusCode

__all__ = ["Exchange"]


class Exchange:
    """The direct messages of one client; an `outcomes.ServiceRequester`.

    `frame_view` is the whole frame of the message beside it, borrowed for the call.
    """

    __slots__ = ("_await_work", "_broker", "_replies")
    takes_frames = True

    def __init__(
        self,
        broker: Broker,
        replies: Replies,
        await_work: Callable[[Callable[[Callable[[], None]], None], Callable[[], None]], None],
    ) -> None:
        """`await_work` is that of the gateway."""
        self._broker = broker
        self._replies = replies
        self._await_work = await_work

    # --- Request and response -----------------------------------------------------------------

    def request(self, session: Session, message: Message, frame_view: memoryview) -> None:
        """Forward a REQ to its target, or answer it if that is the broker."""
        _, entry = _correlated(message)
        if entry.client_id == ClientId.BROKER:
            self._request_broker(session, message, entry.path)
            return
        if not self._may(session, message, Action.REQUEST, path_name(entry.path)):
            return
        target = self._client(entry.client_id)
        nodes = nodes_of(self._broker, [entry.client_id])
        if target is None and nodes:
            self._request_elsewhere(session, message, nodes, entry.client_id)
            return
        if target is None:
            self._refuse_unknown(message, [entry.client_id])
            return
        if not _serves(target, entry.path):
            self._refuse_unserved(message, [entry.client_id])
            return
        self._ask(session, message, target, lambda: frames.as_sent(frame_view))

    def _ask(
        self, session: Session, message: Message, target: Session, frame: Callable[[], bytes]
    ) -> bool:
        """Append a REQ and deliver it to its target; return False if it is refused."""
        identifier = _correlated(message)[0]
        requests = self._broker.requests
        refusal = requests.ask(identifier, requester=session, target=target, callback=self)
        if refusal is not None:
            self._replies.refuse(message, *REFUSALS[refusal])
            return False
        if not self._append(session, message):
            requests.answer(identifier, requester_number=session.number, target=target)
            return False
        self._deliver((target,), frame())
        return True

    def _request_broker(self, session: Session, message: Message, path: str) -> None:
        """Answer a REQ to the broker, or forward it to a server of its path."""
        identifier, _ = _correlated(message)
        number = session.number
        if path in ACKNOWLEDGMENTS:
            self._acknowledge(session, message, path)
        elif path in REGISTRATIONS:
            self._register(session, message, path)
        elif path == ASK_PATH:
            self._broker.give_positions(session, partial(frames.positions, number))
            done = frames.answer(StatusCode.OK, b"", client_id=number, identifier=identifier)
            self._broker.delivery.send(session, done, 0)
        elif path not in SERVICES:
            self._request_service(session, message, path)
        elif self._may_ask_broker(session, message, path) and self._append(session, message):
            self._serve(session, identifier=identifier, path=path)

    def _register(self, session: Session, message: Message, path: str) -> None:
        """Begin or end a service; it is not kept in the log."""
        identifier, _ = _correlated(message)
        try:
            status, text = register(self._broker, session, path=path, payload=message.payload)
        except NotAllowed as error:
            self._forbid(message, error)
            return
        except InvalidServicePath as error:
            status, text = StatusCode.BAD_REQUEST, str(error)
        except TooManyServices as error:
            status, text = StatusCode.TOO_MANY_REQUESTS, str(error)
        payload = messagepack.encode(text) if text else b""
        self._replies.write(
            frames.answer(status, payload, client_id=session.number, identifier=identifier)
        )

    def _request_service(self, session: Session, message: Message, path: str) -> None:
        """Forward a REQ to the least busy server of a path, with a routing entry for it."""
        if not self._may(session, message, Action.REQUEST, path_name(path)):
            return
        services = self._broker.services
        server = services.choose(path)
        if server is not None:
            entry = Routing(server.session.number, server.path)
            header = dataclasses.replace(message.header, routing=(entry,))
            routed = dataclasses.replace(message, header=header)
            sent = self._ask(session, routed, server.session, lambda: fleximq.encode(routed))
            services.dispatched += sent
            return
        topics = self._broker.shared(ServiceTopics)
        node = None if topics.has_server(path) else services.choose_node(path)
        if node is not None:
            nodes = (node,)
            sent = self._request_elsewhere(session, message, nodes, node_target(node))
            services.dispatched += sent
        elif self._append(session, message):
            self._request_topic(session, message, path)

    def _request_topic(self, session: Session, message: Message, path: str) -> None:
        """Publish a REQ for clients that serve its path by a topic; answer if there is none."""
        identifier, _ = _correlated(message)
        services, topics = self._broker.services, self._broker.shared(ServiceTopics)
        if topics.has_server(path) or topics.has_server_elsewhere(path):
            request = ServiceRequest(identifier, "", fleximq.raw_value(message.payload))
            outcome = topics.forward(session, path, request, self)
            services.dispatched += outcome is None
        else:
            outcome = unserved(path)
            services.unserved += 1
        if outcome is not None:
            payload = messagepack.encode(outcome.text)
            self._reply(session, outcome.status, payload, identifier=identifier)

    def _request_elsewhere(
        self, session: Session, message: Message, nodes: tuple[int, ...], number: int
    ) -> bool:
        """Send a REQ to a client that may be connected to another node, which answers if not.

        `number` is that of the client, or of a node that is to choose one. Return False if the
        REQ is refused.
        """
        identifier, _ = _correlated(message)
        refusal = self._broker.requests.ask_remote(
            identifier, requester=session, target_number=number, callback=self
        )
        if refusal is not None:
            self._replies.refuse(message, *REFUSALS[refusal])
            return False
        if not self._append(session, message, nodes):
            self._broker.requests.take(
                identifier, requester_number=session.number, target_number=number
            )
            return False
        return True

    def _acknowledge(self, session: Session, message: Message, path: str) -> bool:
        """Process the acknowledgment of messages of a group; return False if it is refused.

        It is not kept in the log, except with other entries of a NOTIF.
        """
        try:
            count = acknowledge(self._broker, session, path=path, payload=message.payload)
        except InvalidAcknowledgment as error:
            self._replies.refuse(message, StatusCode.BAD_REQUEST, str(error))
            return False
        identifier = frames.reqrep_id(message)
        if message.type is MessageType.REQ and identifier is not None:
            payload = messagepack.encode({"messages": count})
            number = session.number
            self._replies.write(
                frames.answer(StatusCode.OK, payload, client_id=number, identifier=identifier)
            )
        return True

    def request_failed(self, identifier: str, failure: Failure) -> None:
        """See core.requests.Requester."""
        status, text = FAILURES[failure]
        if self._replies.session is not None:
            payload = messagepack.encode(text)
            self._reply(self._replies.session, status, payload, identifier=identifier)

    def request_answered(self, identifier: str, status: int, payload: bytes) -> None:
        """See outcomes.ServiceRequester: the answer of a server that was asked by a topic."""
        if self._replies.session is not None:
            self._reply(self._replies.session, status, payload, identifier=identifier)

    def reply(self, session: Session, message: Message, frame_view: memoryview) -> None:
        """Forward a REP to the client that awaits it."""
        identifier, entry = _correlated(message)
        number = entry.client_id
        requester = self._broker.requests.callback(identifier, requester_number=number)
        match self._broker.requests.answer(identifier, requester_number=number, target=session):
            case Match.AWAITED if (
                isinstance(requester, ServiceRequester) and not requester.takes_frames
            ):
                self._append(session, message)
                status = message.header.status or StatusCode.OK
                requester.request_answered(identifier, status, message.payload)
            case Match.AWAITED:
                self._forward_reply(session, message, frame_view)
            case Match.UNKNOWN if self._broker.shared(RemoteRequests).take(
                identifier, requester=number, target=session.number
            ):
                self._append(session, message, nodes_of(self._broker, [number]))
            case Match.UNKNOWN:
                # Not a REP: its id could match a request of this client.
                text = f"client {number} does not wait for this answer"
                self._replies.send_error(StatusCode.NOT_FOUND, text, None)
            case Match.LATE:
                pass

    def _forward_reply(self, session: Session, message: Message, frame_view: memoryview) -> None:
        identifier, entry = _correlated(message)
        requester = self._client(entry.client_id)
        if self._append(session, message):
            if requester is not None:
                self._deliver((requester,), frames.as_sent(frame_view))
        elif requester is not None:
            frame = frames.error_reply(
                StatusCode.SERVICE_UNAVAILABLE,
                "the answer cannot be kept",
                client_id=requester.number,
                identifier=identifier,
            )
            self._broker.delivery.send(requester, frame, 0)

    def _serve(self, session: Session, *, identifier: str, path: str) -> None:
        def answered(payload: bytes) -> None:
            if self._replies.session is session:
                self._reply(session, StatusCode.OK, payload, identifier=identifier)

        def start(done: Callable[[], None]) -> None:
            def given(payload: bytes) -> None:
                found.append(payload)
                done()

            self._broker.shared(Listings).give(self._broker, session, path, given)

        found: list[bytes] = []
        self._await_work(start, lambda: answered(found[0]))

    def _reply(self, session: Session, status: int, payload: bytes, *, identifier: str) -> None:
        """Answer a request that is in the log; append the answer too, if the log takes it."""
        number = session.number
        record = broker_reply(
            status,
            payload,
            client_id=number,
            identifier=identifier,
            timestamp_us=self._broker.clock.now_us(),
        )
        with contextlib.suppress(LogUnavailable):
            self._broker.log.append_record(record)
        self._replies.write(frames.answer(status, payload, client_id=number, identifier=identifier))

    # --- NOTIF, PUB and BCAST -----------------------------------------------------------------

    def notify(self, session: Session, message: Message) -> None:
        """Deliver a NOTIF to each client it names; the broker takes acknowledgments only.

        A NOTIF with a path that the client may not request, or with an invalid acknowledgment, is
        not delivered.
        """
        entries = [entry for entry in _entries(message) if not _is_acknowledgment(entry)]
        for path in {entry.path for entry in entries}:
            if not self._may(session, message, Action.REQUEST, path_name(path)):
                return
        for entry in filter(_is_acknowledgment, _entries(message)):
            if not self._acknowledge(session, message, entry.path):
                return
        if not entries:
            return
        entries = [entry for entry in entries if entry.client_id != ClientId.BROKER]
        nodes = nodes_of(self._broker, (entry.client_id for entry in entries))
        if self._append(session, message, nodes):
            self._deliver_routed(message, entries, among=None)

    def publish_routed(self, session: Session, message: Message) -> None:
        """Deliver a PUB, whose topic is authorized, to the named clients that subscribe to it."""
        subscribers = set(self._broker.router.subscribers(message.header.topic or ""))
        if not session.echo:
            subscribers.discard(session)
        nodes = nodes_of(self._broker, (entry.client_id for entry in _entries(message)))
        if self._append(session, message, nodes):
            self._deliver_routed(message, _entries(message), among=subscribers)

    def broadcast(self, session: Session, message: Message, frame_view: memoryview) -> None:
        """Deliver a BCAST to every fleximq client, and to the sender if it has `echo`."""
        if not self._may(session, message, Action.REQUEST, EVERYTHING):
            return
        nodes = () if self._broker.roaming is None else (EVERY_NODE,)
        if not self._append(session, message, nodes):
            return
        sessions: Iterable[Session] = self._broker.sessions
        receivers = [
            client
            for client in sessions
            if client.encoding.protocol is FLEXIMQ
            and (client is not session or session.echo)
            and is_allowed(client.principal, Action.SERVE, EVERYTHING)
        ]
        self._deliver(receivers, frames.as_sent(frame_view))

    def _deliver_routed(
        self, message: Message, entries: Iterable[Routing], *, among: set[Session] | None
    ) -> None:
        """Deliver to clients in `among`, or for None to those that may serve their path."""
        unknown, unserved = [], []
        payload = message.payload
        shared = payload if len(payload) >= SHARED_PAYLOAD_BYTES_MIN else b""
        copied = b"" if shared else payload
        for entry in entries:
            target = self._client(entry.client_id)
            if target is None and nodes_of(self._broker, [entry.client_id]):
                continue  # another node delivers it
            if target is None:
                unknown.append(entry.client_id)
            elif among is None and not _serves(target, entry.path):
                unserved.append(entry.client_id)
            elif among is None or target in among:
                head = frames.routed_head(message, entry)
                self._broker.delivery.send(target, head + copied, 1, payload=shared)
        if unknown:
            self._refuse_unknown(message, unknown)
        if unserved:
            self._refuse_unserved(message, unserved)

    # --- Common parts -------------------------------------------------------------------------

    def _may(self, session: Session, message: Message, action: Action, name: str) -> bool:
        """Return whether a client has a right; if not, refuse its message."""
        try:
            self._broker.authorize(session, action, name)
        except NotAllowed as error:
            self._forbid(message, error)
            return False
        return True

    def _may_ask_broker(self, session: Session, message: Message, path: str) -> bool:
        """Return whether a client may request a path of the broker; if not, refuse its message."""
        area = ADMINISTRATIVE.get(path)
        if area is not None:
            return self._may(session, message, Action.ADMINISTER, area)
        try:
            self._broker.authorize_anywhere(
                session, Action.REQUEST, Action.SUBSCRIBE, Action.PUBLISH
            )
        except NotAllowed as error:
            self._forbid(message, error)
            return False
        return True

    def _forbid(self, message: Message, error: NotAllowed) -> None:
        self._broker.counters.messages_refused[FLEXIMQ] += 1
        self._replies.refuse(message, StatusCode.FORBIDDEN, str(error))

    def _client(self, number: int) -> Session | None:
        session = self._broker.sessions.get(number)
        if session is None or session.encoding.protocol is not FLEXIMQ:
            return None
        return session

    def _deliver(self, targets: Iterable[Session], frame: bytes) -> None:
        for target in targets:
            self._broker.delivery.send(target, frame, 1)

    def _append(self, session: Session, message: Message, nodes: tuple[int, ...] = ()) -> bool:
        """Append a message to the log; on failure, send an error and return False.

        `nodes` are other nodes with clients that it is for.
        """
        broker = self._broker
        record = record_of(session, message, timestamp_us=broker.clock.now_us(), nodes=nodes)
        try:
            receipt = broker.append_record(session, record)
        except LogUnavailable as error:
            # No REP to a REP: its id could match a request of this client.
            identifier = None if message.type is MessageType.REP else frames.reqrep_id(message)
            self._replies.send_error(StatusCode.SERVICE_UNAVAILABLE, str(error), identifier)
            return False
        broker.acknowledge(session, receipt, b"", self._replies.encode_failure)
        return True

    def _refuse_unknown(self, message: Message, numbers: list[int]) -> None:
        text = f"no client {', '.join(map(str, numbers))}"
        self._replies.refuse(message, StatusCode.CLIENT_NOT_FOUND, text)

    def _refuse_unserved(self, message: Message, numbers: list[int]) -> None:
        text = f"rules do not let client {', '.join(map(str, numbers))} serve this path"
        self._replies.refuse(message, StatusCode.FORBIDDEN, text)


def _serves(target: Session, path: str) -> bool:
    return is_allowed(target.principal, Action.SERVE, path_name(path))


def _is_acknowledgment(entry: Routing) -> bool:
    return entry.client_id == ClientId.BROKER and entry.path in ACKNOWLEDGMENTS


def _entries(message: Message) -> tuple[Routing, ...]:
    if message.header.routing is None:
        raise AssertionError(f"{message.type.name} without routing")
    return message.header.routing


def _correlated(message: Message) -> tuple[str, Routing]:
    """Return the id and the only routing entry; the decoder requires both in REQ and REP."""
    identifier = frames.reqrep_id(message)
    if identifier is None:
        raise AssertionError(f"{message.type.name} without reqrep")
    return identifier, _entries(message)[0]
