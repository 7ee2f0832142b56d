"""fleximq: ten message types, requests correlated by id.

The broker does not answer SUB and UNSUB, it only reports their errors. Each is sent between two
PINGs; an error between the two PONGs is its answer (see `pongs`).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from penstock import positions
from penstock.client.errors import Refused
from penstock.client.events import (
    Delivered,
    Event,
    Failed,
    Notified,
    Ready,
    Replied,
    Requested,
)
from penstock.client.options import Credentials
from penstock.client.sessions.base import NO_EXTRAS, Extras, Session, check_sizes
from penstock.client.sessions.pongs import Pongs
from penstock.client.values import Delivery, Notification, Reply, Request, unpacked
from penstock.errors import WireError
from penstock.positions import Place
from penstock.protocols import Protocol
from penstock.protocols.fleximq import (
    FLEXIMQ,
    FLEXIMQ_HEADERS_CACHED_MAX,
    FLEXIMQ_MESSAGE_BYTES_CEILING,
    FLEXIMQ_PAYLOAD_DEPTH_CEILING,
)
from penstock.wire import fleximq, messagepack
from penstock.wire.fleximq import (
    ClientId,
    Header,
    Message,
    MessageType,
    ReqRep,
    ReqRepType,
    Routing,
)
from penstock.wire.fleximq.packets import PAYLOAD_LENGTH
from penstock.wire.fleximq.payloads import check_payload

__all__ = ["FleximqSession"]

_STATUS_NAMES: Final = {code.value: code.name for code in fleximq.StatusCode}


class _Decoder(fleximq.ClientDecoder):
    """The codec's decoder with a cache of PUB headers: most messages repeat one."""

    def __init__(self) -> None:
        super().__init__()
        self._publications: dict[bytes, Header] = {}

    def _message(
        self, message_type: MessageType, client_id: int, header: bytes, payload: bytes
    ) -> Message:
        known = self._publications.get(header) if message_type is MessageType.PUB else None
        if known is None or client_id == ClientId.UNASSIGNED:
            message = super()._message(message_type, client_id, header, payload)
            if message_type is MessageType.PUB:
                if len(self._publications) >= FLEXIMQ_HEADERS_CACHED_MAX:
                    self._publications.clear()
                self._publications[header] = message.header
            return message
        check_payload(payload, depth_max=FLEXIMQ_PAYLOAD_DEPTH_CEILING)
        return Message(message_type, client_id, known, payload)


class FleximqSession(Session):
    """See the base class; `now_ms` returns milliseconds since the epoch, for keep-alives."""

    protocol: ClassVar[Protocol] = FLEXIMQ

    def __init__(self, credentials: Credentials, now_ms: Callable[[], int]) -> None:
        super().__init__()
        self._now_ms = now_ms
        self.decoder = _Decoder()
        self._auth = _auth(credentials)
        self._state = fleximq.ClientState.AWAITING_REPLY
        self._client_id = 0
        self._pongs = Pongs()
        self._pinged_ms = 0
        self._requests: dict[str, int] = {}
        self._delivered = 0  # messages of subscriptions
        self._asked = False

    def start(self) -> None:
        """See the base class."""
        self._send(MessageType.JOIN, Header(auth=self._auth))

    def publish(self, topic: str, values: Sequence[bytes], extras: Extras = NO_EXTRAS) -> range:
        """See the base class; fleximq does not acknowledge a publish."""
        self._check_publish(topic, extras, "status", "routing", "packed", "dedupe")
        payloads = values if extras.packed else [fleximq.wrap_value(value) for value in values]
        header = Header(
            routing=_routing(extras.routing),
            topic=topic,
            status=extras.status,
            dedupe=extras.dedupe,
        )
        # Encode once to check the header and to get the bytes before each payload.
        empty = fleximq.encode(Message(MessageType.PUB, self._client_id, header))
        common = empty[: -PAYLOAD_LENGTH.size]
        check_sizes(payloads, FLEXIMQ_MESSAGE_BYTES_CEILING - len(empty))
        if extras.packed:
            for payload in payloads:
                fleximq.encode(Message(MessageType.PUB, self._client_id, header, payload))
        counted = PAYLOAD_LENGTH.pack
        parts: list[bytes] = []
        for payload in payloads:
            parts += common, counted(len(payload)), payload
        self._out += parts
        return range(0)

    def subscribe(self, topic: str) -> int:
        """See the base class; before the first subscription, ask for positions."""
        fleximq.encode(Message(MessageType.SUB, self._client_id, Header(topic=topic)))  # checks it
        if not self._asked:
            self._asked = True
            self._send(
                MessageType.REQ,
                Header(
                    routing=(Routing(ClientId.BROKER, positions.ASK_PATH),),
                    reqrep=ReqRep(ReqRepType.REQUEST, positions.ASK_NAME),
                ),
            )
        return self._bracketed(MessageType.SUB, topic)

    def unsubscribe(self, topic: str) -> int:
        """See the base class."""
        return self._bracketed(MessageType.UNSUB, topic)

    def ping(self) -> int:
        """See the base class."""
        ticket = self._ticket()
        self._pongs.expect(ticket, self._send_ping())
        return ticket

    def request(self, target: int, path: str, payload: bytes) -> int:
        """See the base class."""
        ticket = self._ticket()
        identifier = str(ticket)
        self._send(
            MessageType.REQ,
            Header(
                routing=(Routing(target, path),),
                reqrep=ReqRep(ReqRepType.REQUEST, identifier),
            ),
            payload,
        )
        self._requests[identifier] = ticket
        return ticket

    def forget(self, ticket: int) -> None:
        """See the base class."""
        self._requests.pop(str(ticket), None)

    def reply(self, request: Request, status: int, payload: bytes) -> None:
        """See the base class."""
        reqrep = request.packet.header.reqrep
        if reqrep is None:
            raise AssertionError("a request without an id")
        self._send(
            MessageType.REP,
            Header(
                routing=(Routing(request.sender, request.path),),
                reqrep=ReqRep(ReqRepType.CORRELATION, reqrep.id),
                status=status,
            ),
            payload,
        )

    def notify(self, targets: Mapping[int, str], payload: bytes, status: int | None) -> None:
        """See the base class."""
        header = Header(routing=_routing(targets), status=status)
        self._send(MessageType.NOTIF, header, payload)

    def broadcast(self, payload: bytes, status: int | None) -> None:
        """See the base class."""
        self._send(MessageType.BCAST, Header(status=status), payload)

    def answer_delivery(self, delivery: Delivery, failure: str | None) -> bool:
        """See the base class: messages are numbered, so all of a connection must be of a group."""
        session, number = delivery.origin
        if session is not self:
            return False
        path = "/ack" if failure is None else "/nack"
        answer = number if failure is None else {"delivery": number, "reason": failure[:1000]}
        header = Header(routing=(Routing(ClientId.BROKER, path),))
        self._send(MessageType.NOTIF, header, messagepack.encode(answer))
        return True

    def _bracketed(self, message_type: MessageType, topic: str) -> int:
        encoded = fleximq.encode(Message(message_type, self._client_id, Header(topic=topic)))
        ticket = self._ticket()
        first = self._send_ping()
        self._out.append(encoded)
        self._pongs.expect_around(ticket, first, self._send_ping())
        return ticket

    def _send_ping(self) -> int:
        """Send a PING with a unique timestamp, which its PONG repeats; return the timestamp."""
        self._pinged_ms = max(self._now_ms(), self._pinged_ms + 1)
        self._send(MessageType.PING, Header(keepalive=fleximq.KeepAlive(self._pinged_ms)))
        return self._pinged_ms

    def _send(self, message_type: MessageType, header: Header, payload: bytes = b"") -> None:
        self._out.append(fleximq.encode(Message(message_type, self._client_id, header, payload)))

    # --- Received ---------------------------------------------------------------------------------

    def _received(self, packet: Message) -> Event | None:
        joining = self._state is fleximq.ClientState.AWAITING_REPLY
        self._state = fleximq.CLIENT.advance(self._state, packet)
        match packet.type:
            case MessageType.PUB:
                self._delivered += 1
                return _delivered(packet, (self, self._delivered), next(self._places, None))
            case MessageType.PONG:
                keepalive = packet.header.keepalive
                return self._pongs.received(keepalive.timestamp) if keepalive else None
            case MessageType.REP:
                return self._joined(packet) if joining else self._replied(packet)
            case MessageType.REQ:
                return Requested(Request(packet, _path(packet) or ""))
            case MessageType.NOTIF:
                return self._notified(packet)
            case MessageType.PING:
                keepalive = packet.header.keepalive
                if keepalive is not None:
                    answer = fleximq.KeepAlive(keepalive.timestamp)
                    self._pong_to(answer, joining=joining)
                return None
            case _:
                return Notified(Notification(packet, None))

    def _pong_to(self, keepalive: fleximq.KeepAlive, *, joining: bool) -> None:
        if not joining:  # only a JOIN may have client id 0
            self._send(MessageType.PONG, Header(keepalive=keepalive))

    def assume_number(self, number: int) -> None:
        """See the base class."""
        self._client_id = number

    def _joined(self, packet: Message) -> Event:
        if not fleximq.is_success(packet.header.status):
            return Failed(None, _refused(packet))
        self._client_id = packet.client_id
        return Ready(packet.client_id)

    def _replied(self, packet: Message) -> Event | None:
        reqrep = packet.header.reqrep
        ticket = self._requests.pop(reqrep.id, None) if reqrep is not None else None
        if ticket is None:
            return None  # the call has timed out
        if not fleximq.is_success(packet.header.status):
            return Failed(ticket, _refused(packet))
        return Replied(ticket, Reply(packet))

    def _notified(self, packet: Message) -> Event | None:
        from_broker = packet.client_id == ClientId.BROKER
        if from_broker and self._asked and _path(packet) == positions.ASK_PATH:
            return self._positions(fleximq.raw_value(packet.payload))
        if not from_broker or fleximq.is_success(packet.header.status):
            return Notified(Notification(packet, _path(packet)))
        return self._pongs.failed(_refused(packet))


def _auth(credentials: Credentials) -> fleximq.Auth | None:
    if credentials.token is not None:
        return fleximq.TokenAuth(credentials.token)
    if credentials.username is not None and credentials.password is not None:
        return fleximq.BasicAuth(credentials.username, credentials.password)
    if credentials.api_key is not None:
        return fleximq.ApiKeyAuth(credentials.api_key)
    return None


def _routing(targets: Mapping[int, str] | None) -> tuple[Routing, ...] | None:
    if targets is None:
        return None
    return tuple(Routing(client_id, path) for client_id, path in targets.items())


def _path(packet: Message) -> str | None:
    return packet.header.routing[0].path if packet.header.routing else None


def _delivered(packet: Message, origin: tuple["FleximqSession", int], place: Place | None) -> Event:
    return Delivered(
        Delivery(
            packet.header.topic,
            fleximq.raw_value(packet.payload),
            packet,
            sender=packet.client_id,
            status=packet.header.status,
            origin=origin,
            place=place,
        )
    )


def _refused(packet: Message) -> Refused:
    status = packet.header.status or 0
    return Refused(FLEXIMQ, status, _text(packet.payload, status), packet.payload)


def _text(payload: bytes, status: int) -> str:
    """Return the text of an answer, or the name of its status."""
    try:
        said = unpacked(payload)
    except WireError:
        said = None
    if isinstance(said, bytes):
        said = said.decode("utf-8", "replace")
    return str(said) if said else _STATUS_NAMES.get(status, "no reason given")


def fleximq_sessions(credentials: Credentials) -> Callable[[], Session]:
    """Return a factory of the sessions of a client, one for each connection."""
    return lambda: FleximqSession(credentials, lambda: time.time_ns() // 1_000_000)
