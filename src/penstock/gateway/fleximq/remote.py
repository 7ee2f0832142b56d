"""Messages between fleximq clients of different nodes.

The node of the sender appends a message as always; its record names the nodes of the receivers, and
those read it from the log. So it comes after its commit, once. The node of a target answers in the
place of one that has left or may not serve the path. A node that is gone answers nothing: then the
request times out.
"""

import contextlib
import dataclasses
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from penstock.core.access import EVERYTHING, Action, is_allowed, path_name
from penstock.core.broker import Broker
from penstock.core.requests import FAILURES_PER_STEP, Match
from penstock.core.sessions import Session, node_of
from penstock.errors import LogUnavailable
from penstock.gateway.fleximq.outcomes import ServiceRequester, unserved
from penstock.gateway.fleximq.records import broker_reply
from penstock.limits import REQUESTS_REMOTE_MAX
from penstock.model import Form, Kind
from penstock.ports import Record
from penstock.protocols.fleximq import FLEXIMQ
from penstock.wire import fleximq, messagepack
from penstock.wire.fleximq import (
    ClientId,
    Header,
    Message,
    MessageType,
    ReqRep,
    ReqRepType,
    Routing,
    StatusCode,
)

__all__ = ["RemoteExchange", "RemoteRequests", "nodes_of"]

_TYPES: Final = {
    Kind.REQUEST: MessageType.REQ,
    Kind.REPLY: MessageType.REP,
    Kind.NOTIFY: MessageType.NOTIF,
    Kind.BROADCAST: MessageType.BCAST,
    Kind.PUBLISH: MessageType.PUB,
}
_REQREP: Final = {
    MessageType.REQ: ReqRepType.REQUEST,
    MessageType.REP: ReqRepType.CORRELATION,
}


class _Asked(NamedTuple):
    requester: int
    identifier: str


class RemoteRequests:
    """Requests of clients of other nodes that clients of this node have not answered yet.

    The oldest ones are forgotten at REQUESTS_REMOTE_MAX: they are answered too late, if at all.
    """

    def __init__(self) -> None:
        self._targets: OrderedDict[_Asked, int] = OrderedDict()
        self._by_target: dict[int, dict[_Asked, None]] = {}

    def add(self, identifier: str, *, requester: int, target: int) -> None:
        """Add a request that was delivered to its target."""
        asked = _Asked(requester, identifier)
        self._forget(asked)
        self._targets[asked] = target
        self._by_target.setdefault(target, {})[asked] = None
        if len(self._targets) > REQUESTS_REMOTE_MAX:
            self._forget(next(iter(self._targets)))

    def take(self, identifier: str, *, requester: int, target: int) -> bool:
        """Return whether a target may answer a request, and remove it."""
        asked = _Asked(requester, identifier)
        if self._targets.get(asked) != target:
            return False
        self._forget(asked)
        return True

    def pending_to(self, target: int) -> int:
        """Return how many requests await an answer of a client."""
        return len(self._by_target.get(target, ()))

    def leave(self, broker: Broker, target: int) -> None:
        """Answer the requests to a client that has left, in its place."""
        asked = list(self._by_target.get(target, ()))
        if asked:
            broker.slices.start(self._fail(broker, asked, target))

    def _fail(self, broker: Broker, asked: list[_Asked], target: int) -> Iterator[None]:
        for done, each in enumerate(asked, 1):
            if self.take(each.identifier, requester=each.requester, target=target):
                text = "the client has left"
                _refuse(broker, each, StatusCode.CLIENT_NOT_FOUND, text)
            if not done % FAILURES_PER_STEP:
                yield

    def _forget(self, asked: _Asked) -> None:
        target = self._targets.pop(asked, None)
        if target is None:
            return
        waiting = self._by_target[target]
        del waiting[asked]
        if not waiting:
            del self._by_target[target]


def nodes_of(broker: Broker, numbers: Iterable[int]) -> tuple[int, ...]:
    """Return the other nodes to which clients with these numbers may be connected.

    A number of a node that there never was belongs to no client.
    """
    if broker.roaming is None or broker.catch_up is None:
        return ()
    own = broker.log.partition
    found = {node_of(number) for number in numbers if number >= ClientId.DYNAMIC_MIN}
    return tuple(sorted(found & broker.catch_up.partitions.keys() - {own}))


class RemoteExchange:
    """Delivers the messages of other nodes to fleximq clients of this one."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        broker.services.pending_elsewhere = broker.shared(RemoteRequests).pending_to

    def receive(self, record: Record) -> None:
        """Deliver a message that another node has written for clients of this one."""
        message = _message(record)
        match message.type:
            case MessageType.REQ:
                self._request(message)
            case MessageType.REP:
                self._reply(message)
            case MessageType.BCAST:
                for client in self._clients():
                    if is_allowed(client.principal, Action.SERVE, EVERYTHING):
                        self._send(client, message)
            case MessageType.NOTIF:
                for client, entry in self._targets(message):
                    if _serves(client, entry.path):
                        self._send(client, message, entry)
            case _:
                subscribers = set(self._broker.router.subscribers(message.header.topic or ""))
                for client, entry in self._targets(message):
                    if client in subscribers:
                        self._send(client, message, entry)

    # --- Request and response ---------------------------------------------------------------------

    def _request(self, message: Message) -> None:
        identifier = _identifier(message)
        asked = _Asked(message.client_id, identifier)
        for entry in message.header.routing or ():
            if entry.client_id == ClientId.BROKER:
                self._request_service(message, entry.path)
                continue
            if not self._is_own(entry.client_id):
                continue
            target = self._client(entry.client_id)
            if target is None:
                text = f"no client {entry.client_id}"
                _refuse(self._broker, asked, StatusCode.CLIENT_NOT_FOUND, text)
            elif not _serves(target, entry.path):
                text = f"rules do not let client {entry.client_id} serve this path"
                _refuse(self._broker, asked, StatusCode.FORBIDDEN, text)
            else:
                self._broker.shared(RemoteRequests).add(
                    identifier, requester=message.client_id, target=target.number
                )
                self._send(target, message)

    def _request_service(self, message: Message, path: str) -> None:
        """Give a request to the least busy server of a path; this node has been chosen for it."""
        identifier = _identifier(message)
        server = self._broker.services.choose(path)
        if server is None:  # the last one has just left
            asked = _Asked(message.client_id, identifier)
            _refuse(self._broker, asked, *unserved(path))
            return
        number = server.session.number
        requests = self._broker.shared(RemoteRequests)
        requests.add(identifier, requester=message.client_id, target=number)
        self._send(server.session, message, Routing(number, server.path))

    def _reply(self, message: Message) -> None:
        identifier = _identifier(message)
        requests = self._broker.requests
        for entry in message.header.routing or ():
            number = entry.client_id
            callback = requests.callback(identifier, requester_number=number)
            found = requests.answer_remote(
                identifier, requester_number=number, target_number=message.client_id
            )
            if found is not Match.AWAITED:
                continue
            requester = self._client(number)
            if isinstance(callback, ServiceRequester) and not callback.takes_frames:
                status = message.header.status or StatusCode.OK
                callback.request_answered(identifier, status, message.payload)
            elif requester is not None:
                self._send(requester, message)

    # --- Common parts -----------------------------------------------------------------------------

    def _is_own(self, number: int) -> bool:
        return node_of(number) == self._broker.log.partition

    def _client(self, number: int) -> Session | None:
        session = self._broker.sessions.get(number)
        if session is None or session.encoding.protocol is not FLEXIMQ:
            return None
        return session

    def _clients(self) -> list[Session]:
        return [each for each in self._broker.sessions if each.encoding.protocol is FLEXIMQ]

    def _targets(self, message: Message) -> Iterator[tuple[Session, Routing]]:
        for entry in message.header.routing or ():
            client = self._client(entry.client_id)
            if client is not None:
                yield client, entry

    def _send(self, client: Session, message: Message, entry: Routing | None = None) -> None:
        """Send a message; a receiver of many gets its own routing entry only."""
        if entry is not None:
            header = dataclasses.replace(message.header, routing=(entry,))
            message = Message(message.type, message.client_id, header, message.payload)
        self._broker.delivery.send(client, fleximq.encode(message), 1)


def _refuse(broker: Broker, asked: _Asked, status: StatusCode, text: str) -> None:
    """Answer a request of another node in the place of its target."""
    record = broker_reply(
        status,
        messagepack.encode(text),
        client_id=asked.requester,
        identifier=asked.identifier,
        timestamp_us=broker.clock.now_us(),
        nodes=nodes_of(broker, [asked.requester]),
    )
    with contextlib.suppress(LogUnavailable):  # then the request times out
        broker.log.append_record(record)


def _serves(target: Session, path: str) -> bool:
    return is_allowed(target.principal, Action.SERVE, path_name(path))


def _identifier(message: Message) -> str:
    return "" if message.header.reqrep is None else message.header.reqrep.id


def _message(record: Record) -> Message:
    """Return the message of a record: the reverse of `record_of`."""
    kind = _TYPES[record.kind]
    reqrep = None
    if record.correlation is not None and kind in _REQREP:
        reqrep = ReqRep(_REQREP[kind], record.correlation)
    numbers = [int(value) for key, value in record.headers if key == "to"]
    paths = [value.decode() for key, value in record.headers if key == "path"]
    header = Header(
        routing=tuple(map(Routing, numbers, paths)) or None,
        reqrep=reqrep,
        topic=record.topic or None,
        status=record.status,
    )
    return Message(kind, record.sender.number, header, _payload(record))


def _payload(record: Record) -> bytes:
    match record.form:
        case Form.TEXT:
            return messagepack.encode(record.value.decode(errors="replace"))
        case Form.BINARY:
            return messagepack.encode(record.value)
        case _:
            return record.value
