"""Services through topics, for clients of all protocols; `penstock.service_messages` has the forms.

    requester ──service/request/PATH──▶ broker ──REQ──▶ a server that has registered the path
                                              └──service/serve/PATH──▶ subscribers of that topic
    requester ◀──its reply topic── broker ◀──REP, or service/reply/broker/N── server

The broker subscribes to requests and to its own reply topic. Each request is dispatched by the node
that the requester is connected to. A server that has registered comes first; if there is none, the
subscribers of the path's topic get the request, and the first answer counts. If this node has
neither, another node is asked.
"""

import secrets
from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from penstock._kernels import fleximq as kernel
from penstock._kernels.batch import Batch
from penstock.core.access import Action, Principal, path_name
from penstock.core.audiences import Encoding
from penstock.core.broker import Broker
from penstock.core.requests import FAILURES_PER_STEP, Failure, Requester, node_target
from penstock.core.sessions import Session
from penstock.errors import CallerError, LogUnavailable, NotAllowed, PeerError
from penstock.gateway.fleximq.frames import reqrep_id
from penstock.gateway.fleximq.outcomes import (
    FAILURES,
    REFUSALS,
    Outcome,
    ServiceRequester,
    unserved,
)
from penstock.gateway.fleximq.records import record_of
from penstock.gateway.fleximq.service_inbox import ServiceInbox
from penstock.protocols.fleximq import FLEXIMQ, FLEXIMQ_MESSAGE_BYTES_CEILING
from penstock.service_messages import (
    BROKER_REPLY_PREFIX,
    REQUEST_PREFIX,
    SERVE_PREFIX,
    ServiceReply,
    ServiceRequest,
    decode_reply,
    decode_request,
    path_of_requests,
)
from penstock.topic_names import check_topic_name
from penstock.wire import fleximq
from penstock.wire.fleximq import (
    ClientId,
    Header,
    HeaderLimits,
    Message,
    MessageType,
    ReqRep,
    ReqRepType,
    Routing,
    StatusCode,
)

__all__ = ["ServiceTopics", "start_service_topics"]

_BROKER: Final = Principal("broker")
_TOKEN_BYTES: Final = 16
"""Of the ids that servers get: a client that did not get the request cannot answer it."""


class _Forwarded(NamedTuple):
    """A request that subscribers of a topic were asked to answer."""

    requester: int
    identifier: str
    path: str
    deadline: float


class ServiceTopics:
    """Takes requests from topics, and gives requests to topics. There is one for each broker."""

    _broker: Broker
    _session: Session
    reply_topic: str
    """Where servers that are reached by topics publish their answers to this node."""

    def __init__(self) -> None:
        self._started = False
        self._forwarded: OrderedDict[str, _Forwarded] = OrderedDict()
        self._batch = Batch()
        self._headers = kernel.HeaderCache(
            partial(fleximq.publication, strict=False, limits=HeaderLimits())
        )

    def start(self, broker: Broker) -> None:
        """Subscribe to requests, and to the answers of servers."""
        link = ServiceInbox(broker, self._received)
        self._broker = broker
        self._session = Session(
            ClientId.BROKER,
            encoding=Encoding(FLEXIMQ, "big"),
            link=link,
            name=str(int(ClientId.BROKER)),
            principal=_BROKER,
        )
        link.drained = partial(broker.drained, self._session)
        self.reply_topic = f"{BROKER_REPLY_PREFIX}{broker.log.partition}"
        for pattern in (f"{REQUEST_PREFIX}#", self.reply_topic):
            broker.subscribe(self._session, pattern)
        broker.services.subscriber_left = lambda: broker.slices.start(self._fail_unserved())
        self._started = True

    # --- Requests to servers that subscribe -------------------------------------------------------

    def has_server(self, path: str) -> bool:
        """Return whether a client subscribes to the topic of a path, to serve it."""
        if not self._started:
            return False
        topic = f"{SERVE_PREFIX}{path_name(path)}"
        try:
            check_topic_name(topic)
        except CallerError:
            return False
        return self._broker.router.is_subscribed(topic, where=path_of_requests)

    def has_server_elsewhere(self, path: str) -> bool:
        """Return whether a client of another node subscribes to the topic of a path."""
        return self._started and self._broker.services.elsewhere.has_subscriber(path_name(path))

    def forward(
        self, requester: Session, path: str, request: ServiceRequest, callback: ServiceRequester
    ) -> Outcome | None:
        """Publish a request for the subscribers of its path; return why it is refused, if it is."""
        broker = self._broker
        identifier, number = request.identifier, requester.number
        refusal = broker.requests.ask_remote(
            identifier, requester=requester, target_number=ClientId.BROKER, callback=callback
        )
        if refusal is not None:
            return REFUSALS[refusal]
        token = secrets.token_hex(_TOKEN_BYTES)
        value = ServiceRequest(token, self.reply_topic, request.value).encode()
        self._remember(token, number, identifier, path)
        try:
            broker.topics.intern_for(self.reply_topic, "")  # Rheos servers need that it exists
            topic = f"{SERVE_PREFIX}{path_name(path)}"
            broker.intern_topic(requester, topic)
            self._publish(topic, value)
        except (LogUnavailable, CallerError) as error:
            self._take(number, identifier)
            return Outcome(StatusCode.SERVICE_UNAVAILABLE, str(error))
        return None

    def _remember(self, token: str, number: int, identifier: str, path: str) -> None:
        """Remember a request until it has timed out; so their number is limited as requests are."""
        now = self._broker.clock.monotonic()
        while self._forwarded and next(iter(self._forwarded.values())).deadline <= now:
            self._forwarded.popitem(last=False)
        deadline = now + self._broker.requests.seconds_max
        self._forwarded[token] = _Forwarded(number, identifier, path, deadline)

    def _take(self, number: int, identifier: str) -> Requester | None:
        """Remove a request that was forwarded; return its callback, None if it has ended."""
        return self._broker.requests.take(
            identifier, requester_number=number, target_number=ClientId.BROKER
        )

    def _fail_unserved(self) -> Iterator[None]:
        """Fail the requests whose last server has disconnected."""
        for done, (token, each) in enumerate(list(self._forwarded.items()), 1):
            if token in self._forwarded and not (
                self.has_server(each.path) or self.has_server_elsewhere(each.path)
            ):
                del self._forwarded[token]
                callback = self._take(each.requester, each.identifier)
                if callback is not None:
                    callback.request_failed(each.identifier, Failure.TARGET_LEFT)
            if not done % FAILURES_PER_STEP:
                yield

    # --- Messages of topics -----------------------------------------------------------------------

    def _received(self, message: Message) -> None:
        topic = message.header.topic or ""
        value = fleximq.raw_value(message.payload)
        sender = self._broker.sessions.get(message.client_id)
        if topic == self.reply_topic:
            self._answered(sender, value)
        elif topic.startswith(REQUEST_PREFIX):
            requester = sender
            if requester is not None:  # else it has left, or another node takes the request
                self._requested(requester, topic.removeprefix(REQUEST_PREFIX), value)

    def _answered(self, sender: Session | None, value: bytes) -> None:
        """Pass on the answer of a server that got the request through a topic.

        A client of this node must have the right to serve the path. If the sender is a client of
        another node, or has left, only its right to serve some path was checked, at publishing.
        """
        try:
            reply = decode_reply(value)
            found = self._forwarded.get(reply.identifier)
            if found is not None and sender is not None:
                self._broker.authorize(sender, Action.SERVE, path_name(found.path))
        except (PeerError, CallerError):
            self._broker.services.invalid += 1
            return
        if found is None:
            return
        del self._forwarded[reply.identifier]
        callback = self._take(found.requester, found.identifier)
        if isinstance(callback, ServiceRequester):
            payload = fleximq.wrap_value(reply.value)
            callback.request_answered(found.identifier, reply.status, payload)

    def _requested(self, requester: Session, path: str, value: bytes) -> None:
        """Dispatch a request of a topic.

        The broker publishes the answer for the requester, which needs the right to do it itself.
        """
        broker = self._broker
        try:
            request = decode_request(value)
            broker.authorize_publish(requester, request.reply_topic)
        except (PeerError, CallerError):  # there is no place for an answer
            broker.services.invalid += 1
            return
        asker = _TopicRequester(self, requester, request.reply_topic)
        try:
            broker.authorize(requester, Action.REQUEST, path_name(path))
        except NotAllowed as error:
            outcome: Outcome | None = Outcome(StatusCode.FORBIDDEN, str(error))
        else:
            outcome = self._dispatch(requester, path, request, asker)
        if outcome is not None:
            asker.answer(request.identifier, outcome.status, outcome.text.encode())

    def _dispatch(
        self, requester: Session, path: str, request: ServiceRequest, asker: "_TopicRequester"
    ) -> Outcome | None:
        """Give a request to a server; return why there is none, if so."""
        broker = self._broker
        services = broker.services
        server = services.choose(path)
        if server is not None:
            outcome = self._send(requester, server.session, server.path, request, asker)
        elif self.has_server(path):
            outcome = self.forward(requester, path, request, asker)
        elif (node := services.choose_node(path)) is not None:
            outcome = self._send_elsewhere(requester, node, path, request, asker)
        elif self.has_server_elsewhere(path):
            outcome = self.forward(requester, path, request, asker)
        else:
            services.unserved += 1
            return unserved(f"/{path}")
        services.dispatched += outcome is None
        return outcome

    def _send(
        self,
        requester: Session,
        server: Session,
        path: str,
        request: ServiceRequest,
        asker: "_TopicRequester",
    ) -> Outcome | None:
        """Send a REQ to a server that has registered, in the name of the requester."""
        message = _request(requester, Routing(server.number, path), request)
        outcome = self._ask(requester, server.number, message, asker)
        if outcome is None:
            self._broker.delivery.send(server, fleximq.encode(message), 1)
        return outcome

    def _send_elsewhere(
        self,
        requester: Session,
        node: int,
        path: str,
        request: ServiceRequest,
        asker: "_TopicRequester",
    ) -> Outcome | None:
        """Send a REQ to another node, which gives it to one of its servers."""
        message = _request(requester, Routing(ClientId.BROKER, f"/{path}"), request)
        return self._ask(requester, node_target(node), message, asker, (node,))

    def _ask(
        self,
        requester: Session,
        target: int,
        message: Message,
        asker: "_TopicRequester",
        nodes: tuple[int, ...] = (),
    ) -> Outcome | None:
        """Append a REQ that awaits an answer; return why it is refused, if it is."""
        broker = self._broker
        identifier = reqrep_id(message) or ""
        refusal = broker.requests.ask_remote(
            identifier, requester=requester, target_number=target, callback=asker
        )
        if refusal is not None:
            return REFUSALS[refusal]
        now_us = broker.clock.now_us()
        try:
            broker.log.append_record(
                record_of(requester, message, timestamp_us=now_us, nodes=nodes)
            )
        except LogUnavailable as error:
            broker.requests.take(
                identifier, requester_number=requester.number, target_number=target
            )
            return Outcome(StatusCode.SERVICE_UNAVAILABLE, str(error))
        return None

    def reply(self, topic: str, reply: ServiceReply, owner: str) -> None:
        """Publish an answer; if that cannot be, the requester gets none."""
        try:
            self._broker.topics.intern_for(topic, owner)  # it may have been deleted meanwhile
            self._publish(topic, reply.encode())
        except (LogUnavailable, CallerError):
            self._broker.services.invalid += 1

    def _publish(self, topic: str, value: bytes) -> None:
        """Publish a message of the broker to a topic that exists; raise LogUnavailable."""
        broker, batch = self._broker, self._batch
        header = Header(topic=topic)
        payload = fleximq.wrap_value(value)
        frame = fleximq.encode(Message(MessageType.PUB, ClientId.BROKER, header, payload))
        batch.rows_max = 1
        try:
            kernel.scan(
                frame,
                0,
                batch,
                broker.topics,
                self._session.sender,
                headers=self._headers,
                message_bytes_max=FLEXIMQ_MESSAGE_BYTES_CEILING,
            )
            if len(batch) != 1:
                raise AssertionError("a publish that the kernel does not scan")
            broker.publish_batch(self._session, batch)
        finally:
            batch.clear()


class _TopicRequester:
    """A `ServiceRequester` that gets answers in a topic."""

    __slots__ = ("_owner", "_reply_topic", "_topics")
    takes_frames = False

    def __init__(self, topics: ServiceTopics, requester: Session, reply_topic: str) -> None:
        self._topics = topics
        self._owner = requester.topic_owner
        self._reply_topic = reply_topic

    def request_failed(self, identifier: str, failure: Failure) -> None:
        """See core.requests.Requester."""
        status, text = FAILURES[failure]
        self.answer(identifier, status, text.encode())

    def request_answered(self, identifier: str, status: int, payload: bytes) -> None:
        """See ServiceRequester."""
        self.answer(identifier, status, fleximq.raw_value(payload))

    def answer(self, identifier: str, status: int, value: bytes) -> None:
        """Publish an answer."""
        self._topics.reply(self._reply_topic, ServiceReply(identifier, status, value), self._owner)


def _request(requester: Session, target: Routing, request: ServiceRequest) -> Message:
    header = Header(routing=(target,), reqrep=ReqRep(ReqRepType.REQUEST, request.identifier))
    payload = fleximq.wrap_value(request.value)
    return Message(MessageType.REQ, requester.number, header, payload)


def start_service_topics(broker: Broker) -> None:
    """Let a broker take requests from topics."""
    broker.shared(ServiceTopics).start(broker)
