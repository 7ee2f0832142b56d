"""LamaMQ: every request has an id, which is its ticket, and an answer with that id.

The broker answers the choice of a version only if it refuses it. So the choice is sent with a
request that changes nothing: to unsubscribe from the empty routing key. Any answer to it completes
the handshake. The same request is a ping.
"""

import time
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from penstock import positions
from penstock.client.errors import Refused
from penstock.client.events import Acknowledged, Delivered, Event, Failed, HookCalled, Ready
from penstock.client.options import Credentials
from penstock.client.sessions.base import (
    NO_EXTRAS,
    Extras,
    Hook,
    Session,
    check_sizes,
    session_name,
)
from penstock.client.values import Delivery, HookCall
from penstock.model import DEDUPE_HEADER
from penstock.protocols import Protocol
from penstock.protocols.lamamq import (
    LAMAMQ,
    LAMAMQ_ERROR_MESSAGE_BYTES_MAX,
    LAMAMQ_PAYLOAD_BYTES_MAX,
)
from penstock.wire import lamamq
from penstock.wire.lamamq.layouts import LAYOUTS

__all__ = ["CALL_HEADERS", "LamamqSession"]

CALL_HEADERS: Final = ("penstock-hook", "penstock-event", "penstock-client", "penstock-protocol")
"""First headers of a Forward that is a hook call; the first value is the name of the hook."""

_LAYOUTS: Final = LAYOUTS["big"]
_WANTED: Final = (1, 0)


class LamamqSession(Session):
    """See the base class; `now` returns seconds since the epoch, for pushed messages."""

    protocol: ClassVar[Protocol] = LAMAMQ

    def __init__(self, name: str, key: bytes | None, now: Callable[[], int]) -> None:
        super().__init__()
        self.decoder: lamamq.ClientDecoder = lamamq.ClientDecoder()
        self._name = name
        self._key = key
        self._now = now
        self._state = lamamq.ClientState.AWAITING_OFFER
        self._greeting = 0
        self._asking = 0  # the id of the request for positions
        self._pings: set[int] = set()
        self._strategies: dict[str, lamamq.HookStrategy] = {}  # includes unregistered hooks

    def start(self) -> None:
        """See the base class."""
        self._send(lamamq.Authentication(self._name, self._key))

    def publish(self, topic: str, values: Sequence[bytes], extras: Extras = NO_EXTRAS) -> range:
        """See the base class."""
        self._check_publish(topic, extras, "headers", "dedupe")
        check_sizes(values, LAMAMQ_PAYLOAD_BYTES_MAX)
        created_at = self._now()
        # Encode once to check the common fields and to get the bytes between id and payload.
        headers = extras.headers
        if extras.dedupe is not None:
            headers = (*headers, (DEDUPE_HEADER, extras.dedupe.encode()))
        empty = lamamq.Message(created_at, topic, headers, lamamq.PayloadType.EMPTY, b"")
        common = lamamq.encode(lamamq.Push(0, empty))[4:-1]
        tickets = self._tickets(len(values))
        identify, counted = _LAYOUTS.u32.pack, _LAYOUTS.payload.pack
        parts: list[bytes] = []
        for ticket, value in zip(tickets, values, strict=True):
            parts += (
                identify(ticket),
                common,
                counted(lamamq.PayloadType.BUFFER, len(value)),
                value,
            )
        self._out += parts
        self.decoder.awaited.update(tickets)
        return tickets

    def subscribe(self, topic: str) -> int:
        """See the base class; before the first subscription, ask for positions."""
        request = lamamq.Subscribe(self._ticket(), topic)
        encoded = lamamq.encode(request)
        if not self._asking:
            self._asking = self._ticket()
            headers = ((positions.ASK_HEADER, b""),)
            message = lamamq.Message(self._now(), "", headers, lamamq.PayloadType.EMPTY, b"")
            self._send(lamamq.Push(self._asking, message))
            self.decoder.awaited.add(self._asking)
        self._out.append(encoded)
        self.decoder.awaited.add(request.message_id)
        return request.message_id

    def unsubscribe(self, topic: str) -> int:
        """See the base class."""
        return self._ask(lamamq.Unsubscribe(self._ticket(), topic))

    def ping(self) -> int:
        """See the base class."""
        ticket = self._ask(lamamq.Unsubscribe(self._ticket(), ""))
        self._pings.add(ticket)
        return ticket

    def register(self, hook: Hook) -> int:
        """See the base class."""
        ticket = self._ask(
            lamamq.Register(
                self._ticket(),
                hook.name,
                hook.priority,
                hook.timeout_ms,
                hook.strategy,
                hook.hook_type,
                hook.conditions,
            )
        )
        self._strategies[hook.name] = hook.strategy
        return ticket

    def unregister(self, name: str) -> int:
        """See the base class."""
        return self._ask(lamamq.Unregister(self._ticket(), name))

    def answer_hook(self, call: HookCall, refusal: str | None) -> None:
        """See the base class; the broker expects no answer from a hook with strategy TELL."""
        if self._strategies.get(call.hook) is lamamq.HookStrategy.TELL:
            return
        message_id = call.packet.message_id
        if refusal is None:
            self._send(lamamq.Answer(message_id))
        else:
            refused = lamamq.ErrorCode.MIDDLEWARE_REFUSED
            self._send(lamamq.Answer(message_id, refused, refusal))

    def answer_delivery(self, delivery: Delivery, failure: str | None) -> bool:
        """See the base class."""
        if delivery.origin is not self:
            return False
        message_id = delivery.packet.message_id
        if failure is None:
            self._send(lamamq.Answer(message_id))
        else:
            refused = lamamq.ErrorCode.SERVER_EXCEPTION
            self._send(lamamq.Answer(message_id, refused, _shortened(failure)))
        return True

    def _ask(
        self, packet: lamamq.Subscribe | lamamq.Unsubscribe | lamamq.Register | lamamq.Unregister
    ) -> int:
        self._send(packet)
        self.decoder.awaited.add(packet.message_id)
        return packet.message_id

    def _send(self, packet: lamamq.Packet) -> None:
        self._out.append(lamamq.encode(packet))

    def _received(self, packet: lamamq.FromBroker) -> Event | None:
        self._state = lamamq.CLIENT.advance(self._state, packet)
        match packet:
            case lamamq.Forward(_, message):
                return self._forwarded(packet, message)
            case lamamq.Answer(message_id, error, text):
                if message_id == self._greeting != 0:
                    self._greeting = 0
                    return Ready(None)
                if message_id == self._asking != 0:
                    return None
                if message_id in self._pings:
                    self._pings.remove(message_id)
                    return Acknowledged(message_id)
                ticket = message_id or None
                if error is not None:
                    return Failed(ticket, Refused(self.protocol, error, text or error.name))
                return None if ticket is None else Acknowledged(ticket)
            case lamamq.VersionOffer(maximum, minimum):
                if not minimum <= _WANTED <= maximum:
                    offered = f"versions {minimum} to {maximum} are offered, not {_WANTED}"
                    return Failed(
                        None, Refused(self.protocol, lamamq.ErrorCode.BAD_REQUEST, offered)
                    )
                self._send(lamamq.VersionChoice(*_WANTED))
                self._greeting = self._ask(lamamq.Unsubscribe(self._ticket(), ""))
                return None

    def _forwarded(self, packet: lamamq.Forward, message: lamamq.Message) -> Event | None:
        if self._strategies and tuple(key for key, _ in message.headers[:4]) == CALL_HEADERS:
            name = message.headers[0][1].decode("utf-8", "replace")
            if name in self._strategies:
                return HookCalled(HookCall(name, packet))
        if self._asking and not message.routing_key:
            return self._positions(message.payload)
        place = next(self._places, None)
        return Delivered(
            Delivery(
                message.routing_key,
                message.payload,
                packet,
                sender=None if place is None else place.sender,
                timestamp_us=message.created_at * 1_000_000,
                headers=message.headers,
                origin=self,
                place=place,
            )
        )


def _shortened(text: str) -> str:
    return text.encode()[:LAMAMQ_ERROR_MESSAGE_BYTES_MAX].decode(errors="ignore")


def lamamq_sessions(credentials: Credentials) -> Callable[[], Session]:
    """Return a factory of the sessions of a client; all have the same name."""
    name = session_name(credentials)
    return lambda: LamamqSession(name, credentials.key, lambda: int(time.time()))
